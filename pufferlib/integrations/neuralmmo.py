"""The family `neuralmmo`: Neural MMO 2, a world that up to 128 agents share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError
from pufferlib.integrations.single import SingleFamily
from pufferlib.spaces import Space, make_space

# the package asks for Python below 3.11 and versions of 2022, and runs with newer ones
INSTALL = (
    "pip install cython dill imageio ordered-set pettingzoo tqdm 'setuptools<81' && pip install "
    "--no-deps --no-build-isolation --ignore-requires-python nmmo==2.1.2"
)
_PARTS = ("Communication", "Entity", "Inventory", "Market", "Tile")  # of what an agent observes
_NUM_MAPS = 4


class NeuralMMO:
    """A parallel env of PettingZoo with one observation space that fits a policy.

    Counts and coordinates are given as `sign(x) log(1 + |x|)`; which actions are legal is given as
    `action_mask`. The embedding of the task and the numbers of agent and tick are left out.
    """

    def __init__(self, num_agents: int = 128, map_size: int = 128, horizon: int = 1024) -> None:
        if num_agents < 1 or map_size < 32:
            raise UsageError(
                "`num_agents` must be at least 1 and `map_size` at least 32, but got "
                f"{num_agents=}, {map_size=}."
            )
        import nmmo
        from nmmo.core.config import Default

        config = Default()
        self._maps = tempfile.TemporaryDirectory(prefix="nmmo-maps-")
        for name, value in {
            "PLAYER_N": num_agents,
            "HORIZON": horizon,
            "MAP_CENTER": map_size,
            "MAP_SIZE": map_size + 2 * config.MAP_BORDER,
            "MAP_N": _NUM_MAPS,
            "PATH_MAPS": self._maps.name,
        }.items():
            config.set(name, value)
        self.env = nmmo.Env(config)
        self.metadata, self.render_mode = {"name": "neuralmmo"}, None
        self.possible_agents = list(self.env.possible_agents)
        first = self.possible_agents[0]
        self._action_space: Space = self.env.action_space(first)
        given = self.env.observation_space(first)
        shapes = {name: given[name].shape for name in _PARTS}
        width = sum(int(choice.n) for choice in _leaves(self._action_space))
        mask = make_space((width,), dtype=np.int8, low=0, high=1)
        self._observation_space = make_space({**shapes, "action_mask": mask})

    @property
    def agents(self) -> list[Any]:
        """The live agents."""
        return list(self.env.agents)

    @property
    def unwrapped(self) -> Any:
        """The env inside."""
        return self.env

    def observation_space(self, agent: Any) -> Space:
        """Return the space that all agents share."""
        return self._observation_space

    def action_space(self, agent: Any) -> Space:
        """Return the space that all agents share."""
        return self._action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Start an episode on one of the maps."""
        observations, infos = self.env.reset(seed=seed)
        return {id: self._seen(part) for id, part in observations.items()}, _plain(infos)

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Take one step of all live agents."""
        observations, rewards, terminations, truncations, infos = self.env.step(dict(actions))
        seen = {id: self._seen(part) for id, part in observations.items()}
        return seen, dict(rewards), terminations, truncations, _plain(infos)

    def _seen(self, given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        seen = {}
        for name in _PARTS:
            numbers = given[name].astype(np.float32)
            seen[name] = np.sign(numbers) * np.log1p(np.abs(numbers))
        targets = given["ActionTargets"]
        masks = [
            targets[kind][argument]
            for kind in sorted(targets)
            for argument in sorted(targets[kind])
        ]
        seen["action_mask"] = np.concatenate(masks)
        return seen

    def close(self) -> None:
        """Delete the maps."""
        self.env.close()
        self._maps.cleanup()


def _leaves(space: Any) -> Iterator[Any]:
    """Yield the choices of a Dict of Dicts, in the order of their names."""
    for kind in sorted(space.spaces):
        for argument in sorted(space[kind].spaces):
            yield space[kind][argument]


def _plain(infos: Mapping[Any, Any]) -> dict[Any, dict[str, Any]]:
    """Return infos without the text of tasks."""
    return {id: {} for id in infos}


_family = SingleFamily("neuralmmo", "nmmo", INSTALL, NeuralMMO)
find = _family.find
names = _family.names
