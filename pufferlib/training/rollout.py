"""Rollout: the steps of one iteration; `collect` fills it, `minibatches` takes it apart again.

A rollout of N slots holds N segments for each stretch of `horizon` steps; segment j * N + n is the
j-th stretch of slot n. Every step is stored once, on the policy's device.

Minibatches are a rollout in random order, by whole segments or by single steps. With several
processes a minibatch is drawn from all of them, the same everywhere, and each process gets its own
part, which may be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from pufferlib import native
from pufferlib.distributed.world import ALONE, World
from pufferlib.policies.acting import Actor, Decision, on_device
from pufferlib.policies.observations import (
    PolicySpaces,
    leaf_of,
    torch_dtype,
    unflatten_observations,
)
from pufferlib.policies.recurrent import RecurrentState, join_states, map_state, reset_state
from pufferlib.training.ppo import Steps, Targets, moments_of

if TYPE_CHECKING:
    from pufferlib.config import BatchShape
    from pufferlib.spaces import ObservationLayout
    from pufferlib.training.profiling import Profiler
    from pufferlib.vectorization import Batch, VectorEnv

Cells: TypeAlias = tuple[slice | Tensor, int | Tensor]  # some entries of tensors [S, T]


# Computes targets of some steps, given the value after them [N] and the correction of the value of
# the step after them [N]; also returns the correction of the first value of each [N].
Scan: TypeAlias = Callable[[Steps, Tensor, Tensor], tuple[Targets, Tensor]]


class RolloutSizes(NamedTuple):
    """The numbers that the shapes of a rollout's tensors follow from."""

    shape: BatchShape
    num_slots: int
    spaces: PolicySpaces
    device: torch.device
    has_action_masks: bool


