"""Which kind of dashboard a run gets, and what all of them hold to."""

import sys
from io import StringIO

import pytest
from boards import LOG, learn, make, printed

from pufferlib.dashboard import LiveDashboard, PlainDashboard
from pufferlib.errors import UsageError


def test_auto_is_live_on_a_terminal_and_plain_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(make("auto", terminal=True), LiveDashboard)
    assert isinstance(make("auto", terminal=False), PlainDashboard)

    monkeypatch.setenv("CI", "true")
    assert isinstance(make("auto", terminal=True), PlainDashboard)


def test_an_unknown_mode_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"auto, on, off, plain, but got 'plane'.*`plain`"):
        make("plane")


def test_off_prints_nothing() -> None:
    with make("off") as dashboard:
        learn(dashboard)
        dashboard.finish({"log": "x"})

    assert printed(dashboard) == ""


def test_close_may_be_repeated() -> None:
    for mode in ("on", "plain", "off"):
        dashboard = make(mode)
        dashboard.update(LOG)
        dashboard.close()
        dashboard.close()


@pytest.mark.parametrize("mode", ["on", "plain"])
def test_a_terminal_that_goes_away_does_not_stop_the_run(mode: str) -> None:
    class Gone(StringIO):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    stdout = sys.stdout
    dashboard = make(mode)
    dashboard._console.file = Gone()
    learn(dashboard)
    dashboard.finish({})
    dashboard.close()

    assert sys.stdout is stdout
