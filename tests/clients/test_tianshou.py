"""Tianshou: its vectors of our envs, its collectors and its PPO."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import pufferlib.ocean

pytest.importorskip("tianshou", reason="Tianshou is not installed")
from tianshou.env import DummyVectorEnv

assert pufferlib.ocean


def test_its_vector_has_the_numbers_of_our_envs() -> None:
    envs = DummyVectorEnv([lambda: gymnasium.make("ocean/Cartpole-v0")] * 3)
    twins = [gymnasium.make("ocean/Cartpole-v0") for _ in range(3)]
    rows, _ = envs.reset(seed=[1, 2, 3])
    for row, twin, seed in zip(rows, twins, (1, 2, 3), strict=True):
        assert np.array_equal(row, twin.reset(seed=seed)[0])
    random = np.random.default_rng(0)
    for _ in range(40):
        actions = random.integers(0, 2, 3)
        rows, rewards, terminated, truncated, _ = envs.step(actions)
        for slot, twin in enumerate(twins):
            wanted = twin.step(actions[slot])
            assert np.array_equal(rows[slot], wanted[0])
            assert (rewards[slot], terminated[slot], truncated[slot]) == wanted[1:4]
            if wanted[2]:
                assert np.array_equal(envs.reset([slot])[0][0], twin.reset()[0])
    envs.close()
