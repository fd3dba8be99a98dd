"""skrl: `wrap_env` of our single envs, vectors and envs of several agents."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import pufferlib
import pufferlib.ocean

pytest.importorskip("skrl", reason="skrl is not installed")
from skrl.envs.wrappers.torch import wrap_env


@pytest.mark.parametrize("is_vector", [False, True], ids=["single", "vector"])
def test_steps_have_the_numbers_of_the_env(is_vector: bool) -> None:
    def make() -> Any:
        if not is_vector:
            return gymnasium.make("ocean/Cartpole-v0")
        return pufferlib.to_gymnasium(pufferlib.make("cartpole", num_envs=4, num_workers=1))

    env, twin = wrap_env(make()), make()
    env.reset()
    wanted = twin.reset()[0]
    num_envs = env.num_envs
    assert num_envs == (4 if is_vector else 1)
    random, shape = np.random.default_rng(0), env.state_space
    for _ in range(60):
        actions = random.integers(0, 2, num_envs)
        seen, rewards, terminated, truncated, _ = env.step(torch.as_tensor(actions).reshape(-1, 1))
        assert seen.shape == (num_envs, 4)
        assert rewards.shape == terminated.shape == truncated.shape == (num_envs, 1)
    env.close()
