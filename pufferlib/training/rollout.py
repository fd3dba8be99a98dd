"""Rollout: one iteration's experience [segments, horizon], how it is collected and cut up.

A rollout of N slots holds N segments for each stretch of `horizon` steps; segment j * N + n is the
j-th stretch of slot n. Everything is stored once, where the policy's device is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pufferlib.distributed.world import ALONE, World
from pufferlib.policies.calling import policy_step
from pufferlib.policies.distributions import env_actions, sample
from pufferlib.policies.observations import PolicySpaces, torch_dtype
from pufferlib.policies.recurrent import State, map_state, reset_state
from pufferlib.training.ppo import moments_of

if TYPE_CHECKING:
    from pufferlib.config import BatchShape
    from pufferlib.policies.normalisation import ObservationNorm
    from pufferlib.training.profiling import Profiler
    from pufferlib.vectorization import Batch, VectorEnv


class Rollout:
    """Tensors [S, T] of one iteration; rewritten by each `collect`."""

    def __init__(
        self,
        shape: BatchShape,
        num_slots: int,
        spaces: PolicySpaces,
        device: torch.device,
        has_action_masks: bool,
    ) -> None:
        cells = (shape.segments, shape.horizon)
        observation, action = spaces.observation, spaces.action
        self.num_slots, self.horizon = num_slots, shape.horizon
        self.num_stretches = shape.segments // num_slots
        self.observations = torch.zeros(
            *cells, *observation.shape, dtype=torch_dtype(observation.dtype), device=device
        )
        self.actions = torch.zeros(
            *cells, *action.shape, dtype=torch_dtype(action.dtype), device=device
        )
        self.action_masks = (
            torch.ones(*cells, action.mask_width, dtype=torch.bool, device=device)
            if has_action_masks
            else None
        )
        self.logprobs = torch.zeros(cells, device=device)
        self.values = torch.zeros(cells, device=device)
        self.rewards = torch.zeros(cells, device=device)
        self.final_values = torch.zeros(cells, device=device)  # where truncated
        self.terminals = torch.zeros(cells, dtype=torch.bool, device=device)
        self.truncations = torch.zeros(cells, dtype=torch.bool, device=device)
        self.resets = torch.zeros(cells, dtype=torch.bool, device=device)  # an episode begins
        self.masks = torch.ones(cells, dtype=torch.bool, device=device)
        self.bootstrap = torch.zeros(shape.segments, device=device)
        # [S]: the slot of each segment, and which agent of its env that is
        self.slots = torch.arange(shape.segments, device=device) % num_slots
        self.agent_ids = self.slots % spaces.num_agents
        self.states: list[State] = [None] * self.num_stretches  # before each stretch, [N, ...]
        self.all_present = True  # no slot was ever masked: losses may skip the masks

    def by_slot(self, part: Tensor) -> Tensor:
        """Return a part [S, T] as [N, steps]: the stretches of each slot joined in time."""
        if self.num_stretches == 1:
            return part
        stretches = part.view(self.num_stretches, self.num_slots, self.horizon)
        return stretches.transpose(0, 1).flatten(1)

    def by_segment(self, part: Tensor) -> Tensor:
        """Undo `by_slot`."""
        if self.num_stretches == 1:
            return part
        slots = part.view(self.num_slots, self.num_stretches, self.horizon)
        return slots.transpose(0, 1).flatten(0, 1)

    # Segments, and steps of them, are counted over all processes as if one had all slots, rank by
    # rank. A unit is what minibatches are drawn from: `per_segment` of them make a segment.

    def is_own(self, units: Tensor, world: World, per_segment: int = 1) -> Tensor:
        """Return which of some units of all processes are this one's."""
        segments = units // per_segment
        return segments % (self.num_slots * world.size) // self.num_slots == world.rank

    def own_units(self, units: Tensor, world: World, per_segment: int = 1) -> Tensor:
        """Return the numbers here of those units of all processes that are this one's."""
        if world.size == 1:
            return units
        own = units[self.is_own(units, world, per_segment)]
        segments = own // per_segment
        stretch, slot = segments // (self.num_slots * world.size), segments % self.num_slots
        return (stretch * self.num_slots + slot) * per_segment + own % per_segment

    def join_units(self, part: Tensor, world: World) -> Tensor:
        """Return what each process has for its units [S * per_segment] as one tensor for all."""
        if world.size == 1:
            return part
        rows = world.join_rows(part).view(world.size, self.num_stretches, -1)
        return rows.transpose(0, 1).flatten()

    def initial_state(self) -> State:
        """Return the recurrent state before each segment, [S, ...]; None if there is none."""
        if all(state is None for state in self.states):
            return None
        example = next(state for state in self.states if state is not None)
        zeros = map_state(torch.zeros_like, example)
        return _concatenated([zeros if state is None else state for state in self.states])


