"""Multiprocessing: envs in worker processes, over one shared memory.

A step costs each side one flag: actions and rows lie where all of them can see, infos travel only
when there are any. Workers are started by a launcher (launcher.py), from our own entry point: the
user's script is never imported again. Whatever becomes of a worker, the next call says so.
"""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.episodes import EpisodeStats, Infos, finished
from pufferlib.errors import PufferError, UsageError, WorkerError
from pufferlib.system import check_descriptors, has_workers, usable_cores
from pufferlib.vectorization.base import Batch, BufferedVectorEnv, other_process
from pufferlib.vectorization.creators import pickled
from pufferlib.vectorization.processes.launcher import GRACE_SECONDS
from pufferlib.vectorization.processes.shared_memory import SharedRows
from pufferlib.vectorization.processes.team import Clock, LostWorkerError, Team, rebuilt
from pufferlib.vectorization.processes.worker import ENDED, INTERRUPTED, TURN, Binding
from pufferlib.vectorization.shard import Facts, check_agent_ids
from pufferlib.vectorization.sizes import check_options, unit_ranges

DEFAULT_TIMEOUT = 120.0
_SPIN_US = 5000  # how long to look at a flag before sleeping, where all processes have a core
_LOOK_SECONDS = 0.25  # between looks at workers that nobody waits for
_FDS_PER_WORKER, _FDS = 2, 16  # that a vector opens: channel, and one while it starts


