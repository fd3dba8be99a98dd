"""The panel: every metric, at any size, with any names."""

import math
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from boards import LOG, frame, learn, make, summary

from pufferlib.dashboard.drawing import ASCII


def test_panel_shows_every_metric_of_the_log() -> None:
    dashboard = make()
    dashboard.update(LOG)
    text = "\n".join(frame(dashboard))

    for pattern in (
        r"><\{\{\{o> puffer breakout .* cpu · native · 128k params",
        r"━+╸?─+ +62\.0%  eta +3m12s",
        r"steps +12\.4M / 20M +SPS +251k +uptime +49\.5s",
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


def test_gpu_lines_appear_only_with_a_gpu() -> None:
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
    assert re.search(r"SPS +- ", text)
    assert re.search(r"env +─+ +- ", text)
    assert "nan" not in text


def test_a_panel_without_any_log_can_be_drawn() -> None:
    assert any("breakout" in line for line in frame(make()))


def test_a_metric_stays_on_the_panel_after_its_first_log() -> None:
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
    lines = frame(dashboard, width, height)

    assert 1 <= len(lines) <= height
    assert {len(line) for line in lines} == {min(width, 120)}


@pytest.mark.parametrize("width", [80, 120])
def test_a_common_terminal_shows_all_sections(width: int) -> None:
    dashboard = make()
    learn(dashboard)
    text = "\n".join(frame(dashboard, width, 23))

    for heading in ("episodes", "learning", "time", "system", "score over the run"):
        assert heading in text
    assert "more" not in text


def test_a_low_terminal_counts_the_hidden_lines() -> None:
    dashboard = make()
    dashboard.update(LOG)
    lines = frame(dashboard, 80, 9)

    # 9 lines: two borders, bar, counters, headings, 4 lines of a section. 9 losses: 3 and "6 more".
    assert "+ 6 more" in lines[7]


def test_borders_meet() -> None:
    dashboard = make()
    learn(dashboard)
    for above, below in pairwise(frame(dashboard, 100, 30)):
        for x, (upper, lower) in enumerate(zip(above, below, strict=True)):
            if lower in "┴┼" or (lower == "│" and upper not in "─╮╭"):
                assert upper in "│┬┼├┤╭╮", f"column {x}:\n{above}\n{below}"


def test_unprintable_names_cannot_break_the_panel() -> None:
    dashboard = make()
    dashboard._record.env_name = "evil\n\x1b[31m[bold]名前"
    dashboard.update({**LOG, "env/a\tb": 1.0, "env/" + "long" * 40: 2.0})
    lines = dashboard.frame(80, 30)
    text = "".join(segment.text for line in lines for segment in line)

    assert not set("\x1b\n\t") & set(text)
    assert "[bold]名前" in text  # markup is text
    assert {sum(segment.cell_length for segment in line) for line in lines} == {80}


def test_terminals_without_unicode_get_ascii() -> None:
    dashboard = make()
    dashboard._glyphs = ASCII
    dashboard._record.env_name = "名前"
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
        start = time.thread_time()
        dashboard.frame(120, 50)
        times.append(time.thread_time() - start)

    # About 0.6 ms on one slow core; CPU time and the best of 20, whatever else the machine does.
    assert min(times) < 3e-3


def test_svg_shows_the_panel(tmp_path: Path) -> None:
    dashboard = make("off")
    learn(dashboard)
    dashboard.export_svg(tmp_path / "panel.svg")
    svg = (tmp_path / "panel.svg").read_text(encoding="utf-8").replace("&#160;", " ")

    assert svg.startswith("<svg")
    assert "url(http" not in svg.replace('"', "")  # a picture loads nothing
    for text in ("breakout", "score over the run", "policy loss", "128k params"):
        assert text in svg
