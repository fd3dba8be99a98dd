"""bandit against a twin that draws the same noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from splitmix import Rng

import pufferlib


class Twin:
    """One env, in double precision."""

    def __init__(self, rng: Rng, arms: int, best: int, gap: float, noise: float, pulls: int):
        self.rng, self.arms, self.best = rng, arms, min(best, arms - 1)
        self.gap, self.noise, self.pulls = gap, noise, pulls
        self.pulled = 0

    def pull(self, arm: int) -> float:
        """Return what the pull earns."""
        self.pulled = self.pulled % self.pulls + 1
        radius = math.sqrt(-2 * math.log(1 - self.rng.uniform()))
        normal = radius * math.cos(2 * math.pi * self.rng.uniform())
        mean = 1 - self.gap * ((arm - self.best) % self.arms)
        return (mean + self.noise * normal) / self.pulls


@pytest.mark.parametrize(
    "settings",
    [
        {"arms": 4, "best": 2, "gap": 0.25, "noise": 1.0, "pulls": 16},
        {"arms": 7, "best": 0, "gap": 2.0, "noise": 0.1, "pulls": 3},
        {"arms": 2, "best": 9, "gap": 0.5, "noise": 20.0, "pulls": 1},
    ],
)
def test_random_play_follows_the_rules(settings: dict[str, float]) -> None:
    choices = np.random.default_rng(0)
    with pufferlib.make("bandit", num_envs=3, num_workers=1, **settings) as vecenv:
        vecenv.reset(seed=11)
        twins = [Twin(Rng(11, index), **settings) for index in range(3)]  # type: ignore[arg-type]
        for _ in range(100):
            arms = choices.integers(settings["arms"], size=3)
            observations, rewards, _, _ = vecenv.step(arms)
            expected = [twin.pull(int(arm)) for twin, arm in zip(twins, arms, strict=True)]
            np.testing.assert_allclose(rewards, expected, rtol=1e-4, atol=1e-5)
            for index, twin in enumerate(twins):
                ended = twin.pulled == twin.pulls
                assert vecenv.terminals[index] == ended
                assert (
                    observations[index, 0] == np.float32(0 if ended else twin.pulled) / twin.pulls
                )
        assert not vecenv.truncations.any()


def test_perf_is_the_share_of_the_best_arm() -> None:
    with pufferlib.make("bandit", num_envs=2, num_workers=1, pulls=4, best=1) as vecenv:
        vecenv.reset(seed=0)
        for arms in ([1, 1], [1, 0], [1, 2], [1, 1]):
            vecenv.step(np.array(arms))
        metrics = vecenv.drain_metrics()
    assert metrics["episodes"] == 2
    assert metrics["score"] == (4 + 2) / 2
    assert metrics["perf"] == (1 + 0.5) / 2
