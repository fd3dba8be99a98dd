"""The end of a run: its curve with axes, its last numbers, its files, and what to type next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.segment import Segment

from pufferlib.dashboard.curves import History, draw_curve, round_ticks
from pufferlib.dashboard.glyphs import CURVE, HEADING, QUIET, SCORE, STRONG, Glyphs, clean
from pufferlib.dashboard.panel import MAX_WIDTH
from pufferlib.dashboard.record import CURVES, Record
from pufferlib.dashboard.rows import Row
from pufferlib.dashboard.spelling import format_count, format_duration, format_value


def draw_summary(
    record: Record,
    glyphs: Glyphs,
    width: int,
    paths: Mapping[str, str],
    commands: Sequence[str] = (),
) -> list[Row]:
    """The curve with axes, the final numbers, where the files are, and what to type next."""
    label, history = record.curve()
    rows: list[Row] = []
    if len(history) > 1:
        rows += [[], *_plot(label, history.points(), min(width, MAX_WIDTH), glyphs)]
    rows += [[], *_outcome(record, label, history)]
    name_width = max((len(name) for name in paths), default=0)
    for name, path in paths.items():
        rows.append(
            [
                Segment(f"  {clean(name, glyphs).ljust(name_width)}  ", QUIET),
                Segment(clean(str(path), glyphs)),
            ]
        )
    if commands:
        rows.append([])
    rows += [[Segment(f"  {clean(command, glyphs)}", STRONG)] for command in commands]
    return rows


def _outcome(record: Record, label: str, history: History) -> list[Row]:
    numbers: Row = [Segment(f"  {label} ", QUIET), Segment(format_value(history.last), SCORE)]
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


def _plot(label: str, points: list[tuple[float, float]], width: int, glyphs: Glyphs) -> list[Row]:
    """The curve over steps, with labelled axes. Marks stand at the upper edge of their row."""
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

    rows: list[Row] = [[Segment(" " * (gutter - 1)), Segment(label, HEADING)]]
    for n, text in enumerate(draw_curve(points, columns, height, low, high, glyphs, first)):
        mark = format_value(marks[n]).rjust(gutter - 2) if n in marks else " " * (gutter - 2)
        axis = glyphs.tees[1] if n in marks else glyphs.down
        rows.append([Segment(f"{mark} {axis}", QUIET), Segment(text, CURVE)])

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
    rows.append([Segment(f"{bottom} {glyphs.tees[4]}{''.join(axis_line)}", QUIET)])
    rows.append([Segment("".join(labels).rstrip(), QUIET)])
    return rows
