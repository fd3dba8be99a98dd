"""What people see: on a terminal, in a pipe, at any size, and when things go wrong."""

import math
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
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from pufferlib import dashboard as dashboard_module
from pufferlib.dashboard import (
    ASCII,
    UNICODE,
    Dashboard,
    History,
    LiveDashboard,
    PlainDashboard,
    draw_curve,
    format_count,
    format_duration,
    format_memory,
    format_value,
    make_dashboard,
    resample,
    round_ticks,
)
from pufferlib.errors import UsageError

LOG = {
    "iteration": 300,
    "steps": 12_400_000,
    "total_steps": 20_000_000,
    "sps": 251_300,
    "uptime": 49.5,
    "eta": 192.0,
    "mean_reward": 123.4,
    "min_reward": 11.0,
    "max_reward": 703.9,
    "episode_length": 812.4,
    "episodes": 193,
    "env/score": 56.0,
    "env/perf": 0.61,
    "env/bricks_left": 12.4,
    "policy_loss": -0.0123,
    "value_loss": 0.2314,
    "entropy": 1.021,
    "approx_kl": 0.012,
    "clipfrac": 0.113,
    "explained_variance": 0.87,
    "grad_norm": 0.49,
    "learning_rate": 3e-4,
    "time/env": 0.2,
    "time/forward": 0.3,
    "time/store": 0.05,
    "time/advantage": 0.0,
    "time/update": 0.4,
    "time/other": 0.05,
    "system/cpu": 87.0,
    "system/memory": 812.0,
}


def make(
    mode: str = "off", *, width: int = 100, height: int = 40, terminal: bool = True
) -> Dashboard:
    console = Console(
        file=StringIO(),
        width=width,
        height=height,
        force_terminal=terminal,
        color_system=None,
        legacy_windows=False,
    )
    return make_dashboard(
        mode,  # type: ignore[arg-type]
        env_name="breakout",
        num_parameters=128_300,
        device="cpu",
        engine="native",
        total_steps=20_000_000,
        console=console,
    )


def frame(dashboard: Dashboard, width: int = 100, height: int = 40) -> list[str]:
    rows = dashboard.frame(width, height)
    return ["".join(segment.text for segment in row) for row in rows]


def summary(dashboard: Dashboard, **paths: str) -> str:
    rows = dashboard.summary(80, paths)
    return "\n".join("".join(segment.text for segment in row) for row in rows)


def printed(dashboard: Dashboard) -> str:
    file = dashboard._console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def learn(dashboard: Dashboard, num_iterations: int = 50) -> None:
    """A run whose score rises from 10 to 500 in 50 equal steps of 100,000."""
    for n in range(1, num_iterations + 1):
        log = {"steps": n * 100_000, "uptime": n * 0.5, "sps": 200_000, "env/score": 10.0 * n}
        dashboard.update({**LOG, **log})


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(dashboard_module.time, "perf_counter", clock)  # type: ignore[attr-defined]
    return clock


