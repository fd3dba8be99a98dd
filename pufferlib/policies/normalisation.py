"""Normalisation of observations and rewards by running statistics.

Statistics are updated once per iteration, so that one iteration uses the same numbers throughout.
Only in the first iteration, which has none yet, those of observations are updated at every step. A
policy is trained on the observations as the rollout stored them. A checkpoint keeps the buffers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pufferlib import native
from pufferlib.distributed.world import ALONE, World
from pufferlib.errors import UsageError
from pufferlib.policies.observations import leaf_of, unflatten_observations
from pufferlib.spaces import Leaf, ObservationLayout

CPU = torch.device("cpu")
CLIP = 10.0  # standard deviations; larger observations and rewards are clipped
RETURN_FLOOR = 0.01  # least deviation of returns: rewards grow a hundredfold at the most
_EPSILON = 1e-8  # of the variance: a component that never moves stays finite


class Moments(nn.Module):
    """Mean and variance of each of `size` components over all rows ever given."""

    count: Tensor
    mean: Tensor
    var: Tensor

    def __init__(self, size: int, device: torch.device, world: World = ALONE) -> None:
        super().__init__()
        self._world = world
        # float64 for sums over millions of rows; MPS has none
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self.register_buffer("count", torch.zeros((), dtype=dtype, device=device))
        self.register_buffer("mean", torch.zeros(size, dtype=dtype, device=device))
        self.register_buffer("var", torch.ones(size, dtype=dtype, device=device))

    def clear(self) -> None:
        """Forget all rows."""
        self.count.zero_()
        self.mean.zero_()
        self.var.fill_(1.0)

    @torch.no_grad()
    def update(self, rows: Tensor, masks: Tensor | None = None) -> None:
        """Add rows `[R, size]` where `masks` `[R]` is true (Chan et al. 1979).

        A component with a non-finite row is not updated: it would stay non-finite for ever.
        """
        rows = rows.to(self.mean.dtype)
        masks = rows.new_ones(len(rows), dtype=torch.bool) if masks is None else masks
        kept = masks.unsqueeze(1)
        count = masks.sum().to(self.count.dtype)
        divisor = count.clamp(min=1)
        mean = rows.where(kept, 0.0).sum(0) / divisor
        var = (rows - mean).where(kept, 0.0).square().sum(0) / divisor
        self.merge(count, mean, var)

    def merge(self, count: Tensor, mean: Tensor, var: Tensor) -> None:
        """Add the moments of more rows, summed over all processes."""
        count, mean, var = self.over_processes(count, mean, var)
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

    def merge_numbers(self, count: float, mean: float, var: float) -> None:
        """Do what `merge` does for one component, without an operation of torch for each step."""
        if self._world.size > 1:
            numbers = (torch.tensor([x], dtype=self.mean.dtype) for x in (count, mean, var))
            count, mean, var = (part.item() for part in self.over_processes(*numbers))
        own, own_mean, own_var = self.count.item(), self.mean.item(), self.var.item()
        total = max(own + count, 1.0)
        share, own_share, offset = count / total, own / total, mean - own_mean
        mean = own_mean + offset * share
        var = own_var * own_share + var * share + offset * offset * own_share * share
        if math.isfinite(mean) and math.isfinite(var) and count > 0:
            self.mean.fill_(mean)
            self.var.fill_(var)
        self.count.fill_(own + count)

    def over_processes(
        self, count: Tensor, mean: Tensor, var: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moments of the rows of all processes, given those of this one."""
        if self._world.size == 1:
            return count, mean, var
        total = self._world.sum_(count.clone())
        divisor = total.clamp(min=1)
        middle = self._world.sum_(mean * count) / divisor
        squares = self._world.sum_((var + (mean - middle).square()) * count)
        return total, middle, (squares / divisor).where(total > 0, var)


class NormMemory(NamedTuple):
    """What `ObservationNorm.memory` gives: two tensors to read, three to write."""

    offset: Tensor
    factor: Tensor
    num_rows: Tensor
    mean: Tensor
    var: Tensor


