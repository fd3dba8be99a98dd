"""The arrays of a batch: shapes, alignment, defaults and views."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from pufferlib.buffers import Buffers, allocate
from pufferlib.errors import UsageError

IMAGE = spaces.Box(0, 255, (5, 7), np.uint8)
MIXED = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-1, 1, (2,), np.float32)})


def arrays_of(buffers: Buffers) -> dict[str, NDArray[Any]]:
    arrays = {field.name: getattr(buffers, field.name) for field in fields(buffers)}
    return {name: array for name, array in arrays.items() if array is not None}


def test_arrays_have_the_shapes_and_dtypes_of_the_spaces() -> None:
    buffers = allocate(3, IMAGE, spaces.MultiDiscrete([2, 4]), action_masks=True)

    described = {name: (a.shape, a.dtype.name) for name, a in arrays_of(buffers).items()}

    assert described == {
        "observations": ((3, 5, 7), "uint8"),
        "actions": ((3, 2), "int32"),
        "rewards": ((3,), "float32"),
        "terminals": ((3,), "bool"),
        "truncations": ((3,), "bool"),
        "masks": ((3,), "bool"),
        "action_masks": ((3, 6), "bool"),  # 2 + 4 choices
        "final_observations": ((3, 5, 7), "uint8"),
    }


def test_every_array_is_aligned_contiguous_and_apart_from_the_others() -> None:
    buffers = allocate(3, IMAGE, MIXED, action_masks=True)

    ranges = sorted((a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays_of(buffers).values())

    assert all(first % 64 == 0 for first, _ in ranges)
    assert all(a[1] <= b[0] for a, b in pairwise(ranges))
    assert all(array.flags.c_contiguous for array in arrays_of(buffers).values())


def test_everything_is_in_one_allocation() -> None:
    buffers = allocate(4, IMAGE, MIXED)

    assert len({id(array.base) for array in arrays_of(buffers).values()}) == 1


def test_slots_are_unmasked_and_all_actions_allowed_from_the_start() -> None:
    buffers = allocate(2, IMAGE, spaces.Discrete(3), action_masks=True)

    assert buffers.action_masks is not None
    assert buffers.masks.all()
    assert buffers.action_masks.all()
    for name in ("observations", "actions", "rewards", "terminals", "truncations"):
        assert not getattr(buffers, name).any()


def test_action_masks_are_absent_unless_asked_for() -> None:
    assert allocate(2, IMAGE, spaces.Discrete(3)).action_masks is None


def test_slots_are_views_of_the_same_memory() -> None:
    buffers = allocate(6, IMAGE, spaces.Discrete(3), action_masks=True)

    part = buffers.slots(2, 5)
    for array in arrays_of(part).values():
        array[:] = 1

    assert part.num_slots == 3
    for array in arrays_of(buffers).values():
        assert (array[2:5] == 1).all()
    np.testing.assert_array_equal(buffers.rewards, [0, 0, 1, 1, 1, 0])


@pytest.mark.parametrize(("first", "last"), [(-1, 2), (0, 7), (3, 2)])
def test_slots_outside_the_batch_are_refused(first: int, last: int) -> None:
    buffers = allocate(6, IMAGE, spaces.Discrete(3))

    with pytest.raises(UsageError, match=r"0 <= first <= last <= 6, but got first="):
        buffers.slots(first, last)


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(UsageError, match="`num_slots` must be at least 1, but got 0"):
        allocate(0, IMAGE, spaces.Discrete(3))


def test_a_box_has_one_flag_that_says_whether_it_counts() -> None:
    masks = allocate(3, IMAGE, spaces.Box(-1, 1, (2,)), action_masks=True).action_masks
    assert masks is not None
    assert masks.shape == (3, 1)
