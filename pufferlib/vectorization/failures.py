"""Errors that cross from a worker to its parent, and the error for a worker that is lost."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from pufferlib import errors
from pufferlib.errors import EnvError, PufferError, WorkerError, error_line


class Failure(NamedTuple):
    """An exception in a form that every process can unpickle."""

    kind: str  # the name of its class
    message: str
    traceback: str

    @property
    def is_lost_worker(self) -> bool:
        """Whether the envs of the worker are a vector env that has lost a worker of its own."""
        return self.kind == WorkerError.__name__


class LostWorkerError(WorkerError):
    """A worker died or hangs. Raised inside the package, where the worker may be replaced."""

    def final(self) -> WorkerError:
        """Return the error for the user, where the worker is not replaced."""
        return WorkerError(str(self), self.worker, self.envs, self.signal, self.stderr)


OnLost: TypeAlias = Callable[[LostWorkerError], None] | None  # replaces a lost worker, or raises


class RemoteTraceback(Exception):  # noqa: N818 - shown as a cause, never caught
    """The traceback of an error in a worker."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def failure_of(error: BaseException) -> Failure:
    """Describe an exception for another process."""
    kind = type(error).__name__
    return Failure(kind, str(error), "".join(traceback.format_exception(error)))


def rebuilt(failure: Failure) -> PufferError:
    """Return the error of a worker for this process, with the original traceback as its cause."""
    kind = vars(errors).get(failure.kind)
    error: PufferError
    if isinstance(kind, type) and issubclass(kind, PufferError):
        error = kind(failure.message)
    else:
        error = EnvError(f"{failure.kind}: {failure.message}")
    error.__cause__ = RemoteTraceback(failure.traceback)
    return error


def unreadable(label: str, error: Exception) -> EnvError:
    """Return the error for an object of a worker that raised `error` when it was unpickled."""
    return EnvError(
        f"{label} returned an object that cannot be unpickled in this process: {error_line(error)}"
    )
