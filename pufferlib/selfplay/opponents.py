"""Opponents: the actions and recurrent states of the other side, with a policy for each slot."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pufferlib.distributed.world import SlotGenerator, World
from pufferlib.errors import CheckpointError
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
from pufferlib.selfplay.pool import Member


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
