"""The characters and the colours of a frame."""

from __future__ import annotations

from typing import NamedTuple

from rich.style import Style

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
    """Foreign text (names of envs, metrics, paths) without what could break a row."""
    if glyphs is ASCII:
        text = text.encode("ascii", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in text)
