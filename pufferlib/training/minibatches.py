"""Minibatches: a rollout in random order, by whole segments or by single steps.

With several processes a minibatch is drawn from all of them, the same everywhere, and each process
gets its own part, which may be empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from pufferlib.config import BatchShape
from pufferlib.distributed.world import ALONE, World
from pufferlib.policies.recurrent import RecurrentState, map_state
from pufferlib.training.ppo import Targets, moments_of
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
        count = len(self.actions)
        rows = torch.arange(count).tensor_split(min(parts, count)) if count else ()
        cuts = [itemgetter(slice(int(part[0]), int(part[-1]) + 1)) for part in rows]
        return [Minibatch(*(map_state(cut, part) for part in self)) for cut in cuts]


class Share(NamedTuple):
    """This process's part of a minibatch, before its steps are taken from the rollout."""

    units: Tensor  # numbers of segments or steps
    weights: Tensor | None  # of each unit, if some are preferred
    moments: Tensor | None = None  # [4], of the advantages of all processes, if there are several


def shares(
    rollout: Rollout,
    advantages: Tensor,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
    *,
    alpha: float = 0.0,
    beta: float = 1.0,
) -> list[Share]:
    """Return the minibatches of one pass over the rollout, `shape.minibatches` of them.

    They are all segments or steps in random order. With `alpha` above 0 units are drawn with
    replacement instead, with odds of their mean |advantage| to the power of `alpha`. The weight of
    a unit, (number of them * odds) ** -beta, makes up for that: at beta 1 the weighted mean over a
    minibatch is that over the rollout, on average (Schaul et al. 2016). Units of several processes
    are drawn together, and each process gets its own.
    """
    per_segment = shape.horizon if shape.by_step else 1
    weights: Tensor | None = None
    if alpha == 0:
        order = torch.randperm(len(advantages) * world.size * per_segment, generator=generator)
    else:
        # drawn on the CPU, like every order, so that it does not depend on the device
        sizes = advantages.abs().view(len(advantages) * per_segment, -1).mean(1).cpu()
        if world.size > 1:
            ranks = world.join_rows(sizes).view(world.size, rollout.num_stretches, -1)
            sizes = ranks.transpose(0, 1).flatten()
        odds = sizes.double().nan_to_num(0.0) ** alpha + 1e-6
        odds = odds / odds.sum()
        total = len(odds) // shape.minibatches * shape.minibatches
        order = torch.multinomial(odds, total, replacement=True, generator=generator)
        weights = ((len(odds) * odds) ** -beta).float().to(advantages.device)
    found = []
    for part in order.to(advantages.device).tensor_split(shape.minibatches):
        place = (rollout.num_slots, world, per_segment)
        weight = None if weights is None else weights[part[_is_own(part, *place)]]
        found.append(Share(own_units(part, *place), weight))
    if world.size == 1:
        return found
    moments = []
    for units, weight, _ in found:
        masks = None if rollout.all_present else _picked(rollout.masks, units, shape.by_step)
        weight = None if weight is None else weight.unsqueeze(1)
        moments.append(moments_of(_picked(advantages, units, shape.by_step), masks, weight))
    joined = world.sum_(torch.stack(moments))  # one exchange for all minibatches
    return [share._replace(moments=own) for share, own in zip(found, joined, strict=True)]


def minibatches(
    rollout: Rollout,
    targets: Targets,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
    **priority: float,
) -> Iterator[Minibatch]:
    """Yield the minibatches of one pass over the rollout; `priority` is as for `shares`."""
    initial = rollout.initial_state()
    for share in shares(rollout, targets.advantages, shape, generator, world, **priority):
        minibatch = take(rollout, share.units, *targets, initial, shape.by_step)
        weights = None if share.weights is None else share.weights.unsqueeze(1)
        yield minibatch._replace(weights=weights, moments=share.moments)


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
