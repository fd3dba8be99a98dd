"""PolicyOutput: the result of a policy in one form, and the actions that are sampled from it.

`policy_output` accepts whatever a `forward` may return; `sample` draws actions from it, and
`evaluate_actions` computes probabilities of actions that were taken.

`spaces.ActionLayout` describes rows of actions. Box actions are stored as they were sampled, and
`env_actions` turns them into those of the env: first by the transforms of the policy, such as
`Squash`, then by a clip to the bounds of the space. All log-probabilities are those of the sampled
numbers. So a Gaussian sample beyond a bound is not evaluated at the bound, and a squashed action
needs no inverse, which float32 loses near a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Categorical,
    ComposeTransform,
    Distribution,
    Independent,
    Normal,
    OneHotCategorical,
    Transform,
    TransformedDistribution,
)

from pufferlib.distributed.world import SlotGenerator
from pufferlib.errors import UsageError
from pufferlib.policies.recurrent import RecurrentState
from pufferlib.spaces import ActionLayout

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_ILLEGAL = -1e30  # logit of an illegal choice: its probability is exactly 0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(8)  # for means over a standard Gaussian


class PolicyOutput(NamedTuple):
    """The result of a policy for B observations."""

    value: Tensor  # [B]
    logits: Tensor | None = None  # [B, sum(nvec)]; None without discrete components
    mean: Tensor | None = None  # [B, num_continuous]; None without Box components
    std: Tensor | None = None  # [B, num_continuous]
    distribution: Distribution | None = None  # in place of logits or mean, if not a common one
    state: RecurrentState = None
    transforms: tuple[Transform, ...] = ()  # of each continuous component, after it is drawn
    steps: tuple[PolicyOutput, ...] = ()  # one for each of T steps, where those cannot be joined


def policy_output(result: object, batch: int, layout: ActionLayout) -> PolicyOutput:
    """Return the result of `forward` as a PolicyOutput; a UsageError shows the shapes it has."""
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


def join_outputs(
    outputs: Sequence[PolicyOutput], combine: Callable[[list[Tensor]], Tensor]
) -> PolicyOutput:
    """Join outputs of one policy part by part, without their states and distributions."""
    value, logits, mean, std = (
        None if parts[0] is None else combine(list(parts))
        for parts in zip(*(output[:4] for output in outputs), strict=True)
    )
    assert value is not None
    return PolicyOutput(value, logits, mean, std, transforms=outputs[0].transforms)


def base_and_transforms(distribution: Distribution) -> tuple[Distribution, tuple[Transform, ...]]:
    """Return the distribution that samples are drawn from, and the transforms applied to them."""
    transforms: tuple[Transform, ...] = ()
    while isinstance(distribution, Independent | TransformedDistribution):
        if isinstance(distribution, TransformedDistribution):
            transforms = (*distribution.transforms, *transforms)
        distribution = distribution.base_dist
    return distribution, transforms


def _parted(result: tuple[Any, ...] | list[Any], layout: ActionLayout) -> tuple[Any, Any, Any]:
    """Return the parts for discrete actions, for continuous ones, and all that follows.

    For continuous actions that is (mean, std) or a distribution.
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
    """Return logits `[B, n]` of a tensor, a discrete distribution, or a list of these."""
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
    """Return a tensor as `[B, ...]`; None where B does not divide its size."""
    if batch == 0:  # a process may have no segment of a minibatch
        return part.reshape(0, part.shape[-1])
    return part.reshape(batch, -1) if part.numel() % batch == 0 else None


def _discrete_logits(distribution: Distribution) -> Tensor | None:
    base, transforms = base_and_transforms(distribution)
    if transforms:
        return None
    if isinstance(base, Categorical | OneHotCategorical):
        return base.logits
    if isinstance(base, Bernoulli):  # a component of two choices
        ones = base.logits
        return torch.stack((torch.zeros_like(ones), ones), -1)
    return None


def _gaussian(parts: Any, batch: int) -> tuple[Tensor, Tensor, tuple[Transform, ...]] | None:
    """Return mean and std `[B, m]` and the transforms of a pair or a distribution."""
    transforms: tuple[Transform, ...] = ()
    if isinstance(parts, Distribution):
        base, transforms = base_and_transforms(parts)
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


