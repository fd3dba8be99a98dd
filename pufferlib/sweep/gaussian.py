"""Gaussian processes over trials: score, cost and success, each with its uncertainty.

BoTorch fits them; only its `SingleTaskGP` is used. Points of learning curves carry the share of the
trial that was done, so a model can say how a trial that is stopped early would have ended.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import imported
from pufferlib.sweep.evidence import Evidence
from pufferlib.sweep.search_space import SearchSpace

Array = NDArray[np.float64]

MAX_POINTS = 128  # in a model: a fit takes the cube of it
_PER_TRIAL = 4  # points of a curve
_FIT_STEPS = 25  # of L-BFGS
_REFIT = 1.2  # hyper-parameters are fitted again when there are this many times as many trials
_LOW_TAIL = 3.0  # scores this many spreads below the median are all equally bad


class Prediction(NamedTuple):
    """Mean and deviation at each point."""

    mean: Array
    deviation: Array


class Fits:
    """Fitted hyper-parameters of models by name, to use again while few trials are new.

    A fit takes most of the time of a suggestion, and its result changes little with one trial more.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, dict[str, Any]]] = {}

    def recall(self, name: str, count: int) -> dict[str, Any] | None:
        """Return the hyper-parameters fitted to nearly as many points, None if they are too old."""
        fitted, state = self._kept.get(name, (0, None))
        return state if fitted <= count <= _REFIT * fitted else None

    def last(self, name: str) -> dict[str, Any]:
        """Return the last hyper-parameters, however old: where the next fit begins."""
        return self._kept.get(name, (0, {}))[1]

    def keep(self, name: str, count: int, state: dict[str, Any]) -> None:
        """Keep the hyper-parameters of a fit to `count` points."""
        self._kept[name] = count, state


