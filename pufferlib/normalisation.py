"""Running statistics of what a run has seen: observations of mean 0, rewards of steady size.

Both are fed once an iteration, so that all of an iteration sees the same numbers: what the policy
was shown in the rollout is what it is trained on. Their buffers are all that a checkpoint needs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pufferlib.distributed import ALONE, World
from pufferlib.errors import UsageError
from pufferlib.pytorch import unflatten_observations
from pufferlib.spaces import Leaf, ObservationLayout

CPU = torch.device("cpu")
CLIP = 10.0  # standard deviations; beyond, an observation says no more
_EPSILON = 1e-8  # of the variance: a component that never moves stays finite


class Moments(nn.Module):
    """Mean and variance of each of `size` components over all rows ever given."""

    count: Tensor
    mean: Tensor
    var: Tensor

    def __init__(self, size: int, device: torch.device, world: World = ALONE) -> None:
        super().__init__()
        self._world = world
        # sums over millions of rows; only MPS knows no float64
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self.register_buffer("count", torch.zeros((), dtype=dtype, device=device))
        self.register_buffer("mean", torch.zeros(size, dtype=dtype, device=device))
        self.register_buffer("var", torch.ones(size, dtype=dtype, device=device))

    @torch.no_grad()
    def update(self, rows: Tensor, masks: Tensor | None = None) -> None:
        """Join rows `[R, size]`, all but those masked `[R]`, to what is known (Chan et al. 1979).

        A component that is not finite in any of the rows is not joined: it would stay so for ever.
        """
        rows = rows.to(self.mean.dtype)
        if masks is None:
            count = torch.full_like(self.count, len(rows))
            var, mean = torch.var_mean(rows, 0, correction=0)
        else:
            kept = masks.unsqueeze(1)
            count = masks.sum().to(self.count.dtype)
            divisor = count.clamp(min=1)
            mean = rows.where(kept, 0.0).sum(0) / divisor
            var = (rows - mean).where(kept, 0.0).square().sum(0) / divisor
        if self._world.size > 1:
            count, mean, var = self._joined(count, mean, var)
        total = (self.count + count).clamp(min=1)
        share = count / total
        offset = mean - self.mean
        mean = self.mean + offset * share
        var = self.var * (self.count / total) + var * share
        var = var + offset.square() * (self.count / total) * share
        sound = mean.isfinite() & var.isfinite() & (count > 0)
        self.mean.copy_(mean.where(sound, self.mean))
        self.var.copy_(var.where(sound, self.var))
        self.count.add_(count)

    def _joined(self, count: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moments of the rows of all processes."""
        total = self._world.sum_(count.clone())
        divisor = total.clamp(min=1)
        middle = self._world.sum_(mean * count) / divisor
        squares = self._world.sum_((var + (mean - middle).square()) * count)
        return total, middle, squares / divisor


class ObservationNorm(nn.Module):
    """Shifts and scales the Box leaves of floats in rows of observations, clipped to +-CLIP.

    All other leaves stay as they are. Rows keep shape and dtype, so that a policy sees no
    difference but that of the numbers. Before the first `update` rows are only clipped.
    """

    def __init__(
        self, layout: ObservationLayout, device: torch.device = CPU, world: World = ALONE
    ) -> None:
        super().__init__()
        self._layout = layout
        self._leaves = [
            leaf for leaf in layout.leaves if leaf.kind == "box" and leaf.dtype.kind == "f"
        ]
        if not self._leaves:
            raise UsageError(
                "`norm_obs` must find a Box of floats among the observations, but got "
                f"{layout.space}. Try norm_obs=False."
            )
        self.moments = nn.ModuleList(Moments(leaf.size, device, world) for leaf in self._leaves)
        self._factors: list[tuple[Tensor, Tensor]] = []
        self._refresh()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        loaded = super().load_state_dict(*args, **kwargs)
        self._refresh()
        return loaded

    @torch.no_grad()
    def forward(self, rows: Tensor) -> Tensor:
        """Return rows `[..., *row]` as a policy shall see them."""
        if not self._layout.structured:
            offset, factor = self._factors[0]
            return ((rows - offset) * factor).clamp_(-CLIP, CLIP)
        rows = rows.clone()
        for leaf, (offset, factor) in zip(self._leaves, self._factors, strict=True):
            part = self._part(rows, leaf)
            part.sub_(offset).mul_(factor).clamp_(-CLIP, CLIP)
        return rows

    def update(self, rows: Tensor, masks: Tensor | None = None) -> None:
        """Learn from rows `[..., *row]` of the env, all but those masked `[...]`."""
        flat = None if masks is None else masks.flatten()
        for leaf, moments in zip(self._leaves, self.moments, strict=True):
            moments.update(self._part(rows, leaf).reshape(-1, leaf.size), flat)  # type: ignore[operator]
        self._refresh()

    def _part(self, rows: Tensor, leaf: Leaf) -> Tensor:
        part = unflatten_observations(rows, self._layout)
        for key in leaf.path:
            part = part[key]
        view: Tensor = part
        return view

    def _refresh(self) -> None:
        self._factors = [
            self._factor(leaf, moments)
            for leaf, moments in zip(self._leaves, self.moments, strict=True)
        ]

    def _factor(self, leaf: Leaf, moments: Any) -> tuple[Tensor, Tensor]:
        dtype = torch.float32 if leaf.dtype.itemsize < 8 else moments.mean.dtype
        factor = (moments.var + _EPSILON).rsqrt()
        return moments.mean.to(dtype).view(leaf.shape), factor.to(dtype).view(leaf.shape)


class RewardNorm(nn.Module):
    """Divides rewards by the standard deviation of the discounted return.

    The return is a slot's running sum, `R_t = gamma * R_{t-1} + r_t`, begun anew with each episode.
    No mean is subtracted: that would turn a reward into a punishment.
    """

    returns: Tensor

    def __init__(
        self, num_slots: int, gamma: float, device: torch.device, world: World = ALONE
    ) -> None:
        super().__init__()
        self.gamma = gamma
        self.moments = Moments(1, device, world)
        self.register_buffer("returns", torch.zeros(num_slots, device=device))

    @torch.no_grad()
    def forward(self, rewards: Tensor) -> Tensor:
        """Return rewards of any shape, scaled."""
        return rewards * (self.moments.var + _EPSILON).rsqrt().to(rewards.dtype)

    @torch.no_grad()
    def update(
        self,
        rewards: Tensor,
        ends: Tensor,
        masks: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> None:
        """Learn from the next rewards `[N, T]` of every slot; `ends` is true where episodes end.

        With `slots` `[N]` the rows are those of some slots only, each named once.
        """
        if masks is not None:
            rewards = rewards.where(masks, 0.0)
        goes_on = self.gamma * (~ends).to(rewards.dtype)
        sums = torch.empty_like(rewards)
        last = self.returns if slots is None else self.returns[slots]
        for t in range(rewards.shape[1]):
            now = last + rewards[:, t]
            sums[:, t] = now
            last = now * goes_on[:, t]
        self.moments.update(sums.reshape(-1, 1), None if masks is None else masks.reshape(-1))
        last = last.where(last.isfinite(), 0.0)
        self.returns[slice(None) if slots is None else slots] = last
