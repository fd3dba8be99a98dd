"""Small envs for tests.

One of Gymnasium and one with agents in dicts return what a test gives them; one is of old Gym.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from pufferlib import PufferEnv

VECTOR = Box(-1, 1, (2,), np.float32)


class Gym(gymnasium.Env[Any, Any]):
    """Returns the parts it was given; by default zeros, and an end after `length` steps."""

    def __init__(
        self,
        observation_space: Any = VECTOR,
        action_space: Any = None,
        *,
        length: int = 3,
        **said: Any,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = Discrete(2) if action_space is None else action_space
        self.length, self.said = length, said
        self.actions: list[Any] = []
        self.seeds: list[int | None] = []

    def observation(self) -> Any:
        if "observation" in self.said:
            return self.said["observation"]
        return np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self.tick = 0
        first = self.said["first"] if "first" in self.said else self.observation()
        return self.said.get("reset", (first, {}))

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.tick += 1
        if "step" in self.said:
            return self.said["step"]
        ended = self.tick == self.length
        return (
            self.observation(),
            self.said.get("reward", 1.0),
            self.said.get("terminated", ended),
            self.said.get("truncated", False),
            self.said.get("info", {"score": self.tick, "name": "x"}),
        )


class Dicts(PufferEnv):
    """Plays a script: for each step (observations, rewards, dones, infos), agents by id."""

    def __init__(self, script: list[Any], first: Any = None, num_agents: int = 2) -> None:
        super().__init__()
        self.num_agents = num_agents
        self.single_observation_space = self.make_space((1,))
        self.single_action_space = self.make_discrete(9)
        self.script, self.given = script, []
        self.first = {"a": 1, "b": 2} if first is None else first

    def reset(self) -> Any:
        self.tick = 0
        return rows(self.first)

    def step(self, actions: Any) -> Any:
        self.given.append(actions)
        observations, *rest = self.script[self.tick]
        self.tick += 1
        return rows(observations), *rest


def rows(numbers: dict[str, float]) -> dict[str, Any]:
    return {id: np.full(1, number, np.float32) for id, number in numbers.items()}


class Legacy:
    """Gym before 0.26: a seed method, observations alone, four parts."""

    observation_space = VECTOR
    action_space = Discrete(2)

    def __init__(self, **info: Any) -> None:
        self.info = info

    def seed(self, seed: int) -> None:
        self.rng = np.random.RandomState(seed)

    def reset(self) -> Any:
        return self.rng.rand(2).astype(np.float32)

    def step(self, action: int) -> Any:
        return self.rng.rand(2).astype(np.float32), 1, True, self.info
