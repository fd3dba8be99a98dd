"""GPUDrive: scenes as envs, against an env with GPUDriveTorchEnv's API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import pufferlib
from pufferlib.errors import MissingExtraError, UsageError
from pufferlib.ocean import OCEAN_REGISTRY


class Scenes:
    """Takes what `SceneDataLoader` takes."""

    def __init__(self, root: str, batch_size: int, dataset_size: int) -> None:
        if not Path(root).exists():
            raise FileNotFoundError(f"The specified path does not exist: {root}")
        self.batch_size = batch_size


class Traffic:
    """One world of five places; vehicles in places 1 and 3 are controlled, the latter crashes."""

    made: Traffic
    episode_len = 4

    def __init__(self, config: Any, data_loader: Any, max_cont_agents: int, device: str) -> None:
        assert data_loader.batch_size == 1
        self.cont_agent_mask = torch.tensor([[False, True, False, True, False]])
        self.single_observation_space = Box(-1, 1, (2,), np.float32)
        self.single_action_space = Discrete(7)
        Traffic.made = self

    def reset(self) -> Any:
        self.ticks = 0
        return self.get_obs()

    def get_obs(self) -> Any:
        return torch.arange(5.0)[None, :, None].expand(1, 5, 2) / 10

    def get_rewards(self) -> Any:
        return torch.arange(5.0)[None]

    def get_dones(self) -> Any:
        return torch.tensor([[0, 0, 0, self.ticks >= 2, 0]])

    def step_dynamics(self, actions: Any) -> None:
        self.ticks += 1
        self.given = actions

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def package(stand_in: Callable[..., ModuleType]) -> None:
    for name in ("madrona_gpudrive", "gpudrive", "gpudrive.env"):
        stand_in(name)
    stand_in("gpudrive.env.config", EnvConfig=lambda: None)
    stand_in("gpudrive.env.dataset", SceneDataLoader=Scenes)
    stand_in("gpudrive.env.env_torch", GPUDriveTorchEnv=Traffic)


@pytest.mark.usefixtures("package")
def test_controlled_vehicles_are_agents(tmp_path: Path) -> None:
    assert pufferlib.list_envs("gpudrive") == ["gpudrive"]
    with pufferlib.make("gpudrive", num_envs=1, num_vehicles=8, data_dir=str(tmp_path)) as vecenv:
        vecenv.reset(seed=0)
        assert vecenv.agents_per_env == 2
        np.testing.assert_allclose(vecenv.observations, [[0.1, 0.1], [0.3, 0.3]])
        vecenv.step({"vehicle_0": [5], "vehicle_1": [6]})
        assert Traffic.made.given.tolist() == [[0, 5, 0, 6, 0]]
        assert vecenv.rewards.tolist() == [1, 3]
        vecenv.step(0)
        assert vecenv.terminals.tolist() == [False, True]  # it crashed
        vecenv.step(0)
        assert vecenv.masks.tolist() == [True, False]
        vecenv.step(0)
        assert vecenv.truncations.tolist() == [True, False]  # the scene is over
    assert Traffic.made.is_closed


@pytest.mark.usefixtures("package")
def test_a_folder_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`data_dir` must be a folder of scenes, but got"):
        pufferlib.make("gpudrive", num_envs=1, data_dir=str(tmp_path / "none"))


def test_without_a_build_the_answer_is_one_line(
    hide: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide("madrona_gpudrive")
    monkeypatch.setitem(OCEAN_REGISTRY, "drive", {})
    with pytest.raises(MissingExtraError) as caught:
        pufferlib.make("gpudrive")
    message = str(caught.value)
    assert message.startswith("`gpudrive` needs madrona_gpudrive, which no registry has: build")
    assert message.endswith("from its source; `drive` is a similar env of this package")
    monkeypatch.delitem(OCEAN_REGISTRY, "drive")
    with pytest.raises(MissingExtraError, match=r"from its source$"):
        pufferlib.make("gpudrive")
