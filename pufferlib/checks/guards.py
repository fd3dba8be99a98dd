"""Guards: rows between guard bytes, to detect writes outside of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import ALIGNMENT, Buffers

_PATTERN = 0x2B  # not a bool, and as a float (6e-13) changed by adding any reward
_MAX_GAP = 4096  # bytes
_APART = ("observations", "action_masks")  # an agent writes them through a pointer to its row


class Guards:
    """Copies of `buffers` with guard bytes before and after each array.

    Rows of observations and action masks also have guard bytes between them. An env bound to
    `self.buffers` must not change those bytes; `overrun` reports where it did.
    """

    def __init__(self, buffers: Buffers) -> None:
        self._arrays: dict[str, _Guarded] = {}
        copies: dict[str, Any] = {}
        for name, array in vars(buffers).items():
            copies[name] = None
            if array is not None:
                self._arrays[name] = _Guarded(array, apart=name in _APART)
                copies[name] = self._arrays[name].array
        self.buffers = Buffers(**copies)

    def overrun(self) -> str | None:
        """Describe what was written outside of a row; None if nothing was."""
        for name, guarded in self._arrays.items():
            found = guarded.overrun()
            if found is not None:
                return f"must write only the {found[0]} of `{name}`, but wrote {found[1]}."
        return None


class _Guarded:
    """One array between guard bytes, with its rows apart or side by side."""

    def __init__(self, array: NDArray[np.generic], apart: bool) -> None:
        self._row = array[0].nbytes
        gap = -(-min(self._row, _MAX_GAP) // ALIGNMENT) * ALIGNMENT
        self._stride = self._row + (gap if apart else 0)
        size = gap + len(array) * self._stride + gap
        memory = np.full(size + ALIGNMENT, _PATTERN, dtype=np.uint8)
        self._memory = memory[-memory.ctypes.data % ALIGNMENT :][:size]
        self._starts = gap + self._stride * np.arange(len(array))  # of the rows
        self.array: NDArray[np.generic] = np.ndarray(
            array.shape,
            array.dtype,
            buffer=self._memory,
            offset=gap,
            strides=(self._stride, *array.strides[1:]),
        )
        self._is_guard = np.ones(size, dtype=np.bool_)
        for start in self._starts:
            self._is_guard[start : start + self._row] = False
        self.array[...] = array

    def overrun(self) -> tuple[str, str] | None:
        """Return the row and by how many bytes it was exceeded, or None."""
        touched = np.flatnonzero((self._memory != _PATTERN) & self._is_guard)
        if not len(touched):
            return None
        ends = self._starts + self._row
        slot = int(np.searchsorted(ends, touched[0], side="right")) - 1  # the last row before it
        after = self._starts[slot + 1] if slot + 1 < len(ends) else len(self._memory)
        here = touched[touched < after]
        if slot < 0 or (slot + 1 < len(ends) and after - here[-1] <= here[0] - ends[slot]):
            slot, count, side = slot + 1, int(after - here[0]), "before"
        else:
            count, side = int(here[-1] - ends[slot]) + 1, "past"
        noun = "byte" if count == 1 else "bytes"
        return f"{self._row} bytes of agent {slot}'s row", f"{count} {noun} {side} it"
