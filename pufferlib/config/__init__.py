"""The options of a run: the schema, the layers that fill it, and the values of unset options.

Nothing here imports NumPy, torch or Gymnasium, so `puffer --help` answers at once.
"""

from pufferlib.config.batch import BatchShape, CompletedOptions, batch_shape, complete_options
from pufferlib.config.choices import BACKENDS, ENGINES, LOGGERS, NETWORKS, OPTIMIZERS, load_choice
from pufferlib.config.layers import Override, family_vec, load, merge_train_layers, parse_overrides
from pufferlib.config.options import parse_number
from pufferlib.config.schema import (
    SECTIONS,
    Config,
    LogConfig,
    PolicyConfig,
    TrainConfig,
    VecConfig,
    describe,
)

__all__ = [
    "BACKENDS",
    "ENGINES",
    "LOGGERS",
    "NETWORKS",
    "OPTIMIZERS",
    "SECTIONS",
    "BatchShape",
    "CompletedOptions",
    "Config",
    "LogConfig",
    "Override",
    "PolicyConfig",
    "TrainConfig",
    "VecConfig",
    "batch_shape",
    "complete_options",
    "describe",
    "family_vec",
    "load",
    "load_choice",
    "merge_train_layers",
    "parse_number",
    "parse_overrides",
]
