"""The summary: the curve with axes, the final metrics, the files."""

import re

from boards import learn, make, printed, summary


def test_summary_draws_a_rising_curve_with_axes() -> None:
    dashboard = make()
    learn(dashboard)
    lines = summary(dashboard).splitlines()
    plot = [line for line in lines if re.match(r" *\d* [┤│]", line)]

    # The score goes from 10 to 500: marks 0, 200, 400, 600, and the lowest is the axis itself.
    assert [line.split("┤")[0].strip() for line in plot if "┤" in line] == ["600", "400", "200"]
    assert any(re.match(r" +0 ┼┬─+", line) for line in lines)
    assert any(re.match(r" +0 +2M +4M steps$", line) for line in lines)
    filled = [len(re.findall("[▁-█]", line)) for line in plot]
    assert filled == sorted(filled)
    assert filled[-1] > 60


def test_summary_shows_final_metrics_and_paths() -> None:
    dashboard = make()
    learn(dashboard)
    dashboard.update({"steps": 5_100_000, "uptime": 25.5, "env/score": 450.0})
    text = summary(dashboard, checkpoint="runs/x/model.safetensors", log="runs/x/log.jsonl")

    assert re.search(r"score 450  best 500  mean reward 123\.4  perf 0\.610", text)
    # Between the first update (0.1M, 0.5 s) and the last: 5M steps in 25 s.
    assert "5.1M steps in 25.5s, 200k SPS" in text
    assert re.search(r"checkpoint +runs/x/model\.safetensors\n +log +runs/x/log\.jsonl", text)


def test_summary_of_a_run_without_metrics_is_dashes() -> None:
    assert "mean reward -" in summary(make())
    assert "- steps in -, - SPS" in summary(make())


def test_summary_ends_with_what_to_type_next() -> None:
    dashboard = make("plain", terminal=False, width=30)  # narrower than the commands
    learn(dashboard)
    commands = ["puffer eval breakout --checkpoint runs/x", "puffer resume runs/x"]
    dashboard.finish({"log": "runs/x/log.jsonl"}, commands)

    lines = printed(dashboard).splitlines()
    assert [line.strip() for line in lines[-3:]] == ["", *commands]


def test_constant_score_has_a_plot() -> None:
    dashboard = make()
    for n in range(5):
        dashboard.update({"steps": n, "env/score": 1.0})

    assert "score" in summary(dashboard)
