"""What one env costs: time to create, reset and step it, how much that varies, and memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.spaces import ActionLayout, action_layout
from pufferlib.vectorization.serial import Serial


class EnvCost(NamedTuple):
    """Seconds of one env; `step` is the mean without resets, `spread` its deviation."""

    create: float
    reset: float
    step: float
    median_step: float
    spread: float
    reset_share: float  # of the time that stepping with autoreset takes
    steps: int  # that were measured
    num_agents: int


def measure_env(env_creator: Callable[[], Any], seconds: float = 0.5, seed: int = 0) -> EnvCost:
    """Create one env, step it with random actions for about `seconds`, and close it again."""
    start = time.perf_counter()
    vecenv = Serial(env_creator, 1)
    created = time.perf_counter()
    try:
        vecenv.reset(seed=seed)
        now = time.perf_counter()
        resets = [now - created]
        env, layout = vecenv.envs[0], action_layout(vecenv.action_space)
        rng = np.random.default_rng(seed)
        plain: list[float] = []
        deadline = now + seconds
        while now < deadline or not plain:
            env.actions[...] = random_rows(layout, vecenv.num_agents, rng)
            before = time.perf_counter()
            env.step(env.actions)  # not through the vector, whose own cost many envs share
            now = time.perf_counter()
            if (vecenv.terminals | vecenv.truncations).any():
                resets.append(now - before)  # the last step of an episode and the reset
                vecenv.terminals[:], vecenv.truncations[:] = False, False
            else:
                plain.append(now - before)
            if len(plain) + len(resets) > 100_000 or len(resets) > 10_000:
                break
        step = statistics.fmean(plain) if plain else statistics.fmean(resets)
        extra = [max(0.0, taken - step) for taken in resets[1:]]
        total = sum(plain) + sum(resets[1:])
        return EnvCost(
            create=created - start,
            reset=statistics.fmean(extra) if extra else resets[0],
            step=step,
            median_step=statistics.median(plain) if plain else step,
            spread=statistics.pstdev(plain) if plain else 0.0,
            reset_share=sum(extra) / total if total else 0.0,
            steps=len(plain) + len(resets) - 1,
            num_agents=vecenv.num_agents,
        )
    finally:
        vecenv.close()


def random_rows(layout: ActionLayout, num_slots: int, rng: np.random.Generator) -> NDArray[Any]:
    """Draw an action for each slot; what has no bounds stays within +-1000."""
    rows = np.empty((num_slots, *layout.shape), layout.dtype)
    indices, reals = layout.split(rows)
    indices[...] = rng.integers(0, layout.nvec, indices.shape)
    low, high = np.maximum(layout.low, -1e3), np.minimum(layout.high, 1e3)
    reals[...] = rng.uniform(low, high, reals.shape)
    return rows
