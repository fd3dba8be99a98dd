"""The cost of an env is measured correctly, and timing leaves no trace in this process."""

from __future__ import annotations

import functools
import math
import os
import random
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from waiting import is_within

import pufferlib
from pufferlib.native import NativeCreator
from pufferlib.spaces import action_layout
from pufferlib.vectorization.measuring import (
    legal_actions,
    measure_env,
    measure_memory,
    measure_native,
    measure_native_memory,
    random_rows,
    step_seconds,
)

timed = functools.partial(step_seconds, limit=60)  # on a busy machine nothing is late


class Env(gymnasium.Env[Any, Any]):
    """Episodes of 5 steps; `busy` and `sleep` are seconds of a step, `held` megabytes."""

    def __init__(self, busy: float = 0, sleep: float = 0, reset: float = 0, held: int = 0) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (3,), np.float32), Discrete(2)
        self.busy, self.sleep, self.reset_seconds = busy, sleep, reset
        self.held = np.ones(held * 2**20, np.uint8)
        self.seen = np.zeros(3, np.float32)
        self.tick = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.tick = 0
        spin(self.reset_seconds)
        return self.seen, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.tick += 1
        spin(self.busy)
        if self.sleep:
            time.sleep(self.sleep * self.np_random.uniform(0.1, 1.9))
        return self.seen, 1.0, self.tick >= 5, False, {}


def spin(seconds: float) -> None:
    """Compute for so long, whatever else the machine does meanwhile."""
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        pass


def test_a_step_is_measured_without_its_resets() -> None:
    found = measure_env(lambda: Env(busy=1e-3, reset=5e-3), seconds=0.2)

    # 5 steps of 1 ms, then a reset of 5 ms: half of the time goes to resets
    assert 1e-3 <= found.step < 1.5e-3
    assert 4e-3 < found.reset < 7.5e-3
    assert 0.4 < found.reset_share < 0.6
    assert found.mean == pytest.approx(found.step / (1 - found.reset_share))
    assert found.wait_share == 0


def test_time_that_an_env_waits_is_not_counted_as_computing() -> None:
    found = measure_env(lambda: Env(sleep=2e-3), seconds=0.2)

    assert found.wait_share > 0.5
    assert found.step > 1e-3
    # uniform over 0.1 to 1.9 of the mean: a deviation of 1.8 / sqrt(12) = 0.52, more where others
    # use the cores too
    assert found.spread > 0.25 * found.step


def test_episodes_of_one_step_end_the_measurement_too() -> None:
    class Brief(Env):
        def step(self, action: int) -> Any:
            return self.seen, 1.0, True, False, {}

    found = measure_env(Brief, seconds=0.01)
    assert found.steps > 0
    assert found.step > 0


def test_memory_is_that_of_an_env_more() -> None:
    found = measure_memory(lambda: Env(held=4), create_seconds=0.3)

    assert 3.9 * 2**20 < found.env < 5 * 2**20
    assert found.worker > found.env


def test_a_native_env_costs_its_struct_and_its_rows() -> None:
    creator = NativeCreator("cartpole")
    found, memory = measure_native(creator, {}, 0.02), measure_native_memory(creator, {})

    assert found.step < 1e-4  # of one env; a call for all takes longer
    assert found.num_agents == 1
    assert memory.env < 4096


# ---- The time of a step, for the choice of a backend ---------------------------------------------


def test_timing_leaves_no_trace_in_this_process() -> None:
    made: list[Env] = []

    class Random(Env):
        def step(self, action: int) -> Any:
            random.random()
            np.random.random()
            return super().step(action)

    def create() -> Env:
        made.append(Random(busy=1e-3))
        return made[-1]

    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.random()
    random.seed(1)
    np.random.seed(1)
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    seconds = timed(create)
    assert seconds >= 1e-3
    assert is_within(seconds, 5e-3)
    assert made == []  # a copy of the creator was called
    assert (random.random(), np.random.random()) == expected
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert threading.active_count() == threads


def test_timing_gives_no_warning_of_the_env() -> None:
    class Warning(Env):
        def step(self, action: int) -> Any:
            warnings.warn("a word of the env", stacklevel=1)
            return super().step(action)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert timed(Warning) > 0
    assert caught == []


def test_timing_leaves_the_classes_of_the_caller_as_they_are() -> None:
    seen: list[int] = []

    class Counting(Env):
        def step(self, action: int) -> Any:
            seen.append(action)
            return super().step(action)

    before = dict(vars(Counting))
    assert timed(Counting) > 0
    assert all(vars(Counting)[name] is value for name, value in before.items())
    env = Counting()
    env.reset()
    env.step(1)
    assert seen == [1]  # neither of the timed env, nor written to a copy of `seen`


def test_timing_forks_no_process_and_closes_its_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closing(Env):
        def close(self) -> None:
            (tmp_path / str(os.getpid())).touch()

    def fork() -> int:
        raise AssertionError("`make` must not fork this process")

    monkeypatch.setattr(os, "fork", fork)
    assert timed(Closing) > 0
    assert [file.name for file in tmp_path.iterdir()] == [str(os.getpid())]


def test_an_env_that_raises_takes_no_time() -> None:
    class Broken(Env):
        def step(self, action: int) -> Any:
            raise ZeroDivisionError

    assert timed(Broken) == 0
    assert timed(lambda: sys.exit(3)) == 0


def test_an_env_that_hangs_is_late() -> None:
    assert step_seconds(lambda: time.sleep(60), limit=0.1) == math.inf


def test_legal_actions_obey_the_masks() -> None:
    rng = np.random.default_rng(0)
    with pufferlib.make("masked", num_envs=8, num_workers=1, seed=0) as vecenv:
        vecenv.reset()
        assert vecenv.action_masks is not None
        forbidden = 0
        for _ in range(50):
            actions = legal_actions(vecenv, rng)
            assert vecenv.action_masks[np.arange(8), actions].all()
            forbidden += int((~vecenv.action_masks).sum())
            vecenv.step(actions)
        assert forbidden > 0


def test_legal_actions_draw_every_allowed_choice() -> None:
    layout = action_layout(MultiDiscrete([3, 2]))
    masks = np.tile([True, False, True, False, True], (400, 1))
    rows = random_rows(layout, 400, np.random.default_rng(0), masks)
    assert set(rows[:, 0].tolist()) == {0, 2}
    assert set(rows[:, 1].tolist()) == {1}
