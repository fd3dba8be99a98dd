"""Layouts: where each leaf of a space lies in an agent's row of the batch.

A space is a tree of Dict and Tuple whose leaves are Box, Discrete, MultiDiscrete or MultiBinary.
`ObservationLayout` stores every leaf in its own dtype; `ActionLayout` stores what a policy chooses:
indices and real numbers, four bytes each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError
from pufferlib.spaces.trees import (
    Array,
    Noun,
    Path,
    Space,
    brief,
    is_structured,
    misfit,
    spell_path,
    walk,
)

Scalar = TypeVar("Scalar", bound=np.generic)
Kind: TypeAlias = Literal["box", "discrete", "multi_discrete", "multi_binary"]

INT32_MAX = 2**31 - 1
WORD = 4  # bytes of one component of an action


@dataclass(frozen=True)
class Leaf:
    """One leaf of a space and its place in the row.

    `dtype` is that of the row, `space.dtype` that of the env. `nvec` and `starts` give
    the number of choices and lowest value of each component, in C order; both are empty for a Box.
    """

    path: Path
    kind: Kind
    space: Space
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
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
    def lowest(self) -> NDArray[np.number]:
        """Lowest value of each component for the env, in the leaf's shape."""
        if isinstance(self.space, gymnasium.spaces.Box):
            return self.space.low
        return np.array(self.starts, dtype=np.int64).reshape(self.shape)

    @cached_property
    def highest(self) -> NDArray[np.number]:
        """Highest value of each component for the env, in the leaf's shape."""
        if isinstance(self.space, gymnasium.spaces.Box):
            return self.space.high
        last = [start + n - 1 for start, n in zip(self.starts, self.nvec, strict=True)]
        return np.array(last, dtype=np.int64).reshape(self.shape)

    @property
    def is_image(self) -> bool:
        """Whether it has three axes of which two are at least 5 long, as pictures do."""
        return self.kind == "box" and len(self.shape) == 3 and sorted(self.shape)[1] >= 5

    @cached_property
    def unit_range(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """What to subtract from an image or a Box of integers, and to divide it by, to get [0, 1].

        None where bounds are within +-1 already, or infinite, or too wide to predict the values, as
        those of an int32 are. Also None for vectors of floats: their bounds are often wrong.
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
    """Base of both layouts: the row of one slot is an array of `shape` and `dtype`."""

    space: Space
    leaves: tuple[Leaf, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    structured: bool  # the space is a Dict or a Tuple

    @property
    def row_bytes(self) -> int:
        """Bytes of one slot's row, padding included."""
        return math.prod(self.shape) * self.dtype.itemsize

    def view(self, rows: Array, leaf: Leaf) -> NDArray[np.number]:
        """Return `leaf` of rows `[..., *shape]` as `[..., *leaf.shape]`: the same memory, no copy.

        Each row must be C-contiguous, as rows of `Buffers` are; the leading axes need not be.
        """
        leading = self.leading(rows)
        if not self.structured:
            return rows.reshape(leading + leaf.shape)  # type: ignore[return-value]
        first = leaf.offset // self.dtype.itemsize
        last = first + leaf.nbytes // self.dtype.itemsize
        return rows[..., first:last].view(leaf.dtype).reshape(leading + leaf.shape)

    def leading(self, rows: Array) -> tuple[int, ...]:
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
    a lone Box keeps its shape); with both, int32 words `[k + m]`, which `split` separates.
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

        A Box alone has one. A mask without any flag marks an agent that waits: its Box action is
        not used in this step.
        """
        return sum(self.nvec) or min(1, self.num_continuous)

    @cached_property
    def firsts(self) -> NDArray[np.intp]:
        """Where the flags of each discrete component begin in a mask."""
        return np.cumsum((0, *self.nvec))[:-1]

    def split(self, actions: Array) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the indices `[..., num_discrete]` and reals `[..., num_continuous]` as views."""
        num_words = self.num_discrete + self.num_continuous
        words = actions.reshape(*self.leading(actions), num_words)
        indices, reals = words[..., : self.num_discrete], words[..., self.num_discrete :]
        return indices.view(np.int32), reals.view(np.float32)


