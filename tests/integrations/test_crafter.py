"""Crafter: seeds, ends and achievements, against a world with the package's API."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pufferlib


class World:
    """Dies in step 3 of an episode, or ends after `length` steps."""

    action_names = ("noop", "move", "do")

    def __init__(self, area: Any, view: Any, size: Any, reward: bool, length: int) -> None:
        self._size, self._length = size, length
        self._seed, self._episode = 999, 0

    def reset(self) -> Any:
        self._episode += 1
        self._ticks = 0
        return self.render()

    def step(self, action: int) -> Any:
        self._ticks += 1
        is_dead = self._ticks == 3
        done = is_dead or self._ticks >= self._length
        achievements = {"collect_wood": self._ticks, "place_table": 0}
        info = {"discount": 1 - float(is_dead), "achievements": achievements, "semantic": None}
        return self.render(), np.float64(0.5), done, info

    def render(self, size: Any = None) -> Any:
        value = self._seed + self._episode
        return np.full((*(size or self._size), 3), value % 256, np.uint8)


@pytest.fixture(autouse=True)
def package(stand_in: Callable[..., ModuleType]) -> None:
    stand_in("crafter", Env=World)


def test_a_seed_starts_its_own_sequence_of_worlds() -> None:
    from pufferlib.integrations.crafter import Crafter

    env = Crafter(size=(8, 8))
    assert env.reset(seed=7)[0][0, 0, 0] == 8  # seed 7, episode 1
    assert env.reset()[0][0, 0, 0] == 9
    assert env.reset(seed=7)[0][0, 0, 0] == 8
    assert env.observation_space.shape == (8, 8, 3)


def test_death_is_terminal_and_the_time_limit_is_not() -> None:
    for length, expected in ((10, (True, False)), (2, (False, True))):
        with pufferlib.make("crafter", num_envs=1, backend="serial", length=length) as vecenv:
            vecenv.reset(seed=0)
            for _ in range(min(3, length)):
                _, rewards, _, infos = vecenv.step(1)
            assert (vecenv.terminals[0], vecenv.truncations[0]) == expected
            assert rewards[0] == 0.5
            assert infos[0]["achievements"] == 1
            assert infos[0]["unlocked/collect_wood"] == 1
            assert infos[0]["unlocked/place_table"] == 0


def test_the_picture_is_larger_than_the_view() -> None:
    with pufferlib.make("crafter", num_envs=1, backend="serial") as vecenv:
        vecenv.reset(seed=0)
        assert vecenv.render(0).shape == (576, 576, 3)
