"""Curves of a run, in bounded memory, and numbers as short text."""

import math

import pytest

from pufferlib.dashboard.record import (
    History,
    format_count,
    format_duration,
    format_memory,
    format_value,
)


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


def test_history_drops_non_finite_samples() -> None:
    history = History()
    for value in (1.0, math.nan, math.inf, 2.0):
        history.append(0, value)

    assert [y for _, y in history.points()] == [1.0, 2.0]


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
def test_values_keep_about_four_digits(value: float, text: str) -> None:
    assert format_value(value) == text


def test_memory_changes_unit_at_a_gigabyte() -> None:
    assert [format_memory(mb) for mb in (812, 999.4, 4123, math.nan)] == [
        "812 MB",
        "999 MB",
        "4.1 GB",
        "-",
    ]
