"""Tiny envs and policies whose numbers can be derived by hand."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import pufferlib
from pufferlib.policies.normalisation import ObservationNorm


class Scripted(pufferlib.PufferEnv):
    """Observes the number of steps so far, over all episodes, and earns that number plus one.

    `terminals`, `truncations` and `absences` say in which steps (from 0) an episode ends, is cut
    (its final observation is 100 + that step), and before which the agent is absent. Observations
    begin at `first`.
    """

    def __init__(
        self,
        terminals: Container[int] = (),
        truncations: Container[int] = (),
        absences: Container[int] = (),
        first: int = 0,
    ) -> None:
        self.single_observation_space = Box(-np.inf, np.inf, (1,), np.float32)
        self.single_action_space = Discrete(2)
        self.cuts = terminals, truncations
        self.absences = absences
        self.first = first
        super().__init__()

    def reset(self, seed: int | None = None) -> Any:
        self.now = 0
        self.look()
        return self.observations, []

    def look(self) -> None:
        self.observations[:] = self.first + self.now
        self.masks[:] = self.now not in self.absences

    def step(self, actions: Any) -> Any:
        terminals, truncations = self.cuts
        self.rewards[:] = self.now + 1
        self.terminals[:] = self.now in terminals
        self.truncations[:] = self.now in truncations
        self.final_observations[:] = 100 + self.now
        self.now += 1
        self.look()
        return self.observations, self.rewards, self.terminals, self.truncations, []


class TenTimes(nn.Module):
    """Values an observation at ten times itself and chooses by a coin."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(10.0))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        values = observations[:, 0] * self.factor
        return torch.zeros(len(observations), 2) * self.factor, values


class Adding(nn.Module):
    """Remembers the sum of all observations of an episode, and values it."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0))

    def forward(self, observations: Tensor, state: Any = None) -> tuple[Tensor, Tensor, Tensor]:
        total = observations[:, 0] + (0 if state is None else state)
        return torch.zeros(len(observations), 2) * self.factor, total * self.factor, total


def learn(norm: ObservationNorm, rows: Tensor) -> None:
    """Let a norm learn from rows as if they were one rollout."""
    norm.note(rows, torch.ones(len(rows), dtype=torch.bool))
    norm.end_step()
    norm.learn()
