"""Vectors come and go, and workers wait: nothing grows, and no core is kept busy (R11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faulty import Faulty, nothing_left
from make_and_close import run
from train_long import CASES
from train_long import run as train
from waiting import watchdog

from pufferlib.errors import EnvError, UsageError
from pufferlib.vectorization import Multiprocessing

FORK: Any = {"start_method": "fork"}


@pytest.mark.slow
def test_twenty_vectors_of_256_envs_leave_nothing_behind() -> None:
    with nothing_left():
        first, last = run(20, **FORK)
    assert last[:4] == first[:4]  # processes, files, shared memories, threads
    assert last.megabytes < first.megabytes + 8


def test_the_usual_start_leaves_nothing_behind_either() -> None:
    with nothing_left():
        first, last = run(2)
    assert last[:4] == first[:4]


def fail_to_make() -> None:
    def fault() -> None:
        raise OSError("no such level")

    with pytest.raises(EnvError, match="no such level"):
        Multiprocessing(lambda: Faulty(fault, "init"), 4, 2, **FORK)


def fail_to_share() -> None:
    with pytest.raises(UsageError, match="must be that of env 0"):
        Multiprocessing(Different, 4, 2, **FORK)


def fail_to_begin() -> None:
    with pytest.raises(UsageError, match="start_method"):
        Multiprocessing(Faulty, 4, 2, start_method="thread")  # type: ignore[arg-type]


class Different(Faulty):
    """Has spaces that no other process has."""

    def __init__(self) -> None:
        import os

        from gymnasium.spaces import Box

        super().__init__()
        self.observation_space = Box(0, os.getpid(), (2,))


@pytest.mark.parametrize("fail", [fail_to_make, fail_to_share, fail_to_begin])
def test_vectors_that_fail_to_begin_leave_nothing_behind(fail: Any) -> None:
    with watchdog(), nothing_left():
        for _ in range(3):
            fail()


def test_many_steps_take_no_more_memory() -> None:
    import psutil

    class Chatty(Faulty):
        def step(self, action: Any) -> Any:
            *rest, _ = super().step(action)
            return *rest, {"text": "x" * 1000}

    with watchdog(), Multiprocessing(Chatty, 8, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        processes = [psutil.Process(), *map(psutil.Process, vecenv.worker_pids)]
        for step in range(1000):
            vecenv.step(0)
            if step == 200:
                first = [process.memory_info().rss for process in processes]
        last = [process.memory_info().rss for process in processes]
    for before, after in zip(first, last, strict=True):
        assert after < before + 4e6


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_many_iterations_take_no_more_memory(case: str, tmp_path: Path) -> None:
    with watchdog(300), nothing_left():
        first, last = train(200, tmp_path, case)
    assert last[:4] == first[:4]
    assert last.megabytes < first.megabytes + 4
