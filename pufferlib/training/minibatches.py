"""Minibatches: a rollout in random order, by whole segments or by single steps.

With several processes a minibatch is drawn from all of them, the same everywhere, and each process
gets its own part, which may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pufferlib.config import BatchShape
from pufferlib.distributed.world import ALONE, World
from pufferlib.policies.recurrent import RecurrentState, map_state
from pufferlib.training.ppo import moments_of
from pufferlib.training.rollout import Rollout


class Minibatch(NamedTuple):
    """Some whole segments of a rollout, [M, T, ...]."""

    observations: Tensor
    actions: Tensor
    logprobs: Tensor
    values: Tensor
    advantages: Tensor
    returns: Tensor
    resets: Tensor
    masks: Tensor | None
    action_masks: Tensor | None
    state: RecurrentState
    agent_ids: Tensor  # [M]
    weights: Tensor | None = None  # [M, 1], for prioritised segments
    moments: Tensor | None = None  # [4], of the advantages of all processes, if there are several

    @property
    def size(self) -> float | Tensor:
        """Number of steps that carry data, at least 1."""
        if self.masks is None:
            return self.logprobs.numel()
        return self.masks.sum().clamp(min=1)

    def split(self, parts: int) -> list[Minibatch]:
        """Return the minibatch in at most `parts` pieces, as equal as whole segments allow."""
        pieces: list[Minibatch] = []
        if not len(self.actions):
            return pieces
        for rows in torch.arange(len(self.actions)).tensor_split(min(parts, len(self.actions))):
            first, last = int(rows[0]), int(rows[-1]) + 1

            def cut(part: Tensor, first: int = first, last: int = last) -> Tensor:
                return part[first:last]

            pieces.append(Minibatch(*(map_state(cut, part) for part in self)))
        return pieces


def shuffled_units(segments: int, shape: BatchShape, generator: torch.Generator) -> Tensor:
    """Return the numbers of all segments, or of all their steps, in random order."""
    per_segment = shape.horizon if shape.by_step else 1
    return torch.randperm(segments * per_segment, generator=generator)


def prioritised_units(
    rollout: Rollout,
    advantages: Tensor,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
    *,
    alpha: float,
    beta: float,
) -> tuple[Tensor, Tensor]:
    """Return the numbers of segments or steps for equal minibatches, and a weight of each unit.

    A segment or step is drawn, with replacement, with odds of its mean |advantage| to the power of
    `alpha`. Its weight, (number of them * odds) ** -beta, makes up for that: at beta 1 the weighted
    mean over a minibatch is that over the rollout, on average (Schaul et al. 2016).
    """
    per_segment = shape.horizon if shape.by_step else 1
    # drawn on the CPU, like every order, so that it does not depend on the device
    sizes = advantages.abs().view(len(advantages) * per_segment, -1).mean(1).cpu()
    if world.size > 1:
        ranks = world.join_rows(sizes).view(world.size, rollout.num_stretches, -1)
        sizes = ranks.transpose(0, 1).flatten()
    odds = sizes.double().nan_to_num(0.0) ** alpha + 1e-6
    odds = odds / odds.sum()
    total = len(odds) // shape.minibatches * shape.minibatches
    drawn = torch.multinomial(odds, total, replacement=True, generator=generator)
    return drawn, ((len(odds) * odds) ** -beta).float()


def minibatches(
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
) -> Iterator[Minibatch]:
    """Yield all segments or steps in random order, in `shape.minibatches` parts.

    With several processes the parts are drawn from all of them, and each process yields its own
    share of each part.
    """
    per_segment = shape.horizon if shape.by_step else 1
    order = shuffled_units(len(advantages) * world.size, shape, generator).to(advantages.device)
    initial = rollout.initial_state()
    parts = order.tensor_split(shape.minibatches)
    own = [own_units(part, rollout.num_slots, world, per_segment) for part in parts]
    joined = _joined_moments(rollout, advantages, own, world, shape.by_step)
    for chosen, moments in zip(own, joined, strict=True):
        minibatch = take(rollout, chosen, advantages, returns, initial, shape.by_step)
        yield minibatch._replace(moments=moments)


def prioritised_minibatches(
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
    *,
    alpha: float,
    beta: float,
) -> Iterator[Minibatch]:
    """Yield `shape.minibatches` parts of equal size, preferring large advantages."""
    per_segment = shape.horizon if shape.by_step else 1
    drawn, weights = prioritised_units(
        rollout, advantages, shape, generator, world, alpha=alpha, beta=beta
    )
    weights, initial = weights.to(advantages.device), rollout.initial_state()
    parts = torch.split(drawn.to(advantages.device), len(drawn) // shape.minibatches)
    own = [own_units(part, rollout.num_slots, world, per_segment) for part in parts]
    picked = [weights[part[_is_own(part, rollout.num_slots, world, per_segment)]] for part in parts]
    joined = _joined_moments(rollout, advantages, own, world, shape.by_step, picked)
    for chosen, weight, moments in zip(own, picked, joined, strict=True):
        minibatch = take(rollout, chosen, advantages, returns, initial, shape.by_step)
        yield minibatch._replace(weights=weight.unsqueeze(1), moments=moments)


def _joined_moments(
    rollout: Rollout,
    advantages: Tensor,
    own: list[Tensor],
    world: World,
    by_step: bool,
    weights: list[Tensor] | None = None,
) -> Sequence[Tensor | None]:
    """Return the moments of the advantages of each minibatch, by one exchange for all of them."""
    if world.size == 1:
        return [None] * len(own)
    moments = []
    for number, chosen in enumerate(own):
        masks = None if rollout.all_present else _picked(rollout.masks, chosen, by_step)
        weight = None if weights is None else weights[number].unsqueeze(1)
        moments.append(moments_of(_picked(advantages, chosen, by_step), masks, weight))
    return list(world.sum_(torch.stack(moments)))


def own_units(units: Tensor, num_slots: int, world: World, per_segment: int = 1) -> Tensor:
    """Return those of the given units that belong to this process, by their numbers here.

    Minibatches are drawn from units: segments, or steps, `per_segment` of them. Units are numbered
    as if one process had the slots of all, rank by rank; each process has `num_slots`.
    """
    if world.size == 1:
        return units
    own = units[_is_own(units, num_slots, world, per_segment)]
    segments = own // per_segment
    stretch, slot = segments // (num_slots * world.size), segments % num_slots
    return (stretch * num_slots + slot) * per_segment + own % per_segment


def _is_own(units: Tensor, num_slots: int, world: World, per_segment: int) -> Tensor:
    segments = units // per_segment
    return segments % (num_slots * world.size) // num_slots == world.rank


def take(
    rollout: Rollout,
    chosen: Tensor,
    advantages: Tensor,
    returns: Tensor,
    initial: RecurrentState,
    by_step: bool = False,
) -> Minibatch:
    """Return the chosen segments, or the chosen steps as segments of one step."""

    def pick(part: Tensor) -> Tensor:
        return _picked(part, chosen, by_step)

    segments = chosen // rollout.horizon if by_step else chosen
    return Minibatch(
        observations=pick(rollout.observations),
        actions=pick(rollout.actions),
        logprobs=pick(rollout.logprobs),
        values=pick(rollout.values),
        advantages=pick(advantages),
        returns=pick(returns),
        resets=pick(rollout.resets),
        masks=None if rollout.all_present else pick(rollout.masks),
        action_masks=None if rollout.action_masks is None else pick(rollout.action_masks),
        state=None
        if initial is None
        else map_state(lambda part: part.index_select(0, segments), initial),
        agent_ids=rollout.agent_ids.index_select(0, segments),
    )


def _picked(part: Tensor, chosen: Tensor, by_step: bool) -> Tensor:
    """Return rows [M, T, ...] of a part [S, T, ...], or its steps [M, 1, ...]."""
    if by_step:
        return part.flatten(0, 1).index_select(0, chosen).unsqueeze(1)
    return part.index_select(0, chosen)
