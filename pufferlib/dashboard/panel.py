"""What a dashboard draws: the panel of a running run, and the summary at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from rich.segment import Segment

from pufferlib.dashboard.drawing import (
    CURVE,
    HEADING,
    MARK,
    PLAIN,
    QUIET,
    SCORE,
    STRONG,
    TITLE,
    Glyphs,
    Line,
    bar,
    bar_line,
    bottom_border,
    clean,
    divider,
    draw_curve,
    framed,
    heading_line,
    pad,
    round_ticks,
    split,
    top_border,
    value_line,
)
from pufferlib.dashboard.record import (
    CURVES,
    HEADLINES,
    History,
    Record,
    format_count,
    format_duration,
    format_memory,
    format_value,
)

MAX_WIDTH = 120  # wider lines are harder to read

TIME_SPANS = ("env", "forward", "store", "advantage", "update", "other")
LEARNING = (
    ("policy_loss", "policy loss"),
    ("value_loss", "value loss"),
    ("entropy", "entropy"),
    ("approx_kl", "kl"),
    ("clipfrac", "clip fraction"),
    ("explained_variance", "explained var"),
    ("grad_norm", "grad norm"),
    ("learning_rate", "learning rate"),
    ("iteration", "iteration"),
)
EPISODES = (
    ("mean_reward", "mean reward"),
    ("min_reward", "min reward"),
    ("max_reward", "max reward"),
    ("episode_length", "length"),
    ("episodes", "episodes"),
)

DrawLine = Callable[[int], Line]  # of a given width


class Section(NamedTuple):
    """A part of the panel: a heading, and functions that draw its lines at a given width."""

    heading: str
    lines: list[DrawLine]


def draw_panel(record: Record, glyphs: Glyphs, width: int, height: int) -> list[Line]:
    """Return the panel in at most `height` lines of at most `width` cells.

    The curve takes the lines that the sections leave.
    """
    width = min(width, MAX_WIDTH)
    if height < 4 or width < 24:
        return [pad([Segment(record.line())], width)] if height > 0 else []
    inner = width - 4
    groups = _groups(record, glyphs, inner)
    spare = height - 4  # two borders, the progress bar and the counters
    has_curve = len(record.curve()[1]) > 1
    wanted = 2 if has_curve and spare >= 7 else 0  # a sparkline and its heading
    body: list[tuple[list[Section], int]] = []
    for group in groups:
        room = spare - wanted - 1
        if room < 1:
            break
        num_lines = min(room, max(len(section.lines) for section in group))
        body.append((group, num_lines))
        spare -= num_lines + 1

    title = [
        Segment(f"{MARK} puffer ", TITLE),
        Segment(f"{clean(record.env_name, glyphs)} ", STRONG),
    ]
    lines = [top_border(title, [clean(tag, glyphs) for tag in record.tags()], width, glyphs)]
    lines.append(framed([_progress_line(record, glyphs, inner)], [inner], glyphs, " "))
    counters = _counter_cells(record)[: max(2, len(groups[0]))]
    widths = split(inner, len(counters))
    cells = [draw(width) for draw, width in zip(counters, widths, strict=True)]
    lines.append(framed(cells, widths, glyphs, " "))
    above: list[int] = []
    for group, num_lines in body:
        widths = split(inner, len(group))
        lines.append(divider([section.heading for section in group], widths, above, glyphs))
        sized = list(zip(group, widths, strict=True))
        for n in range(num_lines):
            cells = [_cell(section, n, num_lines, each) for section, each in sized]
            lines.append(framed(cells, widths, glyphs))
        above = widths
    if wanted and spare >= 2:
        lines += _curve_lines(record, glyphs, inner, min(6, spare - 1), above)
        above = []
    return [*lines, bottom_border(width, above, glyphs)]


def _cell(section: Section, n: int, num_lines: int, width: int) -> Line:
    hidden = len(section.lines) - num_lines
    if hidden > 0 and n == num_lines - 1 and num_lines > 1:
        return [Segment(f"+ {hidden + 1} more", QUIET)]
    return section.lines[n](width) if n < len(section.lines) else []


# ---- Above the sections --------------------------------------------------------------------------


def _progress_line(record: Record, glyphs: Glyphs, width: int) -> Line:
    budget = record.budget()
    fraction = record.number("steps") / budget if budget > 0 else math.nan
    percent = f"{100 * min(1.0, fraction):.1f}%" if math.isfinite(fraction) else "-"
    eta = format_duration(record.number("eta"))
    tail = f"{percent:>7}  "
    doing = f"  {record.activity}" if record.activity and width >= 64 else ""
    line = bar(fraction, max(4, width - len(doing) - len(tail) - 10), glyphs)
    line += [
        Segment(doing, QUIET),
        Segment(tail, STRONG),
        Segment("eta", QUIET),
        Segment(eta.rjust(7), STRONG),
    ]
    return line


def _counter_cells(record: Record) -> list[DrawLine]:
    steps, budget = record.number("steps"), record.budget()
    of = f" / {format_count(budget)}" if math.isfinite(budget) else ""
    counters = [
        ("steps", format_count(steps) + of),
        ("SPS", format_count(record.number("sps"))),
        ("uptime", format_duration(record.number("uptime"))),
    ]
    return [partial(value_line, label, value, style=STRONG) for label, value in counters]


# ---- Sections ------------------------------------------------------------------------------------


def _groups(record: Record, glyphs: Glyphs, width: int) -> list[list[Section]]:
    """Return the sections in groups that share lines, as many side by side as fit."""
    episodes = Section("episodes", list(_episode_lines(record, glyphs)))
    numbers = [(label, format_value(record.number(key))) for key, label in LEARNING]
    learning = Section("learning", [partial(value_line, *each) for each in numbers])
    times, system = list(_time_lines(record, glyphs)), list(_system_lines(record, glyphs))
    if width >= 68:
        heading = partial(heading_line, "system")
        return [[episodes, learning, Section("time", [*times, heading, *system])]]
    if width >= 44:
        return [[episodes, learning], [Section("time", times), Section("system", system)]]
    sections = (episodes, learning, Section("time", times), Section("system", system))
    return [[section] for section in sections]


def _episode_lines(record: Record, glyphs: Glyphs) -> Iterator[DrawLine]:
    headlines = [key for key in HEADLINES if key in record.env_keys]
    others = [key for key in record.env_keys if key not in HEADLINES]
    named = [(key, clean(key[4:], glyphs), SCORE) for key in headlines]
    named += [(key, label, PLAIN) for key, label in EPISODES]
    named += [(key, clean(key[4:], glyphs), PLAIN) for key in others]
    for key, label, style in named:
        yield partial(value_line, label, format_value(record.number(key)), style=style)


def _time_lines(record: Record, glyphs: Glyphs) -> Iterator[DrawLine]:
    total = sum(record.seconds.values())
    extra = [span for span in record.seconds if span not in TIME_SPANS]
    for span in (*TIME_SPANS, *extra):
        seconds = record.seconds.get(span, math.nan)
        fraction = seconds / total if total > 0 else math.nan
        yield partial(bar_line, clean(span, glyphs), fraction, glyphs)


def _system_lines(record: Record, glyphs: Glyphs) -> Iterator[DrawLine]:
    for load, memory in (("cpu", "memory"), ("gpu", "gpu_memory")):
        keys = f"system/{load}", f"system/{memory}"
        if load == "cpu" or not record.log.keys().isdisjoint(keys):
            busy, used = map(record.number, keys)
            yield partial(bar_line, load, busy / 100, glyphs)
            yield partial(value_line, memory.replace("_", " "), format_memory(used))


def _curve_lines(
    record: Record, glyphs: Glyphs, width: int, num_lines: int, above: list[int]
) -> list[Line]:
    label, history = record.curve()
    points = history.points()
    low, high = min(y for _, y in points), max(y for _, y in points)
    gutter = 8
    columns = width - gutter
    drawn = draw_curve(points, columns, num_lines, low, high, glyphs)
    marks = [format_value(high), *[""] * (num_lines - 2), format_value(low)][:num_lines]
    lines = [divider([f"{label} over the run"], [width], above, glyphs)]
    for mark, text in zip(marks, drawn, strict=True):
        cells = [Segment(mark.rjust(gutter - 1) + " ", QUIET), Segment(text, CURVE)]
        lines.append(framed([cells], [width], glyphs))
    return lines


# ---- The summary ---------------------------------------------------------------------------------


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
