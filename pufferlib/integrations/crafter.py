"""The family `crafter`: survival in a generated world, with 22 achievements."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.env import PufferEnv
from pufferlib.integrations.packages import extra, gymnasium_as_gym
from pufferlib.integrations.single import SingleFamily

_PICTURE = 576  # pixels of a side in `render`: a multiple of the 9 cells


class Crafter(PufferEnv):
    """A Crafter world that takes seeds and marks its time limit as a truncation.

    The last info of an episode has `achievements`, the number unlocked, and `unlocked/<name>` for
    each of them.
    """

    def __init__(
        self,
        area: tuple[int, int] = (64, 64),
        view: tuple[int, int] = (9, 9),
        size: tuple[int, int] = (64, 64),
        reward: bool = True,
        length: int = 10_000,
        buf: Any = None,
    ) -> None:
        super().__init__(buf)
        with gymnasium_as_gym():
            world: Any = importlib.import_module("crafter").Env
        self._world = world(area, view, size, reward, length)
        self.observation_space = self.make_space((*size, 3))
        self.action_space = self.make_discrete(len(self._world.action_names))

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self._world._seed, self._world._episode = seed, 0
        return self._world.reset(), {}

    def step(self, action: int) -> Any:
        observation, reward, done, info = self._world.step(action)
        if not done:
            return observation, float(reward), False, False, {}
        is_dead = info["discount"] == 0
        unlocked = {name: count > 0 for name, count in info["achievements"].items()}
        metrics = {f"unlocked/{name}": float(is_so) for name, is_so in unlocked.items()}
        metrics["achievements"] = float(sum(unlocked.values()))
        return observation, float(reward), is_dead, not is_dead, metrics

    def render(self) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = self._world.render((_PICTURE, _PICTURE))
        return picture


_family = SingleFamily("crafter", "crafter", extra("crafter"), Crafter)
find = _family.find
names = _family.names
