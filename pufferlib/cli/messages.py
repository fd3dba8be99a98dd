"""Errors and warnings on the command line: one line each, in the words that the user typed."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence

from pufferlib import config as configs
from pufferlib.config import SECTIONS
from pufferlib.errors import PufferError, UnknownNameError, error_line, one_line, place_of

TRACEBACK = "--traceback"
_FLAG = re.compile(r"--(?:([A-Za-z]\w*)\.)?([A-Za-z][\w-]*)(?:=.*)?", re.DOTALL)
_ASSIGNMENT = re.compile(r"\bTry `?([a-z_]+)=(?:'([^']*)'|([\w-]+))`?")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def complain(message: object, code: int) -> int:
    """Print one line to stderr; return the exit code."""
    with contextlib.suppress(OSError):  # the terminal may be closed
        print(f"puffer: {message}", file=sys.stderr)
    return code


def report(error: Exception, words: Sequence[str]) -> int:
    """Print the error of a command with these words; return its exit code.

    An exception of the user's code names its file and line. One that is ours alone is raised again:
    its traceback is what a report of a bug needs.
    """
    place = place_of(error)
    if not isinstance(error, PufferError) and not place:
        raise error
    if TRACEBACK in words:
        traceback.print_exception(error)
    if isinstance(error, PufferError):
        is_unknown = isinstance(error, UnknownNameError)  # which has the flag already
        return complain(error if is_unknown else in_words_of(words, str(error)), 2)
    hint = "" if TRACEBACK in words else f" See all calls with `{TRACEBACK}`."
    return complain(f"{one_line(error_line(error))} ({place}).{hint}", 1)


def in_words_of(words: Sequence[str], message: str) -> str:
    """Return a message of the package with flags, as they were typed, for names of options.

    A remedy in Python, "Try backend='serial'", becomes the option: "Try `--vec.backend serial`".
    """
    for word in words:
        if word == "--":
            break
        if flag := _FLAG.fullmatch(word):
            name = flag[2].replace("-", "_")
            message = message.replace(f"`{name}`", f"`{word.partition('=')[0]}`")
    if "--run" in (word.partition("=")[0] for word in words):  # another name of `--checkpoint`
        message = message.replace("`--checkpoint`", "`--run`")
    return _ASSIGNMENT.sub(_as_option, message)


def _as_option(remedy: re.Match[str]) -> str:
    key, text, plain = remedy.groups()
    section = "env"
    for name in SECTIONS:
        if any(option.key == key for option in configs.describe(name)):
            section = name
            break
    value = text if plain is None else plain.lower() if plain in ("True", "False") else plain
    return f"Try `--{section}.{key.replace('_', '-')} {value}`"


@contextlib.contextmanager
def warnings_in_one_line(words: Sequence[str]) -> Iterator[None]:
    """Show warnings as errors are shown; those of other packages with file and line."""

    def line_of(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        text = one_line(message, 1000)
        # those of this package are about the line that called it: here that of `puffer` itself
        is_own = filename in ("sys", "<sys>", sys.argv[0])
        if is_own or os.path.abspath(filename).startswith(_PACKAGE):
            return f"puffer: {in_words_of(words, text)}\n"
        return f"puffer: {text} ({category.__name__}, {one_line(filename)}:{lineno})\n"

    before, warnings.formatwarning = warnings.formatwarning, line_of
    try:
        yield
    finally:
        warnings.formatwarning = before
