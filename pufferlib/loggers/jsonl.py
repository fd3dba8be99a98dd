"""A log as one JSON object per line."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pufferlib.errors import UsageError

if TYPE_CHECKING:
    from typing import Self


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
        append(self._file, json.dumps(row, allow_nan=False).encode() + b"\n")

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


def append(file: io.FileIO, record: bytes) -> None:
    """Write `record` whole and in one call, or leave the file as it was and raise OSError."""
    size = os.fstat(file.fileno()).st_size
    written = file.write(record)
    if written != len(record):  # the disk filled up in the middle: leave no half record behind
        file.truncate(size)
        raise OSError(f"only {written} of {len(record)} bytes fitted into {os.fsdecode(file.name)}")


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