# ---- numbers ----


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999.7, "1k"),
        (1000, "1k"),
        (1234, "1.2k"),
        (99_949, "99.9k"),
        (99_960, "100k"),
        (251_300, "251k"),
        (999_600, "1M"),
        (1_234_567, "1.2M"),
        (20_000_000, "20M"),
        (3e9, "3B"),
        (5e15, "5000T"),
        (-1500, "-1.5k"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_counts_are_short(count: float, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (12.34, "12.3s"),
        (59.94, "59.9s"),
        (59.96, "1m00s"),
        (192, "3m12s"),
        (3599.6, "1h00m"),
        (7500, "2h05m"),
        (4 * 86400 + 3 * 3600, "4d03h"),
        (math.nan, "-"),
        (math.inf, "-"),
        (-1, "-"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (56.0, "56"),
        (123.45678, "123.5"),
        (6.254, "6.25"),
        (0.61, "0.610"),
        (-0.0123, "-0.012"),
        (3e-4, "3.0e-4"),
        (1_234_567.8, "1.2M"),
        (math.nan, "-"),
        (-math.inf, "-"),
    ],
)
def test_values_keep_about_four_figures(value: float, text: str) -> None:
    assert format_value(value) == text


def test_memory_changes_unit_at_a_gigabyte() -> None:
    assert [format_memory(mb) for mb in (812, 999.4, 4123, math.nan)] == [
        "812 MB",
        "999 MB",
        "4.1 GB",
        "-",
    ]


# ---- curves ----


def test_history_keeps_the_whole_run_in_bounded_memory() -> None:
    history = History(capacity=16)
    for n in range(10_001):
        history.append(n, 2.0 * n)
    points = history.points()

    assert len(points) <= 17
    assert all(y == pytest.approx(2 * x) for x, y in points)  # means of a line lie on it
    assert points[0][0] < 10_000 / 8
    assert points[-1][0] > 10_000 * 7 / 8
    assert (history.last, history.best) == (20_000.0, 20_000.0)


def test_last_and_best_are_samples_even_when_points_are_means() -> None:
    history = History(capacity=4)
    for n, value in enumerate((1.0, 9.0, 2.0, 3.0)):  # the fourth fills it: (1+9)/2, (2+3)/2
        history.append(n, value)

    assert [y for _, y in history.points()] == [5.0, 2.5]
    assert (history.last, history.best) == (3.0, 9.0)


def test_history_leaves_out_what_is_not_finite() -> None:
    history = History()
    for value in (1.0, math.nan, math.inf, 2.0):
        history.append(0, value)

    assert [y for _, y in history.points()] == [1.0, 2.0]


def test_resampling_averages_within_columns_and_interpolates_between() -> None:
    # Columns of width 2 over 0..8: {0, 1} -> mean 2, none, none, {8} -> 8; a line in between.
    assert resample([(0, 1), (1, 3), (8, 8)], 4) == [2, 4, 6, 8]


def test_resampling_is_level_before_the_first_point() -> None:
    assert resample([(4, 5), (8, 8)], 4, start=0) == [5, 5, 5, 8]


def test_a_curve_fills_its_rows_in_eighths() -> None:
    # Two rows are 16 eighths between 0 and 16; zero still shows its lowest eighth.
    points = [(0.0, 0.0), (1.0, 4.0), (2.0, 8.0), (3.0, 12.0), (4.0, 16.0)]

    assert draw_curve(points, 5, 2, 0, 16, UNICODE) == ["   ▄█", "▁▄███"]


def test_a_flat_curve_is_a_line_at_the_bottom() -> None:
    assert draw_curve([(0, 3), (1, 3)], 4, 2, 3, 3, UNICODE) == ["    ", "▁▁▁▁"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.3, 378.0, [0, 100, 200, 300, 400]),
        (-21.0, 19.0, [-30, -20, -10, 0, 10, 20]),
        (0.0, 1.0, [0, 0.5, 1.0]),
        (5.0, 5.0, [4, 4.5, 5, 5.5, 6]),
        (0.0, 0.0, [0, 0.5, 1.0]),
    ],
)
def test_ticks_are_round_and_enclose_the_range(low: float, high: float, ticks: list[float]) -> None:
    assert round_ticks(low, high, 5) == pytest.approx(ticks)


# ---- the panel ----


def test_panel_shows_every_number_of_the_log() -> None:
    dashboard = make()
    dashboard.update(LOG)
    text = "\n".join(frame(dashboard))

    for pattern in (
        r"><\{\{\{o> puffer breakout .* cpu · native · 128k params",
        r"━+╸?─+ +62\.0%  eta +3m12s",
        r"steps +12\.4M / 20M +sps +251k +uptime +49\.5s",
        r"score +56 .* policy loss +-0\.012 .* env +━+╸?─+ +20%",
        r"perf +0\.610 .* value loss +0\.231 .* forward +━+╸?─+ +30%",
        r"mean reward +123\.4 .* entropy +1\.02 .* store +━*╸?─+ +5%",
        r"min reward +11 .* kl +0\.012 .* advantage +─+ +0%",
        r"max reward +703\.9 .* clip fraction +0\.113 .* update +━+╸?─+ +40%",
        r"length +812\.4 .* explained var +0\.870 .* other +━*╸?─+ +5%",
        r"episodes +193 .* grad norm +0\.490",
        r"bricks_left +12\.40 .* learning rate +3\.0e-4 .* cpu +━+╸?─* +87%",
        r"iteration +300 .* memory +812 MB",
    ):
        assert re.search(pattern, text), f"{pattern!r} is not in\n{text}"


