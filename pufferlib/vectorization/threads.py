"""Threads: C envs stepped by a pool of threads over contiguous ranges of envs."""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.episodes import Infos
from pufferlib.native import NativeCreator, NativeVec, fresh_seed
from pufferlib.vectorization.base import BufferedVectorEnv


class Threads(BufferedVectorEnv):
    """Runs `num_envs` envs of the C core on `num_workers` threads (all cores by default).

    Rows, infos and statistics are the same for any number of threads.
    """

    def __init__(
        self,
        env_creator: NativeCreator | str,
        num_envs: int,
        num_workers: int | None = None,
        **settings: Any,
    ) -> None:
        name = env_creator if isinstance(env_creator, str) else env_creator.name
        workers = min(usable_cores(), num_envs) if num_workers is None else num_workers
        self._vec = NativeVec(name, num_envs, workers, settings)
        self.num_envs = num_envs
        self.num_workers = workers
        self.agents_per_env = self._vec.agents_per_env
        self._attach(self._vec.buffers, self._vec.observation_space, self._vec.action_space)
        self._dones = np.zeros(self.num_agents, dtype=np.bool_)
        self._last_infos: weakref.ref[Infos] | None = None

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        self._begin("reset")
        self._settle_infos()
        given = self._take_seed(seed)
        self._vec.reset(fresh_seed() if given is None else given)
        return self.observations

    def step(self, actions: Any) -> tuple[NDArray[Any], NDArray[np.float32], Any, Infos]:
        self._begin("step")
        rows = self._rows(actions)
        self._settle_infos()
        self._vec.step(rows)
        infos = Infos(self.num_agents, self._vec.spoken)
        self._last_infos = weakref.ref(infos)
        dones = np.logical_or(self.terminals, self.truncations, out=self._dones)
        return self.observations, self.rewards, dones, infos

    def _settle_infos(self) -> None:
        """Build the dicts of the last step if they are still held: its rows are about to go."""
        infos = self._last_infos() if self._last_infos else None
        if infos is not None:
            infos.settle()

    def drain_metrics(self) -> dict[str, float]:
        return self._vec.drain().means()

    def snapshot(self) -> NDArray[np.uint8]:
        self._begin("snapshot")
        return self._vec.snapshot()

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        self._begin("restore")
        rows = self._state_rows(state, env)
        self._settle_infos()
        self._vec.restore(rows, env or 0)
        self._note_restore()

    def render(self, env: int = 0) -> NDArray[np.uint8]:
        self._begin("render")
        return self._vec.render(env)

    def close(self) -> None:
        if not self._closed:
            self._settle_infos()
            self._vec.close()
        super().close()


def usable_cores() -> int:
    """Return the number of cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
