"""chain against a walk in Python."""

from __future__ import annotations

import numpy as np
import pytest

import pufferlib


@pytest.mark.parametrize(
    ("length", "near_reward", "max_steps"), [(12, 0.05, 0), (2, 0.5, 0), (4, 0.0, 7), (30, 1.0, 5)]
)
def test_random_play_follows_the_rules(length: int, near_reward: float, max_steps: int) -> None:
    rng = np.random.default_rng(4)
    num_envs = 16
    allowed = max_steps or length + 9
    with pufferlib.make(
        "chain",
        num_envs=num_envs,
        num_workers=1,
        length=length,
        near_reward=near_reward,
        max_steps=max_steps,
    ) as vecenv:
        vecenv.reset(seed=0)
        ends = 0
        for _ in range(6):
            place = np.ones(num_envs, np.int64)
            far = np.zeros(num_envs)
            for tick in range(1, allowed + 1):
                np.testing.assert_allclose(
                    vecenv.observations[:, 0], place / (length - 1), rtol=1e-6
                )
                actions = (rng.random(num_envs) < 0.7).astype(np.int64)
                place = np.clip(place + 2 * actions - 1, 0, length - 1)
                vecenv.step(actions)
                is_far = place == length - 1
                far += is_far
                np.testing.assert_array_equal(
                    vecenv.rewards,
                    np.where(is_far, 1, np.where(place == 0, np.float32(near_reward), 0)),
                )
                assert vecenv.truncations.all() == vecenv.truncations.any() == (tick == allowed)
                assert not vecenv.terminals.any()
            np.testing.assert_allclose(
                vecenv.final_observations[:, 0], place / (length - 1), rtol=1e-6
            )
            # a straight walk is at the far end from step length - 2 on, the first one at least
            best = max(allowed - max(length - 2, 1) + 1, 1)
            metrics = vecenv.drain_metrics()
            assert metrics["score"] == pytest.approx(far.mean())
            assert metrics["perf"] == pytest.approx(far.mean() / best)
            ends += int(far.sum())
        assert (ends > 0) == (allowed >= length - 2)
