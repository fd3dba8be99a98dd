"""Proximal Policy Optimization (Schulman et al. 2017) as pure functions: advantages and loss.

Tensors have one common shape, `[S, T]` or `[S*T]`; no function waits for a device. `masks` is true
where a step carries data: masked steps count in no mean and get no gradient. None means that all
steps count, and costs nothing. `weights` make up for steps that were drawn more often than others:
they scale each step's part of the loss, and None is 1 for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pufferlib import native

# --- advantages -----------------------------------------------------------------------------------
#
#     delta_t = rho_t * (r_t + gamma * next_t - v_t)
#     A_t     = delta_t + gamma * gae_lambda * c_t * A_{t+1}
#     rho_t   = min(ratio_t, rho_clip),  c_t = min(ratio_t, c_clip),  both 1 without ratios
#
# This is GAE (Schulman et al. 2016), and V-trace (Espeholt et al. 2018) where ratios are given. At
# ends of episodes next_t is 0 after a terminal and the value of the final observation after a
# truncation; elsewhere it is v_{t+1}. After either end A_{t+1} counts as 0, for it belongs to
# another episode.
#
# A masked step carries no data. Its A is 0 and nothing of it is read. The step before it is the
# agent's last: unless it was truncated it ends like a terminal, since nothing follows.


class Targets(NamedTuple):
    """The targets that a rollout is trained on, both [S, T]."""

    advantages: Tensor  # of the policy
    returns: Tensor  # of the value


class Steps(NamedTuple):
    """Consecutive steps of N slots in order of time, all [N, T] but `slots`."""

    rewards: Tensor
    values: Tensor
    terminals: Tensor
    truncations: Tensor
    final_values: Tensor  # counts only where `truncations`
    masks: Tensor | None = None  # None: every step carries data
    ratios: Tensor | None = None
    slots: Tensor | None = None  # [N]; None: all slots in order


def compute_advantages(steps: Steps, bootstrap: Tensor, **factors: float) -> Tensor:
    """Return advantages `[N, T]`; `advantages + values` are the returns to fit the value to.

    `bootstrap` `[N]` is the value of the observation after the last step (0 where that slot is
    masked). No gradient flows. Float32 on the CPU is computed in C, all else by the twin in torch,
    whose keywords are the `factors`.
    """
    floats = (steps.rewards, steps.values, bootstrap, steps.final_values, steps.ratios)
    for part in floats:
        if part is not None and (part.device.type != "cpu" or part.dtype != torch.float32):
            return compute_advantages_torch(steps, bootstrap, **factors)
    tensors = (steps.rewards, steps.values, bootstrap, *steps[2:7])
    given: list[Any] = [
        None if part is None else part.detach().contiguous().numpy() for part in tensors
    ]
    scanned = native.advantage_scan(*given, **factors)
    return torch.from_numpy(scanned)


@torch.no_grad()
def compute_advantages_torch(
    steps: Steps,
    bootstrap: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> Tensor:
    """Do what `compute_advantages` does on any device: backwards over T, all segments at once."""
    rewards, values, terminals, truncations, final_values, masks, ratios, _ = steps
    truncations = truncations & ~terminals
    next_values = torch.cat((values[:, 1:], bootstrap.unsqueeze(1)), 1)
    goes_on = ~(terminals | truncations)  # whether A_{t+1} counts
    if masks is not None:
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


# --- loss -----------------------------------------------------------------------------------------


class PpoLoss(NamedTuple):
    """The loss to differentiate, and its detached parts."""

    loss: Tensor
    policy_loss: Tensor
    value_loss: Tensor
    entropy: Tensor
    approx_kl: Tensor  # from the rollout's policy to the present one
    old_approx_kl: Tensor  # the simple, noisier estimate of the same
    clipfrac: Tensor


def ppo_loss(
    logprobs: Tensor,
    entropy: Tensor,
    values: Tensor,
    *,
    old_logprobs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    masks: Tensor | None = None,
    weights: Tensor | None = None,
    clip_coef: float,
    vf_coef: float,
    ent_coef: float,
    vf_clip_coef: float | None = None,
) -> PpoLoss:
    """Join clipped surrogate, value error and entropy: `policy + vf_coef * value - ent_coef * H`.

    The first three inputs come from the present policy and carry gradients; the others come from
    the rollout. Advantages are used as they are: normalise them before, over a whole minibatch,
    since this function may get a part of it.
    """
    logratio = logprobs - old_logprobs
    if masks is not None:  # a masked row may hold anything: exp of it could be inf
        logratio = logratio.where(masks, 0.0)
    ratio = logratio.exp()
    surrogate = policy_loss(ratio, advantages, clip_coef, masks, weights)
    error = value_loss(values, returns, old_values, vf_clip_coef, masks, weights)
    bonus = _mean(entropy, masks, weights)
    loss = surrogate + vf_coef * error - ent_coef * bonus
    with torch.no_grad():
        ratio, logratio = ratio.detach(), logratio.detach()
        return PpoLoss(
            loss,
            surrogate.detach(),
            error.detach(),
            bonus.detach(),
            approx_kl(ratio, logratio, masks),
            -_mean(logratio, masks),
            clipfrac(ratio, clip_coef, masks),
        )


def policy_loss(
    ratio: Tensor,
    advantages: Tensor,
    clip_coef: float,
    masks: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the clipped surrogate of eq. 7, negated; `ratio` is new over old probability."""
    clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
    return -_mean(torch.minimum(ratio * advantages, clipped * advantages), masks, weights)