def _is_uncommon(parts: object) -> bool:
    """Return whether `parts` is a distribution that must be sampled by its own methods."""
    if not isinstance(parts, Distribution):
        return False
    base, transforms = base_and_transforms(parts)
    common = Normal | Categorical | OneHotCategorical | Bernoulli
    return bool(transforms) or not isinstance(base, common)


def _unexpected(result: object, layout: ActionLayout) -> UsageError:
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
        f"`forward` must return {wanted} and one value per row, optionally with a state, but got "
        f"{described(result)}."
    )


def described(result: object) -> str:
    """Return shapes and types of the result of a policy, for an error message."""
    if isinstance(result, Tensor):
        return f"a tensor of shape {tuple(result.shape)}"
    if isinstance(result, tuple | list):
        return f"({', '.join(described(part) for part in result)})"
    return type(result).__name__


# --- actions of an output -------------------------------------------------------------------------


def sample(
    outputs: PolicyOutput,
    layout: ActionLayout,
    action_masks: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw actions `[B, *layout.shape]` and their log-probabilities `[B]`.

    `action_masks` `[B, mask_width]` is false for illegal choices; those are never drawn, unless a
    component has no legal choice at all. Where the actions include a Box, a row without any legal
    choice belongs to a waiting agent: its log-probability and entropy are 0. `evaluate_actions`
    takes these rows; `env_actions` turns them into those of the env.
    """
    indices = reals = None
    logprobs: list[Tensor] = []  # of the parts of an action
    if outputs.logits is not None:
        log_probs = _log_probs(outputs.logits, layout.nvec, action_masks)
        indices = _draw(log_probs, generator)
        logprobs.append(_chosen(log_probs, indices))
    if outputs.mean is not None:
        mean, std = outputs.mean.float(), _given(outputs.std).float()
        noise = _noise(mean, generator, normal=True)
        reals = torch.addcmul(mean, std, noise)
        density = _log_density(noise, std)
        if outputs.transforms:
            density = density - _log_slope(reals, outputs.transforms).sum(-1)
        logprobs.append(density)
    if outputs.distribution is not None:
        _check_no_masks(outputs.distribution, layout, action_masks)
        drawn = _drawn(base_and_transforms(outputs.distribution)[0], generator)
        drawn = drawn.float() if layout.num_continuous else drawn  # as it will be stored
        logprobs.append(_log_prob(outputs.distribution, drawn))
        if layout.nvec and not layout.num_continuous:
            indices = drawn
        else:
            reals = drawn
    return _packed(indices, reals, layout), _of_acting(logprobs, layout, action_masks)


def evaluate_actions(
    outputs: PolicyOutput, layout: ActionLayout, actions: Tensor, action_masks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return log-probability and entropy `[B]` of actions `[B, *layout.shape]` as `sample` drew.

    Both are sums over the components, and finite with finite gradients under any mask. The entropy
    of a transformed Gaussian has no closed form: it is the Gaussian's own plus the mean of the
    log-slope, by Gauss-Hermite quadrature with eight points. That of other distributions without a
    closed form is minus the log-probability of one fresh sample: unbiased, but noisy.
    """
    if outputs.steps:
        return _evaluate_steps(outputs.steps, layout, actions, action_masks)
    indices, reals = _unpacked(actions, layout)
    parts: list[tuple[Tensor, Tensor]] = []  # log-probability and entropy of parts of an action
    if outputs.logits is not None:
        log_probs = _log_probs(outputs.logits, layout.nvec, action_masks)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        entropy = entropy.sum(-1) if entropy.dim() > 1 else entropy
        parts.append((_chosen(log_probs, _given(indices)), entropy))
    if outputs.mean is not None:
        mean, std = outputs.mean.float(), _given(outputs.std).float()
        density = _log_density((_given(reals) - mean) / std, std)
        spread = (std.log() + (0.5 + _LOG_SQRT_2PI)).sum(-1)
        if outputs.transforms:
            density = density - _log_slope(_given(reals), outputs.transforms).sum(-1)
            spread = spread + _mean_log_slope(mean, std, outputs.transforms)
        parts.append((density, spread))
    elif outputs.distribution is not None:
        taken = _given(indices if reals is None else reals)
        parts.append(_evaluate_distribution(outputs.distribution, layout, taken, action_masks))
    logprobs, entropies = zip(*parts, strict=True)
    return _of_acting(logprobs, layout, action_masks), _of_acting(entropies, layout, action_masks)


def _of_acting(
    parts: Sequence[Tensor], layout: ActionLayout, action_masks: Tensor | None
) -> Tensor:
    """Return the sum `[B]` of the parts, with 0 and no gradient for waiting agents."""
    total = reduce(torch.add, parts)
    if action_masks is None or not layout.num_continuous:
        return total
    return total.where(action_masks.any(-1), 0.0)


def env_actions(outputs: PolicyOutput, layout: ActionLayout, actions: Tensor) -> Tensor:
    """Return rows that `sample` drew from `outputs` as `VectorEnv.step` takes them.

    Reals are clipped to their bounds; indices become values of the space. Rows with both are
    float64, which holds either exactly.
    """
    if not layout.num_continuous:
        return actions if layout.is_plain else actions + _starts(layout, actions)
    indices, reals = _unpacked(actions, layout)
    reals = _given(reals).float()
    for transform in outputs.transforms:
        reals = transform(reals)
    if outputs.distribution is not None:
        base, transforms = base_and_transforms(outputs.distribution)
        shaped = reals.reshape(base.batch_shape + base.event_shape)
        reals = ComposeTransform(list(transforms))(shaped).reshape(reals.shape).float()
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
    """Return the most likely legal actions `[B, *layout.shape]`, as `sample` returns actions.

    For a transformed Gaussian this is the median.
    """
    indices = reals = None
    if outputs.logits is not None:
        indices = _log_probs(outputs.logits, layout.nvec, action_masks).argmax(-1)
    if outputs.mean is not None:
        reals = outputs.mean.float()
    elif outputs.distribution is not None:
        _check_no_masks(outputs.distribution, layout, action_masks)
        base, _ = base_and_transforms(outputs.distribution)
        try:
            likeliest = base.mode
        except NotImplementedError:
            likeliest = base.mean
        if layout.num_continuous:
            reals = likeliest
        else:
            indices = likeliest
    return _packed(indices, reals, layout)


def _evaluate_steps(
    steps: tuple[PolicyOutput, ...],
    layout: ActionLayout,
    actions: Tensor,
    action_masks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Evaluate actions `[S*T, ...]` by T outputs of S rows each."""
    horizon = len(steps)
    by_step = actions.view(-1, horizon, *actions.shape[1:]).unbind(1)
    masks_by_step: Sequence[Tensor | None] = [None] * horizon
    if action_masks is not None:
        masks_by_step = action_masks.view(-1, horizon, action_masks.shape[1]).unbind(1)
    pairs = [
        evaluate_actions(step, layout, taken, masks)
        for step, taken, masks in zip(steps, by_step, masks_by_step, strict=True)
    ]
    logprobs, entropy = (torch.stack(parts, 1).flatten() for parts in zip(*pairs, strict=True))
    return logprobs, entropy


def _log_probs(logits: Tensor, nvec: tuple[int, ...], action_masks: Tensor | None) -> Tensor:
    """Return log-probabilities `[B, n]` of one component, or `[B, k, max(nvec)]` of several.

    Illegal choices, and those that pad a component to the widest, get a huge negative logit in
    place of -inf: the probability is exactly 0 too, and 0 times the logit is not nan. Padding is
    the less likely of the two, so that a component without any legal choice never draws it.
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
    return F.log_softmax(logits, -1).clamp_min(4 * _ILLEGAL)  # a policy may return -inf itself


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


def _noise(like: Tensor, generator: torch.Generator | None, normal: bool) -> Tensor:
    """Return random numbers in the shape of `like`, a row for each row of a batch.

    With a SlotGenerator each process draws the numbers of all processes and takes its own, so that
    a slot gets the same numbers with any number of processes.
    """
    size, rank = _share_of(generator)
    rows = (
        torch.empty_like(like) if size == 1 else like.new_empty(size * len(like), *like.shape[1:])
    )
    rows = rows.normal_(generator=generator) if normal else rows.uniform_(generator=generator)
    return rows[rank * len(like) : (rank + 1) * len(like)]


def _share_of(generator: torch.Generator | None) -> tuple[int, int]:
    """Return the number of processes that share the numbers of a generator, and our rank."""
    return (generator.size, generator.rank) if isinstance(generator, SlotGenerator) else (1, 0)


def _draw(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index from each last dimension by inverting the cumulative distribution.

    This takes one uniform number per row; the Gumbel trick takes one per choice, and `multinomial`
    several passes. Choice i is drawn iff cdf[i-1] <= u < cdf[i], so one of probability 0 never is;
    scaling u by the last entry keeps it below that in spite of rounding.
    """
    cumulative = log_probs.exp().cumsum(-1)
    total = cumulative[..., -1:]
    uniform = _noise(total, generator, normal=False)
    return (cumulative <= uniform * (total * (1 - 1e-6))).sum(-1)


def _chosen(log_probs: Tensor, indices: Tensor) -> Tensor:
    chosen = log_probs.gather(-1, indices.unsqueeze(-1)).squeeze(-1)
    return chosen.sum(-1) if chosen.dim() > 1 else chosen


def _log_density(noise: Tensor, std: Tensor) -> Tensor:
    """Return the log-density `[B]` of a diagonal Gaussian, `noise` standard deviations off."""
    return (-0.5 * noise.square() - std.log() - _LOG_SQRT_2PI).sum(-1)


def _log_slope(reals: Tensor, transforms: tuple[Transform, ...]) -> Tensor:
    """Return the log-determinant of the transforms at `reals`, not summed over a row yet."""
    whole = ComposeTransform(list(transforms))
    slope: Tensor = whole.log_abs_det_jacobian(reals, whole(reals))  # type: ignore[no-untyped-call]
    return slope


def _mean_log_slope(mean: Tensor, std: Tensor, transforms: tuple[Transform, ...]) -> Tensor:
    """Return the expectation `[B]` of the sum of `_log_slope` under a diagonal Gaussian."""
    nodes = torch.as_tensor(_NODES, dtype=mean.dtype, device=mean.device).view(-1, 1, 1)
    weights = torch.as_tensor(_WEIGHTS / _WEIGHTS.sum(), dtype=mean.dtype, device=mean.device)
    return weights @ _log_slope(mean + std * nodes, transforms).sum(-1)


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


# --- other torch distributions: sampled and evaluated by their own methods ------------------------


def _drawn(distribution: Distribution, generator: torch.Generator | None) -> Tensor:
    """Sample; torch.distributions take no generator, so ours seeds the global one temporarily.

    With a SlotGenerator each process draws with a seed of its own.
    """
    if generator is None:
        return distribution.sample()
    size, rank = _share_of(generator)
    device = generator.device
    seeds = torch.randint(2**62, (size,), generator=generator, device=device)
    if device.type == "cpu":
        shared = torch.default_generator
        before = shared.get_state()
        shared.manual_seed(int(seeds[rank]))
        try:
            return distribution.sample()
        finally:
            shared.set_state(before)
    with torch.random.fork_rng([device], device_type=device.type):
        torch.manual_seed(int(seeds[rank]))
        return distribution.sample()


def _evaluate_distribution(
    distribution: Distribution, layout: ActionLayout, actions: Tensor, action_masks: Tensor | None
) -> tuple[Tensor, Tensor]:
    _check_no_masks(distribution, layout, action_masks)
    base, _ = base_and_transforms(distribution)
    logprobs = _log_prob(distribution, actions.reshape(base.batch_shape + base.event_shape))
    try:
        entropy = _row_sums(distribution.entropy())
    except NotImplementedError:  # no closed form: one sample is an unbiased estimate
        if not base.has_rsample:
            raise UsageError(
                f"a distribution must have `entropy` or `rsample`, but "
                f"{type(distribution).__name__} has neither. Try a Normal or a Categorical."
            ) from None
        entropy = -_log_prob(distribution, base.rsample())
    return logprobs, entropy


def _log_prob(distribution: Distribution, drawn: Tensor) -> Tensor:
    """Return the log-probability `[B]` of samples of the base, without inverting a transform."""
    base, transforms = base_and_transforms(distribution)
    density = _row_sums(base.log_prob(drawn))
    return density - _row_sums(_log_slope(drawn, transforms)) if transforms else density


def _check_no_masks(
    distribution: Distribution, layout: ActionLayout, action_masks: Tensor | None
) -> None:
    if action_masks is not None and not layout.num_continuous:  # else they mask the logits
        raise UsageError(
            "`forward` must return logits where the env gives action masks, but got "
            f"{type(distribution).__name__}. Try logits or a Categorical."
        )


def _row_sums(rows: Tensor) -> Tensor:
    return rows.flatten(1).sum(1) if rows.dim() > 1 else rows


def _given(tensor: Tensor | None) -> Tensor:
    """Return a tensor that the layout guarantees."""
    if tensor is None:
        raise TypeError("a PolicyOutput lacks a part that its action layout needs")
    return tensor
