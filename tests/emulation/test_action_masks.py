"""Action masks that an emulated env declares."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from playback import VECTOR, Gym

import pufferlib


class Masked(Gym):
    """Allows only action `tick`, declared in one of three ways."""

    def __init__(self, way: str) -> None:
        mask = Box(0, 1, (3,), np.int8)
        super().__init__(Dict(action_mask=mask, seen=VECTOR) if way == "observation" else VECTOR)
        self.action_space, self.way = Discrete(3), way
        if way == "method":
            self.action_masks = self.mask

    def mask(self) -> Any:
        return np.arange(3) == self.tick

    def observation(self) -> Any:
        seen = np.zeros(2, np.float32)
        if self.way == "observation":
            return {"action_mask": self.mask().astype(np.int8), "seen": seen}
        return seen

    def info(self) -> Any:
        return {"action_mask": self.mask()} if self.way == "info" else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.tick = 0
        return self.observation(), self.info()

    def step(self, action: int) -> Any:
        assert action == self.tick
        self.tick += 1
        return self.observation(), 1.0, self.tick == 3, False, self.info()


@pytest.mark.parametrize("way", ["observation", "info", "method"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_action_masks_come_from_observation_info_or_method(way: str, wrapped: bool) -> None:
    def creator() -> Any:
        env = Masked(way)
        return gymnasium.wrappers.TimeLimit(env, 50) if wrapped else env

    vecenv = pufferlib.emulate(creator, num_envs=2)
    vecenv.reset(seed=0)
    assert vecenv.action_masks is not None
    for step in range(6):
        assert (vecenv.action_masks.argmax(1) == step % 3).all()
        assert (vecenv.action_masks.sum(1) == 1).all()
        vecenv.step(vecenv.action_masks.argmax(1))
    assert vecenv.drain_metrics()["episodes"] == 4


def test_an_env_without_masks_has_none() -> None:
    assert pufferlib.emulate(Gym).action_masks is None
    assert pufferlib.emulate(lambda: Gym(action_space=Box(-1, 1, (1,)))).action_masks is None
