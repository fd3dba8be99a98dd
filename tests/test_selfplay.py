"""Self-play: who plays which side, whom games are against, and how they are rated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.selfplay import RATING_STEP, START_RATING, Member, SelfPlay
from pufferlib.vectorization import Serial


class HigherWins(pufferlib.PufferEnv):
    """Two agents say a number each; after LENGTH rounds the larger sum has won."""

    LENGTH = 3

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space = Box(-100, 100, (2,), np.float32)
        self.single_action_space = Discrete(5)
        self.num_agents = 2
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.sums = [0, 0]
        self.tick = 0
        self._see()
        return self.observations, []

    def _see(self) -> None:
        for side in (0, 1):
            self.observations[side] = side, self.tick

    def step(self, actions: Any) -> Any:
        self.tick += 1
        self.sums = [total + int(action) for total, action in zip(self.sums, actions, strict=True)]
        if self.tick == self.LENGTH:
            sign = np.sign(self.sums[0] - self.sums[1])
            self.rewards[:] = sign, -sign
            self.terminals[:] = True
            self.reset()
        self._see()
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Says(nn.Module):
    """Always says the same number; remembers how many rounds it has played if asked to."""

    def __init__(self, number: int, recalls: bool = False) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(5))
        with torch.no_grad():
            self.bias[number] = 50.0
        self.recalls = recalls
        self.seen: list[float] = []

    def forward(self, obs: Tensor, state: Any = None) -> Any:
        logits, value = self.bias.expand(len(obs), 5), obs[:, 0]
        if not self.recalls:
            return logits, value
        (count,) = (torch.zeros(len(obs), 1),) if state is None else state
        self.seen += (count[:, 0] - obs[:, 1]).tolist()
        return logits, value, (count + 1,)


def played(env: SelfPlay, action: int, steps: int) -> list[float]:
    env.reset(seed=0)
    rewards: list[float] = []
    for _ in range(steps):
        rewards += env.step(np.full(env.num_agents, action, dtype=np.int32))[1].tolist()
    return rewards


def test_the_learner_plays_the_first_side_of_even_envs_and_the_second_of_odd_ones() -> None:
    env = SelfPlay(Serial(HigherWins, 4))
    env.note_policy(Says(0), 0)
    assert (env.num_envs, env.num_agents, env.agents_per_env) == (4, 4, 1)
    assert env.reset(seed=0)[:, 0].tolist() == [0, 1, 0, 1]


def test_actions_reach_their_own_side() -> None:
    env = SelfPlay(Serial(HigherWins, 4), latest_share=1)
    env.note_policy(Says(2), 0)
    assert sum(played(env, action=3, steps=3)) == 4  # the learner says more in every env
    assert sum(played(env, action=1, steps=3)) == -4
    assert sum(played(env, action=2, steps=3)) == 0


def test_only_games_against_the_pool_are_rated() -> None:
    latest = SelfPlay(Serial(HigherWins, 4), latest_share=1)
    latest.note_policy(Says(2), 0)
    played(latest, action=3, steps=30)
    assert latest.drain_metrics()["elo"] == START_RATING

    past = SelfPlay(Serial(HigherWins, 4), latest_share=0)
    past.note_policy(Says(2), 0)
    played(past, action=3, steps=30)  # 10 games in each of 4 envs, all won
    metrics = past.drain_metrics()
    assert metrics["win_rate"] == 1
    assert metrics["elo"] > START_RATING + 40
    assert metrics["elo"] + past.pool[0].rating == pytest.approx(2 * START_RATING)
    assert metrics["mean_reward"] == 1
    assert "win_rate" not in past.drain_metrics()


def test_a_rating_moves_by_what_was_not_expected() -> None:
    # 400 points above the other, a win is expected with odds of 10 : 1
    env = SelfPlay(Serial(HigherWins, 1))
    env.rating = 1400.0
    other = Member(Says(0), 1000.0, 0)
    env._rate(other, 0.0)
    assert env.rating == pytest.approx(1400 - RATING_STEP * 10 / 11)
    assert other.rating == pytest.approx(1000 + RATING_STEP * 10 / 11)


def test_the_pool_keeps_its_oldest_and_the_recent_past() -> None:
    env = SelfPlay(Serial(HigherWins, 2), pool_size=3, interval=10)
    policy = Says(1)
    env.reset(seed=0)
    for iteration in range(60):
        env.note_policy(policy, iteration)
    assert [member.iteration for member in env.pool] == [0, 40, 50]
    assert all(not part.requires_grad for member in env.pool for part in member.policy.parameters())
    with torch.no_grad():
        policy.bias += 1
    assert not torch.equal(env.pool[-1].policy.bias, policy.bias)  # a copy, not the thing itself


def test_the_memory_of_an_opponent_begins_anew_with_each_game() -> None:
    env = SelfPlay(Serial(HigherWins, 3), latest_share=1)
    policy = Says(2, recalls=True)
    env.note_policy(policy, 0)
    played(env, action=1, steps=10)
    assert policy.seen
    assert not any(policy.seen)


def test_an_env_of_one_side_is_told() -> None:
    with pytest.raises(UsageError, match=r"two sides of equally many agents.*has 1 agent"):
        SelfPlay(pufferlib.make("cartpole", 2))


def trained(recurrent: str, iterations: int) -> dict[str, float]:
    env = pufferlib.make("connect4", 32, 1, opponent="self")
    policy = pufferlib.models.make_policy(env, hidden_size=64, recurrent=recurrent)
    settings: dict[str, Any] = {"batch_size": 1024, "num_iterations": iterations}
    settings |= {"learning_rate": 0.005, "self_play": True, "self_play_interval": 5}
    with env, pufferlib.PuffeRL(env, policy, dashboard="off", seed=1, **settings) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
    return log


def test_a_policy_gets_stronger_than_its_past() -> None:
    log = trained("none", iterations=25)
    assert log["env/elo"] > START_RATING + 30
    assert log["env/pool_size"] == 5


def test_policies_with_memory_play_themselves_too() -> None:
    log = trained("lstm", iterations=6)
    assert log["env/pool_size"] == 2
    assert 0 < log["env/win_rate"] < 1
