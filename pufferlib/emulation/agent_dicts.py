"""Envs of several agents, by agent id: multi-agent PufferEnvs, and PettingZoo's two APIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.buffers import Buffers
from pufferlib.emulation.base import Emulated, must, must_return
from pufferlib.emulation.inspection import EnvTraits, num_agents_of, spaces_of, zoo_spaces
from pufferlib.env import AgentId
from pufferlib.episodes import Info
from pufferlib.spaces import Array, Space

ALL_AGENTS = "__all__"  # the id whose flag ends the episode of all agents


class StepDicts(NamedTuple):
    """What `step` returned, by agent id."""

    observations: Mapping[AgentId, Any]
    rewards: Mapping[AgentId, Any]
    terminated: Mapping[AgentId, Any]
    truncated: Mapping[AgentId, Any]
    infos: Mapping[Any, Any]  # names of metrics are keys too


class AgentDicts(Emulated):
    """Many agents in dicts by id: the multi-agent form of PufferEnv.

    Each id keeps one slot, in the order in which ids appear. An agent acts from its first
    observation until its flag; then its slot is masked until the agent returns. An agent with
    neither observation nor flag waits: it stays present and gives no action.
    """

    def __init__(self, traits: EnvTraits, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = self._shared_spaces(traits)
        ids = traits.possible_agents
        num_agents = len(ids) or num_agents_of(traits)
        self._slot_of: dict[AgentId, int] = {id: slot for slot, id in enumerate(ids)}
        self._acting: list[tuple[AgentId, int]] = []  # id and slot of agents that act next
        self._is_steady = False  # all present agents act next, and the loop in C can step them
        self._step_env = traits.env.step
        super().__init__(traits, observation_space, action_space, num_agents, ids, index, like)

    def _shared_spaces(self, traits: EnvTraits) -> tuple[Space, Space]:
        return spaces_of(traits)

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        actions, observed = self._action_layout, self._observation_layout.leaves[0]
        self._loop: Any = None
        if (
            self.action_masks is None
            and (observed.path, observed.kind) == ((), "box")
            and (actions.structured, actions.leaves[0].kind) == (False, "discrete")
        ):
            self._loop = native.AgentLoop(buffers, actions.nvec[0], actions.starts[0])

    def _note_acting(self) -> None:
        """Note whether the loop in C can take the next step."""
        is_whole = len(self._acting) == np.count_nonzero(self.masks)
        self._is_steady = is_whole and self._loop is not None
        self._acting_ids = [id for id, _ in self._acting]

    # ---- Reset ---------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> tuple[Array, list[Info]]:
        return self.begin(self._reset_env(seed))

    def begin(self, result: Any) -> tuple[Array, list[Info]]:
        """Write the first observations of an episode from what `reset` returned."""
        observations, infos = self._unpack_reset(result)
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
        self._note_acting()
        return self.observations, self._slot_infos(infos)

    def _unpack_reset(self, result: Any) -> tuple[Mapping[AgentId, Any], Mapping[AgentId, Any]]:
        if isinstance(result, tuple) and len(result) == 2:
            observations, infos = result
        else:
            observations, infos = result, {}
        return self._dict("reset", "observations", observations), self._infos("reset", infos)

    def _join(self, method: str, id: AgentId, observation: Any, info: Any) -> None:
        """Write the observation that an agent acts on next."""
        slot = self._slot_of.get(id)
        if slot is None:
            slot = self._new_slot(method, id)
        self._observe(method, slot, observation)
        self.masks[slot] = True
        if self.action_masks is not None:
            self._mask(method, slot, observation, info if isinstance(info, Mapping) else {})
        self._acting.append((id, slot))

    def _new_slot(self, method: str, id: AgentId) -> int:
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

    # ---- Step ----------------------------------------------------------------------------------

    def step(self, action: Any) -> tuple[Any, ...]:
        if action is not self.actions:
            self.actions[...] = action
        result, is_usual = self._answered()
        if is_usual and self._has_all_agents():
            no_infos: list[Info] = [{} for _ in range(self.num_agents)]
            return self.observations, self.rewards, self.terminals, self.truncations, no_infos
        given = self._unpack_step(result)
        is_present = self.masks.tolist()  # a list is read faster than an array
        before = [(id, slot) for id, slot in self._slot_of.items() if is_present[slot]]
        ends = {}
        for id, slot in before:
            reward = given.rewards.get(id)
            if reward is not None:
                self.rewards[slot] = self._reward(reward, slot)
            is_terminal = self._flag("terminated", given.terminated.get(id, False), slot)
            is_cut = self._flag("truncated", given.truncated.get(id, False), slot)
            if is_terminal or is_cut:
                ends[id] = is_terminal
        is_over = self._is_over(before, ends, given)
        for id, slot in before:
            if id in ends:
                self._end(id, slot, ends[id], given)
        infos = given.infos
        if is_over:
            self._add_metrics({key: infos[key] for key in infos if key not in self._slot_of})
            self.begin(self._reset_env(None))
        else:
            self._continue(given, before, ends)
        slot_infos = self._slot_infos(infos)
        return self.observations, self.rewards, self.terminals, self.truncations, slot_infos

    def _answered(self) -> tuple[Any, bool]:
        """Step the env; return its result, and whether the loop in C has written all of it."""
        answered: tuple[Any, bool] | None = None
        if self._is_steady:
            answered = self._call("step", self._loop.run, self._step_env, self._acting)
        if answered is None:
            chosen = {id: self._read[slot]() for id, slot in self._acting}
            answered = self._call("step", self._step_env, chosen), False
        return answered

    def _has_all_agents(self) -> bool:
        """Return whether all agents that acted are still there, as far as the env says."""
        return True

    def _is_over(
        self, before: list[tuple[AgentId, int]], ends: dict[AgentId, bool], given: StepDicts
    ) -> bool:
        """Return whether the episode of all agents is over; agents still present end with it."""
        all_terminal = self._flag("terminated", given.terminated.get(ALL_AGENTS, False))
        all_cut = self._flag("truncated", given.truncated.get(ALL_AGENTS, False))
        if all_terminal or all_cut:
            for id, _ in before:
                ends.setdefault(id, all_terminal)
            return True
        return ALL_AGENTS not in given.terminated and len(ends) == len(before)

    def _end(self, id: AgentId, slot: int, is_terminal: bool, given: StepDicts) -> None:
        (self.terminals if is_terminal else self.truncations)[slot] = True
        if id in given.observations:
            self._observe("step", slot, given.observations[id], final=True)
        else:  # no last observation: the one before is the best known
            self.final_observations[slot] = self.observations[slot]
        info = given.infos.get(id)
        if isinstance(info, Mapping):
            self._add_metrics(info)

    def _continue(
        self, given: StepDicts, before: list[tuple[AgentId, int]], ends: dict[AgentId, bool]
    ) -> None:
        """Write the next observations; ended agents leave, agents without one wait."""
        self._acting = []
        for id, slot in before:
            if id in ends:
                self._clear(slot)
            elif id not in given.observations:
                self._wait(slot)
        present = {id for id, _ in before}
        for id, observation in given.observations.items():
            if id not in ends and (id in present or self._is_active(id)):
                self._join("step", id, observation, given.infos.get(id))
        self._note_acting()

    def _is_active(self, id: AgentId) -> bool:
        """Return whether an absent agent with an observation joins, or returns."""
        return not self._last_flags.get(id, False)

    def _unpack_step(self, result: Any) -> StepDicts:
        if not isinstance(result, tuple | list) or len(result) not in (4, 5):
            wanted = (
                "4 parts (observations, rewards, dones, infos) or 5 "
                "(observations, rewards, terminateds, truncateds, infos)"
            )
            raise self.broken("step", must_return(wanted, result))
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
        return StepDicts(parts[0], parts[1], terminated, truncated, infos)

    def _check_known(
        self,
        method: str,
        field: str,
        part: Mapping[AgentId, Any],
        observations: Mapping[AgentId, Any],
    ) -> None:
        """Raise for an id that belongs to no agent: its values would be lost."""
        if part.keys() <= self._slot_of.keys() or len(self._slot_of) < self.num_agents:
            return  # in the latter case the agent may still join
        for id in part:
            if id not in self._slot_of and id not in observations and id != ALL_AGENTS:
                known = list(self._slot_of)
                raise self.broken(
                    method, f"`{field}` must be of agents {known}, but got one of {id!r}."
                )

    def _cut_by_info(
        self, dones: Mapping[AgentId, bool], infos: Mapping[AgentId, Any]
    ) -> dict[AgentId, bool]:
        """Return which agents were truncated: their info, or that of all, marks a time limit."""
        key = "TimeLimit.truncated"
        everyone = bool(infos.get(key, False))
        cut = {id for id, info in infos.items() if isinstance(info, Mapping) and info.get(key)}
        return {id: done and (everyone or id in cut) for id, done in dones.items()}

    # ---- Checks --------------------------------------------------------------------------------

    def _dict(self, method: str, field: str, value: Any) -> Mapping[AgentId, Any]:
        if isinstance(value, Mapping):
            return value
        raise self.broken(method, must(field, "a dict by agent id", value))

    def _infos(self, method: str, value: Any) -> Mapping[AgentId, Any]:
        infos = {} if value is None else self._dict(method, "infos", value)
        for id, info in infos.items():
            if info is not None and type(info) is not dict and id in self._slot_of:
                self._info(method, info, self._slot_of[id])
        return infos

    def _slot_infos(self, infos: Mapping[Any, Any]) -> list[Info]:
        """Return an info for each slot; entries of no agent go to slot 0."""
        out: list[Info] = [{} for _ in range(self.num_agents)]
        for id, info in infos.items():
            slot = self._slot_of.get(id)
            if slot is None:
                out[0] = {**out[0], id: info}
            elif (type(info) is dict or isinstance(info, Mapping)) and info:
                out[slot] = {**out[slot], **info}
        return out


class Parallel(AgentDicts):
    """PettingZoo's parallel API, and AEC envs that PettingZoo can make parallel."""

    def _shared_spaces(self, traits: EnvTraits) -> tuple[Space, Space]:
        return zoo_spaces(traits)

    def _try_infos(self) -> Iterable[Any]:
        return self._unpack_reset(self._reset_env(0))[1].values()

    def _unpack_reset(self, result: Any) -> tuple[Mapping[AgentId, Any], Mapping[AgentId, Any]]:
        if not isinstance(result, tuple) or len(result) != 2:
            raise self.broken("reset", must_return("2 parts (observations, infos)", result))
        observations, infos = super()._unpack_reset(result)
        for id in self._present("reset"):
            if id not in observations:
                what = f"`observations` must have one of every agent in `agents`, but lacks {id!r}."
                raise self.broken("reset", what)
        return observations, infos

    def _present(self, method: str) -> Any:
        """Return the env's own list of live agents."""
        try:
            return self.env.agents
        except AttributeError:
            raise self.broken(method, "must set `agents`, the live agents, but has none.") from None

    def _new_slot(self, method: str, id: AgentId) -> int:
        what = f"`possible_agents` must list every agent, but {list(self._slot_of)} lacks {id!r}."
        raise self.broken(method, what)

    def _unpack_step(self, result: Any) -> StepDicts:
        if not isinstance(result, tuple) or len(result) != 5:
            wanted = "5 parts (observations, rewards, terminations, truncations, infos)"
            raise self.broken("step", must_return(wanted, result))
        parts = super()._unpack_step(result)
        if not parts[0].keys() <= self._slot_of.keys():
            self._new_slot("step", next(id for id in parts[0] if id not in self._slot_of))
        present = self._present("step")
        for id, _ in self._acting:
            for name, part in zip(("rewards", "terminations", "truncations"), parts[1:]):
                if id not in part and id in present:
                    what = f"`{name}` must have one of every agent that acted, but lacks {id!r}."
                    raise self.broken("step", what)
        return parts

    def _has_all_agents(self) -> bool:
        return list(self._present("step")) == self._acting_ids

    def _is_over(
        self, before: list[tuple[AgentId, int]], ends: dict[AgentId, bool], given: StepDicts
    ) -> bool:
        present = set(self.env.agents)
        for id, _ in before:
            if id not in present:  # PettingZoo's own list decides which agents are left
                ends.setdefault(id, True)
        return not present or len(ends) == len(before)

    def _is_active(self, id: AgentId) -> bool:
        return id in self.env.agents


# ---- PettingZoo's AEC API ------------------------------------------------------------------------


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

    def _observation_of(self, id: AgentId) -> Any:
        return self._call("observe", self.env.observe, id)

    def _info_of(self, id: AgentId) -> Info:
        return self._info("step", self.env.infos.get(id, {}), self._slot_of[id])

    def _infos(self) -> list[Info]:
        given = self.env.infos
        return [self._info("step", given.get(id, {}), slot) for id, slot in self._slot_of.items()]
