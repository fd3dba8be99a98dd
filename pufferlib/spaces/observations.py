"""Observations: from values of a space to rows and back, and checks of whole batches of them.

One rule decides what a row may hold: a value of the leaf's shape, of a dtype that can be cast
without losing more than the precision of a float. It is written here, in `fitted`; the loop in C
over Python envs copies arrays that already have the dtype and shape of a row, and leaves all else
to this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.spaces.layouts import Leaf, ObservationLayout, dtype_of, fitted, observation_layout
from pufferlib.spaces.trees import (
    Path,
    Space,
    brief,
    check_form,
    children_of,
    is_structured,
    rebuilt,
    spell_path,
)

_INTEGERS = frozenset({int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32})


def flatten_observation(layout: ObservationLayout, value: Any, out_row: NDArray[Any]) -> None:
    """Write one observation into its row, as `observation_writer` does."""
    observation_writer(layout, out_row)(value)


def observation_writer(layout: ObservationLayout, out_row: NDArray[Any]) -> Callable[[Any], None]:
    """Return a function that writes an observation into `out_row`, an array of the layout's shape.

    It raises EnvError, naming the leaf, where shape, type or range do not fit. Nothing is cast if
    that loses more than the precision of a float; the bounds of a Box are not checked.
    """
    return _node_writer(layout, layout.space, (), iter(layout.leaves), out_row)


def unflatten_observation(layout: ObservationLayout, rows: NDArray[Any]) -> Any:
    """Return the observation that `rows` hold, as a tree of the space's own form.

    Leaves are views of `rows` and change with them. Rows `[..., *shape]` give leaves
    `[..., *leaf.shape]`; in a single row, a Discrete is a scalar of the space's dtype.
    """
    rows = np.asarray(rows)

    def restored(leaf: Leaf) -> Any:
        part = layout.view(rows, leaf)
        is_scalar = leaf.kind == "discrete" and part.ndim == 0
        return dtype_of(leaf.space).type(part[()]) if is_scalar else part

    return rebuilt(layout.space, map(restored, layout.leaves))


def _node_writer(
    layout: ObservationLayout, space: Space, path: Path, leaves: Iterator[Leaf], row: NDArray[Any]
) -> Callable[[Any], None]:
    """Return a function that writes a value of `space`, whose leaves are next in `leaves`."""
    if not is_structured(space):
        leaf = next(leaves)
        return _leaf_writer(leaf, layout.view(row, leaf))
    writers = [
        (key, _node_writer(layout, child, (*path, key), leaves, row))
        for key, child in children_of(space)
    ]
    usual_type = dict if isinstance(space, gymnasium.spaces.Dict) else tuple
    count = len(writers)

    def write(value: Any) -> None:
        if not isinstance(value, usual_type) or len(value) != count:
            check_form(space, value, "observation", path)
        try:
            for key, write_child in writers:
                write_child(value[key])
        except KeyError:
            check_form(space, value, "observation", path)
            raise

    return write


def _leaf_writer(leaf: Leaf, part: NDArray[Any]) -> Callable[[Any], None]:
    """Return a function that copies a value which fits as it is, and else what `fitted` returns."""
    array_type, dtype, shape = np.ndarray, part.dtype, leaf.shape
    takes_floats = dtype.kind == "f"
    any_true = np.logical_or.reduce
    lowest, highest = leaf.lowest, leaf.highest

    def write_fitted(value: Any) -> None:
        part[...] = fitted(leaf, value, dtype, "observation")

    def write_box(value: Any) -> None:
        if (
            type(value) is array_type
            and (value.dtype is dtype or (takes_floats and value.dtype.kind == "f"))
            and value.shape == shape
        ):
            part[...] = value
        else:
            write_fitted(value)

    def write_index(value: Any) -> None:
        if type(value) in _INTEGERS and lowest <= value <= highest:
            part[()] = value
        else:
            write_fitted(value)

    def write_flags(value: Any) -> None:
        if (
            type(value) is array_type
            and value.dtype is dtype
            and value.shape == shape
            and not value.tobytes().translate(None, b"\0\1")  # faster than two comparisons
        ):
            part[...] = value
        else:
            write_fitted(value)

    def write_indices(value: Any) -> None:
        if (
            type(value) is array_type
            and value.dtype is dtype
            and value.shape == shape
            and not any_true((value < lowest) | (value > highest), axis=None)
        ):
            part[...] = value
        else:
            write_fitted(value)

    if leaf.kind == "box":
        return write_box
    if leaf.kind == "discrete":
        lowest, highest = lowest.item(), highest.item()
        return write_index
    is_bytes = leaf.kind == "multi_binary" and dtype.itemsize == 1
    return write_flags if is_bytes else write_indices


class ObservationChecks:
    """Finds values that are not finite, or outside of their Box, in all rows of a vector env."""

    def __init__(self, space: Space, rows: NDArray[Any]) -> None:
        layout = observation_layout(space)
        parts = [(leaf, layout.view(rows, leaf)) for leaf in layout.leaves]
        self._floats = [(leaf, part) for leaf, part in parts if leaf.dtype.kind == "f"]
        self._boxes = [(leaf, part) for leaf, part in parts if leaf.kind == "box"]

    def nonfinite(self) -> tuple[int, str] | None:
        """Return the slot and the description of the first row with nan or inf, or None."""
        sum_of = np.add.reduce
        for leaf, part in self._floats:
            # a sum is finite unless a term is not, or unless it overflows: then look closely
            if math.isfinite(sum_of(part, axis=None)):
                continue
            slots = np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
            if len(slots):
                slot, name = int(slots[0]), spell_path("observation", leaf.path)
                given = f"{brief(part[slot], 60)} ({type(part[slot]).__name__})"
                return slot, f"`{name}` must be finite, but got {given}."
        return None

    def outside(self, masks: NDArray[np.bool_]) -> tuple[int, str] | None:
        """Return the slot and the description of the first row outside of its Box, or None.

        Rows whose mask is False belong to no agent and are not looked at.
        """
        for leaf, part in self._boxes:
            is_outside = (part < leaf.lowest) | (part > leaf.highest)
            slots = np.flatnonzero(is_outside.reshape(len(part), -1).any(axis=1) & masks)
            if len(slots):
                name = spell_path("observation", leaf.path)
                return int(slots[0]), f"`{name}` is outside of {leaf.space}."
        return None
