"""The terminal dashboard: one panel that is redrawn in place, or plain lines in a pipe.

Frames are laid out by hand as rows of styled text rather than with rich's tables: a redraw then
costs about a millisecond, and the panel can be fitted to any width and height.
"""

from __future__ import annotations

import math
import os
import re
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from io import StringIO
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from pufferlib.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from typing import Self

Mode = Literal["auto", "on", "off", "plain"]

FRAMES_PER_SECOND = 8
PLAIN_INTERVAL = 5.0  # seconds between two lines in a pipe
MAX_WIDTH = 120  # wider rows are harder to read, not easier
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

TIME_SPANS = ("env", "forward", "store", "advantage", "update", "other")
TIME_DECAY = 0.8  # the time split is smoothed over about the last five iterations
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
HEADLINES = ("env/score", "env/perf")  # what people look at first; shown first, in colour
CURVES = (("env/score", "score"), ("mean_reward", "mean reward"), ("env/perf", "perf"))


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


# ---- numbers for people ----------------------------------------------------------------------


def format_count(count: float) -> str:
    """At most four characters of digits: 999, 1.2k, 251k, 12.4M, 3B; "-" for NaN."""
    if not math.isfinite(count):
        return "-"
    scaled = abs(count)
    for unit in ("", "k", "M", "B", "T"):
        digits = 1 if unit and scaled < 99.95 else 0
        if round(scaled, digits) < 1000 or unit == "T":
            break
        scaled /= 1000
    text = f"{scaled:.{digits}f}".removesuffix(".0")
    return f"{'-' if count < 0 else ''}{text}{unit}"


def format_duration(seconds: float) -> str:
    """12.3s, 3m12s, 2h05m, 4d03h; "-" for NaN."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def format_value(value: float) -> str:
    """About four figures: 123.4, 56, 6.25, 0.610, 3.0e-4; large ones as counts; "-" for NaN."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 99_999.5:
        return format_count(value)
    if value == int(value):
        return str(int(value))
    if size >= 99.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    if size >= 0.001:
        return f"{value:.3f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def format_memory(megabytes: float) -> str:
    """812 MB, 4.1 GB; "-" for NaN."""
    if not math.isfinite(megabytes):
        return "-"
    return f"{megabytes:.0f} MB" if megabytes < 999.5 else f"{megabytes / 1000:.1f} GB"


def format_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f}%" if math.isfinite(fraction) else "-"


def _short(value: float) -> str:
    """format_value without trailing zeros, for running text."""
    text = format_value(value)
    return text.rstrip("0").rstrip(".") if "." in text and text[-1] == "0" else text


def _number(log: Mapping[str, float], key: str) -> float:
    """The value of `key`, NaN if it is missing or no number."""
    try:
        return float(log[key])
    except (KeyError, TypeError, ValueError):
        return math.nan


# ---- history and curves ----------------------------------------------------------------------


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


# ---- rows of styled text ---------------------------------------------------------------------

Row = list[Segment]


def _clean(text: str, glyphs: Glyphs) -> str:
    """Foreign text (names of envs, metrics, paths) without what could break a row."""
    if glyphs is ASCII:
        text = text.encode("ascii", "replace").decode()
    return "".join(char if char.isprintable() else "?" for char in text)


def _fit(text: str, width: int) -> str:
    return text.ljust(width)[:width] if text.isascii() else set_cell_size(text, width)


def _pad(row: Row, width: int) -> Row:
    """The row at exactly `width` cells."""
    return Segment.adjust_line_length(row, width, PLAIN)


