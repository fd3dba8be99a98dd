"""Curves in text: resampling, heights in eighths of a line, round ticks."""

import pytest

from pufferlib.dashboard.drawing import UNICODE, draw_curve, resample, round_ticks


def test_resampling_averages_within_columns_and_interpolates_between() -> None:
    # Columns of width 2 over 0..8: {0, 1} -> mean 2, none, none, {8} -> 8; a line in between.
    assert resample([(0, 1), (1, 3), (8, 8)], 4) == [2, 4, 6, 8]


def test_resampling_is_level_before_the_first_point() -> None:
    assert resample([(4, 5), (8, 8)], 4, start=0) == [5, 5, 5, 8]


def test_a_curve_fills_its_lines_in_eighths() -> None:
    # Two lines are 16 eighths between 0 and 16; zero still shows its lowest eighth.
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
