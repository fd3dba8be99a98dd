"""skrl: `wrap_env` of our single envs, vectors and envs of several agents."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

import pufferlib
import pufferlib.ocean

pytest.importorskip("skrl", reason="skrl is not installed")
from skrl import config
from skrl.envs.wrappers.torch import wrap_env


def test_a_single_env_has_its_numbers() -> None:
    env = wrap_env(gymnasium.make("ocean/Cartpole-v0"))
    twin = gymnasium.make("ocean/Cartpole-v0")
    assert np.array_equal(env.reset()[0].numpy()[0], twin.reset(seed=config.torch.key)[0])
    is_over, num_steps = False, 0
    while not is_over:
        seen, reward, terminated, truncated, _ = env.step(torch.tensor([[num_steps % 2]]))
        wanted = twin.step(num_steps % 2)
        assert np.array_equal(seen.numpy()[0], wanted[0])
        assert (reward.item(), terminated.item(), truncated.item()) == wanted[1:4]
        is_over, num_steps = wanted[2] or wanted[3], num_steps + 1
    assert num_steps > 10
    env.close()


def test_a_vector_has_its_numbers() -> None:
    vecenv = pufferlib.make("cartpole", num_envs=4, num_workers=1)
    twin = pufferlib.make("cartpole", num_envs=4, num_workers=1)
    env = wrap_env(pufferlib.to_gymnasium(vecenv))
    assert env.num_envs == 4
    assert np.array_equal(env.reset()[0].numpy(), twin.reset(seed=config.torch.key))
    random, num_ends = np.random.default_rng(0), 0
    for _ in range(100):
        actions = random.integers(0, 2, 4)
        seen, rewards, terminated, _, _ = env.step(torch.as_tensor(actions).reshape(4, 1))
        wanted = twin.step(actions)
        assert np.array_equal(seen.numpy(), wanted[0])
        assert np.array_equal(rewards.numpy().ravel(), wanted[1])
        assert np.array_equal(terminated.numpy().ravel(), twin.terminals)
        num_ends += int(wanted[2].sum())
    assert num_ends > 8
    env.close()


def test_agents_of_an_env_act_by_name() -> None:
    env = wrap_env(pufferlib.to_pettingzoo("soccer"))
    observations, _ = env.reset()
    assert list(observations) == env.possible_agents
    for _ in range(10):
        actions = {id: torch.tensor([[0, 0]]) for id in env.possible_agents}
        observations, rewards, *_ = env.step(actions)
        assert all(torch.isfinite(reward).all() for reward in rewards.values())
    env.close()
