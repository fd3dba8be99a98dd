"""Loggers: where the metrics of a run go besides the terminal.

Give the trainer one or a list: `PuffeRL(env, logger=[JsonlLogger(...), WandbLogger(...)])`. Loggers
that rely on a service or a third-party package work in a thread of their own. None of them can stop
or slow a run. A new one is a file here, a line in LOGGERS of pufferlib/config/choices.py, and the
extra that it needs in pyproject.toml.
"""

from typing import TYPE_CHECKING, Any

from pufferlib.config import LOGGERS, load_choice
from pufferlib.loggers.background import BackgroundLogger
from pufferlib.loggers.base import JsonlLogger, Logger, NoLogger, RunLogger, SafeLogger
from pufferlib.loggers.wandb import kept_id

if TYPE_CHECKING:
    from pufferlib.loggers.neptune import NeptuneLogger as NeptuneLogger
    from pufferlib.loggers.tensorboard import TensorboardLogger as TensorboardLogger
    from pufferlib.loggers.wandb import WandbLogger as WandbLogger

_LOCATIONS = {choice.location.partition(":")[2]: choice.location for choice in LOGGERS.values()}

__all__ = [
    "BackgroundLogger",
    "JsonlLogger",
    "Logger",
    "NoLogger",
    "RunLogger",
    "SafeLogger",
    "kept_id",
    *_LOCATIONS,
]


def __getattr__(name: str) -> Any:  # a class of any registered logger
    if name not in _LOCATIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_choice(_LOCATIONS[name])
