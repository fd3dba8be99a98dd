"""Dashboard: what all kinds have in common, and the one that shows nothing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console

from pufferlib.dashboard.glyphs import ASCII, UNICODE
from pufferlib.dashboard.panel import draw_panel
from pufferlib.dashboard.record import Record
from pufferlib.dashboard.rows import Row, Rows
from pufferlib.dashboard.summary import draw_summary

if TYPE_CHECKING:
    from typing import Self


class Dashboard:
    """What a run shows while it goes on. This one keeps the numbers and shows nothing.

    `update(log)` once an iteration with the trainer's log dict; keys that are missing or NaN are
    shown as "-". `finish(paths)` once at the end of a run that went well; `close()` always, also
    after an exception (leaving the `with` block does it), and as often as you like. A terminal
    that goes away or a full disk behind a pipe ends the display and not the run.
    """

    def __init__(self, record: Record, console: Console) -> None:
        self._record = record
        self._console = console
        self._glyphs = ASCII if console.options.ascii_only else UNICODE
        self._showing = True

    def update(self, log: Mapping[str, float]) -> None:
        """Take in one iteration's numbers, and show them if it is time to. `log` is copied."""
        self._record.take(log)
        self._try(self._show)

    def remark(self, text: str) -> None:
        """Show one line about the run once, above its numbers."""
        self._try(lambda: self._show_remark(text))

    def note(self, text: str) -> None:
        """Answer the user with a line at once, also where nothing else is shown."""
        self._try(lambda: self._show_note(text))

    def finish(self, paths: Mapping[str, str] | None = None, commands: Sequence[str] = ()) -> None:
        """Show the last state for good and a summary under it.

        `paths` names what was written, `commands` are what the user may type next.
        """
        self._try(self._show_last)
        self.close()
        self._try(lambda: self._summarise(paths or {}, commands))

    def close(self) -> None:
        """Give the terminal back. The last frame stays on it."""

    def frame(self, width: int, height: int) -> list[Row]:
        """The panel in at most `height` rows of at most `width` cells; the curve gets the rest."""
        return draw_panel(self._record, self._glyphs, width, height)

    def line(self) -> str:
        """The latest numbers as one line of plain text."""
        return self._record.line()

    def summary(
        self, width: int, paths: Mapping[str, str], commands: Sequence[str] = ()
    ) -> list[Row]:
        """The curve with axes, the final numbers, where the files are, and what to type next."""
        return draw_summary(self._record, self._glyphs, width, paths, commands)

    def export_svg(self, path: str | os.PathLike[str], *, width: int = 100) -> None:
        """Write the current panel as an SVG picture, for documents."""
        console = Console(
            record=True,
            width=width,
            file=StringIO(),
            color_system="truecolor",
            legacy_windows=False,
        )
        console.print(Rows(self.frame(width, height=40)))
        picture = console.export_svg(title=f"puffer train {self._record.env_name}")
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

    def _show_remark(self, text: str) -> None:
        """Print one line above the numbers."""

    def _show_note(self, text: str) -> None:
        """Show one line beside the numbers, and keep it."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def _summarise(self, paths: Mapping[str, str], commands: Sequence[str]) -> None:
        """Print what is left to say after the last frame."""

    def _try(self, show: Callable[[], None]) -> None:
        if self._showing:
            try:
                show()
            except OSError:
                self._showing = False
