"""The trainer ends, however it ends: within 3 s no process, no memory and no file is left (R2)."""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from faulty import AT_CLOSE, NOTHING, NOW, Faulty, nothing_left, sleep_forever
from waiting import is_within, wait_until, watchdog

from pufferlib.errors import UsageError
from pufferlib.vectorization import Multiprocessing

LIMIT = 3.0  # seconds from the end of the trainer to the end of all
SOON = 300.0  # seconds; a shared machine can take long to start
RIGS = Path(__file__).resolve().parents[1] / "rigs"

SCRIPT = """
import os, sys, time
sys.path.insert(0, {tests!r})
import psutil
from faulty import Faulty, NOTHING, NOW, Simulated, loop_forever_holding_the_gil, sleep_forever
from pufferlib.vectorization import Multiprocessing

hang = {{"sleep": sleep_forever, "loop": loop_forever_holding_the_gil}}.get({doing!r})
fault = hang and (lambda: (os.write(1, b"in the middle\\n"), hang()))
simulators = iter(["daemon", "tree"])  # for each of the two workers
make = {{"simulate": lambda: Simulated(next(simulators))}}.get({doing!r}, lambda: Faulty(fault))
vecenv = Multiprocessing(make, 4, 2)
vecenv.reset(seed=0)
vecenv.step(NOTHING)
print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
sys.stdin.readline()  # until the test has looked at them
if {doing!r} == "raise":
    raise RuntimeError("a mistake in the user's code")
if not hang:
    vecenv.step(NOTHING)
    print("in the middle", "in the middle", sep="\\n", flush=True)
while True:
    vecenv.step(NOTHING if fault is None else NOW)
"""


def hear_ctrl_c() -> None:
    """Be a program in the foreground: a background job of a shell ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run:
    """A script that steps envs in two workers, and the processes that it has started."""

    def __init__(self, doing: str, tmp_path: Path) -> None:
        self.errors = tmp_path / "stderr"
        with self.errors.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SCRIPT.format(tests=str(RIGS), doing=doing)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,  # a terminal of its own, as far as Ctrl-C goes
                preexec_fn=hear_ctrl_c,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        self.helpers = [psutil.Process(int(pid)) for pid in line.split()]
        # the launcher and two workers; in each a daemon and its shell, and a tree of two processes
        assert len(self.helpers) == (11 if doing == "simulate" else 3)
        maps = [Path(f"/proc/{run.pid}/maps") for run in (self.process, *self.helpers)]
        assert "/dev/shm/" not in "".join(map(Path.read_text, maps))  # no name, nothing to leave
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        for _ in range(0 if doing == "raise" else 2):  # both workers hang, or all goes on
            assert self.process.stdout.readline() == "in the middle\n"

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def assert_all_gone(self) -> str:
        """Wait for the trainer and all that it started; return what it wrote to stderr."""
        start = time.monotonic()
        self.process.wait(SOON)
        wait_until(lambda: not any(map(_is_running, self.helpers)))
        assert is_within(time.monotonic() - start, LIMIT)
        return self.errors.read_text()

    def end(self) -> None:
        """Leave nothing behind, whatever the test has found."""
        self.process.kill()
        self.process.communicate()
        for helper in self.helpers:
            if helper.is_running():
                helper.kill()


def _is_running(process: psutil.Process) -> bool:
    """Whether it runs; one that was left to `init` may stay in the table for a while."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    runs: list[Run] = []

    def begin(doing: str) -> Run:
        runs.append(Run(doing, tmp_path))
        return runs[-1]

    with watchdog(SOON):
        yield begin
        for run in runs:
            run.end()


@pytest.mark.parametrize("doing", ["step", "sleep"])
def test_ctrl_c_ends_all(start: Any, doing: str) -> None:
    run = start(doing)
    run.press_ctrl_c()
    said = run.assert_all_gone()
    assert run.process.returncode == -signal.SIGINT  # as Python itself does it
    assert said.count("Traceback") == 1  # of the script; workers do not add theirs
    assert said.rstrip().endswith("KeyboardInterrupt")


def test_ctrl_c_twice_ends_all(start: Any) -> None:
    run = start("sleep")
    run.press_ctrl_c()
    wait_until(lambda: "KeyboardInterrupt" in run.errors.read_text())
    run.press_ctrl_c()  # while it closes
    run.assert_all_gone()
    assert run.process.returncode != 0


@pytest.mark.parametrize(
    ("number", "doing"),
    [
        (signal.SIGTERM, "step"),
        (signal.SIGKILL, "step"),
        (signal.SIGKILL, "loop"),
        (signal.SIGTERM, "simulate"),
        (signal.SIGKILL, "simulate"),
    ],
)
def test_a_signal_ends_all(start: Any, number: int, doing: str) -> None:
    run = start(doing)
    os.kill(run.process.pid, number)
    said = run.assert_all_gone()
    assert run.process.returncode == -number
    assert said == ""


def test_an_error_in_the_users_code_ends_all(start: Any) -> None:
    run = start("raise")
    said = run.assert_all_gone()
    assert run.process.returncode == 1
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("RuntimeError: a mistake in the user's code")


