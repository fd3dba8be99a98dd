"""The Logger protocol, a logger that keeps nothing, and one that survives failures of others."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, Self, runtime_checkable

from pufferlib.closing import Closing
from pufferlib.config import Config


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
    reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(".")
    warnings.warn(
        f"{type(logger).__name__} {event}: {reason}. The run continues.",
        RuntimeWarning,
        stacklevel=3,
    )
