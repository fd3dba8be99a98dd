"""Guards: bytes around the rows show which row was left, on which side, and by how much."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from pufferlib.buffers import allocate
from pufferlib.checks.play import Guards

SPACES = (Box(-1, 1, (3,), np.float32), Discrete(4))


def guarded(num_slots: int) -> Guards:
    return Guards(allocate(num_slots, *SPACES, action_masks=True))


def scribble(array: Any, slot: int, offset: int, count: int) -> None:
    """Write `count` bytes at `offset` from the row of `slot`, as C code could."""
    ctypes.memset(array.ctypes.data + slot * array.strides[0] + offset, 0x11, count)


def test_guarded_rows_keep_their_values_and_can_be_written() -> None:
    rows = allocate(2, *SPACES, action_masks=True)
    rows.observations[:] = [[1, 2, 3], [4, 5, 6]]
    guards = Guards(rows)

    assert guards.buffers.observations.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert guards.buffers.masks.all()
    for name in ("observations", "actions", "rewards", "terminals", "masks", "action_masks"):
        getattr(guards.buffers, name)[...] = 1
    assert guards.overrun() is None


@pytest.mark.parametrize(
    ("name", "slot", "offset", "count", "said"),
    [
        # a row of three floats has 12 bytes; a write at 16 ends 8 bytes past it
        ("observations", 0, 12, 4, "12 bytes of agent 0's row of `observations`, but wrote 4 by"),
        ("observations", 1, 16, 4, "12 bytes of agent 1's row of `observations`, but wrote 8 by"),
        ("observations", 2, 12, 1, "agent 2's row of `observations`, but wrote 1 byte past it"),
        ("observations", 1, -4, 4, "agent 1's row of `observations`, but wrote 4 bytes before it"),
        ("observations", 0, -1, 1, "agent 0's row of `observations`, but wrote 1 byte before it"),
        ("action_masks", 1, 4, 2, "4 bytes of agent 1's row of `action_masks`, but wrote 2 bytes"),
        ("rewards", 3, 0, 4, "agent 2's row of `rewards`, but wrote 4 bytes past it"),
        ("terminals", -1, 0, 1, "agent 0's row of `terminals`, but wrote 1 byte before it"),
        ("masks", 5, 0, 1, "agent 2's row of `masks`, but wrote 3 bytes past it"),
    ],
)
def test_a_write_outside_of_a_row_is_found(
    name: str, slot: int, offset: int, count: int, said: str
) -> None:
    guards = guarded(3)
    scribble(getattr(guards.buffers, name), slot, offset, count)
    assert said in (guards.overrun() or "")
