"""Squash: tanh into the bounds of a Box, and where those bounds ask a policy to explore."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Transform, constraints

_FARTHEST = 1e3  # the largest half-width of bounds that a policy explores in full


class Squash(Transform):
    """Takes all numbers into the bounds of a Box by tanh; components without two are only shifted.

    Takes what `middle_and_reach` gives for the bounds; x = 0 becomes their middle. The
    log-determinant is finite and exact for every finite x: it never asks for 1 - tanh(x)^2, which
    is 0 in float32 from x = 9 on.
    """

    domain = constraints.real
    codomain = constraints.real
    bijective = True
    sign = 1

    def __init__(self, center: Tensor, scale: Tensor, bounded: Tensor) -> None:
        super().__init__()
        self.center, self.scale, self.bounded = center, scale, bounded

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Squash)
            and torch.equal(self.center, other.center)
            and torch.equal(self.scale, other.scale)
            and torch.equal(self.bounded, other.bounded)
        )

    def _call(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.center, self.scale, x.tanh().where(self.bounded, x))

    def _inverse(self, y: Tensor) -> Tensor:
        inner = (y - self.center) / self.scale
        return inner.clamp(-1 + 1e-7, 1 - 1e-7).atanh().where(self.bounded, inner)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh(x)^2) = 2 * (log(2) - x - log(1 + exp(-2 x)))
        slope = 2 * (math.log(2) - x - F.softplus(-2 * x)) + self.scale.log()
        return slope.where(self.bounded, 0.0)


def middle_and_reach(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the middle of bounds, half their distance, and where both say where to explore.

    They do not where one is infinite, or where they are too far apart: then the middle is the
    allowed number nearest to 0, and the reach is 1, or as much as float32 needs there.
    """
    low, high = low.double(), high.double()
    center, scale = (low + high) / 2, (high - low) / 2
    bounded = (scale > 0) & (scale <= _FARTHEST)
    nearest = torch.zeros_like(center).clamp(low, high)
    reach = (nearest.abs() / _FARTHEST).clamp(min=1)
    return center.where(bounded, nearest).float(), scale.where(bounded, reach).float(), bounded