class Rollout:
    """Tensors [S, T] of one iteration; rewritten by each `collect`."""

    def __init__(self, sizes: RolloutSizes) -> None:
        shape, num_slots, spaces, device, has_action_masks = sizes

        def zeros(*row: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape.segments, shape.horizon, *row, dtype=dtype, device=device)

        observation, action, flag = spaces.observation, spaces.action, torch.bool
        self.num_slots, self.horizon = num_slots, shape.horizon
        self.num_stretches = shape.segments // num_slots
        self.observations = zeros(*observation.shape, dtype=torch_dtype(observation.dtype))
        self.actions = zeros(*action.shape, dtype=torch_dtype(action.dtype))
        self.action_masks: Tensor | None = None
        if has_action_masks:
            self.action_masks = ~zeros(action.mask_width, dtype=flag)
        self.logprobs, self.values, self.rewards = zeros(), zeros(), zeros()
        self.final_values = zeros()  # where truncated
        self.terminals, self.truncations = zeros(dtype=flag), zeros(dtype=flag)
        self.resets = zeros(dtype=flag)  # an episode begins
        self.masks = ~zeros(dtype=flag)
        self.bootstrap = torch.zeros(shape.segments, device=device)  # value after the last step
        # [S]: the slot of each segment, and which agent of its env that is
        self.slots = torch.arange(shape.segments, device=device) % num_slots
        self.agent_ids = self.slots % spaces.num_agents
        # before each stretch, [N, ...]
        self.states: list[RecurrentState] = [None] * self.num_stretches
        self.all_present = True  # no slot was ever masked: losses may skip the masks
        self.all_finite = False  # `collect` has found every number finite

    # ---- Recording, cell by cell -----------------------------------------------------------------

    def record_observations(
        self,
        cells: Cells,
        observations: Tensor,
        masks: Tensor,
        resets: Tensor,
        action_masks: Tensor | None,
    ) -> None:
        """Store what the policy sees before it acts."""
        self.observations[cells] = observations
        self.masks[cells] = masks
        self.resets[cells] = resets
        if self.action_masks is not None and action_masks is not None:
            self.action_masks[cells] = action_masks

    def record_decision(self, cells: Cells, decision: Decision) -> None:
        """Store what the policy did."""
        self.actions[cells] = decision.actions
        self.logprobs[cells] = decision.logprobs
        self.values[cells] = decision.values.float()

    def record_outcome(self, cells: Cells, batch: Batch) -> None:
        """Store what the env answered."""
        device = self.values.device
        self.rewards[cells] = on_device(batch.rewards, device)
        self.terminals[cells] = on_device(batch.terminals, device)
        self.truncations[cells] = on_device(batch.truncations, device)

    # ---- Reading ---------------------------------------------------------------------------------

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

    def in_time(self) -> Iterator[Steps]:
        """Yield all steps in order of time; a slot occurs once in each item."""
        yield self._steps(self.by_slot)

    def scan_back(self, scan: Scan, ratios: Tensor | None = None) -> Targets:
        """Compute the targets of all steps, from the last step of every slot to its first."""
        bootstrap = self.bootstrap[-self.num_slots :]
        steps = self._steps(self.by_slot, ratios)
        targets, _ = scan(steps, bootstrap, torch.zeros_like(bootstrap))
        return Targets(*map(self.by_segment, targets))

    def _steps(
        self,
        pick: Callable[[Tensor], Tensor],
        ratios: Tensor | None = None,
        slots: Tensor | None = None,
    ) -> Steps:
        return Steps(
            pick(self.rewards),
            pick(self.values),
            pick(self.terminals),
            pick(self.truncations),
            pick(self.final_values),
            None if self.all_present else pick(self.masks),
            None if ratios is None else pick(ratios),
            slots,
        )

    def origin(self, segment: int, t: int) -> tuple[int, int]:
        """Return the slot of a cell, and its step counted from the start of the rollout."""
        stretch, slot = divmod(segment, self.num_slots)
        return slot, stretch * self.horizon + t

    def non_finite(self, layout: ObservationLayout, agents_per_env: int = 1) -> str | None:
        """Describe the first nan or inf in the steps that carry data; None if there is none.

        The check is a few sums: a sum is finite only if all its parts are. The search begins where
        a sum is not.
        """
        if self.all_finite:
            return None
        parts = list(self._float_parts(layout))
        if torch.stack([part.sum(dtype=torch.float32) for _, part in parts]).isfinite().all():
            return None
        for name, part in parts:  # a sum of finite parts may overflow: look at each
            bad = part.isfinite().logical_not().flatten(2).any(2) & self.masks
            if bad.any():
                segment, t = bad.nonzero()[0].tolist()
                slot, step = self.origin(segment, t)
                found = part[segment, t]
                value = found[found.isfinite().logical_not()].flatten()[0].item()
                return (
                    f"`{name}` must be finite, but {value} came from slot {slot} (env "
                    f"{slot // agents_per_env}) in step {step} of the rollout"
                )
        return None

    def _float_parts(self, layout: ObservationLayout) -> Iterator[tuple[str, Tensor]]:
        """Yield names and tensors [S, T, ...]: those of the env before those of the policy."""
        yield "rewards", self.rewards.unsqueeze(2)
        for leaf in layout.leaves:
            if leaf.dtype.kind == "f":
                part = self.observations
                if layout.structured:
                    part = leaf_of(unflatten_observations(part, layout), leaf)
                yield "observations", part.flatten(2) if part.dim() > 2 else part.unsqueeze(2)
        yield "values", self.values.unsqueeze(2)
        yield "logprobs", self.logprobs.unsqueeze(2)

    def initial_state(self) -> RecurrentState:
        """Return the recurrent state before each segment, [S, ...]; None if there is none."""
        if all(state is None for state in self.states):
            return None
        example = next(state for state in self.states if state is not None)
        zeros = map_state(torch.zeros_like, example)
        return join_states([zeros if state is None else state for state in self.states])

    def forget(self) -> None:
        """Drop segments that are not complete: the envs start new episodes."""


class Carry(NamedTuple):
    """What one `collect` leaves for the next: the last batches and the recurrent state."""

    batches: tuple[Batch, ...]  # one, or one for each half where rollouts are double-buffered
    state: RecurrentState
    resets: Tensor  # [N]: the last observation begins an episode


def begin(env: VectorEnv, device: torch.device) -> Carry:
    """Take the first batches after a reset."""
    resets = torch.ones(env.num_agents, dtype=torch.bool, device=device)
    return Carry(take_batches(env), None, resets)


def take_batches(env: VectorEnv) -> tuple[Batch, ...]:
    """Receive all batches of an env that has no actions under way."""
    return tuple(env.recv() for _ in range(env.batches))


