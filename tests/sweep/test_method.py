"""Protein's method: numbers in, numbers out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from pufferlib.config import as_range, parse_number
from pufferlib.sweep.evidence import Evidence
from pufferlib.sweep.gaussian import Fits, Models, _evened
from pufferlib.sweep.method import Budget, Protein, _log_improvement
from pufferlib.sweep.search_space import SearchSpace

pytest.importorskip("botorch", reason="needs pufferlib[sweep]")


def cube(width: int) -> SearchSpace:
    texts = {f"x{i}": "uniform 0 1" for i in range(width)}
    return SearchSpace({key: as_range(text, key, parse_number) for key, text in texts.items()})


def cube_with_length(others: int = 1) -> SearchSpace:
    texts = {f"x{i}": "uniform 0 1" for i in range(others)}
    texts["steps"] = "log_uniform 100 10000"
    ranges = {key: as_range(text, key, parse_number) for key, text in texts.items()}
    return SearchSpace(ranges, budget="steps")


def trial(unit: np.ndarray, score: float, cost: float = 1.0) -> Evidence:
    """Return a complete trial whose curve rises to `score`."""
    shares = np.array([0.25, 0.5, 0.75, 1.0])
    return Evidence(unit, np.stack([shares, shares * cost, shares * score], 1), "complete")


def search(
    space: SearchSpace,
    score: Callable[[np.ndarray], float],
    cost: Callable[[np.ndarray], float],
    trials: int,
) -> list[Evidence]:
    method, done = Protein(space), []
    for number in range(trials):
        unit = method.suggest(done, Budget(1 - number / trials)).unit
        value = score(unit)
        failed = Evidence(unit, np.zeros((0, 3)), "failed")
        done.append(failed if math.isnan(value) else trial(unit, value, cost(unit)))
    return done


def test_improvement_is_that_of_the_formula() -> None:
    # E[max(0, y - best)] = s * (pdf(z) + z * cdf(z)); z = 1: 2 * (0.241971 + 0.841345) = 2.166631
    mean, deviation = np.array([3.0, 1.0]), np.array([2.0, 1.0])
    # z = 0: 1 * pdf(0) = 0.398942
    values = _log_improvement(mean, deviation, 1.0)

    np.testing.assert_allclose(np.exp(values), [2.166631, 0.398942], rtol=1e-5)


def test_improvement_far_below_the_best_still_has_an_order() -> None:
    values = _log_improvement(np.array([-10.0, -30.0, -300.0, -1e5]), np.ones(4), 0.0)

    assert np.isfinite(values).all()
    assert (np.diff(values) < 0).all()


@pytest.mark.slow
def test_the_optimum_is_found() -> None:
    def score(unit: np.ndarray) -> float:
        return -float(((unit - [0.3, 0.7]) ** 2).sum())

    done = search(cube(2), score, lambda unit: 1.0, trials=18)

    assert max(each.score for each in done) > -0.001  # a random one has -0.03 at this number


@pytest.mark.slow
def test_cheap_configs_are_preferred_where_scores_are_alike() -> None:
    # the first coordinate only costs: up to a hundred times as much
    done = search(
        cube(2), lambda unit: -float((unit[1] - 0.4) ** 2), lambda unit: 100 ** unit[0], trials=16
    )
    later = [each.full_cost for each in done[8:]]

    assert np.median(later) < 10  # the middle of the range


@pytest.mark.slow
def test_failures_are_information() -> None:
    # the half with the higher scores fails
    done = search(
        cube(2),
        lambda unit: math.nan if unit[0] > 0.5 else float(unit[0] + unit[1]),
        lambda unit: 1.0,
        trials=24,
    )
    failed = [each.state == "failed" for each in done]

    assert sum(failed[12:]) <= 6  # half of them would be 6 without knowing
    assert max(each.score for each in done if each.state == "complete") > 1.2


def test_models_know_their_uncertainty() -> None:
    rng = np.random.default_rng(0)
    units = rng.random((20, 1)) * 0.5  # nothing is known above 0.5
    trials = [trial(unit, math.sin(6 * unit[0])) for unit in units]

    models = Models(cube(1), trials, Fits())
    near, far = models.score(np.array([[0.25], [1.0]])).deviation

    assert far > 3 * near


def test_a_trial_stopped_before_the_shortest_length_still_counts() -> None:
    # steps at 0.25 are 316; a tenth of it is below 100, where no other trial can be compared
    good = [trial(np.array([x, 0.25]), 10 * x) for x in np.linspace(0.1, 0.5, 6)]
    start = np.array([[0.1, 0.1, 0.5]])
    stopped = [Evidence(np.array([x, 0.25]), start, "stopped") for x in (0.8, 0.9)]

    units = np.array([[0.85, 0.25], [0.1, 0.25]])  # stopped at 0.5; complete with 1
    known, unknown = (Models(cube_with_length(), t, Fits()) for t in ([*good, *stopped], good))

    assert np.diff(known.score(units).mean) > 0
    assert np.diff(unknown.score(units).mean) < 0


def test_the_best_of_many_trials_is_not_forgotten() -> None:
    rng = np.random.default_rng(0)
    best = trial(np.array([0.9, 0.5]), 10.0)
    start = np.array([[0.1, 0.1, 0.5]])
    later = [Evidence(0.5 * u, start, "stopped") for u in rng.random((200, 2))]

    models = Models(cube_with_length(), [best, *later], Fits())
    near, far = models.score(np.array([[0.9, 0.5], [0.25, 0.25]])).mean

    assert near > far


def test_scores_are_evened_in_order() -> None:
    # growth by a constant factor, in steps of 0.4 to 305; a logarithm of the upper half evens it
    scores = np.geomspace(1, 1000, 20)

    steps, plain = np.diff(_evened(scores)), np.diff(scores)

    assert (steps > 0).all()
    assert steps.max() / steps.min() < 0.2 * plain.max() / plain.min()
    assert np.isfinite(_evened(np.ones(5))).all()
    np.testing.assert_allclose(_evened(-scores), -_evened(scores), atol=0.01)


def test_the_first_trial_is_the_middle_at_full_length() -> None:
    method = Protein(cube_with_length(others=3))
    failed = Evidence(np.zeros(4), np.zeros((0, 3)), "failed")

    first, *others = (method.suggest([failed] * i, Budget(1.0)).unit for i in range(20))

    np.testing.assert_array_equal(first, [0.5, 0.5, 0.5, 1.0])
    assert all((np.abs(unit - 0.5) <= 0.35).all() for unit in others)  # not in the corners
    assert len({unit.tobytes() for unit in others}) == 19


def test_a_stopped_run_of_a_config_counts_against_it() -> None:
    lucky, steady = np.array([0.1]), np.array([0.2])
    trials = [trial(lucky, 10.0), trial(steady, 8.0), trial(np.array([0.3]), 0.0)]
    stopped = Evidence(lucky, np.array([[0.3, 0.3, 1.0]]), "stopped")

    assert Protein(cube(1)).recommend(trials) == 0
    assert Protein(cube(1)).recommend([*trials, stopped]) == 1


def test_noisy_leaders_run_again_and_lucky_ones_do_not_win() -> None:
    rng = np.random.default_rng(0)
    units = rng.random((24, 1))
    trials = [trial(unit, float(unit[0] + 0.3 * rng.standard_normal())) for unit in units]
    method = Protein(cube(1), repeats=2)

    repeat = method.suggest(trials, Budget(0.5)).repeat
    leader = max(range(24), key=lambda i: trials[i].score)
    worse = [trial(trials[leader].unit, -1.0), trial(trials[leader].unit, -1.0)]

    assert repeat == leader
    assert method.recommend(trials) == leader
    assert method.recommend([*trials, *worse]) != leader


def test_a_config_that_takes_much_of_the_rest_is_not_repeated() -> None:
    rng = np.random.default_rng(0)
    units = rng.random((24, 1))
    trials = [trial(unit, float(unit[0] + 0.3 * rng.standard_normal()), 2.0) for unit in units]
    method = Protein(cube(1), repeats=2)

    assert method.suggest(trials, Budget(0.5, cost=21.0)).repeat is not None
    assert method.suggest(trials, Budget(0.5, cost=19.0)).repeat is None


def test_of_equal_configs_the_cheaper_is_best() -> None:
    trials = [trial(np.array([u]), s, c) for u, s, c in [(0.1, 5, 9), (0.2, 5, 2), (0.3, 1, 1)]]

    assert Protein(cube(1)).recommend(trials) == 1
    assert Protein(cube(1)).recommend([]) is None


def test_suggestions_are_reproducible() -> None:
    rng = np.random.default_rng(3)
    trials = [trial(unit, -float(unit.sum())) for unit in rng.random((10, 3))]

    first, second = (Protein(cube(3), seed=1).suggest(trials, Budget(0.5)) for _ in range(2))

    np.testing.assert_array_equal(first.unit, second.unit)


def test_running_trials_are_not_suggested_again() -> None:
    rng = np.random.default_rng(3)
    trials = [trial(unit, -float(((unit - 0.5) ** 2).sum())) for unit in rng.random((10, 2))]
    method = Protein(cube(2), repeats=0)
    first = method.suggest(trials, Budget(0.0)).unit
    pending = [Evidence(first, np.zeros((0, 3)), "running")]

    second = method.suggest([*trials, *pending], Budget(0.0)).unit

    assert np.abs(first - second).max() > 0.01


def test_no_trial_that_costs_more_than_is_left() -> None:
    rng = np.random.default_rng(0)
    units = rng.random((30, 2))
    trials = [trial(u, float(u[0]), 10 ** (2 * u[0])) for u in units]  # better is dearer
    method = Protein(cube(2), repeats=0)

    unit = method.suggest(trials, Budget(0.1, cost=5.0)).unit

    assert 10 ** (2 * unit[0]) < 10


@pytest.mark.slow
def test_a_suggestion_with_200_trials_takes_less_than_two_seconds() -> None:
    rng = np.random.default_rng(0)
    trials = [trial(u, -float(u.sum()), 10 ** u[0]) for u in rng.random((200, 8))]
    method = Protein(cube(8), repeats=0)
    method.suggest(trials[:10], Budget(0.5))  # loads BoTorch

    started = time.process_time()
    method.suggest(trials, Budget(0.5))

    assert time.process_time() - started < 2
