"""A script in the shape of CleanRL's PPO for continuous actions, with Gymnasium's wrappers."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import vector as wrappers
from torch import Tensor, nn
from torch.distributions import Normal

import pufferlib

NUM_ENVS, NUM_STEPS, NUM_UPDATES, GAMMA, LAMBDA = 16, 128, 16, 0.95, 0.95


def make_envs() -> gymnasium.vector.VectorEnv:
    vecenv = pufferlib.make("continuous", num_envs=NUM_ENVS, num_workers=1)
    envs = pufferlib.to_gymnasium(vecenv, statistics=False, autoreset_mode="next_step")
    envs = wrappers.RecordEpisodeStatistics(envs)
    envs = wrappers.ClipAction(envs)
    envs = wrappers.NormalizeObservation(envs)
    bounds = envs.single_observation_space
    envs = wrappers.TransformObservation(envs, lambda rows: np.clip(rows, -10, 10), bounds)
    envs = wrappers.NormalizeReward(envs, gamma=GAMMA)
    return wrappers.TransformReward(envs, lambda rewards: np.clip(rewards, -10, 10))


class Agent(nn.Module):
    def __init__(self, envs: gymnasium.vector.VectorEnv) -> None:
        super().__init__()
        seen = int(np.prod(envs.single_observation_space.shape))
        moves = int(np.prod(envs.single_action_space.shape))
        self.critic = nn.Sequential(nn.Linear(seen, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(seen, 64), nn.Tanh(), nn.Linear(64, moves))
        self.log_std = nn.Parameter(torch.full((1, moves), -0.5))

    def policy(self, seen: Tensor) -> Normal:
        mean = self.actor(seen)
        return Normal(mean, self.log_std.expand_as(mean).exp())

    def value(self, seen: Tensor) -> Tensor:
        return self.critic(seen).squeeze(-1)


# CleanRL's scripts give the space of all envs only
@pytest.mark.filterwarnings("ignore:.*observation space and the batched single:UserWarning")
@pytest.mark.slow
def test_ppo_on_continuous_actions_learns_under_gymnasiums_wrappers() -> None:
    torch.manual_seed(1)
    envs = make_envs()
    agent = Agent(envs)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2e-3, eps=1e-5)
    shape = NUM_STEPS, NUM_ENVS
    observations = torch.zeros(*shape, *envs.single_observation_space.shape)
    actions = torch.zeros(*shape, *envs.single_action_space.shape)
    logprobs, rewards, dones, values = torch.zeros(4, *shape)
    next_seen = torch.as_tensor(envs.reset(seed=1)[0], dtype=torch.float32)
    next_done = torch.zeros(NUM_ENVS)
    returns_of: list[list[float]] = []
    for _ in range(NUM_UPDATES):
        returns_of.append([])
        for step in range(NUM_STEPS):
            observations[step], dones[step] = next_seen, next_done
            with torch.no_grad():
                policy = agent.policy(next_seen)
                actions[step] = policy.sample()
                logprobs[step] = policy.log_prob(actions[step]).sum(1)
                values[step] = agent.value(next_seen)
            seen, reward, terminated, truncated, infos = envs.step(actions[step].numpy())
            rewards[step] = torch.as_tensor(reward)
            next_seen = torch.as_tensor(seen, dtype=torch.float32)
            next_done = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            if "episode" in infos:
                returns_of[-1] += infos["episode"]["r"][infos["_episode"]].tolist()
        with torch.no_grad():
            next_value, advantage = agent.value(next_seen), torch.zeros(NUM_ENVS)
            advantages, alive = torch.zeros(shape), 1 - next_done
            for step in reversed(range(NUM_STEPS)):
                delta = rewards[step] + GAMMA * next_value * alive - values[step]
                advantages[step] = advantage = delta + GAMMA * LAMBDA * alive * advantage
                next_value, alive = values[step], 1 - dones[step]
        was_played = dones.flatten() == 0  # the step after an end only resets
        batch = [
            part.flatten(0, 1)[was_played]
            for part in (observations, actions, logprobs, advantages, values)
        ]
        for rows in [rows for _ in range(4) for rows in torch.randperm(len(batch[0])).split(512)]:
            o, a, old, adv, value = (part[rows] for part in batch)
            policy = agent.policy(o)
            ratio = (policy.log_prob(a).sum(1) - old).exp()
            normal = (adv - adv.mean()) / (adv.std() + 1e-8)
            gain = torch.min(ratio * normal, ratio.clamp(0.8, 1.2) * normal).mean()
            value_loss = (agent.value(o) - (value + adv)).square().mean()
            optimizer.zero_grad()
            (0.5 * value_loss - gain).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    envs.close()
    first, last = np.mean(returns_of[0]), np.mean(returns_of[-1])

    assert first < 0.5
    assert last > first + 1  # 3 seeds: 2.2 or more
