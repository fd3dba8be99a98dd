"""Multiprocessing: envs in worker processes, over one shared memory.

A step costs each side one flag: actions and rows are in memory that all processes map, and infos
travel only when there are any. A launcher (processes/launcher.py) starts the workers from our own
entry point, so the user's script is never imported again. If a worker dies, the next call says so.
"""

from __future__ import annotations

import math
import os
import sys
import time
import weakref
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError
from pufferlib.system import check_descriptors, has_workers, usable_cores
from pufferlib.vectorization.creators import EnvCreator
from pufferlib.vectorization.failures import LostWorkerError, OnLost, rebuilt
from pufferlib.vectorization.processes.launcher import GRACE_SECONDS
from pufferlib.vectorization.processes.shared_memory import SharedRows
from pufferlib.vectorization.processes.worker import (
    ENDED,
    INTERRUPTED,
    QUIET,
    TURN,
    UNLIKE,
    Binding,
)
from pufferlib.vectorization.processes.worker_group import Clock, WorkerGroup
from pufferlib.vectorization.shard import EnvDescription, TurnReport
from pufferlib.vectorization.sizes import check_options, unit_ranges
from pufferlib.vectorization.workers import DEFAULT_TIMEOUT, WorkerVectorEnv, warn

_SPIN_US = 5000  # how long to look at a flag before sleeping, where all processes have a core
_FIRST_WAIT_MS = 20  # until the first check for dead workers: few waits are longer
_CHECK_SECONDS = 0.25  # between checks of workers that no batch waits for
_FDS_PER_WORKER, _FDS = 2, 16  # that a vector opens: channel, and one while it starts


