"""Rollouts of vector envs that hand over a part of their slots at a time, in any order.

Each slot fills a segment of its own in a stage; a whole segment moves to the rollout, and the slot
begins its next one. The rollout is done when it is full. What is half-way then stays in the stage
for the next one, so no slot ever waits for the slowest. Such a segment may hold steps of two
versions of the policy; each step keeps the log-probability it was taken with, which is what PPO's
ratio needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.config import BatchShape
from pufferlib.policies.calling import policy_step
from pufferlib.policies.distributions import env_actions, sample
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.recurrent import State, map_state, reset_state
from pufferlib.training.rollout import Carry, Rollout

if TYPE_CHECKING:
    from pufferlib.policies.normalisation import ObservationNorm
    from pufferlib.training.profiling import Profiler
    from pufferlib.vectorization import VectorEnv

_STEP_PARTS = ("observations", "actions", "logprobs", "values", "rewards", "final_values")
_FLAG_PARTS = ("terminals", "truncations", "resets", "masks")


class AsyncRollout(Rollout):
    """A rollout whose segments come from any slot: `slots[s]` is that of segment s.

    To those who train on it, it looks like one stretch of as many slots as it has segments.
    """

    def __init__(
        self,
        shape: BatchShape,
        num_slots: int,
        spaces: PolicySpaces,
        device: torch.device,
        has_action_masks: bool,
    ) -> None:
        super().__init__(shape, shape.segments, spaces, device, has_action_masks)
        staged = BatchShape(num_slots, shape.horizon, 1)
        self.stage = Rollout(staged, num_slots, spaces, device, has_action_masks)
        self.slots = torch.zeros(shape.segments, dtype=torch.long, device=device)
        self.filled = 0  # segments of this rollout so far
        self.steps: NDArray[np.int64] = np.zeros(num_slots, dtype=np.int64)  # of each stage row
        self.has_acted: NDArray[np.bool_] = np.zeros(num_slots, dtype=np.bool_)

    def forget(self) -> None:
        """Drop half-filled segments: the envs begin anew."""
        self.steps[:], self.has_acted[:] = 0, False
        self.stage.states = [None]

    def waves(self) -> list[tuple[Tensor, Tensor]]:
        """Return (segments, their slots), in order of time; a slot occurs once in each."""
        owners = self.slots.cpu().numpy()
        counts: dict[int, int] = {}
        waves: list[list[int]] = []
        for segment, slot in enumerate(owners.tolist()):
            wave = counts[slot] = counts.get(slot, -1) + 1
            if wave == len(waves):
                waves.append([])
            waves[wave].append(segment)
        segments = [torch.tensor(wave, device=self.slots.device) for wave in waves]
        return [(rows, self.slots[rows]) for rows in segments]

    def keep(self, rows: Tensor, bootstrap: Tensor) -> None:
        """Move whole segments from the stage; `bootstrap` are the values that follow them."""
        into = slice(self.filled, self.filled + len(rows))
        stage = self.stage
        for name in (*_STEP_PARTS, *_FLAG_PARTS):
            getattr(self, name)[into] = getattr(stage, name)[rows]
        if self.action_masks is not None and stage.action_masks is not None:
            self.action_masks[into] = stage.action_masks[rows]
        self.bootstrap[into] = bootstrap
        self.slots[into] = rows
        self.agent_ids[into] = stage.agent_ids[rows]
        state = map_state(lambda part: part[rows], stage.states[0])
        if state is not None and self.states[0] is None:
            self.states[0] = map_state(
                lambda part: part.new_zeros(self.num_slots, *part.shape[1:]), state
            )
        _write(self.states[0], into, state)
        self.filled = into.stop


@torch.no_grad()
def collect_async(
    vecenv: VectorEnv,
    policy: nn.Module,
    spaces: PolicySpaces,
    rollout: AsyncRollout,
    carry: Carry,
    *,
    generator: torch.Generator,
    profiler: Profiler,
    normalise: ObservationNorm | None = None,
) -> Carry:
    """Fill `rollout` with the next whole segments; the rest is as for `rollout.collect`."""
    (batch,), state, resets = carry
    device = rollout.values.device
    in_forward, in_env, in_store = profiler("forward"), profiler("env"), profiler("store")
    rollout.filled = 0
    rollout.all_present = True
    while True:
        slots = batch.slots if isinstance(batch.slots, slice) else torch.from_numpy(batch.slots)
        with in_forward:
            observations = torch.from_numpy(batch.observations).to(device)
            masks = torch.from_numpy(batch.masks).to(device)
            if normalise is not None:
                normalise.note(observations, masks)
                normalise.end_step()
                observations = normalise(observations)
            before = map_state(lambda part: part[slots], state)  # noqa: B023 - used at once
            agent_ids = rollout.stage.agent_ids[slots]
            output = policy_step(policy, observations, before, spaces, agent_ids)
        with in_store:
            bootstrap = output.value.float().where(masks, 0.0)
            _keep_whole(rollout, batch.slots, bootstrap)
        if rollout.filled == rollout.num_slots:
            rollout.all_present = bool(rollout.masks.all())
            return Carry((batch,), state, resets)
        with in_store:
            where, times = _cells(rollout, batch.slots, device)
            stage = rollout.stage
            if output.state is not None:
                state = _started(state, output.state, stage.num_slots)
                _note_starts(stage, state, batch.slots, rollout.steps)
            stage.observations[where, times] = observations
            stage.masks[where, times] = masks
            stage.all_present = stage.all_present and bool(batch.masks.all())
            stage.resets[where, times] = resets[slots]
            action_masks = None
            if stage.action_masks is not None:
                given = vecenv.action_masks
                assert given is not None
                action_masks = torch.from_numpy(given[batch.slots]).to(device)
                stage.action_masks[where, times] = action_masks
        with in_forward:
            actions, logprobs = sample(output, spaces.action, action_masks, generator)
        with in_store:
            stage.actions[where, times] = actions
            stage.logprobs[where, times] = logprobs
            stage.values[where, times] = output.value.float()
            _write(state, slots, output.state)
            rollout.has_acted[batch.slots] = True
        with in_env:
            vecenv.send(env_actions(output, spaces.action, actions).cpu().numpy())
            batch = vecenv.recv()
        _absorb(vecenv, policy, spaces, rollout, batch, state, resets, profiler, normalise)


def _keep_whole(rollout: AsyncRollout, slots: Any, bootstrap: Tensor) -> None:
    """Move the segments of a batch that are whole, as far as there is room."""
    numbers = _numbers(slots)
    whole = np.flatnonzero(rollout.steps[numbers] == rollout.horizon)
    whole = whole[: rollout.num_slots - rollout.filled]
    if len(whole):
        device = bootstrap.device
        rows = torch.from_numpy(numbers[whole]).to(device)
        rollout.keep(rows, bootstrap[torch.from_numpy(whole).to(device)])
        rollout.steps[numbers[whole]] = 0


def _absorb(
    vecenv: VectorEnv,
    policy: nn.Module,
    spaces: PolicySpaces,
    rollout: AsyncRollout,
    batch: Any,
    state: State,
    resets: Tensor,
    profiler: Profiler,
    normalise: ObservationNorm | None,
) -> None:
    """Write the results of the actions that a batch answers."""
    device = rollout.values.device
    numbers = _numbers(batch.slots)
    acted = rollout.has_acted[numbers]  # not the first time that a slot is seen after a reset
    if not acted.any():
        return
    every = bool(acted.all())
    chosen: Any = slice(None) if every else np.flatnonzero(acted)
    answered = numbers[chosen]
    with profiler("store"):
        where, times = _cells(rollout, batch.slots if every else answered, device)
        stage = rollout.stage
        ended = batch.terminals[chosen] | batch.truncations[chosen]
        stage.rewards[where, times] = torch.from_numpy(batch.rewards[chosen]).to(device)
        stage.terminals[where, times] = torch.from_numpy(batch.terminals[chosen]).to(device)
        stage.truncations[where, times] = torch.from_numpy(batch.truncations[chosen]).to(device)
        stage.final_values[where, times] = 0.0
        index = torch.from_numpy(answered).to(device)
        ends = torch.from_numpy(ended).to(device)
        left = ~stage.masks[where, times] & resets[index]  # at an end, and not yet back: no memory
        ends = ends | left
        resets[index] = ends
    cut = answered[batch.truncations[chosen]]
    if len(cut):
        with profiler("forward"):
            rows = torch.from_numpy(cut).to(device)
            final = torch.from_numpy(vecenv.final_observations[cut]).to(device)
            if normalise is not None:
                final = normalise(final)
            memory = map_state(lambda part: part[rows], state)  # it lived this episode
            at = torch.from_numpy(rollout.steps[cut]).to(device)
            value = policy_step(policy, final, memory, spaces, stage.agent_ids[rows]).value
            stage.final_values[rows, at] = value.float()
    if state is not None and (ended.any() or not stage.all_present):
        _write(state, index, reset_state(map_state(lambda part: part[index], state), ends))
    rollout.steps[answered] += 1


def _cells(rollout: AsyncRollout, slots: Any, device: torch.device) -> tuple[Any, Any]:
    """Return (rows, columns) of the stage for the present step of each slot."""
    steps = rollout.steps[slots]
    first = int(steps[0])
    if isinstance(slots, slice) and (steps == first).all():
        return slots, first  # the usual case of neighbours in step: a plain view
    rows = torch.from_numpy(_numbers(slots)).to(device)
    return rows, torch.from_numpy(steps).to(device)


def _numbers(slots: Any) -> NDArray[np.int64]:
    if isinstance(slots, slice):
        return np.arange(slots.start, slots.stop)
    numbers: NDArray[np.int64] = slots
    return numbers


def _started(state: State, example: State, num_slots: int) -> State:
    """Return the memory of all slots, zeros where there was none yet."""
    if state is not None:
        return state
    return map_state(lambda part: part.new_zeros(num_slots, *part.shape[1:]), example)


def _note_starts(stage: Rollout, state: State, slots: Any, steps: NDArray[np.int64]) -> None:
    """Keep the memory before the segments that begin now."""
    numbers = _numbers(slots)
    starting = numbers[steps[numbers] == 0]
    if stage.states[0] is None:
        stage.states[0] = map_state(torch.zeros_like, state)
    if len(starting):
        rows = torch.from_numpy(starting)
        _write(stage.states[0], rows, map_state(lambda part: part[rows], state))


def _write(state: State, rows: Any, values: State) -> None:
    """Write rows of a memory of any form, in place."""
    targets: list[Tensor] = []
    map_state(lambda part: targets.append(part) or part, state)  # type: ignore[func-returns-value]
    sources: list[Tensor] = []
    map_state(lambda part: sources.append(part) or part, values)  # type: ignore[func-returns-value]
    for target, source in zip(targets, sources, strict=True):
        target[rows] = source
