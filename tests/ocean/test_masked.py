"""masked against a twin that deals the same."""

from __future__ import annotations

import numpy as np
import pytest
from splitmix import Rng

import pufferlib


def deal(rng: Rng, num_actions: int, num_legal: int) -> tuple[list[int], set[int]]:
    """Return worths and legal actions: a shuffle from the inside out, then Floyd's sample."""
    worths: list[int] = []
    for i in range(num_actions):
        j = rng.below(i + 1)
        worths.append(i + 1)
        worths[i], worths[j] = worths[j], worths[i]
    legal: set[int] = set()
    for i in range(max(num_actions - num_legal, 0), num_actions):
        pick = rng.below(i + 1)
        legal.add(i if pick in legal else pick)
    return worths, legal


@pytest.mark.parametrize(
    ("num_actions", "num_legal", "max_steps"), [(8, 3, 16), (2, 1, 1), (64, 64, 5), (5, 9, 4)]
)
def test_random_play_follows_the_rules(num_actions: int, num_legal: int, max_steps: int) -> None:
    choices = np.random.default_rng(7)
    num_envs = 5
    with pufferlib.make(
        "masked",
        num_envs=num_envs,
        num_workers=1,
        num_actions=num_actions,
        num_legal=num_legal,
        max_steps=max_steps,
    ) as vecenv:
        vecenv.reset(seed=41)
        rngs = [Rng(41, index) for index in range(num_envs)]
        deals = [deal(rng, num_actions, num_legal) for rng in rngs]
        hits = faults = 0
        for tick in range(1, 6 * max_steps + 1):
            for i, (worths, legal) in enumerate(deals):
                np.testing.assert_allclose(
                    vecenv.observations[i], np.array(worths) / num_actions, rtol=1e-6
                )
                assert vecenv.action_masks is not None
                assert set(np.flatnonzero(vecenv.action_masks[i])) == legal
            actions = choices.integers(num_actions, size=num_envs)  # the mask is only advice
            vecenv.step(actions)
            for i, (worths, legal) in enumerate(deals):
                best = max(legal, key=lambda action: worths[action])
                earned = 1 if actions[i] == best else 0 if actions[i] in legal else -1
                assert vecenv.rewards[i] == np.float32(earned / max_steps)
                hits, faults = hits + (earned == 1), faults + (earned == -1)
            deals = [deal(rng, num_actions, num_legal) for rng in rngs]
            if tick % max_steps == 0:
                assert vecenv.truncations.all()
                deals = [deal(rng, num_actions, num_legal) for rng in rngs]
                metrics = vecenv.drain_metrics()
                assert metrics["perf"] == pytest.approx(hits / num_envs / max_steps)
                assert metrics["illegal"] == pytest.approx(faults / num_envs / max_steps)
                hits = faults = 0
