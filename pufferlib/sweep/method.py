"""Protein's method: which config to try next, given all trials so far. Numbers in, numbers out.

A trial is worth what it is expected to add to the best score, divided by what it is expected to
cost. While much of the budget is left, cost counts in full and cheap trials come first; towards the
end only the score counts. Candidates are drawn around the Pareto front of cost and score, and
everywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.sweep.evidence import Evidence, pareto_front
from pufferlib.sweep.gaussian import Fits, Models
from pufferlib.sweep.search_space import SearchSpace, Unit

Array = NDArray[np.float64]

_NUM_FIRST = 4  # trials before a model is fitted
_INNER = 0.7  # share of each range, around its middle, that they are drawn from
_GLOBAL = 512  # candidates from everywhere
_LOCAL = 256  # candidates around the front, for each scale
_CENTERS = 12  # trials that candidates are drawn around
_SCALES = (0.02, 0.08, 0.25)  # of steps away from a center
_NEVER = 1e12  # below the worth of any config that fits
_KNOWN = 8  # complete trials before one is repeated
_JUMP = 0.05  # chance of a key to go anywhere
_DEAR = 0.1  # share of the cost that is left above which no config is repeated
_NOISY = 0.02  # deviation between runs of a config, in spreads of scores, from which it is repeated


class Budget(NamedTuple):
    """What is left of a sweep's budget."""

    share: float  # 1 at the beginning, 0 at the end
    cost: float = math.inf  # what the next trial may cost


class Suggestion(NamedTuple):
    """The config to try next; `repeat` is the trial whose config it repeats, or None."""

    unit: Unit
    repeat: int | None = None


