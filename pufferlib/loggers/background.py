"""A thread of its own for a backend that may block, so that no run ever waits for one."""

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
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pufferlib.errors import MissingExtraError

if TYPE_CHECKING:
    from typing import Self


class BackgroundLogger(ABC):
    """Hands rows to a backend from a thread of its own; subclasses are the backends.

    `log` copies the row and returns at once. The backend is opened in the thread when the first row
    comes, so that a process which logs nothing opens none. While it is slow, rows wait; of more
    than `backlog` the oldest are dropped, with one warning. What it raises ends the thread, and is
    raised by the next `log` or by `close`. `close` waits `patience` seconds for the rest and then
    raises TimeoutError, while the thread goes on for as long as the process does.
    """

    backlog = 1024  # rows
    patience = 5.0  # seconds

    def __init__(self) -> None:
        self.url: str | None = None  # where to look at the run, known once the backend is open
        self.dropped = 0  # rows
        self._rows: deque[tuple[dict[str, float], int]] = deque()
        self._changed = threading.Condition()  # guards all that follows
        self._notes: list[str] = []
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None
        self._deadline: float | None = None  # set by `stop`

    @abstractmethod
    def _open(self) -> None:
        """Connect. Called in the thread, once, before all else."""

    @abstractmethod
    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep one row. Called in the thread."""

    @abstractmethod
    def _finish(self) -> None:
        """Write what is left and disconnect. Called in the thread, once, after a good `_open`."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        row = {name: _number(value) for name, value in metrics.items()}
        with self._changed:
            self._tell()
            if self._failure is not None:
                raise self._failure
            if self._deadline is not None:
                raise RuntimeError(f"{type(self).__name__} is closed")
            if len(self._rows) >= self.backlog:
                self._rows.popleft()
                self.dropped += 1
                if self.dropped == 1:
                    self._notes.append(
                        f"cannot keep up: over {self.backlog} rows wait, the oldest are dropped"
                    )
                    self._tell()
            self._rows.append((row, int(step)))
            self._changed.notify()
            if self._thread is None:
                name = f"pufferlib-{type(self).__name__}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the rows that wait; `close` then waits for it."""
        with self._changed:
            if self._deadline is None:
                self._deadline = time.monotonic() + self.patience
            self._changed.notify()

    def close(self) -> None:
        """Wait for the end of the thread. A second call does nothing."""
        if self._deadline is None:
            self.stop()
        thread, self._thread = self._thread, None
        if thread is None or self._deadline is None:
            return
        thread.join(max(0.0, self._deadline - time.monotonic()))
        with self._changed:
            self._tell()
            if self._failure is not None:
                raise self._failure
            if thread.is_alive():
                raise TimeoutError(
                    f"{len(self._rows)} rows wait after {self.patience:g} s. {self._rescue()}"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _rescue(self) -> str:
        """Return how to get at rows that the backend has taken but not delivered."""
        return ""

    def _note(self, text: str) -> None:
        """Warn with the next call of `log` or `close`: in the thread nobody could catch it."""
        with self._changed:
            self._notes.append(text)

    def _tell(self) -> None:
        for note in self._notes:
            warnings.warn(f"{type(self).__name__} {note}.", RuntimeWarning, stacklevel=3)
        self._notes.clear()

    def _run(self) -> None:
        try:
            self._open()
            # After the backend's own hook, so that it runs before it: the last rows of a script
            # that never closes are still written.
            atexit.register(self._close_at_exit)
            try:
                while (row := self._next()) is not None:
                    self._write(*row)
            finally:
                self._finish()
        except Exception as error:
            self._fail(error)
        except SystemExit as error:  # some packages leave the "process" when they fail
            self._fail(RuntimeError(f"it wanted to exit with {error.code}"))
        finally:
            atexit.unregister(self._close_at_exit)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._rows.clear()

    def _next(self) -> tuple[dict[str, float], int] | None:
        """Wait for a row and take it; None when there are no more to come."""
        with self._changed:
            while not self._rows and self._deadline is None:
                self._changed.wait()
            return self._rows.popleft() if self._rows else None

    def _close_at_exit(self) -> None:
        with suppress(Exception):
            self.close()


def load(package: str, owner: str) -> Any:
    """Import a package that not every user has; `owner` is who needs it.

    A folder of that name where the user stands, such as the one in which W&B keeps its runs, is not
    the package.
    """
    extra = package.partition(".")[0]
    spec = None if extra in sys.modules else importlib.util.find_spec(extra)
    if sys.modules.get(extra) is None and (spec is None or spec.origin is None):
        raise MissingExtraError(f"`{owner}` needs {extra}: pip install 'pufferlib[{extra}]'")
    return importlib.import_module(package)


def _number(value: Any) -> float:
    return value if isinstance(value, int) else float(value)
