"""What a policy said about its actions, in one form: drawn from in rollouts, judged in training.

`policy_output` brings what `forward` returned into a `PolicyOutput`; `sample`, `evaluate_actions`,
`env_actions` and `mode` work on that. Rows of actions lie as `spaces.ActionLayout` says.

Box actions are stored as they were drawn, and `env_actions` makes of them what the env takes: first
the transforms of the policy, such as `Squash`, then a cut to the bounds of the space. All
log-probabilities are those of the drawn numbers. So a Gaussian beyond a bound counts as what it
was, not as the bound, and a squashed action needs no inverse, which float32 loses near a bound.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    OneHotCategorical,
    Transform,
    TransformedDistribution,
    constraints,
)

from pufferlib.errors import UsageError
from pufferlib.policies.recurrent import State
from pufferlib.spaces import ActionLayout

_FARTHEST = 1e3  # the largest reach of bounds that say where to explore
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_ILLEGAL = -1e30  # logit of an illegal choice: its probability is exactly 0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)  # of a standard Gaussian's mean


class PolicyOutput(NamedTuple):
    """What a policy said about B observations, whatever form its `forward` returned it in."""

    value: Tensor  # [B]
    logits: Tensor | None = None  # [B, sum(nvec)]; None without discrete components
    mean: Tensor | None = None  # [B, num_continuous]; None without Box components
    std: Tensor | None = None  # [B, num_continuous]
    distribution: Distribution | None = None  # in place of logits or mean, if it is no common one
    state: State = None
    transforms: tuple[Transform, ...] = ()  # of each continuous component, after it is drawn
    steps: tuple[PolicyOutput, ...] = ()  # one for each of T steps, where those cannot be joined


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


# --- what a policy returned -----------------------------------------------------------------------


def policy_output(result: Any, batch: int, layout: ActionLayout) -> PolicyOutput:
    """Bring what `forward` returned into one form; a UsageError shows what it was otherwise."""
    if isinstance(result, PolicyOutput):
        return result
    if not isinstance(result, tuple | list) or len(result) < 2:
        raise _unexpected(result, layout)
    discrete, continuous, rest = _parted(result, layout)
    value = rest[0] if rest else None
    if not isinstance(value, Tensor) or value.numel() != batch or len(rest) > 2:
        raise _unexpected(result, layout)
    output = PolicyOutput(value.reshape(batch), state=rest[1] if len(rest) > 1 else None)
    if layout.nvec:
        logits = _logits(discrete, batch)
        if logits is not None and logits.shape[1] == sum(layout.nvec):
            output = output._replace(logits=logits)
        elif _is_uncommon(discrete) and not layout.num_continuous:
            output = output._replace(distribution=discrete)
        else:
            raise _unexpected(result, layout)
    if layout.num_continuous:
        gaussian = _gaussian(continuous, batch)
        if gaussian is not None and gaussian[0].shape[1] == layout.num_continuous:
            mean, std, transforms = gaussian
            output = output._replace(mean=mean, std=std, transforms=transforms)
        elif _is_uncommon(continuous):
            output = output._replace(distribution=continuous)
        else:
            raise _unexpected(result, layout)
    return output


def _parted(result: tuple[Any, ...] | list[Any], layout: ActionLayout) -> tuple[Any, Any, Any]:
    """Return what describes the discrete actions, what the continuous ones, and all that follows.

    The continuous ones are (mean, std) or a distribution.
    """
    first, rest = result[0], list(result[1:])
    if not layout.num_continuous:
        return first, None, rest
    discrete = None
    if layout.nvec:
        last = first[-1] if isinstance(first, tuple | list) else None
        if isinstance(last, Distribution) and _discrete_logits(last) is None:
            return list(first[:-1]), last, rest  # ([Categorical, Normal], value)
        discrete, first, rest = first, rest[0], rest[1:]
    if isinstance(first, Tensor):
        return discrete, (first, *rest[:1]), rest[1:]
    return discrete, first, rest


def _logits(parts: Any, batch: int) -> Tensor | None:
    """Return logits `[B, n]` of a tensor, a distribution of choices, or several of these."""
    if isinstance(parts, Distribution):
        parts = _discrete_logits(parts)
    if isinstance(parts, Tensor):
        return _rows(parts, batch)
    if not isinstance(parts, tuple | list) or not parts:
        return None
    tensors = []
    for part in parts:
        logits = None if isinstance(part, tuple | list) else _logits(part, batch)
        if logits is None:
            return None
        tensors.append(logits)
    return torch.cat(tensors, 1)


def _rows(part: Tensor, batch: int) -> Tensor | None:
    """Return a tensor as `[B, ...]`; None where it does not divide into so many rows."""
    if batch == 0:  # a process may have no segment of a minibatch
        return part.reshape(0, part.shape[-1])
    return part.reshape(batch, -1) if part.numel() % batch == 0 else None


def _discrete_logits(distribution: Distribution) -> Tensor | None:
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    if isinstance(distribution, Categorical | OneHotCategorical):
        return distribution.logits
    if isinstance(distribution, Bernoulli):  # a component of two choices
        ones = distribution.logits
        return torch.stack((torch.zeros_like(ones), ones), -1)
    return None


def _gaussian(parts: Any, batch: int) -> tuple[Tensor, Tensor, tuple[Transform, ...]] | None:
    """Return mean and std `[B, m]`, and what follows them, of a pair or a distribution."""
    transforms: tuple[Transform, ...] = ()
    if isinstance(parts, Distribution):
        base: Any = parts
        while isinstance(base, Independent | TransformedDistribution):
            if isinstance(base, TransformedDistribution):
                transforms = (*base.transforms, *transforms)
            base = base.base_dist
        elementwise = all(part.domain.event_dim == 0 for part in transforms)
        if not isinstance(base, Normal) or not elementwise:
            return None
        if transforms and base.loc.shape[:-1] != (batch,):  # their own tensors may have that shape
            return None
        parts = (base.loc, base.scale)
    if not isinstance(parts, tuple | list) or len(parts) != 2:
        return None
    mean, std = parts
    flat = _rows(mean, batch) if isinstance(mean, Tensor) else None
    if flat is None or not isinstance(std, Tensor):
        return None
    if std.numel() == mean.numel():
        return flat, std.reshape(flat.shape), transforms
    if std.numel() in (1, flat.shape[1]):
        return flat, std.reshape(1, -1).expand_as(flat), transforms
    return None


def _is_uncommon(parts: Any) -> bool:
    """Say whether `parts` is a distribution that has to be asked itself."""
    if not isinstance(parts, Distribution):
        return False
    base = parts
    while isinstance(base, Independent):
        base = base.base_dist
    return not isinstance(base, Normal | Categorical | OneHotCategorical | Bernoulli)


def _unexpected(result: Any, layout: ActionLayout) -> UsageError:
    if layout.nvec and layout.num_continuous:
        wanted = (
            f"(logits, mean, std, value) with {sum(layout.nvec)} logits and "
            f"{layout.num_continuous} means"
        )
    elif layout.num_continuous:
        wanted = f"(mean, std, value) with {layout.num_continuous} means"
    else:
        wanted = f"(logits, value) with {sum(layout.nvec)} logits"
    return UsageError(
        f"`forward` must return {wanted} and one value for each row, and may add a state, but got "
        f"{described(result)}."
    )


def described(result: Any) -> str:
    """Return shapes and types of what a policy returned, for an error message."""
    if isinstance(result, Tensor):
        return f"a tensor of shape {tuple(result.shape)}"
    if isinstance(result, tuple | list):
        return f"({', '.join(described(part) for part in result)})"
    return type(result).__name__


# --- drawing and judging actions ------------------------------------------------------------------


def sample(
    outputs: PolicyOutput,
    layout: ActionLayout,
    action_masks: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw actions `[B, *layout.shape]` and their log-probabilities `[B]`.

    `action_masks` `[B, mask_width]` is false for choices that are illegal; those are never drawn,
    unless a component has no legal choice at all. Where a Box is among the actions, a row without
    any legal choice is that of an agent that waits: what it draws is sure, and has no entropy. The
    rows are what `evaluate_actions` takes; the env takes what `env_actions` makes of them.
    """
    indices = reals = logprobs = None
    if outputs.logits is not None:
        log_probs = _log_probs(outputs.logits, layout.nvec, action_masks)
        indices = _draw(log_probs, generator)
        logprobs = _chosen(log_probs, indices)
    if outputs.mean is not None:
        mean, std = outputs.mean.float(), _given(outputs.std).float()
        noise = _noise(mean, "normal_", generator)
        reals = torch.addcmul(mean, std, noise)
        density = _log_density(noise, std)
        if outputs.transforms:
            density = density - _log_slope(reals, outputs.transforms)
        logprobs = density if logprobs is None else logprobs + density
    if outputs.distribution is not None:
        drawn, density = _sample_distribution(outputs.distribution, layout, action_masks, generator)
        logprobs = density if logprobs is None else logprobs + density
        if layout.nvec and not layout.num_continuous:
            indices = drawn
        else:
            reals = drawn
    return _packed(indices, reals, layout), _of_acting(_given(logprobs), layout, action_masks)