class Protein:
    """Suggests the next config. Deterministic for a seed, the trials and the budget."""

    def __init__(self, space: SearchSpace, seed: int = 0, repeats: int = 2) -> None:
        self.space, self.seed, self.repeats = space, seed, repeats
        self._fits = Fits()

    def suggest(self, trials: Sequence[Evidence], budget: Budget) -> Suggestion:
        """Return the next config; `trials` are all so far, the running ones included."""
        rng = np.random.default_rng([self.seed, len(trials)])
        ended = [each for each in trials if each.state in ("complete", "stopped")]
        scored = [each for each in ended if len(each.curve)]
        if len(trials) < _NUM_FIRST or len(scored) < 3:
            return Suggestion(self._first(len(trials)))
        models = Models(self.space, trials, self._fits)
        repeat = self._to_repeat(trials, models, budget)
        if repeat is not None:
            return Suggestion(trials[repeat].unit, repeat)
        candidates = self._candidates(scored, rng)
        values = self._values(models, trials, candidates, budget)
        for scale in _SCALES[::-1]:  # climb from the best few
            best = candidates[np.argsort(-values)[:6]]
            near = self._near(np.repeat(best, 16, axis=0), scale / 2, rng)
            values = np.append(values, self._values(models, trials, near, budget))
            candidates = np.vstack([candidates, near])
        return Suggestion(candidates[int(values.argmax())])

    def recommend(self, trials: Sequence[Evidence]) -> int | None:
        """Return the complete trial with the best config.

        Of a config that ran several times the mean counts, stopped runs included. Of configs within
        a fiftieth of the best, the one that ran most often leads, so a single lucky run does not
        win; of equal ones the cheapest.
        """
        groups: dict[bytes, list[int]] = {}
        for index, each in enumerate(trials):
            if each.state in ("complete", "stopped") and len(each.curve):
                groups.setdefault(each.unit.round(9).tobytes(), []).append(index)
        groups = {
            key: group
            for key, group in groups.items()
            if any(trials[i].state == "complete" for i in group)
        }
        if not groups:
            return None
        means = {key: float(np.mean([trials[i].score for i in g])) for key, g in groups.items()}
        best = max(means.values())
        spread = best - min(means.values())
        most = max(len(group) for key, group in groups.items() if means[key] >= best - spread / 50)
        costs = {key: trials[group[0]].full_cost for key, group in groups.items()}

        def rank(key: bytes) -> tuple[bool, float, float]:
            is_leader = means[key] >= best - spread / 50 and len(groups[key]) == most
            return is_leader, means[key], -costs[key]

        leading = [i for i in groups[max(groups, key=rank)] if trials[i].state == "complete"]
        return max(leading, key=lambda i: trials[i].score)

    def _first(self, number: int) -> Unit:
        """Return a config before there is a model: the middle of the ranges, then spread out.

        Ranges are laid around what is plausible, so their middle is a good guess and their corners
        are poor ones. The middle runs at full length: its curve shows what each shorter one gives.
        """
        from scipy.stats import qmc

        if number == 0:
            unit = np.full(self.space.width, 0.5)
            if self.space.budget_axis is not None:
                unit[self.space.budget_axis] = 1.0
        else:
            sobol = qmc.Sobol(self.space.width, seed=np.random.default_rng(self.seed))
            unit = 0.5 + _INNER * (np.asarray(sobol.random(64)[number % 64]) - 0.5)
        return np.asarray(self.space.snap(unit[None])[0])

    def _to_repeat(self, trials: Sequence[Evidence], models: Models, budget: Budget) -> int | None:
        """Return the leading trial if its config must be run again to be trusted.

        In the first half of the budget a better one is more likely to be found than to be missed.
        """
        complete = sum(each.state == "complete" for each in trials)
        if not self.repeats or budget.share > 0.5 or complete < _KNOWN:
            return None
        if models.noise < _NOISY:
            return None
        leader = self.recommend(trials)
        if leader is None or trials[leader].full_cost > _DEAR * budget.cost:
            return None
        unit = trials[leader].unit
        runs = sum(np.allclose(each.unit, unit) for each in trials)
        repeated = len(trials) - len({each.unit.round(9).tobytes() for each in trials})
        if runs > self.repeats or repeated > len(trials) // 6:
            return None
        return leader

    def _candidates(self, scored: Sequence[Evidence], rng: np.random.Generator) -> Array:
        """Return configs everywhere, and around the trials that lead at their cost."""
        from scipy.stats import qmc

        everywhere = qmc.Sobol(self.space.width, seed=rng).random(_GLOBAL)
        done = [each for each in scored if each.state == "complete"] or list(scored)
        front = pareto_front([each.full_cost for each in done], [each.score for each in done])
        best = sorted(range(len(done)), key=lambda i: -done[i].score)
        units = np.array([done[i].unit for i in dict.fromkeys([*best[:4], *front[::-1], *best])])
        centers = np.resize(units[:_CENTERS], (_LOCAL, self.space.width))
        near = [self._near(centers, scale, rng) for scale in _SCALES]
        return np.vstack([self.space.snap(everywhere), *near])

    def _near(self, centers: Array, scale: float, rng: np.random.Generator) -> Array:
        """Return a config near each center: some keys move by about `scale`, a few anywhere."""
        units = centers.copy()
        count, keys = len(units), list(self.space.ranges)
        chances = rng.choice([1.0, min(1.0, 2 / len(keys))], size=count)
        for key in keys:
            columns = self.space.columns(key)
            width = columns.stop - columns.start
            moves = rng.random(count) < chances
            units[moves, columns] += scale * rng.standard_normal((moves.sum(), width))
            jumps = rng.random(count) < _JUMP
            units[jumps, columns] = rng.random((jumps.sum(), width))
        return self.space.snap(units)

    def _values(
        self, models: Models, trials: Sequence[Evidence], units: Array, budget: Budget
    ) -> Array:
        """Return the logarithm of what each config is worth."""
        score, cost = models.score(units), models.cost(units)
        complete = [each.unit for each in trials if each.state == "complete"]
        known = complete or [each.unit for each in trials if len(each.curve)]
        best = float(models.score(np.array(known)).mean.max())
        values = _log_improvement(score.mean, score.deviation, best)
        values = values + np.log(models.success(units))
        # below a hundredth of what is left, cheaper is no better: else the cheapest, which teach
        # little, would be tried forever
        floor = 0.01 * budget.cost if math.isfinite(budget.cost) else 0.0
        values -= min(1.0, max(0.0, budget.share)) * np.log(np.maximum(cost, floor))
        values[cost > budget.cost] -= _NEVER  # it could not be finished
        for pending in (each.unit for each in trials if each.state == "running"):
            distance = (((units - pending) / models.lengthscales()) ** 2).sum(1)
            values += np.log(-np.expm1(-np.maximum(distance, 1e-12) / 2))
        return np.asarray(values)


def _log_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return log of the expected improvement over `best`, stable far below it."""
    from scipy.special import erfcx, log_ndtr

    z = (mean - best) / deviation
    log_pdf = -0.5 * z**2 - 0.5 * math.log(2 * math.pi)
    # h(z) = pdf + z cdf; for z < -1 as pdf * (1 + z * cdf / pdf) with the scaled erfc
    ratio = math.sqrt(math.pi / 2) * erfcx(-z / math.sqrt(2))
    with np.errstate(all="ignore"):
        near = np.log(np.maximum(np.exp(log_pdf) + z * np.exp(log_ndtr(z)), 1e-300))
        far = log_pdf + np.log(np.maximum(1 + z * ratio, 1e-300))
        very_far = log_pdf - 2 * np.log(np.abs(z))  # 1 + z * ratio loses all digits
    values = np.where(z > -1, near, np.where(z > -1e4, far, very_far))
    return np.asarray(values + np.log(deviation))
