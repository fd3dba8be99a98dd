"""Curves of a run: the whole run in bounded memory."""

import math

import pytest

from pufferlib.dashboard.record import History


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