class Models:
    """Models of the trials so far. Fitting takes all trials that have a score."""

    def __init__(self, space: SearchSpace, trials: Sequence[Evidence], fits: Fits) -> None:
        self._space = space
        self._has_progress = space.budget_axis is None
        ended = [each for each in trials if each.state in ("complete", "stopped", "cut")]
        scored = [each for each in ended if len(each.curve)]
        points, scores = self._curve_points(scored)
        self._center = float(np.median([each.score for each in scored]))
        spread = max(max(each.score for each in scored) - self._center, 1e-12)
        self._floor = self._center - _LOW_TAIL * spread
        count = len(scored)
        failed = [each for each in trials if each.state == "failed"]
        if failed:  # as bad as the worst, or the model would hope for more where all fail
            ends = np.array([self._input(each.unit, 1.0) for each in failed[-MAX_POINTS // 4 :]])
            points = np.vstack([points, ends])
            scores = np.append(scores, np.full(len(ends), min(each.score for each in scored)))
        scores = _evened(np.maximum(scores, self._floor))
        low, high = np.quantile(scores, [0.1, 0.9])
        self._spread = float(high - low)
        self.score_model = _fit(points, scores, "score", count, fits)
        units = np.array([each.unit for each in scored])
        costs = np.log([each.full_cost for each in scored])
        self.cost_model = _fit(units, costs, "cost", count, fits)
        self.success_model: Any = None
        if failed:
            units = np.array([each.unit for each in (*scored, *failed)])
            labels = np.array([1.0] * len(scored) + [0.0] * len(failed))
            self.success_model = _fit(units, labels, "success", len(units), fits)

    @property
    def noise(self) -> float:
        """Deviation between two runs of one config, as a share of the spread of all scores."""
        likelihood = self.score_model.likelihood
        scale = float(self.score_model.outcome_transform.stdvs.squeeze())
        noise = math.sqrt(float(likelihood.noise.detach().squeeze())) * scale
        return noise / max(self._spread, 1e-12)

    def score(self, units: Array) -> Prediction:
        """Predict the score at the end of trials, on the scale of the model: see `_evened`."""
        full = np.ones((len(units), 1))
        return _predict(self.score_model, np.hstack([units, full]) if self._has_progress else units)

    def cost(self, units: Array) -> Array:
        """Predict the cost of trials."""
        return np.exp(_predict(self.cost_model, units).mean)

    def success(self, units: Array) -> Array:
        """Predict the probability that trials do not fail."""
        if self.success_model is None:
            return np.ones(len(units))
        return np.clip(_predict(self.success_model, units).mean, 0.01, 1.0)

    def lengthscales(self) -> Array:
        """Return how far the score model sees along each coordinate."""
        kernel = self.score_model.covar_module
        kernel = getattr(kernel, "base_kernel", kernel)
        scales = np.asarray(kernel.lengthscale.detach().squeeze(0), dtype=np.float64)
        return scales[: self._space.width]

    def _curve_points(self, scored: Sequence[Evidence]) -> tuple[Array, Array]:
        """Return inputs and scores of the model: ends of trials and earlier points.

        Where the length is searched, a stopped trial counts as if it had ended with its last score:
        it was judged to be hopeless, and a model that only knows its beginning would ask for it
        again.
        """
        kept = _newest_and_best(scored)
        per_trial = int(np.clip(MAX_POINTS // len(kept), 1, _PER_TRIAL))
        inputs, scores = [], []
        for each in kept:
            wanted = each.curve[-1, 0] * np.arange(per_trial, 0, -1) / per_trial
            rows = {int(np.abs(each.curve[:, 0] - share).argmin()) for share in wanted}
            for row in sorted(rows):
                is_end = row == len(each.curve) - 1 and each.state == "stopped"
                share = 1.0 if is_end and not self._has_progress else each.curve[row, 0]
                point = self._input(each.unit, share)
                if point is not None:
                    inputs.append(point)
                    scores.append(each.curve[row, 2])
        return np.array(inputs), np.array(scores)

    def _input(self, unit: Array, share: float) -> Array | None:
        """Return the input for a trial that is done up to `share`.

        Where the length of trials is searched, a part of a long one counts as a short one, unless
        it is shorter than any can be.
        """
        axis = self._space.budget_axis
        if axis is None:
            return np.append(unit, share)
        if share >= 1:
            return unit
        key = self._space.budget_key
        assert key is not None
        length = self._space.decode(unit)[key] * share
        known = self._space.ranges[key]
        low = known.decode([0.0])
        if length < low:
            return None
        point = unit.copy()
        point[axis] = np.interp(
            math.log(length),
            [math.log(known.decode([u])) for u in _GRID],
            _GRID,
        )
        return point


def _newest_and_best(scored: Sequence[Evidence]) -> Sequence[Evidence]:
    """Return as many trials as a model takes: half of them the best, the others the newest."""
    if len(scored) <= MAX_POINTS:
        return scored
    ranked = sorted(range(len(scored)), key=lambda i: -scored[i].score)
    best = set(ranked[: MAX_POINTS // 2])
    newest = [i for i in range(len(scored)) if i not in best][-MAX_POINTS // 2 :]
    return [scored[i] for i in sorted({*best, *newest})]


_GRID = np.linspace(0, 1, 33)


def _evened(scores: Array) -> Array:
    """Return scores on a scale where they are spread evenly (Yeo and Johnson 2000).

    Most configs learn little and a few learn a lot: on the plain scale a model would see an outlier
    and a flat rest. The order stays, and at most a logarithm is taken of either tail.
    """
    from scipy.stats import yeojohnson, yeojohnson_normmax

    low, middle, high = np.quantile(scores, [0.25, 0.5, 0.75])
    plain = (scores - middle) / max(high - low, 1e-3 * float(np.ptp(scores)), 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about scores that are all alike
        power = float(yeojohnson_normmax(plain))
    power = min(max(power, 0.0), 2.0) if math.isfinite(power) else 1.0
    return np.asarray(yeojohnson(plain, power))


def _fit(inputs: Array, values: Array, name: str, count: int, fits: Fits) -> Any:
    """Return a model of values at inputs. Its noise is inferred."""
    imported("botorch", "sweep", "BoTorch")
    import torch
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x = torch.as_tensor(inputs, dtype=torch.float64)
    y = torch.as_tensor(values, dtype=torch.float64).unsqueeze(-1)
    if float(y.std()) < 1e-9 if len(y) > 1 else True:  # all alike: nothing to standardize
        y = y + 1e-6 * torch.linspace(-1, 1, len(y), dtype=torch.float64).unsqueeze(-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about scaling and about stopping early, which is meant
        model = SingleTaskGP(x, y, outcome_transform=Standardize(m=1))
        state = fits.recall(name, count)
        if state is not None:
            model.load_state_dict(state, strict=False)
        else:
            model.load_state_dict(fits.last(name), strict=False)
            likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
            steps = {"options": {"maxiter": _FIT_STEPS}}
            fit_gpytorch_mll(likelihood, optimizer_kwargs=steps, max_attempts=1)
            state = {
                key: value.clone()
                for key, value in model.state_dict().items()
                if not key.startswith("outcome_transform")  # belongs to the values
            }
            fits.keep(name, count, state)
        model.eval()
    return model


def _predict(model: Any, inputs: Array) -> Prediction:
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # each point by itself: the covariance of a thousand candidates is not needed
        points = torch.as_tensor(inputs, dtype=torch.float64).unsqueeze(1)
        posterior = model.posterior(points)
        mean = posterior.mean.flatten().numpy()
        deviation = posterior.variance.clamp_min(1e-18).sqrt().flatten().numpy()
    return Prediction(mean, deviation)
