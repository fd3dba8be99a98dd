"""Actions: from values of a space to rows and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError
from pufferlib.spaces.layouts import INT32_MAX, WORD, ActionLayout, Leaf, dtype_of, fitted
from pufferlib.spaces.trees import Array, Space, brief, children_of, is_structured, parts

_INT64_LIMIT = 2**62  # a start can be subtracted without overflow


def flatten_action(layout: ActionLayout, value: Any, out_rows: Array) -> None:
    """Write one action of the space into its row, an array of the layout's shape.

    Rows `[..., *shape]` take a batch, a value of the space whose leaves are `[..., *leaf.shape]`.
    Raises UsageError, naming the leaf, where shape, type or range do not fit.
    """
    leading = layout.leading(out_rows)
    for leaf, part in zip(layout.leaves, parts(layout.space, value, "action"), strict=True):
        checked = fitted(leaf, part, dtype_of(leaf.space), "action", leading)
        layout.view(out_rows, leaf)[...] = checked if leaf.kind == "box" else checked - leaf.lowest


def action_batch_shape(layout: ActionLayout, value: Any) -> tuple[int, ...] | None:
    """Return `[...]` of a value of the space whose leaves are `[..., *leaf.shape]`: () for one.

    None where `value` is not a tree of the space's form.
    """
    try:
        first = np.asarray(next(parts(layout.space, value, "action")))
    except (UsageError, ValueError):
        return None
    return first.shape[: max(0, first.ndim - len(layout.leaves[0].shape))]


def action_values(layout: ActionLayout, rows: Array) -> Array:
    """Return rows `[..., *shape]` as values of the space; the rows themselves if they are equal.

    An index becomes its value; with both indices and reals, all are float64.
    """
    if layout.is_plain:
        return rows
    indices, reals = layout.split(rows)
    values = indices + np.array(layout.starts, dtype=np.int64)
    if layout.num_continuous:
        return np.concatenate((values, reals), -1, dtype=np.float64)
    return values.reshape(rows.shape)


def rows_from_values(layout: ActionLayout, values: Array) -> Array:
    """Return values of the space `[..., *shape]` as rows: the inverse of `action_values`.

    Values out of range stay out of range: 2**32 must not become index 0. Raises UsageError where
    an index is not a whole number.
    """
    if not layout.nvec:
        return values.astype(layout.dtype, copy=False)
    count = layout.num_discrete
    flat = values if layout.is_plain else values.reshape(*layout.leading(values), -1)
    chosen = flat if layout.is_plain else flat[..., :count]
    if chosen.dtype.kind == "f":
        if not np.array_equal(chosen, np.rint(chosen)):
            said = f"whole numbers in the first {count} columns for {layout.space}"
            raise UsageError(f"`actions` must be {said}, but got {brief(chosen)}.")
        chosen = chosen.clip(-_INT64_LIMIT, _INT64_LIMIT).astype(np.int64)
    if any(layout.starts):
        if chosen.dtype.kind == "u":
            chosen = np.minimum(chosen, np.uint64(_INT64_LIMIT))
        chosen = chosen.astype(np.int64).clip(-_INT64_LIMIT, _INT64_LIMIT)
        chosen = chosen - np.array(layout.starts, dtype=np.int64)
    if chosen.dtype.kind in "iu" and chosen.dtype.itemsize >= WORD:
        chosen = chosen.clip(0 if chosen.dtype.kind == "u" else -INT32_MAX - 1, INT32_MAX)
    indices = chosen.astype(np.int32, copy=False)
    if not layout.num_continuous:
        return indices.reshape(values.shape)
    reals = np.ascontiguousarray(flat[..., count:], dtype=np.float32)
    return np.concatenate((indices, reals.view(np.int32)), -1)


def missing_choice(layout: ActionLayout, mask: NDArray[np.bool_]) -> str | None:
    """Describe an action mask that allows no choice of a component; None if all have one."""
    allowed = np.logical_or.reduceat(mask, layout.firsts)
    if allowed.all():
        return None
    which = f"at least one choice of component {allowed.argmin()}"
    return f"`action_mask` must allow {which}, but allows none."


def outside_choices(layout: ActionLayout, rows: Array) -> NDArray[np.bool_] | None:
    """Return which indices in `rows` [slots, *shape] are no choice, [slots, components].

    None if all of them are choices of the space.
    """
    if not layout.nvec:
        return None
    indices = layout.split(rows)[0].view(np.uint32)  # negative ones become huge
    is_outside = indices >= np.array(layout.nvec, dtype=np.uint32)
    return is_outside if is_outside.any() else None


def check_choices(
    layout: ActionLayout,
    rows: Array,
    masks: NDArray[np.bool_],
    slots: slice | NDArray[np.int64] | None = None,
) -> None:
    """Raise UsageError, naming the slot, if an index in `rows` [slots, *shape] is no choice.

    The rows are those of `slots`, by default of all. `masks` has a flag for every slot; those of
    absent agents are not looked at, because they do not act.
    """
    outside = outside_choices(layout, rows)
    if outside is None:
        return
    numbers = np.arange(len(masks))[slice(None) if slots is None else slots]
    for row, component in np.argwhere(outside & masks[numbers][:, np.newaxis]).tolist():
        index = int(layout.split(rows)[0][row, component])
        raise _invalid_index(layout, component, index, int(numbers[row]))


def action_reader(layout: ActionLayout, row: Array) -> Callable[[], Any]:
    """Return a function that reads the action now in `row`, as `unflatten_action` returns it.

    It raises UsageError for an index that is not a choice of the space.
    """
    if not layout.structured and layout.leaves[0].kind == "discrete":
        n, start, item = layout.nvec[0], layout.starts[0], row.item

        def read_index() -> int:
            index = item()
            if 0 <= index < n:
                return index + start  # type: ignore[no-any-return]
            raise _invalid_index(layout, 0, index)

        return read_index

    return _checked_reader(layout, row, row[np.newaxis])


def batch_reader(layout: ActionLayout, rows: Array) -> Callable[[], Any]:
    """Return a function that reads the actions now in `rows` [n, *shape], as one batch.

    The batch is a value of the space whose leaves are `[n, *leaf.shape]`, otherwise as
    `unflatten_action` returns it; the leaves are copies. It raises UsageError for an index that is
    not a choice of the space.
    """
    return _checked_reader(layout, rows, rows)


def _checked_reader(layout: ActionLayout, rows: Array, batch: Array) -> Callable[[], Any]:
    """Return a function that reads `rows`, once the indices in them, `batch`, are checked."""
    read = _node_reader(layout, layout.space, iter(layout.leaves), rows)
    if not layout.nvec:
        return read
    indices = layout.split(batch)[0].view(np.uint32)  # negative ones become huge
    numbers = np.array(layout.nvec, dtype=np.uint32)

    def read_checked() -> Any:
        if (indices >= numbers).any():
            slot, component = np.argwhere(indices >= numbers)[0].tolist()
            raise _invalid_index(layout, component, int(indices.view(np.int32)[slot, component]))
        return read()

    return read_checked


def unflatten_action(layout: ActionLayout, row: Array) -> Any:
    """Return the action in `row` as the env expects it: a copy, which the env may keep or change.

    A Discrete is a plain int. A Box gets the nearest value within its bounds, as policies sample
    reals without bounds.
    """
    return _node_reader(layout, layout.space, iter(layout.leaves), np.asarray(row))()


def _node_reader(
    layout: ActionLayout, space: Space, leaves: Iterator[Leaf], row: Array
) -> Callable[[], Any]:
    """Return a function that reads the value of `space`, whose leaves are next in `leaves`."""
    if not is_structured(space):
        leaf = next(leaves)
        return _leaf_reader(leaf, layout.view(row, leaf))
    readers = [(key, _node_reader(layout, child, leaves, row)) for key, child in children_of(space)]
    if isinstance(space, gymnasium.spaces.Dict):
        return lambda: {key: read() for key, read in readers}
    return lambda: tuple([read() for _, read in readers])


def _leaf_reader(leaf: Leaf, part: NDArray[np.number]) -> Callable[[], Any]:
    dtype, low, high = dtype_of(leaf.space), leaf.lowest, leaf.highest
    if leaf.kind == "discrete" and part.ndim == 0:
        start, item = leaf.starts[0], part.item
        return lambda: item() + start
    if leaf.kind != "box":
        return lambda: (part + low).astype(dtype)
    if dtype.kind == "f":
        return lambda: np.minimum(np.maximum(part.astype(dtype), low), high)  # nan stays nan
    return lambda: _nearest_integers(part, low, high)


def _invalid_index(
    layout: ActionLayout, component: int, index: int, slot: int | None = None
) -> UsageError:
    """Return the error for an index that is no choice of a component; the caller raises it."""
    where = f" (component {component})" if layout.num_discrete > 1 else ""
    start = layout.starts[component]
    last = start + layout.nvec[component] - 1
    given = f"got {start + index}" if slot is None else f"slot {slot} got {start + index}"
    return UsageError(
        f"`actions`{where} must be in {start}..{last} for {layout.space}, but {given}."
    )


def _nearest_integers(
    reals: NDArray[np.number], low: NDArray[np.number], high: NDArray[np.number]
) -> NDArray[np.number]:
    """Round to integers within [low, high], without the overflow of a plain cast; nan gives low."""
    rounded = np.rint(reals)
    with np.errstate(invalid="ignore"):  # what overflows here is replaced by a bound
        inside = rounded.astype(low.dtype)
    return np.where(rounded >= high, high, np.where(rounded > low, inside, low))
