"""Emulation: any environment as one that works in place.

A vector env steps rows: it hands an env its rows once (`bind`), then calls `reset` and `step`, and
finds observations, rewards, flags and masks where they belong. `as_rows` gives any env that form:
Gymnasium, PettingZoo (parallel and turn-based), legacy gym, and PufferEnvs of every kind. The
numbers are the env's own: same seed and same actions give the same rows. What an env returns is
checked in every step; a breach is an EnvError of one line, with the env's own traceback chained.
"""

from __future__ import annotations

import copy
import inspect
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.env import PufferEnv, Wrapper, defines
from pufferlib.episodes import EpisodeStats
from pufferlib.errors import EnvError, MissingExtraError, PufferError, UsageError
from pufferlib.spaces import (
    Space,
    action_layout,
    action_reader,
    observation_layout,
    observation_writer,
)

MASK_KEY = "action_mask"
ALL_AGENTS = "__all__"

_MAX_REWARD = float(np.finfo(np.float32).max)  # beyond it, a row of float32 would say inf
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)
_MIN_REWARD = -_MAX_REWARD
# names that `drain_metrics` gives a meaning of its own
_RESERVED = {"episodes", "mean_reward", "min_reward", "max_reward", "episode_length"}
_NO_METRICS = {*_RESERVED, "TimeLimit.truncated", MASK_KEY}
_CHECKED_STEPS = 32  # how long values are compared with the bounds of their Box


def as_rows(env: Any, index: int = 0, like: PufferEnv | None = None) -> PufferEnv:
    """Return `env` as an env that works in place; one that does so already is returned as it is.

    What the result needs from the env it finds out here, so a breach of contract shows now. `index`
    is the env's place in its vector, for messages. `like` is one of the same making: what took a
    look to find out there is not looked for again.
    """
    if isinstance(env, Emulated):
        env.index = index
    if isinstance(env, Emulated) or getattr(env, "is_native", False):
        return env  # type: ignore[no-any-return]
    inner = env.unwrapped if isinstance(env, Wrapper) else env
    if isinstance(inner, type) or (callable(inner) and not hasattr(inner, "step")):
        raise UsageError(
            f"an environment is needed, but got {_spell(inner)}. Try `{_spell(inner)}()`."
        )
    missing = [name for name in ("reset", "step") if not callable(getattr(inner, name, None))]
    if isinstance(inner, PufferEnv):
        missing = [
            name
            for name in ("reset", "step")
            if getattr(type(inner), name) is getattr(PufferEnv, name)
        ]
    if missing:
        raise EnvError(f"{_class_name(inner)} must define `{missing[0]}`, but has none.")
    if hasattr(inner, "recv"):
        raise UsageError(
            f"one environment is needed, but got a vector env, {_class_name(inner)}. "
            "Try the env that it is made of."
        )
    return _kind(inner)(env, index, like if isinstance(like, Emulated) else None)


def create(
    env_creator: Callable[[], Any], index: int = 0, like: PufferEnv | None = None
) -> PufferEnv:
    """Make env `index` of a vector and return it as one that works in place, see `as_rows`."""
    try:
        env = env_creator()
    except PufferError:
        raise
    except Exception as error:
        name = getattr(env_creator, "__name__", type(env_creator).__name__)
        raise EnvError(f"{name} (env {index}), `__init__`: {_what_was_raised(error)}") from error
    return as_rows(env, index, like)


def _kind(inner: Any) -> Callable[[Any, int, Emulated | None], Emulated]:
    """Return the class that speaks the API of `inner`."""
    if isinstance(inner, PufferEnv):
        if "observations" in vars(inner):
            return InPlace
        return AgentDicts if defines(inner, "single_observation_space") else SingleAgent
    if isinstance(inner, gymnasium.Env):
        return Gymnasium
    if hasattr(inner, "agent_selection") or hasattr(inner, "agent_iter"):
        parallelizable = getattr(inner, "metadata", {}).get("is_parallelizable", False)
        return Parallel if parallelizable else TurnBased
    if hasattr(inner, "possible_agents"):
        return Parallel
    return SingleAgent


