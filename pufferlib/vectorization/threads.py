"""Threads: C envs stepped by a pool of threads over contiguous ranges of envs."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers, num_bytes
from pufferlib.episodes import EpisodeStats, Infos
from pufferlib.errors import UsageError
from pufferlib.native import NativeCreator, NativeVec
from pufferlib.system import check_memory, usable_cores
from pufferlib.vectorization.base import Batch, BufferedVectorEnv
from pufferlib.vectorization.creators import Recipe

_MANY = 4096  # envs; fewer fit always, and need no look at one of them first


class Threads(BufferedVectorEnv):
    """Runs `num_envs` envs of the C core on `num_workers` threads (all cores by default).

    Rows, infos and statistics are the same for any number of threads.

    With `double_buffer` the slots are two batches, and one steps while the policy looks at the
    other: `recv` and `send` deal with half the slots each, the lower ones first, then in turns.
    `send` answers the oldest batch that has no answer yet; so after `recv` twice in a row no half
    is stepping, and `send` twice starts both again. `reset` and `step` deal with all slots. Other
    calls wait for a half that is stepping; a `snapshot` then lacks its rewards and flags.
    """

    backend = "threads"

    def __init__(
        self,
        env_creator: NativeCreator | str,
        num_envs: int,
        num_workers: int | None = None,
        double_buffer: bool = False,
        **settings: Any,
    ) -> None:
        name = env_creator if isinstance(env_creator, str) else env_creator.name
        workers = min(usable_cores(), num_envs) if num_workers is None else num_workers
        if num_envs > _MANY:
            one = NativeVec(name, 1, 1, settings)
            spaces = one.observation_space, one.action_space
            rows = num_bytes(num_envs * one.num_slots, *spaces, one.has_action_masks)
            check_memory(rows, "the rows of all envs", "num_envs")
        self._vec = NativeVec(name, num_envs, workers, settings, double_buffer=double_buffer)
        self._owner = os.getpid()
        self.num_envs = num_envs
        self.num_workers = workers
        self.batches, self._has_halves = (2, True) if double_buffer else (1, False)
        self.agents_per_env = self._vec.agents_per_env
        self.metric_names = tuple(metric.name for metric in self._vec.info.metrics)
        self._attach(self._vec.buffers, self._vec.observation_space, self._vec.action_space)
        self._dones = np.zeros(self.num_agents, dtype=np.bool_)
        middle = self.num_agents // 2
        self._halves = (slice(0, middle), slice(middle, self.num_agents))
        self._num_received = self._num_sent = 0  # halves since the last reset
        self._last_infos: list[weakref.ref[Infos] | None] = [None, None]  # of each half

    @classmethod
    def from_recipe(cls, recipe: Recipe, options: Mapping[str, Any]) -> Self:
        creator: Any = recipe.entry_point  # a NativeCreator: `make` has checked that
        return cls(creator, recipe.num_envs, recipe.num_workers, **options, **recipe.settings)

    def rebind(self, buffers: Buffers) -> bool:
        self._vec.bind(buffers)
        self._attach(buffers, self.observation_space, self.action_space)
        self._ready = False
        return True

    def place(self, first_env: int) -> bool:
        self._vec.place(first_env)
        return True

    def reset(self, seed: int | None = None) -> NDArray[np.generic]:
        self._begin("reset")
        self._detach_infos()
        seeds = self._take_seeds(seed)
        each = None if seeds is None else np.array(seeds, dtype=np.uint64)
        self._vec.reset(self._fresh_seed(seed), each)
        self._held = None
        self._handed, self._num_received, self._num_sent = None, 0, 0
        return self.observations

    def step(self, actions: Any) -> tuple[NDArray[np.generic], NDArray[np.float32], Any, Infos]:
        self._begin("step")
        rows = self._rows(actions, None if self.batches == 1 else slice(0, self.num_agents))
        self._detach_infos()
        self._vec.step(rows, self._take_held())
        self._handed = None
        self._num_received, self._num_sent = 2, 0  # the caller has seen both, and answered none
        infos = Infos(self.num_agents, self._vec.episode_infos)
        self._last_infos = [weakref.ref(infos)] * 2
        dones = np.logical_or(self.terminals, self.truncations, out=self._dones)
        return self.observations, self.rewards, dones, infos

    def _give(self, actions: Any) -> None:
        half = self._num_sent % 2
        rows = self._rows(actions, self._halves[half])
        self._detach_infos(half)
        self._buffers.actions[self._halves[half]] = rows
        self._vec.begin(half)
        self._num_sent += 1

    def _take(self) -> Batch:
        if self.batches == 1:
            return super()._take()
        half = self._num_received % 2
        self._vec.finish(half)
        self._num_received += 1
        self._handed = self._halves[half]
        infos = Infos(self.batch_slots, functools.partial(self._vec.episode_infos, half))
        self._last_infos[half] = weakref.ref(infos)
        return self._batch_of(infos)

    def _begin(self, call: str) -> None:
        if self.batches == 2:  # halves are counted below
            self._sent = self._received = False
        super()._begin(call)
        if self.batches == 1:
            return
        unanswered = self._num_received - self._num_sent
        is_under_way = self._num_sent > max(0, self._num_received - 2)
        if call == "send" and unanswered == 0:
            raise UsageError("`recv` must be called before the next `send`.")
        if call == "recv" and unanswered == 2:
            raise UsageError("`send` must be called before the next `recv`.")
        if call == "step" and is_under_way:
            raise UsageError("`recv` must be called before `step`: a half is still stepping.")

    def _detach_infos(self, half: int | None = None) -> None:
        """Let the infos of the last step, if they are still held, forget its rows: they change."""
        for held in self._last_infos if half is None else [self._last_infos[half]]:
            infos = held() if held else None
            if infos is not None:
                infos.detach()

    def handle(self) -> Any:
        """Return the core's vector, for code in C that steps the envs after a `recv`.

        The rows of the last batch are those of the last step then.
        """
        self._begin("send")
        self._detach_infos()
        return self._vec.handle()

    def drain_stats(self) -> EpisodeStats:
        return EpisodeStats() if self._closed else self._vec.drain()

    def snapshot(self) -> NDArray[np.uint8]:
        self._begin("snapshot")
        return self._vec.snapshot()

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        self._begin("restore")
        rows = self._state_rows(state, env)
        self._detach_infos()
        self._vec.restore(rows, env or 0)
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        self._handed, self._num_received, self._num_sent = None, 0, 0
        self._start_over()

    def render(self, env: int = 0) -> NDArray[np.uint8]:
        self._begin("render")
        return self._vec.render(env)

    def close(self) -> None:
        if not self._closed:
            self._detach_infos()
            self._vec.close()
        super().close()