def test_gpu_rows_appear_only_with_a_gpu() -> None:
    dashboard = make()
    dashboard.update(LOG)
    assert "gpu" not in "\n".join(frame(dashboard))

    dashboard.update({**LOG, "system/gpu": 93.0, "system/gpu_memory": 4123.0})
    assert re.search(r"gpu +━.*93%", "\n".join(frame(dashboard)))
    assert re.search(r"gpu memory +4\.1 GB", "\n".join(frame(dashboard)))


def test_missing_keys_and_nan_are_dashes() -> None:
    dashboard = make()
    dashboard.update({"steps": 5.0, "mean_reward": math.nan, "eta": math.nan})
    text = "\n".join(frame(dashboard))

    assert re.search(r"mean reward +- ", text)
    assert re.search(r"policy loss +- ", text)
    assert re.search(r"eta +- ", text)
    assert re.search(r"sps +- ", text)
    assert re.search(r"env +─+ +- ", text)
    assert "nan" not in text


def test_a_panel_without_any_log_can_be_drawn() -> None:
    assert any("breakout" in row for row in frame(make()))


def test_rows_of_metrics_seen_once_stay() -> None:
    dashboard = make()
    dashboard.update(LOG)
    dashboard.update({key: LOG[key] for key in LOG if not key.startswith("env/")})

    assert re.search(r"score +- ", "\n".join(frame(dashboard)))


def test_time_split_is_smoothed_over_iterations() -> None:
    dashboard = make()
    dashboard.update({"time/env": 1.0, "time/update": 0.0})
    dashboard.update({"time/env": 0.0, "time/update": 1.0})
    text = "\n".join(frame(dashboard))

    # 0.8 * 1 + 0 = 0.8 of env against 0.8 * 0 + 1 = 1 of update: 44 and 56 percent.
    assert re.search(r"env +━.* 44%", text)
    assert re.search(r"update +━.* 56%", text)


@pytest.mark.parametrize("width", [24, 30, 50, 72, 80, 100, 119, 120, 200])
@pytest.mark.parametrize("height", [1, 3, 4, 5, 7, 9, 12, 18, 24, 60])
@pytest.mark.parametrize("num_iterations", [0, 1, 50])
def test_panel_fits_any_terminal(width: int, height: int, num_iterations: int) -> None:
    dashboard = make()
    learn(dashboard, num_iterations)
    rows = frame(dashboard, width, height)

    assert 1 <= len(rows) <= height
    assert {len(row) for row in rows} == {min(width, 120)}


@pytest.mark.parametrize("width", [80, 120])
def test_a_common_terminal_shows_all_sections(width: int) -> None:
    dashboard = make()
    learn(dashboard)
    text = "\n".join(frame(dashboard, width, 23))

    for heading in ("episodes", "learning", "time", "system", "score over the run"):
        assert heading in text
    assert "more" not in text


def test_what_a_low_terminal_hides_is_counted() -> None:
    dashboard = make()
    dashboard.update(LOG)
    rows = frame(dashboard, 80, 9)

    # 9 rows: two borders, bar, counters, headings, 4 rows of a section. 9 losses: 3 and "6 more".
    assert "+ 6 more" in rows[7]


def test_borders_meet() -> None:
    dashboard = make()
    learn(dashboard)
    for above, below in pairwise(frame(dashboard, 100, 30)):
        for x, (upper, lower) in enumerate(zip(above, below, strict=True)):
            if lower in "┴┼" or (lower == "│" and upper not in "─╮╭"):
                assert upper in "│┬┼├┤╭╮", f"column {x}:\n{above}\n{below}"


def test_foreign_names_cannot_break_the_panel() -> None:
    dashboard = make()
    dashboard._env_name = "evil\n\x1b[31m[bold]名前"
    dashboard.update({**LOG, "env/a\tb": 1.0, "env/" + "long" * 40: 2.0})
    rows = dashboard.frame(80, 30)
    text = "".join(segment.text for row in rows for segment in row)

    assert not set("\x1b\n\t") & set(text)
    assert "[bold]名前" in text  # markup is text
    assert {sum(segment.cell_length for segment in row) for row in rows} == {80}


def test_terminals_without_unicode_get_ascii() -> None:
    dashboard = make()
    dashboard._glyphs = ASCII
    dashboard._env_name = "名前"
    learn(dashboard)

    assert "\n".join(frame(dashboard)).isascii()
    assert summary(dashboard, log="runs/é").isascii()


