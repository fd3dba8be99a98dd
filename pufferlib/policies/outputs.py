"""PolicyOutput: the result of a policy in one form, whatever its `forward` returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
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
)

from pufferlib.errors import UsageError
from pufferlib.policies.recurrent import RecurrentState
from pufferlib.spaces import ActionLayout


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


def policy_output(result: Any, batch: int, layout: ActionLayout) -> PolicyOutput:
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


def base_and_transforms(
    distribution: Distribution,
) -> tuple[Distribution, tuple[Transform, ...]]:
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


def _is_uncommon(parts: Any) -> bool:
    """Return whether `parts` is a distribution that must be sampled by its own methods."""
    if not isinstance(parts, Distribution):
        return False
    base, transforms = base_and_transforms(parts)
    common = Normal | Categorical | OneHotCategorical | Bernoulli
    return bool(transforms) or not isinstance(base, common)


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
        f"`forward` must return {wanted} and one value per row, optionally with a state, but got "
        f"{described(result)}."
    )


def described(result: Any) -> str:
    """Return shapes and types of the result of a policy, for an error message."""
    if isinstance(result, Tensor):
        return f"a tensor of shape {tuple(result.shape)}"
    if isinstance(result, tuple | list):
        return f"({', '.join(described(part) for part in result)})"
    return type(result).__name__