class ObservationNorm(nn.Module):
    """Shifts and scales the float Box leaves of observations, clipped to +-CLIP.

    All other leaves are left as they are, and so are images that policies scale by their bounds.
    Rows keep shape and dtype. A rollout records its observations (`note`, then `end_step`); `learn`
    adds them to the statistics at its end. Before the first `learn`, rows are scaled by the records
    so far. `in_step`: all processes end their steps together, and share even those.
    """

    def __init__(
        self,
        layout: ObservationLayout,
        device: torch.device = CPU,
        world: World = ALONE,
        in_step: bool = True,
    ) -> None:
        super().__init__()
        self._layout = layout
        self._leaves = [
            leaf
            for leaf in layout.leaves
            if leaf.kind == "box" and leaf.dtype.kind == "f" and leaf.unit_range is None
        ]
        if not self._leaves:
            raise UsageError(
                "`norm_obs` needs a Box of floats among the observations, but got "
                f"{layout.space}. Try norm_obs=False."
            )
        self.moments = nn.ModuleList(Moments(leaf.size, device, world) for leaf in self._leaves)
        # of this process and iteration; a plain list, so not in checkpoints
        self._noted = [Moments(leaf.size, device) for leaf in self._leaves]
        self._rows: list[Tensor] = []  # of this step
        self._masks: list[Tensor] = []
        self._joins_steps = in_step or world.size == 1
        self._is_new = True
        self._factors: list[tuple[Tensor, Tensor]] = []
        self._refresh()

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        loaded = super().load_state_dict(*args, **kwargs)
        self._is_new = not any(float(moments.count) for moments in self._all_moments())
        self._refresh()
        return loaded

    @torch.no_grad()
    def forward(self, rows: Tensor) -> Tensor:
        """Return rows `[..., *row]`, normalised."""
        if not self._layout.structured:
            offset, factor = self._factors[0]
            return ((rows - offset) * factor).clamp_(-CLIP, CLIP)
        rows = rows.clone()
        for leaf, (offset, factor) in zip(self._leaves, self._factors, strict=True):
            part = self._part(rows, leaf)
            part.sub_(offset).mul_(factor).clamp_(-CLIP, CLIP)
        return rows

    def note(self, rows: Tensor, masks: Tensor) -> None:
        """Record rows `[B, *row]` of the env where `masks` `[B]` is true, until the step ends."""
        self._rows.append(rows.clone())
        self._masks.append(masks.clone())

    def end_step(self) -> None:
        """Add the records of this step to those of this iteration."""
        rows, masks = torch.cat(self._rows), torch.cat(self._masks)
        self._rows, self._masks = [], []
        for leaf, noted in zip(self._leaves, self._noted, strict=True):
            noted.update(self._part(rows, leaf).reshape(-1, leaf.size), masks)
        if self._is_new:
            self._refresh()

    def memory(self) -> NormMemory | None:
        """Return the parts for code that normalises the rows of an iteration itself.

        None where that is not possible: rows have leaves, or their factors still change with every
        step. The code must set number, mean and variance of all rows before `learn`.
        """
        if self._is_new or self._layout.structured:
            return None
        [noted] = self._noted
        return NormMemory(*self._factors[0], noted.count, noted.mean, noted.var)

    def learn(self) -> None:
        """Add the records of this iteration to the statistics."""
        for moments, noted in zip(self._all_moments(), self._noted, strict=True):
            moments.merge(noted.count, noted.mean, noted.var)
            noted.clear()
        self._is_new = False
        self._refresh()

    def _all_moments(self) -> list[Moments]:
        return list(self.moments)  # type: ignore[arg-type]

    def _part(self, rows: Tensor, leaf: Leaf) -> Tensor:
        return leaf_of(unflatten_observations(rows, self._layout), leaf)

    def _refresh(self) -> None:
        pairs = zip(self._leaves, self._all_moments(), self._noted, strict=True)
        self._factors = [self._factor(*each) for each in pairs]

    def _factor(self, leaf: Leaf, moments: Moments, noted: Moments) -> tuple[Tensor, Tensor]:
        dtype = torch.float32 if leaf.dtype.itemsize < 8 else moments.mean.dtype
        mean, var = moments.mean, moments.var
        if self._is_new:
            mean, var = noted.mean, noted.var
            if self._joins_steps:
                _, mean, var = moments.over_processes(noted.count, mean, var)
        factor = (var + _EPSILON).rsqrt()
        return mean.to(dtype).view(leaf.shape), factor.to(dtype).view(leaf.shape)


class RewardNorm(nn.Module):
    """Divides rewards by the standard deviation of the discounted return, clipped to +-CLIP.

    The return is a slot's running sum, `R_t = gamma * R_{t-1} + r_t`, which restarts with each
    episode. No mean is subtracted: that would change the sign of rewards. The deviation is at least
    RETURN_FLOOR, so the first reward after a long time without any is not amplified.
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
        return self.scale_(rewards.clone())

    @torch.no_grad()
    def scale_(self, rewards: Tensor) -> Tensor:
        """Scale rewards of any shape in place, and return them."""
        factor = self.moments.var.clamp(min=RETURN_FLOOR**2).rsqrt().to(rewards.dtype)
        return rewards.mul_(factor).clamp_(-CLIP, CLIP)

    @torch.no_grad()
    def update(
        self,
        rewards: Tensor,
        ends: Tensor,
        masks: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> None:
        """Update from the next rewards `[N, T]` of every slot; `ends` is true where episodes end.

        With `slots` `[N]`, which must be unique, the rows are those of some slots only.
        """
        chosen: slice | Tensor = slice(None) if slots is None else slots
        last = self.returns[chosen]
        if rewards.device.type == "cpu" and rewards.dtype == torch.float32:
            found = native.return_moments(
                rewards.contiguous().numpy(),
                ends.contiguous().numpy(),
                None if masks is None else masks.contiguous().numpy(),
                self.gamma,
                last.numpy(),
            )
            if slots is not None:
                self.returns[chosen] = last
            self.moments.merge_numbers(*found)
            return
        if masks is not None:
            rewards = rewards.where(masks, 0.0)
        goes_on = self.gamma * (~ends.t()).to(rewards.dtype).contiguous()
        sums = rewards.t().clone(memory_format=torch.contiguous_format)  # a row for each step
        for now, factor in zip(sums, goes_on, strict=True):
            now += last
            last = now * factor
        sums = sums.t().reshape(-1, 1)
        self.moments.update(sums, None if masks is None else masks.reshape(-1))
        self.returns[chosen] = last.where(last.isfinite(), 0.0)