def value_loss(
    values: Tensor,
    returns: Tensor,
    old_values: Tensor,
    vf_clip_coef: float | None = None,
    masks: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return half the mean squared error of `values`.

    With `vf_clip_coef`, moving a value further than that from its old one earns nothing.
    """
    if vf_clip_coef is None:
        if masks is None and weights is None:
            return 0.5 * F.mse_loss(values, returns)
        return 0.5 * _mean((values - returns).square(), masks, weights)
    clipped = old_values + (values - old_values).clamp(-vf_clip_coef, vf_clip_coef)
    errors = torch.maximum((values - returns).square(), (clipped - returns).square())
    return 0.5 * _mean(errors, masks, weights)


def approx_kl(ratio: Tensor, logratio: Tensor, masks: Tensor | None = None) -> Tensor:
    """Estimate the KL divergence as E[(r - 1) - log r]: unbiased, and never below 0."""
    return _mean((ratio - 1) - logratio, masks)


def clipfrac(ratio: Tensor, clip_coef: float, masks: Tensor | None = None) -> Tensor:
    """Return the share of steps whose ratio lies outside of the clip range."""
    return _mean(((ratio - 1).abs() > clip_coef).float(), masks)


def normalise_advantages(
    advantages: Tensor,
    masks: Tensor | None = None,
    weights: Tensor | None = None,
    moments: Tensor | None = None,
    floor: float = 1e-8,
) -> Tensor:
    """Shift and scale to mean 0 and standard deviation 1; masked steps become 0.

    A deviation below `floor` counts as `floor`, so that small errors of the value function are not
    amplified where there was no reward. With `weights` both are those of the weighted steps. Where
    several processes have a part of the steps each, `moments` are those of all steps.
    """
    if masks is None and weights is None and moments is None:
        std, mean = torch.std_mean(advantages, correction=0)
        return (advantages - mean) / std.clamp(min=floor)
    if moments is None:
        moments = moments_of(advantages, masks, weights)
    mean, variance = mean_and_variance(moments)
    offsets = advantages - mean
    offsets = offsets if masks is None else offsets.where(masks, 0.0)
    return (offsets / variance.sqrt().clamp(min=floor)).to(advantages.dtype)


def explained_variance(
    values: Tensor,
    returns: Tensor,
    masks: Tensor | None = None,
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return 1 - Var[returns - values] / Var[returns]: 1 is perfect, 0 no better than a constant.

    It is nan where all returns are equal. Where several processes have a part of the steps each,
    `total` sums a tensor over all of them.
    """
    errors = returns - values
    if total is None:
        spread, left = _variance(returns, masks), _variance(errors, masks)
    else:
        moments = total(torch.stack((moments_of(returns, masks), moments_of(errors, masks))))
        (_, spread), (_, left) = map(mean_and_variance, moments)
    return (1 - left / spread).where(spread > 0, torch.nan).float()


def moments_of(x: Tensor, masks: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
    """Return number, weight, sum and sum of squares of the steps that count: [4], to be added up.

    `weights` broadcast against `x`; without any, each step weighs 1.
    """
    count = torch.ones_like(x, dtype=torch.float64) if masks is None else masks.double()
    weight = count if weights is None else count * weights.double()
    kept = x.double() if masks is None else x.double().where(masks, 0.0)
    return torch.stack(
        (count.sum(), weight.sum(), (weight * kept).sum(), (weight * kept.square()).sum())
    )


def mean_and_variance(moments: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance of `moments_of`; a variance within rounding error is 0."""
    _, weight, sum_, squares = moments
    weight = weight.where(weight > 0, 1.0)
    mean, square = sum_ / weight, squares / weight
    variance = square - mean.square()
    return mean, variance.where(variance > 1e-12 * square, 0.0)


def _variance(x: Tensor, masks: Tensor | None) -> Tensor:
    return _mean((x - _mean(x, masks)).square(), masks)


def _mean(x: Tensor, masks: Tensor | None, weights: Tensor | None = None) -> Tensor:
    """Return the mean of the steps that count, 0 if none does."""
    if weights is not None:
        x = x * weights
    if masks is None:
        return x.mean()
    return x.where(masks, 0.0).sum() / masks.sum().clamp(min=1)