def observation_layout(space: Space) -> ObservationLayout:
    """Lay out observations of `space`; a UsageError names the leaf that cannot be laid out."""
    leaves = [_stored_observation(leaf) for leaf in _leaves(space, "observation")]
    if not is_structured(space):
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
        if max(leaf.nvec, default=0) > INT32_MAX:
            name = spell_path("action_space", leaf.path)
            raise UsageError(f"`{name}` must have fewer than 2**31 choices, but got {leaf.space}.")

    placed, end = {}, 0
    for leaf in discrete + boxes:
        dtype = np.dtype(np.float32 if leaf.kind == "box" else np.int32)
        placed[leaf.path] = replace(leaf, dtype=dtype, offset=end)
        end += leaf.size * WORD
    shape: tuple[int, ...] = (end // WORD,)
    if leaves[0].path == () and leaves[0].kind in ("discrete", "box"):
        shape = leaves[0].shape
    return ActionLayout(
        space=space,
        leaves=tuple(placed[leaf.path] for leaf in leaves),
        shape=shape,
        dtype=np.dtype(np.int32 if discrete else np.float32),
        structured=is_structured(space),
        nvec=tuple(n for leaf in discrete for n in leaf.nvec),
        starts=tuple(start for leaf in discrete for start in leaf.starts),
        num_continuous=sum(leaf.size for leaf in boxes),
        low=_bounds([leaf.lowest for leaf in boxes]),
        high=_bounds([leaf.highest for leaf in boxes]),
    )


def _leaves(space: Space, noun: Noun) -> list[Leaf]:
    """Return the leaves of `space` in order, in the space's own dtypes and not yet placed."""
    leaves = [_leaf(path, leaf_space, noun) for path, leaf_space in walk(space)]
    if not leaves:
        raise UsageError(f"`{noun}_space` must have at least one leaf, but got {space}.")
    return leaves


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
                f"`{spell_path(f'{noun}_space', path)}` must be a Box, Discrete, MultiDiscrete or "
                f"MultiBinary (or a Dict or Tuple of these), but got {type(space).__name__}. "
                "Try a wrapper that turns it into one of them."
            )
    shape = tuple(int(n) for n in space.shape or ())
    return Leaf(path, kind, space, shape, dtype_of(space), offset=0, nvec=nvec, starts=starts)


def _stored_observation(leaf: Leaf) -> Leaf:
    """Store a Discrete, int64 by default, as int32 where its values fit."""
    fits = leaf.kind == "discrete" and -INT32_MAX <= leaf.starts[0] <= INT32_MAX - leaf.nvec[0]
    return replace(leaf, dtype=np.dtype(np.int32)) if fits else leaf


def _bounds(parts: list[Array]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a float64 bound beyond float32 becomes inf: unbounded
        flat = [part.ravel().astype(np.float32) for part in parts]
    return np.concatenate(flat) if flat else np.zeros(0, dtype=np.float32)


def dtype_of(space: Space) -> np.dtype[np.number]:
    return np.dtype(space.dtype)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class MisfitError(Exception):
    """A value does not fit: the message says what it must be, and what was given."""

    def __init__(self, wanted: str, given: str) -> None:
        super().__init__(f"must be {wanted}, but got {given}.")


def cast(
    value: Any, shape: tuple[int, ...], dtype: np.dtype[Scalar], kinds: str = ""
) -> NDArray[Scalar]:
    """Return `value` as an array of `shape` and `dtype`, or raise a MisfitError.

    No cast loses more than the precision of a float. `kinds` are the kinds of dtype that may be
    given: for an integer only integers, unless stated otherwise.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        raise MisfitError(f"an array of shape {shape}", brief(value)) from None
    if array.shape != shape:
        given = f"shape {array.shape}" if array.dtype.kind != "O" else brief(value)
        raise MisfitError(f"of shape {shape}", given)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in (kinds or ("biuf" if dtype.kind == "f" else "biu")):
        raise MisfitError(f"of dtype {dtype}", f"{array.dtype}: {brief(array)}")
    with np.errstate(invalid="ignore"):
        out = array.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(out, array):
        raise MisfitError(f"within the range of {dtype}", brief(array))
    return out


def fitted(
    leaf: Leaf, value: Any, dtype: np.dtype[np.number], noun: Noun, leading: tuple[int, ...] = ()
) -> NDArray[np.number]:
    """Return `value` as an array `[*leading, *leaf.shape]` of `dtype`; raise if it does not fit.

    An action may be a number where the leaf has one component.
    """
    shape = leading + leaf.shape
    if noun == "action" and leaf.size == 1 and np.shape(value) in (leading, (*leading, 1)):
        value = np.reshape(value, shape)
    try:
        array = cast(value, shape, dtype)
        if leaf.kind != "box" and ((array < leaf.lowest) | (array > leaf.highest)).any():
            raise MisfitError(f"a value of {leaf.space}", brief(np.asarray(value)))
    except MisfitError as error:
        raise misfit(noun, leaf.path, str(error)) from None
    return array
