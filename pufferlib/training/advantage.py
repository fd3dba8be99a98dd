"""Advantages of a rollout `[segments, horizon]`: one formula, in C on the CPU, else in torch.

    delta_t = rho_t * (r_t + gamma * next_t - v_t)
    A_t     = delta_t + gamma * gae_lambda * c_t * A_{t+1}
    rho_t   = min(ratio_t, rho_clip),  c_t = min(ratio_t, c_clip),  both 1 without ratios

This is GAE (Schulman et al. 2016), and V-trace (Espeholt et al. 2018) where ratios are given. At
ends of episodes next_t is 0 after a terminal and the value of the final observation after a
truncation; elsewhere it is v_{t+1}. After either end A_{t+1} counts as 0, for it belongs to another
episode.

A masked step carries no data. Its A is 0 and nothing of it is read. The step before it is the
agent's last: unless it was truncated it ends like a terminal, since nothing follows for this agent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def compute_advantages(
    rewards: Tensor,
    values: Tensor,
    bootstrap: Tensor,
    terminals: Tensor,
    truncations: Tensor,
    final_values: Tensor,
    masks: Tensor | None = None,
    ratios: Tensor | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """Return advantages `[S, T]`; `advantages + values` are the returns to fit the value to.

    All inputs are `[S, T]` but `bootstrap` `[S]`, the value of the observation after the last step
    (0 where that slot is masked). `final_values` counts only where `truncations`. No gradient
    flows.
    """
    floats = [rewards, values, bootstrap, final_values, *([] if ratios is None else [ratios])]
    on_cpu = all(part.device.type == "cpu" and part.dtype == torch.float32 for part in floats)
    if not on_cpu:
        return compute_advantages_torch(
            rewards,
            values,
            bootstrap,
            terminals,
            truncations,
            final_values,
            masks,
            ratios,
            gamma=gamma,
            gae_lambda=gae_lambda,
            rho_clip=rho_clip,
            c_clip=c_clip,
        )
    from pufferlib import native  # loads the C core, which a run on a GPU may not need

    def array(part: Tensor | None) -> Any:
        return None if part is None else part.detach().contiguous().numpy()

    scanned = native.advantage_scan(
        array(rewards),
        array(values),
        array(bootstrap),
        array(terminals.bool()),
        array(truncations.bool()),
        array(final_values),
        array(None if masks is None else masks.bool()),
        array(ratios),
        gamma,
        gae_lambda,
        rho_clip,
        c_clip,
    )
    return torch.from_numpy(scanned)


@torch.no_grad()
def compute_advantages_torch(
    rewards: Tensor,
    values: Tensor,
    bootstrap: Tensor,
    terminals: Tensor,
    truncations: Tensor,
    final_values: Tensor,
    masks: Tensor | None = None,
    ratios: Tensor | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """Do what `compute_advantages` does on any device: backwards over T, all segments at once."""
    terminals = terminals.bool()
    truncations = truncations.bool() & ~terminals
    next_values = torch.cat((values[:, 1:], bootstrap.unsqueeze(1)), 1)
    goes_on = ~(terminals | truncations)  # whether A_{t+1} counts
    if masks is not None:
        masks = masks.bool()
        next_masks = torch.cat((masks[:, 1:], torch.ones_like(masks[:, :1])), 1)
        next_values = next_values.where(next_masks, 0.0)
        goes_on &= masks & next_masks
    # `where` and not a product: rows that do not count may hold anything, nan included
    next_values = final_values.where(truncations, next_values.where(~terminals, 0.0))
    deltas = rewards + gamma * next_values - values
    decays = (gamma * gae_lambda) * goes_on.to(values.dtype)
    if ratios is not None:
        deltas = ratios.clamp(max=rho_clip) * deltas
        decays = ratios.clamp(max=c_clip) * decays
    if masks is not None:
        deltas = deltas.where(masks, 0.0)
        decays = decays.where(masks, 0.0)

    advantages = torch.empty_like(deltas)
    following = torch.zeros_like(bootstrap)
    for t in reversed(range(deltas.shape[1])):
        following = torch.addcmul(deltas[:, t], decays[:, t], following)
        advantages[:, t] = following
    return advantages


@torch.no_grad()
def without_rho(
    corrections: Tensor,
    following: Tensor,
    ratios: Tensor,
    ends: Tensor,
    *,
    decay: float,
    rho_clip: float,
    c_clip: float,
) -> Tensor:
    """Return the policy's advantages for the A_t of V-trace, `corrections`, which values move by.

    That is `r_t + gamma * next_t - v_t + decay * A_{t+1}`: the same without the weight rho_t of the
    step itself, since the ratio in PPO's loss weighs it already. `following` `[S]` is A_{t+1} after
    the last step; `decay` is gamma * gae_lambda.
    """
    after = torch.cat((corrections[:, 1:], following.unsqueeze(1)), 1).where(~ends, 0.0)
    rho, c = ratios.clamp(1e-8, rho_clip), ratios.clamp(max=c_clip)
    return (corrections - decay * c * after) / rho + decay * after
