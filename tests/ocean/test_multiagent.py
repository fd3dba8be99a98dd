"""multiagent against its two rules, with the lights that the env draws."""

from __future__ import annotations

import numpy as np
import pytest
from splitmix import Rng

import pufferlib


@pytest.mark.parametrize("max_steps", [16, 1, 5])
def test_random_play_follows_the_rules(max_steps: int) -> None:
    choices = np.random.default_rng(6)
    num_envs = 7
    with pufferlib.make(
        "multiagent", num_envs=num_envs, num_workers=1, max_steps=max_steps
    ) as vecenv:
        assert vecenv.agents_per_env == 2
        vecenv.reset(seed=31)
        rngs = [Rng(31, index) for index in range(num_envs)]
        together = np.zeros(num_envs)
        for tick in range(1, 8 * max_steps + 1):
            lights = np.array([[rng.below(2), rng.below(2)] for rng in rngs])
            seen = (2 * lights - 1) * [0.5, 1.0]
            np.testing.assert_array_equal(vecenv.observations.reshape(num_envs, 2), seen)
            answers = choices.integers(2, size=(num_envs, 2))
            vecenv.step(answers.reshape(-1))
            right = np.stack([answers[:, 0] == lights[:, 0], answers[:, 1] != lights[:, 1]], 1)
            earned = np.stack([right[:, 0], right[:, 1] - 1.0], 1) / max_steps
            np.testing.assert_allclose(vecenv.rewards.reshape(num_envs, 2), earned, atol=1e-6)
            together += right.all(1)
            ended = tick % max_steps == 0
            assert vecenv.truncations.all() == vecenv.truncations.any() == ended
            assert not vecenv.terminals.any()
            if ended:
                # the lights after the last step are drawn, seen by the final value, and gone
                final = [[rng.below(2), rng.below(2)] for rng in rngs]
                np.testing.assert_array_equal(
                    vecenv.final_observations.reshape(num_envs, 2),
                    (2 * np.array(final) - 1) * [0.5, 1.0],
                )
                metrics = vecenv.drain_metrics()
                assert metrics["perf"] == pytest.approx(together.mean() / max_steps)
                together[:] = 0
