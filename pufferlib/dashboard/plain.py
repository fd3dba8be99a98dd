"""One line every few seconds, for pipes, log files and CI."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

from rich.console import Console

from pufferlib.dashboard.base import Dashboard
from pufferlib.dashboard.glyphs import MARK, clean
from pufferlib.dashboard.record import Record
from pufferlib.dashboard.rows import text_of
from pufferlib.dashboard.spelling import format_count

PLAIN_INTERVAL = 5.0  # seconds between two lines in a pipe


class PlainDashboard(Dashboard):
    """Lines of plain text, one every `PLAIN_INTERVAL` seconds at most."""

    def __init__(self, record: Record, console: Console) -> None:
        super().__init__(record, console)
        self._printed_at = -math.inf
        self._printed: dict[str, float] | None = None
        self._started = False

    def _show(self) -> None:
        if time.perf_counter() - self._printed_at >= PLAIN_INTERVAL:
            self._show_last()

    def _show_last(self) -> None:
        record = self._record
        if not self._started:
            self._started = True
            budget = record.budget()
            facts = [clean(fact, self._glyphs) for fact in (record.env_name, *record.facts())]
            facts += [f"{format_count(budget)} steps"] if math.isfinite(budget) else []
            self._print(f"{MARK} puffer  {'  '.join(facts)}")
        if record.log and self._printed is not record.log:
            self._printed = record.log
            self._printed_at = time.perf_counter()
            self._print(self.line())

    def _show_remark(self, text: str) -> None:
        self._print(clean(text, self._glyphs))

    def _summarise(self, paths: Mapping[str, str], commands: Sequence[str]) -> None:
        for row in self.summary(min(self._console.width, 100), paths, commands):
            self._print(text_of(row).rstrip())

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
