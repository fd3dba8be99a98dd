"""Signals: the first ends a run after the current iteration, the second at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pufferlib.cli.run_loop import run_loop
from pufferlib.cli.stopping import stop_requests
from pufferlib.distributed.world import ALONE


class Interrupted:
    """Stands in for a trainer that gets a signal `times` times while it collects."""

    config = SimpleNamespace(checkpoint_interval=0)
    world = ALONE
    done = False
    is_settled = True
    iteration = 0
    seconds_left = 0.0

    def __init__(self, times: int, signum: int = signal.SIGINT) -> None:
        self.times, self.signum = times, signum
        self.calls: list[str] = []
        self.dashboard = SimpleNamespace(note=self.note)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        assert self.calls == []  # before the iteration continues
        self.notes.append(text)

    def evaluate(self) -> None:
        for _ in range(self.times):
            signal.raise_signal(self.signum)
        self.calls.append("evaluate")

    def train(self) -> None:
        self.calls.append("train")

    def mean_and_log(self) -> dict[str, float]:
        self.calls.append("mean_and_log")
        self.iteration += 1
        return {}


class Saved:
    """Stands in for a run: records what is saved."""

    def save(self, trainer: Any, log: dict[str, float], settled: bool) -> None:
        trainer.calls.append("save")


@pytest.fixture
def foreground() -> Iterator[None]:
    """Handle signals as a program in the foreground does; one under `nohup` ignores SIGHUP."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {signum: signal.signal(signum, handler) for signum, handler in usual.items()}
    yield
    for signum, handler in usual.items():
        assert signal.getsignal(signum) is handler
        signal.signal(signum, before[signum])


@pytest.mark.usefixtures("foreground")
def test_ctrl_c_ends_a_run_after_the_iteration() -> None:
    trainer, run = Interrupted(times=1), Saved()
    assert run_loop(cast(Any, trainer), cast(Any, run)) == signal.SIGINT
    assert len(trainer.notes) == 1
    assert "stopping after this iteration, then saving" in trainer.notes[0]
    assert trainer.calls == ["evaluate", "train", "mean_and_log", "save"]


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_end_a_run_after_the_iteration(signum: signal.Signals) -> None:
    if signal.getsignal(signum) is not signal.SIG_DFL:
        pytest.skip("this process ignores the signal, as under nohup")
    trainer, run = Interrupted(times=1, signum=signum), Saved()
    assert run_loop(cast(Any, trainer), cast(Any, run)) == signum
    assert trainer.calls == ["evaluate", "train", "mean_and_log", "save"]
    assert signal.getsignal(signum) is signal.SIG_DFL
    with pytest.raises(SystemExit, match=str(128 + signum)):
        run_loop(cast(Any, Interrupted(times=2, signum=signum)), cast(Any, run))


@pytest.mark.usefixtures("foreground")
def test_a_second_ctrl_c_ends_a_run_at_once_without_saving() -> None:
    trainer = Interrupted(times=2)
    with pytest.raises(KeyboardInterrupt):
        run_loop(cast(Any, trainer), cast(Any, Saved()))
    assert trainer.calls == []


@pytest.mark.usefixtures("foreground")
def test_a_slow_rollout_is_dropped_and_the_iteration_before_saved() -> None:
    from pufferlib.training.trainer import RolloutDropped

    class Slow(Interrupted):
        def evaluate(self) -> None:
            signal.raise_signal(signal.SIGINT)
            assert self.is_stopping()  # type: ignore[attr-defined]
            raise RolloutDropped("3 of 9 steps")

    trainer = Slow(times=0)
    assert run_loop(cast(Any, trainer), cast(Any, Saved())) == signal.SIGINT
    assert trainer.calls == ["save"]
    assert trainer.notes[-1] == "puffer: saving without the last 3 of 9 steps"


@pytest.mark.usefixtures("foreground")
def test_a_slow_iteration_says_how_long_it_takes() -> None:
    trainer = Interrupted(times=1)
    trainer.seconds_left = 41.4
    run_loop(cast(Any, trainer), cast(Any, Saved()))
    assert "after this iteration, in about 41 s, then saving" in trainer.notes[0]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_the_second_signal_ends_a_program_that_never_returns_to_python(
    name: str, code: int
) -> None:
    # a mutex that is locked twice waits in C for ever: no handler of Python runs, only the thread
    script = """
import ctypes, signal
from pufferlib.cli.stopping import second_signal_ends, stop_requests
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
mutex = ctypes.create_string_buffer(256)
with second_signal_ends(), stop_requests(lambda: None):
    print("ready", flush=True)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(2000):  # two that arrive at once may count as one
            process.send_signal(getattr(signal, name))
            try:
                process.wait(0.05)
                break
            except subprocess.TimeoutExpired:
                continue
        assert process.returncode == code


@pytest.mark.usefixtures("foreground")
def test_a_closed_terminal_does_not_hide_the_request() -> None:
    def announce() -> None:
        raise OSError(5, "Input/output error")

    with stop_requests(announce) as received:
        signal.raise_signal(signal.SIGHUP)
    assert received == [signal.SIGHUP]