def test_curve_prefers_the_score_over_the_reward() -> None:
    dashboard = make()
    for n in range(3):
        dashboard.update({"steps": n, "mean_reward": n})
    assert "mean reward over the run" in "\n".join(frame(dashboard))

    for n in range(3):
        dashboard.update({"steps": n, "mean_reward": n, "env/score": n})
    assert "─ score over the run" in "\n".join(frame(dashboard))


def test_a_frame_is_cheap() -> None:
    dashboard = make()
    learn(dashboard, 1000)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        dashboard.frame(120, 50)
        times.append(time.perf_counter() - start)

    # About 0.6 ms on one slow core; the best of 20, so that a busy machine does not count.
    assert min(times) < 3e-3


# ---- the summary ----


def test_summary_draws_a_rising_curve_with_axes() -> None:
    dashboard = make()
    learn(dashboard)
    rows = summary(dashboard).splitlines()
    plot = [row for row in rows if re.match(r" *\d* [┤│]", row)]

    # The score goes from 10 to 500: marks 0, 200, 400, 600, and the lowest is the axis itself.
    assert [row.split("┤")[0].strip() for row in plot if "┤" in row] == ["600", "400", "200"]
    assert any(re.match(r" +0 ┼┬─+", row) for row in rows)
    assert any(re.match(r" +0 +2M +4M steps$", row) for row in rows)
    filled = [len(re.findall("[▁-█]", row)) for row in plot]
    assert filled == sorted(filled)
    assert filled[-1] > 60


def test_summary_gives_final_numbers_and_paths() -> None:
    dashboard = make()
    learn(dashboard)
    dashboard.update({"steps": 5_100_000, "uptime": 25.5, "env/score": 450.0})
    text = summary(dashboard, checkpoint="runs/x/model.safetensors", log="runs/x/log.jsonl")

    assert re.search(r"score 450  best 500  mean reward 123\.4  perf 0\.610", text)
    # Between the first update (0.1M, 0.5 s) and the last: 5M steps in 25 s.
    assert "5.1M steps in 25.5s, 200k steps/s" in text
    assert re.search(r"checkpoint +runs/x/model\.safetensors\n +log +runs/x/log\.jsonl", text)


def test_summary_of_a_run_without_numbers_is_dashes() -> None:
    assert "mean reward -" in summary(make())
    assert "- steps in -, - steps/s" in summary(make())


def test_constant_score_has_a_plot() -> None:
    dashboard = make()
    for n in range(5):
        dashboard.update({"steps": n, "env/score": 1.0})

    assert "score" in summary(dashboard)


# ---- modes ----


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


def test_plain_lines_come_at_intervals(clock: Clock) -> None:
    dashboard = make("plain", terminal=False)
    for n in range(12):  # one update a second: lines at 0, 5 and 10 s
        clock.now = 100.0 + n
        dashboard.update({**LOG, "uptime": float(n)})
    lines = printed(dashboard).splitlines()

    assert lines[0] == "><{{{o> puffer  breakout  cpu  native  128k params  20M steps"
    assert [line.split()[0] for line in lines[1:]] == ["0.0s", "5.0s", "10.0s"]


def test_a_plain_line_says_what_matters() -> None:
    dashboard = make("plain", terminal=False)
    dashboard.update({**LOG, "uptime": 12.3, "steps": 1_234_567})

    assert printed(dashboard).splitlines()[1] == (
        "12.3s  1.2M steps  251k/s  reward 123.4  score 56  perf 0.61  kl 0.012"
    )


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
    assert text.count("5M steps  200k/s") == 1  # the last, though its interval is not over
    assert "600 ┤" in text
    assert "runs/x/log.jsonl" in text


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


def test_svg_shows_the_panel(tmp_path: Path) -> None:
    dashboard = make("off")
    learn(dashboard)
    dashboard.export_svg(tmp_path / "panel.svg")
    svg = (tmp_path / "panel.svg").read_text(encoding="utf-8").replace("&#160;", " ")

    assert svg.startswith("<svg")
    assert "url(http" not in svg.replace('"', "")  # a picture fetches nothing
    for text in ("breakout", "score over the run", "policy loss", "128k params"):
        assert text in svg


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
