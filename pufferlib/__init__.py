"""Fast, correct and pleasant reinforcement learning.

Public names load when first used, so that `import pufferlib` stays light: it imports neither torch
nor Gymnasium.
"""

import os
from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, without loading it: `python -m` looks in the folder first
if TYPE_CHECKING:
    from typing import Any

    from pufferlib import errors as errors
    from pufferlib.adapters import to_gymnasium as to_gymnasium
    from pufferlib.adapters import to_pettingzoo as to_pettingzoo
    from pufferlib.adapters import to_sb3 as to_sb3
    from pufferlib.checks import check_env as check_env
    from pufferlib.env import PufferEnv as PufferEnv
    from pufferlib.env import Wrapper as Wrapper
    from pufferlib.loggers import JsonlLogger as JsonlLogger
    from pufferlib.loggers import NeptuneLogger as NeptuneLogger
    from pufferlib.loggers import NoLogger as NoLogger
    from pufferlib.loggers import TensorboardLogger as TensorboardLogger
    from pufferlib.loggers import WandbLogger as WandbLogger
    from pufferlib.protein import Protein as Protein
    from pufferlib.registry import list_envs as list_envs
    from pufferlib.registry import register as register
    from pufferlib.runs.evaluation import evaluate_policy as evaluate_policy
    from pufferlib.runs.loading import load as load
    from pufferlib.training.trainer import PuffeRL as PuffeRL
    from pufferlib.vectorization import emulate as emulate
    from pufferlib.vectorization import make as make

__version__ = "0.1.0"

# Torch's CPU threads spin while they wait for each other. With one busy neighbour on the machine a
# spinning thread keeps the awaited one off its core, and training slows down thirtyfold; sleeping
# costs a few microseconds. Read when torch is first loaded, so it must be set before; a value that
# the user chose stays.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOMES = {
    "JsonlLogger": "loggers",
    "NeptuneLogger": "loggers",
    "NoLogger": "loggers",
    "Protein": "protein",
    "PuffeRL": "training.trainer",
    "PufferEnv": "env",
    "TensorboardLogger": "loggers",
    "WandbLogger": "loggers",
    "Wrapper": "env",
    "check_env": "checks",
    "emulate": "vectorization",
    "evaluate_policy": "runs.evaluation",
    "list_envs": "registry",
    "load": "runs.loading",
    "make": "vectorization",
    "register": "registry",
    "to_gymnasium": "adapters",
    "to_pettingzoo": "adapters",
    "to_sb3": "adapters",
}
_MODULES = ("errors", "models", "ocean", "pytorch", "vectorization")

__all__ = [*_HOMES, "errors"]


def __getattr__(name: str) -> "Any":  # `from __future__` would look in the folder too
    if name in _HOMES:
        value = getattr(import_module(f"pufferlib.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"pufferlib.{name}")
    else:
        raise AttributeError(f"module 'pufferlib' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
