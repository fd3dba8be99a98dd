"""Games: the one at hand in every env, whom it is against, when it is over and who has won."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.errors import UsageError
from pufferlib.vectorization import Batch

LATEST = -1  # in place of a number of the pool


class Sides(NamedTuple):
    """The slots of two-sided envs: the learner's and those of the other side, env by env."""

    own: NDArray[np.intp]
    other: NDArray[np.intp]

    @staticmethod
    def of(num_envs: int, agents: int) -> Sides:
        """Give the learner the first side of even envs and the second of odd ones."""
        slots = np.arange(num_envs * 2 * agents).reshape(num_envs, 2, agents)
        each = np.arange(num_envs)
        own = each % 2
        return Sides(slots[each, own].ravel(), slots[each, 1 - own].ravel())


def record(agents: int) -> np.dtype[Any]:
    """Return what is known of the game at hand in an env of two sides of so many agents."""
    return np.dtype(
        [
            ("opponent", np.int64),  # number in the pool, or LATEST
            ("number", np.int64),  # games before it in this env
            ("returns", np.float64, (2 * agents,)),  # so far, of both sides
            ("away", np.uint8, (2 * agents,)),  # 1: its episode has ended and the next not begun
            ("own_returns", np.float64, (agents,)),  # of the learner's episodes; in snapshots only
            ("own_lengths", np.int64, (agents,)),
        ]
    )


class Games:
    """The games at hand: a `record` in `rows` for each env.

    Whom a game is against follows from `seed`, the number of its env among those of all processes,
    and its number in that env.
    """

    def __init__(self, num_envs: int, agents: int, seed: int, latest_share: float) -> None:
        self.rows = np.zeros(num_envs, dtype=record(agents))
        self.agents, self.seed = agents, seed
        self.first_env = 0  # of this process
        self._latest_share = latest_share

    @property
    def away(self) -> NDArray[np.bool_]:
        """Slots of both sides that begin their next episode without a memory, once they act."""
        return np.asarray(self.rows["away"] > 0).ravel()

    def begin(self, pool_size: int) -> None:
        """Begin the first game of every env."""
        self.rows = np.zeros_like(self.rows)
        self.rows["away"] = 1
        self._draw(np.arange(len(self.rows)), pool_size)

    def _draw(self, envs: NDArray[np.intp], pool_size: int) -> None:
        """Choose the opponents of games that begin."""
        for env in envs:
            game = self.rows[env]
            stream = native.env_seed(self.seed, 1 + self.first_env + int(env))
            drawn = native.env_seed(stream, 1 + int(game["number"]))
            is_past = pool_size and drawn % 2**24 >= self._latest_share * 2**24
            game["opponent"] = (drawn >> 24) % pool_size if is_past else LATEST

    def step(self, batch: Batch, present: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Count a step in which those `present` acted; return the envs whose game is over.

        It is over when all who acted have ended, and all have left or one who had is back: else
        the game goes on among those who waited.
        """
        games = self.rows
        games["returns"] += batch.rewards.reshape(len(games), -1)
        ended = (batch.terminals | batch.truncations).reshape(len(games), -1)
        acted, here = present.reshape(ended.shape), batch.masks.reshape(ended.shape)
        away = ended | ((games["away"] > 0) & ~acted)
        games["away"] = away
        is_over = ended.any(1) & (ended | ~acted).all(1)
        return np.flatnonzero(is_over & (away.all(1) | (away & here).any(1)))

    def points(self, sides: Sides) -> NDArray[np.float64]:
        """Return 1 for each env where the learner's sum of rewards is higher, 0.5 for a draw."""
        returns = self.rows["returns"].ravel()
        own, other = (returns[slots].reshape(len(self.rows), -1).sum(1) for slots in sides)
        return np.where(own > other, 1.0, np.where(own < other, 0.0, 0.5))

    def begin_next(self, envs: NDArray[np.intp], pool_size: int) -> None:
        """Begin the next game of envs whose last one is over."""
        self.rows["returns"][envs] = 0
        self.rows["away"][envs] = 1
        self.rows["number"][envs] += 1
        self._draw(envs, pool_size)

    def without(self, member: int) -> None:
        """Let games go on when a member has left the pool: those with it with the next oldest."""
        self.rows["opponent"] -= self.rows["opponent"] > member


def check_games(games: NDArray[Any], pool_size: int) -> None:
    """Raise unless records of a snapshot are such as `Games` makes."""
    opponents = games["opponent"]
    counts = (games["number"], games["own_lengths"])
    sums = (games["returns"], games["own_returns"])
    if not ((opponents >= LATEST) & (opponents < pool_size)).all():
        raise UsageError(f"`state` must name opponents of the pool of {pool_size}, but does not.")
    if not all(((part >= 0) & (part < 2**62)).all() for part in counts):
        raise UsageError("`state` must count games and steps from 0 on, but does not.")
    if not all(np.isfinite(part).all() for part in sums):
        raise UsageError("`state` must hold finite returns, but does not.")
