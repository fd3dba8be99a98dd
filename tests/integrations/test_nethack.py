"""NetHack: `reset(seed=...)` seeds the game, whose own `reset` ignores seeds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from pufferlib.integrations.minihack import SeededLevel
from pufferlib.integrations.nethack import Seeded


class Game(gymnasium.Env[Any, Any]):
    """Observes the seeds that it was given, as NLE's `seed` takes them."""

    observation_space = gymnasium.spaces.Box(-1, 2**31, (2,), np.int64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, allows_seeds: bool = True) -> None:
        self.seeds, self.allows_seeds = (-1, -1), allows_seeds

    def seed(self, core: int, disp: int, reseed: bool = True, lgen: Any = None) -> None:
        if not self.allows_seeds:
            raise RuntimeError("doesn't allow seed changes")
        assert not reseed
        self.seeds = (core, disp)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array(self.seeds), {}


def test_the_same_seed_is_the_same_game() -> None:
    first, second = Seeded(Game()), Seeded(Game())
    games = [first.reset(seed=5)[0].tolist(), first.reset()[0].tolist()]
    assert games == [second.reset(seed=5)[0].tolist(), second.reset()[0].tolist()]
    assert games[0] != games[1]  # later episodes differ, and follow from the seed too
    assert games[0] != second.reset(seed=6)[0].tolist()


def test_without_a_seed_the_game_stays_random() -> None:
    assert Seeded(Game()).reset()[0].tolist() == [-1, -1]


def test_tasks_that_forbid_seeds_stay_random() -> None:
    assert Seeded(Game(allows_seeds=False)).reset(seed=5)[0].tolist() == [-1, -1]


def test_levels_drawn_by_minigrid_are_seeded_by_reset() -> None:
    class Drawing:
        def reset(self, seed: int | None = None) -> None:
            self.drawn_with = seed

    level: Any = Game()
    level.minigrid_env = Drawing()
    SeededLevel(level)
    level.minigrid_env.seed(7)
    assert level.minigrid_env.drawn_with == 7


@pytest.mark.parametrize("name", ["minihack-multiroom-n2", "minihack-room-random-5x5"])
def test_levels_follow_from_the_seed(name: str) -> None:
    pytest.importorskip("minihack", reason="minihack is not installed")
    import pufferlib

    rows = []
    for _ in range(2):
        with pufferlib.make(name, num_envs=2, backend="serial", seed=4) as vecenv:
            rows.append(vecenv.reset().copy())
    assert (rows[0] == rows[1]).all()
    assert (rows[0][0] != rows[0][1]).any()
