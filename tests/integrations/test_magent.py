"""MAgent2: newest version of a name; teams with different spaces are padded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pufferlib
from pufferlib.errors import UnknownNameError

SOURCE = """
import numpy as np
from gymnasium.spaces import Box, Discrete


class Duel:
    possible_agents = ["red_0", "blue_0"]
    metadata = {}

    def __init__(self, map_size):
        self.map_size = map_size

    def observation_space(self, agent):
        return Box(0, 1, (3 if agent == "red_0" else 5,), np.float32)

    def action_space(self, agent):
        return Discrete(2 if agent == "red_0" else 4)

    def _seen(self):
        return {id: np.ones(self.observation_space(id).shape, np.float32) for id in self.agents}

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return self._seen(), {id: {} for id in self.agents}

    def step(self, actions):
        no = dict.fromkeys(self.agents, False)
        return self._seen(), dict.fromkeys(self.agents, 1.0), no, no, {id: {} for id in self.agents}

    def close(self):
        pass


def parallel_env(map_size=9):
    return Duel(map_size)


raw_env = parallel_env
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, on_path: Callable[[Path, str], None]) -> None:
    folder = tmp_path / "magent2" / "environments"
    folder.mkdir(parents=True)
    for parent in (folder, folder.parent):
        (parent / "__init__.py").write_text("")
    for version in (3, 12):
        (folder / f"duel_v{version}.py").write_text(SOURCE)
    on_path(tmp_path, "magent2")


def test_a_bare_name_is_the_newest_version() -> None:
    assert pufferlib.list_envs("magent") == ["magent-duel"]
    with pufferlib.make("magent-duel", num_envs=1, backend="serial", map_size=4) as vecenv:
        assert vecenv.name == "magent-duel-v12"
    with pytest.raises(UnknownNameError, match=r"`mapsize`\. Did you mean `map_size`"):
        pufferlib.make("magent-duel", mapsize=4)
    with pytest.raises(UnknownNameError, match="`magent-duel-v3` or `magent-duel-v12`"):
        pufferlib.make("magent-duel-v4")


def test_teams_with_different_spaces_are_padded() -> None:
    with pufferlib.make("magent-duel", num_envs=1, backend="serial") as vecenv:
        vecenv.reset(seed=0)
        assert vecenv.observations.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
        assert vecenv.action_masks is not None
        assert vecenv.action_masks.tolist() == [[True, True, False, False], [True] * 4]
