"""The pool of past policies: adding and dropping members, and ratings from games."""

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
RATING_STEP = 8.0  # the largest change by one game; small, because there are very many games

Normalise = Callable[[Tensor], Tensor]


@dataclass
class Member:
    """A policy, its rating, and the normalisation of its observations."""

    policy: nn.Module
    rating: float
    iteration: int
    normalise: Normalise | None = None

    def modules(self) -> dict[str, nn.Module]:
        """Return by name the modules with weights or statistics."""
        parts = {"policy": self.policy, "normalise": self.normalise}
        return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}

    def copied(self) -> Member:
        """Return a frozen copy."""
        try:
            past = copy.deepcopy(self.policy)
        except Exception as error:
            raise UsageError(
                "`policy` must support copy.deepcopy for self-play, but "
                f"{type(self.policy).__name__} does not: {error}."
            ) from error
        past.eval().requires_grad_(False)
        past.zero_grad(set_to_none=True)  # deepcopy copies the gradients of the last update too
        seen = self.normalise
        if isinstance(seen, nn.Module):
            seen = copy.deepcopy(seen)
        return Member(past, self.rating, self.iteration, seen)


class Result(NamedTuple):
    """A finished game against a member of the pool, and the points of the learner."""

    tick: int
    env: int  # counted over all processes
    member: int
    points: float


class Pool:
    """At most `size` past policies, and the rating of the learner; the same in every process.

    Beyond `size` members the second oldest is dropped, so that the pool keeps the first and the
    recent ones; a pool of one keeps the newest. With `rated=False` games do not change the ratings.
    """

    def __init__(self, size: int, rated: bool = True) -> None:
        self.size, self.rated = size, rated
        self.members: list[Member] = []
        self.rating = START_RATING
        self.results: list[Result] = []  # of this process, not yet rated
        self._num_games = self._points = 0.0  # since the last drain

    # ---- Members ---------------------------------------------------------------------------------

    def add(self, member: Member) -> int | None:
        """Add a copy of `member` with the rating of the learner; return the number dropped, if any.

        Call `settle` first: members after the dropped one get new numbers.
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
        """Move the members to the device of the learner."""
        for member in self.members:
            for module in member.modules().values():
                module.to(device)

    # ---- Ratings ---------------------------------------------------------------------------------

    def settle(self, world: World) -> None:
        """Rate the finished games of all processes, in the same order everywhere."""
        results, self.results = self.results, []
        for result in sorted(chain(*world.gather(results))):
            self.rate(self.members[result.member], result.points)

    def rate(self, member: Member, points: float) -> None:
        """Change both ratings by the unexpected part of the result."""
        gap = min(300.0, (member.rating - self.rating) / 400)  # the power of ten overflows beyond
        change = RATING_STEP * (points - 1 / (1 + 10**gap)) if self.rated else 0.0
        self.rating += change
        member.rating -= change
        self._num_games += 1
        self._points += points

    def drain_metrics(self) -> dict[str, float]:
        """Return the rating of the learner, and its share of points since the last call."""
        metrics = {"elo": self.rating, "pool_size": float(len(self.members))}
        if self._num_games:
            metrics["win_rate"] = self._points / self._num_games
        self._num_games = self._points = 0.0
        return metrics

    # ---- Checkpoints -----------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights and statistics of all members by name."""
        return {
            f"pool/{number}/{name}/{key}": part
            for number, member in enumerate(self.members)
            for name, module in member.modules().items()
            for key, part in module.state_dict().items()
        }

    def values(self) -> dict[str, Any]:
        """Return the JSON values that belong to `tensors`; call `settle` first."""
        members = [{"rating": m.rating, "iteration": m.iteration} for m in self.members]
        return {"rating": self.rating, "pool": members}

    def load(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any], like: Member) -> None:
        """Restore the pool of a checkpoint; members are copies of `like` with the weights in it."""
        saved = values["pool"]
        if not isinstance(saved, list) or len(saved) > self.size:
            raise CheckpointError(
                f"`self_play_pool` must be at least {len(saved)}, the number of policies in the "
                f"checkpoint, but is {self.size}."
            )
        rating = checkpoint.number(values, "rating")
        members = []
        for number, each in enumerate(saved):
            member = like.copied()
            member.rating = checkpoint.number(each, "rating")
            member.iteration = checkpoint.counter(each, "iteration")
            for name, module in member.modules().items():
                checkpoint.restore_module(module, tensors, f"pool/{number}/{name}/")
            members.append(member)
        self.replace(members, rating)

    def replace(self, members: list[Member], rating: float) -> None:
        """Set members and rating; unrated games against the old members are dropped."""
        self.members, self.rating = members, rating
        self.results = []
        self._num_games = self._points = 0.0
