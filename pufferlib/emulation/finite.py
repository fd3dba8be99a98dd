"""FiniteCheck: nan and inf in the observations of a whole vector."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.emulation.messages import must, observation_at
from pufferlib.spaces import Space, observation_layout


class FiniteCheck:
    """Looks for nan and inf in the observations of a whole vector: one pass over their floats."""

    def __init__(self, space: Space, rows: NDArray[Any]) -> None:
        layout = observation_layout(space)
        self._parts = [
            (leaf.path, layout.view(rows, leaf)) for leaf in layout.leaves if leaf.dtype.kind == "f"
        ]

    def bad(self) -> tuple[int, str] | None:
        """Return (slot, what is wrong) of the first row that is not finite."""
        sum_of = np.add.reduce
        for path, part in self._parts:
            # a sum is finite unless a term is not, or unless it overflows: then look closely
            if math.isfinite(sum_of(part, axis=None)):
                continue
            slots = np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
            if len(slots):
                return int(slots[0]), must(observation_at(path), "finite", part[slots[0]])
        return None
