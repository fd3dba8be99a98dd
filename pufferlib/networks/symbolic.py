"""Symbolic: grids whose cells hold categories, not brightness, as those of Minigrid do."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.models import (
    Activation,
    Convolutions,
    EncodedActorCritic,
    Encoder,
    LeafEncoders,
    activation_module,
)
from pufferlib.spaces import Leaf, ObservationLayout

_CELL_WIDTH = 32  # features of one cell
_LEAF_WIDTH = 64  # features of each other leaf


class Symbolic(EncodedActorCritic):
    """Embeds each cell of a grid `(H, W, C)` of uint8 by its `C` categories; then convolutions.

    Other leaves of a Dict or Tuple become 64 features each: choices through a table, numbers
    through a linear layer.
    """

    usual_size = 128

    def make_encoder(self, layout: ObservationLayout, activation: Activation) -> Encoder:
        if not any(leaf.is_image and leaf.dtype == np.uint8 for leaf in layout.leaves):
            raise UsageError(
                "`observation_space` of network symbolic must have a Box of uint8 of shape "
                f"(H, W, C), but got {layout.space}. Try network='auto'."
            )
        return LeafEncoders(layout, _LEAF_WIDTH, activation, GridEncoder)


class GridEncoder(Encoder):
    """A vector for each category of each channel, summed in every cell, then convolutions."""

    offsets: Tensor

    def __init__(self, leaf: Leaf, activation: Activation) -> None:
        super().__init__()
        height, width, channels = leaf.shape
        self.table = nn.Parameter(torch.empty(256 * channels, _CELL_WIDTH))
        nn.init.normal_(self.table, std=channels**-0.5)
        self.register_buffer("offsets", 256 * torch.arange(channels), persistent=False)
        self.activation = activation_module(activation)
        self.convolutions = Convolutions(_CELL_WIDTH, height, width, activation)
        self.out_features = self.convolutions.out_features

    def forward(self, grids: Tensor) -> Tensor:
        batch, height, width, channels = grids.shape
        rows = (grids.long() + self.offsets).reshape(-1, channels)
        cells = F.embedding_bag(rows, self.table, mode="sum")
        cells = self.activation(cells).reshape(batch, height, width, _CELL_WIDTH)
        features: Tensor = self.convolutions(cells.permute(0, 3, 1, 2))
        return features
