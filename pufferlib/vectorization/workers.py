"""WorkerVectorEnv: the state machine of vector envs whose envs run in workers.

A worker *runs* while it has a turn (one step or one reset of its envs), is *idle* once its rows are
ready, and is part of the *batch* once they are handed over. A backend adds the transport: how turns
start, how their end is noticed, and how workers are called and created. Those are the methods at
the end of the class. They never call back into `reset`, `step`, `send` or `recv`.
"""

from __future__ import annotations

import pickle
import sys
import time
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.buffers import Buffers
from pufferlib.env import AgentIds
from pufferlib.episodes import EpisodeStats, Finished, Info, Infos
from pufferlib.errors import PufferError, WorkerError
from pufferlib.vectorization.base import Batch, BufferedVectorEnv, StepResult
from pufferlib.vectorization.failures import LostWorkerError, OnLost, unreadable
from pufferlib.vectorization.shard import EnvDescription, TurnReport, check_agent_ids
from pufferlib.vectorization.sizes import Partition

DEFAULT_TIMEOUT = 120.0

# the first slot of each worker in a batch, and a function that returns infos by slot within it
Reports: TypeAlias = list[tuple[int, Callable[[], dict[int, Info]]]]


class WorkerVectorEnv(BufferedVectorEnv):
    """The common part of `Multiprocessing` and `Ray`.

    An interrupt may end any call at any point, and the next call must find a sound state. So lists
    of workers that change together are assigned in one statement.
    """

    mode: str  # "sync", or "async": batches of the workers that are ready
    restarts: int = 0  # workers replaced so far
    _finalizer: weakref.finalize[..., object]  # ends the workers

    def _plan(self, units: list[range], num_workers: int, mode: str, restart: int) -> None:
        """Note which workers there will be; a backend calls this first."""
        self._partition, self.num_workers, self.mode = Partition(units), num_workers, mode
        self._everyone = list(range(len(units)))
        self._restarts_left = restart
        self._seed = self._envs_before = 0  # of the last reset; in a larger vector
        self._clear_turns()

    def _open(self, num_envs: int, surplus: int) -> None:
        """Create the workers and their rows; end those that exist where that fails."""
        try:
            self._describe(self._create(self._everyone), num_envs, surplus)
            self._allocate()
        except LostWorkerError as error:
            self._give_up(error)
        except BaseException:
            self._closed = True
            self._finalizer()
            raise

    def _describe(self, found: dict[int, EnvDescription], num_envs: int, surplus: int) -> None:
        """Take the sizes from the workers' descriptions of their envs, which must agree."""
        description, partition = found[0], self._partition
        partition.envs_per_unit = description.envs_per_unit
        for worker in self._everyone:
            description.check(found[worker], partition.envs(worker)[0])
        has_masks = any(each.has_action_masks for each in found.values())
        self._description = description._replace(has_action_masks=has_masks)
        self.num_envs = num_envs * partition.envs_per_unit
        self.surplus_envs = surplus * partition.envs_per_unit
        self.agents_per_env = agents = description.agents_per_env
        envs = map(partition.envs, self._everyone)
        self._worker_slots = [slice(each.start * agents, each.stop * agents) for each in envs]

    def _share(
        self, rows: Buffers, returns: NDArray[np.float64], lengths: NDArray[np.int64]
    ) -> None:
        """Use these rows, and the return and length of each slot's last episode."""
        self._attach(rows, self._description.observation_space, self._description.action_space)
        self._returns, self._lengths = returns, lengths
        # the last observations the policy has seen, for rows of a worker that dies while it writes
        self._kept = self.observations.copy() if self._restarts_left else None
        self._dones, self._has_dones = np.zeros(self.num_agents, dtype=np.bool_), False
        whole = (self.observations, self.rewards, self.terminals, self.truncations, self.masks)
        self._whole = (slice(0, self.num_agents), *whole)

    def _clear_turns(self) -> None:
        """Forget all turns, reports and statistics, as if no worker had run so far."""
        self._reports: dict[int, bytes] = {}  # pickled infos by worker
        self._stats, self._counted = EpisodeStats(), EpisodeStats()
        self._running: list[int] = []  # workers with a turn
        self._idle: list[int] = []  # workers whose rows are ready, and not handed over yet
        self._batch_workers: list[int] = []  # workers whose rows were handed over last
        self._unread: list[int] = []  # idle workers whose report has not been read
        self._stale: set[int] = set()  # workers replaced between two turns: their rows are old
        self._resetting: set[int] = set()  # workers whose turn is a reset
        self._is_quiet = False  # the last turn had neither reports nor ends of episodes
        self._knows_agents = False  # a worker has reported its agents since the last reset
        self._clock_started = time.perf_counter()

    # ---- Reset and steps -----------------------------------------------------------------------

    def place(self, first_env: int) -> bool:
        self._envs_before = first_env
        return True

    def reset(self, seed: int | None = None) -> Any:
        self._begin("reset")
        self._seed = self._fresh_seed(seed, self._description.is_python)
        self._finish_turns(forget=True)
        self._ready = False  # until it has succeeded
        seeds = self._take_seeds(seed)
        if seeds is not None:
            for worker in self._everyone:
                envs = self._partition.envs(worker)
                self._ask([worker], "seed_each", seeds[envs.start : envs.stop])
        self._clear_turns()
        self._start_reset()
        self._next_workers()
        return self._by_agent(self.observations[self.slots])

    def hold(self, envs: NDArray[np.bool_]) -> None:
        super().hold(envs)
        held = self._take_held()
        assert held is not None
        self._finish_turns()
        for worker in self._everyone:
            own = self._partition.envs(worker)
            if held[own.start : own.stop].any():
                self._ask([worker], "hold", held[own.start : own.stop])

    def step(self, actions: Any) -> StepResult:
        if self._is_quiet and self._has_choices(actions) and self._repeat(actions):
            if self._is_quiet and not self._has_dones and self.agent_ids is None:
                infos = Infos(len(self.rewards), dict)
                return self.observations, self.rewards, self._dones, infos
        else:
            self._begin("step")
            self._give(actions)
        batch = self._take()
        dones = self._dones
        if self.surplus_envs:
            dones = batch.terminals | batch.truncations
        elif not self._is_quiet:
            np.logical_or(batch.terminals, batch.truncations, out=dones)
        elif self._has_dones:
            dones[:] = False
        self._has_dones = not self._is_quiet
        rows = (batch.observations, batch.rewards, dones)
        return *map(self._by_agent, rows), batch.infos

    def _give(self, actions: Any) -> None:
        """Hand actions to the workers of the last batch and start their turns."""
        rows = self._rows(actions)
        if not self._batch_workers:
            self._next_workers()
        workers = self._batch_workers
        if self._reports:  # of a batch that an interrupt kept from being taken
            self._take_reports(workers)
        if workers == self._everyone and self._kept is None:  # the usual case, without any detour
            self._buffers.actions[...] = rows
            self._start_step(workers, self._idle)
            return
        slots = self._slots(workers)
        self._buffers.actions[slots] = rows
        if self._kept is not None:
            self._kept[slots] = self.observations[slots]
        revived = [worker for worker in workers if worker in self._stale]
        for worker in revived:
            self._revive(worker)  # in place of the step that its lost envs cannot take
        ready = [worker for worker in workers if worker not in revived]
        self._start_step(ready, self._idle + revived)

    def _take(self) -> Batch:
        """Wait until a whole batch is ready and hand it over."""
        if not self._batch_workers:  # an interrupt may have come after they were chosen
            self._next_workers()
        if self._is_quiet:
            return Batch(*self._whole, Infos(self.num_agents, dict))
        batch = self._batch_of(())
        returns, lengths = self._returns[batch.slots], self._lengths[batch.slots]
        # an episode that was lost with its worker has no length
        ended = (batch.terminals | batch.truncations) & (lengths > 0)
        finished: Mapping[int, Info] = {}
        if ended.any():
            seconds = time.perf_counter() - self._clock_started
            finished = Finished(ended, returns, lengths, seconds)
            self._counted.add(finished.returns, finished.lengths)
        reports = self._take_reports(self._batch_workers)

        def build() -> dict[int, Info]:
            infos = dict(finished)
            for first, reported in reports:
                for slot, info in reported().items():
                    infos[first + slot] = {**infos.get(first + slot, {}), **info}
            return infos

        return batch._replace(infos=Infos(len(batch.rewards), build))

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

    def _take_reports(self, workers: list[int]) -> Reports:
        """Return the infos that workers have reported, each after the worker's first slot.

        They are unpickled when called, since most loops never read them.
        """
        out: Reports = []
        if self._reports:
            first = 0
            for worker in workers:
                if worker in self._reports:
                    label = self._partition.label(worker)
                    out.append((first, partial(_unpickled, self._reports.pop(worker), label)))
                slots = self._worker_slots[worker]
                first += slots.stop - slots.start
        return out

    # ---- Ends of turns -------------------------------------------------------------------------

    def _collect(self, count: int) -> None:
        """Wait until `count` more workers are done; all that are become idle, reports are read."""
        self._is_quiet = False
        self._await(min(count, len(self._running)))
        failed: dict[int, PufferError] = {}
        while self._unread:
            worker = self._unread.pop(0)
            try:
                self._note(worker, self._report(worker))
            except LostWorkerError as error:
                self._replace(error)
                self._revive(worker)
            except PufferError as error:  # of its envs
                self._resetting.discard(worker)
                failed[worker] = error
        if failed:
            self._ready = False  # `reset` may be called
            raise failed[min(failed)]  # the one that Serial would have raised

    def _note(self, worker: int, report: TurnReport | None) -> None:
        """Take the report of a worker that has finished its turn."""
        if report is None:
            return
        if worker in self._resetting:
            self._note_agents_of(worker, report.agent_ids)
            return
        if report.infos:
            self._reports[worker] = report.infos
        if report.stats is not None:
            self._stats.merge(report.stats)
        if report.agent_ids is not None and worker == 0:
            self.agent_ids = report.agent_ids

    def _note_agents_of(self, worker: int, ids: AgentIds) -> None:
        """Note that a worker has reset its envs; raise if its agents are others."""
        if not self._knows_agents:
            self.agent_ids, self._knows_agents = ids, True
        self._resetting.discard(worker)
        check_agent_ids(self.agent_ids, ids, self._partition.envs(worker)[0])

    def _call_of(self, worker: int) -> str:
        return "reset" if worker in self._resetting else "step"

    def _finish_turns(self, forget: bool = False) -> None:
        """Wait for every running worker; with `forget`, errors of their envs do not matter."""
        try:
            self._collect(len(self._running))
        except WorkerError:
            raise
        except PufferError:
            if not forget:
                raise

    # ---- Lost workers --------------------------------------------------------------------------

    def _lose(self, error: LostWorkerError) -> None:
        """Replace a worker that was lost in or between its turns; raise if no restart is left."""
        worker = error.worker
        self._replace(error)
        if worker in self._running:
            self._revive(worker)
        else:
            self._stale.add(worker)  # its rows are still valid
            self._resetting.discard(worker)

    def _replace(self, error: LostWorkerError) -> None:
        """Create another worker with the same envs, which have not been reset yet."""
        worker = error.worker
        while True:
            if self._restarts_left < 1 or error.worker < 0:
                self._give_up(error)
            self._restarts_left -= 1
            self.restarts += 1
            reason = str(error).partition("\n")[0]
            warn(f"{reason} Replaced; {self._restarts_left} restarts left.")
            self._unread = [other for other in self._unread if other != worker]
            try:
                self._recreate(worker)
                return
            except LostWorkerError as again:
                error = again

    def _give_up(self, error: LostWorkerError) -> NoReturn:
        """End all workers and raise."""
        self._closed = True
        self._finalizer()
        raise error.final() from None

    def _reset_one(self, worker: int) -> None:
        """Reset the envs of a replaced worker with seeds of their own."""
        seed = native.env_seed(self._seed, 2**40 + self.restarts) % 2**32
        self._call([worker], "reset", seed, self._envs_before, on_lost=self._replace)

    def _reset_by_call(self, workers: list[int]) -> None:
        """Reset envs outside of a turn: an interrupt cannot leave half of a report behind."""
        arguments = (self._seed, self._envs_before)
        reports = self._call(workers, "reset", *arguments, on_lost=self._replace)
        for worker in workers:
            self._note_agents_of(worker, reports[worker].agent_ids)

    def _revive(self, worker: int) -> None:
        """Reset a replaced worker's envs; after a step, mark their last episodes as truncated."""
        try:
            if worker in self._resetting:
                self._reset_by_call([worker])
                return
            self._stale.discard(worker)
            self._reset_one(worker)
        except PufferError:
            self._ready = False  # `reset` may be called
            raise
        assert self._kept is not None
        slots = self._worker_slots[worker]
        self.rewards[slots], self.terminals[slots] = 0, False
        self.truncations[slots] = True
        self.final_observations[slots] = self._kept[slots]
        self._returns[slots], self._lengths[slots] = 0, 0
        self._reports.pop(worker, None)

    def _ask(self, workers: list[int], call: str, *arguments: object) -> dict[int, Any]:
        """Call workers that have no turn; lost ones are replaced and called again."""

        def replace(error: LostWorkerError) -> None:
            self._replace(error)
            if call != "restore":  # which needs no reset
                self._reset_one(error.worker)
                self._stale.add(error.worker)

        try:
            return self._call(workers, call, *arguments, on_lost=replace)
        except LostWorkerError as error:
            self._give_up(error)

    # ---- Statistics, snapshots, pictures, end --------------------------------------------------

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
        self._finish_turns()
        states = self._ask(self._everyone, "snapshot")
        if any(state is None for state in states.values()):
            return None
        return np.concatenate([states[worker] for worker in self._everyone])

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        self._begin("restore")
        rows = self._state_rows(state, env)
        if not self._description.can_restore:
            super().restore(state)
        self._finish_turns(forget=True)
        for worker in self._everyone if env is None else [self._partition.worker_of(env)]:
            envs = self._partition.envs(worker)
            own = rows[envs.start : envs.stop] if env is None else rows
            self._ask([worker], "restore", own, 0 if env is None else env - envs.start)
        if env is None:
            self._clear_turns()
        self._idle, self._batch_workers, self._reports = list(self._everyone), [], {}
        if self.surplus_envs:
            self._next_workers()
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        self._start_over()

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        self._begin("render")
        self._check_env(env)
        self._finish_turns()
        worker = self._partition.worker_of(env)
        within = env - self._partition.envs(worker).start
        return self._ask([worker], "render", within)[worker]  # type: ignore[no-any-return]

    def close(self) -> None:
        """Close the envs and end the workers. Safe to call twice, and at any moment.

        An env that fails to close is an error, raised once all workers have ended; so is one that
        takes longer than `timeout`. While an exception propagates, or an env still steps, each env
        has one second.
        """
        closed, self._closed = self._closed, True
        if closed:
            return
        try:
            if self._finalizer.alive and not self._running:
                self._close_envs()
        finally:
            self._finalizer()

    def _close_envs(self) -> None:
        """Let idle workers close their envs; raise if one does not."""
        try:
            self._call(self._everyone, "close")
        except LostWorkerError as error:
            if not self._restarts_left:
                raise error.final() from None
            warn(str(error))

    # ---- What a backend defines ----------------------------------------------------------------

    def _has_choices(self, actions: Any) -> bool:
        """Return whether `actions` may be copied as they are, which `_repeat` checks again."""
        is_array = type(actions) is np.ndarray and actions.dtype == self._action_rows.dtype
        return is_array and actions.flags.c_contiguous and self._are_choices(actions)

    def _repeat(self, actions: Any) -> bool:
        """Do all of a step after a quiet one, in as little code as possible; set `_is_quiet`.

        False where nothing was done: the step then takes the usual way.
        """
        return False

    @abstractmethod
    def _start_step(self, workers: list[int], idle: list[int]) -> None:
        """Give `workers`, whose actions are in the rows, a turn; `idle` are the idle ones then."""

    @abstractmethod
    def _start_reset(self) -> None:
        """Give every worker a turn to reset its envs from `_seed` and `_envs_before`."""

    @abstractmethod
    def _await(self, count: int) -> None:
        """Wait until `count` running workers are done, and move all that are.

        They go from `_running` to `_idle`, and to `_unread` where there may be a report. Workers
        that are lost meanwhile go to `_lose`.
        """

    @abstractmethod
    def _report(self, worker: int) -> TurnReport | None:
        """Return the report of an unread worker, None where there is none after all.

        A LostWorkerError means that its turn is not done; other errors are those of its envs.
        """

    @abstractmethod
    def _call(
        self, workers: list[int], call: str, *arguments: object, on_lost: OnLost = None
    ) -> dict[int, Any]:
        """Run `ShardService.call` in workers without a turn and return their answers.

        An error of their envs is raised once all have answered. `on_lost` replaces a lost worker,
        which is then called again; without it the LostWorkerError is raised.
        """

    @abstractmethod
    def _create(self, workers: list[int]) -> dict[int, EnvDescription]:
        """Start workers, let them create their envs, and return the descriptions of these."""

    @abstractmethod
    def _allocate(self) -> None:
        """Give the envs of all workers rows, and call `_share`."""

    @abstractmethod
    def _recreate(self, worker: int) -> None:
        """Create a worker in place of a lost one."""


def _unpickled(infos: bytes, label: str) -> dict[int, Info]:
    """Return the infos that the worker with this label has reported."""
    try:
        return pickle.loads(infos)  # type: ignore[no-any-return]
    except Exception as error:
        raise unreadable(label, error) from error


def warn(message: str) -> None:
    """Warn about the line of the user's code that called this package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("pufferlib."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
