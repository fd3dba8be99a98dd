"""The journal of a study: a file of Optuna's, one JSON object in each line.

Lines that cannot be read are skipped, and `Journal.skipped` has their numbers. A line that starts a
trial says which number the trial has, so that the loss of one does not move the others: Optuna
itself only counts them.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pufferlib.errors import PufferError, UsageError, one_line, quoted
from pufferlib.files import open_own

JOURNAL = "study.journal"
_CREATE_TRIAL = 4  # Optuna's code for a line that starts a trial
_NUMBER = "trial_id"  # what we add to it
_FAIL = 3  # Optuna's code for a trial that has failed
_MAX_LINE = 1 << 24  # bytes
_MAX_GAP = 1000  # trials in a row whose lines are lost


class Journal:
    """What Optuna calls the backend of a journal: reads and appends lines under a lock.

    The lock ends with its process; Optuna's own would stay for 30 s. A line that a killed process
    has begun is removed before the next one is written.
    """

    def __init__(self, path: Path, create: bool = False) -> None:
        self._path = path
        self.skipped: list[int] = []
        self._offset, self._line, self._next_trial = 0, 0, 0
        with self._open(os.O_RDONLY | (os.O_CREAT if create else 0)):
            pass

    # ---- What Optuna calls -----------------------------------------------------------------------

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield what the lines hold that no call has yielded yet."""
        with self._open(os.O_RDONLY) as file:
            for log, size in _lines(file, self._offset):
                self._offset, self._line = self._offset + size, self._line + 1
                if log is None:
                    self.skip()
                    continue
                if log.get("op_code") == _CREATE_TRIAL:
                    number = log.get(_NUMBER, self._next_trial)
                    if (
                        not isinstance(number, int)
                        or not 0 <= number - self._next_trial <= _MAX_GAP
                    ):
                        self.skip()
                        continue
                    for _ in range(number - self._next_trial):
                        yield {**_LOST_TRIAL, "study_id": log.get("study_id")}
                    self._next_trial = number + 1
                yield log

    def append_logs(self, logs: Sequence[dict[str, Any]]) -> None:
        """Append lines, all of them or none."""
        with self._open(os.O_RDWR) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = _remove_unfinished(file)
            lines = [json.dumps(self._numbered(log, file), separators=(",", ":")) for log in logs]
            view = memoryview("".join(f"{line}\n" for line in lines).encode())
            try:
                written = 0
                while written < len(view):
                    written += os.pwrite(file, view[written:], end + written)
                os.fsync(file)
            except OSError as error:
                os.ftruncate(file, end)
                raise PufferError(
                    f"cannot write to {one_line(self._path)}: {error.strerror}"
                ) from error

    # ---- Lines -----------------------------------------------------------------------------------

    def skip(self) -> None:
        """Note that the last line cannot be used."""
        self.skipped.append(self._line)

    def _numbered(self, log: dict[str, Any], file: int) -> dict[str, Any]:
        """Return a line with the number of the trial that it starts, if it starts one."""
        if log["op_code"] != _CREATE_TRIAL:
            return log
        number = self._next_trial
        for other, _ in _lines(file, self._offset):  # of other drivers, since the last look
            if other is not None and other.get("op_code") == _CREATE_TRIAL:
                given = other.get(_NUMBER, number)
                number = given + 1 if isinstance(given, int) else number
        return {**log, _NUMBER: number}

    @contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        try:
            file = open_own(self._path, flags)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UsageError(
                f"{quoted(self._path)} must be the journal of a sweep, but: {reason}."
            ) from error
        try:
            yield file
        finally:
            os.close(file)


# stands for a trial whose line cannot be read: it has no config
_LOST_TRIAL = {
    "op_code": _CREATE_TRIAL,
    "worker_id": "",
    "state": _FAIL,
    "datetime_start": None,
}


def open_journal(optuna: Any, path: Path, create: bool) -> tuple[Any, Journal]:
    """Return Optuna's storage on the journal at `path`, and the journal."""

    class Storage(optuna.storages.JournalStorage):  # type: ignore[misc]  # Optuna is an extra
        """Skips lines that are JSON, but tell what cannot be."""

        def _sync_with_backend(self) -> None:
            for log in self._backend.read_logs(0):
                try:
                    self._replay_result.apply_logs([log])
                except optuna.exceptions.OptunaError:  # about what this process has written
                    raise
                except Exception:  # a key may be missing, and a value be of any type
                    self._backend.skip()

    journal = Journal(path, create)
    return Storage(journal), journal


def _lines(file: int, offset: int) -> Iterator[tuple[dict[str, Any] | None, int]]:
    """Yield what each whole line from `offset` on holds, None if unreadable, and its bytes."""
    with open(file, "rb", closefd=False) as stream:
        stream.seek(offset)
        while line := stream.readline(_MAX_LINE):
            size, is_long = len(line), not line.endswith(b"\n")
            while is_long and not line.endswith(b"\n"):
                line = stream.readline(_MAX_LINE)
                if not line:
                    return  # not written to its end yet
                size += len(line)
            yield None if is_long else _parsed(line), size


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        log = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return log if isinstance(log, dict) and type(log.get("op_code")) is int else None


def _remove_unfinished(file: int) -> int:
    """Remove the line that a killed process has begun; return where the next one begins."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _MAX_LINE)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        end = start + newline + 1
        if newline >= 0:
            break
    if end < os.fstat(file).st_size:
        os.ftruncate(file, end)
    return end
