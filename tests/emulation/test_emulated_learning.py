"""PuffeRL learns on emulated envs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import pufferlib
from pufferlib import PufferEnv


class Echo(PufferEnv):
    """Two agents are each shown a number of 0..3 and earn 1 for naming it; 8 rounds to a game."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.num_agents = 2
        self.single_observation_space = self.make_space({"number": self.make_discrete(4)})
        self.single_action_space = self.make_discrete(4)

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.tick = 0
        return self.show()

    def show(self) -> Any:
        self.numbers = {id: int(self.rng.integers(4)) for id in ("left", "right")}
        return {id: {"number": number} for id, number in self.numbers.items()}

    def step(self, actions: dict[str, int]) -> Any:
        self.tick += 1
        rewards = {id: float(self.numbers[id] == action) for id, action in actions.items()}
        return self.show(), rewards, {"__all__": self.tick == 8}, {}


def trained(vecenv: Any, iterations: int, **settings: Any) -> float:
    """Train with PuffeRL; return the mean episode return of the last rollout."""
    import torch

    torch.manual_seed(1)
    with pufferlib.PuffeRL(
        vecenv, device="cpu", dashboard="off", seed=1, anneal_lr=False, **settings
    ) as trainer:
        for _ in range(iterations):
            score: float = trainer.evaluate()["mean_reward"]
            trainer.train()
    return score


def test_puffer_learns_an_emulated_cartpole() -> None:
    # a random policy holds the pole for 22 steps; 25 x 2048 = 51,200 steps of training reach 500
    with pufferlib.emulate(gymnasium.make("CartPole-v1"), num_envs=32) as vecenv:
        score = trained(
            vecenv,
            25,
            batch_size=2048,
            num_steps=64,
            minibatch_size=512,
            learning_rate=3e-3,
            reward_scale=0.1,
        )
    assert score > 200


@pytest.mark.slow
def test_puffer_learns_with_agents_in_dicts() -> None:
    # guessing earns 8 / 4 = 2 a game, knowing 8
    with pufferlib.emulate(Echo, num_envs=16) as vecenv:
        score = trained(vecenv, 20, batch_size=1024, num_steps=32, learning_rate=1e-2)
    assert score > 7
