"""What commands print: tables, numbers, and what is going on meanwhile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any


def flush_output() -> None:
    """Write what stdout holds back; where that raises OSError, it and all that follows is lost."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # or the interpreter would try again when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def print_table(title: str, headings: list[str], rows: list[list[str]]) -> None:
    """Print a table; its last column is prose that may be wrapped. Empty headings are left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_header=any(headings))
    *short, prose = headings
    for heading in short:
        table.add_column(heading, no_wrap=True)  # names and ranges are to be copied whole
    table.add_column(prose)
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


def spelled_rows(values: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each value: its name, and the number in a few digits."""

    def spelled(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"

    return [[key, spelled(value)] for key, value in values.items()]


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is going on: in place on a terminal, else line by line.

    It goes to stderr, so that stdout holds nothing but the result.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, soft_wrap=True)
    if not console.is_terminal:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with console.status(title) as status:
        yield lambda text: status.update(f"{title}: {escape(text)}")