class Multiprocessing(WorkerVectorEnv):
    """Runs `num_envs` envs made by `env_creator` in `num_workers` processes.

    Every worker owns a contiguous range of envs; two of `num_envs`, `num_workers` and
    `envs_per_worker` imply the third. In mode "sync" each batch is the whole vector, and the
    numbers are those of `Serial` for the same seed. In mode "async", `surplus_envs` more run in
    further workers: `reset`, `step` and `recv` hand over the first `num_envs` that are ready, and
    `slots` lists them; `step` and `send` take actions for just those, and no step waits for the
    slowest. Rows of a batch are views where its workers are neighbours, else copies.

    `env_creator` is called in the workers and may be a lambda or closure; it may also return a
    vector env. `start_method` is "forkserver" (cheap and clean), "spawn" (a fresh interpreter for
    each worker) or "fork" (of this process). `worker_threads` caps the threads of numeric libraries
    in a worker. `timeout` is how many seconds one call of one env may take, None for no limit.
    `restart` is how many workers that died or hang are replaced before that is an error: their envs
    start new episodes, and the old ones are marked truncated.
    """

    backend = "multiprocessing"

    def __init__(
        self,
        env_creator: EnvCreator,
        num_envs: int,
        num_workers: int | None = None,
        envs_per_worker: int | None = None,
        mode: Literal["sync", "async"] = "sync",
        surplus_envs: int = 0,
        *,
        start_method: Literal["forkserver", "spawn", "fork"] = "forkserver",
        worker_threads: int = 1,
        timeout: float | None = DEFAULT_TIMEOUT,
        restart: int = 0,
    ) -> None:
        if not has_workers():
            raise UsageError("Multiprocessing needs Linux for now. Try Serial.")
        check_options(mode, surplus_envs, worker_threads, timeout, restart)
        units, workers = unit_ranges(
            num_envs, num_workers, envs_per_worker, surplus_envs, usable_cores()
        )
        cores = usable_cores()
        if len(units) > cores:
            warn(
                f"{len(units)} workers share {cores} core{'s' * (cores > 1)}: fine for envs that "
                "wait, slower for envs that compute."
            )
        check_descriptors(_FDS_PER_WORKER * len(units) + _FDS)
        self._plan(units, workers, mode, restart)
        self._workers = np.arange(len(units), dtype=np.int32)
        self._group = WorkerGroup(
            env_creator, self._partition, start_method, worker_threads, timeout
        )
        self._owner = os.getpid()
        self._fds: list[int] = []
        self._finalizer = weakref.finalize(self, _stop, self._group, self._fds)
        self._open(num_envs, surplus_envs)

    def _create(self, workers: list[int]) -> dict[int, EnvDescription]:
        return self._group.create(workers)

    def _allocate(self) -> None:
        # where cores are short, spinning would keep the other side off its core
        num_workers = len(self._everyone)
        spin_us = _SPIN_US if num_workers < usable_cores() else 0
        self._sizes = (self.num_agents, num_workers, spin_us)
        self._shared = SharedRows(self._description, *self._sizes)
        self._fds.append(self._shared.fd)
        self._flags = self._group.flags = self._shared.flags
        self._life_fd = self._group.life_fd
        self._clock = Clock(self._group.timeout)
        self._first_wait_ms = min(_FIRST_WAIT_MS, self._clock.slice_ms)
        self._last_check = 0.0
        self._share(self._shared.buffers, self._shared.returns, self._shared.lengths)
        if self._action_layout.is_plain and self._kept is None and not self.surplus_envs:
            self._flags.set_actions(self._buffers.actions)  # else `_repeat` does nothing
        self._group.bind(self._everyone, self._binding)

    def _binding(self, number: int, worker: int) -> tuple[Binding, tuple[int, ...]]:
        first_slot = self._worker_slots[worker].start
        return Binding(number, self._description, self._sizes, first_slot), (self._shared.fd,)

    @property
    def worker_pids(self) -> list[int]:
        """The processes of the workers that are alive, in order."""
        self._group.read_news()
        return [self._group.pids[worker] for worker in sorted(self._group.pids)]

    # ---- Turns ---------------------------------------------------------------------------------

    def _repeat(self, actions: Any) -> bool:
        if self._sent or self._closed or not self._batch_workers or self._owner != os.getpid():
            return False
        # an interrupt may leave it so: turns that were not started count as done
        self._batch_workers, self._running, self._is_quiet = [], self._everyone, False
        bits: int = self._flags.step(actions, self._life_fd, self._first_wait_ms)
        if bits in (QUIET, UNLIKE):
            self._batch_workers, self._running, self._is_quiet = self._everyone, [], bits == QUIET
        return bits != UNLIKE

    def _start_step(self, workers: list[int], idle: list[int]) -> None:
        is_whole = len(workers) == len(self._everyone)
        given = self._workers if is_whole else np.array(workers, dtype=np.int32)
        # an interrupt finds no gap between this line and the start
        self._batch_workers, self._idle, self._running = [], idle, self._running + workers
        self._flags.start(given)

    def _start_reset(self) -> None:
        if not self.surplus_envs:
            try:
                self._reset_by_call(self._everyone)
            except LostWorkerError as error:
                self._give_up(error)
            self._idle = self._everyone
            return
        self._shared.resets[:] = True, self._seed, self._envs_before
        self._resetting, self._running = set(self._everyone), self._everyone
        self._flags.start(self._workers)

    def _await(self, count: int) -> None:
        if self.surplus_envs and time.monotonic() - self._last_check > _CHECK_SECONDS:
            self._check_workers()  # a batch may never have to wait for one that is lost
        if count < 1:
            return
        flags = self._flags
        if count == len(self._everyone):
            self._wait(self._workers, count)
            bits = flags.status_of_all()
            if not bits & ~ENDED and self._kept is None:  # the usual case, without any detour
                self._running, self._idle = [], self._everyone
                self._is_quiet = not bits
                return
        pending = np.array(self._running, dtype=np.int32)
        self._wait(pending, count)
        done = flags.ready(pending)
        running = [worker for worker in self._running if worker not in done]
        unread = [worker for worker in done if flags.status(worker) & ~ENDED]
        idle, unread = self._idle + done, self._unread + unread
        self._running, self._idle, self._unread = running, idle, unread

    def _wait(self, pending: NDArray[np.int32], count: int) -> None:
        """Wait until `count` running workers are done; deal with those that are lost meanwhile."""
        wait_ms = self._first_wait_ms
        while True:
            waited = self._flags.wait(pending, count, self._group.life_fd, wait_ms)
            if waited == TURN:
                return
            if waited != INTERRUPTED:
                self._check_workers()
            wait_ms = self._clock.slice_ms

    def _report(self, worker: int) -> TurnReport | None:
        message = self._group.receive(worker)
        while message is not None and (
            message[0] != self._flags.turns(worker) or message[1] not in ("report", "raised")
        ):
            message = self._group.receive(worker)  # that one belonged to an interrupted call
        if message is None:  # it died after its turn
            self._lose(self._lost(worker))
            return None
        _, kind, value = message
        if kind == "raised" and value.is_lost_worker:
            raise self._group.lost_inside(worker, self._call_of(worker), value)
        if kind == "raised":
            raise rebuilt(value)
        report: TurnReport = value
        return report

    # ---- Lost workers --------------------------------------------------------------------------

    def _check_workers(self) -> None:
        """Deal with workers that have died, and with those that hang in their turn."""
        group, flags = self._group, self._flags
        self._last_check = time.monotonic()
        try:
            group.read_news()
        except (LostWorkerError, ValueError, OSError) as error:  # the latter of a closed channel
            if self._closed:
                raise UsageError("`close` was called in the middle of a step.") from None
            if not isinstance(error, LostWorkerError):
                raise
            self._give_up(error)
        for worker in list(group.dead):
            self._lose(self._lost(worker))
        done = flags.ready(self._workers)
        marks = {w: (flags.turns(w), flags.progress(w)) for w in self._running if w not in done}
        late = self._clock.late(marks)
        if late is not None:
            self._lose(group.hung(late, self._call_of(late), flags.progress(late)))

    def _lost(self, worker: int) -> LostWorkerError:
        return self._group.lost(worker, self._call_of(worker), self._flags.progress(worker))

    def _recreate(self, worker: int) -> None:
        # before the new process looks: it must find neither a turn nor the sleep of the old one
        self._flags.revoke(worker)
        self._shared.resets[worker] = 0
        self._group.create([worker])
        self._group.bind([worker], self._binding)

    # ---- Calls and end -------------------------------------------------------------------------

    def _call(
        self, workers: list[int], call: str, *arguments: object, on_lost: OnLost = None
    ) -> dict[int, Any]:
        return self._group.call(workers, call, *arguments, on_lost=on_lost)

    def _close_envs(self) -> None:
        if self._group.is_ours:  # else this is a fork of the process that made the workers
            if sys.exc_info()[0] is not None:
                self._group.timeout = min(self._group.timeout or math.inf, GRACE_SECONDS)
            super()._close_envs()


def _stop(group: WorkerGroup, fds: list[int]) -> None:
    try:
        group.stop()
    finally:
        while fds:
            os.close(fds.pop())
