"""hybrid against its formula, with actions packed from a Tuple."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from splitmix import Rng

import pufferlib


def target(rng: Rng) -> tuple[int, np.float32]:
    """Draw lane and height as the env does."""
    lane = rng.below(3)
    return lane, np.float32(-1) + np.float32(2) * np.float32(rng.uniform())


@pytest.mark.parametrize(("radius", "max_steps"), [(0.2, 16), (1.0, 1), (0.01, 5)])
def test_random_play_follows_the_rules(radius: float, max_steps: int) -> None:
    num_envs = 6
    with pufferlib.make(
        "hybrid", num_envs=num_envs, num_workers=1, radius=radius, max_steps=max_steps
    ) as vecenv:
        space = vecenv.action_space
        assert isinstance(space, gymnasium.spaces.Tuple)
        assert space[0] == gymnasium.spaces.Discrete(3)
        assert space[1].shape == (1,)
        space.seed(8)
        vecenv.reset(seed=51)
        rngs = [Rng(51, index) for index in range(num_envs)]
        lanes = aims = hits = 0
        for tick in range(1, 10 * max_steps + 1):
            targets = [target(rng) for rng in rngs]
            seen = [[*(lane == k for k in range(3)), height] for lane, height in targets]
            np.testing.assert_allclose(vecenv.observations, seen, atol=1e-6)
            actions = [space.sample() for _ in rngs]
            if tick % 2:  # random play seldom hits: aim well every other time
                near = [height + np.float32(0.5 * radius) for _, height in targets]
                actions = [
                    (lane, np.clip(np.array([aim]), -1, 1, dtype=np.float32))
                    for (lane, _), aim in zip(targets, near, strict=True)
                ]
            vecenv.step(actions)
            for slot, ((lane, height), (choice, aim)) in enumerate(
                zip(targets, actions, strict=True)
            ):
                off = abs(float(aim[0]) - float(height))
                earned = (0.5 * (choice == lane) + 0.5 * (1 - off / 2)) / max_steps
                assert vecenv.rewards[slot] == pytest.approx(earned, abs=1e-6)
                lanes, aims = lanes + (choice == lane), aims + (off <= radius)
                hits += choice == lane and off <= radius
            if tick % max_steps == 0:
                assert vecenv.truncations.all()
                for rng in rngs:
                    target(rng)  # seen by the final value, and gone
                metrics = vecenv.drain_metrics()
                total = num_envs * max_steps
                assert metrics["lane"] == pytest.approx(lanes / total)
                assert metrics["aim"] == pytest.approx(aims / total)
                assert metrics["perf"] == pytest.approx(hits / total)
                lanes = aims = hits = 0