def _bar(fraction: float, width: int, glyphs: Glyphs) -> Row:
    full, half, empty = glyphs.bar
    halves = round(min(1.0, max(0.0, fraction)) * width * 2) if math.isfinite(fraction) else 0
    filled = full * (halves // 2) + half * (halves % 2)
    return [Segment(filled, BAR), Segment(empty * (width - len(filled)), QUIET)]


def _value_row(label: str, value: str, width: int, style: Style = PLAIN) -> Row:
    label_width = max(0, width - len(value) - 1)
    return [
        Segment(_fit(label, label_width), QUIET),
        Segment(value.rjust(width - label_width), style),
    ]


def _heading_row(heading: str, width: int) -> Row:
    return [Segment(_fit(heading, width), HEADING)]


def _bar_row(label: str, fraction: float, glyphs: Glyphs, width: int) -> Row:
    label_width = min(10, max(0, width - 9))
    return [
        Segment(_fit(label, label_width), QUIET),
        *_bar(fraction, max(0, width - label_width - 5), glyphs),
        Segment(format_percent(fraction).rjust(5), PLAIN),
    ]


class _Panel(NamedTuple):
    """One section of the panel: a heading and rows that are drawn at a given width."""

    heading: str
    rows: list[Callable[[int], Row]]


class Dashboard:
    """What a run shows while it goes on. This one keeps the numbers and shows nothing.

    `update(log)` once an iteration with the trainer's log dict; keys that are missing or NaN are
    shown as "-". `finish(paths)` once at the end of a run that went well; `close()` always, also
    after an exception (leaving the `with` block does it), and as often as you like. A terminal
    that goes away or a full disk behind a pipe ends the display and not the run.
    """

    def __init__(
        self,
        *,
        env_name: str,
        num_parameters: int,
        device: str,
        engine: str,
        total_steps: float | None,
        console: Console,
    ) -> None:
        self._console = console
        self._glyphs = ASCII if console.options.ascii_only else UNICODE
        self._env_name = env_name
        self._num_parameters = num_parameters
        self._device = device
        self._engine = engine
        self._total_steps = math.nan if total_steps is None else float(total_steps)
        self._log: dict[str, float] = {}
        self._first: tuple[float, float] | None = None  # (steps, uptime) of the first update
        self._env_keys: dict[str, None] = dict.fromkeys(())  # an ordered set
        self._seconds: dict[str, float] = {}
        self._curves = {key: History() for key, _ in CURVES}
        self._showing = True

    def update(self, log: Mapping[str, float]) -> None:
        """Take in one iteration's numbers, and show them if it is time to. `log` is copied."""
        self._log = dict(log)
        steps = _number(log, "steps")
        if self._first is None:
            self._first = (steps, _number(log, "uptime"))
        for key in log:
            if key.startswith("env/"):
                self._env_keys[key] = None
            elif key.startswith("time/"):
                span, seconds = key[5:], _number(log, key)
                if math.isfinite(seconds):
                    self._seconds[span] = TIME_DECAY * self._seconds.get(span, 0.0) + seconds
        for key, curve in self._curves.items():
            curve.append(steps, _number(log, key))
        self._try(self._show)

    def finish(self, paths: Mapping[str, str] | None = None) -> None:
        """Show the last state for good and a summary under it; `paths` names what was written."""
        self._try(self._show_last)
        self.close()
        self._try(lambda: self._summarise(paths or {}))

    def close(self) -> None:
        """Give the terminal back. The last frame stays on it."""

    def export_svg(self, path: str | os.PathLike[str], *, width: int = 100) -> None:
        """Write the current panel as an SVG picture, for documents."""
        console = Console(
            record=True,
            width=width,
            file=StringIO(),
            color_system="truecolor",
            legacy_windows=False,
        )
        console.print(_Frame(self, height=40))
        picture = console.export_svg(title=f"puffer train {self._env_name}")
        # rich names a font on a public server; a picture of ours asks no one for anything
        picture = re.sub(r"@font-face\s*{[^}]*}", "", picture)
        Path(path).write_text(picture, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _show(self) -> None:
        """Show the latest log, if it is time to."""

    def _show_last(self) -> None:
        """Show the latest log in any case."""

    def _summarise(self, paths: Mapping[str, str]) -> None:
        """Print what is left to say after the last frame."""

    def _try(self, show: Callable[[], None]) -> None:
        if self._showing:
            try:
                show()
            except OSError:
                self._showing = False

    # ---- the panel, section by section ----

    def frame(self, width: int, height: int) -> list[Row]:
        """The panel in at most `height` rows of at most `width` cells; the curve gets the rest."""
        width = min(width, MAX_WIDTH)
        if height < 4 or width < 24:
            return [_pad([Segment(self.line())], width)] if height > 0 else []
        inner = width - 4
        groups = self._groups(inner)
        spare = height - 4  # two borders, the progress bar and the counters
        curve_points = self._curve()[1].points()
        wanted = 2 if len(curve_points) > 1 and spare >= 7 else 0  # a sparkline and its heading
        body: list[tuple[list[_Panel], int]] = []
        for group in groups:
            room = spare - wanted - 1
            if room < 1:
                break
            num_rows = min(room, max(len(panel.rows) for panel in group))
            body.append((group, num_rows))
            spare -= num_rows + 1

        rows = [self._top_border(width)]
        rows.append(self._framed([self._progress_row(inner)], [inner], " "))
        counters = self._counter_cells()[: max(2, len(groups[0]))]
        widths = _split(inner, len(counters))
        cells = [draw(width) for draw, width in zip(counters, widths, strict=True)]
        rows.append(self._framed(cells, widths, " "))
        above: list[int] = []
        for group, num_rows in body:
            widths = _split(inner, len(group))
            rows.append(self._divider([panel.heading for panel in group], widths, above))
            for n in range(num_rows):
                cells = []
                for panel, cell_width in zip(group, widths, strict=True):
                    cells.append(self._cell(panel, n, num_rows, cell_width))
                rows.append(self._framed(cells, widths))
            above = widths
        if wanted and spare >= 2:
            rows += self._curve_rows(inner, min(6, spare - 1), above)
            above = []
        return [*rows, self._bottom_border(width, above)]

    def line(self) -> str:
        """The latest numbers as one line of plain text."""
        log = self._log
        parts = [
            format_duration(_number(log, "uptime")),
            f"{format_count(_number(log, 'steps'))} steps",
            f"{format_count(_number(log, 'sps'))}/s",
            f"reward {_short(_number(log, 'mean_reward'))}",
        ]
        parts += [f"{k[4:]} {_short(_number(log, k))}" for k in HEADLINES if k in self._env_keys]
        parts.append(f"kl {_short(_number(log, 'approx_kl'))}")
        return "  ".join(parts)

    def _facts(self) -> list[str]:
        facts = [self._device, self._engine, f"{format_count(self._num_parameters)} params"]
        return [_clean(fact, self._glyphs) for fact in facts if fact]

    def _budget(self) -> float:
        logged = _number(self._log, "total_steps")
        return logged if math.isfinite(logged) else self._total_steps

    def _progress_row(self, width: int) -> Row:
        budget = self._budget()
        fraction = _number(self._log, "steps") / budget if budget > 0 else math.nan
        percent = f"{100 * min(1.0, fraction):.1f}%" if math.isfinite(fraction) else "-"
        eta = format_duration(_number(self._log, "eta"))
        tail = f"{percent:>7}  "
        row = _bar(fraction, max(4, width - len(tail) - 10), self._glyphs)
        row += [Segment(tail, STRONG), Segment("eta", QUIET), Segment(eta.rjust(7), STRONG)]
        return row

    def _counter_cells(self) -> list[Callable[[int], Row]]:
        log = self._log
        steps, budget = _number(log, "steps"), self._budget()
        of = f" / {format_count(budget)}" if math.isfinite(budget) else ""
        counters = [
            ("steps", format_count(steps) + of),
            ("sps", format_count(_number(log, "sps"))),
            ("uptime", format_duration(_number(log, "uptime"))),
        ]
        return [partial(_value_row, label, value, style=STRONG) for label, value in counters]

    def _groups(self, width: int) -> list[list[_Panel]]:
        """The sections, side by side where the width allows it."""
        episodes = _Panel("episodes", list(self._episode_rows()))
        learning = _Panel("learning", list(self._learning_rows()))
        times, system = list(self._time_rows()), list(self._system_rows())
        if width >= 68:
            heading = partial(_heading_row, "system")
            return [[episodes, learning, _Panel("time", [*times, heading, *system])]]
        if width >= 44:
            return [[episodes, learning], [_Panel("time", times), _Panel("system", system)]]
        return [
            [episodes],
            [learning],
            [_Panel("time", times)],
            [_Panel("system", system)],
        ]

    def _episode_rows(self) -> Iterator[Callable[[int], Row]]:
        headlines = [key for key in HEADLINES if key in self._env_keys]
        others = [key for key in self._env_keys if key not in HEADLINES]
        named = [(key, _clean(key[4:], self._glyphs), SCORE) for key in headlines]
        named += [(key, label, PLAIN) for key, label in EPISODES]
        named += [(key, _clean(key[4:], self._glyphs), PLAIN) for key in others]
        for key, label, style in named:
            value = format_value(_number(self._log, key))
            yield partial(_value_row, label, value, style=style)

    def _learning_rows(self) -> Iterator[Callable[[int], Row]]:
        for key, label in LEARNING:
            value = format_value(_number(self._log, key))
            yield partial(_value_row, label, value)

    def _time_rows(self) -> Iterator[Callable[[int], Row]]:
        total = sum(self._seconds.values())
        extra = [span for span in self._seconds if span not in TIME_SPANS]
        for span in (*TIME_SPANS, *extra):
            seconds = self._seconds.get(span, math.nan)
            fraction = seconds / total if total > 0 else math.nan
            label = _clean(span, self._glyphs)
            yield partial(_bar_row, label, fraction, self._glyphs)

    def _system_rows(self) -> Iterator[Callable[[int], Row]]:
        log = self._log
        for load, memory, name in (
            ("system/cpu", "system/memory", "cpu"),
            ("system/gpu", "system/gpu_memory", "gpu"),
        ):
            if name == "gpu" and memory not in log and load not in log:
                continue
            busy, used = _number(log, load) / 100, format_memory(_number(log, memory))
            label = "memory" if name == "cpu" else "gpu memory"
            yield partial(_bar_row, name, busy, self._glyphs)
            yield partial(_value_row, label, used)

    def _curve(self) -> tuple[str, History]:
        """The curve to show: the first of CURVES that has points."""
        for key, label in CURVES:
            if len(self._curves[key]):
                return label, self._curves[key]
        return "mean reward", self._curves["mean_reward"]

    def _curve_rows(self, width: int, num_rows: int, above: list[int]) -> list[Row]:
        label, history = self._curve()
        points = history.points()
        low, high = min(y for _, y in points), max(y for _, y in points)
        gutter = 8
        columns = width - gutter
        drawn = draw_curve(points, columns, num_rows, low, high, self._glyphs)
        marks = [format_value(high), *[""] * (num_rows - 2), format_value(low)][:num_rows]
        rows = [self._divider([f"{label} over the run"], [width], above)]
        for mark, text in zip(marks, drawn, strict=True):
            cells = [Segment(mark.rjust(gutter - 1) + " ", QUIET), Segment(text, CURVE)]
            rows.append(self._framed([cells], [width]))
        return rows

    # ---- borders ----

    def _top_border(self, width: int) -> Row:
        glyphs = self._glyphs
        name = _clean(self._env_name, glyphs)
        left: Row = [
            Segment(f"{glyphs.corners[0]}{glyphs.across} ", QUIET),
            Segment(f"{MARK} puffer ", TITLE),
            Segment(f"{name} ", STRONG),
        ]
        facts = self._facts()
        room = width - Segment.get_line_length(left) - 4
        while facts and cell_len(right := f" {f' {glyphs.dot} '.join(facts)} ") > room:
            facts.pop(0)
        end: Row = [Segment(right, QUIET)] if facts else []
        end.append(Segment(f"{glyphs.across}{glyphs.corners[1]}", QUIET))
        left = _pad(left, width - 2) if room < 0 else left
        fill = width - Segment.get_line_length(left) - Segment.get_line_length(end)
        return [*left, Segment(glyphs.across * fill, QUIET), *end]

    def _bottom_border(self, width: int, above: list[int]) -> Row:
        glyphs = self._glyphs
        line = self._joined(width - 2, [], above)
        return [Segment(f"{glyphs.corners[2]}{line}{glyphs.corners[3]}", QUIET)]

    def _joined(self, width: int, below: list[int], above: list[int]) -> str:
        """A horizontal line with tees where columns above or below it end."""
        glyphs = self._glyphs
        line = [glyphs.across] * width
        for x in _column_ends(above):
            line[x] = glyphs.tees[3]
        for x in _column_ends(below):
            line[x] = glyphs.tees[4 if line[x] == glyphs.tees[3] else 2]
        return "".join(line)

    def _divider(self, headings: list[str], widths: list[int], above: list[int]) -> Row:
        glyphs = self._glyphs
        line = self._joined(sum(widths) + 3 * len(widths) - 1, widths, above)
        row, x = [Segment(glyphs.tees[0], QUIET)], 0
        for heading, width in zip(headings, widths, strict=True):
            text = f" {heading} "
            row += [Segment(line[x], QUIET), Segment(text, HEADING)]
            row.append(Segment(line[x + 1 + len(text) : x + width + 3], QUIET))
            x += width + 3
        return [*row, Segment(glyphs.tees[1], QUIET)]

    def _framed(self, cells: list[Row], widths: list[int], between: str = "") -> Row:
        """Cells side by side in the frame, with `between` or a vertical line between them."""
        border = self._glyphs.down
        row = [Segment(f"{border} ", QUIET)]
        for n, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            if n:
                row.append(Segment(f" {between or border} ", QUIET))
            row += _pad(cell, width)
        return [*row, Segment(f" {border}", QUIET)]

    def _cell(self, panel: _Panel, n: int, num_rows: int, width: int) -> Row:
        hidden = len(panel.rows) - num_rows
        if hidden > 0 and n == num_rows - 1 and num_rows > 1:
            return [Segment(f"+ {hidden + 1} more", QUIET)]
        return panel.rows[n](width) if n < len(panel.rows) else []

    # ---- the summary ----

    def summary(self, width: int, paths: Mapping[str, str]) -> list[Row]:
        """The curve of the run with axes, the final numbers, and where the files are."""
        label, history = self._curve()
        rows: list[Row] = []
        if len(history) > 1:
            rows += [[], *self._plot(label, history.points(), min(width, MAX_WIDTH))]
        rows += [[], *self._outcome(label, history)]
        name_width = max((len(name) for name in paths), default=0)
        for name, path in paths.items():
            rows.append(
                [
                    Segment(f"  {_clean(name, self._glyphs).ljust(name_width)}  ", QUIET),
                    Segment(_clean(str(path), self._glyphs)),
                ]
            )
        return rows

    def _outcome(self, label: str, history: History) -> list[Row]:
        log = self._log
        numbers: Row = [Segment(f"  {label} ", QUIET), Segment(format_value(history.last), SCORE)]
        if len(history) > 1:
            numbers += [Segment("  best ", QUIET), Segment(format_value(history.best), SCORE)]
        for key, name in CURVES:
            if self._curves[key] is not history and len(self._curves[key]):
                last = format_value(self._curves[key].last)
                numbers += [Segment(f"  {name} ", QUIET), Segment(last, STRONG)]

        steps, uptime, sps = (_number(log, key) for key in ("steps", "uptime", "sps"))
        if self._first is not None and uptime > self._first[1]:
            sps = (steps - self._first[0]) / (uptime - self._first[1])  # of the run, not the last
        return [
            numbers,
            [
                Segment(f"  {format_count(steps)} steps", STRONG),
                Segment(" in ", QUIET),
                Segment(format_duration(uptime), STRONG),
                Segment(f", {format_count(sps)} steps/s", QUIET),
            ],
        ]

    def _plot(self, label: str, points: list[tuple[float, float]], width: int) -> list[Row]:
        """The curve over steps, with labelled axes. Marks stand at the upper edge of their row."""
        glyphs = self._glyphs
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


def _split(width: int, columns: int) -> list[int]:
    """Widths of columns that fill `width` with three cells of border between each two."""
    room = width - 3 * (columns - 1)
    return [room // columns + (n < room % columns) for n in range(columns)]


def _column_ends(widths: list[int]) -> list[int]:
    """Where the borders between columns stand, counted from the left border of the panel."""
    return [end - 1 for end in accumulate(width + 3 for width in widths[:-1])]


class _Frame:
    """A renderable that draws the dashboard at the size the console has at that moment.

    It does not keep the dashboard alive; once that is gone, it repeats the last frame.
    """

    def __init__(self, dashboard: Dashboard, height: int | None = None) -> None:
        self._dashboard = weakref.ref(dashboard)
        self._height = height
        self._rows: list[Row] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        dashboard = self._dashboard()
        if dashboard is not None:
            height = self._height or options.size.height - 1  # the last row is the cursor's
            self._rows = dashboard.frame(options.max_width, height)
        yield from _Rows(self._rows).__rich_console__(console, options)


class _Rows:
    """A renderable of finished rows."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for row in self._rows:
            yield from row
            yield Segment.line()


def _stop(live: Live) -> None:
    """Live.stop for terminals that may be gone (OSError), even at the start (IndexError)."""
    with suppress(OSError, IndexError):
        live.stop()
    # Ctrl-C in the middle of a write can leave rich's console believing that it is still buffering:
    # what it prints from then on is never written, the cursor's return included
    if live.console.is_terminal:
        with suppress(OSError, ValueError):
            live.console.file.write("\x1b[?25h")
            live.console.file.flush()


class LiveDashboard(Dashboard):
    """A panel that is redrawn in place, when there is something new and at most 8 times a second.

    It takes the terminal on entering the `with` block or at the first update. Until `close`, what
    the program prints appears above the panel. The terminal is given back at the exit of the
    interpreter at the latest, even if nobody called `close`.
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self._drawn_at = -math.inf
        self._live: Live | None = None
        self._give_back: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self._try(self._show_last)
        return self

    def close(self) -> None:
        self._live = None
        self._give_back()

    def _show(self) -> None:
        if time.perf_counter() - self._drawn_at >= 1 / FRAMES_PER_SECOND:
            self._show_last()

    def _show_last(self) -> None:
        self._drawn_at = time.perf_counter()
        if self._live is None:
            self._live = Live(
                _Frame(self), console=self._console, auto_refresh=False, vertical_overflow="crop"
            )
            self._give_back = weakref.finalize(self, _stop, self._live)
            self._live.start(refresh=True)
        else:
            self._live.refresh()

    def _summarise(self, paths: Mapping[str, str]) -> None:
        rows = self.summary(self._console.width, paths)
        self._console.print(_Rows(rows), soft_wrap=True)  # a long path is wrapped, never cut


class PlainDashboard(Dashboard):
    """One line every few seconds, for pipes, log files and CI."""

    def __init__(self, *, interval: float = PLAIN_INTERVAL, **fields: Any) -> None:
        super().__init__(**fields)
        self._interval = interval
        self._printed_at = -math.inf
        self._printed: dict[str, float] | None = None
        self._started = False

    def _show(self) -> None:
        if time.perf_counter() - self._printed_at >= self._interval:
            self._show_last()

    def _show_last(self) -> None:
        if not self._started:
            self._started = True
            budget = self._budget()
            facts = [_clean(self._env_name, self._glyphs), *self._facts()]
            facts += [f"{format_count(budget)} steps"] if math.isfinite(budget) else []
            self._print(f"{MARK} puffer  {'  '.join(facts)}")
        if self._log and self._printed is not self._log:
            self._printed = self._log
            self._printed_at = time.perf_counter()
            self._print(self.line())

    def _summarise(self, paths: Mapping[str, str]) -> None:
        for row in self.summary(min(self._console.width, 100), paths):
            self._print("".join(segment.text for segment in row).rstrip())

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


def make_dashboard(
    mode: Mode,
    *,
    env_name: str,
    num_parameters: int,
    device: str,
    engine: str,
    total_steps: float | None,
    console: Console | None = None,
) -> Dashboard:
    """The dashboard for a run: "on" a live panel, "plain" lines, "off" nothing.

    "auto" is a live panel on a terminal, and lines in a pipe, a notebook or CI.
    """
    if mode not in get_args(Mode):
        raise UsageError(
            f"`dashboard` must be one of auto, on, off, plain, but got {mode!r}."
            f"{did_you_mean(str(mode), get_args(Mode))}"
        )
    if console is None:
        console = Console(force_terminal=True if mode == "on" else None)
    if mode == "auto":
        live = console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter
        mode = "on" if live and not os.environ.get("CI") else "plain"
    kinds: dict[str, type[Dashboard]] = {
        "on": LiveDashboard,
        "plain": PlainDashboard,
        "off": Dashboard,
    }
    return kinds[mode](
        env_name=env_name,
        num_parameters=num_parameters,
        device=device,
        engine=engine,
        total_steps=total_steps,
        console=console,
    )
