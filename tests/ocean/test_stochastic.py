"""stochastic against its formula."""

from __future__ import annotations

import numpy as np
import pytest

import pufferlib


@pytest.mark.parametrize(("odds", "length"), [(0.75, 100), (0.5, 3), (0.01, 17), (0.9, 1)])
def test_random_play_follows_the_rules(odds: float, length: int) -> None:
    rng = np.random.default_rng(3)
    num_envs = 32
    with pufferlib.make(
        "stochastic", num_envs=num_envs, num_workers=1, odds=odds, length=length
    ) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(5):
            actions = rng.random((length, num_envs)) < rng.random(num_envs)
            for i in range(length):
                assert (vecenv.observations == 1).all()
                vecenv.step(actions[i].astype(np.int64))
                assert vecenv.terminals.all() == vecenv.terminals.any() == (i == length - 1)
                if i < length - 1:
                    assert not vecenv.rewards.any()
            error = actions.mean(0) - odds
            np.testing.assert_allclose(
                vecenv.rewards, 1 - (error / max(odds, 1 - odds)) ** 2, atol=1e-5
            )
            perf = np.maximum(1 - (error / min(odds, 1 - odds)) ** 2, 0)
            metrics = vecenv.drain_metrics()
            assert metrics["perf"] == pytest.approx(perf.mean(), abs=1e-4)
            assert metrics["score"] == pytest.approx(actions.mean(), abs=1e-6)
