"""PettingZoo's AEC API: agents act one after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

from pufferlib.emulation.base import Emulated, must
from pufferlib.emulation.inspection import EnvTraits, zoo_spaces


class Aec(Emulated):
    """PettingZoo's AEC API: one step is the action of one agent.

    All agents stay present, so that rewards reach waiting agents in the step that earns them. The
    selected agent acts; the others have one allowed choice, which does nothing, and for a Box a
    mask without any flag: nothing is learned from what they sampled.
    """

    def __init__(self, traits: EnvTraits, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = zoo_spaces(traits)
        ids = traits.possible_agents
        super().__init__(traits, observation_space, action_space, len(ids), ids, index, like)
        self._slot_of = {id: slot for slot, id in enumerate(ids)}

    def _find_action_masks(self) -> str:
        return super()._find_action_masks() or "selection"

    def _try_infos(self) -> Iterable[Any]:
        self._reset_env(0)
        return list(self.env.infos.values())

    def reset(self, seed: int | None = None) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        self._reset_env(seed)
        self.masks[:] = True
        self._write_all("reset")
        return self.observations, self._infos()

    def step(self, action: Any) -> tuple[Any, ...]:
        if action is not self.actions:
            self.actions[...] = action
        env = self.env
        selected = env.agent_selection
        slot = self._slot_of.get(selected)
        if slot is None:
            wanted = f"an agent of {list(self._slot_of)}"
            raise self.broken("step", must("agent_selection", wanted, selected))
        chosen = self._read[slot]()
        before = list(env.agents)
        self._call("step", env.step, chosen)
        infos = self._infos()
        # wrappers pass each read of an attribute on to the next, so each is read once
        rewards, terminations, truncations = env.rewards, env.terminations, env.truncations
        has_ended = False
        for id in before:
            slot = self._slot_of[id]
            self.rewards[slot] = self._reward(rewards.get(id, 0.0), slot)
            is_terminal = self._flag("terminated", terminations.get(id, False), slot)
            is_cut = self._flag("truncated", truncations.get(id, False), slot)
            if is_terminal or is_cut:
                has_ended = True
                (self.terminals if is_terminal else self.truncations)[slot] = True
                self._observe("step", slot, self._observation_of(id), final=True)
                self._add_metrics(infos[slot])
        if has_ended:
            self._remove_ended()
        if env.agents:
            self._write_all("step")
        else:
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _remove_ended(self) -> None:
        """Step ended agents with None, as AEC demands, until a live agent is selected."""
        env = self.env
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            self._call("step", env.step, None)

    def _write_all(self, method: str) -> None:
        """Write every agent's observation and action mask before the next action."""
        present, selected = set(self.env.agents), self.env.agent_selection
        for id, slot in self._slot_of.items():
            if id not in present:
                self.masks[slot] = False
                self.observations[slot] = 0
                self._wait(slot)
                continue
            observation = self._observation_of(id)
            self._observe(method, slot, observation)
            if id != selected:
                self._wait(slot)
            elif self._masks_from == "selection":  # the env has no masks: all is allowed
                assert self.action_masks is not None
                self.action_masks[slot] = True
            elif self._masks_from:
                self._mask(method, slot, observation, self._info_of(id))

    def _observation_of(self, id: Any) -> Any:
        return self._call("observe", self.env.observe, id)

    def _info_of(self, id: Any) -> dict[str, Any]:
        return self._info("step", self.env.infos.get(id, {}), self._slot_of[id])

    def _infos(self) -> list[dict[str, Any]]:
        given = self.env.infos
        return [self._info("step", given.get(id, {}), slot) for id, slot in self._slot_of.items()]
