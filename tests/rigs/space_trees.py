"""Random spaces for property tests, and bit-equality of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

from pufferlib.spaces import Space

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, dtypes: list[str]) -> spaces.Box:
    dtype: Any = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(SHAPES)
    if dtype.kind == "f":
        low, high = draw(st.sampled_from([(-1.0, 1.0), (-np.inf, np.inf), (0.0, np.inf)]))
        return spaces.Box(low, high, shape, dtype.type)
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, dtype.type)
    return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype.type)


@st.composite
def multi_discretes(draw: st.DrawFn) -> spaces.MultiDiscrete:
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    cells = st.lists(st.integers(1, 9), min_size=4, max_size=4)
    nvec, start = (np.resize(draw(cells), shape) for _ in range(2))
    return spaces.MultiDiscrete(nvec, start=start - 5)


def leaves(box_dtypes: list[str]) -> st.SearchStrategy[Space]:
    discrete = st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-5, 5))
    binary = st.sampled_from([(3,), (2, 2)]).map(spaces.MultiBinary)
    return st.one_of(boxes(box_dtypes), discrete, multi_discretes(), binary)


def trees(box_dtypes: list[str]) -> st.SearchStrategy[Space]:
    def nest(children: st.SearchStrategy[Space]) -> st.SearchStrategy[Space]:
        keys = st.sampled_from(["b", "a", "z", "image"])
        return st.one_of(
            st.dictionaries(keys, children, min_size=1, max_size=3).map(spaces.Dict),
            st.lists(children, min_size=1, max_size=3).map(spaces.Tuple),
        )

    return st.recursive(leaves(box_dtypes), nest, max_leaves=6)


def assert_bit_equal(actual: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        for key in expected:
            assert_bit_equal(actual[key], expected[key])
    elif isinstance(expected, tuple):
        assert isinstance(actual, tuple)
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            assert_bit_equal(a, b)
    else:
        expected = np.asarray(expected)
        # a Discrete action is a plain int, which numpy makes an int64 as the space has it
        assert np.asarray(actual).dtype == expected.dtype
        assert np.asarray(actual).shape == expected.shape
        assert np.asarray(actual).tobytes() == expected.tobytes()
