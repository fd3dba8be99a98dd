"""Envs whose agents take turns: PettingZoo's AEC API."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from pufferlib.emulation.base import MASK_KEY, Emulated
from pufferlib.emulation.inspection import zoo_spaces
from pufferlib.emulation.messages import must
from pufferlib.emulation.seeds import undisturbed


class TurnBased(Emulated):
    """PettingZoo's AEC API, one turn to a step.

    All agents stay present, so that rewards reach those who wait in the very step that earns them.
    The agent whose turn it is acts; the others have one choice left, which does nothing, and where
    there is a Box, a mask without any flag: nothing is learned from what they drew.
    """

    def __init__(self, env: Any, index: int = 0, like: Emulated | None = None) -> None:
        ids, observation_space, action_space = zoo_spaces(env)
        super().__init__(env, observation_space, action_space, len(ids), ids, index, like)
        self._slot_of = {id: slot for slot, id in enumerate(ids)}

    def _find_action_masks(self) -> str:
        return super()._find_action_masks() or "turns"

    def _info_has_mask(self) -> bool:
        if not self._takes_seed:
            return False
        with undisturbed():
            self._reset_env(0)
        return any(MASK_KEY in info for info in self.env.infos.values())

    def reset(self, seed: int | None = None) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        self._reset_env(seed)
        self.masks[:] = True
        self._show("reset")
        return self.observations, [self._told_by(id) for id in self._slot_of]

    def step(self, action: Any) -> tuple[Any, ...]:
        if action is not self.actions:
            self.actions[...] = action
        env = self.env
        turn = self._slot_of.get(env.agent_selection)
        if turn is None:
            wanted = f"an agent of {list(self._slot_of)}"
            raise self.broken("step", must("agent_selection", wanted, env.agent_selection))
        chosen = self._read[turn]()
        before = list(env.agents)
        try:
            env.step(chosen)
        except Exception as error:
            raise self.raised("step", error) from error
        infos = [self._told_by(id) for id in self._slot_of]
        for id in before:
            self._note(id, infos)
        self._bury()
        if env.agents:
            self._show("step")
        else:
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def _note(self, id: Any, infos: list[dict[str, Any]]) -> None:
        """Write what the last turn brought to one agent."""
        slot = self._slot_of[id]
        self.rewards[slot] = self._reward(self.env.rewards.get(id, 0.0), slot)
        is_terminal = self._flag("terminated", self.env.terminations.get(id, False), slot)
        is_cut = self._flag("truncated", self.env.truncations.get(id, False), slot)
        if is_terminal or is_cut:
            (self.terminals if is_terminal else self.truncations)[slot] = True
            self._observe("step", slot, self._look(id), final=True)
            self._add_metrics(infos[slot])

    def _bury(self) -> None:
        """Step agents that have ended, as AEC asks for, until one that lives is selected."""
        env = self.env
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            try:
                env.step(None)
            except Exception as error:
                raise self.raised("step", error) from error

    def _show(self, method: str) -> None:
        """Show every agent what it sees before the next turn."""
        present = set(self.env.agents)
        for id, slot in self._slot_of.items():
            if id not in present:
                self.masks[slot] = False
                self.observations[slot] = 0
                self._wait(slot)
                continue
            observation = self._look(id)
            self._observe(method, slot, observation)
            if id != self.env.agent_selection:
                self._wait(slot)
            elif self._masks_from == "turns":  # no masks of its own: all is allowed
                assert self.action_masks is not None
                self.action_masks[slot] = True
            elif self._masks_from:
                self._mask(method, slot, observation, self._told_by(id))

    def _look(self, id: Any) -> Any:
        try:
            return self.env.observe(id)
        except Exception as error:
            raise self.raised("observe", error) from error

    def _told_by(self, id: Any) -> dict[str, Any]:
        return self._info("step", self.env.infos.get(id, {}), self._slot_of[id])
