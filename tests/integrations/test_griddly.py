"""Griddly: planes come last, games are found by file, nothing stays in Gymnasium's registry."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

import pufferlib
from pufferlib.errors import UnknownNameError, UsageError

SOURCE = """
import gym
gym.register("GDY-Sokoban-v0", lambda: None)
class GymWrapper(gym.Env):
    pass
"""


class Kind(enum.Enum):
    """The observers of the package."""

    VECTOR = 1
    SPRITE_2D = 2
    BLOCK_2D = 3
    ISOMETRIC = 4


class Game:
    """Has the API of `griddly.GymWrapper`: 4-tuples, planes first."""

    def __init__(self, yaml_file: str, level: int, max_steps: int | None, **observers: Any) -> None:
        self.file, self.level, self.given = Path(yaml_file), level, None
        self.observation_space = SimpleNamespace(shape=(4, 9, 7))
        self.action_space = gymnasium.spaces.Discrete(5)

    def seed(self, seed: int) -> None:
        self.given = seed

    def reset(self) -> Any:
        planes = np.zeros((4, 9, 7), np.uint8)
        planes[2, 8, 6] = 1
        return planes

    def step(self, action: Any) -> Any:
        return self.reset(), 3, action == 4, {"History": []}

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def package(tmp_path: Path, on_path: Callable[[Path, str], None]) -> Path:
    """Put a package with one game on the path; importing it registers an id, as Griddly does."""
    games = tmp_path / "griddly" / "resources" / "games" / "Single-Player" / "GVGAI"
    games.mkdir(parents=True)
    (games / "sokoban.yaml").write_text("Environment:\n  Name: sokoban\n")
    (tmp_path / "griddly" / "__init__.py").write_text(SOURCE)
    on_path(tmp_path, "griddly")
    return games / "sokoban.yaml"


def test_games_are_found_without_importing_the_package(package: Path) -> None:
    assert pufferlib.list_envs("griddly") == ["griddly-sokoban"]
    with pytest.raises(
        UnknownNameError, match=r"`griddly-sokban`\. Did you mean `griddly-sokoban`"
    ):
        pufferlib.make("griddly-sokban")
    assert "griddly" not in sys.modules


def test_importing_leaves_no_gym_and_no_id(package: Path) -> None:
    from pufferlib.integrations.griddly import _imported

    before = sys.modules.get("gym")
    assert issubclass(_imported().GymWrapper, gymnasium.Env)
    assert sys.modules.get("gym") is before
    assert "GDY-Sokoban-v0" not in gymnasium.registry


def test_planes_come_last(package: Path) -> None:
    from pufferlib.integrations import griddly

    fake = SimpleNamespace(GymWrapper=Game, gd=SimpleNamespace(ObserverType=Kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(griddly, "_imported", lambda: fake)
        with pufferlib.make("griddly-sokoban", num_envs=1, backend="serial", level=2) as vecenv:
            env = vecenv.envs[0].env  # type: ignore[attr-defined]
            observations = vecenv.reset(seed=2**40 + 3)
            assert observations.shape == (1, 9, 7, 4)
            assert observations[0, 8, 6].tolist() == [0, 0, 1, 0]
            assert (env._game.file, env._game.level) == (package, 2)
            assert env._game.given == 3  # the package takes 31 bits
            _, rewards, dones, _ = vecenv.step(4)
            assert (rewards[0], dones[0]) == (3, True)
        assert env._game.is_closed


def test_an_unknown_observer_is_one_line(package: Path) -> None:
    with pytest.raises(UsageError, match=r"`observer` must be one of vector, sprite_2d"):
        pufferlib.make("griddly-sokoban", num_envs=1, backend="serial", observer="text")
