"""The family `minihack-`: the levels of MiniHack, which are small worlds of NetHack."""

from __future__ import annotations

from typing import Any

import gymnasium

from pufferlib.integrations.nethack import DEFAULTS, Seeded
from pufferlib.integrations.packages import extra
from pufferlib.integrations.registered import RegisteredFamily, named_after


class SeededLevel(Seeded):
    """Seeds MiniGrid too, which draws some of the levels: its envs have no `seed` any more."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        drawn_by = getattr(self.unwrapped, "minigrid_env", None)
        if drawn_by is not None:
            drawn_by.seed = lambda core: drawn_by.reset(seed=core)


_family = RegisteredFamily(
    "minihack",
    "minihack",
    named_after("MiniHack-"),
    extra("minihack"),
    wrap=SeededLevel,
    defaults=DEFAULTS,
)
find = _family.find
names = _family.names
