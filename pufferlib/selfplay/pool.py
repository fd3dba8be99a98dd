"""Past policies: the pool, its ratings from games, and how its members play the other side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.distributed.world import SlotGenerator, World
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.policies.acting import decide, policy_step
from pufferlib.policies.distributions import PolicyOutput, join_outputs
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.recurrent import (
    RecurrentState,
    join_states,
    map_state,
    reset_state,
    tensors_of,
)
from pufferlib.policies.squash import Squash
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


# ---- Opponents -----------------------------------------------------------------------------------


class Opponents:
    """The players of the other side; `agents` is the index of each slot's agent in its env.

    `move_to` must be called first.
    """

    state: RecurrentState = None  # of every slot
    rng: SlotGenerator | None = None  # for actions

    def __init__(self, spaces: PolicySpaces, agents: NDArray[np.intp]) -> None:
        self._spaces = spaces
        self._agents = torch.from_numpy(agents)

    def move_to(self, device: torch.device, world: World, seed: int) -> SlotGenerator:
        """Act on the learner's device; random numbers start with `seed`, or continue."""
        if self.rng is None or self.rng.device != device:
            if self.rng is not None:
                seed = int(torch.randint(2**62, (), generator=self.rng, device=self.rng.device))
            self.rng = SlotGenerator(device, world)
            self.rng.manual_seed(seed)
        self._agents = self._agents.to(device)
        self.state = map_state(lambda part: part.to(device), self.state)
        return self.rng

    @torch.no_grad()
    def act(
        self,
        numbers: NDArray[np.int64],
        members: Callable[[int], Member],
        observations: NDArray[np.generic],
        legal: NDArray[np.bool_] | None,
    ) -> NDArray[np.generic]:
        """Return an action for each slot; `numbers` are those of its policy in `members`."""
        assert self.rng is not None
        device = self.rng.device
        # sort the slots by policy: the rows of each are then a slice
        order = np.argsort(numbers, kind="stable")
        playing, firsts = np.unique(numbers[order], return_index=True)
        spans = [slice(*pair) for pair in pairwise([*firsts.tolist(), len(order)])]
        rows = torch.from_numpy(order).to(device)
        back = torch.argsort(rows)
        seen = torch.from_numpy(observations[order]).to(device)
        before, agents = map_state(lambda part: part[rows], self.state), self._agents[rows]
        outputs = []
        for number, span in zip(playing.tolist(), spans, strict=True):
            member = members(number)
            shown = seen[span] if member.normalise is None else member.normalise(seen[span])
            state = map_state(lambda part: part[span], before)  # noqa: B023 - used at once
            outputs.append(policy_step(member.policy, shown, state, self._spaces, agents[span]))
        after = join_states([output.state for output in outputs])
        self.state = map_state(lambda part: part[back], after)
        masks = None if legal is None else torch.from_numpy(legal).to(device)
        if all(_is_plain(output) for output in outputs):
            joined = join_outputs(outputs, lambda parts: torch.cat(parts)[back])
            return self._decide(joined, masks).cpu().numpy()
        decided = [
            self._decide(output, None if masks is None else masks[rows[span]])
            for output, span in zip(outputs, spans, strict=True)
        ]
        return torch.cat(decided)[back].cpu().numpy()

    def _decide(self, output: PolicyOutput, action_masks: Tensor | None) -> Tensor:
        return decide(output, self._spaces.action, action_masks, self.rng).env_actions

    def reset(self, slots: NDArray[np.bool_]) -> None:
        """Zero the recurrent state of some slots."""
        if self.state is not None and slots.any():
            self.state = reset_state(self.state, torch.from_numpy(slots).to(self._agents.device))

    def load_state(
        self, state: RecurrentState, observations: NDArray[np.generic], like: Member
    ) -> None:
        """Restore a recurrent state, which must fit the policy of `like`."""
        state = map_state(lambda part: part.to(self._agents.device), state)
        if state is not None:
            seen = torch.from_numpy(observations).to(self._agents.device)
            with torch.no_grad():
                after = policy_step(like.policy, seen, state, self._spaces, self._agents).state
            has_rows = all(part.shape[:1] == (len(seen),) for part in tensors_of(state))
            if not (has_rows and checkpoint.is_alike(state, after)):
                raise CheckpointError(
                    "the checkpoint has a recurrent state of the opponents that does not fit the "
                    "policy."
                )
        self.state = state


def _is_plain(output: PolicyOutput) -> bool:
    """Return whether an output can be concatenated with others."""
    return output.distribution is None and all(isinstance(t, Squash) for t in output.transforms)
