"""Spaces as JSON values, for the files of a run."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np

from pufferlib.spaces.trees import Array, Space, children_of

_MAX_NUMBERS = 1 << 24  # of a space that comes from a file
_MAX_BOUNDS = 1 << 16  # different bounds of a Box that is written to one
_DTYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
_DTYPES += ("float16", "float32", "float64")


def space_to_json(space: Space) -> Any:
    """Return `space` as JSON values, which `space_from_json` reads back."""
    match space:
        case gymnasium.spaces.Dict():
            return {"dict": [[key, space_to_json(child)] for key, child in children_of(space)]}
        case gymnasium.spaces.Tuple():
            return {"tuple": [space_to_json(child) for _, child in children_of(space)]}
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


def _few_numbers(bounds: Array) -> Any:
    """Return one number where all are equal, else a list; None where that would be too long."""
    if bounds.size and (bounds == bounds.flat[0]).all():
        return bounds.flat[0].item()
    return bounds.ravel().tolist() if bounds.size <= _MAX_BOUNDS else None


def space_from_json(values: Any) -> Space:
    """Return the space that `space_to_json` wrote; anything else is a ValueError or TypeError.

    The values may come from an untrusted file, so sizes are bounded.
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
        raise ValueError(f"unknown kind of space: {kind!s:.50}")
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
    if min(shape, default=1) < 1 or math.prod(shape) > _MAX_NUMBERS:
        raise ValueError(f"a space must have at most {_MAX_NUMBERS} numbers")
    return shape


def _small(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or abs(number) >= 2**62:
        raise ValueError("sizes of a space must be whole numbers")
    return number


def _dtype_name(name: Any, kinds: str) -> str:
    if name not in _DTYPES or np.dtype(name).kind not in kinds:
        raise ValueError(f"invalid dtype of a space: {name!s:.50}")
    return str(name)
