"""The panel on a terminal: how often it is redrawn, and that the terminal is given back."""

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
from boards import LOG, Clock, learn, make, printed


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


def test_a_note_comes_at_once_and_above_the_panel(clock: Clock) -> None:
    dashboard = make("on")
    with dashboard:
        dashboard.update(LOG)
        before = len(printed(dashboard))
        dashboard.note("puffer: stopping [soon]")  # no time has passed
        added = printed(dashboard)[before:]
    assert added.index("puffer: stopping [soon]") < added.index("><{{{o> puffer")


def test_a_note_is_shown_where_nothing_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    make("off").note("puffer: stopping")
    assert capsys.readouterr().err == "puffer: stopping\n"


def test_live_paths_are_never_cut() -> None:
    path = "runs/" + "x" * 200 + "/log.jsonl"
    with make("on", width=80) as dashboard:
        learn(dashboard)
        dashboard.finish({"log": path})

    assert path in printed(dashboard).replace("\n", "")


def test_live_gives_the_terminal_back_after_an_exception() -> None:
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


def test_live_gives_the_terminal_back_when_forgotten() -> None:
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
from pufferlib.dashboard import make_dashboard
with make_dashboard("auto", env_name="breakout", num_parameters=1000, device="cpu",
                    engine="torch", total_steps=100) as dashboard:
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


def read_until(leader: int, word: bytes, seconds: float = 20.0) -> bytes:
    output, deadline = b"", time.monotonic() + seconds
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
        assert run.wait(10) != 0
    finally:
        run.kill()
        run.wait()
