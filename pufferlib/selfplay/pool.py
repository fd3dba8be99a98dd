"""The pool: past policies, who joins and leaves, and the ratings of games against them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pufferlib.distributed.world import World
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.runs import checkpoint

START_RATING = 1000.0
RATING_STEP = 8.0  # how far one game moves a rating; small, since there are very many games

Normalise = Callable[[Tensor], Tensor]


@dataclass
class Member:
    """A policy, its rating, and how it sees observations."""

    policy: nn.Module
    rating: float
    iteration: int
    normalise: Normalise | None = None

    def modules(self) -> dict[str, nn.Module]:
        """Return by name all of it that has weights or statistics."""
        parts = {"policy": self.policy, "normalise": self.normalise}
        return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}

    def copied(self) -> Member:
        """Return a member that stays what this one is now."""
        try:
            past = copy.deepcopy(self.policy)
        except Exception as error:
            raise UsageError(
                "`policy` must be such that copy.deepcopy can copy it, but "
                f"{type(self.policy).__name__} is not: {error}."
            ) from error
        past.eval().requires_grad_(False)
        past.zero_grad(set_to_none=True)  # gradients of the last update are copied too
        seen = self.normalise
        if isinstance(seen, nn.Module):
            seen = copy.deepcopy(seen)
        return Member(past, self.rating, self.iteration, seen)


class Result(NamedTuple):
    """A game that is over: when and where, against which member of the pool, and its points."""

    tick: int
    env: int  # counted over all processes
    member: int
    points: float


class Pool:
    """At most `size` past policies, and the rating of the learner; the same in every process.

    Of more than `size` the second oldest leaves, so that the pool keeps its beginning and its
    recent past; a pool of one keeps the newest. With `rated=False` games leave the ratings alone.
    """

    def __init__(self, size: int, rated: bool = True) -> None:
        self.size, self.rated = size, rated
        self.members: list[Member] = []
        self.rating = START_RATING
        self.results: list[Result] = []  # of this process, not yet rated
        self._num_games = self._points = 0.0  # since the last drain

    # ---- Who joins and leaves --------------------------------------------------------------------

    @property
    def newest(self) -> int | None:
        """The iteration of the newest member."""
        return self.members[-1].iteration if self.members else None

    def join(self, member: Member) -> int | None:
        """Let a copy of `member` join, rated as the learner is; return who leaves for it, if any.

        Games must have been settled: those after the one who leaves have other numbers now.
        """
        member = member.copied()
        member.rating = self.rating
        self.members.append(member)
        if len(self.members) <= self.size:
            return None
        gone = min(1, self.size - 1)
        del self.members[gone]
        return gone

    def move_to(self, device: torch.device) -> None:
        """Keep the members where the learner is."""
        for member in self.members:
            for module in member.modules().values():
                module.to(device)

    # ---- Ratings ---------------------------------------------------------------------------------

    def settle(self, world: World) -> None:
        """Rate the games that are over: those of all processes, in one order everywhere."""
        results, self.results = self.results, []
        for result in sorted(chain(*world.gather(results))):
            self.rate(self.members[result.member], result.points)

    def rate(self, member: Member, points: float) -> None:
        """Move both ratings by what was not expected of a game."""
        gap = min(300.0, (member.rating - self.rating) / 400)  # beyond, a power of ten is too much
        change = RATING_STEP * (points - 1 / (1 + 10**gap)) if self.rated else 0.0
        self.rating += change
        member.rating -= change
        self._num_games += 1
        self._points += points

    def drain_metrics(self) -> dict[str, float]:
        """Return how the learner stands, and the share of points since the last call."""
        metrics = {"elo": self.rating, "pool_size": float(len(self.members))}
        if self._num_games:
            metrics["win_rate"] = self._points / self._num_games
        self._num_games = self._points = 0.0
        return metrics

    # ---- State -----------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights and statistics of all members by name."""
        return {
            f"pool/{number}/{name}/{key}": part
            for number, member in enumerate(self.members)
            for name, module in member.modules().items()
            for key, part in module.state_dict().items()
        }

    def facts(self) -> dict[str, Any]:
        """Return what belongs to `tensors`, as JSON values; games must have been settled."""
        rows = [{"rating": m.rating, "iteration": m.iteration} for m in self.members]
        return {"rating": self.rating, "pool": rows}

    def load(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], like: Member) -> None:
        """Take over what a checkpoint says; members are copies of `like` with the weights in it."""
        rows = facts["pool"]
        if not isinstance(rows, list) or len(rows) > self.size:
            raise CheckpointError(
                f"`self_play_pool` must be at least the {len(rows)} past policies of the "
                f"checkpoint, but is {self.size}."
            )
        rating = checkpoint.number(facts, "rating")
        members = []
        for number, row in enumerate(rows):
            member = like.copied()
            member.rating = checkpoint.number(row, "rating")
            member.iteration = checkpoint.counter(row, "iteration")
            for name, module in member.modules().items():
                checkpoint.restore_module(module, tensors, f"pool/{number}/{name}/")
            members.append(member)
        self.become(members, rating)

    def become(self, members: list[Member], rating: float) -> None:
        """Take these members and this rating; games against those before do not count."""
        self.members, self.rating = members, rating
        self.results = []
        self._num_games = self._points = 0.0
