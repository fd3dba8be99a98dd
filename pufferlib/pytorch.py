"""Tools for policies: layer initialisation, views of observations, recurrent wrappers."""

from __future__ import annotations

import math
from typing import TypeVar

from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.policies.observations import unflatten_observations
from pufferlib.policies.recurrent import LSTM, RecurrentCore, orthogonal_
from pufferlib.policies.recurrent_wrapper import LSTMWrapper, RecurrentWrapper

__all__ = [
    "LSTM",
    "LSTMWrapper",
    "RecurrentCore",
    "RecurrentWrapper",
    "layer_init",
    "unflatten_observations",
]

LayerT = TypeVar("LayerT", bound=nn.Module)


def layer_init(layer: LayerT, std: float = math.sqrt(2), bias: float = 0.0) -> LayerT:
    """Give a linear or convolutional layer orthogonal weights of gain `std`; return the layer.

    The weights follow from torch's generator alone, not from the number of threads.
    """
    weight, offset = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, Tensor):
        raise UsageError(f"`layer` must have a weight tensor, but got {type(layer).__name__}.")
    orthogonal_(weight, std)
    if isinstance(offset, Tensor):
        nn.init.constant_(offset, bias)
    return layer
