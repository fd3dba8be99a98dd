"""The family `procgen-`: the 16 games of Cobbe et al. 2020 (arXiv:1912.01588).

EnvPool steps them; where it or the Qt 5 that it needs is missing, procgen2, a build of the
original. A reset builds a level, for which all envs would have to wait; so with EnvPool it is a
step without data, in which the others step on. Observations are the original's, (64, 64, 3) bytes.
Levels are unlimited and of the distribution `easy` by default, which the paper recommends where
compute is limited; its benchmark of generalisation trains on `num_levels=200` and tests on all
levels.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import MissingExtraError, UsageError, unknown_name
from pufferlib.integrations import envpool
from pufferlib.integrations.packages import extra, gymnasium_as_gym, is_installed, missing
from pufferlib.registry import EnvSpec, plain
from pufferlib.spaces import make_discrete, make_space
from pufferlib.vectorization.batched import Outcome, Simulator, SimulatorCreator, Sizes

PREFIX = "procgen-"
# procgen2, with a Qt of its own; it asks for numpy below 2 and for gym, and needs neither
INSTALL = "pip install cffi && pip install --no-deps procgen2==0.10.7 gym3==0.3.3"

GAMES = (
    "bigfish",
    "bossfight",
    "caveflyer",
    "chaser",
    "climber",
    "coinrun",
    "dodgeball",
    "fruitbot",
    "heist",
    "jumper",
    "leaper",
    "maze",
    "miner",
    "ninja",
    "plunder",
    "starpilot",
)
# games with each distribution of levels besides easy and hard
_MODES = {
    "exploration": (
        "coinrun",
        "caveflyer",
        "leaper",
        "jumper",
        "maze",
        "heist",
        "climber",
        "ninja",
    ),
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
}


def find(name: str) -> EnvSpec:
    """Return the env of a game."""
    game = plain(name)
    if game not in GAMES:
        raise unknown_name("environment", PREFIX + game, [PREFIX + each for each in GAMES])
    if not is_installed("envpool") and not is_installed("procgen"):
        raise missing(PREFIX + game, "envpool", extra("procgen"))
    return EnvSpec(
        PREFIX + game, SimulatorCreator(functools.partial(make_simulator, game)), family="procgen"
    )


def names() -> list[str]:
    """Return the games."""
    if not is_installed("envpool") and not is_installed("procgen"):
        return []
    return [PREFIX + game for game in GAMES]


def make_simulator(
    game: str,
    sizes: Sizes,
    *,
    num_levels: int = 0,
    start_level: int = 0,
    distribution_mode: str = "easy",
    use_sequential_levels: bool = False,
    center_agent: bool = True,
    use_backgrounds: bool = True,
    use_monochrome_assets: bool = False,
    restrict_themes: bool = False,
) -> Simulator:
    """Make envs of one game. `num_levels` 0 means all levels; the others begin at `start_level`."""
    modes = ["easy", "hard", *(mode for mode, games in _MODES.items() if game in games)]
    if distribution_mode not in modes:
        raise UsageError(
            f"`distribution_mode` of `{PREFIX}{game}` must be one of {', '.join(modes)}, "
            f"but got {distribution_mode!r}."
        )
    params = {
        "num_levels": num_levels,
        "start_level": start_level,
        "use_sequential_levels": use_sequential_levels,
        "center_agent": center_agent,
        "use_backgrounds": use_backgrounds,
        "use_monochrome_assets": use_monochrome_assets,
        "restrict_themes": restrict_themes,
    }
    task = f"{game.capitalize()}{distribution_mode.capitalize()}-v0"
    try:
        return envpool.make_simulator(
            PREFIX + game, task, sizes, has_slow_resets=True, channel_first=False, **params
        )
    except MissingExtraError as error:  # EnvPool, or the Qt 5 of its Procgen
        if not is_installed("procgen"):
            raise missing(
                PREFIX + game, "Qt 5", f"apt-get install libqt5gui5, or without it {INSTALL}"
            ) from error
    return Gym3Simulator(game, sizes, {**params, "distribution_mode": distribution_mode})


class Gym3Simulator(Simulator):
    """Envs of procgen2, through the API of gym3.

    It draws its levels from one seed, that of env 0, and resets an env in the step that ends its
    episode, without a last observation or the reason: each end is a terminal, that of an episode
    that takes too long too.
    """

    def __init__(self, game: str, sizes: Sizes, params: Mapping[str, Any]) -> None:
        if sizes.is_async:
            raise UsageError("`mode` must be sync with procgen2. Try pip install envpool.")
        self.observation_space, self.action_space = make_space((64, 64, 3)), make_discrete(15)
        self._game, self._sizes, self._params = game, sizes, params
        self._envs: Any = None
        self._random = np.random.default_rng(0)

    def reset(self, seeds: NDArray[np.int64] | None) -> Outcome:
        if seeds is None:  # it has no reset
            seeds = self._random.integers(2**31, size=1)
        self._random = np.random.default_rng(seeds[0])
        self.close()
        with gymnasium_as_gym():
            procgen: Any = importlib.import_module("procgen")
        self._envs = procgen.ProcgenGym3Env(
            num=self._sizes.num_envs,
            env_name=self._game,
            rand_seed=int(seeds[0]) & 0x7FFFFFFF,
            num_threads=self._sizes.num_threads,
            **self._params,
        )
        outcome = self.recv()
        return outcome._replace(terminals=outcome.truncations)  # `first` is set after a reset too

    def send(self, actions: NDArray[Any], slots: NDArray[np.int64] | None) -> None:
        self._envs.act(actions.astype(np.int32))

    def recv(self) -> Outcome:
        rewards, observations, is_first = self._envs.observe()
        never = np.zeros(self._sizes.num_envs, dtype=np.bool_)
        seeds = np.array([info["level_seed"] for info in self._envs.get_info()])
        return Outcome(
            observations["rgb"],
            rewards,
            is_first.astype(np.bool_),
            never,
            infos={"level_seed": seeds},
        )

    def render(self, env: int, observation: NDArray[Any]) -> NDArray[np.uint8]:
        return observation.copy()

    def close(self) -> None:
        if self._envs is not None:
            self._envs.close()
        self._envs = None
