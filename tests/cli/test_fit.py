"""Signals: a run ends between two iterations, or at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pufferlib.cli.fit import loop


class Interrupted:
    """Stands in for a trainer that gets a signal `times` times while it collects."""

    config = SimpleNamespace(checkpoint_interval=0)
    world = SimpleNamespace(most=lambda value: value, is_first=True)  # the only process
    done = False
    is_settled = True
    iteration = 0

    def __init__(self, times: int, signum: int = signal.SIGINT) -> None:
        self.times, self.signum = times, signum
        self.calls: list[str] = []
        self.dashboard = SimpleNamespace(note=self.answered)
        self.answers: list[str] = []

    def answered(self, text: str) -> None:
        assert self.calls == []  # before the iteration goes on
        self.answers.append(text)

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
    """Stands in for a run: notes what is saved."""

    def save(self, trainer: Any, log: dict[str, float], settled: bool) -> None:
        trainer.calls.append("save")


@pytest.fixture
def foreground() -> Iterator[None]:
    """Handle Ctrl-C as a program in the foreground does; a shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("foreground")
def test_ctrl_c_ends_a_run_between_two_iterations() -> None:
    trainer, run = Interrupted(times=1), Saved()
    assert loop(cast(Any, trainer), cast(Any, run)) == signal.SIGINT
    assert len(trainer.answers) == 1
    assert "stopping after this iteration, then saving" in trainer.answers[0]
    assert trainer.calls == ["evaluate", "train", "mean_and_log", "save"]


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_a_run_between_two_iterations_too(signum: signal.Signals) -> None:
    if signal.getsignal(signum) is not signal.SIG_DFL:
        pytest.skip("this process ignores the signal, as under nohup")
    trainer, run = Interrupted(times=1, signum=signum), Saved()
    assert loop(cast(Any, trainer), cast(Any, run)) == signum
    assert trainer.calls == ["evaluate", "train", "mean_and_log", "save"]
    assert signal.getsignal(signum) is signal.SIG_DFL
    with pytest.raises(SystemExit, match=str(128 + signum)):
        loop(cast(Any, Interrupted(times=2, signum=signum)), cast(Any, run))


@pytest.mark.usefixtures("foreground")
def test_ctrl_c_twice_ends_it_at_once_and_saves_nothing_half_done() -> None:
    trainer = Interrupted(times=2)
    with pytest.raises(KeyboardInterrupt):
        loop(cast(Any, trainer), cast(Any, Saved()))
    assert trainer.calls == []
