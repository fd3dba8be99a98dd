"""New spaces: from a short description, or large enough for the spaces of several agents."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from pufferlib.errors import UsageError
from pufferlib.spaces.trees import Space, brief


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
            f"but got {brief(spec)}. Try `make_space((4,))`."
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
            f"`make_multi_discrete` must get numbers of choices, but got {brief(nvec)}."
        )
    return gymnasium.spaces.MultiDiscrete(numbers)


def largest_space(field: str, spaces: Mapping[Hashable, Space]) -> Space:
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
    high = np.zeros(shape, given[0].dtype)  # padding is 0, so 0 must be within the bounds
    for space in given:
        assert isinstance(space, gymnasium.spaces.Box)
        own = tuple(slice(n) for n in space.shape)
        low[own] = np.minimum(low[own], space.low)
        high[own] = np.maximum(high[own], space.high)
    return gymnasium.spaces.Box(low, high, shape, given[0].dtype.type)
