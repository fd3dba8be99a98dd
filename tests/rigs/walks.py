"""Walks: a tiny env, and a pool of them that answers as EnvPool does."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from pufferlib.integrations.envpool import PoolSimulator
from pufferlib.vectorization.batched import SimulatorCreator, Sizes

OBSERVATIONS = Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = Discrete(3)


class Walk(gymnasium.Env[Any, Any]):
    """Observes (length of this episode, tick, sum of actions); rewards are actions.

    An episode has 2 to 6 steps, drawn from the env's own stream, and is truncated if they are even.
    """

    observation_space, action_space = OBSERVATIONS, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.stream = np.random.default_rng(seed & 0x7FFFFFFF)
        self.length, self.tick, self.sum = int(self.stream.integers(2, 7)), 0, 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.tick, self.sum = self.tick + 1, self.sum + int(action)
        ended = self.tick == self.length
        is_even = self.length % 2 == 0
        return self.observe(), float(action), ended and not is_even, ended and is_even, {}

    def observe(self) -> NDArray[np.float32]:
        return np.array([self.length, self.tick, self.sum], dtype=np.float32)


class WalkPool:
    """Answers as `envpool.make_gymnasium` does: an ended env is reset by its next step.

    With `batch_size` below `num_envs`, `recv` returns envs in an order of its own.
    """

    def __init__(self, env_seed: Sequence[int], batch_size: int) -> None:
        self.seeds, self.envs = list(env_seed), [Walk() for _ in env_seed]
        for env, seed in zip(self.envs, env_seed, strict=True):
            env.reset(seed=seed)
            env.is_new = True  # the stream has given the first episode already
        self.batch_size = batch_size
        self.answers: dict[int, Any] = {}  # of envs that have stepped and wait for `recv`
        self.ended: set[int] = set()
        self.order = np.random.default_rng(0)

    def reset(self, env_id: NDArray[np.int32] | None = None) -> Any:
        ids = range(len(self.envs)) if env_id is None else env_id.tolist()
        for id in ids:
            self._reset(id)
        observations, _, _, _, info = self._collected(list(ids))
        return observations, info

    def async_reset(self) -> None:
        for id in range(len(self.envs)):
            self._reset(id)

    def send(self, actions: NDArray[Any], env_id: NDArray[np.int32] | None = None) -> None:
        ids = range(len(self.envs)) if env_id is None else env_id.tolist()
        assert not set(ids) & self.answers.keys()
        for id, action in zip(ids, actions, strict=True):
            if id in self.ended:
                self._reset(id)
                continue
            self.answers[id] = self.envs[id].step(action)
            if any(self.answers[id][2:4]):
                self.ended.add(id)

    def recv(self) -> Any:
        ready = sorted(self.answers)
        if self.batch_size < len(self.envs):
            ready = self.order.permutation(ready)[: self.batch_size].tolist()
            assert len(ready) == self.batch_size
        return self._collected(ready)

    def _reset(self, id: int) -> None:
        env = self.envs[id]
        observation = env.observe() if env.is_new else env.reset()[0]
        env.is_new = False
        self.ended.discard(id)
        self.answers[id] = observation, 0.0, False, False, {}

    def _collected(self, ids: list[int]) -> Any:
        parts = zip(*(self.answers.pop(id) for id in ids), strict=True)
        observations, rewards, terminals, truncations, _ = map(np.array, parts)
        info = {"env_id": np.array(ids, dtype=np.int32), "ticks": observations[:, 1].copy()}
        return observations, rewards, terminals, truncations, info


def make_walks(sizes: Sizes) -> PoolSimulator:
    """Make a simulator of walks."""
    make_pool = functools.partial(WalkPool, batch_size=sizes.batch_envs)
    return PoolSimulator(make_pool, OBSERVATIONS, ACTIONS, sizes)


def walks() -> SimulatorCreator:
    """Return the creator of walks, as a family would."""
    return SimulatorCreator(make_walks)
