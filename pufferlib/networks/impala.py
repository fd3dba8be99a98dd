"""Impala: the residual network of Espeholt et al. 2018 (arXiv:1802.01561), for pictures."""

from __future__ import annotations

import functools
import math

from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.models import (
    Activation,
    EncodedActorCritic,
    Encoder,
    ImageEncoder,
    LeafEncoders,
    activation_module,
)
from pufferlib.pytorch import layer_init
from pufferlib.spaces import ObservationLayout

_LEAF_WIDTH = 64  # features of each leaf that is not a picture


class Impala(EncodedActorCritic):
    """Residual convolutions for the images of a space, then `num_layers` dense layers.

    Other leaves of a Dict or Tuple become 64 features each.
    """

    def make_encoder(self, layout: ObservationLayout, activation: Activation) -> Encoder:
        if not any(leaf.is_image for leaf in layout.leaves):
            raise UsageError(
                "`observation_space` of network impala must have a Box of shape (H, W, C) or "
                f"(C, H, W), but got {layout.space}. Try network='auto'."
            )
        encoder = functools.partial(ImageEncoder, make_convolutions=ResidualConvolutions)
        return LeafEncoders(layout, _LEAF_WIDTH, activation, encoder)


class ResidualConvolutions(nn.Sequential):
    """Three times: a convolution, a pooling that halves the picture, two residual blocks."""

    def __init__(self, channels: int, height: int, width: int, activation: Activation) -> None:
        layers: list[nn.Module] = []
        for features in (16, 32, 32):
            layers += [
                layer_init(nn.Conv2d(channels, features, 3, padding=1)),
                nn.MaxPool2d(3, stride=2, padding=1),
                ResidualBlock(features, activation),
                ResidualBlock(features, activation),
            ]
            channels, height, width = features, (height + 1) // 2, (width + 1) // 2
        super().__init__(*layers, nn.Flatten())
        self.out_features = channels * height * width


class ResidualBlock(nn.Module):
    """Two convolutions whose result is added to their input."""

    def __init__(self, channels: int, activation: Activation) -> None:
        super().__init__()
        self.first = layer_init(nn.Conv2d(channels, channels, 3, padding=1))
        # a smaller gain: features of the first step are not much larger than the picture's
        self.second = layer_init(nn.Conv2d(channels, channels, 3, padding=1), std=math.sqrt(0.5))
        self.activation = activation_module(activation)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.first(self.activation(images.clone()))  # it works in place
        result: Tensor = images + self.second(self.activation(inner))
        return result
