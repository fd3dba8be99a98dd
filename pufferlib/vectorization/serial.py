"""Serial: one env after another, in this process. The slow, obvious twin of every other backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import allocate
from pufferlib.env import PufferEnv
from pufferlib.episodes import EpisodeStats, EpisodeTracker
from pufferlib.errors import UsageError
from pufferlib.native import env_seed, fresh_seed
from pufferlib.vectorization.base import BufferedVectorEnv


class Serial(BufferedVectorEnv):
    """Runs `num_envs` envs made by `env_creator` in a plain loop over shared rows."""

    def __init__(self, env_creator: Callable[[], PufferEnv], num_envs: int) -> None:
        if num_envs < 1:
            raise UsageError(f"`num_envs` must be at least 1, but got {num_envs}.")
        self.envs = [env_creator() for _ in range(num_envs)]
        first = self.envs[0]
        for index, env in enumerate(self.envs):
            if not isinstance(env, PufferEnv):
                raise UsageError(
                    f"`env_creator` must return a PufferEnv, but got {type(env).__name__}."
                )
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
            first.has_action_masks,
        )
        self._attach(buffers, first.single_observation_space, first.single_action_space)
        for index, env in enumerate(self.envs):
            env.bind(buffers.slots(*self._slots(index)))
        self._tracker = EpisodeTracker(self.num_agents)

    def _slots(self, index: int) -> tuple[int, int]:
        return index * self.agents_per_env, (index + 1) * self.agents_per_env

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        self._begin("reset")
        given = self._take_seed(seed)
        run_seed = fresh_seed() if given is None else given
        assert self._tracker is not None
        self._tracker.reset()
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        for index, env in enumerate(self.envs):
            env.reset(seed=env_seed(run_seed, index))
        return self.observations

    def step(
        self, actions: Any
    ) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        self._begin("step")
        self._buffers.actions[...] = self._rows(actions)
        present = self.masks.copy()
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        infos: list[dict[str, Any]] = []
        for env in self.envs:
            *_, spoken = env.step(env.actions)
            given = [spoken] if isinstance(spoken, dict) else list(spoken or ())
            infos += (given + [{}] * self.agents_per_env)[: self.agents_per_env]
        ended = self.terminals | self.truncations
        assert self._tracker is not None
        for slot, info in self._tracker.step(self.rewards, ended, present).items():
            infos[slot] = {**info, **infos[slot]}
        return self.observations, self.rewards, ended, infos

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
        return self.envs[env].render()

    def close(self) -> None:
        if not self._closed:
            for env in self.envs:
                env.close()
        super().close()
