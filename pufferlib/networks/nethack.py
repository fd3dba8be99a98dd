"""NetHack: the map of glyphs, the surroundings of the hero, statistics and the message line."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.models import (
    Activation,
    Convolutions,
    EncodedActorCritic,
    Encoder,
    activation_module,
)
from pufferlib.policies.observations import Observations, unflatten_observations
from pufferlib.pytorch import layer_init
from pufferlib.spaces import ObservationLayout

_KEYS = ("glyphs", "blstats", "message")
_GLYPH_WIDTH = 16
_REACH = 4  # cells around the hero on each side that are seen a second time, centred
_STATS_WIDTH = 64
_CHARACTER_WIDTH = 8
_MESSAGE_WIDTH = 64


class NetHack(EncodedActorCritic):
    """Reads `glyphs`, `blstats` and `message` of NLE and MiniHack; other keys are ignored.

    One table embeds the glyphs of the whole map and of the 9 by 9 cells around the hero; each of
    the two goes through its own convolutions.
    """

    def make_encoder(self, layout: ObservationLayout, activation: Activation) -> Encoder:
        if not {(key,) for key in _KEYS} <= {leaf.path for leaf in layout.leaves}:
            raise UsageError(
                f"`observation_space` of network nethack must have {', '.join(_KEYS)}, but got "
                f"{layout.space}. Try observation_keys={_KEYS}."
            )
        return NetHackParts(layout, activation)


class NetHackParts(Encoder):
    """Encodes the parts of an observation side by side."""

    def __init__(self, layout: ObservationLayout, activation: Activation) -> None:
        super().__init__()
        self.layout = layout
        shapes = {leaf.path: leaf.shape for leaf in layout.leaves}
        glyphs = next(leaf for leaf in layout.leaves if leaf.path == ("glyphs",))
        self.no_glyph = int(glyphs.highest.max())  # what NLE gives where nothing was drawn
        self.glyphs = nn.Embedding(self.no_glyph + 1, _GLYPH_WIDTH)
        height, width = glyphs.shape
        around = 2 * _REACH + 1
        # strides would leave out the last cells of other lengths
        self.margin = (0, -width % 4, 0, -height % 4)
        height, width = height + self.margin[3], width + self.margin[1]
        self.map = Convolutions(_GLYPH_WIDTH, height, width, activation)
        self.surroundings = Convolutions(_GLYPH_WIDTH, around, around, activation)
        self.stats = layer_init(nn.Linear(shapes["blstats",][0], _STATS_WIDTH))
        self.characters = nn.Embedding(256, _CHARACTER_WIDTH)
        length = shapes["message",][0]
        self.message = layer_init(nn.Linear(length * _CHARACTER_WIDTH, _MESSAGE_WIDTH))
        self.activation = activation_module(activation)
        self.out_features = (
            self.map.out_features + self.surroundings.out_features + _STATS_WIDTH + _MESSAGE_WIDTH
        )

    def forward(self, observations: Observations) -> Tensor:
        tree = unflatten_observations(observations, self.layout)
        glyphs, stats = tree["glyphs"].long().clamp(0, self.no_glyph), tree["blstats"]
        characters = self.characters(tree["message"].long()).flatten(1)
        numbers = stats.to(characters.dtype)
        # hit points and gold, score and depth differ by orders of magnitude
        numbers = numbers.sign() * numbers.abs().log1p()
        parts = (
            self.map(self._embedded(F.pad(glyphs, self.margin, value=self.no_glyph))),
            self.surroundings(self._embedded(self._around_hero(glyphs, stats))),
            self.activation(self.stats(numbers)),
            self.activation(self.message(characters)),
        )
        return torch.cat(parts, 1)

    def _embedded(self, glyphs: Tensor) -> Tensor:
        embedded: Tensor = self.glyphs(glyphs)
        return embedded.permute(0, 3, 1, 2)

    def _around_hero(self, glyphs: Tensor, stats: Tensor) -> Tensor:
        """Return the glyphs `[B, 9, 9]` with the hero in the middle, whose place `stats` give."""
        _, height, width = glyphs.shape
        padded = F.pad(glyphs, (_REACH, _REACH, _REACH, _REACH), value=self.no_glyph)
        reach = torch.arange(2 * _REACH + 1, device=glyphs.device)
        x, y = stats[:, 0].long().clamp(0, width - 1), stats[:, 1].long().clamp(0, height - 1)
        batch = torch.arange(len(glyphs), device=glyphs.device)[:, None, None]
        rows, columns = y[:, None] + reach, x[:, None] + reach
        return padded[batch, rows[:, :, None], columns[:, None, :]]
