"""The family `microrts`: a base against a bot, through gym-microrts and Java.

A unit stands on a cell and each cell has its own action, so one action has seven choices for each
cell. Masks leave only those that a unit can do now.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.env import PufferEnv
from pufferlib.errors import UsageError, unknown_name
from pufferlib.integrations.packages import gymnasium_as_gym, is_installed, missing, require
from pufferlib.registry import EnvSpec

# the package asks for Python below 3.10 and gym 0.21, and needs neither
INSTALL = (
    "pip install jpype1 pillow && "
    "pip install --no-deps --ignore-requires-python gym-microrts==0.6.0"
)
_SIZES = (4, 8, 10, 12, 16, 24)  # of maps with bases and workers


class MicroRTS(PufferEnv):
    """A match on `map_size` x `map_size` cells against `opponent`, one of gym-microrts' bots.

    Rewards are weighted as in the paper (Huang et al. 2021): 10 for a win, 1 for gathering,
    training a worker and attacking, 0.2 for a building, 4 for a combat unit. A match of `max_steps`
    is truncated. Bots draw from Java's generator, which takes no seed.
    """

    def __init__(
        self,
        map_size: int = 16,
        max_steps: int = 2000,
        opponent: str = "coacAI",
        buf: Any = None,
    ) -> None:
        super().__init__(buf)
        if map_size not in _SIZES:
            raise UsageError(f"`map_size` must be one of {_SIZES}, but got {map_size!r}.")
        self._max_steps = max_steps
        self._match = _make_match(map_size, max_steps, opponent)
        height, width = self._match.height, self._match.width
        planes = sum(self._match.num_planes)
        self._choices = np.asarray(self._match.action_space_dims)
        self._starts = np.cumsum(self._choices) - self._choices
        self.observation_space = self.make_space(
            (height, width, planes), dtype=np.uint8, low=0, high=1
        )
        self.action_space = self.make_multi_discrete(self._choices.tolist() * (height * width))
        self._next: NDArray[np.uint8] | None = None  # the first observation of the next match
        self._ticks = 0

    def reset(self, seed: int | None = None) -> Any:
        first = self._match.reset() if self._next is None else self._next
        self._next, self._ticks = None, 0
        self._last = np.asarray(first, np.uint8).reshape(self.observation_space.shape)
        return self._last, {}

    def action_masks(self) -> NDArray[np.bool_]:  # type: ignore[override]
        """Return a flag for each choice of each cell; a cell without a unit has one choice."""
        legal: NDArray[np.bool_] = (
            np.asarray(self._match.get_action_mask())[0] > 0
        )  # [cells, sum of choices]
        has_none = ~np.logical_or.reduceat(legal, self._starts, axis=1)
        legal[:, self._starts] |= has_none
        return legal.ravel()

    def step(self, action: Any) -> Any:
        rows, rewards, dones, infos = self._match.step(np.asarray(action)[None])
        self._ticks += 1
        observation = np.asarray(rows[0], np.uint8)
        if not dones[0]:
            self._last = observation
            return observation, float(rewards[0]), False, False, {}
        # the simulator has begun the next match: its last observation is gone
        self._next = observation
        outcome = float(np.asarray(infos[0]["raw_rewards"])[0])
        is_cut = outcome == 0 and self._ticks >= self._max_steps
        return self._last, float(rewards[0]), not is_cut, is_cut, {"won": float(outcome > 0)}

    def render(self) -> NDArray[np.uint8] | None:
        try:
            return np.asarray(self._match.render("rgb_array"))
        except Exception as error:
            if type(error).__name__.endswith("HeadlessException"):  # Java draws on a display only
                return None
            raise

    def close(self) -> None:
        # not the match's own `close`: it ends Java, which cannot start twice in a process
        with contextlib.suppress(Exception):
            self._match.vec_client.close()


def _make_match(map_size: int, max_steps: int, opponent: str) -> Any:
    """Start Java if it does not run yet, and return a vector of one match."""
    with gymnasium_as_gym():
        module: Any = importlib.import_module("gym_microrts.envs.vec_env")
        bots: Any = importlib.import_module("gym_microrts.microrts_ai")
    bot = getattr(bots, opponent, None)
    if bot is None:
        known = [name for name in vars(bots) if callable(getattr(bots, name))]
        raise unknown_name("opponent", opponent, known)
    weights = np.array([10.0, 1.0, 1.0, 0.2, 1.0, 4.0])
    size = f"{map_size}x{map_size}"
    kind = "basesTwoWorkers" if map_size == 10 else "basesWorkers"
    return module.MicroRTSGridModeVecEnv(
        num_selfplay_envs=0,
        num_bot_envs=1,
        max_steps=max_steps,
        ai2s=[bot],
        map_paths=[f"maps/{size}/{kind}{size}.xml"],
        reward_weight=weights,
    )


def find(name: str) -> EnvSpec:
    """Return the env where Java and both packages are installed."""
    if name:
        raise unknown_name("environment", f"microrts-{name}", ["microrts"])
    require("microrts", "gym_microrts", INSTALL)
    require("microrts", "jpype", INSTALL)
    if shutil.which("java") is None:
        raise missing("microrts", "Java", "apt-get install default-jre-headless")
    return EnvSpec("microrts", MicroRTS, family="microrts")


def names() -> list[str]:
    """Return the name where the package is installed."""
    return ["microrts"] if is_installed("gym_microrts") else []
