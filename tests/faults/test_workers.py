"""A worker dies: within 2 s an error names it, whatever was going on, and nothing is left (R1)."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from faulty import (
    AT_CLOSE,
    AT_RESET,
    BAD_SEED,
    DEATHS,
    NOTHING,
    NOW,
    SIMULATORS,
    Faulty,
    Simulated,
    children,
    kill,
    nothing_left,
    sleep_forever,
    wait_for_end,
)
from kill_workers import LIMIT, kill_once
from waiting import is_within, wait_until, watchdog

from pufferlib.errors import UsageError, WorkerError
from pufferlib.native import NativeEnv
from pufferlib.vectorization import Multiprocessing
from pufferlib.vectorization.processes.worker import Setup
from pufferlib.vectorization.processes.worker_group import WorkerGroup

FORK: Any = {"start_method": "fork"}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


def error_of(action: Any) -> tuple[WorkerError, float]:
    """Return the error of what must lose a worker, and how long it took."""
    start = time.monotonic()
    with pytest.raises(WorkerError) as caught:
        action()
    seconds = time.monotonic() - start
    assert type(caught.value) is WorkerError
    return caught.value, seconds


@pytest.mark.parametrize("call", ["__init__", "reset", "step", "reset after an end", "close"])
@pytest.mark.parametrize("death", DEATHS)
def test_a_death_in_any_call_is_named(death: str, call: str) -> None:
    fault, name, how = DEATHS[death]
    if call == "__init__":
        error, seconds = error_of(
            lambda: Multiprocessing(lambda: Faulty(fault, "init"), 4, 2, **FORK)
        )
        assert error.worker in (0, 1)
    else:
        vecenv = Multiprocessing(lambda: Faulty(fault), 4, 2, **FORK)
        vecenv.reset(seed=0)
        if call == "reset":
            error, seconds = error_of(lambda: vecenv.reset(seed=BAD_SEED))  # env 0 gets it as it is
            assert error.worker == 0
        elif call == "close":
            vecenv.step([NOTHING, NOTHING, NOTHING, AT_CLOSE])
            error, seconds = error_of(vecenv.close)
        else:
            action = NOW if call == "step" else AT_RESET
            error, seconds = error_of(lambda: vecenv.step([NOTHING, NOTHING, NOTHING, action]))
        if call != "reset":
            assert error.worker == 1
        vecenv.close()
        with pytest.raises(UsageError, match="must not be called on a closed Multiprocessing"):
            vecenv.reset()
    envs = [(0, 1), (2, 3)][error.worker]
    env = {"reset": 0, "__init__": envs[0]}.get(call, 3)
    spelled = {"reset after an end": "step"}.get(call, call)
    start = f"worker {error.worker} (envs {envs[0]} to {envs[1]}) {how}"
    line, _, rest = str(error).partition("\n")
    assert line.startswith(start)
    assert line.endswith(f" during `{spelled}` of env {env}.")
    assert error.signal == name
    assert tuple(error.envs) == envs
    assert is_within(seconds, LIMIT)
    if death == "segfault":
        assert "about to read address 0\n" in rest
        assert "Fatal Python error: Segmentation fault" in rest
        assert "faulty.py" in rest  # the line of the env that crashed
        assert "about to read address 0" in error.stderr
    if death == "os._exit":
        assert rest == "  Its last lines on stderr:\n  the level file is gone"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_death_is_named_for_every_start_method(method: Any) -> None:
    fault = DEATHS["segfault"][0]
    vecenv = Multiprocessing(lambda: Faulty(fault), 2, 2, start_method=method)
    vecenv.reset(seed=0)
    error, seconds = error_of(lambda: vecenv.step([NOTHING, NOW]))
    assert str(error).startswith("worker 1 (env 1) died of SIGSEGV during `step`.\n")
    assert "in crash" in str(error)
    assert is_within(seconds, LIMIT)


@pytest.mark.parametrize("call", ["step", "send", "recv", "reset", "snapshot", "render", "close"])
def test_a_death_between_two_calls_is_reported_by_the_next(call: str) -> None:
    vecenv = Multiprocessing(lambda: NativeEnv("cartpole"), 4, 2, **FORK)
    vecenv.reset(seed=0)
    vecenv.recv()
    if call == "recv":
        vecenv.send(0)
    pid = vecenv.worker_pids[1]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid))

    def run() -> None:
        if call == "send":
            vecenv.send(0)
            vecenv.recv()
        elif call == "recv":
            vecenv.recv()
            vecenv.step(0)  # where its turn was over before
        else:
            getattr(vecenv, call)(*([0] if call == "step" else [3] if call == "render" else []))

    error, seconds = error_of(run)
    assert error.worker == 1
    assert error.signal == "SIGKILL"
    assert is_within(seconds, LIMIT)


class Long(Faulty):
    """Takes half a minute for a step, unless it has something else to do."""

    def step(self, action: Any) -> Any:
        if action == NOTHING:
            time.sleep(30)
        return super().step(action)


def test_no_error_waits_for_the_others_to_finish_first() -> None:
    vecenv = Multiprocessing(lambda: Long(kill), 2, 2, **FORK)
    vecenv.reset(seed=0)
    error, seconds = error_of(lambda: vecenv.step([NOTHING, NOW]))
    assert error.worker == 1
    assert is_within(seconds, LIMIT)


def test_a_dead_worker_is_noticed_while_others_do_its_work() -> None:
    vecenv = Multiprocessing(
        lambda: Faulty(kill), 1, 1, mode="async", surplus_envs=3, timeout=None, **FORK
    )
    vecenv.reset(seed=0)
    slot = -1
    while slot != 2:
        slot = vecenv.recv().slots.start
        vecenv.send(NOW if slot == 2 else NOTHING)

    def run() -> None:
        while True:
            vecenv.recv()
            vecenv.send(NOTHING)

    error, seconds = error_of(run)
    assert error.worker == 2
    assert is_within(seconds, LIMIT)


def test_a_death_in_the_middle_of_a_message_is_reported() -> None:
    class Verbose(Faulty):
        def step(self, action: Any) -> Any:
            *rest, _ = super().step(NOTHING)
            if action == NOW:
                threading.Timer(0.2, kill).start()
                return *rest, {"words": np.zeros(2_000_000)}  # more than a socket holds
            return *rest, {}

    vecenv = Multiprocessing(Verbose, 2, 2, **FORK)
    vecenv.reset(seed=0)
    vecenv.recv()
    pid = vecenv.worker_pids[1]
    vecenv.send([NOTHING, NOW])
    wait_until(lambda: not psutil.pid_exists(pid))  # it never gets all of it written
    error, _ = error_of(vecenv.recv)
    assert error.worker == 1
    assert error.signal == "SIGKILL"


def test_the_death_of_the_launcher_is_reported_too() -> None:
    known = children()
    vecenv = Multiprocessing(Faulty, 4, 2, **FORK)
    vecenv.reset(seed=0)
    launcher = next(
        child for child in psutil.Process().children() if child.pid in children() - known
    )
    launcher.kill()
    error, seconds = error_of(lambda: [vecenv.step(0) for _ in range(10**6)])  # they die with it
    assert "the process that starts the workers died" in str(error)
    assert is_within(seconds, LIMIT)


def test_a_worker_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    def start() -> None:
        fork = os.fork
        calls = iter([fork, fail])  # the launcher can be started, and no worker
        monkeypatch.setattr(os, "fork", lambda: next(calls)())
        Multiprocessing(Faulty, 2, 1, **FORK)

    error, seconds = error_of(start)
    assert "it could not be started: Resource temporarily unavailable" in str(error)
    assert is_within(seconds, LIMIT)


@pytest.mark.parametrize("simulator", SIMULATORS)
@pytest.mark.parametrize("end", ["kill", "close", pytest.param("hang", marks=pytest.mark.slow)])
def test_what_an_env_has_started_ends_with_its_worker(end: str, simulator: str) -> None:
    fault, timeout = (sleep_forever, 4) if end == "hang" else (kill, 60)
    vecenv = Multiprocessing(lambda: Simulated(simulator, fault), 4, 2, timeout=timeout, **FORK)
    vecenv.reset(seed=0)
    simulators = {pid for info in vecenv.step(NOTHING)[3] for pid in info["pids"]}
    assert len(simulators) == (8 if simulator == "tree" else 4)
    if end == "close":
        vecenv.close()
    else:
        error_of(lambda: vecenv.step([NOW, NOTHING, NOTHING, NOTHING]))
    assert not wait_for_end(simulators, LIMIT)


@pytest.mark.parametrize("simulator", SIMULATORS)
def test_what_other_workers_have_started_goes_on(simulator: str) -> None:
    with Multiprocessing(
        lambda: Simulated(simulator, kill), 2, 2, restart=1, start_method="fork"
    ) as vecenv:
        vecenv.reset(seed=0)
        ended, kept = [info["pids"] for info in vecenv.step(NOTHING)[3]]
        with pytest.warns(UserWarning, match="Replaced"):
            vecenv.step([NOW, NOTHING])
        assert not wait_for_end(set(ended), LIMIT)
        assert all(map(psutil.pid_exists, kept))


def test_a_replacement_needs_memory_for_its_own_envs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    expected: list[int] = []
    send = WorkerGroup._send

    def note(self: WorkerGroup, worker: int, message: object, fds: tuple[int, ...] = ()) -> None:
        if isinstance(message, Setup):
            expected.append(message.total_units)
        send(self, worker, message, fds)

    monkeypatch.setattr(WorkerGroup, "_send", note)
    with Multiprocessing(lambda: Faulty(kill), 6, 2, restart=1, start_method="fork") as vecenv:
        vecenv.reset(seed=0)
        with pytest.warns(UserWarning, match="Replaced"):
            vecenv.step([NOW, *[NOTHING] * 5])
    assert expected == [6, 6, 3]


def test_an_unread_stderr_holds_nothing_up() -> None:
    """A full pipe stops whoever writes to it, but neither the launcher nor the news of a death."""
    reading, writing = os.pipe()
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:

        class Noisy(Faulty):
            def step(self, action: Any) -> Any:
                if action == NOW:
                    for _ in range(100):
                        os.write(2, b"x" * 9999 + b"\n")
                return super().step(NOTHING)

        vecenv = Multiprocessing(Noisy, 2, 2, timeout=30, **FORK)
        vecenv.reset(seed=0)
        vecenv.recv()
        pids = vecenv.worker_pids
        vecenv.send([NOW, NOTHING])  # worker 0 waits for a reader that never comes
        wait_until(lambda: not select.select([], [writing], [], 0)[1])  # it is full
        os.kill(pids[1], signal.SIGKILL)
        error, seconds = error_of(vecenv.recv)
        assert error.worker in (0, 1)
        assert is_within(seconds, LIMIT + 1)
    finally:
        os.dup2(kept, 2)
        for fd in (reading, writing, kept):
            os.close(fd)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_ten_kills_at_random_moments(seed: int) -> None:
    kill = kill_once(np.random.default_rng(seed), ["fork"])
    assert is_within(kill.seconds, LIMIT), kill


def die_with_many_modules() -> None:
    """Die as Python does in a program that has loaded thousands of C modules."""
    text = "about to die\nFatal Python error: Segmentation fault\n\nExtension modules: "
    os.write(2, (text + "module, " * 2000 + "\n").encode())
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_long_list_of_modules_does_not_hide_the_error() -> None:
    vecenv = Multiprocessing(lambda: Faulty(die_with_many_modules), 2, 2, **FORK)
    vecenv.reset(seed=0)
    error, _ = error_of(lambda: vecenv.step([NOTHING, NOW]))
    assert "about to die\n  Fatal Python error" in str(error)
    vecenv.close()
