"""What a logger is, the one that keeps nothing, and the one that outlives all others."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from pufferlib.loggers.background import BackgroundLogger


@runtime_checkable
class Logger(Protocol):
    """Anything with these two methods can be given to the trainer as a logger.

    `log` is called once per iteration, from one thread, with steps that never decrease within a
    run. `metrics` belongs to the caller and is only valid during the call. `close` is called once
    at the end, and nothing after it. Either may raise: the trainer warns once and goes on.
    """

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


class NoLogger:
    """A logger that keeps nothing."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        pass

    def close(self) -> None:
        pass


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
        for logger in loggers:  # several slow ones end side by side, not one after the other
            if isinstance(logger, BackgroundLogger):
                logger.stop()
        for logger in loggers:
            try:
                logger.close()
            except Exception as error:
                _warn(logger, "failed to close; its last lines may be missing", error)


def _warn(logger: Logger, event: str, error: Exception) -> None:
    reason = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(".")
    warnings.warn(
        f"{type(logger).__name__} {event}: {reason}. The run goes on.",
        RuntimeWarning,
        stacklevel=3,
    )
