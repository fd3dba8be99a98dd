"""Opponents: how each slot of the other side acts by a policy of its own, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pufferlib.distributed.world import SlotGenerator, World
from pufferlib.errors import CheckpointError
from pufferlib.policies.acting import decide
from pufferlib.policies.calling import policy_step
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.outputs import PolicyOutput
from pufferlib.policies.recurrent import RecurrentState, map_state, reset_state, tensors_of
from pufferlib.policies.squash import Squash
from pufferlib.runs import checkpoint
from pufferlib.selfplay.pool import Member


class Opponents:
    """Those who play the slots of the other side; `agents` says which agent each slot is.

    `move_to` must be called first.
    """

    memory: RecurrentState = None  # a row for each slot
    rng: SlotGenerator | None = None  # of their actions

    def __init__(self, spaces: PolicySpaces, agents: NDArray[np.intp]) -> None:
        self._spaces = spaces
        self._agents = torch.from_numpy(agents)

    def move_to(self, device: torch.device, world: World, seed: int) -> SlotGenerator:
        """Act where the learner's policy is; random numbers begin with `seed`, or go on."""
        if self.rng is None or self.rng.device != device:
            if self.rng is not None:
                seed = int(torch.randint(2**62, (), generator=self.rng, device=self.rng.device))
            self.rng = SlotGenerator(device, world)
            self.rng.manual_seed(seed)
        self._agents = self._agents.to(device)
        self.memory = map_state(lambda part: part.to(device), self.memory)
        return self.rng

    @torch.no_grad()
    def act(
        self,
        numbers: NDArray[np.int64],
        members: Callable[[int], Member],
        observations: NDArray[Any],
        legal: NDArray[np.bool_] | None,
    ) -> NDArray[Any]:
        """Return an action for each slot, chosen by the one of the `members` with its number."""
        assert self.rng is not None
        device = self.rng.device
        # in order of their players, whose rows are then slices
        order = np.argsort(numbers, kind="stable")
        playing, firsts = np.unique(numbers[order], return_index=True)
        spans = [slice(*pair) for pair in pairwise([*firsts.tolist(), len(order)])]
        rows = torch.from_numpy(order).to(device)
        back = torch.argsort(rows)
        seen = torch.from_numpy(observations[order]).to(device)
        memory, agents = map_state(lambda part: part[rows], self.memory), self._agents[rows]
        outputs = []
        for number, span in zip(playing.tolist(), spans, strict=True):
            member = members(number)
            shown = seen[span] if member.normalise is None else member.normalise(seen[span])
            state = map_state(lambda part: part[span], memory)  # noqa: B023 - used at once
            outputs.append(policy_step(member.policy, shown, state, self._spaces, agents[span]))
        self.memory = _joined_states([output.state for output in outputs], back)
        masks = None if legal is None else torch.from_numpy(legal).to(device)
        if all(_is_plain(output) for output in outputs):
            return self._decide(_joined_outputs(outputs, back), masks).cpu().numpy()
        decided = [
            self._decide(output, None if masks is None else masks[rows[span]])
            for output, span in zip(outputs, spans, strict=True)
        ]
        return torch.cat(decided)[back].cpu().numpy()

    def _decide(self, output: PolicyOutput, action_masks: Tensor | None) -> Tensor:
        return decide(output, self._spaces.action, action_masks, self.rng).env_actions

    def forget(self, slots: NDArray[np.bool_]) -> None:
        """Let slots begin without a memory."""
        if self.memory is not None and slots.any():
            self.memory = reset_state(self.memory, torch.from_numpy(slots).to(self._agents.device))

    def load_memory(self, memory: RecurrentState, observations: NDArray[Any], like: Member) -> None:
        """Take over a memory, which must be one that `like` can go on from."""
        memory = map_state(lambda part: part.to(self._agents.device), memory)
        if memory is not None:
            seen = torch.from_numpy(observations).to(self._agents.device)
            with torch.no_grad():
                after = policy_step(like.policy, seen, memory, self._spaces, self._agents).state
            parts = checkpoint.pack(memory, "")[1].values()
            has_rows = all(part.shape[:1] == (len(seen),) for part in parts)
            if not (has_rows and checkpoint.is_alike(memory, after)):
                raise CheckpointError(
                    "the checkpoint must hold a memory of the other side, but does not."
                )
        self.memory = memory


def _is_plain(output: PolicyOutput) -> bool:
    """Return whether the output is rows alone, which can be joined with others of its kind."""
    return output.distribution is None and all(isinstance(t, Squash) for t in output.transforms)


def _joined_outputs(outputs: list[PolicyOutput], back: Tensor) -> PolicyOutput:
    """Return the outputs of all opponents as one, in the order of the slots."""
    value, logits, mean, std = (
        None if parts[0] is None else torch.cat(parts)[back]
        for parts in zip(*(output[:4] for output in outputs), strict=True)
    )
    assert value is not None
    return PolicyOutput(value, logits, mean, std, transforms=outputs[0].transforms)


def _joined_states(states: list[RecurrentState], back: Tensor) -> RecurrentState:
    """Return the recurrent states of all opponents as one, in the order of the slots."""
    if states[0] is None:
        return None
    columns = zip(*map(tensors_of, states), strict=True)
    joined = iter([torch.cat(column)[back] for column in columns])
    return map_state(lambda _: next(joined), states[0])
