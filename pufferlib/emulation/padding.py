"""PadAgents: one shape for agents whose spaces differ, so that they can share a policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.emulation.base import MASK_KEY
from pufferlib.emulation.inspection import unwrapped_of
from pufferlib.env import AgentId
from pufferlib.errors import UsageError
from pufferlib.spaces import Space, largest_space


class PadAgents:
    """A PettingZoo parallel env in which every agent has the largest spaces of any.

    Boxes of one dtype and number of axes are padded with zeros at the end of each axis. A Discrete
    action gets the largest number of choices; those an agent does not have are masked in its info,
    and count as its choice 0 if taken all the same. A Box action loses its padding on the way in.
    """

    def __init__(self, env: Any) -> None:
        if not hasattr(env, "possible_agents") or hasattr(env, "agent_selection"):
            raise UsageError(
                f"`env` must be a PettingZoo parallel env, but got {type(env).__name__}. "
                "Try `aec_to_parallel` around an AEC env."
            )
        self.env = env
        self.metadata = getattr(env, "metadata", {})
        self.render_mode = getattr(env, "render_mode", None)
        self.possible_agents = list(env.possible_agents)
        self._observation_spaces = {id: env.observation_space(id) for id in self.possible_agents}
        self._action_spaces = {id: env.action_space(id) for id in self.possible_agents}
        self._observation_space = largest_space("observation_space", self._observation_spaces)
        self._action_space = largest_space("action_space", self._action_spaces)
        self._masks: dict[AgentId, NDArray[np.int8]] = {}  # the choices that each agent has
        if not self._action_space.shape:
            choices = np.arange(self._action_space.n)  # type: ignore[attr-defined]
            for id, space in self._action_spaces.items():
                self._masks[id] = (choices < space.n).astype(np.int8)

    @property
    def agents(self) -> list[AgentId]:
        return list(self.env.agents)

    @property
    def unwrapped(self) -> Any:
        return unwrapped_of(self.env)

    def observation_space(self, agent: AgentId) -> Space:
        """Return the space that all agents share."""
        return self._observation_space

    def action_space(self, agent: AgentId) -> Space:
        """Return the space that all agents share."""
        return self._action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._padded(observations), self._masked(infos, observations)

    def step(self, actions: Mapping[AgentId, Any]) -> tuple[Any, Any, Any, Any, Any]:
        own = {id: self._own_action(id, action) for id, action in actions.items()}
        observations, rewards, terminations, truncations, infos = self.env.step(own)
        padded, masked = self._padded(observations), self._masked(infos, observations)
        return padded, rewards, terminations, truncations, masked

    def _own_action(self, id: AgentId, action: Any) -> Any:
        space = self._action_spaces[id]
        if self._masks:
            return action if action < space.n else 0
        return np.asarray(action)[tuple(slice(n) for n in space.shape)]

    def _padded(self, observations: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        space = self._observation_space
        if not space.shape:  # Discrete: a smaller one fits as it is
            return dict(observations)
        out = {}
        for id, observation in observations.items():
            out[id] = np.zeros(space.shape, space.dtype)
            out[id][tuple(slice(n) for n in np.shape(observation))] = observation
        return out

    def _masked(
        self, infos: Mapping[AgentId, Any], present: Mapping[AgentId, Any]
    ) -> dict[AgentId, Any]:
        ids = dict.fromkeys([*infos, *present])
        if not self._masks:
            return {id: infos.get(id, {}) for id in ids}
        return {id: {MASK_KEY: self._masks[id], **infos.get(id, {})} for id in ids}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()
