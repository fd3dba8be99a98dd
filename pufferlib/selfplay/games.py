"""Games: the current game of every env, its opponent, its end and its winner."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.errors import UsageError
from pufferlib.vectorization import Batch

LATEST = -1  # the latest policy, in place of a number in the pool


class Sides(NamedTuple):
    """The slots of two-sided envs: those of the learner and of the other side, env by env."""

    own: NDArray[np.intp]
    other: NDArray[np.intp]

    @staticmethod
    def of(num_envs: int, agents: int) -> Sides:
        """Give the learner the first side of even envs and the second of odd ones."""
        slots = np.arange(num_envs * 2 * agents).reshape(num_envs, 2, agents)
        each = np.arange(num_envs)
        own = each % 2
        return Sides(slots[each, own].ravel(), slots[each, 1 - own].ravel())


def record(agents: int) -> np.dtype[np.void]:
    """Return the record of a game in an env with `agents` agents per side."""
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
    """The current games: a `record` in `records` for each env.

    The opponent of a game follows from `seed`, the number of its env over all processes, and the
    number of the game in that env.
    """

    def __init__(self, num_envs: int, agents: int, seed: int, latest_share: float) -> None:
        self.records = np.zeros(num_envs, dtype=record(agents))
        self.agents, self.seed = agents, seed
        self.first_env = 0  # of this process
        self._latest_share = latest_share

    @property
    def away(self) -> NDArray[np.bool_]:
        """Slots of both sides between two episodes: the next begins with a state of zeros."""
        return np.asarray(self.records["away"] > 0).ravel()

    def begin(self, pool_size: int) -> None:
        """Begin the first game of every env."""
        self.records = np.zeros_like(self.records)
        self.records["away"] = 1
        self._draw(np.arange(len(self.records)), pool_size)

    def _draw(self, envs: NDArray[np.intp], pool_size: int) -> None:
        """Choose the opponents of games that begin."""
        for env in envs:
            game = self.records[env]
            stream = native.env_seed(self.seed, 1 + self.first_env + int(env))
            drawn = native.env_seed(stream, 1 + int(game["number"]))
            is_past = pool_size and drawn % 2**24 >= self._latest_share * 2**24
            game["opponent"] = (drawn >> 24) % pool_size if is_past else LATEST

    def step(self, batch: Batch, present: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Count a step in which the `present` slots acted; return the envs whose game is over.

        A game is over when the episodes of all acting agents have ended, and either all agents are
        between episodes or one of them is back: else the agents that waited continue the game.
        """
        games = self.records
        games["returns"] += batch.rewards.reshape(len(games), -1)
        ended = (batch.terminals | batch.truncations).reshape(len(games), -1)
        acted, here = present.reshape(ended.shape), batch.masks.reshape(ended.shape)
        away = ended | ((games["away"] > 0) & ~acted)
        games["away"] = away
        is_over = ended.any(1) & (ended | ~acted).all(1)
        return np.flatnonzero(is_over & (away.all(1) | (away & here).any(1)))

    def points(self, sides: Sides) -> NDArray[np.float64]:
        """Return 1 for each env where the learner's sum of rewards is higher, 0.5 for a draw."""
        returns = self.records["returns"].ravel()
        own, other = (returns[slots].reshape(len(self.records), -1).sum(1) for slots in sides)
        return np.where(own > other, 1.0, np.where(own < other, 0.0, 0.5))

    def begin_next(self, envs: NDArray[np.intp], pool_size: int) -> None:
        """Begin the next game of envs whose last one is over."""
        self.records["returns"][envs] = 0
        self.records["away"][envs] = 1
        self.records["number"][envs] += 1
        self._draw(envs, pool_size)

    def drop_member(self, member: int) -> None:
        """Renumber opponents after a member was dropped; the one before it takes its games."""
        self.records["opponent"] -= self.records["opponent"] > member


def check_games(games: NDArray[np.void], pool_size: int) -> None:
    """Raise unless the records of a snapshot are valid."""
    opponents = games["opponent"]
    counts = (games["number"], games["own_lengths"])
    sums = (games["returns"], games["own_returns"])
    if not ((opponents >= LATEST) & (opponents < pool_size)).all():
        raise UsageError(f"invalid snapshot: an opponent is not in the pool of {pool_size}.")
    if not all(((part >= 0) & (part < 2**62)).all() for part in counts):
        raise UsageError("invalid snapshot: a number of games or steps is out of range.")
    if not all(np.isfinite(part).all() for part in sums):
        raise UsageError("invalid snapshot: a return is not finite.")
