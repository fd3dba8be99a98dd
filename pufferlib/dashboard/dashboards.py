"""Dashboards: a panel that is redrawn on a terminal, lines in a pipe, or nothing at all."""

from __future__ import annotations

import math
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Literal, Self, get_args

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment

from pufferlib.closing import Closing
from pufferlib.dashboard.drawing import ASCII, MARK, QUIET, UNICODE, Line, Lines, clean, text_of
from pufferlib.dashboard.panel import draw_panel, draw_summary
from pufferlib.dashboard.record import Record, format_count, format_duration, format_short
from pufferlib.errors import unknown_choice

Mode = Literal["auto", "on", "off", "plain"]
FRAMES_PER_SECOND = 8
PLAIN_INTERVAL = 5.0  # seconds between two lines in a pipe
PROGRESS_INTERVAL = 10.0  # until the first line about an iteration, in a pipe; then 6 times as long


def make_dashboard(mode: Mode, record: Record, console: Console | None = None) -> Dashboard:
    """Return the dashboard of a run: "on" is a live panel, "plain" lines, "off" nothing.

    "auto" is a live panel on a terminal, and lines in a pipe, a notebook or CI.
    """
    if mode not in get_args(Mode):
        raise unknown_choice("`dashboard`", mode, get_args(Mode))
    if console is None:
        console = _Console(force_terminal=True if mode == "on" else None)
    if mode == "auto":
        live = console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter
        mode = "on" if live and not os.environ.get("CI") else "plain"
    kinds: dict[str, type[Dashboard]] = {
        "on": LiveDashboard,
        "plain": PlainDashboard,
        "off": Dashboard,
    }
    return kinds[mode](record, console)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # ends the display; rich would end the process


