"""Loggers: where the numbers of a run go besides the terminal."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pufferlib.errors import UsageError

if TYPE_CHECKING:
    from typing import Self


@runtime_checkable
class Logger(Protocol):
    """Anything with these two methods can be given to the trainer as a logger.

    `log` is called once per iteration, from one thread, with steps that never decrease within a
    run. `metrics` belongs to the caller and is only valid during the call. `close` is called once
    at the end, and nothing after it.
    """

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class NoLogger:
    """A logger that keeps nothing."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        pass

    def close(self) -> None:
        pass


class JsonlLogger:
    """One JSON object per line: `{"step": ..., <metric>: ...}`, in the order of the metrics.

    Each line reaches the operating system in one write before `log` returns, so a file whose
    process was killed holds whole lines only. NaN and infinities, which JSON does not have, become
    null. Missing parent folders are created. An existing file is appended to: a resumed run
    continues it, and where steps repeat, the later line is the one that counts.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _mend_last_line(self.path)
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"`path` must be a file that can be written, but got {str(self.path)!r} ({reason})."
                " Try a path inside a folder of your own."
            ) from error

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        row: dict[str, Any] = {"step": int(step)}
        row.update((name, _json_number(value)) for name, value in metrics.items() if name != "step")
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        size = os.fstat(self._file.fileno()).st_size
        written = self._file.write(line)
        if written != len(line):  # the disk filled up in the middle: leave no half line behind
            self._file.truncate(size)
            raise OSError(f"only {written} of {len(line)} bytes fitted into {self.path}")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class SafeLogger:
    """Passes each call on to several loggers, and outlives all of them.

    A logger that raises (disk full, no network, a bug) costs one warning; it is skipped from then
    on while the others go on. Only KeyboardInterrupt and its like pass through.
    """

    def __init__(self, loggers: Iterable[Logger]) -> None:
        self._loggers = list(loggers)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        for logger in tuple(self._loggers):
            try:
                logger.log(metrics, step)
            except Exception as error:
                self._loggers.remove(logger)
                _warn(logger, f"failed at step {step} and is skipped from now on", error)

    def close(self) -> None:
        """Close those that still work. May be called again, and then does nothing."""
        loggers, self._loggers = self._loggers, []
        for logger in loggers:
            try:
                logger.close()
            except Exception as error:
                _warn(logger, "failed to close; its last lines may be missing", error)


def _warn(logger: Logger, event: str, error: Exception) -> None:
    warnings.warn(
        f"{type(logger).__name__} {event}: {type(error).__name__}: {error}. The run goes on.",
        RuntimeWarning,
        stacklevel=3,
    )


def _json_number(value: Any) -> float | None:
    """The value as JSON can hold it; accepts what float() accepts (NumPy and torch scalars)."""
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _mend_last_line(path: Path) -> None:
    """Make the file end with a whole line, so that appending cannot damage two of them.

    A line without its newline is kept if it is valid JSON, and cut if it is the torn beginning
    of one of our rows. A file that ends in anything else is not ours to cut: it gets a newline.
    """
    if not path.exists():
        return
    with path.open("rb+") as file:
        content_size = file.seek(0, os.SEEK_END)
        tail_size = min(content_size, 1 << 20)  # far longer than any row
        file.seek(content_size - tail_size)
        tail = file.read(tail_size)
        if not tail or tail.endswith(b"\n"):
            return
        last_line = tail[tail.rfind(b"\n") + 1 :]
        try:
            json.loads(last_line)
        except ValueError:
            if last_line.startswith(b'{"step"'):
                file.truncate(content_size - len(last_line))
                return
        file.write(b"\n")
