"""Spaces as flat memory: layouts, exact round trips, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from space_trees import FLOATS, INTEGERS, assert_bit_equal, trees

from pufferlib.errors import EnvError, UsageError
from pufferlib.spaces import (
    Space,
    action_layout,
    action_reader,
    flatten_action,
    flatten_observation,
    observation_layout,
    unflatten_action,
    unflatten_observation,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(["bool", *INTEGERS, *FLOATS]), st.integers(0, 2**32 - 1))
def test_observations_round_trip_bit_equal(space: Space, seed: int) -> None:
    space.seed(seed)
    layout = observation_layout(space)
    rows = np.full((3, *layout.shape), 7, dtype=layout.dtype)
    values = [space.sample() for _ in range(3)]

    for row, value in enumerate(values):
        flatten_observation(layout, value, rows[row, ...])

    for row, value in enumerate(values):
        assert_bit_equal(unflatten_observation(layout, rows[row, ...]), value)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(["bool", "int8", "uint8", "int16", "float16", "float32"]), st.integers(0, 2**32 - 1))
def test_actions_round_trip_bit_equal(space: Space, seed: int) -> None:
    # only dtypes whose every value is a float32 too: a policy chooses reals in float32
    space.seed(seed)
    layout = action_layout(space)
    rows = np.full((3, *layout.shape), 7, dtype=layout.dtype)
    values = [space.sample() for _ in range(3)]

    for row, value in enumerate(values):
        flatten_action(layout, value, rows[row, ...])

    for row, value in enumerate(values):
        assert_bit_equal(unflatten_action(layout, rows[row, ...]), value)
    indices, reals = layout.split(rows)
    assert indices.shape == (3, len(layout.nvec))
    assert reals.shape == (3, layout.num_continuous)
    assert (indices >= 0).all()
    assert (indices < np.array(layout.nvec)).all()


def test_nan_payloads_and_signed_zeros_survive() -> None:
    space = spaces.Tuple([spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Discrete(2)])
    layout = observation_layout(space)
    row = np.zeros(layout.shape, layout.dtype)
    value = np.array([0x7FF8000000000ABC, 0x8000000000000000, 1], dtype=np.uint64).view(np.float64)

    flatten_observation(layout, (value, 1), row)

    assert unflatten_observation(layout, row)[0].tobytes() == value.tobytes()


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), (84, 84, 3), "uint8"),
        (spaces.Box(-1, 1, (4,), np.float64), (4,), "float64"),
        (spaces.Discrete(5), (), "int32"),
        (spaces.Discrete(5, start=2**31 - 6), (), "int32"),  # highest value 2**31 - 2
        (spaces.Discrete(2**40), (), "int64"),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), (2, 2), "int64"),
        (spaces.MultiBinary((2, 3)), (2, 3), "int8"),
        # all leaves agree: a row of that dtype, 3 + 2*2 numbers
        (spaces.Tuple([spaces.Box(0, 1, (3,)), spaces.Box(0, 1, (2, 2))]), (7,), "float32"),
        (spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Discrete(2)}), (2,), "int32"),
        # bytes: int8 x 3 at 0, float64 at 8, int8 at 16, padded to 24
        (
            spaces.Tuple(
                [
                    spaces.MultiBinary(3),
                    spaces.Box(0, 1, (), np.float64),
                    spaces.Box(0, 1, (), np.int8),
                ]
            ),
            (24,),
            "uint8",
        ),
    ],
)
def test_shape_and_dtype_of_observation_rows(
    space: Space, shape: tuple[int, ...], dtype: str
) -> None:
    layout = observation_layout(space)

    assert layout.shape == shape
    assert layout.dtype == dtype
    assert layout.row_bytes == np.zeros(shape, dtype).nbytes
    assert layout.structured == isinstance(space, spaces.Dict | spaces.Tuple)


def test_mixed_leaves_are_aligned_to_their_itemsize() -> None:
    space = spaces.Dict(
        {
            "a": spaces.Box(0, 255, (3,), np.uint8),
            "b": spaces.Tuple([spaces.Box(0, 1, (2,), np.float64), spaces.Discrete(4)]),
            "c": spaces.Box(0, 1, (1,), np.float16),
        }
    )

    layout = observation_layout(space)

    # a: bytes 0-2; b[0]: 8-23; b[1] int32: 24-27; c float16: 28-29; padded to 32
    assert [(leaf.path, leaf.offset) for leaf in layout.leaves] == [
        (("a",), 0),
        (("b", 0), 8),
        (("b", 1), 24),
        (("c",), 28),
    ]
    assert layout.row_bytes == 32


def test_observation_leaves_are_views_of_a_batch_of_rows() -> None:
    space = spaces.Dict({"image": spaces.Box(0, 255, (2, 3), np.uint8), "speed": spaces.Box(0, 9)})
    layout = observation_layout(space)
    rows = np.zeros((4, 5, *layout.shape), layout.dtype)  # [segments, horizon, row]

    tree = unflatten_observation(layout, rows)
    tree["image"][3, 4] = 200
    tree["speed"][3, 4] = 2.5

    assert tree["image"].shape == (4, 5, 2, 3)
    assert tree["speed"].shape == (4, 5, 1)
    again = unflatten_observation(layout, rows[3, 4])
    assert (again["image"] == 200).all()
    assert again["speed"] == np.float32(2.5)


def test_leaves_follow_the_key_order_of_gymnasium() -> None:
    parts: dict[str, Space] = {"z": spaces.Discrete(2), "a": spaces.Discrete(3)}
    space = spaces.Dict(parts)

    layout = observation_layout(space)

    assert [leaf.path for leaf in layout.leaves] == [(key,) for key in space.spaces]


def test_equal_spaces_have_equal_layouts() -> None:
    def build(n: int) -> Space:
        return spaces.Dict({"a": spaces.Discrete(n), "b": spaces.Box(0, 1, (2,))})

    assert observation_layout(build(3)) == observation_layout(build(3))
    assert observation_layout(build(3)) != observation_layout(build(4))
    assert action_layout(build(3)) == action_layout(build(3))


@pytest.mark.parametrize(
    ("space", "shape", "dtype", "nvec", "num_continuous"),
    [
        (spaces.Discrete(5, start=2), (), "int32", (5,), 0),
        (spaces.MultiDiscrete([3, 5]), (2,), "int32", (3, 5), 0),
        (spaces.MultiDiscrete(np.array([[3, 5], [2, 4]])), (4,), "int32", (3, 5, 2, 4), 0),
        (spaces.MultiBinary(3), (3,), "int32", (2, 2, 2), 0),
        (spaces.Box(-1, 1, (2, 3)), (2, 3), "float32", (), 6),
        (spaces.Box(-1, 1, (2,), np.float64), (2,), "float32", (), 2),
        (spaces.Tuple([spaces.Discrete(3)]), (1,), "int32", (3,), 0),
        (spaces.Tuple([spaces.Box(-1, 1, (2,))]), (2,), "float32", (), 2),
        (spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(3)]), (3,), "int32", (3,), 2),
    ],
)
def test_shape_and_dtype_of_action_rows(
    space: Space, shape: tuple[int, ...], dtype: str, nvec: tuple[int, ...], num_continuous: int
) -> None:
    layout = action_layout(space)

    assert layout.shape == shape
    assert layout.dtype == dtype
    assert layout.nvec == nvec
    assert layout.num_continuous == num_continuous
    assert layout.mask_width == (sum(nvec) or 1)


def test_mixed_actions_hold_indices_first_then_reals() -> None:
    space = spaces.Dict(
        {
            "aim": spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 9.0]), dtype=np.float64),
            "gear": spaces.Discrete(5, start=-1),
            "keys": spaces.MultiBinary(2),
        }
    )
    layout = action_layout(space)
    rows = np.zeros((2, *layout.shape), layout.dtype)
    indices, reals = layout.split(rows)

    indices[1] = [4, 0, 1]
    reals[1] = [-0.5, 8.0]
    action = unflatten_action(layout, rows[1])

    assert layout.nvec == (5, 2, 2)
    assert layout.starts == (-1, 0, 0)
    np.testing.assert_array_equal(layout.low, [-1, 0])
    np.testing.assert_array_equal(layout.high, [1, 9])
    assert layout.low.dtype == layout.high.dtype == np.float32
    assert action["gear"] == 3  # index 4, start -1
    assert type(action["gear"]) is int
    np.testing.assert_array_equal(action["keys"], [0, 1])
    np.testing.assert_array_equal(action["aim"], [-0.5, 8.0])
    assert action["aim"].dtype == np.float64
    assert space.contains({**action, "gear": np.int64(action["gear"])})


def test_actions_are_copies_that_an_env_may_keep() -> None:
    layout = action_layout(spaces.Box(-1, 1, (2,)))
    row = np.zeros(2, np.float32)

    action = unflatten_action(layout, row)
    row[:] = 9

    np.testing.assert_array_equal(action, [0, 0])


def test_integer_box_actions_take_the_nearest_valid_integer() -> None:
    layout = action_layout(spaces.Box(-5, 100, (6,), np.int8))
    reals = np.array([2.4, 2.6, 1e30, -1e30, np.nan, -5.2], np.float32)

    action = unflatten_action(layout, reals)

    np.testing.assert_array_equal(action, [2, 3, 100, -5, -5, -5])
    assert action.dtype == np.int8


def test_int64_box_actions_do_not_overflow_at_their_bounds() -> None:
    limits = np.iinfo(np.int64)
    layout = action_layout(spaces.Box(limits.min, limits.max, (2,), np.int64))

    action = unflatten_action(layout, np.array([1e19, -1e19], np.float32))

    np.testing.assert_array_equal(action, [limits.max, limits.min])


@pytest.mark.parametrize("layout_of", [observation_layout, action_layout])
@pytest.mark.parametrize(
    "leaf",
    [spaces.Text(5), spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Box(0, 1), None)],
)
def test_unsupported_spaces_raise_with_their_path(layout_of: Any, leaf: Space) -> None:
    space = spaces.Dict({"inner": spaces.Tuple([spaces.Discrete(2), leaf])})

    with pytest.raises(UsageError) as caught:
        layout_of(space)

    assert "_space['inner'][1]` must be a Box, Discrete" in str(caught.value)
    assert f"but got {type(leaf).__name__}." in str(caught.value)


def test_spaces_without_leaves_or_with_too_many_choices_raise() -> None:
    with pytest.raises(UsageError, match="`observation_space` must have at least one leaf"):
        observation_layout(spaces.Tuple([]))
    with pytest.raises(UsageError, match=r"`action_space\[0\]` must have fewer than 2\*\*31"):
        action_layout(spaces.Tuple([spaces.Discrete(2**31)]))


STRUCTURED = spaces.Dict(
    {"image": spaces.Box(0, 255, (2,), np.uint8), "goal": spaces.Discrete(4, start=1)}
)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"image": [1, 300], "goal": 1}, r"observation\['image'\]` must be within the range of u"),
        ({"image": [-1, 2], "goal": 1}, r"observation\['image'\]` must be within the range of u"),
        ({"image": [3.7, 2], "goal": 1}, r"observation\['image'\]` must be of dtype uint8"),
        ({"image": [1], "goal": 1}, r"must be of shape \(2,\), but got shape \(1,\)"),
        ({"image": [[1], [1, 2]], "goal": 1}, r"must be an array of shape \(2,\)"),
        ({"image": "no", "goal": 1}, r"must be of shape \(2,\), but got shape \(\)"),
        ({"image": [1, 2], "goal": 5}, r"`observation\['goal'\]` must be a value of Discrete\(4"),
        ({"image": [1, 2], "goal": 0}, r"`observation\['goal'\]` must be a value of Discrete\(4"),
        ({"image": [1, 2], "goal": 1.0}, r"`observation\['goal'\]` must be of dtype int32"),
        ({"image": [1, 2]}, r"must be a dict with the keys \['goal', 'image'\], but got the keys"),
        ({"image": [1, 2], "goal": 1, "extra": 0}, r"must be a dict with the keys"),
        ([1, 2], r"`observation` must be a dict with the keys"),
    ],
)
def test_observations_that_do_not_fit_raise_with_their_path(value: Any, message: str) -> None:
    layout = observation_layout(STRUCTURED)

    with pytest.raises(EnvError, match=message):
        flatten_observation(layout, value, np.zeros(layout.shape, layout.dtype))


def test_actions_that_do_not_fit_are_usage_errors() -> None:
    layout = action_layout(spaces.Tuple([spaces.Discrete(3), spaces.Discrete(3)]))
    row = np.zeros(layout.shape, layout.dtype)

    with pytest.raises(UsageError, match=r"`action\[1\]` must be a value of Discrete\(3\)"):
        flatten_action(layout, (0, 3), row)
    with pytest.raises(UsageError, match=r"`action` must be a tuple of 2, but got \(0,\)"):
        flatten_action(layout, (0,), row)


def test_a_cast_loses_only_float_precision() -> None:
    layout = observation_layout(spaces.Box(-1, 1, (2,), np.float32))
    row = np.zeros(2, np.float32)

    flatten_observation(layout, [0.1, True], row)

    np.testing.assert_array_equal(row, np.array([0.1, 1.0], np.float32))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_are_clipped_to_the_bounds_of_their_box(dtype: Any) -> None:
    low, high = np.array([-1, 0, -np.inf], dtype), np.array([1, 0.5, np.inf], dtype)
    for space in (
        spaces.Box(low, high, dtype=dtype),
        spaces.Tuple([spaces.Box(low, high, dtype=dtype)]),
    ):
        layout = action_layout(space)
        row = np.array([-3, 0.75, 1e9], np.float32)
        for action in (unflatten_action(layout, row), action_reader(layout, row)()):
            reals = action[0] if isinstance(action, tuple) else action
            assert reals.tolist() == [-1, 0.5, 1e9]
        assert row.tolist() == [-3, 0.75, 1e9]  # the policy's own choice stays what it was