class Dashboard(Closing):
    """The display of a run. This base class keeps the metrics and shows nothing.

    Call `update(log)` once per iteration with the trainer's log dict; missing and NaN values are
    shown as "-". Call `finish(paths)` once after a successful run, and `close()` always, also after
    an exception (leaving the `with` block does). A terminal that is closed or a full disk behind a
    pipe ends the display, not the run.
    """

    _interval: float = math.inf  # seconds between two redraws

    def __init__(self, record: Record, console: Console) -> None:
        self._record = record
        self._console = console
        self._drawn_at = -math.inf
        self._glyphs = ASCII if console.options.ascii_only else UNICODE
        self._showing = True

    def update(self, log: Mapping[str, float]) -> None:
        """Record the metrics of one iteration, and show them if a redraw is due. Copies `log`."""
        self._record.take(log)
        self._try(self._show)

    def progress(self, activity: str, uptime: float) -> None:
        """Show what a slow iteration is doing: "collecting 312 / 2,048 steps"."""
        self._record.note_progress(activity, uptime)
        self._try(self._show_progress)

    def remark(self, text: str) -> None:
        """Show one line about the run, above its metrics."""
        self._try(lambda: self._show_remark(text))

    def note(self, text: str) -> None:
        """Show one line at once, also where nothing else is shown."""
        self._try(lambda: self._show_note(text))

    def finish(self, paths: Mapping[str, str] | None = None, commands: Sequence[str] = ()) -> None:
        """Show the final state and a summary below it.

        `paths` names the files of the run, `commands` are suggestions to type next.
        """
        self._try(self._show_last)
        self.close()
        self._try(lambda: self._summarise(paths or {}, commands))

    def close(self) -> None:
        """Release the terminal. The last frame stays on it."""

    def frame(self, width: int, height: int) -> list[Line]:
        """Return the panel in at most `height` lines of at most `width` cells."""
        return draw_panel(self._record, self._glyphs, width, height)

    def summary(
        self, width: int, paths: Mapping[str, str], commands: Sequence[str] = ()
    ) -> list[Line]:
        """Return the curve with axes, the final metrics, the files, and what to type next."""
        return draw_summary(self._record, self._glyphs, width, paths, commands)

    def outcome(self) -> str:
        """Return score and steps of the run as one line."""
        label, history = self._record.curve()
        steps, uptime = (self._record.number(key) for key in ("steps", "uptime"))
        score = f"{label} {format_short(history.last)}"
        return f"{score}, {format_count(steps)} steps in {format_duration(uptime)}"

    def export_svg(self, path: str | os.PathLike[str], *, width: int = 100) -> None:
        """Write the current panel as an SVG picture, for documents."""
        console = Console(
            record=True,
            width=width,
            file=StringIO(),
            color_system="truecolor",
            legacy_windows=False,
        )
        console.print(Lines(self.frame(width, height=40)))
        picture = console.export_svg(title=f"puffer train {self._record.env_name}")
        # rich links a font on a public server; a picture must not load anything
        picture = re.sub(r"@font-face\s*{[^}]*}", "", picture)
        Path(path).write_text(picture, encoding="utf-8")

    def _show(self) -> None:
        """Show the latest log if a redraw is due."""
        if time.perf_counter() - self._drawn_at >= self._interval:
            self._show_last()

    def _show_last(self) -> None:
        """Show the latest log now."""

    def _show_progress(self) -> None:
        """Show what the present iteration is doing, if a redraw is due."""
        self._show()

    def _show_remark(self, text: str) -> None:
        """Print one line above the metrics."""

    def _show_note(self, text: str) -> None:
        """Print one line that stays on screen."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _summarise(self, paths: Mapping[str, str], commands: Sequence[str]) -> None:
        """Print the summary below the last frame."""

    def _try(self, show: Callable[[], None]) -> None:
        if self._showing:
            try:
                show()
            except OSError:
                self._showing = False


class LiveDashboard(Dashboard):
    """A panel that is redrawn in place after an update, at most 8 times a second.

    It takes the terminal on entering the `with` block or at the first update. Until `close`, the
    output of the program appears above the panel. The terminal is released when the interpreter
    exits at the latest, even without a call of `close`.
    """

    _interval = 1 / FRAMES_PER_SECOND

    def __init__(self, record: Record, console: Console) -> None:
        super().__init__(record, console)
        self._live: Live | None = None
        self._release: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self._try(self._show_last)
        return self

    def close(self) -> None:
        self._live = None
        self._release()

    def _show_last(self) -> None:
        self._drawn_at = time.perf_counter()
        if self._live is None:
            self._live = Live(
                _Frame(self), console=self._console, auto_refresh=False, vertical_overflow="crop"
            )
            self._release = weakref.finalize(self, _stop, self._live)
            self._live.start(refresh=True)
        else:
            self._live.refresh()

    def _show_remark(self, text: str) -> None:
        self._console.print(Lines([[Segment(clean(text, self._glyphs), QUIET)]]), soft_wrap=True)

    def _show_note(self, text: str) -> None:
        # above the panel, which rich then draws again under it
        self._console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def _summarise(self, paths: Mapping[str, str], commands: Sequence[str]) -> None:
        lines = self.summary(self._console.width, paths, commands)
        self._console.print(Lines(lines), soft_wrap=True)  # a long path is wrapped, never cut


class _Frame:
    """A renderable that draws the dashboard at the current size of the console.

    It does not keep the dashboard alive; once that is deleted, it repeats the last frame.
    """

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = weakref.ref(dashboard)
        self._lines: list[Line] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        dashboard = self._dashboard()
        if dashboard is not None:
            height = options.size.height - 1  # the cursor needs a line
            self._lines = dashboard.frame(options.max_width, height)
        yield from Lines(self._lines).__rich_console__(console, options)


def _stop(live: Live) -> None:
    """Stop `live` on a terminal that may be closed (OSError), even at the start (IndexError)."""
    with suppress(OSError, IndexError):
        live.stop()
    # Ctrl-C during a write can leave rich's console in its buffering state: whatever it prints from
    # then on is never written, including the code that shows the cursor again
    if live.console.is_terminal:
        with suppress(OSError, ValueError):
            live.console.file.write("\x1b[?25h")
            live.console.file.flush()


class PlainDashboard(Dashboard):
    """Lines of plain text, at most one every `PLAIN_INTERVAL` seconds."""

    _interval = PLAIN_INTERVAL
    _printed: dict[str, float] | None = None
    _started = False

    def __init__(self, record: Record, console: Console) -> None:
        super().__init__(record, console)
        self._progress_at = time.perf_counter() + PROGRESS_INTERVAL

    def _show_last(self) -> None:
        record = self._record
        self._begin()
        if "steps" in record.log and self._printed is not record.log:
            self._printed = record.log
            self._drawn_at = time.perf_counter()
            self._progress_at = self._drawn_at + PROGRESS_INTERVAL
            self._print(record.line())

    def _show_progress(self) -> None:
        now, record = time.perf_counter(), self._record
        if now >= self._progress_at:
            self._progress_at = now + 6 * PROGRESS_INTERVAL
            self._begin()
            self._print(f"{format_duration(record.number('uptime'))}  {record.activity}")

    def _begin(self) -> None:
        """Print what the run is, once."""
        if self._started:
            return
        self._started = True
        record, budget = self._record, self._record.budget()
        tags = [clean(tag, self._glyphs) for tag in (record.env_name, *record.tags())]
        tags += [f"{format_count(budget)} steps"] if math.isfinite(budget) else []
        self._print(f"{MARK} puffer  {'  '.join(tags)}")

    def _show_remark(self, text: str) -> None:
        self._print(clean(text, self._glyphs))

    def _summarise(self, paths: Mapping[str, str], commands: Sequence[str]) -> None:
        for line in self.summary(min(self._console.width, 100), paths, commands):
            self._print(text_of(line).rstrip())

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
