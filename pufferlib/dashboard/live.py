"""The panel on a terminal, redrawn in place, and the terminal given back whatever happens."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment

from pufferlib.dashboard.base import Dashboard
from pufferlib.dashboard.glyphs import QUIET, clean
from pufferlib.dashboard.record import Record
from pufferlib.dashboard.rows import Row, Rows

if TYPE_CHECKING:
    from typing import Self

FRAMES_PER_SECOND = 8


class LiveDashboard(Dashboard):
    """A panel that is redrawn in place, when there is something new and at most 8 times a second.

    It takes the terminal on entering the `with` block or at the first update. Until `close`, what
    the program prints appears above the panel. The terminal is given back at the exit of the
    interpreter at the latest, even if nobody called `close`.
    """

    def __init__(self, record: Record, console: Console) -> None:
        super().__init__(record, console)
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

    def _show_remark(self, text: str) -> None:
        self._console.print(Rows([[Segment(clean(text, self._glyphs), QUIET)]]), soft_wrap=True)

    def _show_note(self, text: str) -> None:
        # above the panel, which rich then draws again under it
        self._console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def _summarise(self, paths: Mapping[str, str], commands: Sequence[str]) -> None:
        rows = self.summary(self._console.width, paths, commands)
        self._console.print(Rows(rows), soft_wrap=True)  # a long path is wrapped, never cut


class _Frame:
    """A renderable that draws the dashboard at the size the console has at that moment.

    It does not keep the dashboard alive; once that is gone, it repeats the last frame.
    """

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = weakref.ref(dashboard)
        self._rows: list[Row] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        dashboard = self._dashboard()
        if dashboard is not None:
            height = options.size.height - 1  # the last row is the cursor's
            self._rows = dashboard.frame(options.max_width, height)
        yield from Rows(self._rows).__rich_console__(console, options)


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