class Carry(NamedTuple):
    """What one collect leaves for the next: the batches at hand and the policy's memory."""

    batches: tuple[Batch, ...]  # of halves of the slots where the env steps by halves, else one
    state: State
    resets: Tensor  # [N]: the observation at hand begins an episode


def begin(vecenv: VectorEnv, device: torch.device) -> Carry:
    """Take the first batches after a reset."""
    resets = torch.ones(vecenv.num_agents, dtype=torch.bool, device=device)
    return Carry(take_batches(vecenv), None, resets)


def take_batches(vecenv: VectorEnv) -> tuple[Batch, ...]:
    """Receive all that an env has at hand when no action is under way."""
    return tuple(vecenv.recv() for _ in range(getattr(vecenv, "batches", 1)))


class _Part:
    """Slots that act together: all of them, or one of two halves."""

    def __init__(self, batch: Batch, carry: Carry) -> None:
        self.batch = batch
        self.slots, self.state = slice(0, len(carry.resets)), carry.state
        if len(carry.batches) > 1:
            assert isinstance(batch.slots, slice)
            self.slots = batch.slots
            self.state = map_state(lambda part: part[self.slots], carry.state)
        self.resets = carry.resets[self.slots]
        self.starts: list[State] = []  # the memory before each stretch


@torch.no_grad()
def collect(
    vecenv: VectorEnv,
    policy: nn.Module,
    spaces: PolicySpaces,
    rollout: Rollout,
    carry: Carry,
    *,
    generator: torch.Generator,
    profiler: Profiler,
    normalise: ObservationNorm | None = None,
) -> Carry:
    """Fill `rollout` with the next steps of every slot, as the env gives them.

    The policy sees observations through `normalise`, and they are stored as it sees them. Each
    batch must hold all slots in order; where the env steps by halves, one half steps while the
    policy looks at the other, and nothing is under way before and after.
    """
    device = rollout.values.device
    num_slots = rollout.num_slots
    in_forward, in_env, in_store = profiler("forward"), profiler("env"), profiler("store")
    rollout.all_present = True
    parts = [_Part(batch, carry) for batch in carry.batches]
    cells: dict[int, tuple[slice, int]] = {}  # of each part, that its actions under way belong to

    def absorb(number: int, part: _Part) -> None:
        """Receive what the actions of a part led to."""
        rows, t = cells.pop(number)
        with in_env:
            part.batch = batch = vecenv.recv()
        with in_store:
            rollout.rewards[rows, t] = _to(device, batch.rewards)
            rollout.terminals[rows, t] = _to(device, batch.terminals)
            rollout.truncations[rows, t] = _to(device, batch.truncations)
            ended = batch.terminals | batch.truncations
            resets = _to(device, ended)
            if not rollout.all_present:  # who left at an end must come back without a memory
                resets = resets | (part.resets & ~rollout.masks[rows, t])
            part.resets = resets
        if batch.truncations.any():
            with in_forward:
                rollout.final_values[rows, t] = _final_values(
                    vecenv, policy, spaces, part, device, normalise
                )
        if part.state is not None and (ended.any() or not rollout.all_present):
            part.state = reset_state(part.state, part.resets)

    for stretch in range(rollout.num_stretches):
        first = stretch * num_slots
        for t in range(rollout.horizon):
            for number, part in enumerate(parts):
                if number in cells:
                    absorb(number, part)
                if t == 0:
                    part.starts.append(part.state)
                rows = slice(first + part.slots.start, first + part.slots.stop)
                with in_store:
                    observations = _to(device, part.batch.observations)
                    masks = part.batch.masks
                    if not masks.all():
                        rollout.all_present = False
                    rollout.masks[rows, t] = present = _to(device, masks)
                    if normalise is not None:
                        normalise.note(observations, present)
                        observations = normalise(observations)
                    rollout.observations[rows, t] = observations
                    rollout.resets[rows, t] = part.resets
                    action_masks = None
                    if rollout.action_masks is not None:
                        assert vecenv.action_masks is not None
                        action_masks = _to(device, vecenv.action_masks[part.slots])
                        rollout.action_masks[rows, t] = action_masks
                with in_forward:
                    output = policy_step(policy, observations, part.state, spaces)
                    actions, logprobs = sample(output, spaces.action, action_masks, generator)
                    part.state = output.state
                with in_store:
                    rollout.actions[rows, t] = actions
                    rollout.logprobs[rows, t] = logprobs
                    rollout.values[rows, t] = output.value
                with in_env:
                    vecenv.send(env_actions(output, spaces.action, actions).cpu().numpy())
                cells[number] = rows, t
            if normalise is not None:
                normalise.end_step()
    for number, part in enumerate(parts):
        absorb(number, part)
    starts = zip(*(part.starts for part in parts), strict=True)
    rollout.states = [_concatenated(list(states)) for states in starts]
    # a stretch goes on with the next one's first value, or with the value after the last step; an
    # episode that just ended uses neither
    ahead = rollout.values[num_slots:, 0]
    rollout.bootstrap[:-num_slots] = ahead.where(rollout.masks[num_slots:, 0], 0.0)
    for part in parts:
        with in_forward:
            last = _to(device, part.batch.observations)
            seen = last if normalise is None else normalise(last)
            after = policy_step(policy, seen, part.state, spaces).value
            present = _to(device, part.batch.masks)
            rollout.bootstrap[-num_slots:][part.slots] = after.where(present, 0.0)
    state = _concatenated([part.state for part in parts])
    return Carry(
        tuple(part.batch for part in parts), state, torch.cat([part.resets for part in parts])
    )


