"""Curves of trials: the Pareto front, and which trials are hopeless."""

from __future__ import annotations

import numpy as np

from pufferlib.sweep.evidence import Evidence, is_hopeless, pareto_front, thin

UNIT = np.zeros(1)


def line(final: float, cost: float = 10.0, share: float = 1.0) -> np.ndarray:
    """Return a curve that rises evenly to `final`, done up to `share`."""
    shares = np.linspace(0.1, share, round(10 * share))
    return np.stack([shares, shares * cost, shares * final], axis=1)


def complete(*finals: float) -> list[Evidence]:
    return [Evidence(UNIT, line(final), "complete") for final in finals]


def test_the_front_holds_what_nothing_beats_in_both() -> None:
    # (1, 5) is cheapest; (2, 4) is worse and dearer; (3, 7) is better; (3, 6) is beaten by (3, 7)
    assert pareto_front([3, 1, 2, 3], [7, 5, 4, 6]) == [1, 0]
    assert pareto_front([], []) == []


def test_a_trial_is_hopeless_if_no_good_one_was_ever_as_bad() -> None:
    # the best two of eight: 80 and 70, which began at 8 and 7 and at cost 5 had 40 and 35;
    # a tenth of what they learned below that: 40 - 7.2 = 32.8 and 35 - 6.3 = 28.7
    others = complete(80, 70, 60, 50, 40, 30, 20, 10)

    assert is_hopeless(line(56, share=0.5), others)  # 28 at cost 5
    assert not is_hopeless(line(59, share=0.5), others)  # 29.5 at cost 5


def test_chance_decides_nothing_before_the_good_ones_have_learned() -> None:
    # flat at 20 for the first half, then up to 500: a tenth of it is 48
    late = np.array([[0.1, 1, 20], [0.5, 5, 20], [1.0, 10, 500]])
    others = [Evidence(UNIT, late, "complete") for _ in range(4)]

    assert not is_hopeless(np.array([[0.1, 1, 18], [0.5, 5, 18.0]]), others)
    assert is_hopeless(np.array([[0.1, 1, 18], [0.7, 7, 18.0]]), others)  # they had 212


def test_a_trial_is_compared_at_equal_cost() -> None:
    others = complete(80, 70, 60, 50, 40, 30, 20, 10)
    # a cheap one has 30 at cost 2.5, where the good ones had 20 and 17.5
    assert not is_hopeless(line(60, cost=5, share=0.5), others)


def test_a_long_trial_is_not_measured_against_the_ends_of_short_ones() -> None:
    others = complete(80, 70, 60, 50, 40, 30, 20, 10)
    # at 0.3 of its way it has 30 at cost 12, more than the others cost in all; at 0.3
    # of theirs, the good ones had 24 and 21: 21 - 6.3 = 14.7
    assert not is_hopeless(line(100, cost=40, share=0.3), others)
    assert is_hopeless(line(48, cost=40, share=0.3), others)  # 14.4


def test_few_trials_and_beginnings_are_not_judged() -> None:
    assert not is_hopeless(line(1, share=0.5), complete(80))
    assert not is_hopeless(line(1, share=0.1), complete(*range(10, 90, 10)))


def test_a_trial_is_not_judged_before_the_curves_of_good_ones_begin() -> None:
    # at 0.3 of its way its cost is 3; the good one, ten times as long, reports from cost 10 on
    good = [Evidence(UNIT, line(80, cost=100), "complete")] * 2

    assert not is_hopeless(line(1, cost=10, share=0.3), good)
    assert is_hopeless(line(1, cost=50, share=0.3), good)


def test_thin_curves_keep_their_end() -> None:
    curve = line(3, share=1.0).repeat(20, axis=0)

    assert len(thin(curve)) == 32
    assert (thin(curve)[-1] == curve[-1]).all()
