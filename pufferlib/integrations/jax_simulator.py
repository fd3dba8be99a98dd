"""JaxSimulator: a functional env in JAX, stepped by one vmapped and compiled call.

Episodes that ended are reset by another compiled call, in groups of a fixed size. So a step costs
no reset where no episode ended, and the last observation of one that did is known.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import MissingExtraError, UsageError, one_line
from pufferlib.integrations.packages import extra, require
from pufferlib.spaces import Space, make_discrete, make_space
from pufferlib.vectorization.batched import Outcome, Simulator, Sizes

Array: TypeAlias = Any  # of JAX, or a tree of them


class Seen(NamedTuple):
    """What the agents of one env see; with several agents, their axis comes first."""

    observation: Array
    action_mask: Array = None  # where the env has masks


class Result(NamedTuple):
    """What a step of one env gives; all but `seen` are scalars, or [agents]."""

    seen: Seen
    reward: Array
    terminal: Array
    truncation: Array
    infos: Mapping[str, Array] = {}


class JaxEnv(ABC):
    """One functional env. Both methods are pure, so that they can be compiled for many envs."""

    action_space: Space
    observation_space: Space | None = None  # None: that of the arrays that `reset` returns
    num_agents: int = 1

    @abstractmethod
    def reset(self, key: Array) -> tuple[Array, Seen]:
        """Return the state and the observation of a new episode."""

    @abstractmethod
    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Result]:
        """Return the next state and the outcome; no reset at an end."""


class JaxSimulator(Simulator):
    """Many envs of one `JaxEnv`; XLA chooses the number of threads."""

    def __init__(self, env: JaxEnv, sizes: Sizes) -> None:
        jax: Any = importlib.import_module("jax")
        if sizes.is_async:
            raise UsageError("`mode` must be sync: JAX steps all envs at once.")
        self._num_envs = sizes.num_envs
        self._group = min(sizes.num_envs, max(8, sizes.num_envs // 16))  # envs reset at a time
        self.agents_per_env, self.action_space = env.num_agents, env.action_space
        _, seen = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        self.observation_space = env.observation_space or _space_of(
            seen.observation, env.num_agents
        )
        self.has_action_masks = seen.action_mask is not None

        def typed(part: Array) -> Array:
            # a Python number gives a "weak" type: a step after it would be compiled once more
            part = jax.numpy.asarray(part)
            return jax.lax.convert_element_type(part, part.dtype) if part.weak_type else part

        def reset_one(key: Array) -> tuple[Array, Array, Seen]:
            key, own = jax.random.split(key)
            state, seen = env.reset(own)
            return key, jax.tree.map(typed, state), seen

        def step_one(key: Array, state: Array, action: Array) -> tuple[Array, Array, Result]:
            key, own = jax.random.split(key)
            state, result = env.step(own, state, action)
            return key, jax.tree.map(typed, state), result

        def put(whole: Array, part: Array, envs: Array) -> Array:
            return jax.tree.map(lambda old, new: old.at[envs].set(new), whole, part)

        self._key_of = jax.jit(jax.vmap(jax.random.PRNGKey))
        self._reset_group = jax.jit(jax.vmap(reset_one))
        self._step_all = jax.jit(jax.vmap(step_one))
        self._put = jax.jit(put)
        self._map = jax.tree.map
        self._keys: Array = None
        self._states: Array = None
        self._result: Array = None

    def reset(self, seeds: NDArray[np.int64] | None) -> Outcome:
        if seeds is not None:
            self._keys = self._key_of(seeds.astype(np.uint32))
        groups = [self._new_episodes(envs) for envs in self._groups(np.arange(self._num_envs))]

        def joined(*parts: Array) -> Array:
            return np.concatenate(parts)[: self._num_envs]  # the last group repeats an env

        self._keys, self._states, seen = self._map(joined, *groups)
        slots = self._num_envs * self.agents_per_env
        rewards, flags = np.zeros(slots), np.zeros(slots, dtype=np.bool_)
        observations, masks = self._rows(seen)
        return Outcome(observations, rewards, flags, flags, action_masks=masks)

    def send(self, actions: Any, slots: NDArray[np.int64] | None) -> None:
        if self.agents_per_env > 1:
            actions = self._map(self._by_env, actions)
        self._keys, self._states, self._result = self._step_all(self._keys, self._states, actions)

    def recv(self) -> Outcome:
        result: Result = self._map(np.asarray, self._result)  # waits for it
        observations, masks = self._rows(result.seen)
        rewards, terminals, truncations, infos = self._map(self._slots, result[1:])
        ended = terminals | truncations
        finals = None
        if ended.any():
            which = np.flatnonzero(ended)
            finals = self._map(lambda part: part[which], observations)
            seen = self._map(np.array, result.seen)  # copies, which can be written
            over = ended.reshape(self._num_envs, self.agents_per_env).any(axis=1)
            for envs in self._groups(np.flatnonzero(over)):
                keys, states, first = self._new_episodes(envs)
                self._keys = self._put(self._keys, keys, envs)
                self._states = self._put(self._states, states, envs)
                self._map(lambda whole, part, envs=envs: whole.__setitem__(envs, part), seen, first)
            observations, masks = self._rows(seen)
        return Outcome(
            observations, rewards, terminals, truncations, finals, action_masks=masks, infos=infos
        )

    def _groups(self, envs: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return groups of equal size; the last repeats its first env to be full."""
        groups = [envs[first : first + self._group] for first in range(0, len(envs), self._group)]
        missing = self._group - len(groups[-1])
        groups[-1] = np.concatenate([groups[-1], np.repeat(groups[-1][:1], missing)])
        return groups

    def _new_episodes(self, envs: NDArray[np.int64]) -> tuple[Array, Array, Seen]:
        """Reset some envs; return their keys, states and observations."""
        keys, states, seen = self._reset_group(self._keys[envs])
        return keys, states, self._map(np.asarray, seen)

    def _rows(self, seen: Seen) -> tuple[Any, NDArray[np.bool_] | None]:
        """Return observations and action masks with a row for each slot."""
        observations, masks = self._map(self._slots, tuple(seen))
        return observations, masks

    def _slots(self, part: NDArray[Any]) -> NDArray[Any]:
        return part if self.agents_per_env == 1 else part.reshape(-1, *part.shape[2:])

    def _by_env(self, part: NDArray[Any]) -> NDArray[Any]:
        return part.reshape(self._num_envs, self.agents_per_env, *part.shape[1:])

    def close(self) -> None:
        self._keys = self._states = self._result = None


def load(package: str, id: str, family: str) -> Any:
    """Import a package of JAX envs, or raise the command that installs it."""
    require(id, package.partition(".")[0], extra(family))
    try:
        return importlib.import_module(package)
    except Exception as error:  # versions of JAX and its packages often disagree
        raise MissingExtraError(f"`{id}` cannot be loaded: {one_line(error)}") from error


def action_space_of(space: Any) -> Space:
    """Return the space of a Gymnax Discrete or Box, whose components have equal bounds."""
    if hasattr(space, "n"):
        return make_discrete(int(space.n))
    low, high = float(np.min(space.low)), float(np.max(space.high))
    return make_space(tuple(space.shape), dtype=np.float32, low=low, high=high)


def _space_of(observation: Any, num_agents: int) -> Space:
    """Return the space of the arrays in an observation, of one agent."""
    if isinstance(observation, Mapping):
        return make_space({key: _space_of(part, num_agents) for key, part in observation.items()})
    shape = observation.shape if num_agents == 1 else observation.shape[1:]
    return make_space(shape, dtype=observation.dtype)
