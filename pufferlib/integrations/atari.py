"""The family `atari-`: every game of the Arcade Learning Environment, on ale-py's own threads.

Defaults are those of Mnih et al. 2015 (doi:10.1038/nature14236): each action is repeated for 4
frames, the last 2 of which are merged by their maximum; pictures are grey, 84 by 84, the newest 4
are stacked; an episode begins with up to 30 frames without action and ends after 108,000 frames.
Rewards are the game's own score; the family's ini clips them for training, as Mnih et al. do.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from pufferlib.errors import UsageError, unknown_name
from pufferlib.integrations.packages import extra, is_installed, require
from pufferlib.registry import EnvSpec, plain
from pufferlib.spaces import make_space
from pufferlib.vectorization.batched import Outcome, Simulator, SimulatorCreator, Sizes

PREFIX = "atari-"

_PICTURE_SCALE = 3  # of `render`: pixels of a picture for each of an observation


def find(name: str) -> EnvSpec:
    """Return the env of a game: `ms-pacman`, `mspacman`, also Gymnasium's `ALE/MsPacman-v5`."""
    games = _games(PREFIX + name)
    wanted = _joined(plain(name).removeprefix("ale/").removesuffix("-v5"))
    for game in games:
        if _joined(game) == wanted:
            return EnvSpec(
                PREFIX + plain(game),
                SimulatorCreator(functools.partial(AtariSimulator, game)),
                family="atari",
            )
    raise unknown_name("environment", PREFIX + plain(name), [PREFIX + plain(g) for g in games])


def names() -> list[str]:
    """Return the games whose ROMs ale-py brings along: all of them."""
    if not is_installed("ale_py"):
        return []
    return [PREFIX + plain(game) for game in _games(PREFIX)]


