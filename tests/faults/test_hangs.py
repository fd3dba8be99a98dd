"""An env hangs: soon after `timeout` an error has its number, the call and the stack (R4)."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from faulty import (
    AT_CLOSE,
    BAD_SEED,
    NOTHING,
    NOW,
    Faulty,
    FaultyStart,
    loop_forever_holding_the_gil,
    nothing_left,
    sleep_forever,
    stop_the_process,
)
from waiting import is_within, slowness, watchdog

from pufferlib.errors import WorkerError
from pufferlib.vectorization import Multiprocessing, Serial

TIMEOUT = 0.5 * slowness()  # nothing else may take that long
GRACE = 6.0  # for the stack, for the other workers, and for a busy machine
FORK: Any = {"start_method": "fork"}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


def error_of(action: Any) -> str:
    """Return the error of what must hang, which must come in time."""
    start = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        action()
    seconds = time.monotonic() - start
    assert seconds >= TIMEOUT
    assert is_within(seconds, TIMEOUT + GRACE)
    assert type(caught.value) is WorkerError
    return str(caught.value)


@pytest.mark.parametrize(
    "fault", [sleep_forever, pytest.param(loop_forever_holding_the_gil, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("call", ["__init__", "reset", "step", "close"])
def test_a_hang_in_any_call_is_named(fault: Any, call: str) -> None:
    options: Any = {"timeout": TIMEOUT, **FORK}
    if call == "__init__":
        said = error_of(lambda: Multiprocessing(lambda: Faulty(fault, "init"), 4, 2, **options))
        worker = int(said.split()[1])
        env = 2 * worker
    else:
        vecenv = Multiprocessing(lambda: Faulty(fault), 4, 2, **options)
        vecenv.reset(seed=0)
        worker, env = 1, 3
        if call == "reset":
            said = error_of(lambda: vecenv.reset(seed=BAD_SEED))
            worker, env = 0, 0
        elif call == "close":
            vecenv.step([NOTHING, NOTHING, NOTHING, AT_CLOSE])
            said = error_of(vecenv.close)
        else:
            said = error_of(lambda: vecenv.step([NOTHING, NOTHING, NOTHING, NOW]))
    line, heading, *stack = said.splitlines()
    assert line == (
        f"worker {worker} (envs {2 * worker} to {2 * worker + 1}) did not finish `{call}` "
        f"of env {env} within {TIMEOUT:g} s (`timeout`)."
    )
    assert heading == "  Where it is:"
    assert any(f"in {fault.__name__}" in frame for frame in stack)
    assert any("faulty.py" in frame for frame in stack)


def test_a_stopped_process_hangs_too() -> None:
    vecenv = Multiprocessing(lambda: Faulty(stop_the_process), 4, 2, timeout=TIMEOUT, **FORK)
    vecenv.reset(seed=0)
    said = error_of(lambda: vecenv.step([NOW, NOTHING, NOTHING, NOTHING]))
    assert said.startswith(
        f"worker 0 (envs 0 to 1) did not finish `step` of env 0 within {TIMEOUT:g} s"
    )


def test_an_env_in_a_vector_of_a_worker_is_named_by_its_vector() -> None:
    vecenv = Multiprocessing(
        lambda: Serial(lambda: Faulty(sleep_forever), 2), 4, 2, timeout=TIMEOUT, **FORK
    )
    vecenv.reset(seed=0)
    said = error_of(lambda: vecenv.step([NOTHING] * 6 + [NOW, NOTHING]))
    assert said.startswith("worker 1 (envs 4 to 7) did not finish `step` of envs 6 to 7 within")


def test_a_hang_is_noticed_while_others_do_its_work() -> None:
    vecenv = Multiprocessing(
        lambda: Faulty(sleep_forever), 1, 1, mode="async", surplus_envs=2, timeout=TIMEOUT, **FORK
    )
    vecenv.reset(seed=0)
    first = vecenv.recv().slots.start
    vecenv.send(NOW)

    def run() -> None:
        while True:
            vecenv.recv()
            vecenv.send(NOTHING)

    said = f"worker {first} (env {first}) did not finish `step` within {TIMEOUT:g} s (`timeout`)."
    assert error_of(run).startswith(said)


def test_a_reset_that_hangs_is_noticed_while_others_go_on(tmp_path: Path) -> None:
    vecenv = Multiprocessing(
        lambda: FaultyStart(sleep_forever, tmp_path / "taken"),
        1,
        1,
        mode="async",
        surplus_envs=2,
        timeout=TIMEOUT,
        **FORK,
    )
    vecenv.reset(seed=0)

    def run() -> None:
        while True:
            vecenv.step(NOTHING)

    assert f"did not finish `reset` within {TIMEOUT:g} s (`timeout`)." in error_of(run)


class Slow(Faulty):
    """Takes a part of the time that it has for a step."""

    def step(self, action: Any) -> Any:
        time.sleep(0.2 * TIMEOUT)
        return super().step(action)


def test_the_time_is_for_one_env_not_for_all_of_a_worker() -> None:
    with Multiprocessing(Slow, 8, 1, timeout=TIMEOUT, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(NOTHING)  # takes 1.6 times `timeout`


def test_a_policy_that_thinks_for_long_is_no_hang() -> None:
    with Multiprocessing(Faulty, 4, 2, timeout=TIMEOUT, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.recv()
        for _ in range(2):
            vecenv.send(NOTHING)
            time.sleep(1.2 * TIMEOUT)
            vecenv.recv()


def test_without_a_timeout_no_worker_is_ended() -> None:
    class Patient(Faulty):
        def step(self, action: Any) -> Any:
            time.sleep(1.2)  # longer than any look
            return super().step(action)

    with Multiprocessing(Patient, 1, 1, timeout=None, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(NOTHING)


def cpu_seconds(pids: list[int]) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(each.user + each.system for each in times)


def test_waiting_for_a_slow_env_costs_little() -> None:
    class Asleep(Faulty):
        def step(self, action: Any) -> Any:
            time.sleep(1.5)
            return super().step(action)

    gc.collect()  # in a process with torch it takes longer than all looks together
    with Multiprocessing(Asleep, 2, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        before = time.thread_time()
        vecenv.step(NOTHING)
        assert time.thread_time() - before < 0.05 * 1.5


@pytest.mark.parametrize("crowded", [False, True])
def test_workers_that_wait_for_the_policy_cost_little(
    crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = 1 if crowded else 64  # that decides how long they look before they sleep
    monkeypatch.setattr("pufferlib.vectorization.multiprocessing.usable_cores", lambda: cores)
    with Multiprocessing(Faulty, 8, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(NOTHING)
        pids = vecenv.worker_pids
        before = cpu_seconds(pids)
        time.sleep(1.0)  # the policy is busy
        assert cpu_seconds(pids) - before < 0.05
