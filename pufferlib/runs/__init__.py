"""Runs on disk: their folders (here), checkpoints, and policies loaded from them."""

from pufferlib.runs.folder import (
    CONFIG,
    LATEST,
    LOG,
    Found,
    Run,
    base_of,
    create,
    find,
    find_checkpoint,
    launch_id,
    newest,
    of_launch,
)
from pufferlib.runs.pretrained import keep_policy, pretrained_path

__all__ = [
    "CONFIG",
    "LATEST",
    "LOG",
    "Found",
    "Run",
    "base_of",
    "checkpoint",
    "create",
    "evaluation",
    "find",
    "find_checkpoint",
    "keep_policy",
    "launch_id",
    "loading",
    "newest",
    "of_launch",
    "pretrained_path",
]
