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
    Array,
    Path,
    Space,
    brief,
    check_form,
    children_of,
    is_structured,
    parts,
    rebuilt,
    spell_path,
)

_INTEGERS = frozenset({int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32})


def flatten_observation(layout: ObservationLayout, value: Any, out_row: Array) -> None:
    """Write one observation into its row, as `observation_writer` does."""
    observation_writer(layout, out_row)(value)


def observation_writer(layout: ObservationLayout, out_row: Array) -> Callable[[Any], None]:
    """Return a function that writes an observation into `out_row`, an array of the layout's shape.

    It raises EnvError, naming the leaf, where shape, type or range do not fit. Nothing is cast if
    that loses more than the precision of a float; the bounds of a Box are not checked.
    """
    return _node_writer(layout, layout.space, (), iter(layout.leaves), out_row)


def batch_writer(
    layout: ObservationLayout, rows: Array
) -> Callable[[Any, slice | NDArray[np.int64]], None]:
    """Return a function that writes a batch of observations into some of `rows` [slots, *shape].

    Leaves of the batch are `[n, *leaf.shape]`, for n slots in order. It raises EnvError as
    `observation_writer` does.
    """
    views = [layout.view(rows, leaf) for leaf in layout.leaves]

    def write(batch: Any, slots: slice | NDArray[np.int64]) -> None:
        count = slots.stop - slots.start if isinstance(slots, slice) else len(slots)
        given = parts(layout.space, batch, "observation")
        for leaf, view, part in zip(layout.leaves, views, given, strict=True):
            view[slots] = fitted(leaf, part, view.dtype, "observation", (count,))

    return write


def unflatten_observation(layout: ObservationLayout, rows: Array) -> Any:
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
    layout: ObservationLayout, space: Space, path: Path, leaves: Iterator[Leaf], row: Array
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


def _leaf_writer(leaf: Leaf, part: NDArray[np.number]) -> Callable[[Any], None]:
    """Return a function that copies a value which fits as it is, and else what `fitted` returns."""
    array_type, dtype, shape = np.ndarray, part.dtype, leaf.shape
    takes_floats, is_box = dtype.kind == "f", leaf.kind == "box"
    is_bytes = leaf.kind == "multi_binary" and dtype.itemsize == 1
    any_true = np.logical_or.reduce
    lowest, highest = leaf.lowest, leaf.highest

    def is_outside(value: NDArray[np.number]) -> bool:
        if is_bytes:  # faster than two comparisons
            return bool(value.tobytes().translate(None, b"\0\1"))
        return bool(any_true((value < lowest) | (value > highest), axis=None))

    def write_array(value: Any) -> None:
        if (
            type(value) is array_type
            and (value.dtype is dtype or (takes_floats and value.dtype.kind == "f"))
            and value.shape == shape
            and (is_box or not is_outside(value))
        ):
            part[...] = value
        else:
            part[...] = fitted(leaf, value, dtype, "observation")

    def write_index(value: Any) -> None:
        if type(value) in _INTEGERS and first <= value <= last:
            part[()] = value
        else:
            part[()] = fitted(leaf, value, dtype, "observation")

    if leaf.kind != "discrete":
        return write_array
    first, last = int(lowest), int(highest)
    return write_index


class ObservationChecks:
    """Finds values that are not finite, or outside of their Box, in all rows of a vector env."""

    def __init__(self, space: Space, rows: Array, noun: str = "observation") -> None:
        layout, self._noun = observation_layout(space), noun
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
                slot, name = int(slots[0]), spell_path(self._noun, leaf.path)
                given = f"{brief(part[slot], 60)} ({type(part[slot]).__name__})"
                if "..." in given:  # the repr may leave out what is wrong
                    given = _first(part[slot], ~np.isfinite(part[slot]))
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
                slot, name = int(slots[0]), spell_path(self._noun, leaf.path)
                given = _first(part[slot], is_outside[slot])
                return slot, f"`{name}` is outside of {leaf.space}: it has {given}."
        return None


def _first(value: NDArray[np.number], chosen: NDArray[np.bool_]) -> str:
    """Return the first chosen number of an observation, and its index if it has one."""
    index = np.argwhere(chosen)[0].tolist()
    where = f" at {index}" if index else ""
    return f"{np.asarray(value)[tuple(index)]!s}{where}"
