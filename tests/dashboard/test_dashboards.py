"""The dashboards: which one a run gets, how often it draws, and how it releases the terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import StringIO

import pytest
from boards import LOG, Clock, frame, learn, make, printed
from waiting import PATIENCE

from pufferlib.dashboard.dashboards import LiveDashboard, PlainDashboard
from pufferlib.errors import UsageError


def test_auto_is_live_on_a_terminal_and_plain_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(make("auto", terminal=True), LiveDashboard)
    assert isinstance(make("auto", terminal=False), PlainDashboard)

    monkeypatch.setenv("CI", "true")
    assert isinstance(make("auto", terminal=True), PlainDashboard)


def test_an_unknown_mode_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"auto, on, off, plain, but got `plane`.*`plain`"):
        make("plane")


def test_off_prints_nothing() -> None:
    with make("off") as dashboard:
        learn(dashboard)
        dashboard.finish({"log": "x"})

    assert printed(dashboard) == ""


def test_close_can_be_called_twice() -> None:
    for mode in ("on", "plain", "off"):
        dashboard = make(mode)
        dashboard.update(LOG)
        dashboard.close()
        dashboard.close()


@pytest.mark.parametrize("mode", ["on", "plain"])
def test_a_closed_terminal_does_not_stop_the_run(mode: str) -> None:
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


# ---- Plain lines ---------------------------------------------------------------------------------


def test_plain_lines_are_printed_every_five_seconds(clock: Clock) -> None:
    dashboard = make("plain", terminal=False)
    for n in range(12):  # one update a second: lines at 0, 5 and 10 s
        clock.now = 100.0 + n
        dashboard.update({**LOG, "uptime": float(n)})
    lines = printed(dashboard).splitlines()

    assert lines[0] == "><{{{o> puffer  breakout  cpu  native  128k params  20M steps"
    assert [line.split()[0] for line in lines[1:]] == ["0.0s", "5.0s", "10.0s"]


def test_a_plain_line_holds_the_main_metrics() -> None:
    dashboard = make("plain", terminal=False)
    dashboard.update({**LOG, "uptime": 12.3, "steps": 1_234_567})

    assert printed(dashboard).splitlines()[1] == (
        "12.3s  1.2M steps  251k SPS  reward 123.4  score 56  perf 0.61  kl 0.012"
    )


def test_a_remark_is_a_line_of_its_own() -> None:
    for mode in ("plain", "on"):
        with make(mode, terminal=mode == "on", width=80) as dashboard:
            dashboard.remark("total_timesteps is [rounded]")
            dashboard.update(LOG)
        lines = [line.strip() for line in printed(dashboard).splitlines()]
        assert sum(line.endswith("total_timesteps is [rounded]") for line in lines) == 1


def test_plain_lines_are_never_wrapped_or_coloured() -> None:
    dashboard = make("plain", terminal=False, width=20)
    dashboard.update(LOG)

    assert len(printed(dashboard).splitlines()) == 2
    assert "\x1b" not in printed(dashboard)


def test_plain_finish_prints_the_last_line_and_the_curve(clock: Clock) -> None:
    dashboard = make("plain", terminal=False)
    learn(dashboard)
    dashboard.finish({"log": "runs/x/log.jsonl"})
    text = printed(dashboard)

    assert text.count("score 10 ") == 1  # the first update
    assert text.count("5M steps  200k SPS") == 1  # the last, though its interval is not over
    assert "600 ┤" in text
    assert "runs/x/log.jsonl" in text


def test_a_slow_iteration_is_a_plain_line_after_ten_seconds(clock: Clock) -> None:
    dashboard = make("plain", terminal=False)
    start = clock.now
    for seconds in (2, 9, 11, 12, 60, 75):
        clock.now = start + seconds
        dashboard.progress(f"collecting {seconds} / 2,048 steps", float(seconds))
    header, *lines = printed(dashboard).splitlines()
    assert header.startswith("><{{{o> puffer  breakout")
    assert lines == [
        "11.0s  collecting 11 / 2,048 steps",
        "1m15s  collecting 75 / 2,048 steps",
    ]
    dashboard.update({**LOG, "uptime": 76.0})
    clock.now += 8
    dashboard.progress("collecting 9 / 2,048 steps", 84.0)
    assert printed(dashboard).splitlines()[-1].startswith("1m16s  12.4M steps")


# ---- The live panel ------------------------------------------------------------------------------


def test_live_redraws_at_most_eight_times_a_second(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = []
    with make("on") as dashboard:  # draws once
        monkeypatch.setattr(dashboard, "_show_last", lambda: frames.append(clock.now))
        dashboard._drawn_at = clock.now  # type: ignore[attr-defined]
        dashboard.update(LOG)
        assert frames == []
        clock.now += 0.124
        dashboard.update(LOG)
        assert frames == []
        clock.now += 0.002
        dashboard.update(LOG)
        assert len(frames) == 1


def test_the_panel_shows_what_a_slow_iteration_does(clock: Clock) -> None:
    with make("on", width=100) as dashboard:
        clock.now += 1
        dashboard.progress("collecting 312 / 2,048 steps", 83.0)
        shown = "\n".join(frame(dashboard))
        assert "collecting 312 / 2,048 steps" in shown
        assert "1m23s" in shown
        assert "collecting" in printed(dashboard)  # it was drawn
        dashboard.update(LOG)
        assert "collecting" not in "\n".join(frame(dashboard))


def test_live_finish_leaves_the_last_numbers_on_screen() -> None:
    with make("on") as dashboard:
        learn(dashboard)
        dashboard.finish({"log": "runs/x/log.jsonl"})
    text = printed(dashboard)
    last_panel = text[text.rindex("╭") :]

    assert re.search(r"steps +5M / 20M", last_panel)
    assert "600 ┤" in last_panel
    assert "runs/x/log.jsonl" in last_panel
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


def test_a_note_is_printed_at_once_above_the_panel(clock: Clock) -> None:
    dashboard = make("on")
    with dashboard:
        dashboard.update(LOG)
        before = len(printed(dashboard))
        dashboard.note("puffer: stopping [soon]")  # no time has passed
        added = printed(dashboard)[before:]
    assert added.index("puffer: stopping [soon]") < added.index("><{{{o> puffer")


def test_a_note_is_printed_even_with_the_dashboard_off(capsys: pytest.CaptureFixture[str]) -> None:
    make("off").note("puffer: stopping")
    assert capsys.readouterr().err == "puffer: stopping\n"


def test_live_paths_are_never_cut() -> None:
    path = "runs/" + "x" * 200 + "/log.jsonl"
    with make("on", width=80) as dashboard:
        learn(dashboard)
        dashboard.finish({"log": path})

    assert path in printed(dashboard).replace("\n", "")


def test_an_exception_releases_the_terminal() -> None:
    dashboard = make("on")
    stdout = sys.stdout

    def run() -> None:
        with dashboard:
            dashboard.update(LOG)
            assert sys.stdout is not stdout  # prints go above the panel
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()

    assert sys.stdout is stdout
    assert printed(dashboard).rstrip().endswith("\x1b[?25h")


def test_a_deleted_dashboard_releases_the_terminal() -> None:
    dashboard = make("on")
    file, stdout = dashboard._console.file, sys.stdout
    dashboard.update(LOG)
    assert sys.stdout is not stdout
    del dashboard

    assert sys.stdout is stdout
    assert isinstance(file, StringIO)
    assert file.getvalue().rstrip().endswith("\x1b[?25h")


RUN = """
import sys, time
from pufferlib.dashboard import Record, make_dashboard
with make_dashboard("auto", Record("breakout", 1000, "cpu", "torch", 100)) as dashboard:
    for step in range(100_000):
        dashboard.update({"steps": step, "env/score": step})
        if step == 3:
            print("a word from the env")
        time.sleep(0.02)
"""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    leader, follower = pty.openpty()
    yield leader, follower
    os.close(leader)
    os.close(follower)


def read_until(leader: int, word: bytes) -> bytes:
    output, deadline = b"", time.monotonic() + PATIENCE
    while word not in output and time.monotonic() < deadline:
        if select.select([leader], [], [], 0.1)[0]:
            output += os.read(leader, 1 << 16)
    return output


def test_ctrl_c_in_a_real_terminal_leaves_it_usable(terminal: tuple[int, int]) -> None:
    leader, follower = terminal
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    env.pop("CI", None)
    run = subprocess.Popen(
        [sys.executable, "-c", RUN], stdin=follower, stdout=follower, stderr=subprocess.DEVNULL,
        env=env,
        # a test run in the background of a shell ignores SIGINT, and its children would too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        output = read_until(leader, b"a word from the env")
        output += read_until(leader, b"over the run")  # the panel goes on below it
        assert b"over the run" in output
        assert b"\x1b[?25l" in output  # the cursor is hidden while the panel is live
        run.send_signal(signal.SIGINT)
        output += read_until(leader, b"\x1b[?25h")
        assert b"\x1b[?25h" in output
        assert run.wait(PATIENCE) != 0
    finally:
        run.kill()
        run.wait()
