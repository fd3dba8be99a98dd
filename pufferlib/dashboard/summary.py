"""The end of a run: its curve with axes, its final metrics, its files, and what to type next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.segment import Segment

from pufferlib.dashboard.drawing import (
    CURVE,
    HEADING,
    QUIET,
    SCORE,
    STRONG,
    Glyphs,
    Line,
    clean,
    draw_curve,
    round_ticks,
)
from pufferlib.dashboard.panel import MAX_WIDTH
from pufferlib.dashboard.record import (
    CURVES,
    History,
    Record,
    format_count,
    format_duration,
    format_value,
)


def draw_summary(
    record: Record,
    glyphs: Glyphs,
    width: int,
    paths: Mapping[str, str],
    commands: Sequence[str] = (),
) -> list[Line]:
    """Return the curve with axes, the final metrics, the files, and what to type next."""
    label, history = record.curve()
    lines: list[Line] = []
    if len(history) > 1:
        lines += [[], *_plot(label, history.points(), min(width, MAX_WIDTH), glyphs)]
    lines += [[], *_outcome(record, label, history)]
    name_width = max((len(name) for name in paths), default=0)
    for name, path in paths.items():
        label = f"  {clean(name, glyphs).ljust(name_width)}  "
        lines.append([Segment(label, QUIET), Segment(clean(str(path), glyphs))])
    if commands:
        lines.append([])
    lines += [[Segment(f"  {clean(command, glyphs)}", STRONG)] for command in commands]
    return lines


def _outcome(record: Record, label: str, history: History) -> list[Line]:
    numbers: Line = [Segment(f"  {label} ", QUIET), Segment(format_value(history.last), SCORE)]
    if len(history) > 1:
        numbers += [Segment("  best ", QUIET), Segment(format_value(history.best), SCORE)]
    for key, name in CURVES:
        curve = record.curves[key]
        if curve is not history and len(curve):
            numbers += [Segment(f"  {name} ", QUIET), Segment(format_value(curve.last), STRONG)]

    steps, uptime, sps = (record.number(key) for key in ("steps", "uptime", "sps"))
    if record.first is not None and uptime > record.first[1]:
        sps = (steps - record.first[0]) / (uptime - record.first[1])  # of the run, not the last
    return [
        numbers,
        [
            Segment(f"  {format_count(steps)} steps", STRONG),
            Segment(" in ", QUIET),
            Segment(format_duration(uptime), STRONG),
            Segment(f", {format_count(sps)} SPS", QUIET),
        ],
    ]


def _plot(label: str, points: list[tuple[float, float]], width: int, glyphs: Glyphs) -> list[Line]:
    """Return the curve over steps with labelled axes. Marks are at the upper edge of their line."""
    values = [y for _, y in points]
    y_ticks = round_ticks(min(values), max(values), 5)
    low, high = y_ticks[0], y_ticks[-1]
    intervals = len(y_ticks) - 1
    height = intervals * math.ceil(10 / intervals)  # marks at equal distances
    marks = {height - round((y - low) / (high - low) * height): y for y in y_ticks}
    gutter = max(len(format_value(y)) for y in y_ticks) + 3
    columns = max(8, width - gutter - 2)

    first, last = min(points)[0], max(points)[0]
    if first <= 1.5 * (points[1][0] - points[0][0]):
        first = 0.0  # a first point after one iteration: the run, and so the axis, began at 0

    lines: list[Line] = [[Segment(" " * (gutter - 1)), Segment(label, HEADING)]]
    for n, text in enumerate(draw_curve(points, columns, height, low, high, glyphs, first)):
        mark = format_value(marks[n]).rjust(gutter - 2) if n in marks else " " * (gutter - 2)
        axis = glyphs.tees[1] if n in marks else glyphs.down
        lines.append([Segment(f"{mark} {axis}", QUIET), Segment(text, CURVE)])

    axis_line, labels = [glyphs.across] * columns, [" "] * (gutter + columns)
    x_ticks = [x for x in round_ticks(first, last, max(3, columns // 14)) if first <= x <= last]
    for x in x_ticks:
        column = round((x - first) / (last - first) * (columns - 1)) if last > first else 0
        axis_line[column] = glyphs.tees[2]
        text = format_count(x)
        start = gutter + column - len(text) // 2
        if x == x_ticks[-1]:
            text += " steps"
            start = min(start, len(labels) - len(text))
        labels[start : start + len(text)] = text
    bottom = format_value(low).rjust(gutter - 2)
    lines.append([Segment(f"{bottom} {glyphs.tees[4]}{''.join(axis_line)}", QUIET)])
    lines.append([Segment("".join(labels).rstrip(), QUIET)])
    return lines
