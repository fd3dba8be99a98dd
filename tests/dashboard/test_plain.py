"""Plain lines, as a pipe gets them."""

from boards import LOG, Clock, learn, make, printed


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
        "12.3s  1.2M steps  251k SPS  reward 123.4  score 56  perf 0.61  kl 0.012"
    )


def test_a_note_is_a_line_of_its_own() -> None:
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
