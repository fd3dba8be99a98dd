"""The spaces of a policy, and its observations: flat rows, and views of their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pufferlib.env import space_of
from pufferlib.errors import UsageError
from pufferlib.spaces import (
    ActionLayout,
    Array,
    Leaf,
    ObservationLayout,
    Space,
    action_layout,
    observation_layout,
    rebuilt,
    unflatten_observation,
)

Observations: TypeAlias = Any  # a tensor [B, *shape], or a dict or tuple of such


class PolicySpaces(NamedTuple):
    """Layouts of the observations and actions of a policy."""

    observation: ObservationLayout
    action: ActionLayout
    num_agents: int = 1  # of one env: slot n is agent n % num_agents


def policy_spaces(env: Any) -> PolicySpaces:
    """Return the layouts of one agent of `env`, a single env or a vector env of any library."""
    observation, action = space_of(env, "observation"), space_of(env, "action")
    if observation is None or action is None:
        raise UsageError(
            "`env` must have `observation_space` and `action_space`, but got "
            f"{type(env).__name__}. Try what `pufferlib.make` returns."
        )
    # `agent_cycle`: the slots of SelfPlay are one side of each env, the two sides in turn
    num_agents = int(getattr(env, "agent_cycle", 0) or getattr(env, "agents_per_env", 1))
    return PolicySpaces(observation_layout(observation), action_layout(action), num_agents)


def unflatten_observations(flat: Observations, space: Space | ObservationLayout) -> Observations:
    """Return the parts of flat rows `[..., *row]` in the form of a Dict or Tuple space, as views.

    Rows are a tensor or a NumPy array. Observations of other spaces, and those that are already a
    dict or tuple, are returned unchanged. A layout in place of the space saves computing it.
    """
    if not isinstance(flat, Tensor | np.ndarray):
        return flat
    layout = space if isinstance(space, ObservationLayout) else observation_layout(space)
    if not layout.structured:
        return flat
    if isinstance(flat, np.ndarray):
        return unflatten_observation(layout, flat)
    return rebuilt(layout.space, (_leaf_view(flat, layout, leaf) for leaf in layout.leaves))


def observation_rows(observations: Any, layout: ObservationLayout) -> Array:
    """Return observations as rows `[B, *shape]`, or a single one as the row `[*shape]`.

    Takes rows or, for a Dict or Tuple space, values of it with leaves `[B, ...]`; all may be
    tensors. A cast that loses more than the precision of a float is refused.
    """
    shape = layout.shape
    if not layout.structured or not isinstance(observations, Mapping | tuple):
        rows = _array(observations)
        if rows.shape != shape and rows.shape[1:] != shape:
            raise UsageError(
                f"`observations` must have shape {shape} or {('B', *shape)}, but got {rows.shape}."
            )
        return _cast(rows, layout.dtype, "observations")
    parts = [_array(_at(observations, leaf)) for leaf in layout.leaves]
    batch = parts[0].shape[: max(0, parts[0].ndim - len(layout.leaves[0].shape))][:1]
    rows = np.zeros((*batch, *shape), layout.dtype)
    for leaf, part in zip(layout.leaves, parts, strict=True):
        name = "observations" + "".join(f"[{key!r}]" for key in leaf.path)
        if part.shape != (*batch, *leaf.shape):
            raise UsageError(
                f"`{name}` must have shape {(*batch, *leaf.shape)}, but got {part.shape}."
            )
        layout.view(rows, leaf)[...] = _cast(part, leaf.dtype, name)
    return rows


def _at(tree: Any, leaf: Leaf) -> Any:
    try:
        for key in leaf.path:
            tree = tree[key]
    except (KeyError, IndexError, TypeError):
        raise UsageError(
            f"`observations` must have the key {list(leaf.path)}, but do not."
        ) from None
    return tree


def _array(part: Any) -> Array:
    try:
        return np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part)
    except ValueError as error:
        raise UsageError(f"`observations` must form one array, but got: {error}.") from None


def _cast(part: Array, dtype: np.dtype[np.generic], name: str) -> Array:
    if part.dtype == dtype:
        return part
    cast = part.astype(dtype) if part.dtype.kind in "biuf" else None
    if cast is None or (dtype.kind != "f" and not np.array_equal(cast, part)):
        raise UsageError(f"`{name}` must be of dtype {dtype}, but got {part.dtype}.")
    return cast


def torch_dtype(dtype: np.dtype[np.generic]) -> torch.dtype:
    """Return torch's dtype for one of NumPy."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _leaf_view(rows: Tensor, layout: ObservationLayout, leaf: Leaf) -> Tensor:
    itemsize = layout.dtype.itemsize
    part = rows.narrow(-1, leaf.offset // itemsize, leaf.nbytes // itemsize)
    if leaf.dtype != layout.dtype:
        part = part.view(torch_dtype(leaf.dtype))
    return part.view((*rows.shape[:-1], *leaf.shape))


def leaf_of(tree: Observations, leaf: Leaf) -> Tensor:
    """Return the part of a leaf, [..., *leaf.shape]."""
    for key in leaf.path:
        tree = tree[key]
    part: Tensor = tree
    return part
