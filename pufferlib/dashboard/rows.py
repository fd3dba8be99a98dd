"""Rows of styled text, and the frame around them.

Frames are laid out by hand as rows of text rather than with rich's tables: a redraw then costs
about a millisecond, and the panel can be fitted to any width and height.
"""

from __future__ import annotations

import math
from itertools import accumulate

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from pufferlib.dashboard.glyphs import BAR, HEADING, PLAIN, QUIET, Glyphs
from pufferlib.dashboard.spelling import format_percent

Row = list[Segment]


class Rows:
    """A renderable of finished rows."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in self._rows:
            yield from row
            yield Segment.line()


def text_of(row: Row) -> str:
    """The row without its colours."""
    return "".join(segment.text for segment in row)


def pad(row: Row, width: int) -> Row:
    """The row at exactly `width` cells."""
    return Segment.adjust_line_length(row, width, PLAIN)


def bar(fraction: float, width: int, glyphs: Glyphs) -> Row:
    """A bar of `width` cells that is filled to `fraction`, in halves of a cell; NaN is empty."""
    full, half, empty = glyphs.bar
    halves = round(min(1.0, max(0.0, fraction)) * width * 2) if math.isfinite(fraction) else 0
    filled = full * (halves // 2) + half * (halves % 2)
    return [Segment(filled, BAR), Segment(empty * (width - len(filled)), QUIET)]


def bar_row(label: str, fraction: float, glyphs: Glyphs, width: int) -> Row:
    """A name, a bar and a percentage."""
    label_width = min(10, max(0, width - 9))
    return [
        Segment(_fit(label, label_width), QUIET),
        *bar(fraction, max(0, width - label_width - 5), glyphs),
        Segment(format_percent(fraction).rjust(5), PLAIN),
    ]


def value_row(label: str, value: str, width: int, style: Style = PLAIN) -> Row:
    """A name on the left, its value on the right."""
    label_width = max(0, width - len(value) - 1)
    return [
        Segment(_fit(label, label_width), QUIET),
        Segment(value.rjust(width - label_width), style),
    ]


def heading_row(heading: str, width: int) -> Row:
    return [Segment(_fit(heading, width), HEADING)]


def _fit(text: str, width: int) -> str:
    return text.ljust(width)[:width] if text.isascii() else set_cell_size(text, width)


# ---- the frame around them -------------------------------------------------------------------


def top_border(title: Row, facts: list[str], width: int, glyphs: Glyphs) -> Row:
    """The upper edge with the title on its left and as many of the last facts as have room."""
    left: Row = [Segment(f"{glyphs.corners[0]}{glyphs.across} ", QUIET), *title]
    facts = list(facts)
    room = width - Segment.get_line_length(left) - 4
    while facts and cell_len(right := f" {f' {glyphs.dot} '.join(facts)} ") > room:
        facts.pop(0)
    end: Row = [Segment(right, QUIET)] if facts else []
    end.append(Segment(f"{glyphs.across}{glyphs.corners[1]}", QUIET))
    left = pad(left, width - 2) if room < 0 else left
    fill = width - Segment.get_line_length(left) - Segment.get_line_length(end)
    return [*left, Segment(glyphs.across * fill, QUIET), *end]


def bottom_border(width: int, above: list[int], glyphs: Glyphs) -> Row:
    """The lower edge under columns of the widths `above`."""
    line = _joined(width - 2, [], above, glyphs)
    return [Segment(f"{glyphs.corners[2]}{line}{glyphs.corners[3]}", QUIET)]


def divider(headings: list[str], widths: list[int], above: list[int], glyphs: Glyphs) -> Row:
    """A line between columns of the widths `above` and those below, each with its heading."""
    line = _joined(sum(widths) + 3 * len(widths) - 1, widths, above, glyphs)
    row, x = [Segment(glyphs.tees[0], QUIET)], 0
    for heading, width in zip(headings, widths, strict=True):
        text = f" {heading} "
        row += [Segment(line[x], QUIET), Segment(text, HEADING)]
        row.append(Segment(line[x + 1 + len(text) : x + width + 3], QUIET))
        x += width + 3
    return [*row, Segment(glyphs.tees[1], QUIET)]


def framed(cells: list[Row], widths: list[int], glyphs: Glyphs, between: str = "") -> Row:
    """Cells side by side in the frame, with `between` or a vertical line between them."""
    border = glyphs.down
    row = [Segment(f"{border} ", QUIET)]
    for n, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if n:
            row.append(Segment(f" {between or border} ", QUIET))
        row += pad(cell, width)
    return [*row, Segment(f" {border}", QUIET)]


def split(width: int, columns: int) -> list[int]:
    """Widths of columns that fill `width` with three cells of border between each two."""
    room = width - 3 * (columns - 1)
    return [room // columns + (n < room % columns) for n in range(columns)]


def _joined(width: int, below: list[int], above: list[int], glyphs: Glyphs) -> str:
    """A horizontal line with tees where columns above or below it end."""
    line = [glyphs.across] * width
    for x in _column_ends(above):
        line[x] = glyphs.tees[3]
    for x in _column_ends(below):
        line[x] = glyphs.tees[4 if line[x] == glyphs.tees[3] else 2]
    return "".join(line)


def _column_ends(widths: list[int]) -> list[int]:
    """Where the borders between columns stand, counted from the left border of the panel."""
    return [end - 1 for end in accumulate(width + 3 for width in widths[:-1])]
