"""PufferEnv: one environment that reads and writes its rows of the batch in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers, allocate
from pufferlib.errors import UsageError
from pufferlib.spaces import Space


class PufferEnv:
    """An environment of `num_agents` agents that works in place.

    A subclass sets `single_observation_space`, `single_action_space` and `num_agents`, then calls
    `super().__init__(buf)`. `step` reads `self.actions` and writes `self.observations`, `rewards`,
    `terminals`, `truncations` and `masks`, one row for each agent. Where an episode ends it writes
    the last observation to `final_observations`, sets the flag, and starts the next episode within
    the same step. Rewards and flags are zero when `step` begins in a vector env. Rows live in `buf`
    or, without one, in memory of the env's own; `bind` moves them.
    """

    single_observation_space: Space
    single_action_space: Space
    num_agents: int = 1
    has_action_masks: bool = False

    observations: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    action_masks: NDArray[np.bool_] | None
    final_observations: NDArray[Any]

    def __init__(self, buf: Buffers | None = None) -> None:
        for name in ("single_observation_space", "single_action_space"):
            if not hasattr(self, name):
                raise UsageError(
                    f"`{name}` must be set before `super().__init__(buf)`, but "
                    f"{type(self).__name__} has none. Try `self.{name} = ...` first."
                )
        self.bind(buf or self._own_buffers())

    def _own_buffers(self) -> Buffers:
        return allocate(
            self.num_agents,
            self.single_observation_space,
            self.single_action_space,
            action_masks=self.has_action_masks,
        )

    def bind(self, buffers: Buffers) -> None:
        """Read and write these rows from now on. The next call must be `reset`."""
        if buffers.num_slots != self.num_agents:
            raise UsageError(
                f"`buf` must have one row for each of {self.num_agents} agents, "
                f"but got {buffers.num_slots}."
            )
        self.observations = buffers.observations
        self.actions = buffers.actions
        self.rewards = buffers.rewards
        self.terminals = buffers.terminals
        self.truncations = buffers.truncations
        self.masks = buffers.masks
        self.action_masks = buffers.action_masks
        self.final_observations = buffers.final_observations

    @property
    def observation_space(self) -> Space:
        """The space of one agent."""
        return self.single_observation_space

    @property
    def action_space(self) -> Space:
        """The space of one agent."""
        return self.single_action_space

    def reset(self, seed: int | None = None) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        """Start an episode and write its first observations."""
        raise NotImplementedError(f"{type(self).__name__} must define `reset`")

    def step(self, actions: NDArray[Any]) -> tuple[Any, ...]:
        """Take one step; return observations, rewards, terminals, truncations, infos."""
        raise NotImplementedError(f"{type(self).__name__} must define `step`")

    def render(self) -> NDArray[np.uint8] | None:
        """Return a picture [height, width, 3], or None where there is none."""
        return None

    def close(self) -> None:
        """Free what the env holds."""
