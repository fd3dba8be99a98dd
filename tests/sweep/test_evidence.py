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
    # the best three of eight: 80, 70 and 60, which at cost 5 had 40, 35 and 30
    others = complete(80, 70, 60, 50, 40, 30, 20, 10)

    assert is_hopeless(line(50, share=0.5), others)  # 25 at cost 5
    assert not is_hopeless(line(62, share=0.5), others)  # 31 at cost 5


def test_a_trial_is_compared_at_equal_cost() -> None:
    others = complete(80, 70, 60, 50, 40, 30, 20, 10)
    # a cheap one has 30 at cost 2.5, where the good ones had 20, 17.5 and 15
    assert not is_hopeless(line(60, cost=5, share=0.5), others)


def test_a_long_trial_is_not_measured_against_the_ends_of_short_ones() -> None:
    others = complete(80, 70, 60, 50, 40, 30, 20, 10)
    # at 0.3 of its way it has 30 at cost 12, more than the others cost in all; at 0.3
    # of theirs, the good ones had 24, 21 and 18
    assert not is_hopeless(line(100, cost=40, share=0.3), others)
    assert is_hopeless(line(50, cost=40, share=0.3), others)  # 15


def test_few_trials_and_beginnings_are_not_judged() -> None:
    assert not is_hopeless(line(1, share=0.5), complete(80, 70, 60))
    assert not is_hopeless(line(1, share=0.1), complete(*range(10, 90, 10)))


def test_thin_curves_keep_their_end() -> None:
    curve = line(3, share=1.0).repeat(20, axis=0)

    assert len(thin(curve)) == 32
    assert (thin(curve)[-1] == curve[-1]).all()
