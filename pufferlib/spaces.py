"""Spaces as flat memory: the only file that inspects Gymnasium spaces.

A space is a tree of Dict and Tuple whose leaves are Box, Discrete, MultiDiscrete or MultiBinary. A
layout says where each leaf lies in an agent's row of the batch, so that any value of the space goes
into one contiguous row and comes back bit-equal. `ObservationLayout` keeps every leaf in its own
dtype; `ActionLayout` holds what a policy chooses: indices and real numbers, four bytes each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import EnvError, UsageError

Space: TypeAlias = gymnasium.Space[Any]
Path: TypeAlias = tuple[str | int, ...]
Kind: TypeAlias = Literal["box", "discrete", "multi_discrete", "multi_binary"]
Noun: TypeAlias = Literal["observation", "action"]

_INT32_MAX = 2**31 - 1
_INT64_LIMIT = 2**62  # from which a start can be subtracted
_MAX_CELLS = 1 << 24  # numbers of a space that comes from a file
_MAX_BOUNDS = 1 << 16  # different bounds of a Box that are written to one
_DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_DTYPES += ("float16", "float32", "float64")
_WORD = 4  # bytes of one component of an action
_INTEGERS = frozenset({int, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32})


@dataclass(frozen=True)
class Leaf:
    """One leaf of a space and its place in the row.

    `dtype` is how the row stores it, `space.dtype` how the env speaks it. `nvec` and `starts` give
    number of choices and lowest value of each component, in C order; both are empty for a Box.
    """

    path: Path
    kind: Kind
    space: Space
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int  # bytes from the beginning of the row
    nvec: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of components."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the leaf takes in the row, without padding."""
        return self.size * self.dtype.itemsize

    @cached_property
    def lowest(self) -> NDArray[Any]:
        """Lowest value of each component as the env speaks it, in the leaf's shape."""
        if isinstance(self.space, gymnasium.spaces.Box):
            return self.space.low
        return np.array(self.starts, dtype=np.int64).reshape(self.shape)

    @cached_property
    def highest(self) -> NDArray[Any]:
        """Highest value of each component as the env speaks it, in the leaf's shape."""
        if isinstance(self.space, gymnasium.spaces.Box):
            return self.space.high
        last = [start + n - 1 for start, n in zip(self.starts, self.nvec, strict=True)]
        return np.array(last, dtype=np.int64).reshape(self.shape)

    @cached_property
    def is_bounded(self) -> bool:
        """Whether any component has a lowest or highest value."""
        return bool(np.isfinite(self.lowest).any() or np.isfinite(self.highest).any())

    @property
    def is_image(self) -> bool:
        """Whether it has three axes of which two are at least 5 long, as pictures do."""
        return self.kind == "box" and len(self.shape) == 3 and sorted(self.shape)[1] >= 5

    @cached_property
    def unit_range(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """What to subtract from an image or a Box of integers, and to divide it by, to get [0, 1].

        None where nothing need be done: bounds within +-1, and bounds that are infinite or too wide
        to say what will come, as those of an int32 are. Vectors of floats have none: theirs are
        often wrong.
        """
        if self.kind != "box" or (self.dtype.kind == "f" and not self.is_image):
            return None
        low, high = self.lowest.astype(np.float64), self.highest.astype(np.float64)
        span = high - low
        if not (span < 2**16).all() or np.abs([low, high]).max() <= 1:
            return None
        return low, np.where(span > 0, span, 1)


@dataclass(frozen=True)
class _Layout:
    """What both layouts share: the row of one slot is an array of `shape` and `dtype`."""

    space: Space
    leaves: tuple[Leaf, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    structured: bool  # the space is a Dict or a Tuple

    @property
    def row_bytes(self) -> int:
        """Bytes of one slot's row, padding included."""
        return math.prod(self.shape) * self.dtype.itemsize

    def view(self, rows: NDArray[Any], leaf: Leaf) -> NDArray[Any]:
        """Return `leaf` of rows `[..., *shape]` as `[..., *leaf.shape]`: the same memory, no copy.

        Each row must be C-contiguous, as rows of `Buffers` are; the leading axes need not be.
        """
        leading = self.leading(rows)
        if not self.structured:
            return rows.reshape(leading + leaf.shape)
        first = leaf.offset // self.dtype.itemsize
        last = first + leaf.nbytes // self.dtype.itemsize
        return rows[..., first:last].view(leaf.dtype).reshape(leading + leaf.shape)

    def leading(self, rows: NDArray[Any]) -> tuple[int, ...]:
        """Return the axes of `rows` before those of one row."""
        return rows.shape[: rows.ndim - len(self.shape)]


@dataclass(frozen=True)
class ObservationLayout(_Layout):
    """How observations lie in memory.

    An unstructured space keeps its shape and dtype (a Discrete is an int32 scalar). A structured
    one is a flat row: of the leaves' dtype where all agree, else of bytes, each leaf aligned to its
    itemsize and the row padded to 8 bytes. Values are stored as the env gives them: the start of a
    Discrete is not subtracted.
    """


@dataclass(frozen=True)
class ActionLayout(_Layout):
    """How actions lie in memory, and what a policy has to choose.

    A row holds one int32 *index* (from 0, whatever the space's start) for each component of the
    Discrete, MultiDiscrete and MultiBinary leaves, then one float32 for each component of the Box
    leaves; both in leaf order. Rows are int32 `[k]` or float32 `[m]` (a lone Discrete is a scalar,
    a lone Box keeps its shape); where both meet, int32 words `[k + m]`, which `split` parts.
    """

    nvec: tuple[int, ...]  # choices of each discrete component
    starts: tuple[int, ...]  # what unflatten_action adds to each index
    num_continuous: int
    low: NDArray[np.float32] = field(compare=False)  # [num_continuous], may be -inf
    high: NDArray[np.float32] = field(compare=False)  # [num_continuous], may be inf

    @property
    def num_discrete(self) -> int:
        """Number of discrete components."""
        return len(self.nvec)

    @cached_property
    def is_plain(self) -> bool:
        """Whether rows hold the very numbers of the space: no start, no reals beside indices."""
        return not any(self.starts) and not (self.nvec and self.num_continuous)

    @property
    def mask_width(self) -> int:
        """Length of an action mask: a flag for each choice of each discrete component.

        A Box alone has one. A row without any flag is that of an agent whose Box counts for
        nothing in this step, as it waits for its turn.
        """
        return sum(self.nvec) or min(1, self.num_continuous)

    def split(self, actions: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the indices `[..., num_discrete]` and reals `[..., num_continuous]` as views."""
        num_words = self.num_discrete + self.num_continuous
        words = actions.reshape(*self.leading(actions), num_words)
        indices, reals = words[..., : self.num_discrete], words[..., self.num_discrete :]
        return indices.view(np.int32), reals.view(np.float32)


def observation_layout(space: Space) -> ObservationLayout:
    """Lay out observations of `space`; a UsageError names the leaf that cannot be laid out."""
    leaves = [_stored_observation(leaf) for leaf in _leaves(space, "observation")]
    if not _is_structured(space):
        return ObservationLayout(space, tuple(leaves), leaves[0].shape, leaves[0].dtype, False)

    placed, end = [], 0
    for leaf in leaves:
        offset = _round_up(end, leaf.dtype.itemsize)
        placed.append(replace(leaf, offset=offset))
        end = offset + leaf.nbytes
    dtypes = {leaf.dtype for leaf in leaves}
    if len(dtypes) == 1:
        dtype = dtypes.pop()
    else:
        dtype = np.dtype(np.uint8)
        end = _round_up(end, max(8, *(leaf.dtype.itemsize for leaf in leaves)))
    return ObservationLayout(space, tuple(placed), (end // dtype.itemsize,), dtype, True)


def action_layout(space: Space) -> ActionLayout:
    """Lay out actions of `space`; a UsageError names the leaf that cannot be laid out."""
    leaves = _leaves(space, "action")
    discrete = [leaf for leaf in leaves if leaf.kind != "box"]
    boxes = [leaf for leaf in leaves if leaf.kind == "box"]
    for leaf in discrete:
        if max(leaf.nvec, default=0) > _INT32_MAX:
            name = _spell("action_space", leaf.path)
            raise UsageError(f"`{name}` must have fewer than 2**31 choices, but got {leaf.space}.")

    placed, end = {}, 0
    for leaf in discrete + boxes:
        dtype = np.dtype(np.float32 if leaf.kind == "box" else np.int32)
        placed[leaf.path] = replace(leaf, dtype=dtype, offset=end)
        end += leaf.size * _WORD
    shape: tuple[int, ...] = (end // _WORD,)
    if leaves[0].path == () and leaves[0].kind in ("discrete", "box"):
        shape = leaves[0].shape
    return ActionLayout(
        space=space,
        leaves=tuple(placed[leaf.path] for leaf in leaves),
        shape=shape,
        dtype=np.dtype(np.int32 if discrete else np.float32),
        structured=_is_structured(space),
        nvec=tuple(n for leaf in discrete for n in leaf.nvec),
        starts=tuple(start for leaf in discrete for start in leaf.starts),
        num_continuous=sum(leaf.size for leaf in boxes),
        low=_bounds([leaf.lowest for leaf in boxes]),
        high=_bounds([leaf.highest for leaf in boxes]),
    )


# ---- Spaces in a file ----------------------------------------------------------------------------


def space_to_json(space: Space) -> Any:
    """Return `space` as JSON values, which `space_from_json` reads back."""
    match space:
        case gymnasium.spaces.Dict():
            return {"dict": [[key, space_to_json(child)] for key, child in _children(space)]}
        case gymnasium.spaces.Tuple():
            return {"tuple": [space_to_json(child) for _, child in _children(space)]}
        case gymnasium.spaces.Discrete():
            return {"discrete": int(space.n), "start": int(space.start)}
        case gymnasium.spaces.MultiDiscrete():
            nvec, start = space.nvec.tolist(), space.start.tolist()
            return {"multi_discrete": nvec, "start": start, "dtype": str(space.dtype)}
        case gymnasium.spaces.MultiBinary():
            return {"multi_binary": space.n if isinstance(space.n, int) else list(space.shape)}
    assert isinstance(space, gymnasium.spaces.Box)
    low, high = (_few_numbers(bounds) for bounds in (space.low, space.high))
    return {"box": list(space.shape), "low": low, "high": high, "dtype": str(space.dtype)}


def _few_numbers(bounds: NDArray[Any]) -> Any:
    """Return one number where all are alike, else a list; None where that would be too long."""
    if bounds.size and (bounds == bounds.flat[0]).all():
        return bounds.flat[0].item()
    return bounds.ravel().tolist() if bounds.size <= _MAX_BOUNDS else None


def space_from_json(values: Any) -> Space:
    """Return the space that `space_to_json` spelled; a ValueError or TypeError if it did not.

    The values may come from a file that anyone can have written, so sizes are bounded.
    """
    kind = next(iter(values), None)
    content = values[kind]
    if kind == "dict":
        return gymnasium.spaces.Dict([(key, space_from_json(child)) for key, child in content])
    if kind == "tuple":
        return gymnasium.spaces.Tuple([space_from_json(child) for child in content])
    if kind == "discrete":
        return gymnasium.spaces.Discrete(_small(content), start=_small(values["start"]))
    if kind == "multi_discrete":
        dtype = np.dtype(_dtype_name(values["dtype"], "iu"))
        return gymnasium.spaces.MultiDiscrete(content, dtype.type, start=values["start"])
    if kind == "multi_binary":
        is_flat = isinstance(content, int)
        shape = _shape([content] if is_flat else content)
        return gymnasium.spaces.MultiBinary(shape[0] if is_flat else shape)
    if kind != "box":
        raise ValueError(f"no kind of space is called {kind!s:.50}")
    shape, dtype = _shape(content), np.dtype(_dtype_name(values["dtype"], "biuf"))
    if values["low"] is None or values["high"] is None:
        raise ValueError(f"a Box of more than {_MAX_BOUNDS} different bounds is not saved")
    low, high = (
        np.broadcast_to(np.asarray(values[name], dtype).reshape(-1), math.prod(shape))
        for name in ("low", "high")
    )
    return gymnasium.spaces.Box(low.reshape(shape), high.reshape(shape), dtype=dtype.type)


def _shape(sizes: Any) -> tuple[int, ...]:
    shape = tuple(_small(size) for size in sizes)
    if min(shape, default=1) < 1 or math.prod(shape) > _MAX_CELLS:
        raise ValueError(f"a space must have at most {_MAX_CELLS} numbers")
    return shape


def _small(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) >= 2**62:
        raise ValueError("sizes of a space must be whole numbers")
    return number


def _dtype_name(name: Any, kinds: str) -> str:
    if name not in _DTYPES or np.dtype(name).kind not in kinds:
        raise ValueError(f"no dtype of a space is called {name!s:.50}")
    return str(name)


def largest_space(field: str, spaces: Mapping[Any, Space]) -> Space:
    """Return the smallest space that holds those of all agents, given by id; see PadAgents."""
    given = list(spaces.values())
    if all(isinstance(space, gymnasium.spaces.Discrete) and space.start == 0 for space in given):
        return gymnasium.spaces.Discrete(max(int(space.n) for space in given))  # type: ignore[attr-defined]
    forms = {(type(space), space.dtype, len(space.shape or ())) for space in given}
    if len(forms) > 1 or not isinstance(given[0], gymnasium.spaces.Box):
        kinds = ", ".join(f"{id}: {space}" for id, space in spaces.items())
        raise UsageError(
            f"`{field}` of padded agents must be Discrete from 0, or Boxes of one dtype and number "
            f"of axes, but got {kinds}."
        )
    shape = tuple(max(sizes) for sizes in zip(*(space.shape or () for space in given), strict=True))
    low = np.zeros(shape, given[0].dtype)
    high = np.zeros(shape, given[0].dtype)  # padding is 0, so 0 lies within
    for space in given:
        assert isinstance(space, gymnasium.spaces.Box)
        own = tuple(slice(n) for n in space.shape)
        low[own] = np.minimum(low[own], space.low)
        high[own] = np.maximum(high[own], space.high)
    return gymnasium.spaces.Box(low, high, shape, given[0].dtype.type)


def flatten_observation(layout: ObservationLayout, value: Any, out_row: NDArray[Any]) -> None:
    """Write one observation into its row, an array of the layout's shape (`rows[slot, ...]`).

    Raises EnvError, naming the leaf, where shape, type or range do not fit. Nothing is cast if that
    loses more than the precision of a float; the bounds of a Box are not checked.
    """
    for leaf, part in zip(layout.leaves, _parts(layout.space, value, "observation"), strict=True):
        layout.view(out_row, leaf)[...] = _checked(leaf, part, leaf.dtype, "observation")


def unflatten_observation(layout: ObservationLayout, rows: NDArray[Any]) -> Any:
    """Return the observation that `rows` hold, as a tree of the space's own form.

    Leaves are views of `rows` and change with them. Rows `[..., *shape]` give leaves
    `[..., *leaf.shape]`; in a single row, a Discrete is a scalar of the space's dtype.
    """
    rows = np.asarray(rows)

    def restored(leaf: Leaf) -> Any:
        part = layout.view(rows, leaf)
        is_scalar = leaf.kind == "discrete" and part.ndim == 0
        return _dtype(leaf.space).type(part[()]) if is_scalar else part

    return _rebuilt(layout.space, map(restored, layout.leaves))


def flatten_action(layout: ActionLayout, value: Any, out_rows: NDArray[Any]) -> None:
    """Write one action of the space into its row, an array of the layout's shape.

    Rows `[..., *shape]` take a batch, a value of the space whose leaves are `[..., *leaf.shape]`.
    Raises UsageError, naming the leaf, where shape, type or range do not fit.
    """
    leading = layout.leading(out_rows)
    for leaf, part in zip(layout.leaves, _parts(layout.space, value, "action"), strict=True):
        checked = _checked(leaf, part, _dtype(leaf.space), "action", leading)
        layout.view(out_rows, leaf)[...] = checked if leaf.kind == "box" else checked - leaf.lowest


def action_batch_shape(layout: ActionLayout, value: Any) -> tuple[int, ...] | None:
    """Return `[...]` of a value of the space whose leaves are `[..., *leaf.shape]`: () for one.

    None where `value` is not a tree of the space's form.
    """
    try:
        first = np.asarray(next(_parts(layout.space, value, "action")))
    except (UsageError, ValueError):
        return None
    return first.shape[: max(0, first.ndim - len(layout.leaves[0].shape))]


def action_values(layout: ActionLayout, rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows `[..., *shape]` in the numbers of the space, the rows themselves if they are.

    An index becomes the value it stands for, and where indices and reals meet all are float64.
    """
    if layout.is_plain:
        return rows
    indices, reals = layout.split(rows)
    values = indices + np.array(layout.starts, dtype=np.int64)
    if layout.num_continuous:
        return np.concatenate((values, reals), -1, dtype=np.float64)
    return values.reshape(rows.shape)


def rows_from_values(layout: ActionLayout, values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers of the space `[..., *shape]` as rows: the inverse of `action_values`.

    What is out of range stays so: 2**32 is no index, and must not become 0. Raises UsageError where
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
            raise UsageError(f"`actions` must be {said}, but got {_brief(chosen)}.")
        chosen = chosen.clip(-_INT64_LIMIT, _INT64_LIMIT).astype(np.int64)
    if any(layout.starts):
        if chosen.dtype.kind == "u":
            chosen = np.minimum(chosen, np.uint64(_INT64_LIMIT))
        chosen = chosen.astype(np.int64).clip(-_INT64_LIMIT, _INT64_LIMIT)
        chosen = chosen - np.array(layout.starts, dtype=np.int64)
    if chosen.dtype.kind in "iu" and chosen.dtype.itemsize >= _WORD:
        chosen = chosen.clip(0 if chosen.dtype.kind == "u" else -_INT32_MAX - 1, _INT32_MAX)
    indices = chosen.astype(np.int32, copy=False)
    if not layout.num_continuous:
        return indices.reshape(values.shape)
    reals = np.ascontiguousarray(flat[..., count:], dtype=np.float32)
    return np.concatenate((indices, reals.view(np.int32)), -1)


def unflatten_action(layout: ActionLayout, row: NDArray[Any]) -> Any:
    """Return the action in `row` as the env expects it: a copy, which the env may keep or change.

    A Discrete is a plain int. A Box takes the nearest value within its bounds: policies sample
    reals without bounds, and envs may not.
    """
    row = np.asarray(row)

    def restored(leaf: Leaf) -> Any:
        part = layout.view(row, leaf)
        dtype = _dtype(leaf.space)
        if leaf.kind == "discrete":
            return int(part) + leaf.starts[0]
        if leaf.kind != "box":
            return (part + leaf.lowest).astype(dtype)
        if dtype.kind == "f":
            return _clipped(part.astype(dtype), leaf)
        return _nearest_integers(part, leaf.lowest, leaf.highest)

    return _rebuilt(layout.space, map(restored, layout.leaves))


# ---- The same, specialised for one row: what a step of a Python env costs ------------------------


def observation_writer(layout: ObservationLayout, out_row: NDArray[Any]) -> Callable[[Any], None]:
    """Return a function that writes an observation into `out_row`, like `flatten_observation`.

    Values that look as they should are written at once; all others take the careful way, and
    raise what it raises.
    """
    write_fast = _tree_writer(layout, layout.space, iter(layout.leaves), out_row)
    array_type, dtype, shape = np.ndarray, layout.dtype, layout.shape

    def write(value: Any) -> None:
        if not write_fast(value):
            flatten_observation(layout, value, out_row)

    def write_box(value: Any) -> None:
        if type(value) is array_type and value.dtype is dtype and value.shape == shape:
            out_row[...] = value
        else:
            write(value)

    return write_box if layout.leaves[0].path == () and layout.leaves[0].kind == "box" else write


def action_reader(layout: ActionLayout, row: NDArray[Any]) -> Callable[[], Any]:
    """Return a function that reads the action in `row` now, like `unflatten_action`.

    An index that is no choice of the space raises UsageError.
    """
    indices = layout.split(row[np.newaxis])[0][0].view(np.uint32)  # negative ones become huge
    numbers = np.array(layout.nvec, dtype=np.uint32)

    def read() -> Any:
        if (indices >= numbers).any():
            component = int(np.flatnonzero(indices >= numbers)[0])
            raise _no_choice(layout, component, int(indices.view(np.int32)[component]))
        return unflatten_action(layout, row)

    if layout.structured:
        return read
    leaf = layout.leaves[0]
    dtype = _dtype(leaf.space)
    if leaf.kind == "discrete":
        n, start, item = leaf.nvec[0], leaf.starts[0], row.item

        def read_index() -> int:
            index = item()
            if 0 <= index < n:
                return index + start  # type: ignore[no-any-return]
            raise _no_choice(layout, 0, index)

        return read_index
    if leaf.kind == "box":
        if dtype == row.dtype:
            return lambda: _clipped(row.copy(), leaf)
        return lambda: unflatten_action(layout, row)
    return read


def _no_choice(layout: ActionLayout, component: int, index: int) -> UsageError:
    where = f" (component {component})" if layout.num_discrete > 1 else ""
    return UsageError(
        f"`actions`{where} must be an index in 0..{layout.nvec[component] - 1} "
        f"for {layout.space}, but got {index}."
    )


def _tree_writer(
    layout: ObservationLayout, space: Space, leaves: Iterator[Leaf], row: NDArray[Any]
) -> Callable[[Any], bool]:
    """Return a function that writes a value as cheaply as can be, or says False."""
    if not _is_structured(space):
        leaf = next(leaves)
        return _leaf_writer(leaf, layout.view(row, leaf))
    children = [(key, _tree_writer(layout, child, leaves, row)) for key, child in _children(space)]
    form = dict if isinstance(space, gymnasium.spaces.Dict) else tuple
    count = len(children)

    def write(value: Any) -> bool:
        if not isinstance(value, form) or len(value) != count:
            return False
        try:
            for key, write_child in children:
                if not write_child(value[key]):
                    return False
        except KeyError:
            return False
        return True

    return write


def _leaf_writer(leaf: Leaf, view: NDArray[Any]) -> Callable[[Any], bool]:
    array_type, dtype, shape = np.ndarray, view.dtype, leaf.shape
    takes_floats = dtype.kind == "f"

    def write_box(value: Any) -> bool:
        if (
            type(value) is array_type
            and (value.dtype is dtype or (takes_floats and value.dtype.kind == "f"))
            and value.shape == shape
        ):
            view[...] = value
            return True
        return False

    def write_index(value: Any) -> bool:
        if type(value) in _INTEGERS and lowest <= value <= highest:
            view[()] = value
            return True
        return False

    def write_flags(value: Any) -> bool:
        if type(value) is array_type and value.dtype is dtype and value.shape == shape:
            view[...] = value
            return not value.tobytes().translate(None, b"\0\1")  # nothing but zeros and ones
        return False

    def write_indices(value: Any) -> bool:
        if type(value) is array_type and value.dtype is dtype and value.shape == shape:
            view[...] = value
            return not any_true((value < lowest) | (value > highest), axis=None)
        return False

    any_true = np.logical_or.reduce
    lowest, highest = leaf.lowest, leaf.highest
    if leaf.kind == "box":
        return write_box
    if leaf.kind == "discrete":
        lowest, highest = lowest.item(), highest.item()
        return write_index
    is_bytes = leaf.kind == "multi_binary" and dtype.itemsize == 1
    return write_flags if is_bytes else write_indices


# ---- Building spaces -----------------------------------------------------------------------------


def make_space(
    spec: Any, *, dtype: Any = None, low: float | None = None, high: float | None = None
) -> Space:
    """Return the space that `spec` describes.

    A shape (H, W, 1 | 3 | 4) is an image of bytes, any other shape an unbounded float32 Box. A dict
    is a Dict of specs, a tuple or list of specs a Tuple, and a space is itself. `dtype`, `low` and
    `high` override, in every shape of a nested spec; float bounds alone make it float32.
    """
    if isinstance(spec, gymnasium.Space):
        return spec
    if isinstance(spec, Mapping):
        return gymnasium.spaces.Dict(
            {key: make_space(child, dtype=dtype, low=low, high=high) for key, child in spec.items()}
        )
    if isinstance(spec, int | np.integer) and not isinstance(spec, bool):
        spec = (spec,)
    if not isinstance(spec, Sequence) or isinstance(spec, str):
        raise UsageError(
            "`make_space` must get a shape, a space, or a dict or tuple of these, "
            f"but got {_brief(spec)}. Try `make_space((4,))`."
        )
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in spec):
        return gymnasium.spaces.Tuple(
            [make_space(child, dtype=dtype, low=low, high=high) for child in spec]
        )
    shape = tuple(int(n) for n in spec)
    if any(n < 0 for n in shape):
        raise UsageError(f"`make_space` must get sizes of at least 0, but got {shape}.")
    return _box(shape, dtype, low, high)


def _box(shape: tuple[int, ...], dtype: Any, low: float | None, high: float | None) -> Space:
    if dtype is None:
        is_image = len(shape) == 3 and shape[2] in (1, 3, 4)
        has_float = isinstance(low, float) or isinstance(high, float)
        dtype = np.uint8 if is_image and not has_float else np.float32
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise UsageError(f"`dtype` must be a number type, but got {dtype!r}.") from None
    if kind.kind == "f":
        lowest, highest = -np.inf, np.inf
    elif kind.kind in "iu":
        lowest, highest = np.iinfo(kind).min, np.iinfo(kind).max
    elif kind.kind == "b":
        lowest, highest = 0, 1
    else:
        raise UsageError(f"`dtype` must be a number type, but got {dtype!r}.")
    low, high = lowest if low is None else low, highest if high is None else high
    if not low <= high:
        raise UsageError(f"`low` must be at most `high`, but got {low=}, {high=}.")
    return gymnasium.spaces.Box(low, high, shape, kind.type)


def make_discrete(n: int, start: int = 0) -> Space:
    """Return a Discrete of `n` choices."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise UsageError(f"`make_discrete` must get a number of choices, but got {n!r}.")
    return gymnasium.spaces.Discrete(int(n), start=int(start))


def make_multi_discrete(nvec: Sequence[int]) -> Space:
    """Return a MultiDiscrete with `nvec[i]` choices for component i."""
    try:
        numbers = np.asarray(nvec)
    except ValueError:  # a ragged list
        numbers = np.zeros(0)
    if numbers.size == 0 or numbers.dtype.kind not in "iu" or (numbers < 1).any():
        raise UsageError(
            f"`make_multi_discrete` must get numbers of choices, but got {_brief(nvec)}."
        )
    return gymnasium.spaces.MultiDiscrete(numbers)


# ---- Trees and leaves ----------------------------------------------------------------------------


def _leaves(space: Space, noun: Noun) -> list[Leaf]:
    """Return the leaves of `space` in order, in the space's own dtypes and not yet placed."""
    leaves = [_leaf(path, leaf_space, noun) for path, leaf_space in _walk(space)]
    if not leaves:
        raise UsageError(f"`{noun}_space` must have at least one leaf, but got {space}.")
    return leaves


def _walk(space: Space, path: Path = ()) -> Iterator[tuple[Path, Space]]:
    """Yield path and space of each leaf: Dict in the order of its keys, Tuple by index."""
    if not _is_structured(space):
        yield path, space
        return
    for key, child in _children(space):
        yield from _walk(child, (*path, key))


def _leaf(path: Path, space: Space, noun: Noun) -> Leaf:
    kind: Kind
    nvec: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    match space:
        case gymnasium.spaces.Box():
            kind = "box"
        case gymnasium.spaces.Discrete():
            kind, nvec, starts = "discrete", (int(space.n),), (int(space.start),)
        case gymnasium.spaces.MultiDiscrete():
            kind = "multi_discrete"
            nvec, starts = tuple(space.nvec.ravel().tolist()), tuple(space.start.ravel().tolist())
        case gymnasium.spaces.MultiBinary():
            size = math.prod(space.shape)
            kind, nvec, starts = "multi_binary", (2,) * size, (0,) * size
        case _:
            raise UsageError(
                f"`{_spell(f'{noun}_space', path)}` must be a Box, Discrete, MultiDiscrete or "
                f"MultiBinary (or a Dict or Tuple of these), but got {type(space).__name__}. "
                "Try a wrapper that turns it into one of them."
            )
    shape = tuple(int(n) for n in space.shape or ())
    return Leaf(path, kind, space, shape, _dtype(space), offset=0, nvec=nvec, starts=starts)


def _stored_observation(leaf: Leaf) -> Leaf:
    """Halve a Discrete, whose dtype is int64 by habit, where its values allow it."""
    fits = leaf.kind == "discrete" and -_INT32_MAX <= leaf.starts[0] <= _INT32_MAX - leaf.nvec[0]
    return replace(leaf, dtype=np.dtype(np.int32)) if fits else leaf


def _parts(space: Space, value: Any, noun: Noun, path: Path = ()) -> Iterator[Any]:
    """Yield the value of each leaf in leaf order, checking that the tree is the space's tree."""
    if not _is_structured(space):
        yield value
        return
    keys = [key for key, _ in _children(space)]
    if isinstance(space, gymnasium.spaces.Dict):
        matches = isinstance(value, Mapping) and value.keys() == set(keys)
        wanted = f"a dict with the keys {keys}"
    else:
        matches = isinstance(value, tuple | list) and len(value) == len(keys)
        wanted = f"a tuple of {len(keys)}"
    if not matches:
        given = f"the keys {list(value)}" if isinstance(value, Mapping) else _brief(value)
        raise _misfit(noun, path, wanted, given)
    for key, child in _children(space):
        yield from _parts(child, value[key], noun, (*path, key))


def _rebuilt(space: Space, parts: Iterator[Any]) -> Any:
    """Arrange leaf values, given in leaf order, in the form of `space`."""
    if not _is_structured(space):
        return next(parts)
    children = {key: _rebuilt(child, parts) for key, child in _children(space)}
    return children if isinstance(space, gymnasium.spaces.Dict) else tuple(children.values())


def _is_structured(space: Space) -> bool:
    return isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)


def _children(space: Space) -> list[tuple[Any, Space]]:
    if isinstance(space, gymnasium.spaces.Dict):
        return list(space.spaces.items())
    assert isinstance(space, gymnasium.spaces.Tuple)
    return list(enumerate(space.spaces))


def _checked(
    leaf: Leaf, value: Any, dtype: np.dtype[Any], noun: Noun, leading: tuple[int, ...] = ()
) -> NDArray[Any]:
    """Return `value` as an array `[*leading, *leaf.shape]` of `dtype`, or raise what does not fit.

    An action may be a number where the leaf has one component.
    """
    shape = leading + leaf.shape
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        wanted = f"an array of shape {shape}"
        raise _misfit(noun, leaf.path, wanted, _brief(value)) from error
    if noun == "action" and leaf.size == 1 and array.shape in (leading, (*leading, 1)):
        array = array.reshape(shape)
    if array.shape != shape:
        given = f"shape {array.shape}" if array.dtype.kind != "O" else _brief(value)
        raise _misfit(noun, leaf.path, f"of shape {shape}", given)
    if array.dtype.kind not in ("biuf" if dtype.kind == "f" else "biu"):
        given = f"{array.dtype}: {_brief(array)}"
        raise _misfit(noun, leaf.path, f"of dtype {dtype}", given)
    if leaf.kind != "box" and ((array < leaf.lowest) | (array > leaf.highest)).any():
        raise _misfit(noun, leaf.path, f"a value of {leaf.space}", _brief(array))
    if array.dtype == dtype:
        return array
    cast = array.astype(dtype)
    if leaf.kind == "box" and dtype.kind != "f" and not np.array_equal(cast, array):
        raise _misfit(noun, leaf.path, f"within the range of {dtype}", _brief(array))
    return cast


def _clipped(reals: NDArray[Any], leaf: Leaf) -> NDArray[Any]:
    """Clip to the leaf's bounds, in place; nan stays nan."""
    if leaf.is_bounded:
        np.maximum(reals, leaf.lowest, out=reals)
        np.minimum(reals, leaf.highest, out=reals)
    return reals


def _nearest_integers(
    reals: NDArray[np.float32], low: NDArray[Any], high: NDArray[Any]
) -> NDArray[Any]:
    """Round to integers within [low, high], without the overflow of a plain cast; nan gives low."""
    rounded = np.rint(reals)
    with np.errstate(invalid="ignore"):  # what overflows here is replaced by a bound
        inside = rounded.astype(low.dtype)
    return np.where(rounded >= high, high, np.where(rounded > low, inside, low))


def _bounds(parts: list[NDArray[Any]]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a float64 bound beyond float32 is no bound: inf
        flat = [part.ravel().astype(np.float32) for part in parts]
    return np.concatenate(flat) if flat else np.zeros(0, dtype=np.float32)


def _dtype(space: Space) -> np.dtype[Any]:
    return np.dtype(space.dtype)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _misfit(noun: Noun, path: Path, wanted: str, given: str) -> EnvError | UsageError:
    message = f"`{_spell(noun, path)}` must be {wanted}, but got {given}."
    return EnvError(message) if noun == "observation" else UsageError(message)


def _spell(noun: str, path: Path) -> str:
    return noun + "".join(f"[{key!r}]" for key in path)


def _brief(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
