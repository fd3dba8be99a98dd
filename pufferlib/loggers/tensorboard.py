"""TensorBoard."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pufferlib.config import Config
from pufferlib.errors import UsageError
from pufferlib.loggers.background import BackgroundLogger, load
from pufferlib.loggers.base import append


class TensorboardLogger(BackgroundLogger):
    """Writes an event file for `tensorboard --logdir DIR`: `pip install 'pufferlib[tensorboard]'`.

    An entry is one record, written whole. A resumed run may use the same folder: its first step and
    later ones replace those of earlier files.
    """

    def __init__(self, dir: str | os.PathLike[str]) -> None:
        super().__init__()
        self.dir = Path(dir)
        self.url = str(self.dir)
        self._events = load("tensorboard.compat.proto.event_pb2", "TensorboardLogger")
        self._summaries = load("tensorboard.compat.proto.summary_pb2", "TensorboardLogger")
        self._records = load("tensorboard.summary.writer.record_writer", "TensorboardLogger")
        self._file: io.FileIO | None = None
        self._has_started = False
        try:
            self.dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(
                f"`dir` must be a folder that can be written, but got {str(self.dir)!r} ({reason})."
                " Try a folder of your own."
            ) from error

    @classmethod
    def for_run(cls, config: Config, folder: Path) -> Self:
        return cls(folder / "tensorboard")

    def _open(self) -> None:
        # TensorBoard looks for "tfevents" and reads the files in the order of their names
        stem = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._file = (self.dir / stem).open("xb", buffering=0)
        self._add(file_version="brain.Event:2")

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        if not self._has_started:
            self._has_started = True
            self._add(step=step, session_log=self._events.SessionLog(status="START"))
        value = self._summaries.Summary.Value
        values = [value(tag=name, simple_value=number) for name, number in metrics.items()]
        self._add(step=step, summary=self._summaries.Summary(value=values))

    def _add(self, **content: Any) -> None:
        """Append one event as one record."""
        assert self._file is not None
        event = self._events.Event(wall_time=time.time(), **content)
        record = io.BytesIO()
        self._records.RecordWriter(record).write(event.SerializeToString())
        append(self._file, record.getvalue())

    def _finish(self) -> None:
        if self._file is not None:
            self._file.close()
