"""Loggers: where the numbers of a run go besides the terminal.

Give the trainer one or a list: `PuffeRL(env, logger=[JsonlLogger(...), WandbLogger(...)])`. Those
that rely on a service or a package of others work in a thread of their own. None of them can stop
or slow a run.
"""

from pufferlib.loggers.background import BackgroundLogger
from pufferlib.loggers.base import Logger, NoLogger, SafeLogger
from pufferlib.loggers.jsonl import JsonlLogger
from pufferlib.loggers.neptune import NeptuneLogger
from pufferlib.loggers.tensorboard import TensorboardLogger
from pufferlib.loggers.wandb import WandbLogger, kept_id

__all__ = [
    "BackgroundLogger",
    "JsonlLogger",
    "Logger",
    "NeptuneLogger",
    "NoLogger",
    "SafeLogger",
    "TensorboardLogger",
    "WandbLogger",
    "kept_id",
]
