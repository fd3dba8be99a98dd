"""A log as one JSON object per line."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pufferlib.errors import UsageError
from pufferlib.loggers.base import RunLogger


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


def _json_number(value: Any) -> float | None:
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
