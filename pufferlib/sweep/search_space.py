"""The search space: ranges by key, and configs as points of a unit cube."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.config import OnOff, Range
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

    def snap(self, units: Unit) -> Unit:
        """Return the coordinates of the configs that rows of [configs, width] stand for."""
        snapped = np.clip(units, 0, 1)
        for key, each in self.ranges.items():
            _snap(snapped[:, self._slices[key]], each)
        return snapped

    def columns(self, key: str) -> slice:
        """Return the coordinates of a key."""
        return self._slices[key]


def _snap(part: Unit, each: Range) -> None:
    """Move coordinates [configs, width of the range] to those of a value, in place."""
    if isinstance(each, OnOff):
        is_on = part[:, 0] >= 0.5
        part[:, 0] = is_on
        _snap(part[:, 1:], each.inner)
        part[~is_on, 1:] = 0.5
    elif each.width > 1:  # a coordinate for each value: the largest has it
        largest = part.argmax(1)
        part[:] = 0
        part[np.arange(len(part)), largest] = 1
    elif each.levels:
        cells = np.minimum((part * each.levels).astype(int), each.levels - 1)
        part[:] = (cells + 0.5) / each.levels
