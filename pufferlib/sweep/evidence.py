"""What trials have shown: learning curves in numbers, the Pareto front, and hopeless trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]  # [points, 3]: share of the trial that is done, cost, score

# stopped: judged to be hopeless; cut: ended before that by something else
State = Literal["complete", "stopped", "cut", "failed", "running"]
_CURVE_POINTS = 32  # of a trial that are kept
_FEW = 2  # trials that must be complete before one is stopped
_GOOD = 0.25  # share of the complete trials that count as good
_LEAST_GOOD = 2
_CLEAR = 0.1  # share of what a good trial learns, by which a worse one must be behind
_GRACE = 0.15  # share of a trial that is always run


class Evidence(NamedTuple):
    """One trial in numbers. Higher scores are better. A failed trial may have no curve."""

    unit: NDArray[np.float64]
    curve: Curve
    state: State

    @property
    def score(self) -> float:
        """The last score of the curve."""
        return float(self.curve[-1, 2])

    @property
    def full_cost(self) -> float:
        """The cost of the whole trial; that of a stopped one is extrapolated."""
        done, cost, _ = self.curve[-1]
        return float(cost / done)


def thin(curve: Curve, limit: int = _CURVE_POINTS) -> Curve:
    """Return at most `limit` points of a curve, the last one included."""
    if len(curve) <= limit:
        return curve
    return np.asarray(curve[np.linspace(0, len(curve) - 1, limit).round().astype(int)])


def pareto_front(costs: Sequence[float], scores: Sequence[float]) -> list[int]:
    """Return the trials that no other one beats in both, the cheapest first."""
    order = sorted(range(len(costs)), key=lambda i: (costs[i], -scores[i]))
    front: list[int] = []
    for index in order:
        if not front or scores[index] > scores[front[-1]]:
            front.append(index)
    return front


def is_hopeless(curve: Curve, others: Sequence[Evidence]) -> bool:
    """Return whether no good trial was ever nearly as bad as this one, at its cost and its share.

    Good are the best quarter of the complete trials, two at least. Each is read at the cost that
    this trial has come to, and at the same share of its way: the lower score counts. At equal cost
    alone, a long trial would be measured against short ones that have already ended. The trial must
    be clearly behind: before any has learned much, chance decides which one leads.
    """
    complete = [each for each in others if each.state == "complete"]
    if len(complete) < _FEW or not len(curve) or curve[-1, 0] < _GRACE:
        return False
    complete.sort(key=lambda each: -each.score)
    good = complete[: max(_LEAST_GOOD, round(_GOOD * len(complete)))]
    share, cost, _ = curve[-1]
    reached = [
        float(np.interp(place, each.curve[:, column], each.curve[:, 2], left=-math.inf))
        - _CLEAR * abs(each.score - float(each.curve[0, 2]))
        for each in good  # before its curve begins, it may have been as bad
        for column, place in enumerate((share, cost))
    ]
    return bool(curve[:, 2].max() < min(reached))
