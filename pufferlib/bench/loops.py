"""Envs of a known cost, and loops over them that measure a rate."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from pufferlib.errors import UsageError
from pufferlib.vectorization import Multiprocessing, VectorEnv

EPISODE_LENGTH = 200
UNEVEN_SECONDS = (1e-3, 10e-3)
ROUND_SECONDS = 0.03

Reset: TypeAlias = tuple[Any, dict[str, Any]]  # an observation of any space, and the info
Step: TypeAlias = tuple[Any, float, bool, bool, dict[str, Any]]
Run: TypeAlias = Callable[[int], float]  # makes a number of calls, returns a rate per second


class BusyEnv(gymnasium.Env[Any, np.int64]):
    """An env whose step keeps a core busy for `seconds`; its observation never changes."""

    def __init__(self, seconds: float, space: gymnasium.Space[Any] | None = None) -> None:
        self.observation_space = space or Box(-1, 1, (4,), np.float32)
        self.action_space = Discrete(2)
        self._seen = self.observation_space.sample()
        self._tick, self._seconds = 0, seconds
        if not seconds:
            self.step = self._idle  # type: ignore[method-assign]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Reset:
        self._tick = 0
        return self._seen, {}

    def step(self, action: object) -> Step:
        clock = time.perf_counter
        deadline = clock() + self._seconds
        self._tick += 1
        while clock() < deadline:
            pass
        return self._seen, 1.0, self._tick >= EPISODE_LENGTH, False, {}

    def _idle(self, action: object) -> Step:
        self._tick += 1
        return self._seen, 1.0, self._tick >= EPISODE_LENGTH, False, {}


class UnevenEnv(BusyEnv):
    """An env whose steps sleep for 1 to 10 ms, drawn from its seed, as if it waited for others."""

    def __init__(self) -> None:
        super().__init__(UNEVEN_SECONDS[0])
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Reset:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        return super().reset(seed=seed)

    def step(self, action: object) -> Step:
        time.sleep(self._rng.uniform(*UNEVEN_SECONDS))
        return self._idle(action)


# ---- Rounds --------------------------------------------------------------------------------------


def best_of(rounds: int, loops: Sequence[Run], seconds: float = ROUND_SECONDS) -> list[float]:
    """Run all loops alternately, in rounds of about `seconds`; return the best rate of each."""
    calls = [calls_per_round(run, seconds) for run in loops]
    best = [0.0] * len(loops)
    for _ in range(rounds):
        for index, run in enumerate(loops):
            best[index] = max(best[index], run(calls[index]))
    return best


def check_seconds(seconds: float) -> None:
    """Raise UsageError unless a duration is above 0 and finite."""
    if not 0 < seconds < math.inf:
        raise UsageError(f"`seconds` must be above 0, but got {seconds}.")


def calls_per_round(run: Run, seconds: float = ROUND_SECONDS) -> int:
    """Return the number of calls that fill a round, at least two. Its own calls are a warm-up."""
    calls = 2
    while True:
        start = time.perf_counter()
        run(calls)
        taken = time.perf_counter() - start
        if taken > seconds / 4:
            return max(2, round(calls * seconds / taken))
        calls *= 2


def timed(step: Callable[[], object], num_envs: int) -> Run:
    """Return a loop over a function that steps `num_envs` envs."""

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            step()
        return calls * num_envs / (time.perf_counter() - start)

    return run


def plain_loop(creator: Callable[[], BusyEnv], num_envs: int) -> Run:
    """Return a loop over bare envs: the most that one core can do."""
    envs = [creator() for _ in range(num_envs)]
    for env in envs:
        env.reset()

    def step() -> None:
        for env in envs:
            _, _, terminated, truncated, _ = env.step(0)
            if terminated or truncated:
                env.reset()

    return timed(step, num_envs)


def vector_loop(vecenv: VectorEnv) -> Run:
    """Return a loop over a vector env of this package."""
    vecenv.reset(seed=0)
    actions = np.zeros(vecenv.num_agents, dtype=np.int32)
    return timed(lambda: vecenv.step(actions), vecenv.num_agents)


def gymnasium_loop(stack: ExitStack, creator: Callable[[], BusyEnv], processes: int) -> Run | None:
    """Return a loop over Gymnasium's AsyncVectorEnv, None if it cannot be made here."""
    try:
        vector = gymnasium.vector.AsyncVectorEnv([creator] * processes)
    except Exception:  # a system without the shared memory that it needs
        return None
    stack.callback(vector.close)
    vector.reset(seed=0)
    actions = np.zeros(processes, dtype=np.int64)
    return timed(lambda: vector.step(actions), processes)


@contextmanager
def quiet_multiprocessing(
    creator: Callable[[], BusyEnv], num_envs: int, workers: int, **options: Any
) -> Iterator[Multiprocessing]:
    """Make worker processes, also more than there are cores, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some layouts need more workers than cores
        vecenv = Multiprocessing(creator, num_envs, workers, **options)
    with vecenv:
        yield vecenv


def median_loop(vecenv: VectorEnv) -> Run:
    """Return a loop over a vector env whose rate is that of its median step.

    The median leaves out the steps in which episodes end: here all end at the same time.
    """
    vecenv.reset(seed=0)
    actions = np.zeros(vecenv.num_agents, dtype=np.int32)

    def run(calls: int) -> float:
        clock, taken = time.perf_counter, []
        for _ in range(calls):
            start = clock()
            vecenv.step(actions)
            taken.append(clock() - start)
        return 1 / statistics.median(taken)

    return run
