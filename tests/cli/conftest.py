"""A working folder for each test, and a module in it on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

WORLD = '''
import gymnasium
import numpy as np


class Maze(gymnasium.Env):
    """Find the way out.

    It is dark.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, size: int, prize: float | None = None, wall_color="grey", **_):
        self.size, self.prize = size, prize

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        is_out = bool(self.np_random.random() < 1 / self.size)
        return np.zeros(3, np.float32), self.prize or 0.0, is_out, False, {}


def small(prize=None):
    return Maze(4, prize)


broken = 3
'''


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def world() -> Iterator[str]:
    """Write a module into the working folder; return its name."""
    Path("a_dark_world.py").write_text(WORLD)
    path = list(sys.path)
    yield "a_dark_world"
    sys.path[:] = path
    sys.modules.pop("a_dark_world", None)
