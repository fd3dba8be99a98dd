"""The cost that emulation adds to a step of an env that does nothing."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from pufferlib.bench.loops import BusyEnv, best_of, check_seconds, plain_loop, vector_loop
from pufferlib.vectorization import emulate

EMULATION_NUM_ENVS = 64
_ROUNDS = 100  # short, so that some are undisturbed
_FOUR_PARTS = Dict(
    image=Box(0, 255, (16, 16, 3), np.uint8),
    vector=Box(-1, 1, (8,), np.float32),
    flags=MultiBinary(4),
    index=Discrete(5),
)


class EmulationResult(NamedTuple):
    """Microseconds that emulation adds to one step of one env, over calling the env directly."""

    env: str
    box_discrete_us: float
    dict_of_four_us: float
    num_envs: int
    rounds: int


def bench_emulation(*, num_envs: int | None = None, seconds: float = 3) -> EmulationResult:
    """Measure the cost of `emulate` on envs that do nothing: one Box, and a Dict of four leaves.

    Direct and emulated rounds alternate, and the best of each counts: other programs can only slow
    a round down.
    """
    check_seconds(seconds)
    count, costs = num_envs or EMULATION_NUM_ENVS, []
    for space in (None, _FOUR_PARTS):
        creator = partial(BusyEnv, 0.0, space)
        with emulate(creator, num_envs=count, backend="serial") as vecenv:
            loops = [plain_loop(creator, count), vector_loop(vecenv)]
            direct, emulated = best_of(_ROUNDS, loops, seconds / _ROUNDS / 4)
        costs.append(1e6 / emulated - 1e6 / direct)
    box, four = costs
    return EmulationResult("emulation", box, four, count, _ROUNDS)
