"""The options of a run: the schema, the layers that fill it, and the values of unset options.

Nothing here imports NumPy, torch or Gymnasium, so `puffer --help` answers at once.
"""

from pufferlib.config.batch import (
    BatchShape,
    CompletedOptions,
    StepCost,
    batch_shape,
    complete_options,
)
from pufferlib.config.choices import BACKENDS, ENGINES, LOGGERS, NETWORKS, OPTIMIZERS, load_choice
from pufferlib.config.layers import (
    Override,
    SweepLayers,
    check_range,
    family_vec,
    full_key,
    load,
    load_sweep,
    merge_train_layers,
    parse_overrides,
)
from pufferlib.config.options import parse_number
from pufferlib.config.ranges import (
    Choice,
    Logit,
    LogUniform,
    OnOff,
    Pow2,
    Range,
    Uniform,
    as_range,
    logit,
)
from pufferlib.config.schema import (
    SECTIONS,
    Config,
    LogConfig,
    PolicyConfig,
    SweepConfig,
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
    "Choice",
    "CompletedOptions",
    "Config",
    "LogConfig",
    "LogUniform",
    "Logit",
    "OnOff",
    "Override",
    "PolicyConfig",
    "Pow2",
    "Range",
    "StepCost",
    "SweepConfig",
    "SweepLayers",
    "TrainConfig",
    "Uniform",
    "VecConfig",
    "as_range",
    "batch_shape",
    "check_range",
    "complete_options",
    "describe",
    "family_vec",
    "full_key",
    "load",
    "load_choice",
    "load_sweep",
    "logit",
    "merge_train_layers",
    "parse_number",
    "parse_overrides",
]
