"""Rollouts of vector envs that hand over some of their slots at a time, in any order.

Each slot fills a segment of its own in a stage. A complete segment moves to the rollout, and the
slot begins its next one. The rollout ends when it is full. Incomplete segments stay in the stage
for the next rollout, so no slot ever waits for the slowest. Such a segment may hold steps of two
versions of the policy; each step keeps the log-probability it was taken with, which is what PPO's
ratio needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pufferlib.config import BatchShape
from pufferlib.policies.acting import Actor, on_device
from pufferlib.policies.recurrent import RecurrentState, map_state, reset_state, tensors_of
from pufferlib.training.ppo import Steps, Targets
from pufferlib.training.rollout import Carry, Cells, Rollout, RolloutSizes, Scan

if TYPE_CHECKING:
    from pufferlib.training.profiling import Profiler
    from pufferlib.vectorization import Batch, VectorEnv

Slots: TypeAlias = slice | NDArray[np.int64]  # of a batch
_PARTS = ("observations", "actions", "logprobs", "values", "rewards", "final_values")
_FLAGS = ("terminals", "truncations", "resets", "masks")


class AsyncRollout(Rollout):
    """A rollout whose segments come from any slot: `slots[s]` is that of segment s.

    Training sees it as one stretch of as many slots as it has segments.
    """

    def __init__(self, sizes: RolloutSizes) -> None:
        shape, num_slots, _, device, _ = sizes
        super().__init__(sizes._replace(num_slots=shape.segments))
        self.stage = Rollout(sizes._replace(shape=BatchShape(num_slots, shape.horizon, 1)))
        self.slots = torch.zeros(shape.segments, dtype=torch.long, device=device)
        self.filled = 0  # segments of this rollout so far
        self.steps: NDArray[np.int64] = np.zeros(num_slots, dtype=np.int64)  # of each stage row
        self.has_acted: NDArray[np.bool_] = np.zeros(num_slots, dtype=np.bool_)

    def forget(self) -> None:
        self.steps[:], self.has_acted[:] = 0, False
        self.stage.states = [None]

    def in_time(self) -> Iterator[Steps]:
        for segments, slots in self._waves():
            yield self._steps_of(segments, slots)

    def scan_back(self, scan: Scan, ratios: Tensor | None = None) -> Targets:
        targets = Targets(torch.zeros_like(self.values), torch.zeros_like(self.values))
        following = torch.zeros(len(self.stage.values), device=self.values.device)
        for segments, slots in reversed(self._waves()):
            steps = self._steps_of(segments, slots, ratios)
            found, following[slots] = scan(steps, self.bootstrap[segments], following[slots])
            targets.advantages[segments], targets.returns[segments] = found
        return targets

    def origin(self, segment: int, t: int) -> tuple[int, int]:
        return int(self.slots[segment]), t

    def _waves(self) -> list[tuple[Tensor, Tensor]]:
        """Return (segments, their slots), in order of time; a slot occurs once in each."""
        counts: dict[int, int] = {}
        waves: list[list[int]] = []
        for segment, slot in enumerate(self.slots.tolist()):
            wave = counts[slot] = counts.get(slot, -1) + 1
            if wave == len(waves):
                waves.append([])
            waves[wave].append(segment)
        segments = [torch.tensor(wave, device=self.slots.device) for wave in waves]
        return [(rows, self.slots[rows]) for rows in segments]

    def _steps_of(self, segments: Tensor, slots: Tensor, ratios: Tensor | None = None) -> Steps:
        return self._steps(lambda part: part[segments], ratios, slots)

    def keep(self, rows: Tensor, bootstrap: Tensor) -> None:
        """Move whole segments from the stage; `bootstrap` are the values that follow them."""
        into = slice(self.filled, self.filled + len(rows))
        stage = self.stage
        for name in (*_PARTS, *_FLAGS):
            getattr(self, name)[into] = getattr(stage, name)[rows]
        if self.action_masks is not None and stage.action_masks is not None:
            self.action_masks[into] = stage.action_masks[rows]
        self.bootstrap[into] = bootstrap
        self.slots[into] = rows
        self.agent_ids[into] = stage.agent_ids[rows]
        state = map_state(lambda part: part[rows], stage.states[0])
        self.states[0] = _started(self.states[0], state, self.num_slots)
        _write(self.states[0], into, state)
        self.filled = into.stop


@torch.no_grad()
def collect_async(
    env: VectorEnv, actor: Actor, rollout: AsyncRollout, carry: Carry, profiler: Profiler
) -> Carry:
    """Fill `rollout` with the next complete segments; the rest is as for `rollout.collect`."""
    (batch,), state, resets = carry
    stage, device = rollout.stage, actor.device
    in_forward, in_env, in_store = profiler("forward"), profiler("env"), profiler("store")
    rollout.filled = 0
    rollout.all_present = True
    while True:
        slots = batch.slots if isinstance(batch.slots, slice) else torch.from_numpy(batch.slots)
        with in_store:
            masks = on_device(batch.masks, device)
            observations = actor.observe(batch.observations, masks, ends_step=True)
            action_masks = None
            if env.action_masks is not None:
                action_masks = on_device(env.action_masks[batch.slots], device)
        with in_forward:
            decision = actor.act(
                observations,
                map_state(lambda part: part[slots], state),  # noqa: B023 - used at once
                action_masks=action_masks,
                agent_ids=stage.agent_ids[slots],
            )
        with in_store:
            _move_complete(rollout, batch.slots, decision.values.float().where(masks, 0.0))
            if rollout.filled == rollout.num_slots:
                rollout.all_present = bool(rollout.masks.all())
                return Carry((batch,), state, resets)
            if decision.state is not None:
                state = _started(state, decision.state, stage.num_slots)
                _note_starts(stage, state, batch.slots, rollout.steps)
                _write(state, slots, decision.state)
            cells = _cells(rollout, batch.slots, device)
            stage.record_observations(cells, observations, masks, resets[slots], action_masks)
            stage.record_decision(cells, decision)
            stage.all_present = stage.all_present and bool(batch.masks.all())
            rollout.has_acted[batch.slots] = True
        with in_env:
            env.send(decision.env_actions.cpu().numpy())
            batch = env.recv()
        _record_outcome(env, actor, rollout, batch, state, resets, profiler)
        done, whole = rollout.filled * rollout.horizon, rollout.num_slots * rollout.horizon
        profiler.progress("collecting", done, whole, "steps")


def _move_complete(rollout: AsyncRollout, slots: Slots, bootstrap: Tensor) -> None:
    """Move the complete segments of a batch to the rollout, as far as there is room."""
    numbers = _numbers(slots)
    complete = np.flatnonzero(rollout.steps[numbers] == rollout.horizon)
    complete = complete[: rollout.num_slots - rollout.filled]
    if len(complete):
        device = bootstrap.device
        rows = torch.from_numpy(numbers[complete]).to(device)
        rollout.keep(rows, bootstrap[torch.from_numpy(complete).to(device)])
        rollout.steps[numbers[complete]] = 0


def _record_outcome(
    env: VectorEnv,
    actor: Actor,
    rollout: AsyncRollout,
    batch: Batch,
    state: RecurrentState,
    resets: Tensor,
    profiler: Profiler,
) -> None:
    """Store the answer to the actions of a batch's slots; `state` and `resets` change in place."""
    device, stage = actor.device, rollout.stage
    numbers = _numbers(batch.slots)
    acted = rollout.has_acted[numbers]  # false the first time that a slot is seen after a reset
    if not acted.any():
        return
    answered: Slots = batch.slots
    if not acted.all():
        answered, kept = numbers[acted], np.flatnonzero(acted)
        batch = batch._replace(
            rewards=batch.rewards[kept],
            terminals=batch.terminals[kept],
            truncations=batch.truncations[kept],
        )
    numbers = _numbers(answered)
    with profiler("store"):
        cells = _cells(rollout, answered, device)
        stage.record_outcome(cells, batch)
        stage.final_values[cells] = 0.0
        index = torch.from_numpy(numbers).to(device)
        ended = on_device(batch.terminals | batch.truncations, device)
        # an agent that left at an end, and is not back yet, returns without a recurrent state
        ended = ended | (~stage.masks[cells] & resets[index])
        resets[index] = ended
    truncated = numbers[batch.truncations]
    if len(truncated):
        with profiler("forward"):
            rows = torch.from_numpy(truncated).to(device)
            before = map_state(lambda part: part[rows], state)  # of this episode still
            final = env.final_observations[truncated]
            times = torch.from_numpy(rollout.steps[truncated]).to(device)
            stage.final_values[rows, times] = actor.values(final, before, stage.agent_ids[rows])
    if state is not None and ended.any():
        _write(state, index, reset_state(map_state(lambda part: part[index], state), ended))
    rollout.steps[numbers] += 1


