"""Registries: what an option may be set to, and the class that each choice stands for.

Adding a backend, an optimizer, an engine, a network or a logger takes its file and one line here.
Checks of values, `--help` and the docs read these tables. Classes are named as "module:Class" and
imported when they are used, so that a config can be checked without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class LoggerChoice(NamedTuple):
    """A logger that `--log.logger` can select."""

    location: str  # "module:Class"; the class has `for_run(config, folder)`
    extra: str  # of pyproject.toml: what `pip install 'pufferlib[...]'` must name
    about: str  # one line for the docs


BACKENDS = {  # option `vec.backend`, besides "auto"
    "serial": "pufferlib.vectorization.serial:Serial",
    "threads": "pufferlib.vectorization.threads:Threads",
    "multiprocessing": "pufferlib.vectorization.multiprocessing:Multiprocessing",
    "ray": "pufferlib.vectorization.ray:Ray",
    "batched": "pufferlib.vectorization.batched:Batched",
}
OPTIMIZERS = {  # option `train.optimizer`
    "adam": "pufferlib.training.optimizers:Adam",
    "muon": "pufferlib.training.optimizers:Muon",
}
ENGINES = {  # option `train.engine`; "auto" takes the first that supports the run
    "native": "pufferlib.training.native_engine:NativeEngine",
    "torch": "pufferlib.training.torch_engine:TorchEngine",
}
NETWORKS = {  # option `policy.network`; "auto" chooses one of the first three by the space
    "mlp": "pufferlib.models:MLP",
    "cnn": "pufferlib.models:CNN",
    "multi_input": "pufferlib.models:MultiInput",
    "impala": "pufferlib.networks.impala:Impala",
    "symbolic": "pufferlib.networks.symbolic:Symbolic",
    "nethack": "pufferlib.networks.nethack:NetHack",
}
LOGGERS = {  # option `log.logger`, besides "none"
    "wandb": LoggerChoice(
        "pufferlib.loggers.wandb:WandbLogger", "wandb", "Weights & Biases, online or offline"
    ),
    "tensorboard": LoggerChoice(
        "pufferlib.loggers.tensorboard:TensorboardLogger",
        "tensorboard",
        "event files for TensorBoard in the folder of the run",
    ),
    "neptune": LoggerChoice(
        "pufferlib.loggers.neptune:NeptuneLogger",
        "neptune",
        "Neptune's client, offline or with a server of your own",
    ),
}


def load_choice(location: str) -> Any:
    """Import the class that a registry names as "module:Class"."""
    module, _, name = location.partition(":")
    return getattr(import_module(module), name)
