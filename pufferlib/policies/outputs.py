"""PolicyOutput: what a policy's `forward` returned, whatever its form, as one type."""

from __future__ import annotations

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
    """What a policy said about B observations, whatever form its `forward` returned it in."""

    value: Tensor  # [B]
    logits: Tensor | None = None  # [B, sum(nvec)]; None without discrete components
    mean: Tensor | None = None  # [B, num_continuous]; None without Box components
    std: Tensor | None = None  # [B, num_continuous]
    distribution: Distribution | None = None  # in place of logits or mean, if it is no common one
    state: RecurrentState = None
    transforms: tuple[Transform, ...] = ()  # of each continuous component, after it is drawn
    steps: tuple[PolicyOutput, ...] = ()  # one for each of T steps, where those cannot be joined


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