class Lane:
    """Slots that act together: all of them, or one half where rollouts are double-buffered."""

    def __init__(
        self,
        env: VectorEnv,
        actor: Actor,
        rollout: Rollout,
        carry: Carry,
        profiler: Profiler,
        number: int,
    ) -> None:
        self._env, self._actor, self._rollout = env, actor, rollout
        self.batch, self.state = carry.batches[number], carry.state
        self._slots = slice(0, len(carry.resets))
        if len(carry.batches) > 1:
            assert isinstance(self.batch.slots, slice)
            self._slots = self.batch.slots
            self.state = map_state(lambda part: part[self._slots], carry.state)
        self.resets = carry.resets[self._slots]
        self.first_states: list[RecurrentState] = []  # before each stretch
        self._cells: Cells = slice(0), 0  # of the actions under way
        self._in_forward, self._in_store = profiler("forward"), profiler("store")
        self._in_env = profiler("env")

    def act(self, stretch: int, t: int) -> None:
        """Store the observations of the last batch, act on them, send the actions."""
        env, actor, rollout, batch = self._env, self._actor, self._rollout, self.batch
        first = stretch * rollout.num_slots
        self._cells = cells = slice(first + self._slots.start, first + self._slots.stop), t
        if t == 0:
            self.first_states.append(self.state)
        with self._in_store:
            masks = on_device(batch.masks, actor.device)
            rollout.all_present = rollout.all_present and bool(batch.masks.all())
            observations = actor.observe(batch.observations, masks)
            action_masks = None
            if env.action_masks is not None:
                action_masks = on_device(env.action_masks[self._slots], actor.device)
            rollout.record_observations(cells, observations, masks, self.resets, action_masks)
        with self._in_forward:
            decision = actor.act(observations, self.state, action_masks=action_masks)
            self.state = decision.state
        with self._in_store:
            rollout.record_decision(cells, decision)
        with self._in_env:
            env.send(decision.env_actions.cpu().numpy())

    def receive(self) -> None:
        """Wait for the answer of the env and store it."""
        actor, rollout, cells = self._actor, self._rollout, self._cells
        with self._in_env:
            self.batch = batch = self._env.recv()
        with self._in_store:
            rollout.record_outcome(cells, batch)
            ended = batch.terminals | batch.truncations
            resets = on_device(ended, actor.device)
            if not rollout.all_present:  # an agent that left at an end returns without a state
                resets = resets | (self.resets & ~rollout.masks[cells])
            self.resets = resets
        if batch.truncations.any():
            with self._in_forward:
                truncated = np.flatnonzero(batch.truncations)
                index = torch.from_numpy(truncated).to(actor.device)
                state = map_state(lambda part: part[index], self.state)  # of this episode still
                final = self._env.final_observations[truncated + self._slots.start]
                values = torch.zeros(len(ended), device=actor.device)
                values[index] = actor.values(final, state, index % actor.spaces.num_agents)
                rollout.final_values[cells] = values
        if self.state is not None and (ended.any() or not rollout.all_present):
            self.state = reset_state(self.state, self.resets)

    def finish(self) -> None:
        """Store the values that follow the last step."""
        with self._in_forward:
            after = self._actor.values(self.batch.observations, self.state)
            present = on_device(self.batch.masks, self._actor.device)
            last = self._rollout.bootstrap[-self._rollout.num_slots :]
            last[self._slots] = after.where(present, 0.0)


@torch.no_grad()
def collect(
    env: VectorEnv, actor: Actor, rollout: Rollout, carry: Carry, profiler: Profiler
) -> Carry:
    """Fill `rollout` with the next steps of every slot; the batches must hold all slots in order.

    Observations are stored as the policy sees them. Where the env has two batches, the policy acts
    on one half of the envs while the other half steps; the numbers are the same. No actions are
    under way before and after.
    """
    rollout.all_present = True
    numbers = range(len(carry.batches))
    lanes = [Lane(env, actor, rollout, carry, profiler, number) for number in numbers]
    total = rollout.num_slots * rollout.num_stretches * rollout.horizon
    for stretch in range(rollout.num_stretches):
        for t in range(rollout.horizon):
            for lane in lanes:
                if stretch or t:
                    lane.receive()
                    done = rollout.num_slots * (stretch * rollout.horizon + t)
                    profiler.progress("collecting", done, total, "steps")
                lane.act(stretch, t)
            actor.end_step()
    for lane in lanes:
        lane.receive()
    return _finish(rollout, lanes)


