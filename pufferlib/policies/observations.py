"""Observations on their way to a policy: its spaces, flat rows, and views of their parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pufferlib.errors import UsageError
from pufferlib.spaces import (
    ActionLayout,
    Leaf,
    ObservationLayout,
    Space,
    action_layout,
    observation_layout,
    unflatten_observation,
)

Observations: TypeAlias = Any  # a tensor [B, *shape], or a dict or tuple of such


class PolicySpaces(NamedTuple):
    """What a policy reads and what it chooses."""

    observation: ObservationLayout
    action: ActionLayout
    num_agents: int = 1  # of one env: slot n is agent n % num_agents


def policy_spaces(env: Any) -> PolicySpaces:
    """Lay out the spaces of one agent of `env`, be it a single env or a vector env."""
    spaces: list[Any] = []
    for noun in ("observation", "action"):
        space = getattr(env, f"single_{noun}_space", None)  # some spaces have a length, even of 0
        spaces.append(getattr(env, f"{noun}_space", None) if space is None else space)
    if any(space is None for space in spaces):
        raise UsageError(
            "`env` must have `observation_space` and `action_space`, but got "
            f"{type(env).__name__}. Try what `pufferlib.make` returns."
        )
    # the slots of self-play are one side only, that of the first agents and of the others by turns
    num_agents = int(getattr(env, "agent_cycle", 0) or getattr(env, "agents_per_env", 1))
    return PolicySpaces(observation_layout(spaces[0]), action_layout(spaces[1]), num_agents)


def unflatten_observations(flat: Observations, space: Space | ObservationLayout) -> Observations:
    """Return the parts of flat rows `[..., *row]` in the form of a Dict or Tuple space, as views.

    Rows are a tensor or a NumPy array. Observations of other spaces, and those that are a dict or
    tuple already, come back as they are. A layout in place of the space saves working it out again.
    """
    if not isinstance(flat, Tensor | np.ndarray):
        return flat
    layout = space if isinstance(space, ObservationLayout) else observation_layout(space)
    if not layout.structured:
        return flat
    if isinstance(flat, np.ndarray):
        return unflatten_observation(layout, flat)
    return _tree([(leaf.path, _leaf_view(flat, layout, leaf)) for leaf in layout.leaves])


def observation_rows(observations: Any, layout: ObservationLayout) -> NDArray[Any]:
    """Return observations as rows `[B, *shape]`, or as the one row `[*shape]` if they are just one.

    Takes rows and, for a Dict or Tuple space, values of it with leaves `[B, ...]`; all may be
    tensors. Nothing is cast if that loses more than the precision of a float.
    """
    shape = layout.shape
    if not layout.structured or not isinstance(observations, Mapping | tuple):
        rows = _array(observations)
        if rows.shape != shape and rows.shape[1:] != shape:
            raise UsageError(
                f"`observations` must have shape {shape}, or that of so many rows, but got "
                f"{rows.shape}."
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
        raise UsageError(f"`observations` must have {list(leaf.path)}, but do not.") from None
    return tree


def _array(part: Any) -> NDArray[Any]:
    try:
        return np.asarray(part.detach().cpu() if isinstance(part, Tensor) else part)
    except ValueError as error:
        raise UsageError(f"`observations` must be one array, but {error}.") from None


def _cast(part: NDArray[Any], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    if part.dtype == dtype:
        return part
    cast = part.astype(dtype) if part.dtype.kind in "biuf" else None
    if cast is None or (dtype.kind != "f" and not np.array_equal(cast, part)):
        raise UsageError(f"`{name}` must be of dtype {dtype}, but got {part.dtype}.")
    return cast


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return torch's name for a NumPy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _leaf_view(rows: Tensor, layout: ObservationLayout, leaf: Leaf) -> Tensor:
    itemsize = layout.dtype.itemsize
    part = rows.narrow(-1, leaf.offset // itemsize, leaf.nbytes // itemsize)
    if leaf.dtype != layout.dtype:
        part = part.view(torch_dtype(leaf.dtype))
    return part.view((*rows.shape[:-1], *leaf.shape))


def _tree(parts: list[tuple[tuple[str | int, ...], Tensor]]) -> Any:
    """Arrange parts by their paths: names make a dict, indices a tuple."""
    if parts[0][0] == ():
        return parts[0][1]
    children: dict[str | int, list[tuple[tuple[str | int, ...], Tensor]]] = {}
    for (key, *rest), part in parts:
        children.setdefault(key, []).append((tuple(rest), part))
    built = {key: _tree(below) for key, below in children.items()}
    return tuple(built.values()) if isinstance(parts[0][0][0], int) else built


def leaf_of(tree: Observations, leaf: Leaf) -> Tensor:
    """Return the part of a leaf, [..., *leaf.shape]."""
    for key in leaf.path:
        tree = tree[key]
    part: Tensor = tree
    return part


def first_tensor(tree: Any) -> Tensor:
    while not isinstance(tree, Tensor):
        tree = next(iter(tree.values() if isinstance(tree, Mapping) else tree))
    return tree
