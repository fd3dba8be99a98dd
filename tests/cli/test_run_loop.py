"""Signals: the first ends a run after the current iteration, the second at once."""

from __future__ import annotations

import signal
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
def test_a_closed_terminal_does_not_hide_the_request() -> None:
    def announce() -> None:
        raise OSError(5, "Input/output error")

    with stop_requests(announce) as received:
        signal.raise_signal(signal.SIGHUP)
    assert received == [signal.SIGHUP]
