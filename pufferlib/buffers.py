"""The arrays of a batch: one allocation, one row for each slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError
from pufferlib.spaces import Array, Space, action_layout, observation_layout

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


@dataclass(frozen=True, eq=False)
class Buffers:
    """The arrays that an env reads and writes in place, for a contiguous range of slots.

    The arrays are views of one block of memory, which lives as long as any of them. The owner of
    the env may use them between two steps: the next step overwrites them.
    """

    observations: Array  # [slots, *shape]; after an end, of the next episode
    actions: Array  # [slots, *shape]
    rewards: NDArray[np.float32]  # [slots]
    terminals: NDArray[np.bool_]  # [slots]
    truncations: NDArray[np.bool_]  # [slots]
    masks: NDArray[np.bool_]  # [slots]; the slot carries real data
    action_masks: NDArray[np.bool_] | None  # [slots, mask_width]; the choice is allowed
    final_observations: Array  # [slots, *shape]; valid where `truncations`

    @property
    def num_slots(self) -> int:
        """Number of rows."""
        return len(self.rewards)

    def unmask(self) -> None:
        """Mark every slot as present and every action as allowed."""
        self.masks[:] = True
        if self.action_masks is not None:
            self.action_masks[:] = True

    def slots(self, first: int, last: int) -> Buffers:
        """Return the rows from `first` up to, not including, `last`: views of the same memory."""
        if not 0 <= first <= last <= self.num_slots:
            raise UsageError(
                f"`first` and `last` must satisfy 0 <= first <= last <= {self.num_slots}, "
                f"but got {first=}, {last=}."
            )
        rows = (None if array is None else array[first:last] for array in vars(self).values())
        return Buffers(*rows)  # type: ignore[arg-type]


def allocate(
    num_slots: int,
    observation_space: Space,
    action_space: Space,
    action_masks: bool = False,
    memory: NDArray[np.uint8] | None = None,
) -> Buffers:
    """Allocate zeroed arrays for `num_slots` agents of these (single-agent) spaces.

    Each array begins at a multiple of 64 bytes. Every slot is unmasked and every action allowed, so
    an env without masks need not know of them. With `memory`, at least `num_bytes` long and at an
    address divisible by 64, the arrays lie in it and hold what it holds.
    """
    places, end = _places(num_slots, observation_space, action_space, action_masks)
    is_new, base = memory is None, 0
    if memory is None:
        memory = np.zeros(end + ALIGNMENT, dtype=np.uint8)
        base = -memory.ctypes.data % ALIGNMENT
    arrays: dict[str, Any] = {
        name: np.ndarray((num_slots, *shape), dtype, buffer=memory, offset=base + offset)
        for name, (shape, dtype, offset) in places.items()
    }
    arrays.setdefault("action_masks", None)
    buffers = Buffers(**arrays)
    if is_new:
        buffers.unmask()
    return buffers


def num_bytes(
    num_slots: int, observation_space: Space, action_space: Space, action_masks: bool = False
) -> int:
    """Return how much memory `allocate` fills for the same arguments, a multiple of 64."""
    return _places(num_slots, observation_space, action_space, action_masks)[1]


def _places(
    num_slots: int, observation_space: Space, action_space: Space, action_masks: bool
) -> tuple[dict[str, tuple[tuple[int, ...], np.dtype[np.generic], int]], int]:
    """Return shape and dtype of one row of each array and its offset, and the bytes of all."""
    if num_slots < 1:
        raise UsageError(f"`num_slots` must be at least 1, but got {num_slots}.")
    observation, action = observation_layout(observation_space), action_layout(action_space)
    rows: dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]] = {
        "observations": (observation.shape, observation.dtype),
        "actions": (action.shape, action.dtype),
        "rewards": ((), np.dtype(np.float32)),
        "terminals": ((), np.dtype(np.bool_)),
        "truncations": ((), np.dtype(np.bool_)),
        "masks": ((), np.dtype(np.bool_)),
        "final_observations": (observation.shape, observation.dtype),
    }
    if action_masks:
        rows["action_masks"] = ((action.mask_width,), np.dtype(np.bool_))
    places, end = {}, 0
    for name, (shape, dtype) in rows.items():
        places[name] = (shape, dtype, end)
        nbytes = num_slots * int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        end += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return places, end