class Multiprocessing(BufferedVectorEnv):
    """Runs `num_envs` envs made by `env_creator` in `num_workers` processes.

    Every worker owns a contiguous range of envs; two of `num_envs`, `num_workers` and
    `envs_per_worker` imply the third. In mode "sync" each batch is the whole vector, and the
    numbers are those of `Serial` for the same seed. In mode "async", `surplus_envs` more run in
    further workers: `reset`, `step` and `recv` hand over the first `num_envs` that are ready, and
    `slots` says which; `step` and `send` take actions for just those, and no step waits for the
    slowest. Rows of a batch are views where its workers are neighbours, else copies.

    `env_creator` is called in the workers and may be a lambda or closure; it may also return a
    vector env. `start_method` is "forkserver" (cheap and clean), "spawn" (a fresh interpreter for
    each worker) or "fork" (of this process). `worker_threads` caps the threads of numeric libraries
    in a worker. `timeout` is how many seconds one call of one env may take, None for any; `restart`
    how many workers that died or hang are replaced before that is an error: their envs begin anew,
    marked truncated.
    """

    def __init__(
        self,
        env_creator: Callable[[], Any],
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
        units, self.num_workers = unit_ranges(
            num_envs, num_workers, envs_per_worker, surplus_envs, usable_cores()
        )
        _warn_of_crowd(len(units))
        check_descriptors(_FDS_PER_WORKER * len(units) + _FDS)
        self.mode = mode
        self.restarts = 0  # workers replaced so far
        self._restarts_left = restart
        self._begin_anew()
        self._team = Team(
            env_creator,
            None if start_method == "fork" else pickled(env_creator),
            units,
            start_method,
            worker_threads,
            timeout,
        )
        fds: list[int] = []
        self._finalizer = weakref.finalize(self, _stop, self._team, fds)
        try:
            facts = self._create(len(units))
            self._share(facts, units, num_envs, surplus_envs, fds)
        except LostWorkerError as error:
            self._give_up(error)
        except BaseException:
            self._closed = True
            self._finalizer()
            raise

    def _begin_anew(self) -> None:
        self._spoken: dict[int, dict[int, dict[str, Any]]] = {}  # by worker, then slot within it
        self._stats, self._counted = EpisodeStats(), EpisodeStats()
        self._idle: list[int] = []  # workers with rows that no batch has handed over yet
        self._running: list[int] = []  # workers with a turn
        self._batch_workers: list[int] = []  # of the batch at hand
        self._unheard: list[int] = []  # idle workers that have something to say
        self._is_quiet = False  # no episode ended in the batch at hand, and nobody spoke
        self._stale: set[int] = set()  # replaced while they had no turn: not reset yet
        self._resetting: set[int] = set()  # workers whose turn is a reset
        self._knows_agents = False  # since that reset
        self._clock_started = time.perf_counter()

    # ---- Starting ------------------------------------------------------------------------------

    def _create(self, num_workers: int) -> Facts:
        """Start all workers; return what they agree on."""
        workers = range(num_workers)
        found: dict[int, Facts] = self._team.create(workers)
        facts = found[0]
        self._team.envs_per_unit = facts.envs_per_unit
        for worker in workers:
            facts.check(found[worker], self._team.envs(worker)[0])
        masked = any(each.has_action_masks for each in found.values())
        return facts._replace(has_action_masks=masked)

    def _share(
        self, facts: Facts, units: list[range], num_envs: int, surplus: int, fds: list[int]
    ) -> None:
        """Give everyone rows in one shared memory."""
        self.num_envs = num_envs * facts.envs_per_unit
        self.surplus_envs = surplus * facts.envs_per_unit
        self.agents_per_env = facts.agents_per_env
        self._facts = facts
        # a look where cores are short would keep the other side off its core
        self._spin_us = _SPIN_US if len(units) < usable_cores() else 0
        self._shared = SharedRows(facts, self.num_agents, len(units), self._spin_us)
        fds.append(self._shared.fd)
        self._flags = self._team.flags = self._shared.flags
        self._attach(self._shared.buffers, facts.observation_space, facts.action_space)
        per_unit = facts.envs_per_unit * facts.agents_per_env
        self._worker_slots = [slice(r.start * per_unit, r.stop * per_unit) for r in units]
        self._workers = np.arange(len(units), dtype=np.int32)
        self._turns = [0] * len(units)  # given to each worker since it was bound
        self._clock = Clock(self._team.timeout)
        self._first_slice_ms = min(20, self._clock.slice_ms)  # few waits are long enough to time
        self._team.bind(range(len(units)), self._binding)
        # what the policy saw last, for the rows of a worker that dies in the middle of writing
        self._kept = self.observations.copy() if self._restarts_left else None
        self._dones, self._was_done = np.zeros(self.num_agents, dtype=np.bool_), False
        self._everyone = self._workers.tolist()
        whole = (self.observations, self.rewards, self.terminals, self.truncations, self.masks)
        self._whole = (slice(0, self.num_agents), *whole)
        self._last_infos: weakref.ref[Infos] | None = None
        self._last_look = 0.0
        self._seed = 0
        self._envs_before = 0  # in a larger vector

    def _binding(self, number: int, worker: int) -> tuple[Binding, tuple[int, ...]]:
        binding = Binding(
            number,
            self._facts,
            self.num_agents,
            len(self._workers),
            self._worker_slots[worker].start,
            self._spin_us,
        )
        return binding, (self._shared.fd,)

    def _begin(self, call: str) -> None:
        super()._begin(call)
        if not self._team.is_ours:
            raise other_process(call, self)

    # ---- Reset -----------------------------------------------------------------------------------

    def place(self, first_env: int) -> bool:
        self._envs_before = first_env
        return True

    def reset(self, seed: int | None = None) -> Any:
        self._begin("reset")
        self._settle_infos()
        given = self._take_seed(seed)
        if given is None:
            given = native.fresh_seed() >> (32 if self._facts.is_python else 0)
        self._seed = given
        self._forget_running()
        self._ready = False  # until it has succeeded
        self._begin_anew()
        if self.surplus_envs:
            self._start_resets()
            self._next_workers()
            return self._by_agent(self.observations[self.slots])
        ids = self._ask(self._workers.tolist(), "reset", given, self._envs_before)
        self.agent_ids = ids[0]
        for worker, own in ids.items():
            check_agent_ids(self.agent_ids, own, self._team.envs(worker)[0])
        self._idle = self._workers.tolist()
        return self._by_agent(self.observations)

    def _start_resets(self) -> None:
        """Let every worker reset its envs as a turn: a batch need not wait for the slowest."""
        self._shared.resets[:] = True, self._seed, self._envs_before
        turns = [turn + 1 for turn in self._turns]
        self._resetting, self._running, self._turns = set(self._everyone), self._everyone, turns
        self._flags.start(self._workers)

    def _ask(self, workers: list[int], call: str, *arguments: Any) -> dict[int, Any]:
        """Call workers that have no turn; lost ones are replaced and asked again."""

        def replace(error: LostWorkerError) -> None:
            self._replace(error)
            if call not in ("reset", "restore"):  # which begin anew by themselves
                self._reset_one(error.worker)
                self._stale.add(error.worker)

        try:
            return self._team.call(workers, call, *arguments, on_lost=replace)
        except LostWorkerError as error:
            self._give_up(error)

    # ---- Steps -----------------------------------------------------------------------------------

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        self._begin("step")
        self._give(actions, is_step=True)
        batch = self._take()
        dones = self._dones
        if self.surplus_envs:
            dones = batch.terminals | batch.truncations
        elif not self._is_quiet:
            np.logical_or(batch.terminals, batch.truncations, out=dones)
        elif self._was_done:
            dones[:] = False
        self._was_done = not self._is_quiet
        if self.agent_ids is None:
            return batch.observations, batch.rewards, dones, batch.infos
        rows = (batch.observations, batch.rewards, dones)
        return *map(self._by_agent, rows), batch.infos

    def send(self, actions: Any) -> None:
        if self._is_step_overridden(Multiprocessing):
            super().send(actions)
            return
        self._begin("send")
        self._give(actions)
        self._sent = True

    def recv(self) -> Batch:
        self._begin("recv")
        if not self._received or (self._sent and not self._is_step_overridden(Multiprocessing)):
            self._batch = self._take()
        self._sent, self._received = False, True
        assert self._batch is not None
        return self._batch

    def _give(self, actions: Any, is_step: bool = False) -> None:
        """Hand actions to the workers of the last batch and let them run.

        A step usually has to wait for nothing but the rows of all workers, and does so here.
        """
        rows = self._rows(actions)
        self._settle_infos()
        if not self._batch_workers:
            self._next_workers()
        workers = self._batch_workers
        if self._spoken:  # by whose batch an interrupt kept from being taken
            self._said_by(workers)
        if workers == self._everyone and self._kept is None:  # the usual, without any detour
            self._buffers.actions[...] = rows
            turns = [turn + 1 for turn in self._turns]
            self._batch_workers, self._running, self._turns = [], workers, turns
            if not is_step:
                self._flags.start(self._workers)
            elif not self._flags.turn(self._workers, self._team.life_fd, self._first_slice_ms):
                self._batch_workers, self._running, self._is_quiet = workers, [], True
            return
        slots = self._slots(workers)
        self._buffers.actions[slots] = rows
        if self._kept is not None:
            self._kept[slots] = self.observations[slots]
        revived = [worker for worker in workers if worker in self._stale]
        for worker in revived:
            self._revive(worker)  # the step that it cannot take any more
        workers = [worker for worker in workers if worker not in revived]
        turns = [turn + (worker in workers) for worker, turn in enumerate(self._turns)]
        given, idle, running = np.array(workers, np.int32), self._idle + revived, self._running
        # from here to `start` an interrupt finds no gap
        self._batch_workers, self._idle, self._running, self._turns = (
            [],
            idle,
            running + workers,
            turns,
        )
        self._flags.start(given)

    def _take(self) -> Batch:
        """Wait for a whole batch and hand it over."""
        if not self._batch_workers:  # an interrupt may have come after they were chosen
            self._next_workers()
        if self._is_quiet:
            self._last_infos = None
            return Batch(*self._whole, Infos(self.num_agents, dict))
        workers = self._batch_workers
        slots = self._slots(workers)
        buffers = self._buffers
        rewards, masks = buffers.rewards[slots], buffers.masks[slots]
        terminals, truncations = buffers.terminals[slots], buffers.truncations[slots]
        ended = terminals | truncations
        spoken = self._said_by(workers)
        if ended.any():
            returns, lengths = self._shared.returns[slots], self._shared.lengths[slots]
            ended &= lengths > 0  # of an episode that was lost with its worker nothing is known
            which = np.flatnonzero(ended)
            if len(which):
                self._counted.add_many(returns[which], lengths[which])
        else:
            returns, lengths = self._shared.returns[:0], self._shared.lengths[:0]
        seconds = time.perf_counter() - self._clock_started

        def build() -> dict[int, dict[str, Any]]:
            infos = finished(ended, returns, lengths, seconds)
            for slot, info in spoken.items():
                infos[slot] = {**infos.get(slot, {}), **info}
            return infos

        infos = Infos(len(rewards), build)
        self._last_infos = weakref.ref(infos)
        return Batch(
            slots, buffers.observations[slots], rewards, terminals, truncations, masks, infos
        )

    def _next_workers(self) -> None:
        """Choose the workers of the next batch, in order of slots; wait until there are enough."""
        wanted = self.num_workers
        self._collect(wanted - len(self._idle))
        chosen, others = sorted(self._idle[:wanted]), self._idle[wanted:]
        self._batch_workers, self._idle = chosen, others
        if self.surplus_envs:
            self._handed = self._slots(chosen)

    def _slots(self, workers: list[int]) -> slice | NDArray[np.int64]:
        first, last = workers[0], workers[-1]
        if last - first == len(workers) - 1:
            return slice(self._worker_slots[first].start, self._worker_slots[last].stop)
        parts = [self._worker_slots[worker] for worker in workers]
        return np.concatenate([np.arange(part.start, part.stop) for part in parts])

    def _said_by(self, workers: list[int]) -> dict[int, dict[str, Any]]:
        """Return slot of the batch -> what envs said in their last step."""
        out: dict[int, dict[str, Any]] = {}
        if self._spoken:
            first = 0
            for worker in workers:
                for slot, info in self._spoken.pop(worker, {}).items():
                    out[first + slot] = info
                slots = self._worker_slots[worker]
                first += slots.stop - slots.start
        return out

    # ---- Waiting ---------------------------------------------------------------------------------

    def _collect(self, count: int) -> None:
        """Wait until `count` more running workers are done, and move all that are to the idle."""
        if self.surplus_envs and time.monotonic() - self._last_look > _LOOK_SECONDS:
            self._look()  # nobody need ever wait for a worker that is lost
        self._is_quiet = False
        if count > 0 and count == len(self._running) == len(self._everyone):
            self._wait(self._workers, count)
            said = self._flags.combined_status(self._workers)
            if not said & ~ENDED and self._kept is None:  # the usual, without any detour
                self._running, self._idle = [], self._everyone
                self._is_quiet = not said
                return
        if count > 0:
            pending = np.array(self._running, dtype=np.int32)
            self._wait(pending, min(count, len(pending)))
            flags = self._flags
            done = flags.ready(pending)
            running = [worker for worker in self._running if worker not in done]
            speaking = [worker for worker in done if flags.status(worker) & ~ENDED]
            # all at once, and before anyone is heard: an interrupt may come at any call
            self._running, self._idle, self._unheard = (
                running,
                self._idle + done,
                self._unheard + speaking,
            )
        failed: dict[int, Exception] = {}
        while self._unheard:
            worker = self._unheard.pop()
            error = self._hear(worker)
            if error is not None:
                failed[worker] = error
        if failed:
            self._ready = False  # `reset` may be called
            raise failed[min(failed)]  # like Serial, which would not have come to the others

    def _hear(self, worker: int) -> Exception | None:
        """Receive what a worker has to say of its turn; return the error if it raised."""
        message = self._team.receive(worker)
        while message is not None and (
            message[0] != self._turns[worker] or message[1] not in ("said", "raised")
        ):
            message = self._team.receive(worker)  # that one was of a call that was interrupted
        if message is None:
            self._lose(self._team.lost(worker, self._call_of(worker), self._flags.progress(worker)))
            return None
        _, kind, value = message
        if kind == "raised" and value.is_lost_worker:
            self._replace(self._team.bereft(worker, self._call_of(worker), value))
            self._revive(worker)  # its step is not done, unlike that of one that died after it
            return None
        if kind == "raised":
            self._resetting.discard(worker)
            return rebuilt(value)
        spoken, stats, ids = value
        if worker in self._resetting:
            return self._note_ids(worker, ids)
        if spoken:
            self._spoken[worker] = spoken
        if stats is not None:
            self._stats.merge(stats)
        if ids is not None and worker == 0:
            self.agent_ids = ids
        return None

    def _note_ids(self, worker: int, ids: tuple[Any, ...] | None) -> Exception | None:
        """Note that the reset of a worker is done; return the error if others have other agents."""
        if not self._knows_agents:
            self.agent_ids, self._knows_agents = ids, True
        self._resetting.discard(worker)
        try:
            check_agent_ids(self.agent_ids, ids, self._team.envs(worker)[0])
        except PufferError as error:
            return error
        return None

    def _call_of(self, worker: int) -> str:
        return "reset" if worker in self._resetting else "step"

    def _wait(self, pending: NDArray[np.int32], count: int) -> None:
        """Wait until `count` running workers are done, whatever becomes of them meanwhile."""
        flags = self._flags
        slice_ms = self._first_slice_ms
        while True:
            waited = flags.wait(pending, count, self._team.life_fd, slice_ms)
            if waited == TURN:
                return
            if waited != INTERRUPTED:
                self._look()
            slice_ms = self._clock.slice_ms

    def _look(self) -> None:
        """Deal with workers that have died, and with those that hang in their turn."""
        team, flags = self._team, self._flags
        self._last_look = time.monotonic()
        try:
            team.news()
        except (LostWorkerError, ValueError, OSError) as error:  # the latter of a closed channel
            if self._closed:
                raise UsageError("`close` was called in the middle of a step.") from None
            if not isinstance(error, LostWorkerError):
                raise
            self._give_up(error)
        for worker in list(team.dead):
            self._lose(team.lost(worker, self._call_of(worker), flags.progress(worker)))
        done = flags.ready(self._workers)
        marks = {w: (self._turns[w], flags.progress(w)) for w in self._running if w not in done}
        late = self._clock.late(marks)
        if late is not None:
            self._lose(team.hung(late, self._call_of(late), flags.progress(late)))

    def _finish_running(self) -> None:
        """Let every running worker finish; what they say is kept for the next batch."""
        self._collect(len(self._running))

    def _forget_running(self) -> None:
        """Let every running worker finish; what they did counts no more."""
        try:
            self._finish_running()
        except WorkerError:
            raise
        except PufferError:
            pass

    def _settle_infos(self) -> None:
        """Build the dicts of the last batch if they are still held: its rows are about to go."""
        infos = self._last_infos() if self._last_infos else None
        if infos is not None:
            infos.detach()

    # ---- Lost workers ----------------------------------------------------------------------------

    def _lose(self, error: LostWorkerError) -> None:
        """Replace a worker that was lost in or between its turns; raise where that is over."""
        worker = error.worker
        self._replace(error)
        if worker in self._running:
            self._revive(worker)
        else:
            self._stale.add(worker)  # its rows are still good
            self._resetting.discard(worker)

    def _replace(self, error: LostWorkerError) -> None:
        """Start another worker with the same envs, which have not been reset yet."""
        worker = error.worker
        while True:
            if self._restarts_left < 1 or error.worker < 0:
                self._give_up(error)
            self._restarts_left -= 1
            self.restarts += 1
            reason = str(error).partition("\n")[0]
            _warn(f"{reason} Replaced; {self._restarts_left} restarts left.")
            # before the new one looks: it must find neither a turn nor the other's sleep
            self._flags.revoke(worker)
            self._turns[worker] = 0
            self._unheard = [other for other in self._unheard if other != worker]
            try:
                self._team.create([worker])
                self._team.bind([worker], self._binding)
                return
            except LostWorkerError as again:
                error = again

    def _give_up(self, error: LostWorkerError) -> NoReturn:
        """End everything, and say why."""
        self._closed = True
        self._finalizer()
        raise WorkerError(
            str(error), error.worker, error.envs, error.signal, error.stderr
        ) from None

    def _reset_one(self, worker: int) -> None:
        """Reset the envs of a replaced worker."""
        seed = native.env_seed(self._seed, 2**40 + self.restarts) % 2**32
        self._team.call([worker], "reset", seed, self._envs_before, on_lost=self._replace)

    def _revive(self, worker: int) -> None:
        """Reset a replaced worker's envs; rows of a step say that the last episode was cut."""
        if worker in self._resetting:
            arguments = (self._seed, self._envs_before)
            try:
                ids = self._team.call([worker], "reset", *arguments, on_lost=self._replace)
                error = self._note_ids(worker, ids[worker])
                if error is not None:
                    raise error
            except PufferError:
                self._ready = False  # `reset` may be called
                raise
            return
        assert self._kept is not None
        self._stale.discard(worker)
        slots = self._worker_slots[worker]
        try:
            self._reset_one(worker)
        except PufferError:
            self._ready = False  # `reset` may be called
            raise
        self.rewards[slots], self.terminals[slots] = 0, False
        self.truncations[slots] = True
        self.final_observations[slots] = self._kept[slots]
        self._shared.returns[slots], self._shared.lengths[slots] = 0, 0
        self._spoken.pop(worker, None)

    # ---- Statistics, state, pictures, end --------------------------------------------------------

    @property
    def worker_pids(self) -> list[int]:
        """The processes of the workers that are alive, in order."""
        self._team.news()
        return [self._team.pids[worker] for worker in sorted(self._team.pids)]

    def drain_stats(self) -> EpisodeStats:
        stats, self._stats = self._stats, EpisodeStats()
        counted, self._counted = self._counted, EpisodeStats()
        if not stats.episodes:  # the envs do not count themselves
            stats.merge(counted)
        return stats

    def drain_metrics(self) -> dict[str, float]:
        metrics = super().drain_metrics()
        return {**metrics, "restarts": float(self.restarts)} if self.restarts else metrics

    def snapshot(self) -> NDArray[np.uint8] | None:
        self._begin("snapshot")
        self._finish_running()
        states = self._ask(self._workers.tolist(), "snapshot")
        if any(state is None for state in states.values()):
            return None
        return np.concatenate([states[worker] for worker in sorted(states)])

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        self._begin("restore")
        rows = self._state_rows(state, env)
        self._settle_infos()
        self._forget_running()
        per_worker = {
            worker: self._team.envs(worker)
            for worker in self._workers.tolist()
            if env is None or env in self._team.envs(worker)
        }
        for worker, envs in per_worker.items():
            own = rows[envs.start : envs.stop] if env is None else rows
            self._ask([worker], "restore", own, 0 if env is None else env - envs.start)
        if env is None:
            self._begin_anew()
        self._idle, self._batch_workers = self._workers.tolist(), []
        if self.surplus_envs:
            self._next_workers()
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        self._note_restore()

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        self._begin("render")
        total = self.num_envs + self.surplus_envs
        if not 0 <= env < total:
            raise UsageError(f"`env` must be in 0..{total - 1}, but got {env}.")
        self._finish_running()
        worker = next(w for w in self._workers.tolist() if env in self._team.envs(w))
        within = env - self._team.envs(worker).start
        picture: NDArray[np.uint8] | None = self._ask([worker], "render", within)[worker]
        return picture

    def close(self) -> None:
        """Close the envs and end the workers. Safe to call twice, and at any moment.

        An env that fails to close, or takes longer than `timeout`, is an error. While an exception
        is on its way, or an env still steps, a second must do.
        """
        closed, self._closed = self._closed, True
        if closed:
            return
        failed: Exception | None = None
        try:
            if self._finalizer.alive and self._team.is_ours:  # not those of whom this is a fork
                self._settle_infos()
                if not self._running:
                    failed = self._close_envs()
        finally:
            self._finalizer()
        if failed is not None:
            raise failed

    def _close_envs(self) -> Exception | None:
        """Let idle workers close their envs; return the error if one does not."""
        team = self._team
        if sys.exc_info()[0] is not None:
            team.timeout = min(team.timeout or math.inf, GRACE_SECONDS)
        try:
            team.call(self._workers.tolist(), "close")
        except LostWorkerError as error:
            if not self._restarts_left:
                return WorkerError(str(error), error.worker, error.envs, error.signal, error.stderr)
            _warn(str(error))
        except PufferError as error:
            return error
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except PufferError as failed:
            if error is None:
                raise
            _warn(str(failed))  # the error on its way says more


def _stop(team: Team, fds: list[int]) -> None:
    try:
        team.stop()
    finally:
        while fds:
            os.close(fds.pop())


def _warn_of_crowd(num_workers: int) -> None:
    cores = usable_cores()
    if num_workers > cores:
        _warn(
            f"{num_workers} workers share {cores} core{'s' * (cores > 1)}: fine for envs that "
            "wait, slower for envs that compute."
        )


def _warn(message: str) -> None:
    """Warn of the line that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("pufferlib."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
