"""Tianshou: its vectors of our envs, its collectors and its PPO."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

import pufferlib.ocean

pytest.importorskip("tianshou", reason="Tianshou is not installed")
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.distributions import Categorical

gymnasium.register_envs(pufferlib.ocean)


def test_its_vector_has_the_numbers_of_our_envs() -> None:
    envs = DummyVectorEnv([lambda: gymnasium.make("ocean/Cartpole-v0")] * 3)
    twins = [gymnasium.make("ocean/Cartpole-v0") for _ in range(3)]
    envs.seed([1, 2, 3])  # resets each with its seed
    rows, _ = envs.reset()
    for row, twin, seed in zip(rows, twins, (1, 2, 3), strict=True):
        twin.reset(seed=seed)
        assert np.array_equal(row, twin.reset()[0])
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


@pytest.mark.slow
def test_its_ppo_learns_to_balance_the_pole() -> None:
    np.random.seed(1)
    torch.manual_seed(1)
    envs = DummyVectorEnv([lambda: gymnasium.make("ocean/Cartpole-v0")] * 8)
    envs.seed(1)
    env = gymnasium.make("ocean/Cartpole-v0")
    body = Net(state_shape=env.observation_space.shape, hidden_sizes=[64])
    policy = ProbabilisticActorPolicy(
        actor=DiscreteActor(preprocess_net=body, action_shape=2, softmax_output=False),
        dist_fn=lambda logits: Categorical(logits=logits),
        action_space=env.action_space,
        action_scaling=False,
    )
    algorithm = PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=body),
        optim=AdamOptimizerFactory(lr=3e-3),
    )
    collector = Collector(algorithm, envs, VectorReplayBuffer(1024, 8))
    collector.reset()
    before = collector.collect(n_episode=16).returns.mean()
    collector.reset()
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=12_000,
            collection_step_num_env_steps=1024,
            batch_size=256,
            update_step_num_repetitions=4,
            verbose=False,
            show_progress=False,
        )
    )
    collector.reset()
    after = collector.collect(n_episode=16).returns.mean()

    assert before < 40
    assert after > 2 * before
