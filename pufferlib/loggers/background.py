"""A thread for a backend that may block, so that a run never waits for it."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType

from pufferlib.errors import MissingExtraError
from pufferlib.loggers.base import RunLogger


class BackgroundLogger(RunLogger, ABC):
    """Passes entries to a backend from a thread of its own; subclasses are the backends.

    `log` copies the metrics as one entry and returns at once. The thread opens the backend at the
    first entry, so a process that logs nothing opens none. Entries wait for a slow backend; above
    `backlog` the oldest are dropped, with one warning. An exception of the backend ends the thread
    and is raised by the next `log` or by `close`. `close` waits `patience` seconds for the rest and
    then raises TimeoutError, while the thread continues until the process ends.
    """

    backlog = 1024  # entries
    patience = 5.0  # seconds

    def __init__(self) -> None:
        self.dropped = 0  # entries
        self._entries: deque[tuple[dict[str, float], int]] = deque()
        self._changed = threading.Condition()  # guards everything below
        self._notes: list[str] = []
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None  # set by `stop`

    @abstractmethod
    def _open(self) -> None:
        """Connect. Called once in the thread, first of all."""

    @abstractmethod
    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep one entry. Called in the thread."""

    @abstractmethod
    def _finish(self) -> None:
        """Flush and disconnect. Called once in the thread, if `_open` succeeded."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        numbers = {
            name: value if isinstance(value, int) else float(value)
            for name, value in metrics.items()
        }
        with self._changed:
            self._warn_of_notes()
            if self._failure is not None:
                raise self._failure
            if self._deadline is not None:
                raise RuntimeError(f"{type(self).__name__} is closed")
            if len(self._entries) >= self.backlog:
                self._entries.popleft()
                self.dropped += 1
                if self.dropped == 1:
                    self._notes.append(
                        f"cannot keep up: over {self.backlog} entries wait, the oldest are dropped"
                    )
                    self._warn_of_notes()
            self._entries.append((numbers, int(step)))
            self._changed.notify()
            if self._thread is None:
                name = f"pufferlib-{type(self).__name__}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the waiting entries; `close` then waits for it."""
        with self._changed:
            if self._deadline is None:
                self._deadline = time.monotonic() + self.patience
            self._changed.notify()

    def close(self) -> None:
        """Wait for the thread to end. A second call does nothing."""
        if self._deadline is None:
            self.stop()
        thread, self._thread = self._thread, None
        if thread is None or self._deadline is None:
            return
        thread.join(max(0.0, self._deadline - time.monotonic()))
        with self._changed:
            self._warn_of_notes()
            if self._failure is not None:
                raise self._failure
            if thread.is_alive():
                raise TimeoutError(
                    f"{len(self._entries)} entries wait after {self.patience:g} s. {self._rescue()}"
                )

    def _rescue(self) -> str:
        """Return how to recover entries that the backend has kept but not delivered."""
        return ""

    def _note(self, text: str) -> None:
        """Warn in the next call of `log` or `close`, where the caller can catch it."""
        with self._changed:
            self._notes.append(text)

    def _warn_of_notes(self) -> None:
        for note in self._notes:
            warnings.warn(f"{type(self).__name__} {note}.", RuntimeWarning, stacklevel=3)
        self._notes.clear()

    def _run(self) -> None:
        try:
            self._open()
            # Registered after the backend's own hook, so that it runs before that: a script that
            # never closes still writes its last entries.
            atexit.register(self._close_at_exit)
            try:
                while (entry := self._next()) is not None:
                    self._write(*entry)
            finally:
                self._finish()
        except Exception as error:
            self._fail(error)
        except SystemExit as error:  # some packages call sys.exit when they fail
            self._fail(RuntimeError(f"the backend called sys.exit({error.code})"))
        finally:
            atexit.unregister(self._close_at_exit)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._entries.clear()

    def _next(self) -> tuple[dict[str, float], int] | None:
        """Wait for an entry and take it; None at the end."""
        with self._changed:
            while not self._entries and self._deadline is None:
                self._changed.wait()
            return self._entries.popleft() if self._entries else None

    def _close_at_exit(self) -> None:
        with suppress(Exception):
            self.close()


def load(package: str, owner: str) -> ModuleType:
    """Import an optional package for the logger class `owner`.

    A folder of that name in the working folder, such as the one where W&B keeps its runs, does not
    count as the package.
    """
    extra = package.partition(".")[0]
    spec = None if extra in sys.modules else importlib.util.find_spec(extra)
    if sys.modules.get(extra) is None and (spec is None or spec.origin is None):
        raise MissingExtraError(f"`{owner}` needs {extra}: pip install 'pufferlib[{extra}]'")
    return importlib.import_module(package)