class AtariSimulator(Simulator):
    """Envs of one game, each reset by its thread in the step that ends an episode.

    - `frameskip`: frames for which an action is repeated; `max_pool` merges the last two.
    - `framestack`: newest pictures in an observation [framestack, size, size]; without `grayscale`
      each has three channels, [3 * framestack, size, size].
    - `sticky_actions`: probability that a frame repeats the action before it; 0.25 in Machado et
      al. 2018 (arXiv:1709.06009).
    - `episodic_life`: a lost life is a terminal, and the game goes on (Mnih et al. 2015). The
      metric `score` is that of the whole game.
    - `noop_max`: an episode begins with up to this many frames without action, then with
      `fire_reset` by the fire button where a game waits for it (OpenAI Baselines, 2017).
    - `max_frames`: frames after which an episode is truncated.
    - `full_action_space`: all 18 actions, not only those with a meaning in the game.
    """

    def __init__(
        self,
        game: str,
        sizes: Sizes,
        *,
        frameskip: int = 4,
        framestack: int = 4,
        sticky_actions: float = 0.0,
        episodic_life: bool = False,
        noop_max: int = 30,
        fire_reset: bool = True,
        grayscale: bool = True,
        screen_size: int = 84,
        max_pool: bool = True,
        max_frames: int = 108_000,
        full_action_space: bool = False,
    ) -> None:
        for name, value in (
            ("frameskip", frameskip),
            ("framestack", framestack),
            ("screen_size", screen_size),
            ("max_frames", max_frames),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"`{name}` must be a whole number from 1 on, but got {value!r}.")
        if not 0 <= sticky_actions <= 1:
            raise UsageError(f"`sticky_actions` must be in 0..1, but got {sticky_actions!r}.")
        ale: Any = importlib.import_module("ale_py.vector_env")
        self._make = functools.partial(
            ale.AtariVectorEnv,
            game,
            sizes.num_envs,
            batch_size=sizes.batch_envs,
            num_threads=sizes.num_threads,
            autoreset_mode=AutoresetMode.SAME_STEP,
            img_height=screen_size,
            img_width=screen_size,
            grayscale=grayscale,
            stack_num=framestack,
            frameskip=frameskip,
            maxpool=max_pool,
            noop_max=noop_max,
            use_fire_reset=fire_reset,
            repeat_action_probability=sticky_actions,
            life_loss_info=episodic_life,  # ale-py's own `episodic_life` starts a new game
            max_num_frames_per_episode=max_frames,
            full_action_space=full_action_space,
            reward_clipping=False,
        )
        self._envs = self._make()
        self._sizes, self._episodic_life, self._grayscale = sizes, episodic_life, grayscale
        channels = framestack * (1 if grayscale else 3)
        self.observation_space = make_space((channels, screen_size, screen_size), dtype=np.uint8)
        self.action_space = self._envs.single_action_space
        self._has_stepped = False
        self._scores = np.zeros(sizes.num_envs)  # of running games
        self._frames = np.zeros(sizes.num_envs, dtype=np.int64)  # of running games

    def reset(self, seeds: NDArray[np.int64] | None) -> Outcome:
        if self._sizes.is_async and self._has_stepped:
            self._envs = self._make()  # no env of it is under way
        small = None if seeds is None else seeds & 0x7FFFFFFF  # int32, and -1 means none
        observations, info = self._envs.reset(seed=small)
        batch = self._sizes.batch_envs
        self._scores[:], self._frames[:] = 0, 0
        rewards, flags = np.zeros(batch), np.zeros(batch, dtype=np.bool_)
        return self._outcome(observations, rewards, flags, flags, info)

    def send(self, actions: NDArray[Any], slots: NDArray[np.int64] | None) -> None:
        self._has_stepped = True
        self._envs.send(actions)  # in the order of the last batch

    def recv(self) -> Outcome:
        return self._outcome(*self._envs.recv())

    def _outcome(
        self,
        observations: NDArray[np.uint8],
        rewards: NDArray[Any],
        terminals: NDArray[np.bool_],
        truncations: NDArray[np.bool_],
        info: Mapping[str, NDArray[Any]],
    ) -> Outcome:
        ended = terminals | truncations
        finals = None
        if ended.any():  # a game that goes on after a lost life has no other observation
            finals = self._pictures(info.get("final_obs", observations)[ended])
        infos = {"lives": info["lives"]}
        if self._episodic_life:
            infos["score"] = self._ended_scores(rewards, info)
        return Outcome(
            self._pictures(observations),
            rewards,
            terminals,
            truncations,
            finals,
            slots=info["env_id"].astype(np.int64) if self._sizes.is_async else None,
            infos=infos,
        )

    def _pictures(self, stacks: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return stacks of pictures as images, channels first."""
        if self._grayscale:
            return stacks
        return stacks.transpose(0, 1, 4, 2, 3).reshape(len(stacks), -1, *stacks.shape[2:4])

    def _ended_scores(
        self, rewards: NDArray[Any], info: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float64]:
        """Return the scores of games that ended, nan for the others."""
        envs, frames = info["env_id"], info["episode_frame_number"]
        self._scores[envs] += rewards
        is_over = frames < self._frames[envs]
        self._frames[envs] = frames
        scores = np.where(is_over, self._scores[envs], np.nan)
        self._scores[envs[is_over]] = 0
        return scores

    def render(self, env: int, observation: NDArray[Any]) -> NDArray[np.uint8]:
        channels = 1 if self._grayscale else 3
        newest = np.moveaxis(observation[-channels:], 0, -1)
        large = newest.repeat(_PICTURE_SCALE, axis=0).repeat(_PICTURE_SCALE, axis=1)
        return np.broadcast_to(large, (*large.shape[:2], 3)).copy()

    def close(self) -> None:
        self._envs = None  # its destructor ends the threads


def _games(id: str) -> list[str]:
    require(id, "ale_py", extra("atari"))
    return sorted(importlib.import_module("ale_py.roms").get_all_rom_ids())


def _joined(game: str) -> str:
    return game.replace("_", "").replace("-", "")
