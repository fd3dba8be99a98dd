"""The family `griddly-`: the single-player grid games of Griddly, such as `griddly-sokoban`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.env import PufferEnv
from pufferlib.errors import UsageError
from pufferlib.integrations.chosen import ChosenFamily
from pufferlib.integrations.packages import extra, gymnasium_as_gym

_OBSERVERS = ("vector", "sprite_2d", "block_2d", "isometric")


class Griddly(PufferEnv):
    """One level of a game.

    The observer "vector" has a plane of 0 and 1 for each kind of object, `(width, height, kinds)`.
    The others draw pictures and need Vulkan: without it, the simulator ends the process.
    """

    def __init__(
        self,
        game: str,
        level: int = 0,
        max_steps: int | None = None,
        observer: str = "vector",
        buf: Any = None,
    ) -> None:
        super().__init__(buf)
        if observer not in _OBSERVERS:
            raise UsageError(
                f"`observer` must be one of {', '.join(_OBSERVERS)}, but got {observer!r}."
            )
        griddly = _imported()
        kind = getattr(griddly.gd.ObserverType, observer.upper())
        self._is_vector = observer == "vector"
        self._game = griddly.GymWrapper(
            yaml_file=str(_games()[game]),
            level=level,
            max_steps=max_steps,
            global_observer_type=kind,
            player_observer_type=kind,
        )
        self._game.reset()
        planes, width, height = self._game.observation_space.shape
        high = 1 if self._is_vector else 255
        shape = (width, height, planes)
        self.observation_space = self.make_space(shape, dtype=np.uint8, low=0, high=high)
        self.action_space = self._game.action_space

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self._game.seed(seed % 2**31)
        return self._seen(self._game.reset()), {}

    def step(self, action: Any) -> Any:
        observation, reward, done, _ = self._game.step(action)
        return self._seen(observation), float(reward), bool(done), {}

    def _seen(self, planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        seen = np.ascontiguousarray(np.asarray(planes).transpose(1, 2, 0))
        return np.minimum(seen, 1) if self._is_vector else seen

    def render(self) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = np.asarray(self._game.render(mode="rgb_array"), np.uint8)
        return picture

    def close(self) -> None:
        self._game.close()


def _imported() -> Any:
    """Import the package, without the ids that it registers: they follow gym's old API."""
    before = set(gymnasium.registry)
    with gymnasium_as_gym():
        griddly = importlib.import_module("griddly")
    for id in set(gymnasium.registry) - before:
        del gymnasium.registry[id]
    return griddly


def _games() -> dict[str, Path]:
    """Return the file of each game, found without importing the package."""
    spec = importlib.util.find_spec("griddly")
    places = (spec.submodule_search_locations or ()) if spec else ()
    folders = [Path(place, "resources", "games", "Single-Player") for place in places]
    files = [file for folder in folders for file in sorted(folder.rglob("*.yaml"))]
    return {file.stem.removeprefix("minigrid-"): file for file in files}


_family = ChosenFamily("griddly", "griddly", extra("griddly"), _games, Griddly)
find = _family.find
names = _family.names
