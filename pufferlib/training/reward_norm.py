"""Reward normalisation: rewards divided by the running deviation of discounted returns.

The statistics move once an iteration. Their buffers are all that a checkpoint needs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pufferlib.distributed.world import ALONE, World
from pufferlib.policies.normalisation import CLIP, Moments

RETURN_FLOOR = 0.01  # least deviation of returns: rewards grow a hundredfold at the most


class RewardNorm(nn.Module):
    """Divides rewards by the standard deviation of the discounted return, and cuts them to +-CLIP.

    The return is a slot's running sum, `R_t = gamma * R_{t-1} + r_t`, which starts again with each
    episode. No mean is subtracted: that would turn a reward into a punishment. The deviation counts
    as at least RETURN_FLOOR, so the first reward after a long time without any is not blown up.
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
        factor = self.moments.var.clamp(min=RETURN_FLOOR**2).rsqrt().to(rewards.dtype)
        return (rewards * factor).clamp_(-CLIP, CLIP)

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