def _finish(rollout: Rollout, lanes: list[Lane]) -> Carry:
    """Complete a rollout whose last steps were received; return what the next one begins with."""
    joined = join_states if len(lanes) > 1 else itemgetter(0)
    by_stretch = zip(*(lane.first_states for lane in lanes), strict=True)
    rollout.states = [joined(states) for states in by_stretch]
    # the value after a stretch is the first one of the next stretch; after an end it is not used
    following = rollout.values[rollout.num_slots :, 0]
    present = rollout.masks[rollout.num_slots :, 0]
    rollout.bootstrap[: -rollout.num_slots] = following.where(present, 0.0)
    for lane in lanes:
        lane.finish()
    state = joined([lane.state for lane in lanes])
    resets = torch.cat([lane.resets for lane in lanes])
    return Carry(tuple(lane.batch for lane in lanes), state, resets)


# ---- Minibatches ---------------------------------------------------------------------------------


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


class Priority(NamedTuple):
    """How much units with a large |advantage| are preferred; see `draw`."""

    alpha: float = 0.0
    beta: float = 1.0


NO_PRIORITY = Priority()


class Draw(NamedTuple):
    """The units of one pass in their order, and a weight for every unit if some are preferred."""

    units: Tensor
    weights: Tensor | None


class Share(NamedTuple):
    """This process's part of a minibatch, before its steps are taken from the rollout."""

    units: Tensor  # numbers of segments or steps
    weights: Tensor | None  # of each unit, if some are preferred
    moments: Tensor | None = None  # [4], of the advantages of all processes, if there are several


def next_key(generator: torch.Generator) -> int:
    """Return the key of the next random numbers in C, and move the generator on.

    The seed of the generator is the key, so a checkpoint has it. No operation of torch is needed.
    """
    key = generator.initial_seed()
    generator.manual_seed(native.env_seed(key, 1))
    return key


def draw(
    rollout: Rollout,
    advantages: Tensor,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
    priority: Priority = NO_PRIORITY,
) -> Draw:
    """Draw the units of one pass, of all processes.

    They are all segments or steps in random order. With `alpha` above 0 units are drawn with
    replacement instead, with odds of their mean |advantage| to the power of `alpha`. The weight of
    a unit, (number of them * odds) ** -beta, makes up for that: at beta 1 the weighted mean over a
    minibatch is that over the rollout, on average (Schaul et al. 2016).
    """
    alpha, beta = priority
    per_segment = shape.horizon if shape.by_step else 1
    if alpha == 0:
        count = len(advantages) * world.size * per_segment
        return Draw(torch.from_numpy(native.shuffled(next_key(generator), count)), None)
    # drawn on the CPU, like every order, so that it does not depend on the device
    sizes = advantages.abs().view(len(advantages) * per_segment, -1).mean(1).cpu()
    if world.size > 1:
        ranks = world.join_rows(sizes).view(world.size, rollout.num_stretches, -1)
        sizes = ranks.transpose(0, 1).flatten()
    odds = sizes.double().nan_to_num(0.0) ** alpha + 1e-6
    odds = odds / odds.sum()
    total = len(odds) // shape.minibatches * shape.minibatches
    order = torch.multinomial(odds, total, replacement=True, generator=generator)
    return Draw(order, ((len(odds) * odds) ** -beta).float().to(advantages.device))


def shares(
    rollout: Rollout,
    advantages: Tensor,
    shape: BatchShape,
    generator: torch.Generator,
    world: World = ALONE,
    priority: Priority = NO_PRIORITY,
) -> list[Share]:
    """Return the minibatches of one pass over the rollout, `shape.minibatches` of them.

    Units of several processes are drawn together, and each process gets its own.
    """
    order, weights = draw(rollout, advantages, shape, generator, world, priority)
    per_segment = shape.horizon if shape.by_step else 1
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
    priority: Priority = NO_PRIORITY,
) -> Iterator[Minibatch]:
    """Yield the minibatches of one pass over the rollout."""
    initial = rollout.initial_state()
    for share in shares(rollout, targets.advantages, shape, generator, world, priority):
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
