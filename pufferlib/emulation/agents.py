"""Envs that speak dicts by agent id: multi-agent PufferEnvs, and PettingZoo's parallel API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.emulation.base import MASK_KEY, Emulated
from pufferlib.emulation.inspection import num_agents_of, spaces_of, zoo_spaces
from pufferlib.emulation.messages import arity, must
from pufferlib.emulation.seeds import undisturbed
from pufferlib.errors import MissingExtraError

ALL_AGENTS = "__all__"  # the id whose flag ends the episode of everyone


class AgentDicts(Emulated):
    """Many agents in dicts by id: the multi-agent form of PufferEnv; `Parallel` is PettingZoo's.

    A slot belongs to one id for good, in the order in which ids appear. An agent acts from its
    first observation until its flag; then its slot is masked until it comes again. One that gets
    no observation and no flag waits: it stays present and is not asked for an action.
    """

    def __init__(self, env: Any, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = spaces_of(env)
        ids = tuple(getattr(env, "possible_agents", ()) or ())
        num_agents = len(ids) or num_agents_of(env)
        super().__init__(env, observation_space, action_space, num_agents, ids, index, like)
        self._prepare()

    def _prepare(self) -> None:
        assert self.agent_ids is not None
        self._slot_of: dict[Any, int] = {id: slot for slot, id in enumerate(self.agent_ids)}
        self._acting: list[tuple[Any, int]] = []  # those who are asked for an action
        self._step_env = self.env.step

    # ---- Beginning -----------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        return self.begin(self._reset_env(seed))

    def begin(self, result: Any) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        """Write the first observations of an episode from what `reset` returned."""
        observations, infos = self._first(result)
        self.masks[:] = False
        self._acting = []
        for id, observation in observations.items():
            self._join("reset", id, observation, infos.get(id))
        if not self._acting:
            raise self.broken(
                "reset", "must return an observation of at least one agent, but got none."
            )
        for slot in np.flatnonzero(~self.masks):
            self._clear(int(slot))
        return self.observations, self._slot_infos(infos)

    def _first(self, result: Any) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        if isinstance(result, tuple) and len(result) == 2:
            observations, infos = result
        else:
            observations, infos = result, {}
        return self._dict("reset", "observations", observations), self._infos("reset", infos)

    def _join(self, method: str, id: Any, observation: Any, info: Any) -> None:
        """Show an agent what it acts on next."""
        slot = self._slot_of.get(id)
        if slot is None:
            slot = self._new_slot(method, id)
        self._observe(method, slot, observation)
        self.masks[slot] = True
        if self.action_masks is not None:
            self._mask(method, slot, observation, info if isinstance(info, Mapping) else {})
        self._acting.append((id, slot))

    def _new_slot(self, method: str, id: Any) -> int:
        slot = len(self._slot_of)
        if slot >= self.num_agents:
            raise self.broken(
                method,
                f"`num_agents` must count every agent, but is {self.num_agents} and agent {id!r} "
                f"comes after {list(self._slot_of)}.",
            )
        self._slot_of[id] = slot
        self.agent_ids = tuple(self._slot_of)
        return slot

    def _clear(self, slot: int) -> None:
        """Empty the row of an absent agent."""
        self.masks[slot] = False
        self.observations[slot] = 0
        if self.action_masks is not None:
            self.action_masks[slot] = True

    # ---- Stepping ------------------------------------------------------------------------------

    def step(self, action: Any) -> tuple[Any, ...]:
        if action is not self.actions:
            self.actions[...] = action
        chosen = {id: self._read[slot]() for id, slot in self._acting}
        try:
            result = self._step_env(chosen)
        except Exception as error:
            raise self.raised("step", error) from error
        observations, rewards, terminated, truncated, infos = self._parts(result)
        before = [(id, slot) for id, slot in self._slot_of.items() if self.masks[slot]]
        ends = {}
        for id, slot in before:
            reward = rewards.get(id)
            if reward is not None:
                self.rewards[slot] = self._reward(reward, slot)
            is_terminal = self._flag("terminated", terminated.get(id, False), slot)
            is_cut = self._flag("truncated", truncated.get(id, False), slot)
            if is_terminal or is_cut:
                ends[id] = is_terminal
        over = self._over(before, ends, terminated, truncated)
        for id, slot in before:
            if id in ends:
                self._end(id, slot, ends[id], observations, infos)
        if over:
            self._add_metrics({key: infos[key] for key in infos if key not in self._slot_of})
            self.begin(self._reset_env(None))
        else:
            self._go_on(observations, infos, before, ends)
        slot_infos = self._slot_infos(infos)
        return self.observations, self.rewards, self.terminals, self.truncations, slot_infos

    def _over(
        self,
        before: list[tuple[Any, int]],
        ends: dict[Any, bool],
        terminated: Mapping[Any, Any],
        truncated: Mapping[Any, Any],
    ) -> bool:
        """Return whether the episode of all is over; whoever is left ends with it."""
        all_terminal = self._flag("terminated", terminated.get(ALL_AGENTS, False))
        all_cut = self._flag("truncated", truncated.get(ALL_AGENTS, False))
        if all_terminal or all_cut:
            for id, _ in before:
                ends.setdefault(id, all_terminal)
            return True
        return ALL_AGENTS not in terminated and len(ends) == len(before)

    def _end(
        self,
        id: Any,
        slot: int,
        is_terminal: bool,
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
    ) -> None:
        (self.terminals if is_terminal else self.truncations)[slot] = True
        if id in observations:
            self._observe("step", slot, observations[id], final=True)
        else:  # it left without a last look: the one before is the best there is
            self.final_observations[slot] = self.observations[slot]
        info = infos.get(id)
        if isinstance(info, Mapping):
            self._add_metrics(info)

    def _go_on(
        self,
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
        before: list[tuple[Any, int]],
        ends: dict[Any, bool],
    ) -> None:
        """Show the next observations; who ended leaves, who has none waits."""
        self._acting = []
        for id, slot in before:
            if id in ends:
                self._clear(slot)
            elif id not in observations:
                self._wait(slot)
        present = {id for id, _ in before}
        for id, observation in observations.items():
            if id not in ends and (id in present or self._comes(id)):
                self._join("step", id, observation, infos.get(id))

    def _comes(self, id: Any) -> bool:
        """Return whether an absent agent with an observation is (back) in play."""
        return not self._last_flags.get(id, False)

    def _parts(self, result: Any) -> tuple[Mapping[Any, Any], ...]:
        if not isinstance(result, tuple | list) or len(result) not in (4, 5):
            wanted = (
                "4 parts (observations, rewards, dones, infos) or 5 "
                "(observations, rewards, terminateds, truncateds, infos)"
            )
            raise self.broken("step", arity(wanted, result))
        names = ("observations", "rewards", "dones", "truncateds")
        *dicts, infos = result
        parts = [self._dict("step", name, part) for name, part in zip(names, dicts)]
        infos = self._infos("step", infos)
        for name, part in zip(names[1:], parts[1:]):
            self._check_known("step", name, part, parts[0])
        if len(result) == 4:
            dones = {
                id: self._flag("done", done, self._slot_of.get(id)) for id, done in parts[2].items()
            }
            parts.append(self._cut_by_info(dones, infos))
            parts[2] = {id: done and not parts[3][id] for id, done in dones.items()}
        terminated, truncated = parts[2], parts[3]
        self._last_flags = {
            id: bool(terminated.get(id)) or bool(truncated.get(id))
            for id in {**terminated, **truncated}
        }
        return (*parts, infos)

    def _check_known(
        self, method: str, field: str, part: Mapping[Any, Any], observations: Mapping[Any, Any]
    ) -> None:
        """Raise for an id that belongs to no agent: what is said of it would be lost."""
        if part.keys() <= self._slot_of.keys() or len(self._slot_of) < self.num_agents:
            return  # in the latter case it may be one that comes later
        for id in part:
            if id not in self._slot_of and id not in observations and id != ALL_AGENTS:
                known = list(self._slot_of)
                raise self.broken(
                    method, f"`{field}` must be of agents {known}, but got one of {id!r}."
                )

    def _cut_by_info(self, dones: Mapping[Any, bool], infos: Mapping[Any, Any]) -> dict[Any, bool]:
        """Return who was cut rather than ended: its info, or all's, has `TimeLimit.truncated`."""
        everyone = bool(infos.get("TimeLimit.truncated", False))

        def is_cut(id: Any) -> bool:
            info = infos.get(id)
            return everyone or (
                isinstance(info, Mapping) and bool(info.get("TimeLimit.truncated", False))
            )

        return {id: done and is_cut(id) for id, done in dones.items()}

    # ---- Checks --------------------------------------------------------------------------------

    def _dict(self, method: str, field: str, value: Any) -> Mapping[Any, Any]:
        if isinstance(value, Mapping):
            return value
        raise self.broken(method, must(field, "a dict by agent id", value))

    def _infos(self, method: str, value: Any) -> Mapping[Any, Any]:
        infos = {} if value is None else self._dict(method, "infos", value)
        for id, info in infos.items():
            if info is not None and type(info) is not dict and id in self._slot_of:
                self._info(method, info, self._slot_of[id])
        return infos

    def _slot_infos(self, infos: Mapping[Any, Any]) -> list[dict[str, Any]]:
        """Return an info for each slot; what belongs to no agent goes to slot 0."""
        out: list[dict[str, Any]] = [{} for _ in range(self.num_agents)]
        for id, info in infos.items():
            slot = self._slot_of.get(id)
            if slot is None:
                out[0] = {**out[0], id: info}
            elif isinstance(info, Mapping):
                out[slot] = {**out[slot], **info}
        return out


