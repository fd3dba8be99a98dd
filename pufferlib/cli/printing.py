"""Output of commands: tables, numbers and progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress


def open_closed_streams() -> None:
    """Open /dev/null in place of standard streams that are closed, as by `puffer train >&-`.

    Otherwise the next file that is opened would get their descriptor, and whatever is printed.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number
            setattr(sys, name, open(opened, mode, closefd=False))  # noqa: SIM115
            if opened == fd:
                os.set_inheritable(fd, True)


def flush_output() -> None:
    """Flush stdout; if that raises OSError, this and all later output is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):  # or the interpreter tries again at its exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def announce_loading(name: str) -> None:
    """Print that torch is being loaded, which takes seconds, unless it already is."""
    if "torch" not in sys.modules:
        with suppress(OSError):  # a command does not need a reader
            print(f"puffer: loading torch and {name} ...", flush=True)


def print_table(title: str, headings: list[str], lines: list[list[str]]) -> None:
    """Print a title and a table; only its last column wraps. Without headings it has no header."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=any(headings))
    *narrow, last = headings
    for heading in narrow:
        table.add_column(heading, no_wrap=True)  # names and ranges must be easy to copy
    table.add_column(last)
    for line in lines:
        table.add_row(*map(Text, line))
    console = Console()
    if title:
        console.print(Text(title, style="italic"), soft_wrap=True)  # a path must be easy to copy
    console.print(table)


def format_values(values: Mapping[str, object]) -> list[list[str]]:
    """Return name and text of each value; numbers have a few digits."""

    def text(value: object) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"

    return [[key, text(value)] for key, value in values.items()]


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows progress: in place on a terminal, else line by line.

    It writes to stderr, so that stdout holds only the result.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, soft_wrap=True)
    if not console.is_terminal:
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    with console.status(title) as status:
        yield lambda text: status.update(f"{title}: {escape(text)}")
