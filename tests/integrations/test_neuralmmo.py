"""Neural MMO: observations and masks, against a world with nmmo's API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import pufferlib
from pufferlib.errors import UsageError


class Config:
    """Keeps what is set."""

    MAP_BORDER = 16

    def set(self, name: str, value: Any) -> None:
        setattr(self, name, value)


class World:
    """Two kinds of actions; the last agent dies in step 2."""

    made: World

    def __init__(self, config: Any) -> None:
        self.config = config
        self.possible_agents = list(range(1, config.PLAYER_N + 1))
        World.made = self

    def observation_space(self, agent: int) -> Any:
        targets = {"Move": {"Direction": 5}, "Attack": {"Target": 3, "Style": 2}}
        masks = {
            kind: Dict({name: Box(0, 1, (n,), np.int8) for name, n in parts.items()})
            for kind, parts in targets.items()
        }
        shapes = {"Communication": 2, "Entity": 3, "Inventory": 2, "Market": 4, "Tile": 5}
        arrays = {name: Box(-99, 99, (n, 2), np.int16) for name, n in shapes.items()}
        return Dict({"AgentId": Discrete(9), "ActionTargets": Dict(masks), **arrays})

    def action_space(self, agent: int) -> Any:
        attack = Dict({"Target": Discrete(3), "Style": Discrete(2)})
        return Dict({"Move": Dict({"Direction": Discrete(5)}), "Attack": attack})

    def _seen(self) -> dict[int, Any]:
        space = self.observation_space(1)
        arrays = {
            name: np.zeros(part.shape, np.int16)
            for name, part in space.items()
            if isinstance(part, Box)
        }
        arrays["Entity"][0] = (99, -1)
        targets = {
            "Move": {"Direction": np.array([1, 0, 0, 0, 1], np.int8)},
            "Attack": {"Target": np.array([0, 1, 0], np.int8), "Style": np.array([1, 0], np.int8)},
        }
        return {id: {**arrays, "AgentId": id, "ActionTargets": targets} for id in self.agents}

    def reset(self, seed: int | None = None) -> Any:
        self.agents, self.ticks = list(self.possible_agents), 0
        return self._seen(), {id: {"task": "live"} for id in self.agents}

    def step(self, actions: dict[int, Any]) -> Any:
        self.ticks += 1
        self.given = actions
        ended = {id: self.ticks == 2 and id == self.possible_agents[-1] for id in self.agents}
        seen = self._seen()
        self.agents = [id for id in self.agents if not ended[id]]
        return seen, dict.fromkeys(seen, 1.0), ended, dict.fromkeys(seen, False), {}

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def package(stand_in: Callable[..., ModuleType]) -> None:
    stand_in("nmmo", Env=World)
    stand_in("nmmo.core")
    stand_in("nmmo.core.config", Default=Config)


def test_numbers_are_compressed_and_masks_follow_the_actions() -> None:
    with pufferlib.make(
        "neuralmmo", num_envs=1, backend="serial", num_agents=3, map_size=40
    ) as vecenv:
        observations = vecenv.reset(seed=1)
        assert (vecenv.agents_per_env, len(observations)) == (3, 3)
        assert (World.made.config.MAP_CENTER, World.made.config.MAP_SIZE) == (40, 72)
        parts = pufferlib.pytorch.unflatten_observations(
            vecenv.observations, vecenv.observation_space
        )
        np.testing.assert_allclose(parts["Entity"][0, 0], [np.log(100), -np.log(2)], rtol=1e-6)
        assert vecenv.action_masks is not None
        # Attack before Move, Style before Target: the order of the names
        assert vecenv.action_masks[0].astype(int).tolist() == [1, 0, 0, 1, 0, 1, 0, 0, 0, 1]


def test_agents_that_die_are_masked_and_maps_are_deleted() -> None:
    with pufferlib.make("neuralmmo", num_envs=1, backend="serial", num_agents=3) as vecenv:
        vecenv.reset(seed=1)
        maps = Path(World.made.config.PATH_MAPS)
        assert maps.is_dir()
        for _ in range(3):
            vecenv.step(np.zeros(3, int))
        assert vecenv.masks.tolist() == [True, True, False]
        assert sorted(World.made.given) == [1, 2]
    assert not maps.exists()


def test_sizes_are_checked() -> None:
    with pytest.raises(UsageError, match="`map_size` at least 32, but got"):
        pufferlib.make("neuralmmo", num_envs=1, backend="serial", map_size=8)
