"""Drawing in text: characters, colours, bars, curves, and the frame around them.

Frames are laid out by hand as lines of styled text rather than with rich's tables: a redraw then
costs about a millisecond, and the panel fits any width and height.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from pufferlib.dashboard.record import format_percent

MARK = "><{{{o>"

# Colours of middle brightness: contrast 4.1 to 5.1 with black and with white alike (WCAG formula).
PLAIN = Style()
STRONG = Style.parse("bold")
QUIET = Style.parse("color(243)")
TITLE = Style.parse("bold color(30)")
HEADING = Style.parse("bold color(30)")
BAR = Style.parse("color(31)")
CURVE = Style.parse("bold color(130)")
SCORE = Style.parse("bold color(130)")


class Glyphs(NamedTuple):
    """The characters of a frame, for terminals with and without Unicode."""

    corners: str  # top left, top right, bottom left, bottom right
    tees: str  # left, right, down, up, cross
    across: str
    down: str
    bar: tuple[str, str, str]  # full cell, half cell, empty cell
    levels: str  # nine, from empty to full
    dot: str


UNICODE = Glyphs("╭╮╰╯", "├┤┬┴┼", "─", "│", ("━", "╸", "─"), " ▁▂▃▄▅▆▇█", "·")
ASCII = Glyphs("++++", "+++++", "-", "|", ("#", "-", "."), " .,:;=+*#", "|")


def clean(text: str, glyphs: Glyphs) -> str:
    """Return text of others (names of envs, metrics, paths) without unprintable characters."""
    if glyphs is ASCII:
        text = text.encode("ascii", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in text)


# ---- Lines ---------------------------------------------------------------------------------------


Line = list[Segment]


class Lines:
    """A renderable of finished lines."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            yield from line
            yield Segment.line()


def text_of(line: Line) -> str:
    """Return the line without its colours."""
    return "".join(segment.text for segment in line)


def pad(line: Line, width: int) -> Line:
    """Return the line at exactly `width` cells."""
    return Segment.adjust_line_length(line, width, PLAIN)


