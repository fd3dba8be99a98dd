"""The cost that emulation adds to a step of an env that does nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pufferlib.errors import UsageError
from pufferlib.vectorization import emulate

EMULATION_NUM_ENVS = 64


class EmulationResult(NamedTuple):
    """Microseconds that emulation adds to one step of one env, over calling the env directly."""

    env: str
    box_discrete_us: float
    dict_of_four_us: float
    num_envs: int
    rounds: int


def bench_emulation(*, num_envs: int | None = None, seconds: float = 3) -> EmulationResult:
    """Measure what `emulate` costs on envs that do nothing: one Box, and a Dict of four leaves.

    Direct and emulated rounds alternate, and the best of each counts: other programs can only slow
    a round down.
    """
    if seconds <= 0:
        raise UsageError(f"`seconds` must be above 0, but got {seconds}.")
    envs, rounds = num_envs or EMULATION_NUM_ENVS, 100  # short, so that some are undisturbed
    costs = []
    for creator in _idle_envs():
        direct, emulated = _direct_round(creator, envs), _emulated_round(creator, envs)
        best_direct = best_emulated = math.inf
        steps = 1
        while emulated(steps) * steps * envs < seconds / rounds / 4:  # enough to fill a round
            steps *= 2
        for _ in range(rounds):
            best_direct = min(best_direct, direct(steps))
            best_emulated = min(best_emulated, emulated(steps))
        costs.append((best_emulated - best_direct) * 1e6)
    box, four = costs
    return EmulationResult("emulation", box, four, envs, rounds)


def _idle_envs() -> list[Callable[[], Any]]:
    """Return creators of Gymnasium envs that do nothing, with episodes of 200 steps."""
    import gymnasium
    from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

    class Idle(gymnasium.Env[Any, Any]):
        def __init__(self, space: gymnasium.Space[Any]) -> None:
            self.observation_space, self.action_space = space, Discrete(2)
            self.seen = space.sample()
            self.tick = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
            self.tick = 0
            return self.seen, {}

        def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.tick += 1
            return self.seen, 1.0, self.tick >= 200, False, {}

    box = Box(-1, 1, (4,), np.float32)
    four = Dict(
        image=Box(0, 255, (16, 16, 3), np.uint8),
        vector=Box(-1, 1, (8,), np.float32),
        flags=MultiBinary(4),
        index=Discrete(5),
    )
    return [lambda: Idle(box), lambda: Idle(four)]


def _direct_round(creator: Callable[[], Any], num_envs: int) -> Callable[[int], float]:
    """Return a function that steps envs in a plain loop and returns the seconds per step."""
    envs = [creator() for _ in range(num_envs)]
    for env in envs:
        env.reset()
    actions = [0] * num_envs

    def run(steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            for env, action in zip(envs, actions):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
        return (time.perf_counter() - start) / (steps * num_envs)

    return run


def _emulated_round(creator: Callable[[], Any], num_envs: int) -> Callable[[int], float]:
    """Return a function that steps an emulated vector and returns the seconds per step."""
    vecenv = emulate(creator, num_envs=num_envs, backend="serial")
    vecenv.reset(seed=0)
    actions = np.zeros(num_envs, dtype=np.int32)

    def run(steps: int) -> float:
        start = time.perf_counter()
        for _ in range(steps):
            vecenv.step(actions)
        return (time.perf_counter() - start) / (steps * num_envs)

    return run
