"""Logger, what the trainer takes; the log of JSON lines that every run has; and SafeLogger."""

from __future__ import annotations

import io
import json
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, Self, SupportsFloat, runtime_checkable

from pufferlib.closing import Closing
from pufferlib.config import Config
from pufferlib.errors import UsageError, error_line


@runtime_checkable
class Logger(Protocol):
    """Anything with these two methods can be given to the trainer as a logger.

    `log` is called once per iteration, from one thread, with steps that never decrease within a
    run. `metrics` belongs to the caller and is only valid during the call. `close` is called once
    at the end, and nothing after it. Either may raise: the trainer warns once and continues.
    """

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class RunLogger(Closing):
    """Base of the loggers in this package: `puffer train` makes them from a config."""

    url: str | None = None  # where to look at the run, None if unknown

    @classmethod
    def for_run(cls, config: Config, folder: Path) -> Self:
        """Make the logger of a run that keeps its files in `folder`."""
        raise NotImplementedError

    @abstractmethod
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Keep the metrics of one iteration."""

    def stop(self) -> None:
        """Start to close without waiting; `close` waits."""


class NoLogger:
    """A logger that keeps nothing."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        pass

    def close(self) -> None:
        pass


class SafeLogger:
    """Passes each call on to several loggers, and survives all of their failures.

    A logger that raises (disk full, no network, a bug) costs one warning and is skipped from then
    on; the others continue. Only KeyboardInterrupt and the like pass through.
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
        """Close those that still work. A second call does nothing."""
        loggers, self._loggers = self._loggers, []
        for logger in loggers:  # several slow ones finish at the same time, not one by one
            if isinstance(logger, RunLogger):
                logger.stop()
        for logger in loggers:
            try:
                logger.close()
            except Exception as error:
                _warn(logger, "failed to close; its last lines may be missing", error)


def _warn(logger: Logger, event: str, error: Exception) -> None:
    reason = error_line(error).removesuffix(".")
    warnings.warn(
        f"{type(logger).__name__} {event}: {reason}. The run continues.",
        RuntimeWarning,
        stacklevel=3,
    )


# ---- JSON lines ----------------------------------------------------------------------------------


class JsonlLogger(RunLogger):
    """One JSON object per line: `{"step": ..., <metric>: ...}`, in the order of the metrics.

    Each line reaches the operating system in one write before `log` returns, so a killed process
    leaves whole lines only. NaN and infinities, which JSON does not have, become null. Missing
    parent folders are created. An existing file is appended to: a resumed run continues it, and if
    steps repeat, the later line counts.
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
        entry: dict[str, float | None] = {"step": int(step)}
        entry |= {name: _json_number(metrics[name]) for name in metrics if name != "step"}
        if not os.fstat(self._file.fileno()).st_nlink:  # the folder of the run was removed
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file.close()
            self._file = self.path.open("ab", buffering=0)
        append(self._file, json.dumps(entry, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def append(file: io.FileIO, record: bytes) -> None:
    """Write `record` whole in one call, or leave the file as it is and raise OSError."""
    size = os.fstat(file.fileno()).st_size
    written = file.write(record)
    if written != len(record):  # the disk is full: leave no partial record
        file.truncate(size)
        raise OSError(f"only {written} of {len(record)} bytes fit into {os.fsdecode(file.name)}")


def _json_number(value: SupportsFloat) -> float | None:
    """Return the value for JSON; takes what float() takes, such as NumPy and torch scalars."""
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _mend_last_line(path: Path) -> None:
    """Make the file end with a whole line, so that the next line starts on its own.

    A last line without a newline is kept if it is valid JSON, and removed if it is the start of one
    of our lines. Any other text is not ours to remove: it gets a newline.
    """
    if not path.exists():
        return
    with path.open("rb+") as file:
        content_size = file.seek(0, os.SEEK_END)
        tail_size = min(content_size, 1 << 20)  # far longer than any line
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