class Emulated(PufferEnv):
    """Any env, working in place. `env` is the one within; further attributes are forwarded to it.

    `agent_ids` are the agents in slot order where the env speaks dicts per agent (known after the
    first reset at the latest), else None. `index` is the env's place in its vector, for messages.
    """

    _masks_from: str  # where action masks come from, "" for nowhere

    def __init__(
        self,
        env: Any,
        observation_space: Space,
        action_space: Space,
        num_agents: int = 1,
        agent_ids: tuple[Any, ...] | None = None,
        index: int = 0,
        like: Emulated | None = None,
    ) -> None:
        self.env = env
        self.index = index
        self.agent_ids = agent_ids
        self.observation_space, self.action_space = observation_space, action_space
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.num_agents = num_agents
        self.render_mode = getattr(env, "render_mode", None)
        self._stats = EpisodeStats()
        self._steps_to_check = _CHECKED_STEPS
        self._takes_seed = _takes_seed(env)
        with self._told("observation_space"):
            self._observation_layout = observation_layout(observation_space)
        with self._told("action_space"):
            self._action_layout = action_layout(action_space)
        self._masks_from = self._find_action_masks() if like is None else like._masks_from
        self.has_action_masks = bool(self._masks_from)
        super().__init__()

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        slots = range(self.num_agents)
        layout, actions = self._observation_layout, self._action_layout
        self._write = [observation_writer(layout, self.observations[slot, ...]) for slot in slots]
        self._write_final = [
            observation_writer(layout, self.final_observations[slot, ...]) for slot in slots
        ]
        self._read = [action_reader(actions, self.actions[slot, ...]) for slot in slots]

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    # ---- Calls to the env ----------------------------------------------------------------------

    def _reset_env(self, seed: int | None) -> Any:
        """Call the env's `reset`; the seed goes where the env takes one."""
        try:
            if seed is None:
                return self.env.reset()
            if self._takes_seed:
                return self.env.reset(seed=seed)
            if callable(getattr(self.env, "seed", None)):  # gym before 0.26
                self.env.seed(seed)
            return self.env.reset()
        except Exception as error:
            raise self._raised("reset", error) from error

    def drain(self) -> EpisodeStats:
        """Return the metrics of episodes finished since the last drain."""
        stats, self._stats = self._stats, EpisodeStats()
        return stats

    def render(self) -> Any:
        if self.render_mode is None and isinstance(self._unwrapped, gymnasium.Env):
            return None  # Gymnasium warns that nothing will be drawn
        try:
            picture = self.env.render() if hasattr(self.env, "render") else None
        except Exception as error:
            raise self._raised("render", error) from error
        if isinstance(picture, list) and picture:
            picture = picture[-1]
        return picture if isinstance(picture, np.ndarray) else None

    def close(self) -> None:
        if callable(getattr(self.env, "close", None)):
            try:
                self.env.close()
            except Exception as error:
                raise self._raised("close", error) from error

    # ---- Checks --------------------------------------------------------------------------------

    def _observe(self, method: str, slot: int, observation: Any, final: bool = False) -> None:
        """Write an observation into its row (or that of final observations)."""
        try:
            (self._write_final if final else self._write)[slot](observation)
        except EnvError as error:
            raise self.broken(method, str(error), slot) from error
        if self._steps_to_check > 0 and not final:
            self._steps_to_check -= 1
            self._check_bounds(method, slot)

    def _check_bounds(self, method: str, slot: int) -> None:
        """Warn of values outside of their Box: wrong, but many envs do it and train well."""
        layout = self._observation_layout
        for leaf in layout.leaves:
            if leaf.kind == "box":
                part = layout.view(self.observations[slot, ...], leaf)
                if ((part < leaf.lowest) | (part > leaf.highest)).any():
                    field = "observation" + "".join(f"[{key!r}]" for key in leaf.path)
                    self._steps_to_check = 0
                    warnings.warn(
                        f"{self._place(method, slot)}: `{field}` is outside of {leaf.space}.",
                        stacklevel=2,
                    )

    def _reward(self, reward: Any, slot: int = 0) -> float:
        """Return a reward as a float, or raise if it is not a finite number."""
        if type(reward) is not float:
            if isinstance(reward, np.ndarray) and reward.shape == ():
                reward = reward[()]
            if not isinstance(reward, _NUMBERS):
                raise self.broken("step", _must("reward", "a number", reward), slot)
            reward = float(reward)
        if not _MIN_REWARD <= reward <= _MAX_REWARD:  # false for nan too
            raise self.broken("step", _must("reward", "finite", reward), slot)
        return reward  # type: ignore[no-any-return]

    def _flag(self, field: str, value: Any, slot: int | None = 0) -> bool:
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
            return bool(value)
        raise self.broken("step", _must(field, "True or False", value), slot)

    def _info(self, method: str, info: Any, slot: int = 0) -> dict[str, Any]:
        if isinstance(info, Mapping):
            return info if isinstance(info, dict) else dict(info)
        raise self.broken(method, _must("info", "a dict", info), slot)

    def _add_metrics(self, info: Mapping[str, Any]) -> None:
        """Count the numbers that an episode's last info holds."""
        for name, value in info.items():
            if isinstance(value, _NUMBERS) and name not in _NO_METRICS and isinstance(name, str):
                number = float(value)
                if np.isfinite(number):
                    self._stats.add_metric(name, number)

    # ---- Action masks --------------------------------------------------------------------------

    def _find_action_masks(self) -> str:
        """Return where the env says which actions are allowed: "" if nowhere."""
        width = sum(self._action_layout.nvec)
        if not width:
            return ""
        parts = getattr(self.single_observation_space, "spaces", {})
        if isinstance(parts, Mapping) and MASK_KEY in parts and parts[MASK_KEY].shape == (width,):
            return "observation"
        if self._mask_method() is not None:
            return "method"
        declared = isinstance(self._unwrapped, PufferEnv) and self.env.has_action_masks
        return "info" if declared or self._info_has_mask() else ""

    def _mask_method(self) -> Callable[[], Any] | None:
        if isinstance(self.env, gymnasium.Wrapper):
            found = self.env.has_wrapper_attr("action_masks")
            method = self.env.get_wrapper_attr("action_masks") if found else None
        else:
            method = getattr(self.env, "action_masks", None)
        return method if callable(method) else None

    def _info_has_mask(self) -> bool:
        """Look into the info of a reset. Only where a seed makes it leave no trace."""
        return False

    def _mask(self, method: str, slot: int, observation: Any, info: Mapping[str, Any]) -> None:
        """Write the action mask that came with an observation."""
        if self._masks_from == "observation":
            given = observation[MASK_KEY]
        elif self._masks_from == "info":
            given = info.get(MASK_KEY)
        else:
            mask_method = self._mask_method()
            assert mask_method is not None
            try:
                given = mask_method()
            except Exception as error:
                raise self._raised("action_masks", error) from error
            if isinstance(given, Mapping) and self.agent_ids is not None:
                given = given.get(self.agent_ids[slot])
        assert self.action_masks is not None
        row = self.action_masks[slot]
        if given is None:
            row[:] = True
            return
        if isinstance(given, tuple | list) and len(given) and not np.isscalar(given[0]):
            given = np.concatenate([np.asarray(part).ravel() for part in given])
        mask = np.asarray(given)
        if mask.size != row.size or mask.dtype.kind not in "biu":
            wanted = f"{row.size} flags, one for each choice"
            got = f"{mask.dtype} of shape {mask.shape}"
            raise self.broken(method, f"`{MASK_KEY}` must be {wanted}, but got {got}.", slot)
        row[:] = mask.ravel()
        self._allow_one(method, slot, row)

    def _allow_one(self, method: str, slot: int, row: NDArray[np.bool_]) -> None:
        """Raise if a component has no choice left: no policy could sample from it."""
        first = 0
        for component, n in enumerate(self._action_layout.nvec):
            if not row[first : first + n].any():
                said = f"`{MASK_KEY}` must allow at least one choice of component {component}"
                raise self.broken(method, f"{said}, but allows none.", slot)
            first += n

    def _wait(self, slot: int) -> None:
        """Leave one choice to an agent that need not act: a sure action, and nothing to learn."""
        if self.action_masks is not None:
            row, first = self.action_masks[slot], 0
            row[:] = False
            for n in self._action_layout.nvec:
                row[first] = True
                first += n

    # ---- Messages ------------------------------------------------------------------------------

    @property
    def _unwrapped(self) -> Any:
        inner = getattr(self.env, "unwrapped", self.env)  # of our wrappers, then of Gymnasium's
        return getattr(inner, "unwrapped", inner)

    def _place(self, method: str, slot: int | None = None) -> str:
        agent = ""
        if self.agent_ids is not None and slot is not None and slot < len(self.agent_ids):
            agent = f", agent {self.agent_ids[slot]}"
        return f"{_class_name(self._unwrapped)} (env {self.index}{agent}), `{method}`"

    def broken(self, method: str, what: str, slot: int | None = None) -> EnvError:
        """Return the error that this env did `what` in `method`; the caller raises it."""
        return EnvError(f"{self._place(method, slot)}: {what}")

    def _raised(self, method: str, error: Exception) -> EnvError:
        return self.broken(method, _what_was_raised(error))

    @contextmanager
    def _told(self, field: str) -> Iterator[None]:
        """Say which env a complaint about its spaces is about."""
        try:
            yield
        except PufferError as error:
            name = _class_name(self._unwrapped)
            raise EnvError(f"{name} (env {self.index}), `{field}`: {error}") from error


