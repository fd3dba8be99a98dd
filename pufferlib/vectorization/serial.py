"""Serial: one env after another, in this process. The slow, obvious twin of every other backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib import emulation, native
from pufferlib.buffers import allocate
from pufferlib.emulation import Emulated, FiniteCheck, create
from pufferlib.episodes import EpisodeStats, EpisodeTracker
from pufferlib.errors import EnvError, UsageError
from pufferlib.vectorization.base import BufferedVectorEnv


class Serial(BufferedVectorEnv):
    """Runs `num_envs` envs made by `env_creator` in a plain loop over shared rows.

    The envs may be of any kind that `emulation.as_rows` knows; `envs` holds them in that form.
    """

    def __init__(self, env_creator: Callable[[], Any], num_envs: int) -> None:
        if num_envs < 1:
            raise UsageError(f"`num_envs` must be at least 1, but got {num_envs}.")
        self.envs = [create(env_creator)]
        first = self.envs[0]
        self.envs += [create(env_creator, index, first) for index in range(1, num_envs)]
        for index, env in enumerate(self.envs):
            for name in ("num_agents", "single_observation_space", "single_action_space"):
                if getattr(env, name) != getattr(first, name):
                    raise UsageError(
                        f"`{name}` of every env must be that of env 0, {getattr(first, name)}, "
                        f"but env {index} has {getattr(env, name)}."
                    )
        self.num_envs = num_envs
        self.agents_per_env = first.num_agents
        buffers = allocate(
            self.num_agents,
            first.single_observation_space,
            first.single_action_space,
            any(env.has_action_masks for env in self.envs),
        )
        self._attach(buffers, first.single_observation_space, first.single_action_space)
        for index, env in enumerate(self.envs):
            env.bind(buffers.slots(*self._slots(index)))
        self._steps = [(env.step, env.actions) for env in self.envs]
        self._tracker = EpisodeTracker(self.num_agents)
        self._check, self._check_final = (
            FiniteCheck(self.observation_space, rows)
            for rows in (self.observations, self.final_observations)
        )

    def _slots(self, index: int) -> tuple[int, int]:
        return index * self.agents_per_env, (index + 1) * self.agents_per_env

    def reset(self, seed: int | None = None) -> Any:
        self._begin("reset")
        given = self._take_seed(seed)
        assert self._tracker is not None
        self._tracker.reset()
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        is_python = isinstance(self.envs[0], Emulated)
        env_seed = emulation.env_seed if is_python else native.env_seed
        if given is None:
            given = native.fresh_seed() >> (32 if is_python else 0)
        for index, env in enumerate(self.envs):
            env.reset(seed=env_seed(given, index))
            if isinstance(env, Emulated):
                env.drain()
        self._note_agents()
        self._check_finite("reset")
        return self._by_agent(self.observations)

    def _note_agents(self) -> None:
        """Learn the agents' ids where the envs speak in dicts; slots must mean the same in all."""
        self.agent_ids = getattr(self.envs[0], "agent_ids", None)
        for index, env in enumerate(self.envs):
            ids = getattr(env, "agent_ids", None)
            if ids != self.agent_ids:
                raise EnvError(
                    f"agents of every env must be those of env 0, {self.agent_ids}, but env "
                    f"{index} has {ids}. Try `possible_agents`, a list of all ids in order."
                )

    def step(self, actions: Any) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        self._begin("step")
        self._buffers.actions[...] = self._rows(actions)
        present = self.masks.copy()
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        infos: list[dict[str, Any]] = []
        agents = self.agents_per_env
        for step, own_actions in self._steps:
            spoken = step(own_actions)[4]
            if agents == 1 and type(spoken) is dict:
                infos.append(spoken)
            else:
                given = [spoken] if isinstance(spoken, dict) else list(spoken or ())
                infos += (given + [{}] * agents)[:agents]
        ended = self.terminals | self.truncations
        assert self._tracker is not None
        finished = self._tracker.step(self.rewards, ended, present)
        for slot, info in finished.items():
            infos[slot] = {**info, **infos[slot]}
        self._check_finite("step", bool(finished))
        if self.agent_ids is None:
            return self.observations, self.rewards, ended, infos
        self.agent_ids = getattr(self.envs[0], "agent_ids", None)  # one may have come
        rows = (self.observations, self.rewards, ended)
        return *map(self._by_agent, rows), infos

    def _check_finite(self, method: str, ended: bool = False) -> None:
        """Raise if a Python env gave nan or inf; C envs are tested, those are not ours."""
        if not isinstance(self.envs[0], Emulated):
            return
        found = self._check.bad() or (self._check_final.bad() if ended else None)
        if found is not None:
            slot, said = found
            env: Any = self.envs[slot // self.agents_per_env]
            raise env.broken(method, said, slot % self.agents_per_env)

    def drain_metrics(self) -> dict[str, float]:
        stats = EpisodeStats()
        for env in self.envs:
            if hasattr(env, "drain"):
                stats.merge(env.drain())
        assert self._tracker is not None
        counted = self._tracker.drain()
        if not stats.episodes:
            stats.merge(counted)
        return stats.means()

    def snapshot(self) -> NDArray[np.uint8] | None:
        self._begin("snapshot")
        if not all(hasattr(env, "snapshot") for env in self.envs):
            return None
        return np.concatenate([env.snapshot() for env in self.envs])  # type: ignore[attr-defined]

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        if not all(hasattr(each, "restore") for each in self.envs):
            super().restore(state)
        self._begin("restore")
        rows, first = self._state_rows(state, env), env or 0
        for row, each in enumerate(self.envs[first : first + len(rows)]):
            each.restore(rows[row : row + 1])  # type: ignore[attr-defined]
        self._note_restore()

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        self._begin("render")
        if not 0 <= env < self.num_envs:
            raise UsageError(f"`env` must be in 0..{self.num_envs - 1}, but got {env}.")
        picture: NDArray[np.uint8] | None = self.envs[env].render()
        return picture

    def close(self) -> None:
        if not self._closed:
            for env in self.envs:
                env.close()
        super().close()