def evaluate_actions(
    outputs: PolicyOutput,
    layout: ActionLayout,
    actions: Tensor,
    action_masks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return log-probability and entropy `[B]` of actions `[B, *layout.shape]` as `sample` drew.

    Both are sums over the components, and finite with finite gradients whatever is masked. The
    entropy of a transformed Gaussian has no closed form: it is the Gaussian's own plus the mean of
    the log-slope, which eight points of Gauss-Hermite quadrature give without noise. That of other
    distributions without one is the surprise of one fresh sample: unbiased, noisy.
    """
    if outputs.steps:
        return _evaluate_steps(outputs.steps, layout, actions, action_masks)
    indices, reals = _unpacked(actions, layout)
    logprobs = entropy = None
    if outputs.logits is not None:
        log_probs = _log_probs(outputs.logits, layout.nvec, action_masks)
        logprobs = _chosen(log_probs, _given(indices))
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        if entropy.dim() > 1:
            entropy = entropy.sum(-1)
    density = spread = None
    if outputs.mean is not None:
        mean, std = outputs.mean.float(), _given(outputs.std).float()
        density = _log_density((_given(reals) - mean) / std, std)
        spread = (std.log() + (0.5 + _LOG_SQRT_2PI)).sum(-1)
        if outputs.transforms:
            density = density - _log_slope(_given(reals), outputs.transforms)
            spread = spread + _mean_log_slope(mean, std, outputs.transforms)
    elif outputs.distribution is not None:
        density, spread = _evaluate_distribution(
            outputs.distribution, layout, _given(indices if reals is None else reals), action_masks
        )
    if density is None or spread is None:
        return _given(logprobs), _given(entropy)
    if logprobs is not None and entropy is not None:
        density, spread = logprobs + density, entropy + spread
    return _of_acting(density, layout, action_masks), _of_acting(spread, layout, action_masks)


def _of_acting(numbers: Tensor, layout: ActionLayout, action_masks: Tensor | None) -> Tensor:
    """Return numbers `[B]`, 0 without a gradient for agents that wait."""
    if action_masks is None or not layout.num_continuous:
        return numbers
    return numbers.where(action_masks.any(-1), 0.0)


def env_actions(outputs: PolicyOutput, layout: ActionLayout, actions: Tensor) -> Tensor:
    """Return rows that `sample` drew from `outputs` as `VectorEnv.step` takes them.

    Reals are inside their bounds, indices are the values of the space that they stand for. Where
    both meet, rows are float64, which holds either exactly.
    """
    if not layout.num_continuous:
        return actions if layout.is_plain else actions + _starts(layout, actions)
    indices, reals = _unpacked(actions, layout)
    reals = _given(reals).float()
    for transform in outputs.transforms:
        reals = transform(reals)
    if outputs.distribution is not None:
        reals = _transformed(outputs.distribution, reals).float()
    low, high = _bounds(layout.low.tobytes(), layout.high.tobytes(), reals.device)
    reals = torch.minimum(torch.maximum(reals, low), high)
    if indices is None:
        return _as_rows(reals, layout)
    values = indices.view(len(reals), -1) + _starts(layout, indices)
    return torch.cat((values.double(), reals.double()), 1)


def _starts(layout: ActionLayout, like: Tensor) -> Tensor:
    starts = torch.tensor(layout.starts, device=like.device)
    return starts.view(layout.shape) if not layout.num_continuous else starts


def mode(outputs: PolicyOutput, layout: ActionLayout, action_masks: Tensor | None = None) -> Tensor:
    """Return the likeliest legal actions `[B, *layout.shape]`, as the env takes them.

    There is no randomness in them. Of a transformed Gaussian it is the middle, half of its draws on
    either side.
    """
    indices = reals = None
    if outputs.logits is not None:
        indices = _log_probs(outputs.logits, layout.nvec, action_masks).argmax(-1)
    if outputs.mean is not None:
        reals = outputs.mean.float()
    elif outputs.distribution is not None:
        likeliest = _likeliest(outputs.distribution, layout, action_masks)
        if layout.num_continuous:
            reals = likeliest
        else:
            indices = likeliest
    return env_actions(outputs, layout, _packed(indices, reals, layout))


def _evaluate_steps(
    steps: tuple[PolicyOutput, ...],
    layout: ActionLayout,
    actions: Tensor,
    action_masks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Judge actions `[S*T, ...]`, segment by segment, by T outputs of S rows each."""
    horizon = len(steps)
    by_step = actions.view(-1, horizon, *actions.shape[1:]).unbind(1)
    masks_by_step: Any = [None] * horizon
    if action_masks is not None:
        masks_by_step = action_masks.view(-1, horizon, action_masks.shape[1]).unbind(1)
    pairs = [
        evaluate_actions(step, layout, *rows)
        for step, *rows in zip(steps, by_step, masks_by_step, strict=True)
    ]
    logprobs, entropy = (torch.stack(parts, 1).flatten() for parts in zip(*pairs, strict=True))
    return logprobs, entropy


def _log_probs(logits: Tensor, nvec: tuple[int, ...], action_masks: Tensor | None) -> Tensor:
    """Return log-probabilities `[B, n]` of one component, or `[B, k, max(nvec)]` of several.

    What is illegal, or only pads a component to the widest, gets a huge negative logit in place of
    -inf: its probability is exactly 0 all the same, and 0 times it is no nan. Padding is the less
    likely of the two, so that a component without any legal choice never falls into it.
    """
    logits = logits.float()
    legal = action_masks
    if len(nvec) > 1:
        logits = _by_component(logits, nvec)
        legal = None if legal is None else _by_component(legal, nvec)
    if legal is not None:
        logits = logits.masked_fill(legal.logical_not(), _ILLEGAL)
    if len(set(nvec)) > 1:
        logits = logits.masked_fill(_padding(nvec, logits.device)[1], 2 * _ILLEGAL)
    return F.log_softmax(logits, -1).clamp_min(4 * _ILLEGAL)  # a policy may give -inf itself


def _by_component(rows: Tensor, nvec: tuple[int, ...]) -> Tensor:
    """Return rows `[B, sum(nvec)]` as `[B, k, max(nvec)]`; what pads a component is arbitrary."""
    if len(set(nvec)) > 1:
        rows = rows.index_select(-1, _padding(nvec, rows.device)[0])
    return rows.view(*rows.shape[:-1], len(nvec), max(nvec))


@lru_cache(maxsize=64)
def _padding(nvec: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the column of each choice, and which choices `[k, max(nvec)]` are only padding."""
    width = max(nvec)
    choice = torch.arange(width).expand(len(nvec), width)
    counts = torch.tensor(nvec).unsqueeze(1)
    starts = counts.cumsum(0) - counts
    columns = starts + torch.minimum(choice, counts - 1)
    return columns.flatten().to(device), (choice >= counts).to(device)


def _noise(like: Tensor, kind: str, generator: torch.Generator | None) -> Tensor:
    """Return random numbers in the shape of `like`, one row for each row of a batch.

    Where a generator serves the slots of several processes, each draws the numbers of all and takes
    its own, so that a slot gets the same ones however many processes there are.
    """
    size, rank = getattr(generator, "size", 1), getattr(generator, "rank", 0)
    if size == 1:
        drawn: Tensor = getattr(torch.empty_like(like), kind)(generator=generator)
        return drawn
    rows = like.new_empty(size * len(like), *like.shape[1:])
    getattr(rows, kind)(generator=generator)
    return rows[rank * len(like) : (rank + 1) * len(like)]


def _draw(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index from each last dimension by inverting the cumulative distribution.

    One uniform number a row, where the Gumbel trick takes one a choice and `multinomial` several
    passes. Choice i is drawn iff cdf[i-1] <= u < cdf[i], so one of probability 0 never is; scaling
    u by the last entry keeps it below that in spite of rounding.
    """
    cumulative = log_probs.exp().cumsum(-1)
    total = cumulative[..., -1:]
    uniform = _noise(total, "uniform_", generator)
    return (cumulative <= uniform * (total * (1 - 1e-6))).sum(-1)


def _chosen(log_probs: Tensor, indices: Tensor) -> Tensor:
    chosen = log_probs.gather(-1, indices.unsqueeze(-1)).squeeze(-1)
    return chosen.sum(-1) if chosen.dim() > 1 else chosen


def _log_density(noise: Tensor, std: Tensor) -> Tensor:
    """Return the log-density `[B]` of a diagonal Gaussian, `noise` standard deviations off."""
    return (-0.5 * noise.square() - std.log() - _LOG_SQRT_2PI).sum(-1)


def _log_slope(reals: Tensor, transforms: tuple[Any, ...]) -> Tensor:
    """Return by how much transforms stretch space at `reals` `[..., m]`: the log, `[...]`."""
    total = reals.new_zeros(())
    for transform in transforms:
        stretched = transform(reals)
        total = total + transform.log_abs_det_jacobian(reals, stretched).sum(-1)
        reals = stretched
    return total


def _mean_log_slope(mean: Tensor, std: Tensor, transforms: tuple[Transform, ...]) -> Tensor:
    """Return the expectation `[B]` of `_log_slope` under a diagonal Gaussian."""
    nodes = torch.as_tensor(_NODES, dtype=mean.dtype, device=mean.device).view(-1, 1, 1)
    weights = torch.as_tensor(_WEIGHTS / _WEIGHTS.sum(), dtype=mean.dtype, device=mean.device)
    return weights @ _log_slope(mean + std * nodes, transforms)


@lru_cache(maxsize=64)
def _bounds(low: bytes, high: bytes, device: torch.device) -> tuple[Tensor, Tensor]:
    bounds = [torch.from_numpy(np.frombuffer(part, np.float32).copy()) for part in (low, high)]
    return bounds[0].to(device), bounds[1].to(device)


def _packed(indices: Tensor | None, reals: Tensor | None, layout: ActionLayout) -> Tensor:
    """Return the rows of an env from indices `[B]` or `[B, k]` and reals `[B, m]`."""
    if indices is None:
        return _as_rows(_given(reals), layout)
    if reals is None:
        return _as_rows(indices, layout)
    words = indices.to(torch.int32).view(-1, len(layout.nvec))
    return torch.cat((words, reals.float().reshape(len(words), -1).view(torch.int32)), 1)


def _unpacked(actions: Tensor, layout: ActionLayout) -> tuple[Tensor | None, Tensor | None]:
    """Return indices, `[B]` for one component and `[B, k]` for several, and reals `[B, m]`."""
    batch, count = actions.shape[0], len(layout.nvec)
    if not count:
        return None, actions.reshape(batch, -1)
    words = actions.reshape(batch, -1)
    indices = words[:, 0].long() if count == 1 else words[:, :count].long()
    if not layout.num_continuous:
        return indices, None
    return indices, words[:, count:].contiguous().view(torch.float32)


def _as_rows(actions: Tensor, layout: ActionLayout) -> Tensor:
    dtype = torch.int32 if layout.nvec else torch.float32
    return actions.to(dtype).reshape(actions.shape[0], *layout.shape)


# --- distributions that are asked themselves ------------------------------------------------------


def _sample_distribution(
    distribution: Distribution,
    layout: ActionLayout,
    action_masks: Tensor | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Draw from the base of a transformed distribution, from others themselves."""
    _check_no_masks(distribution, layout, action_masks)
    drawn = _drawn(_base(distribution), generator)
    drawn = drawn.float() if layout.num_continuous else drawn  # as it will be stored
    return drawn, _log_prob(distribution, drawn)


def _drawn(distribution: Distribution, generator: torch.Generator | None) -> Tensor:
    """Sample; torch.distributions take no generator, so ours seeds the global one meanwhile.

    Where a generator serves several processes, each draws with a seed of its own.
    """
    if generator is None:
        return distribution.sample()
    size, rank = getattr(generator, "size", 1), getattr(generator, "rank", 0)
    device = generator.device
    seeds = torch.randint(2**62, (size,), generator=generator, device=device)
    if device.type == "cpu":
        theirs = torch.default_generator
        before = theirs.get_state()
        theirs.manual_seed(int(seeds[rank]))
        try:
            return distribution.sample()
        finally:
            theirs.set_state(before)
    with torch.random.fork_rng([device], device_type=device.type):
        torch.manual_seed(int(seeds[rank]))
        return distribution.sample()


def _evaluate_distribution(
    distribution: Distribution,
    layout: ActionLayout,
    actions: Tensor,
    action_masks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    _check_no_masks(distribution, layout, action_masks)
    base = _base(distribution)
    logprobs = _log_prob(distribution, actions.reshape(base.batch_shape + base.event_shape))
    try:
        entropy = _row_sums(distribution.entropy())
    except NotImplementedError:  # no closed form: one sample is an unbiased estimate
        if not base.has_rsample:
            raise UsageError(
                f"A distribution must have an entropy or `rsample`, but "
                f"{type(distribution).__name__} has none. Try a Normal or a Categorical."
            ) from None
        entropy = -_log_prob(distribution, base.rsample())
    return logprobs, entropy


def _likeliest(
    distribution: Distribution, layout: ActionLayout, action_masks: Tensor | None
) -> Tensor:
    _check_no_masks(distribution, layout, action_masks)
    base = _base(distribution)
    try:
        return base.mode
    except NotImplementedError:
        return base.mean


def _base(distribution: Distribution) -> Distribution:
    """Return what `sample` draws from: below the transforms, where there are some."""
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    while isinstance(distribution, TransformedDistribution):
        distribution = distribution.base_dist
    return distribution


def _transforms(distribution: Distribution) -> list[Any]:
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    found: list[Any] = []
    while isinstance(distribution, TransformedDistribution):
        found = [*distribution.transforms, *found]
        distribution = distribution.base_dist
    return found


def _transformed(distribution: Distribution, reals: Tensor) -> Tensor:
    """Return `[B, m]` after the transforms, if there are any."""
    base = _base(distribution)
    shaped = reals.reshape(base.batch_shape + base.event_shape)
    for transform in _transforms(distribution):
        shaped = transform(shaped)
    return shaped.reshape(reals.shape)


def _log_prob(distribution: Distribution, drawn: Tensor) -> Tensor:
    """Return the log-probability `[B]` of what the base drew, without inverting a transform."""
    total = _row_sums(_base(distribution).log_prob(drawn))
    for transform in _transforms(distribution):
        stretched = transform(drawn)
        total = total - _row_sums(transform.log_abs_det_jacobian(drawn, stretched))
        drawn = stretched
    return total


def _check_no_masks(
    distribution: Distribution, layout: ActionLayout, action_masks: Tensor | None
) -> None:
    if action_masks is not None and not layout.num_continuous:  # else they are for the logits
        raise UsageError(
            "`forward` must return logits where the env gives action masks, but got "
            f"{type(distribution).__name__}. Try logits or a Categorical."
        )


def _row_sums(rows: Tensor) -> Tensor:
    return rows.flatten(1).sum(1) if rows.dim() > 1 else rows


def _given(tensor: Tensor | None) -> Tensor:
    """Tell the type checker what the layout already guarantees."""
    if tensor is None:
        raise TypeError("a PolicyOutput lacks a part that its action layout needs")
    return tensor
