"""Our multi-agent envs for PettingZoo."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.adapters.driver import FRAMES_PER_SECOND, RENDER_MODE, VectorDriver, one_env
from pufferlib.emulation import MASK_KEY, Emulated
from pufferlib.env import AgentId
from pufferlib.episodes import Info
from pufferlib.errors import UsageError, imported, unknown_name
from pufferlib.spaces import Array, Space, flatten_action
from pufferlib.vectorization import Batch, VectorEnv

if TYPE_CHECKING:
    from pettingzoo import ParallelEnv


def to_pettingzoo(env: Any, **params: Any) -> ParallelEnv[Any, Any, Any]:
    """Return one multi-agent env as a `ParallelEnv` of PettingZoo.

    `env` is the name of an env, a VectorEnv of one env, or whatever `emulate` takes; `params` are
    the env's own.
    """
    made: ParallelEnv[Any, Any, Any] = _pettingzoo_class()(one_env(env, params))
    return made


class _ParallelMethods:
    """The methods of a ParallelEnv, mixed into PettingZoo's class when that is imported.

    An agent that has ended is gone until `reset`, as PettingZoo demands. Where its env restarts it
    at once, the slot continues with action 0 and is not shown.
    """

    render_mode = RENDER_MODE

    def __init__(self, vecenv: VectorEnv) -> None:
        self._driver = VectorDriver(vecenv)
        self.vecenv = vecenv
        self.metadata = {
            "name": vecenv.name or type(vecenv).__name__,
            "render_modes": [RENDER_MODE],
            "render_fps": FRAMES_PER_SECOND,
            "is_parallelizable": True,
        }
        slots = range(self._driver.num_slots)
        # copies: seeding the space of one agent must not seed those of the others
        self._observation_spaces = [copy.deepcopy(self._driver.observation_space) for _ in slots]
        self._action_spaces = [copy.deepcopy(self._driver.action_space) for _ in slots]
        self._learn_ids()
        self.agents: list[AgentId] = []
        self._gone: set[AgentId] = set()  # agents that have ended, until reset
        self._next: Batch | None = None  # has the first observations of the next episode

    def _learn_ids(self) -> None:
        envs = self.vecenv.envs
        if envs and isinstance(envs[0], Emulated) and not envs[0].agent_ids:
            held = self.vecenv._next_seed  # must not be used up by this reset
            self.vecenv.reset()
            if held is not None:
                self.vecenv.seed(held)
        self._note_ids()

    def _note_ids(self) -> None:
        ids = self.vecenv.agent_ids
        envs = self.vecenv.envs
        if not ids and envs and isinstance(envs[0], Emulated):
            ids = envs[0].agent_ids
        known = list(ids or ())
        known += [f"agent_{slot}" for slot in range(len(known), self._driver.num_slots)]
        self.possible_agents = known
        self._slot_of = {id: slot for slot, id in enumerate(known)}

    @property
    def observation_spaces(self) -> dict[AgentId, Space]:
        return dict(zip(self.possible_agents, self._observation_spaces, strict=True))

    @property
    def action_spaces(self) -> dict[AgentId, Space]:
        return dict(zip(self.possible_agents, self._action_spaces, strict=True))

    def observation_space(self, agent: AgentId) -> Space:
        """Return the observation space of one agent, the same object each time."""
        return self._observation_spaces[self._slot(agent)]

    def action_space(self, agent: AgentId) -> Space:
        """Return the action space of one agent, the same object each time."""
        return self._action_spaces[self._slot(agent)]

    def _slot(self, agent: AgentId) -> int:
        if agent not in self._slot_of:
            raise unknown_name("agent", str(agent), map(str, self.possible_agents))
        return self._slot_of[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[AgentId, Any], dict[AgentId, Info]]:
        """Start an episode of all agents. There are no `options`."""
        batch = self._next if seed is None else None
        if batch is None:
            batch = self._driver.reset(seed)
        self._next = None
        self._note_ids()
        self._gone = set()
        self.agents = [id for id, slot in self._slot_of.items() if batch.masks[slot]]
        masks = self._driver.action_masks()
        observations, infos = {}, {}
        for id in self.agents:
            slot = self._slot_of[id]
            observations[id] = self._driver.observation(batch.observations[slot, ...])
            infos[id] = {} if masks is None else {MASK_KEY: masks[slot]}
        return observations, infos

    def step(self, actions: Mapping[AgentId, Any]) -> tuple[dict[AgentId, Any], ...]:
        """Step all agents at once; `actions` has one for each of `agents`."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        present = self.vecenv.masks.copy()
        self._driver.send_rows(self._action_rows(actions))
        batch = self._driver.recv()
        ended = batch.terminals | batch.truncations
        self._note_ids()
        is_over = self._is_over(batch, ended, present)
        if not is_over:
            self.agents += [
                id
                for id, slot in self._slot_of.items()
                if batch.masks[slot] and id not in self.agents and id not in self._gone
            ]
        result = self._step_dicts(batch, ended, is_over)
        left = {id for id in self.agents if ended[self._slot_of[id]] or is_over}
        self._gone |= left
        self.agents = [id for id in self.agents if id not in left]
        self._next = batch if is_over else None
        return result

    def _is_over(self, batch: Batch, ended: NDArray[np.bool_], present: NDArray[np.bool_]) -> bool:
        """Return whether a new episode of all agents began in this step.

        Then every agent that was present has ended, and one that has ended is back. A new agent
        alone does not count: it replaces those that leave.
        """
        if not ended.any() or not (ended | ~present).all():
            return False
        finished = self._gone | {id for id in self.agents if ended[self._slot_of[id]]}
        return any(batch.masks[self._slot_of[id]] for id in finished)

    def _action_rows(self, actions: Mapping[AgentId, Any]) -> Array:
        layout = self._driver.action_layout
        rows = np.zeros((self._driver.num_slots, *layout.shape), dtype=layout.dtype)
        for id in actions:
            self._slot(id)
        for id in self.agents:
            if id not in actions:
                raise UsageError(f"`actions` must have one for each agent, but lacks {id!r}.")
            flatten_action(layout, actions[id], rows[self._slot_of[id], ...])
        return rows

    def _step_dicts(
        self, batch: Batch, ended: NDArray[np.bool_], is_over: bool
    ) -> tuple[dict[AgentId, Any], ...]:
        """Return the five dicts of a step."""
        finals, masks = self.vecenv.final_observations, self._driver.action_masks()
        observations, rewards, terminated, truncated, infos = {}, {}, {}, {}, {}
        for id in self.agents:
            slot = self._slot_of[id]
            rows = finals if ended[slot] else batch.observations
            observations[id] = self._driver.observation(rows[slot, ...])
            rewards[id] = float(batch.rewards[slot])
            terminated[id] = bool(batch.terminals[slot])
            # an agent that was only waiting when the episode ended is truncated
            truncated[id] = bool(batch.truncations[slot] or (is_over and not ended[slot]))
            infos[id] = dict(batch.infos[slot])
            if "episode" in infos[id]:  # without its time, which differs between equal runs
                episode = infos[id]["episode"]
                infos[id]["episode"] = {key: episode[key] for key in episode if key != "t"}
            if masks is not None:
                infos[id][MASK_KEY] = masks[slot]
        return observations, rewards, terminated, truncated, infos

    def render(self) -> Any:
        """Return a picture [height, width, 3], or None where there is none."""
        return self.vecenv.render()

    def close(self) -> None:
        self.vecenv.close()


@cache
def _pettingzoo_class() -> Any:
    base = imported("pettingzoo", "pettingzoo", "PettingZoo").ParallelEnv
    return new_class("PettingZooEnv", (_ParallelMethods, base))
