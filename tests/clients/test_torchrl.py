"""TorchRL: its env of an id, its wrappers of our vectors and of our envs of several agents."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

import pufferlib
import pufferlib.ocean

pytest.importorskip("torchrl", reason="TorchRL is not installed")
from torchrl.collectors import Collector
from torchrl.envs import GymEnv, GymWrapper, PettingZooWrapper, check_env_specs

pytestmark = pytest.mark.filterwarnings("ignore")  # deprecations of its own


def test_gym_env_takes_an_id_and_rolls_out_its_episode() -> None:
    env = GymEnv("ocean/Cartpole-v0")
    check_env_specs(env)
    env.set_seed(3)
    played = env.rollout(60)
    env.close()
    twin = gymnasium.make("ocean/Cartpole-v0")
    twin.reset(seed=3)  # as `set_seed` does
    observation, _ = twin.reset()
    for step in range(len(played)):
        assert np.array_equal(played["observation"][step], observation)
        action = int(played["action"][step].argmax())
        observation, reward, terminated, _, _ = twin.step(action)
        assert np.array_equal(played["next", "observation"][step], observation)
        assert played["next", "reward"][step].item() == reward
        assert played["next", "terminated"][step].item() is terminated
    assert terminated


def test_every_end_in_a_vector_has_its_final_observation() -> None:
    vecenv = pufferlib.make("cartpole", num_envs=4, num_workers=1, max_steps=5)
    env = GymWrapper(pufferlib.to_gymnasium(vecenv, statistics=False))
    env.set_seed(1)
    played = env.rollout(30, break_when_any_done=False)
    env.close()
    ends = played["next", "done"].squeeze(-1)
    last, following = played["next", "observation"][:, :-1], played["observation"][:, 1:]
    differs = (last != following).any(-1)

    # what a step shows is where the next one begins, but for an end: a new episode begins there
    assert ends.sum() >= 16
    assert torch.equal(differs, ends[:, :-1])


def test_a_collector_fills_batches_from_a_vector() -> None:
    vecenv = pufferlib.make("cartpole", num_envs=4, num_workers=1)
    env = GymWrapper(pufferlib.to_gymnasium(vecenv, statistics=False))
    collector = Collector(env, frames_per_batch=64, total_frames=256)
    batches = [batch.clone() for batch in collector]
    collector.shutdown()

    assert [batch.numel() for batch in batches] == [64] * 4
    assert sum(batch["next", "reward"].sum().item() for batch in batches) > 200


def test_agents_of_an_env_are_a_group() -> None:
    env = PettingZooWrapper(pufferlib.to_pettingzoo("soccer"))
    check_env_specs(env)
    played = env.rollout(20)
    env.close()

    (group,) = env.group_map
    assert played[group, "observation"].shape[:2] == (20, len(env.group_map[group]))
