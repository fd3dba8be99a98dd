"""The family `nethack`: the tasks of the NetHack Learning Environment; alone, the score task."""

from __future__ import annotations

import contextlib
from typing import Any

import gymnasium
import numpy as np

from pufferlib.integrations.packages import extra
from pufferlib.integrations.registered import RegisteredFamily, named_after

# what the network `nethack` reads; the env gives up to 14 parts, most of them the same screen again
OBSERVATION_KEYS = ("glyphs", "blstats", "message")

# `pixel` draws only when asked; NLE's own default, `human`, prints, and needs more parts
DEFAULTS: dict[str, Any] = {"observation_keys": OBSERVATION_KEYS, "render_mode": "pixel"}


class Seeded(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Seeds the game itself, which `reset(seed=...)` of NLE 1.3 does not.

    Episodes after a seeded one are drawn from the same generator. Tasks that forbid seeds stay
    random.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._rng: np.random.Generator | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        if self._rng is not None:
            core, display = map(int, self._rng.integers(2**31, size=2))
            with contextlib.suppress(RuntimeError):  # NetHackChallenge is never the same twice
                self.unwrapped.seed(core, display, reseed=False)  # type: ignore[attr-defined]
        return self.env.reset(seed=seed, options=options)


_family = RegisteredFamily(
    "nethack",
    "nle",
    named_after("NetHack"),
    extra("nethack"),
    wrap=Seeded,
    defaults=DEFAULTS,
    single="score",
)
find = _family.find
names = _family.names