class SingleAgent(Emulated):
    """One agent: plain PufferEnvs and legacy gym; `Gymnasium` is the strict kind.

    `reset` returns an observation or (observation, info); `step` returns four parts or five.
    """

    strict: ClassVar[bool] = False

    def __init__(self, env: Any, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = _spaces_of(env)
        self._step_env: Callable[[Any], Any] = env.step
        self._watched = True
        super().__init__(env, observation_space, action_space, index=index, like=like)

    def _info_has_mask(self) -> bool:
        if not self._takes_seed:
            return False
        with undisturbed():
            _, info = self._first(self._reset_env(0))
        return MASK_KEY in info

    def reset(self, seed: int | None = None) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        return self.observations, [self._begin(seed)]

    def _begin(self, seed: int | None) -> dict[str, Any]:
        observation, info = self._first(self._reset_env(seed))
        self._observe("reset", 0, observation)
        self.masks[0] = True
        if self.action_masks is not None:
            self._mask("reset", 0, observation, info)
        return info

    def _first(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """Part what `reset` returned into observation and info."""
        is_pair = isinstance(result, tuple) and len(result) == 2
        if self.strict:
            if not is_pair:
                raise self.broken("reset", _arity("2 parts (observation, info)", result))
            return result[0], self._info("reset", result[1])
        if is_pair and isinstance(result[1], dict):
            may_be_observation = self._observation_layout.structured
            if not may_be_observation or not self.single_observation_space.contains(result):
                return result[0], result[1]
        return result, {}

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        self.step = self._stepper()  # type: ignore[method-assign, assignment]

    def _stepper(self) -> Callable[[Any], tuple[Any, ...]]:
        """Return `step` over the rows at hand.

        What it reads are mostly variables of this function: in a class with __getattr__ an
        attribute costs as much as a call, and a dozen would double the price of a step.
        """
        observations, rewards, actions = self.observations, self.rewards, self.actions
        terminals, truncations = self.terminals, self.truncations
        read_action, write_observation = self._read[0], self._write[0]
        lowest, highest = _MIN_REWARD, _MAX_REWARD

        def step(action: Any) -> tuple[Any, ...]:
            if action is not actions:
                actions[...] = action
            chosen = read_action()
            try:
                result = self._step_env(chosen)
            except Exception as error:
                raise self._raised("step", error) from error
            try:
                observation, reward, terminated, truncated, info = result
            except (TypeError, ValueError):
                observation, reward, terminated, truncated, info = self._legacy(result)
            if type(info) is not dict:
                info = self._info("step", info)
            if type(reward) is not float or not lowest <= reward <= highest:
                reward = self._reward(reward)
            rewards[0] = reward
            if terminated is False and truncated is False:
                try:
                    write_observation(observation)
                except EnvError as error:
                    raise self.broken("step", str(error)) from error
                if self._watched:
                    self._watch(observation, info)
            else:
                self._go_on(observation, info, terminated, truncated)
            return observations, rewards, terminals, truncations, info

        return step

    def _watch(self, observation: Any, info: dict[str, Any]) -> None:
        """Do what only some envs, or only their first steps, need."""
        if self._steps_to_check > 0:
            self._steps_to_check -= 1
            self._check_bounds("step", 0)
        if self.action_masks is not None:
            self._mask("step", 0, observation, info)
        self._watched = self._steps_to_check > 0 or self.action_masks is not None

    def _go_on(
        self, observation: Any, info: dict[str, Any], terminated: Any, truncated: Any
    ) -> None:
        """Write the rest of a step that may have been the episode's last."""
        terminated = self._flag("terminated", terminated)
        truncated = self._flag("truncated", truncated)
        if terminated or truncated:
            self._observe("step", 0, observation, final=True)
            self.terminals[0], self.truncations[0] = terminated, not terminated
            self._add_metrics(info)
            self._begin(None)
        else:
            self._observe("step", 0, observation)
            if self.action_masks is not None:
                self._mask("step", 0, observation, info)

    def _legacy(self, result: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Part the four of gym before 0.26; an info may say that `done` was a time limit."""
        if self.strict or not isinstance(result, tuple | list) or len(result) != 4:
            five = "5 parts (observation, reward, terminated, truncated, info)"
            wanted = five if self.strict else f"4 parts (observation, reward, done, info) or {five}"
            raise self.broken("step", _arity(wanted, result))
        observation, reward, done, info = result
        info = self._info("step", info)
        done = self._flag("done", done)
        truncated = done and bool(info.get("TimeLimit.truncated", False))
        return observation, reward, done and not truncated, truncated, info


class Gymnasium(SingleAgent):
    """A Gymnasium env: `reset` returns two parts, `step` five."""

    strict = True


class InPlace(Emulated):
    """A PufferEnv that works in place itself; here its answers are checked and counted.

    One that answers its first reset with a dict turns out to speak dicts per agent.
    """

    _speaker: AgentDicts | None = None

    def __init__(self, env: Any, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = _spaces_of(env)
        super().__init__(
            env, observation_space, action_space, _num_agents(env), index=index, like=like
        )

    def _find_action_masks(self) -> str:
        return "rows" if self.env.has_action_masks else ""

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        self._unwrapped.bind(buffers)

    def reset(self, seed: int | None = None) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        if self._speaker is not None:
            return self._speaker.reset(seed)
        self.masks[:] = True
        result = self._reset_env(seed)
        first = result[0] if isinstance(result, tuple) and result else result
        if isinstance(first, Mapping):
            return self._hand_over(result)
        if first is not None and first is not self.observations:
            self._take("reset", "observations", first)
        return self.observations, []

    def _hand_over(self, result: Any) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        self._speaker = AgentDicts(self.env, self.index)
        self._speaker.bind(_rows_of(self))
        answer = self._speaker.begin(result)
        self.agent_ids = self._speaker.agent_ids
        return answer

    def step(self, action: Any) -> tuple[Any, ...]:
        if action is not self.actions:
            self.actions[...] = action
        if self._speaker is not None:
            return self._speaker.step(self._speaker.actions)
        try:
            result = self.env.step(self.actions)
        except Exception as error:
            raise self._raised("step", error) from error
        if not isinstance(result, tuple) or len(result) != 5:
            wanted = "5 parts (observations, rewards, terminals, truncations, infos)"
            raise self.broken("step", _arity(wanted, result))
        *parts, infos = result
        for name, part in zip(_IN_PLACE, parts, strict=True):
            if part is not getattr(self, name):  # a wrapper gave new rows
                self._take("step", name, part)
        if infos is not None and not isinstance(infos, Mapping | list | tuple):
            raise self.broken("step", _must("infos", "a dict, or a list of dicts", infos))
        ended = self.terminals | self.truncations
        if ended.any():
            given = [infos] if isinstance(infos, Mapping) else list(infos or ())
            for slot in np.flatnonzero(ended):
                if slot < len(given) and isinstance(given[slot], Mapping):
                    self._add_metrics(given[slot])
        if not np.isfinite(self.rewards).all():
            first = int(np.flatnonzero(~np.isfinite(self.rewards))[0])
            raise self.broken("step", _must("rewards", "finite", self.rewards), first)
        return (*(getattr(self, name) for name in _IN_PLACE), infos)

    def _take(self, method: str, name: str, part: Any) -> None:
        rows = getattr(self, name)
        given = np.asarray(part)
        if given.shape != rows.shape:
            raise self.broken(
                method, f"`{name}` must be of shape {rows.shape}, but got shape {given.shape}."
            )
        is_float = rows.dtype.kind == "f"
        if given.dtype.kind not in ("biuf" if is_float else "b" if rows.dtype == bool else "biu"):
            raise self.broken(
                method, f"`{name}` must be of dtype {rows.dtype}, but got {given.dtype}."
            )
        rows[...] = given.astype(rows.dtype)
        if not is_float and not np.array_equal(rows, given):
            wanted = f"within the range of {rows.dtype}"
            raise self.broken(method, f"`{name}` must be {wanted}, but got {_spell(given)}.")

    def drain(self) -> EpisodeStats:
        stats = super().drain()
        if self._speaker is not None:
            stats.merge(self._speaker.drain())
        return stats


_IN_PLACE = ("observations", "rewards", "terminals", "truncations")


class AgentDicts(Emulated):
    """Many agents in dicts by id: the multi-agent form of PufferEnv; `Parallel` is PettingZoo's.

    A slot belongs to one id for good, in the order in which ids appear. An agent acts from its
    first observation until its flag; then its slot is masked until it comes again. One that gets
    no observation and no flag waits: it stays present and is not asked for an action.
    """

    def __init__(self, env: Any, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = _spaces_of(env)
        ids = tuple(getattr(env, "possible_agents", ()) or ())
        num_agents = len(ids) or _num_agents(env)
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
            raise self._raised("step", error) from error
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
            raise self.broken("step", _arity(wanted, result))
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
        raise self.broken(method, _must(field, "a dict by agent id", value))

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
        ids, observation_space, action_space = _zoo_spaces(env)
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
            raise self.broken("reset", _arity("2 parts (observations, infos)", result))
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
            raise self.broken("step", _arity(wanted, result))
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


class TurnBased(Emulated):
    """PettingZoo's AEC API, one turn to a step.

    All agents stay present, so that rewards reach those who wait in the very step that earns them.
    The agent whose turn it is acts; the others have one choice left, which does nothing.
    """

    def __init__(self, env: Any, index: int = 0, like: Emulated | None = None) -> None:
        ids, observation_space, action_space = _zoo_spaces(env)
        super().__init__(env, observation_space, action_space, len(ids), ids, index, like)
        self._slot_of = {id: slot for slot, id in enumerate(ids)}

    def _find_action_masks(self) -> str:
        found = super()._find_action_masks()
        return found or ("turns" if self._action_layout.nvec else "")

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
            raise self.broken("step", _must("agent_selection", wanted, env.agent_selection))
        chosen = self._read[turn]()
        before = list(env.agents)
        try:
            env.step(chosen)
        except Exception as error:
            raise self._raised("step", error) from error
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
                raise self._raised("step", error) from error

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
            raise self._raised("observe", error) from error

    def _told_by(self, id: Any) -> dict[str, Any]:
        return self._info("step", self.env.infos.get(id, {}), self._slot_of[id])


# ---- Seeds and finite rows, for vector envs ------------------------------------------------------


def env_seed(seed: int, index: int) -> int:
    """Return the seed of Python env `index`; env 0 gets `seed` itself.

    The others get numbers below 2**32, which old generators take too, all different.
    """
    if index == 0:
        return seed
    state = np.random.SeedSequence(seed).generate_state(1)[0]
    derived = (int(state) + index * 0x9E3779B1) % 2**32  # odd: no two indices collide
    return int(state) if derived == seed else derived


class FiniteCheck:
    """Looks for nan and inf in the observations of a whole vector: one pass over their floats."""

    def __init__(self, space: Space, rows: NDArray[Any]) -> None:
        layout = observation_layout(space)
        self._parts = [
            (leaf.path, layout.view(rows, leaf)) for leaf in layout.leaves if leaf.dtype.kind == "f"
        ]

    def bad(self) -> tuple[int, str] | None:
        """Return (slot, what is wrong) of the first row that is not finite."""
        sum_of = np.add.reduce
        for path, part in self._parts:
            # a sum is finite unless a term is not, or unless it overflows: then look closely
            if math.isfinite(sum_of(part, axis=None)):
                continue
            slots = np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
            if len(slots):
                field = "observation" + "".join(f"[{key!r}]" for key in path)
                return int(slots[0]), _must(field, "finite", part[slots[0]])
        return None


# ---- Copies of an env ----------------------------------------------------------------------------


def creator_of(x: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a function that makes envs like `x`.

    `x` is an env, a class, a factory, or a PettingZoo module. An env gives itself first, then
    copies: from its `spec`, else by deepcopy.
    """
    if isinstance(x, str):
        raise UsageError(f"`emulate` must get an env, but got the name {x!r}. Try `make({x!r})`.")
    if isinstance(x, ModuleType):
        factory = getattr(x, "parallel_env", None) or getattr(x, "env", None)
        if factory is None:
            raise UsageError(f"`{x.__name__}` must have `parallel_env` or `env`, but has neither.")
        x = factory
    is_env = not isinstance(x, type) and (hasattr(x, "step") or hasattr(x, "reset"))
    if not is_env:
        if not callable(x):
            raise UsageError(
                f"`emulate` must get an env, or the class or factory of one, but got {_spell(x)}."
            )

        def make_one() -> Any:
            return x(**kwargs)

        make_one.__name__ = _spell(x)
        return make_one
    if kwargs:
        raise UsageError(
            f"env params must go to a class or factory, but got {', '.join(kwargs)} for an env "
            f"that exists already. Try `emulate({_class_name(x)}, ...)`."
        )
    unused = [x]
    return lambda: unused.pop() if unused else _copy(x)


def _copy(env: Any) -> Any:
    """Return a second env like `env`."""
    spec = getattr(env, "spec", None) if isinstance(env, gymnasium.Env) else None
    if spec is not None:
        try:
            made = gymnasium.make(spec)
        except Exception:  # a wrapper that cannot be made again
            made = None
        if made is not None and _classes(made) == _classes(env):
            return made
    try:
        return copy.deepcopy(env)
    except Exception as error:
        name = _class_name(getattr(env, "unwrapped", env))
        raise UsageError(
            f"`emulate` must make copies of {name}, but it has no spec and cannot be deep-copied "
            f"({type(error).__name__}). Try a factory: `emulate(lambda: {name}(...))`."
        ) from error


def _classes(env: Any) -> list[type]:
    out = [type(env)]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        out.append(type(env))
    return out


# ---- What envs tell about themselves -------------------------------------------------------------


def _spaces_of(env: Any) -> tuple[Space, Space]:
    """Return the spaces of one agent."""
    found = []
    for name in ("observation_space", "action_space"):
        space = _space_of(env, name)
        if not isinstance(space, gymnasium.Space):
            name_of_class = _class_name(getattr(env, "unwrapped", env))
            if space is None:
                raise EnvError(f"{name_of_class} must set `{name}`, but has none.")
            raise EnvError(
                f"`{name}` of {name_of_class} must be a Gymnasium space, but got {_spell(space)}."
            )
        found.append(space)
    return found[0], found[1]


def _space_of(env: Any, name: str) -> Any:
    """Return the space that the outermost layer sets, of one agent where it tells them apart."""
    for layer in _layers(env):
        for spelling in (f"single_{name}", name):
            if defines(layer, spelling):
                return getattr(layer, spelling)
    return getattr(env, name, None)


def _layers(env: Any) -> Iterator[Any]:
    """Yield our wrappers around an env from the outside, then the env."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env
    yield env


def _zoo_spaces(env: Any) -> tuple[tuple[Any, ...], Space, Space]:
    """Return the agents of a PettingZoo env and the spaces that all of them share."""
    name = _class_name(getattr(env, "unwrapped", env))
    ids = tuple(getattr(env, "possible_agents", ()) or ())
    if not ids:
        raise EnvError(
            f"{name} must have `possible_agents`, but has none: its slots need a number."
        )
    shared: list[Space] = []
    for field in ("observation_space", "action_space"):
        given = {id: _zoo_space(env, field, id, name) for id in ids}
        first = given[ids[0]]
        for id, space in given.items():
            if space != first:
                raise UsageError(
                    f"`{field}` must be the same for all agents of {name}, but {ids[0]} has "
                    f"{first} and {id} has {space}. Try supersuit's pad_observations_v0 and "
                    "pad_action_space_v0 around it."
                )
        shared.append(first)
    return ids, shared[0], shared[1]


def _zoo_space(env: Any, field: str, id: Any, name: str) -> Space:
    given = getattr(env, field, None)
    try:
        space = given(id) if callable(given) else getattr(env, f"{field}s")[id]
    except Exception as error:
        raise EnvError(f"{name} must give `{field}({id!r})`, but raised {error!r}.") from error
    if not isinstance(space, gymnasium.Space):
        raise EnvError(
            f"`{field}({id!r})` of {name} must be a Gymnasium space, but got {_spell(space)}."
        )
    return space


def _parallel(env: Any) -> Any:
    """Let PettingZoo turn an AEC env, whose agents may act at once, into a parallel one."""
    try:
        from pettingzoo.utils.conversions import aec_to_parallel
    except ImportError:
        raise MissingExtraError(
            "AEC envs need PettingZoo: pip install 'pufferlib[pettingzoo]'"
        ) from None
    return aec_to_parallel(env)


def _num_agents(env: Any) -> int:
    num_agents = env.num_agents
    if isinstance(num_agents, bool) or not isinstance(num_agents, int | np.integer):
        raise EnvError(
            f"`num_agents` of {_class_name(env)} must be a whole number, but got {num_agents!r}."
        )
    if num_agents < 1:
        raise EnvError(f"`num_agents` of {_class_name(env)} must be at least 1, got {num_agents}.")
    return int(num_agents)


def _rows_of(env: PufferEnv) -> Buffers:
    return Buffers(
        observations=env.observations,
        actions=env.actions,
        rewards=env.rewards,
        terminals=env.terminals,
        truncations=env.truncations,
        masks=env.masks,
        action_masks=env.action_masks,
        final_observations=env.final_observations,
    )


def _takes_seed(env: Any) -> bool:
    """Return whether a seed given to `reset` reaches the env through all layers."""
    for layer in _layers(env):
        try:
            params = inspect.signature(layer.reset).parameters
        except (TypeError, ValueError):  # C code may not tell
            continue
        if "seed" not in params and all(p.kind is not p.VAR_KEYWORD for p in params.values()):
            return False
    return True


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put the global generators back: a look at an env must not change what it does next."""
    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def _class_name(env: Any) -> str:
    return env.__name__ if isinstance(env, type) else type(env).__name__


def _spell(value: Any) -> str:
    text = getattr(value, "__name__", None) or " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _what_was_raised(error: Exception) -> str:
    said = " ".join(str(error).split())
    return f"raised {type(error).__name__}{f': {said}' if said else '.'}"


def _must(field: str, wanted: str, value: Any) -> str:
    return f"`{field}` must be {wanted}, but got {_spell(value)} ({type(value).__name__})."


def _arity(wanted: str, result: Any) -> str:
    given = f"{len(result)} parts" if isinstance(result, tuple | list) else _spell(result)
    return f"must return {wanted}, but got {given}."