class Parallel(AgentDicts):
    """PettingZoo's parallel API, and AEC envs that PettingZoo can make parallel."""

    def __init__(self, env: Any, index: int = 0, like: Emulated | None = None) -> None:
        if hasattr(env, "agent_selection") or hasattr(env, "agent_iter"):
            env = _parallel(env)
        ids, observation_space, action_space = zoo_spaces(env)
        Emulated.__init__(self, env, observation_space, action_space, len(ids), ids, index, like)
        self._prepare()

    def _info_has_mask(self) -> bool:
        if not self._takes_seed:
            return False
        with undisturbed():
            _, infos = self._first(self._reset_env(0))
        return any(isinstance(info, Mapping) and MASK_KEY in info for info in infos.values())

    def _first(self, result: Any) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        if not isinstance(result, tuple) or len(result) != 2:
            raise self.broken("reset", arity("2 parts (observations, infos)", result))
        observations, infos = super()._first(result)
        for id in self._present("reset"):
            if id not in observations:
                said = f"`observations` must have one of every agent in `agents`, but lacks {id!r}."
                raise self.broken("reset", said)
        return observations, infos

    def _present(self, method: str) -> Any:
        """Return the env's own list of who is in play."""
        try:
            return self.env.agents
        except AttributeError:
            raise self.broken(method, "must set `agents`, who is in play, but has none.") from None

    def _new_slot(self, method: str, id: Any) -> int:
        said = f"`possible_agents` must list every agent, but {list(self._slot_of)} lacks {id!r}."
        raise self.broken(method, said)

    def _parts(self, result: Any) -> tuple[Mapping[Any, Any], ...]:
        if not isinstance(result, tuple) or len(result) != 5:
            wanted = "5 parts (observations, rewards, terminations, truncations, infos)"
            raise self.broken("step", arity(wanted, result))
        parts = super()._parts(result)
        if not parts[0].keys() <= self._slot_of.keys():
            self._new_slot("step", next(id for id in parts[0] if id not in self._slot_of))
        present = self._present("step")
        for id, _ in self._acting:
            for name, part in zip(("rewards", "terminations", "truncations"), parts[1:]):
                if id not in part and id in present:
                    said = f"`{name}` must have one of every agent that acted, but lacks {id!r}."
                    raise self.broken("step", said)
        return parts

    def _over(
        self,
        before: list[tuple[Any, int]],
        ends: dict[Any, bool],
        terminated: Mapping[Any, Any],
        truncated: Mapping[Any, Any],
    ) -> bool:
        present = set(self.env.agents)
        for id, _ in before:
            if id not in present:  # PettingZoo's own list decides who is left
                ends.setdefault(id, True)
        return not present or len(ends) == len(before)

    def _comes(self, id: Any) -> bool:
        return id in self.env.agents


def _parallel(env: Any) -> Any:
    """Let PettingZoo turn an AEC env, whose agents may act at once, into a parallel one."""
    try:
        from pettingzoo.utils.conversions import aec_to_parallel
    except ImportError:
        raise MissingExtraError(
            "AEC envs need PettingZoo: pip install 'pufferlib[pettingzoo]'"
        ) from None
    return aec_to_parallel(env)
