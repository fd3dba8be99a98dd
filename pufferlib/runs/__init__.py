"""Runs on disk: their folders (here), checkpoints, and policies loaded from them."""

from pufferlib.runs.folder import (
    CONFIG,
    LOG,
    Found,
    Run,
    create,
    find,
    find_checkpoint,
    launch_id,
    newest,
    of_launch,
)

__all__ = [
    "CONFIG",
    "LOG",
    "Found",
    "Run",
    "checkpoint",
    "create",
    "evaluation",
    "find",
    "find_checkpoint",
    "launch_id",
    "loading",
    "newest",
    "of_launch",
]
