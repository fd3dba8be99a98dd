"""Curves over a run: kept in bounded memory, drawn in rows of text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from pufferlib.dashboard.glyphs import Glyphs


class History:
    """A curve over the whole run in bounded memory.

    When `capacity` points are held, neighbours are averaged and from then on each point stands for
    twice as many samples. Samples that are not finite are left out.
    """

    def __init__(self, capacity: int = 256) -> None:
        self.best = -math.inf
        self.last = math.nan
        self._capacity = capacity
        self._points: list[tuple[float, float]] = []
        self._stride = 1
        self._pending: list[tuple[float, float]] = []

    def append(self, step: float, value: float) -> None:
        if not (math.isfinite(step) and math.isfinite(value)):
            return
        self.best = max(self.best, value)
        self.last = value
        self._pending.append((step, value))
        if len(self._pending) < self._stride:
            return
        self._points.append(_mean_point(self._pending))
        self._pending.clear()
        if len(self._points) >= self._capacity:
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [_mean_point(pair) for pair in pairs]
            self._stride *= 2

    def points(self) -> list[tuple[float, float]]:
        """(step, value) in the order they came; the newest samples are always part of it."""
        return [*self._points, _mean_point(self._pending)] if self._pending else self._points[:]

    def __len__(self) -> int:
        return len(self._points) + bool(self._pending)


def _mean_point(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    n = len(points)
    return sum(x for x, _ in points) / n, sum(y for _, y in points) / n


def resample(
    points: Sequence[tuple[float, float]], columns: int, start: float | None = None
) -> list[float]:
    """The curve at `columns` equal intervals from `start` (by default the first step) to the last.

    Each column is the mean of the points in it; columns without any are interpolated, and before
    the first point they are level with it.
    """
    if not points:
        return []
    first, last = min(points)[0] if start is None else start, max(points)[0]
    scale = columns / (last - first) if last > first else 0.0
    sums, counts = [0.0] * columns, [0] * columns
    for x, y in points:
        column = min(columns - 1, int((x - first) * scale))
        sums[column] += y
        counts[column] += 1
    known = [column for column in range(columns) if counts[column]]
    values = [sums[c] / counts[c] if counts[c] else math.nan for c in range(columns)]
    for left, right in pairwise(known):
        slope = (values[right] - values[left]) / (right - left)
        for column in range(left + 1, right):
            values[column] = values[left] + slope * (column - left)
    values[: known[0]] = [values[known[0]]] * known[0]
    values[known[-1] + 1 :] = [values[known[-1]]] * (columns - 1 - known[-1])
    return values


def draw_curve(
    points: Sequence[tuple[float, float]],
    columns: int,
    rows: int,
    low: float,
    high: float,
    glyphs: Glyphs,
    start: float | None = None,
) -> list[str]:
    """The area under the curve in `rows` rows of text, top row first.

    `low` is the bottom of the lowest row and `high` the top of the highest, in eighths of a row.
    """
    full = len(glyphs.levels) - 1
    scale = rows * full / (high - low) if high > low else 0.0
    # At least one eighth everywhere: a curve along the bottom is still a curve.
    heights = [max(1, round((value - low) * scale)) for value in resample(points, columns, start)]
    # What a cell shows at `height - base`: nothing below zero, full above `full`.
    margin = rows * full
    cells = glyphs.levels[0] * margin + glyphs.levels + glyphs.levels[-1] * margin
    return [
        "".join([cells[height - base + margin] for height in heights])
        for base in range((rows - 1) * full, -1, -full)
    ]


def round_ticks(low: float, high: float, count: int) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten apart) that enclose the range."""
    if not high > low:
        low, high = (low - 1, low + 1) if low else (0.0, 1.0)
    raw = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]
