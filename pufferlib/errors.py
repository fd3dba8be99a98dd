"""Every exception that this package raises on purpose, and the messages of common mistakes.

Catch `PufferError` for all of them. A message is one line: what must hold, what was given, what to
try. Text from a file or a user goes through `quoted` or `one_line`.
"""

from __future__ import annotations

import difflib
import importlib
import os
import reprlib
import signal
import sys
import traceback
from collections.abc import Iterable, Sequence
from types import ModuleType

# packages whose frames are never the user's, besides the standard library
_NOT_THE_USERS = frozenset({"pufferlib", "gymnasium", "numpy", "torch"})


class PufferError(Exception):
    """The root of all errors raised by this package."""


class UsageError(PufferError, ValueError):
    """A mistake in a call, a config file or a command line."""


class UnknownNameError(UsageError):
    """An environment, key or param does not exist; `suggestions` holds similar names."""

    def __init__(self, message: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.suggestions = tuple(suggestions)


class UnknownParamError(UnknownNameError, TypeError):
    """An env does not take the keyword `param`; code for any env expects a TypeError then."""

    def __init__(self, message: str, suggestions: Sequence[str] = (), param: str = "") -> None:
        super().__init__(message, suggestions)
        self.param = param


class WorkerError(PufferError, RuntimeError):
    """A worker of a vector env died or hangs; the message names it, its envs and the cause.

    `worker` is its number, `envs` the range of its envs, `signal` the name of the signal that
    killed it or None, `stderr` its last lines of output.
    """

    def __init__(
        self,
        message: str,
        worker: int = -1,
        envs: range = range(0),
        signal: str | None = None,
        stderr: str = "",
    ) -> None:
        super().__init__(message)
        self.worker, self.envs, self.signal, self.stderr = worker, envs, signal, stderr


class MissingExtraError(PufferError, ImportError):
    """An optional package is not installed; the message names the pip extra."""


class EnvError(PufferError):
    """An environment broke its contract: a wrong shape, type or range, or a missing method."""


class CheckpointError(PufferError):
    """A checkpoint cannot be written, or the file read is not a valid checkpoint."""


class NonFiniteError(PufferError):
    """A reward, observation, loss or gradient is nan or inf; the message names it and the place."""


class NativeError(PufferError):
    """The C core failed; the message is the core's own."""


# what the user's code raises by a fault of its own: `sys.exit` too must not end a run silently
FAULTS: tuple[type[BaseException], ...] = (Exception, SystemExit)


def quoted(value: object, limit: int = 60) -> str:
    """Return `value` for a message: text in backticks, anything else as its repr, cut to `limit`.

    Line breaks and control characters are escaped. A path is text of up to 300 characters.
    """
    if isinstance(value, os.PathLike):
        return quoted(str(value), 300)
    if isinstance(value, str):
        return f"`{_printable(value, limit)}`"
    try:
        return _printable(reprlib.repr(value), limit)
    except Exception:  # a `__repr__` of others may raise anything
        return f"a {type(value).__name__}"


def one_line(text: object, limit: int = 300) -> str:
    """Return `text`, such as the message of another library, as one printable line.

    It is empty where `text` is an object whose `__str__` raises.
    """
    try:
        return _printable(" ".join(str(text)[: 10 * limit].split()), limit)
    except Exception:  # the object is the user's
        return ""


def error_line(error: BaseException) -> str:
    """Return the class and the message of an exception in one line."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # the exception is the user's, and its `__str__` may be broken too
        message = ""
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def raised_text(error: BaseException) -> str:
    """Describe in one line what the user's code raised, and where.

    What the handler of a signal raised is raised as it is: it finds the program anywhere, in the
    user's code too, which is not at fault.
    """
    if _is_of_signal(error):
        raise error
    line, place = error_line(error), place_of(error)
    if place:
        return f"raised {line} ({place})"
    return f"raised {line}" if ":" in line else f"raised {line}."


def _is_of_signal(error: BaseException) -> bool:
    handlers = [getattr(signal.getsignal(n), "__code__", None) for n in signal.valid_signals()]
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in handlers:
        trace = trace.tb_next
    return trace is not None


def place_of(error: BaseException) -> str:
    """Return where the user's code was when it raised: "my_env.py:27, in step", "" if nowhere.

    That is the last frame outside of this package, torch, Gymnasium, NumPy and the standard
    library. It is read from the traceback, so only where the exception was caught.
    """
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__")).partition(".")[0]
        path = frame.f_code.co_filename
        if module in _NOT_THE_USERS or module in sys.stdlib_module_names or path.startswith("<"):
            continue
        inside = os.path.relpath(path) if os.path.isabs(path) and _is_below_cwd(path) else path
        place = f"{one_line(inside)}:{line}, in {frame.f_code.co_name}"
    return place


def _is_below_cwd(path: str) -> bool:
    try:
        return path.startswith(os.getcwd() + os.sep)
    except OSError:  # the working folder was removed
        return False


def _printable(text: str, limit: int) -> str:
    cut = text if len(text) <= limit else f"{text[:limit]} ..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)


def imported(module: str, extra: str, title: str) -> ModuleType:
    """Import a package that only some users have; a MissingExtraError names its extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{title} must be installed, but cannot be imported ({error}). "
            f"Try: pip install 'pufferlib[{extra}]'"
        ) from error


def unknown_name(
    kind: str, name: str, candidates: Iterable[str], where: str = ""
) -> UnknownNameError:
    """Return the error for `name`, which is not one of `candidates`.

    `kind` is the noun ("environment", "key of [train]"); `where` is the place of the name
    ("runs.ini:3"). The caller raises the error.
    """
    known = list(candidates)
    suggestions = nearest(name, known)
    hint = did_you_mean(name, known)
    if not hint and 0 < len(known) <= 12:
        hint = f" Known: {', '.join(known)}."
    place = f" ({one_line(where)})" if where else ""
    return UnknownNameError(f"Unknown {kind} {quoted(name)}{place}.{hint}", suggestions)


def unknown_choice(label: str, value: object, choices: Iterable[str]) -> UsageError:
    """Return the error for `value`, which is not one of `choices`; the caller raises it."""
    known = list(choices)
    hint = did_you_mean(str(value), known)
    return UsageError(f"{label} must be one of {', '.join(known)}, but got {quoted(value)}.{hint}")


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return " Did you mean `x`?" to append to a message, or "" if nothing is similar."""
    names = [quoted(candidate) for candidate in nearest(name, candidates)]
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    return f" Did you mean {listed}?"


def nearest(name: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """Return at most `n` of `candidates` that `name` may mean, the most likely first.

    Case is ignored, and `-` equals `_`. Initials match too: `lr` finds `learning_rate`.
    """
    spellings: dict[str, str] = {}
    for candidate in candidates:
        spellings.setdefault(_plain(candidate), candidate)
    wanted = _plain(name[:200])
    by_initials = [
        plain
        for plain in spellings
        if "_" in plain and "".join(word[:1] for word in plain.split("_")) == wanted
    ]
    by_spelling = difflib.get_close_matches(wanted, spellings, n=n)
    return [spellings[plain] for plain in dict.fromkeys(by_initials + by_spelling)][:n]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
