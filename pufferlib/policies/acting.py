"""Actor: from observations to actions, for rollouts, evaluation, `predict` and self-play."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.policies.calling import in_eval_mode, policy_step
from pufferlib.policies.distributions import env_actions, mode, sample
from pufferlib.policies.normalisation import ObservationNorm
from pufferlib.policies.observations import PolicySpaces, observation_rows
from pufferlib.policies.outputs import PolicyOutput
from pufferlib.policies.recurrent import RecurrentState
from pufferlib.spaces import ActionLayout


class Decision(NamedTuple):
    """Actions of a policy for B observations."""

    actions: Tensor  # [B, *shape], as a rollout stores them
    logprobs: Tensor  # [B]; zeros for deterministic actions
    values: Tensor  # [B]
    state: RecurrentState  # the one after this step
    env_actions: Tensor  # [B, ...], as the env takes them


class Actor:
    """A policy with what it needs to act in an env: spaces, normalisation, random numbers.

    Only `observe` applies `normalise`, so that a rollout can store what the policy saw. `acting`
    enters `autocast`. Without a generator, actions come from torch's global one.
    """

    def __init__(
        self,
        policy: nn.Module,
        spaces: PolicySpaces,
        device: torch.device,
        *,
        normalise: ObservationNorm | Callable[[Tensor], Tensor] | None = None,
        generator: torch.Generator | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.policy, self.spaces, self.device = policy, spaces, device
        self.normalise, self.generator, self._autocast = normalise, generator, autocast

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Enter the mode in which a policy acts: no gradients, no dropout, the run's precision."""
        with torch.no_grad(), self._autocast(), in_eval_mode(self.policy):
            yield

    def observe(
        self, observations: NDArray[Any], masks: Tensor | None = None, ends_step: bool = False
    ) -> Tensor:
        """Return observations `[B, *shape]` on the policy's device, normalised.

        With `masks` `[B]` the statistics of the normalisation are updated from the rows that carry
        data. `ends_step` is true for the last rows of a step, in place of a call of `end_step`.
        """
        rows = on_device(observations, self.device)
        if self.normalise is None:
            return rows
        if masks is not None and isinstance(self.normalise, ObservationNorm):
            self.normalise.note(rows, masks)
            if ends_step:
                self.normalise.end_step()
        return self.normalise(rows)

    def end_step(self) -> None:
        """End a step in which every slot acted; see `ObservationNorm.end_step`."""
        if isinstance(self.normalise, ObservationNorm):
            self.normalise.end_step()

    def values(
        self, observations: NDArray[Any], state: RecurrentState, agent_ids: Tensor | None = None
    ) -> Tensor:
        """Return the values `[B]` of observations from the env."""
        return self.output(self.observe(observations), state, agent_ids).value.float()

    def output(
        self, observations: Tensor, state: RecurrentState, agent_ids: Tensor | None = None
    ) -> PolicyOutput:
        """Return the policy's output for observations from `observe`; see `policy_step`."""
        return policy_step(self.policy, observations, state, self.spaces, agent_ids)

    def act(
        self,
        observations: Tensor,
        state: RecurrentState,
        *,
        action_masks: Tensor | None = None,
        agent_ids: Tensor | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose actions for observations from `observe`; `state` is the one before this step."""
        output = self.output(observations, state, agent_ids)
        return decide(output, self.spaces.action, action_masks, self.generator, deterministic)

    def predict(
        self,
        observations: Any,
        state: RecurrentState,
        deterministic: bool,
        action_masks: Any,
        agent_ids: Sequence[Any] | None = None,
    ) -> tuple[NDArray[Any], RecurrentState]:
        """Act on observations in any form of an env; return actions and the next state."""
        layout, by_agent = self.spaces.observation, isinstance(observations, Mapping)
        if agent_ids and by_agent and observations.keys() == set(agent_ids):
            parts = [observation_rows(observations[id], layout) for id in agent_ids]
            given = np.stack(parts, 1).reshape(-1, *layout.shape)
        else:
            given = observation_rows(observations, layout)
        is_single = given.ndim == len(layout.shape)
        with self.acting():
            seen = self.observe(given[None] if is_single else given)
            masks = self._action_masks(action_masks, len(seen))
            decision = self.act(seen, state, action_masks=masks, deterministic=deterministic)
        actions = decision.env_actions.cpu().numpy()
        return (actions[0, ...] if is_single else actions), decision.state

    def _action_masks(self, action_masks: Any, batch: int) -> Tensor | None:
        if action_masks is None:
            return None
        masks = np.asarray(action_masks, dtype=np.bool_)
        width = self.spaces.action.mask_width
        if masks.shape not in ((width,), (batch, width)):
            raise UsageError(
                f"`action_masks` must have shape {(batch, width)}, but got {masks.shape}."
            )
        return torch.as_tensor(masks, device=self.device).expand(batch, width)


def decide(
    output: PolicyOutput,
    layout: ActionLayout,
    action_masks: Tensor | None = None,
    generator: torch.Generator | None = None,
    deterministic: bool = False,
) -> Decision:
    """Sample legal actions from an output, or take its most likely ones."""
    if deterministic:
        actions, logprobs = mode(output, layout, action_masks), torch.zeros_like(output.value)
    else:
        actions, logprobs = sample(output, layout, action_masks, generator)
    taken = env_actions(output, layout, actions)
    return Decision(actions, logprobs, output.value, output.state, taken)


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return a tensor of the array: a view on the CPU, a copy elsewhere."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)