def bar(fraction: float, width: int, glyphs: Glyphs) -> Line:
    """Return a bar of `width` cells, filled to `fraction` in half cells; NaN is empty."""
    full, half, empty = glyphs.bar
    half_cells = round(min(1.0, max(0.0, fraction)) * width * 2) if math.isfinite(fraction) else 0
    filled = full * (half_cells // 2) + half * (half_cells % 2)
    return [Segment(filled, BAR), Segment(empty * (width - len(filled)), QUIET)]


def bar_line(label: str, fraction: float, glyphs: Glyphs, width: int) -> Line:
    """Return a name, a bar and a percentage."""
    label_width = min(10, max(0, width - 9))
    return [
        Segment(_to_width(label, label_width), QUIET),
        *bar(fraction, max(0, width - label_width - 5), glyphs),
        Segment(format_percent(fraction).rjust(5), PLAIN),
    ]


def value_line(label: str, value: str, width: int, style: Style = PLAIN) -> Line:
    """Return a name on the left and its value on the right."""
    label_width = max(0, width - len(value) - 1)
    return [
        Segment(_to_width(label, label_width), QUIET),
        Segment(value.rjust(width - label_width), style),
    ]


def heading_line(heading: str, width: int) -> Line:
    """Return a heading inside of a section."""
    return [Segment(_to_width(heading, width), HEADING)]


def _to_width(text: str, width: int) -> str:
    return text.ljust(width)[:width] if text.isascii() else set_cell_size(text, width)


# ---- The frame -----------------------------------------------------------------------------------


def top_border(title: Line, tags: list[str], width: int, glyphs: Glyphs) -> Line:
    """Return the upper edge with the title on its left and as many of the last tags as fit."""
    left: Line = [Segment(f"{glyphs.corners[0]}{glyphs.across} ", QUIET), *title]
    tags = list(tags)
    room = width - Segment.get_line_length(left) - 4
    while tags and cell_len(right := f" {f' {glyphs.dot} '.join(tags)} ") > room:
        tags.pop(0)
    end: Line = [Segment(right, QUIET)] if tags else []
    end.append(Segment(f"{glyphs.across}{glyphs.corners[1]}", QUIET))
    left = pad(left, width - 2) if room < 0 else left
    fill = width - Segment.get_line_length(left) - Segment.get_line_length(end)
    return [*left, Segment(glyphs.across * fill, QUIET), *end]


def bottom_border(width: int, above: list[int], glyphs: Glyphs) -> Line:
    """Return the lower edge under columns of the widths `above`."""
    rule = _horizontal_rule(width - 2, [], above, glyphs)
    return [Segment(f"{glyphs.corners[2]}{rule}{glyphs.corners[3]}", QUIET)]


def divider(headings: list[str], widths: list[int], above: list[int], glyphs: Glyphs) -> Line:
    """Return a line between the columns `above` and those below, each with its heading."""
    rule = _horizontal_rule(sum(widths) + 3 * len(widths) - 1, widths, above, glyphs)
    line, x = [Segment(glyphs.tees[0], QUIET)], 0
    for heading, width in zip(headings, widths, strict=True):
        text = f" {heading} "
        line += [Segment(rule[x], QUIET), Segment(text, HEADING)]
        line.append(Segment(rule[x + 1 + len(text) : x + width + 3], QUIET))
        x += width + 3
    return [*line, Segment(glyphs.tees[1], QUIET)]


def framed(cells: list[Line], widths: list[int], glyphs: Glyphs, between: str = "") -> Line:
    """Return cells side by side in the frame, with `between` or a vertical line between them."""
    border = glyphs.down
    line = [Segment(f"{border} ", QUIET)]
    for n, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if n:
            line.append(Segment(f" {between or border} ", QUIET))
        line += pad(cell, width)
    return [*line, Segment(f" {border}", QUIET)]


def split(width: int, columns: int) -> list[int]:
    """Return the widths of columns that fill `width`, with three cells of border between two."""
    room = width - 3 * (columns - 1)
    return [room // columns + (n < room % columns) for n in range(columns)]


def _horizontal_rule(width: int, below: list[int], above: list[int], glyphs: Glyphs) -> str:
    """Return a horizontal line with tees where columns above or below it end."""
    rule = [glyphs.across] * width
    for x in _column_ends(above):
        rule[x] = glyphs.tees[3]
    for x in _column_ends(below):
        rule[x] = glyphs.tees[4 if rule[x] == glyphs.tees[3] else 2]
    return "".join(rule)


def _column_ends(widths: list[int]) -> list[int]:
    """Return where the borders between columns are, counted from the left border of the panel."""
    return [end - 1 for end in accumulate(width + 3 for width in widths[:-1])]


# ---- Curves --------------------------------------------------------------------------------------


def resample(
    points: Sequence[tuple[float, float]], columns: int, start: float | None = None
) -> list[float]:
    """Return the curve at `columns` equal intervals from `start` or the first step to the last.

    Each column is the mean of its points. Columns without points are interpolated; those before the
    first point repeat it.
    """
    if not points:
        return []
    steps, values = np.array(points, dtype=np.float64).T
    first = steps.min() if start is None else start
    scale = columns / (steps.max() - first) if steps.max() > first else 0.0
    column = np.minimum(columns - 1, ((steps - first) * scale).astype(int))
    counts, sums = np.bincount(column, minlength=columns), np.bincount(column, values, columns)
    known = np.flatnonzero(counts)
    means: list[float] = np.interp(range(columns), known, sums[known] / counts[known]).tolist()
    return means


def draw_curve(
    points: Sequence[tuple[float, float]],
    columns: int,
    height: int,
    low: float,
    high: float,
    glyphs: Glyphs,
    start: float | None = None,
) -> list[str]:
    """Return the area under the curve in `height` lines of text, top line first.

    `low` is the bottom of the lowest line and `high` the top of the highest, in eighths of a line.
    """
    full = len(glyphs.levels) - 1
    scale = height * full / (high - low) if high > low else 0.0
    # At least one eighth everywhere: a curve along the bottom is still a curve.
    levels = [max(1, round((value - low) * scale)) for value in resample(points, columns, start)]
    # What a cell shows at `level - base`: nothing below zero, full above `full`.
    margin = height * full
    cells = glyphs.levels[0] * margin + glyphs.levels + glyphs.levels[-1] * margin
    return [
        "".join([cells[level - base + margin] for level in levels])
        for base in range((height - 1) * full, -1, -full)
    ]


def round_ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` ticks around the range, 1, 2 or 5 times a power of ten apart."""
    if not high > low:
        low, high = (low - 1, low + 1) if low else (0.0, 1.0)
    raw = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, last + 1)]
