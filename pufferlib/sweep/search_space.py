"""The search space: ranges by key, and configs as points of a unit cube."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.config import Range
from pufferlib.errors import UsageError

Unit = NDArray[np.float64]  # coordinates of one config: [width]


class SearchSpace:
    """Ranges by key. `encode` and `decode` translate between configs and coordinates in [0, 1].

    `budget` is the key whose value is the length of a trial, if it is searched: the point of a
    trial that is half done then has half of that value.
    """

    def __init__(self, ranges: Mapping[str, Range], budget: str | None = None) -> None:
        if not ranges:
            raise UsageError(
                "the search space must have a key, but is empty. Try 'learning_rate': "
                "'log_uniform 1e-4 1e-2'."
            )
        self.ranges = dict(ranges)
        self.width = sum(each.width for each in self.ranges.values())
        self._slices: dict[str, slice] = {}
        start = 0
        for key, each in self.ranges.items():
            self._slices[key] = slice(start, start + each.width)
            start += each.width
        self.budget_key = budget if budget in self.ranges else None
        if self.budget_key and self.ranges[self.budget_key].width > 1:
            self.budget_key = None

    @property
    def budget_axis(self) -> int | None:
        """The coordinate of the length of a trial, None if it is not searched."""
        return None if self.budget_key is None else self._slices[self.budget_key].start

    def decode(self, unit: Unit) -> dict[str, Any]:
        """Return the config at these coordinates."""
        points = unit.tolist()
        return {key: each.decode(points[self._slices[key]]) for key, each in self.ranges.items()}

    def encode(self, config: Mapping[str, Any]) -> Unit:
        """Return the coordinates of a config whose values are in their ranges."""
        parts = [each.encode(config[key]) for key, each in self.ranges.items()]
        return np.array([number for part in parts for number in part])

    def contains(self, config: Mapping[str, Any]) -> bool:
        """Return whether every key has a value of its range."""
        return all(key in config and r.contains(config[key]) for key, r in self.ranges.items())

    def snap(self, unit: Unit) -> Unit:
        """Return the coordinates of the config that `unit` stands for."""
        return self.encode(self.decode(unit))

    def resample(self, unit: Unit, key: str, rng: np.random.Generator) -> None:
        """Replace the coordinates of one key by random ones, in place."""
        unit[self._slices[key]] = rng.random(self.ranges[key].width)

    def columns(self, key: str) -> slice:
        """Return the coordinates of a key."""
        return self._slices[key]
