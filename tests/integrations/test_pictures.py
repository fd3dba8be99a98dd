"""Smaller pictures: every n-th pixel, alone or as a part of a Dict."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from pufferlib.integrations.pictures import EveryNthPixel

SCREEN = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)


class Screen(gymnasium.Env[Any, Any]):
    """Shows the same picture, alone or beside a number."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, key: str | None) -> None:
        self.key = key
        picture = gymnasium.spaces.Box(0, 255, SCREEN.shape, np.uint8)
        ammo = gymnasium.spaces.Discrete(9)
        self.observation_space = (
            gymnasium.spaces.Dict({key: picture, "ammo": ammo}) if key else picture
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return ({self.key: SCREEN, "ammo": 4} if self.key else SCREEN), {}


def test_every_nth_pixel_is_kept() -> None:
    env = EveryNthPixel(Screen(None), 2)
    seen = env.reset()[0]
    assert env.observation_space.shape == seen.shape == (3, 3, 3)
    assert (seen == SCREEN[::2, ::2]).all()


def test_other_parts_of_a_dict_stay() -> None:
    env = EveryNthPixel(Screen("screen"), 4, "screen")
    seen = env.reset()[0]
    assert env.observation_space.contains(seen)
    assert seen["ammo"] == 4
    assert seen["screen"].shape == (2, 2, 3)