@pytest.mark.slow
def test_a_training_run_that_is_interrupted_saves_and_ends_all(tmp_path: Path) -> None:
    words = (
        "train gym-CartPole-v1 --vec.backend multiprocessing --vec.num-envs 8 --vec.num-workers 2 "
        "--train.batch-size 512 --train.n-epochs 1 --train.device cpu --train.num-iterations 100000"
    )
    with watchdog(SOON):
        process = subprocess.Popen(
            [sys.executable, "-m", "pufferlib", *words.split()],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=hear_ctrl_c,
        )
        try:
            logs = functools.partial(tmp_path.glob, "runs/*/metrics.jsonl")
            wait_until(lambda: any(log.stat().st_size for log in logs()), process)
            helpers = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=SOON)
        finally:
            process.kill()
            process.communicate()
    ended = time.monotonic()
    assert len(helpers) == 3
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert list(tmp_path.glob("runs/*/latest.safetensors"))
    wait_until(lambda: not any(map(_is_running, helpers)))
    assert is_within(time.monotonic() - ended, LIMIT)


# ---- An interrupt that does not end the program, as in a notebook --------------------------------


class Slow(Faulty):
    def step(self, action: Any) -> Any:
        time.sleep(0.05)
        return super().step(action)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        time.sleep(0.05)
        return super().reset(seed=seed)


@pytest.fixture
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


def interrupt_after(seconds: float, call: Callable[[], Any]) -> None:
    """Repeat a call until an exception of a signal handler ends it, as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("call", ["step", "reset"])
@pytest.mark.parametrize("delay", [0.005, 0.03, 0.08])
def test_a_vector_can_be_used_after_an_interrupt(call: str, delay: float) -> None:
    with Multiprocessing(Slow, 4, 2, timeout=60, start_method="fork") as vecenv:
        first = vecenv.reset(seed=3).copy()
        action = {"step": lambda: vecenv.step(NOTHING), "reset": lambda: vecenv.reset(seed=4)}[call]
        with pytest.raises(KeyboardInterrupt):
            interrupt_after(delay, action)
        if call == "step":
            vecenv.step(NOTHING)
        assert (vecenv.reset(seed=3) == first).all()
        assert vecenv.step(NOTHING)[0][:, 0].tolist() == [1, 1, 1, 1]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("closer", ["a signal handler", "a thread"])
def test_a_step_during_which_the_vector_is_closed_ends(closer: str, tmp_path: Path) -> None:
    def fault() -> None:
        (tmp_path / "begun").touch()
        sleep_forever()

    vecenv = Multiprocessing(lambda: Faulty(fault), 2, 2, start_method="fork")
    vecenv.reset(seed=0)
    main = threading.get_ident()

    def end() -> None:
        wait_until((tmp_path / "begun").exists)
        vecenv.close() if closer == "a thread" else signal.pthread_kill(main, signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, lambda number, frame: vecenv.close())
    thread = threading.Thread(target=end)
    try:
        thread.start()
        with pytest.raises(UsageError, match="`close` was called in the middle of a step"):
            vecenv.step(NOW)
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, previous)


class Talkative(Faulty):
    """Says at every third step how many there were."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, {"count": self.count} if self.count % 3 == 0 else {}


@pytest.mark.slow
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("restart", [0, 1])
def test_interrupts_at_any_moment_tear_nothing(restart: int) -> None:
    rng = random.Random(restart)
    with Multiprocessing(
        Talkative, 4, 2, timeout=20, restart=restart, start_method="fork"
    ) as vecenv:

        def play() -> None:
            """Play on from wherever an interrupt has left the vector."""
            if rng.random() < 0.1 or not vecenv._ready:
                vecenv.reset(seed=0)
            if vecenv._sent:
                vecenv.recv()
            if rng.random() < 0.5:
                observations, _, _, infos = vecenv.step(NOTHING)
            else:
                vecenv.send(NOTHING)
                batch = vecenv.recv()
                observations, infos = batch.observations, batch.infos
            count = observations[0, 0]
            assert (observations[:, 0] == count).all()
            assert [info.get("count") for info in infos] == [None if count % 3 else count] * 4

        vecenv.reset(seed=0)
        for _ in range(300):
            with pytest.raises(KeyboardInterrupt):
                interrupt_after(10 ** rng.uniform(-5, -2.5), play)
        vecenv.reset(seed=0)
        assert vecenv.step(NOTHING)[0][:, 0].tolist() == [1, 1, 1, 1]
        assert vecenv.restarts == 0


@pytest.mark.usefixtures("clean")
def test_an_exception_on_its_way_is_not_replaced_by_one_of_closing() -> None:
    def run() -> None:
        with Multiprocessing(lambda: Faulty(sleep_forever), 4, 2, start_method="fork") as vecenv:
            vecenv.reset(seed=0)
            vecenv.step([NOTHING, NOTHING, NOTHING, AT_CLOSE])
            raise KeyboardInterrupt

    start = time.monotonic()
    with (
        pytest.warns(UserWarning, match=r"did not finish `close` of env 3 within 1 s"),
        pytest.raises(KeyboardInterrupt),
    ):
        run()
    assert is_within(time.monotonic() - start, LIMIT + 1)
