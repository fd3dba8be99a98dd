"""The family `gpudrive`: traffic scenes of GPUDrive, where the user's own build is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import MissingExtraError, UsageError, one_line, unknown_name
from pufferlib.integrations.packages import is_installed
from pufferlib.ocean import OCEAN_REGISTRY
from pufferlib.registry import EnvSpec
from pufferlib.spaces import Space

_SIMULATOR = "madrona_gpudrive"  # compiled from source; the package of that name has none inside


class GPUDrive:
    """One scene as a parallel env of PettingZoo: each controlled vehicle is an agent.

    `data_dir` holds scenes (`tfrecord-*.json`), `num_vehicles` is the most that are controlled. A
    vehicle that has arrived, crashed or left the road is gone until the next reset.
    """

    def __init__(
        self,
        num_vehicles: int = 64,
        data_dir: str = "data/processed/examples",
        num_scenes: int = 1000,
        device: str = "cpu",
    ) -> None:
        from gpudrive.env.config import EnvConfig
        from gpudrive.env.dataset import SceneDataLoader
        from gpudrive.env.env_torch import GPUDriveTorchEnv

        try:
            scenes = SceneDataLoader(root=data_dir, batch_size=1, dataset_size=num_scenes)
        except FileNotFoundError as error:
            raise UsageError(
                f"`data_dir` must be a folder of scenes, but got {data_dir!r}: {one_line(error)}"
            ) from error
        self.env = GPUDriveTorchEnv(
            config=EnvConfig(), data_loader=scenes, max_cont_agents=num_vehicles, device=device
        )
        self.metadata, self.render_mode = {"name": "gpudrive"}, None
        self._controlled = self.env.cont_agent_mask[0]
        self.possible_agents = [f"vehicle_{n}" for n in range(int(self._controlled.sum()))]
        self.agents: list[str] = []
        self._ticks = 0

    def observation_space(self, agent: str) -> Space:
        """Return the space that all vehicles share."""
        space: Space = self.env.single_observation_space
        return space

    def action_space(self, agent: str) -> Space:
        """Return the space that all vehicles share."""
        space: Space = self.env.single_action_space
        return space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Start the scene again; its traffic is recorded, so a seed changes nothing."""
        self.env.reset()
        self.agents, self._ticks = list(self.possible_agents), 0
        rows = self._of_controlled(self.env.get_obs())
        return dict(zip(self.agents, rows, strict=True)), {id: {} for id in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Move all vehicles by one tick of 0.1 seconds."""
        chosen = [int(actions.get(id, 0)) for id in self.possible_agents]
        rows = self._controlled.long()
        rows[self._controlled] = rows.new_tensor(chosen)
        self.env.step_dynamics(rows[None])
        self._ticks += 1
        is_over = self._ticks >= self.env.episode_len
        parts = (self.env.get_obs(), self.env.get_rewards(), self.env.get_dones())
        observations, rewards, dones = (self._of_controlled(part) for part in parts)
        places = {id: n for n, id in enumerate(self.possible_agents) if id in self.agents}
        ended = {id: bool(dones[n]) for id, n in places.items()}
        result: tuple[Any, Any, Any, Any, Any] = (
            {id: observations[n] for id, n in places.items()},
            {id: float(rewards[n]) for id, n in places.items()},
            ended,
            {id: is_over and not ended[id] for id in places},
            {id: {} for id in places},
        )
        self.agents = [id for id in places if not (is_over or ended[id])]
        return result

    def _of_controlled(self, part: Any) -> NDArray[Any]:
        """Return the rows of controlled vehicles in the only world."""
        rows: NDArray[Any] = np.asarray(part[0][self._controlled].cpu())
        return rows

    def close(self) -> None:
        """Free the simulator."""
        self.env.close()


def find(name: str) -> EnvSpec:
    """Return the env where the simulator can be imported."""
    if name:
        raise unknown_name("environment", f"gpudrive-{name}", ["gpudrive"])
    if not is_installed(_SIMULATOR) or not is_installed("gpudrive"):
        instead = "; `drive` is a similar env of this package" if "drive" in OCEAN_REGISTRY else ""
        raise MissingExtraError(
            f"`gpudrive` needs {_SIMULATOR}, which no registry has: build and install "
            f"https://github.com/Emerge-Lab/gpudrive from its source{instead}"
        )
    return EnvSpec("gpudrive", GPUDrive, family="gpudrive")


def names() -> list[str]:
    """Return the name where the simulator can be imported."""
    return ["gpudrive"] if is_installed(_SIMULATOR) and is_installed("gpudrive") else []
