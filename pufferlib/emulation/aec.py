"""PettingZoo's AEC API: agents act one after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.emulation.base import Emulated, must
from pufferlib.emulation.inspection import EnvTraits, zoo_spaces
from pufferlib.env import AgentId
from pufferlib.episodes import Info


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

    def reset(self, seed: int | None = None) -> tuple[NDArray[np.generic], list[Info]]:
        self._reset_env(seed)
        self.masks[:] = True
        self._write_all("reset")
        return self.observations, [self._info_of(id) for id in self._slot_of]

    def step(self, action: Any) -> tuple[Any, ...]:
        if action is not self.actions:
            self.actions[...] = action
        env = self.env
        slot = self._slot_of.get(env.agent_selection)
        if slot is None:
            wanted = f"an agent of {list(self._slot_of)}"
            raise self.broken("step", must("agent_selection", wanted, env.agent_selection))
        chosen = self._read[slot]()
        before = list(env.agents)
        self._call("step", env.step, chosen)
        infos = [self._info_of(id) for id in self._slot_of]
        for id in before:
            self._write_outcome(id, infos)
        self._remove_ended()
        if env.agents:
            self._write_all("step")
        else:
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _write_outcome(self, id: AgentId, infos: list[Info]) -> None:
        """Write the reward and flags of one agent after an action."""
        slot = self._slot_of[id]
        self.rewards[slot] = self._reward(self.env.rewards.get(id, 0.0), slot)
        is_terminal = self._flag("terminated", self.env.terminations.get(id, False), slot)
        is_cut = self._flag("truncated", self.env.truncations.get(id, False), slot)
        if is_terminal or is_cut:
            (self.terminals if is_terminal else self.truncations)[slot] = True
            self._observe("step", slot, self._observation_of(id), final=True)
            self._add_metrics(infos[slot])

    def _remove_ended(self) -> None:
        """Step ended agents with None, as AEC demands, until a live agent is selected."""
        env = self.env
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            self._call("step", env.step, None)

    def _write_all(self, method: str) -> None:
        """Write every agent's observation and action mask before the next action."""
        present = set(self.env.agents)
        for id, slot in self._slot_of.items():
            if id not in present:
                self.masks[slot] = False
                self.observations[slot] = 0
                self._wait(slot)
                continue
            observation = self._observation_of(id)
            self._observe(method, slot, observation)
            if id != self.env.agent_selection:
                self._wait(slot)
            elif self._masks_from == "selection":  # the env has no masks: all is allowed
                assert self.action_masks is not None
                self.action_masks[slot] = True
            elif self._masks_from:
                self._mask(method, slot, observation, self._info_of(id))

    def _observation_of(self, id: AgentId) -> Any:
        return self._call("observe", self.env.observe, id)

    def _info_of(self, id: AgentId) -> Info:
        return self._info("step", self.env.infos.get(id, {}), self._slot_of[id])