def _cells(rollout: AsyncRollout, slots: Slots, device: torch.device) -> Cells:
    """Return (rows, columns) of the stage for the present step of each slot."""
    steps = rollout.steps[slots]
    first = int(steps[0])
    if isinstance(slots, slice) and (steps == first).all():
        return slots, first  # the usual case of neighbours in step: a plain view
    rows = torch.from_numpy(_numbers(slots)).to(device)
    return rows, torch.from_numpy(steps).to(device)


def _numbers(slots: Slots) -> NDArray[np.int64]:
    return np.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots


def _started(state: RecurrentState, example: RecurrentState, num_slots: int) -> RecurrentState:
    """Return the recurrent state of all slots, zeros where there was none yet."""
    if state is not None:
        return state
    return map_state(lambda part: part.new_zeros(num_slots, *part.shape[1:]), example)


def _note_starts(
    stage: Rollout, state: RecurrentState, slots: Slots, steps: NDArray[np.int64]
) -> None:
    """Keep the recurrent state before the segments that begin now."""
    numbers = _numbers(slots)
    starting = numbers[steps[numbers] == 0]
    if stage.states[0] is None:
        stage.states[0] = map_state(torch.zeros_like, state)
    if len(starting):
        rows = torch.from_numpy(starting)
        _write(stage.states[0], rows, map_state(lambda part: part[rows], state))


def _write(state: RecurrentState, rows: slice | Tensor, values: RecurrentState) -> None:
    """Write rows of a recurrent state of any form, in place."""
    for target, source in zip(tensors_of(state), tensors_of(values), strict=True):
        target[rows] = source