def _final_values(
    vecenv: VectorEnv,
    policy: nn.Module,
    spaces: PolicySpaces,
    part: _Part,
    device: torch.device,
    normalise: ObservationNorm | None,
) -> Tensor:
    """Return the values of the final observations of a part, 0 where none was truncated."""
    truncations = part.batch.truncations
    cut = np.flatnonzero(truncations)
    index = torch.from_numpy(cut).to(device)
    final = _to(device, vecenv.final_observations[cut + part.slots.start])
    if normalise is not None:
        final = normalise(final)
    memory = map_state(lambda kept: kept[index], part.state)  # not yet reset: it lived this episode
    values = torch.zeros(len(truncations), device=device)
    agent_ids = index % spaces.num_agents
    values[index] = policy_step(policy, final, memory, spaces, agent_ids).value.float()
    return values


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
    state: State
    agent_ids: Tensor  # [M]
    weights: Tensor | None = None  # [M, 1], where segments were not drawn alike
    moments: Tensor | None = None  # [3], of the advantages of all processes, where there are others

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


def minibatches(
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
) -> Iterator[Minibatch]:
    """Yield all segments or steps in random order, in `shape.minibatches` parts.

    With several processes the parts are those of all of them, drawn alike everywhere, and each
    process gets what is its own, which may be nothing.
    """
    per_segment = shape.horizon if shape.by_step else 1
    total = len(advantages) * per_segment * world.size
    order = torch.randperm(total, generator=generator).to(advantages.device)
    initial = rollout.initial_state()
    parts = order.tensor_split(shape.minibatches)
    own = [rollout.own_units(part, world, per_segment) for part in parts]
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
    """Yield `shape.minibatches` parts of equal size, with large advantages more often.

    A segment or step is drawn, with replacement, with odds of its mean |advantage| to the power of
    `alpha`. Its weight, (number of them * odds) ** -beta, makes up for that: at beta 1 the weighted
    mean over a minibatch is that over the rollout, on average (Schaul et al. 2016).
    """
    per_segment = shape.horizon if shape.by_step else 1
    # drawn on the CPU, like every order: the same whatever the device
    sizes = advantages.abs().view(len(advantages) * per_segment, -1).mean(1).cpu()
    sizes = rollout.join_units(sizes, world)
    odds = sizes.double().nan_to_num(0.0) ** alpha + 1e-6
    odds = odds / odds.sum()
    weights = ((len(odds) * odds) ** -beta).float().to(advantages.device)
    initial, each = rollout.initial_state(), len(odds) // shape.minibatches
    drawn = torch.multinomial(odds, shape.minibatches * each, replacement=True, generator=generator)
    parts = torch.split(drawn.to(advantages.device), each)
    own = [rollout.own_units(part, world, per_segment) for part in parts]
    picked = [weights[part[rollout.is_own(part, world, per_segment)]] for part in parts]
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


def take(
    rollout: Rollout,
    chosen: Tensor,
    advantages: Tensor,
    returns: Tensor,
    initial: State,
    by_step: bool = False,
) -> Minibatch:
    """Return the segments whose numbers are `chosen`, or steps of them as segments of one step."""

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
        state=map_state(lambda part: part.index_select(0, segments), initial),
        agent_ids=rollout.agent_ids.index_select(0, segments),
    )


def _picked(part: Tensor, chosen: Tensor, by_step: bool) -> Tensor:
    """Return rows [M, T, ...] of a part [S, T, ...], or its steps [M, 1, ...]."""
    if by_step:
        return part.flatten(0, 1).index_select(0, chosen).unsqueeze(1)
    return part.index_select(0, chosen)


def _to(device: torch.device, array: Any) -> Tensor:
    """Return a tensor of the array: a view on the CPU, a copy elsewhere."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


def _concatenated(states: list[State]) -> State:
    """Join states of equal form along the batch; None stands for no memory in all of them."""
    if len(states) == 1 or states[0] is None:
        return states[0]
    parts: list[list[Tensor]] = []
    for state in states:
        collected: list[Tensor] = []

        def keep(part: Tensor, collected: list[Tensor] = collected) -> Tensor:
            collected.append(part)
            return part

        map_state(keep, state)
        parts.append(collected)
    joined = iter([torch.cat(column) for column in zip(*parts, strict=True)])
    return map_state(lambda _: next(joined), states[0])
