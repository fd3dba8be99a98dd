"""Serial: one env after another, in this process. The slow, obvious twin of every other backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.episodes import EpisodeStats, Info
from pufferlib.errors import PufferError, UsageError
from pufferlib.vectorization.base import BufferedVectorEnv, VectorEnv
from pufferlib.vectorization.creators import EnvCreator, Recipe
from pufferlib.vectorization.shard import Shard


class Serial(BufferedVectorEnv):
    """Runs `num_envs` envs made by `env_creator` in a plain loop over shared rows.

    The envs may be of any kind that `emulation.adapt` knows; `envs` holds them in that form. The
    creator may return a vector env too: then `num_envs` of those run, and their envs count one by
    one. `first_env` is the number of the first env in a larger vector, whose seeds these follow.
    """

    backend = "serial"

    def __init__(self, env_creator: EnvCreator, num_envs: int, *, first_env: int = 0) -> None:
        if num_envs < 1:
            raise UsageError(f"`num_envs` must be at least 1, but got {num_envs}.")
        self.shard = Shard(env_creator, num_envs, first_env)
        self.envs = self.shard.envs
        self.num_envs = self.shard.num_envs
        description = self.shard.description
        self.agents_per_env = description.agents_per_env
        self.shard.bind(description.allocate(self.num_agents))
        self._attach(self.shard.buffers, description.observation_space, description.action_space)

    @classmethod
    def from_recipe(cls, recipe: Recipe, options: Mapping[str, Any]) -> Self:
        return cls(recipe.creator(), recipe.num_envs, **options)

    def rebind(self, buffers: Buffers) -> bool:
        self.shard.bind(buffers)
        self._attach(buffers, self.observation_space, self.action_space)
        self._ready = False
        return True

    def place(self, first_env: int) -> bool:
        self.shard.first_env = first_env
        return True

    def reset(self, seed: int | None = None) -> Any:
        self._begin("reset")
        given = self._fresh_seed(seed, self.shard.description.is_python)
        self._ready = False  # until it has succeeded
        self._held = None
        self.shard.reset(given, seeds=self._take_seeds(seed))
        self.agent_ids = self.shard.agent_ids
        return self._by_agent(self.observations)

    def step(self, actions: Any) -> tuple[Any, Any, Any, list[Info]]:
        self._begin("step")
        self._buffers.actions[...] = self._rows(actions)
        try:
            infos, finished = self.shard.step(self._take_held())
        except PufferError:
            self._ready = False  # some envs have taken the step, others have not: `reset` is due
            raise
        for slot, info in finished.items():
            infos[slot] = {**info, **infos[slot]}
        ended = self.terminals | self.truncations
        self.agent_ids = self.shard.agent_ids
        rows = (self.observations, self.rewards, ended)
        return *map(self._by_agent, rows), infos

    def drain_stats(self) -> EpisodeStats:
        stats, counted = self.shard.drain(), self.shard.tracker.drain()
        if not stats.episodes:  # the envs do not count themselves
            stats.merge(counted)
        return stats

    def snapshot(self) -> NDArray[np.uint8] | None:
        self._begin("snapshot")
        return self.shard.snapshot()

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        if not self.shard.description.can_restore:
            super().restore(state)
        self._begin("restore")
        self.shard.restore(self._state_rows(state, env), env or 0)
        self._start_over()

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        self._begin("render")
        self._check_env(env)
        return self.shard.render(env)  # type: ignore[no-any-return]

    def close(self) -> None:
        closed, self._closed = self._closed, True
        if not closed:
            self.shard.close()


VectorEnv._serial = Serial  # what VectorEnv(env_creator, num_envs) runs
