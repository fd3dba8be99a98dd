"""Ray: envs in actors of a Ray cluster, on this machine and on others.

An actor is a `Serial` of its envs. Actions go to it and rows come back as messages, so a step costs
a round trip and a copy: worth it for envs that need more cores than one machine has, or machines of
another kind. For one machine `Multiprocessing` is faster.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.buffers import Buffers, allocate
from pufferlib.episodes import EpisodeStats, Infos
from pufferlib.errors import EnvError, MissingExtraError, PufferError, UsageError, WorkerError
from pufferlib.spaces import action_layout, action_values
from pufferlib.vectorization.base import Batch, BufferedVectorEnv
from pufferlib.vectorization.multiprocessing import DEFAULT_TIMEOUT
from pufferlib.vectorization.processes.team import rebuilt
from pufferlib.vectorization.processes.worker import Failure, failure
from pufferlib.vectorization.serial import Serial
from pufferlib.vectorization.shard import Facts, check_agent_ids
from pufferlib.vectorization.sizes import check_options, unit_ranges

_CLOSE_SECONDS = 2.0  # how long envs may take to close
_CPU_STEP = 1e4  # Ray counts in ten-thousandths of a CPU


class Ray(BufferedVectorEnv):
    """Runs `num_envs` envs made by `env_creator` in `num_workers` actors of a Ray cluster.

    Every actor owns a contiguous range of envs; two of `num_envs`, `num_workers` and
    `envs_per_worker` imply the third, and there is an actor for each CPU of the cluster by default.
    `mode` and `surplus_envs` are those of `Multiprocessing`; in mode "sync" the numbers are those
    of `Serial` for the same seed. `env_creator` is called in the actors and may be a lambda or
    closure; what it imports must be installed there.

    A process that is connected to a cluster already uses that one, and stays connected. Otherwise
    this connects to `address` (None: the variable RAY_ADDRESS, a cluster of this machine, else one
    that it starts, which only this machine can reach), and the last vector to close disconnects.
    `worker_options` are those of a Ray actor: `num_cpus`, `resources`, `runtime_env` and so on.
    `timeout` is how many seconds one call of an actor may take, None for any.
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
        address: str | None = None,
        worker_options: Mapping[str, Any] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        check_options(mode, surplus_envs, timeout=timeout)
        creator = _pickled(env_creator)
        connection = _Connection.join(address)
        actors: list[Any] = []
        self._finalizer = weakref.finalize(self, _stop, connection, actors)
        self._ray = connection.ray
        try:
            units, self.num_workers = unit_ranges(
                num_envs, num_workers, envs_per_worker, surplus_envs, connection.num_cpus
            )
            self.mode, self._timeout, self._units = mode, timeout, units
            self._envs_per_unit = 1
            options = {**connection.default_options(len(units)), **(worker_options or {})}
            remote = self._ray.remote(Actor).options(**options)
            path = list(sys.path)
            actors += [remote.remote(creator, each.start, len(each), path) for each in units]
            self._actors = actors
            self._create(num_envs, surplus_envs)
        except BaseException:
            self._closed = True
            self._finalizer()
            raise

    def _create(self, num_envs: int, surplus: int) -> None:
        """Let the actors create their envs, and make rows for all of them."""
        workers = range(len(self._actors))
        self._workers = list(workers)
        found: dict[int, Facts] = self._ask(workers, "create")
        facts = found[0]
        for worker in workers:
            facts.check(found[worker], self._units[worker].start * facts.envs_per_unit)
        self._facts, self._envs_per_unit = facts, facts.envs_per_unit
        self.num_envs = num_envs * facts.envs_per_unit
        self.surplus_envs = surplus * facts.envs_per_unit
        self.agents_per_env = facts.agents_per_env
        spaces = facts.observation_space, facts.action_space
        masked = any(each.has_action_masks for each in found.values())
        self._attach(allocate(self.num_agents, *spaces, masked), *spaces)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._stats = EpisodeStats()
        self._spoken: dict[int, dict[int, dict[str, Any]]] = {}  # by worker, then slot within it
        self._running: dict[Any, int] = {}  # what a reset or step will answer -> worker
        self._resetting: set[int] = set()  # workers that run a reset
        self._idle: list[int] = []  # workers with rows that no batch has handed over yet
        self._batch_workers: list[int] = []  # of the batch at hand

    # ---- Reset and steps -----------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Any:
        self._begin("reset")
        given = self._take_seed(seed)
        if given is None:
            given = native.fresh_seed() >> (32 if self._facts.is_python else 0)
        with contextlib.suppress(EnvError):  # of envs that begin anew
            self._collect(len(self._running))
        self._begin_anew()
        self._running = {self._call(worker, "reset", given): worker for worker in self._workers}
        self._resetting = set(self._workers)
        if not self.surplus_envs:
            self._collect(len(self._running))
            return self._by_agent(self.observations)
        self._batch_workers = self._next_workers()
        return self._by_agent(self.observations[self.slots])

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        self._begin("step")
        self._give(actions)
        batch = self._take()
        dones = batch.terminals | batch.truncations
        if self.agent_ids is None:
            return batch.observations, batch.rewards, dones, batch.infos
        rows = (batch.observations, batch.rewards, dones)
        return *map(self._by_agent, rows), batch.infos

    def send(self, actions: Any) -> None:
        if self._is_step_overridden(Ray):
            super().send(actions)
            return
        self._begin("send")
        self._give(actions)
        self._sent = True

    def recv(self) -> Batch:
        self._begin("recv")
        if not self._received or (self._sent and not self._is_step_overridden(Ray)):
            self._batch = self._take()
        self._sent, self._received = False, True
        assert self._batch is not None
        return self._batch

    def _give(self, actions: Any) -> None:
        """Send actions to the workers of the last batch."""
        rows = self._rows(actions)
        workers = self._batch_workers or self._next_workers()
        self._batch_workers = []
        first = 0
        for worker in workers:
            last = first + self._num_slots(worker)
            self._running[self._call(worker, "step", rows[first:last])] = worker
            first = last

    def _take(self) -> Batch:
        """Wait for a whole batch and hand it over."""
        workers = self._batch_workers or self._next_workers()
        self._batch_workers = workers
        slots, said, first = self._slots(workers), {}, 0
        for worker in workers:
            for slot, info in self._spoken.pop(worker, {}).items():
                said[first + slot] = info
            first += self._num_slots(worker)
        rows = self._buffers
        return Batch(
            slots,
            rows.observations[slots],
            rows.rewards[slots],
            rows.terminals[slots],
            rows.truncations[slots],
            rows.masks[slots],
            Infos(first, lambda: said),
        )

    def _next_workers(self) -> list[int]:
        """Return the workers of the next batch, in order of slots; wait until there are enough."""
        self._collect(self.num_workers - len(self._idle))
        workers, self._idle = self._idle[: self.num_workers], self._idle[self.num_workers :]
        workers.sort()
        if self.surplus_envs:
            self._handed = self._slots(workers)
        return workers

    def _collect(self, count: int) -> None:
        """Wait until `count` running workers are done, and take the rows of all that are."""
        failed: PufferError | None = None
        for ref in self._wait(self._running, min(count, len(self._running))):
            worker = self._running.pop(ref)
            try:
                self._keep(worker, self._answer(ref, worker, self._call_of(worker)))
            except WorkerError:
                raise
            except PufferError as error:
                failed = failed or error
            self._resetting.discard(worker)
            self._idle.append(worker)
        if failed is not None:
            self._ready = False  # `reset` may be called
            raise failed

    def _keep(self, worker: int, rows: Rows) -> None:
        """Copy what a worker answered to its slots."""
        own = self._buffers.slots(*self._bounds(worker))
        rows.copy_to(own)
        if rows.spoken:
            self._spoken[worker] = rows.spoken
        if rows.stats is not None:
            self._stats.merge(rows.stats)
        if worker in self._resetting:
            if len(self._resetting) == len(self._workers):  # it is the first
                self.agent_ids = rows.agent_ids
            check_agent_ids(self.agent_ids, rows.agent_ids, self._envs(worker).start)
        elif worker == 0:
            self.agent_ids = rows.agent_ids

    def _call_of(self, worker: int) -> str:
        return "reset" if worker in self._resetting else "step"

    def _envs(self, worker: int) -> range:
        units, per_unit = self._units[worker], self._envs_per_unit
        return range(units.start * per_unit, units.stop * per_unit)

    def _bounds(self, worker: int) -> tuple[int, int]:
        envs = self._envs(worker)
        return envs.start * self.agents_per_env, envs.stop * self.agents_per_env

    def _num_slots(self, worker: int) -> int:
        return len(self._envs(worker)) * self.agents_per_env

    def _slots(self, workers: list[int]) -> slice | NDArray[np.int64]:
        bounds = [self._bounds(worker) for worker in workers]
        if workers[-1] - workers[0] == len(workers) - 1:
            return slice(bounds[0][0], bounds[-1][1])
        return np.concatenate([np.arange(*each) for each in bounds])

    # ---- Calls ---------------------------------------------------------------------------------

    def _call(self, worker: int, *message: Any) -> Any:
        return self._actors[worker].call.remote(*message)

    def _ask(self, workers: Iterable[int], *message: Any) -> dict[int, Any]:
        """Call workers that have nothing else to do; the first failure is raised at the end."""
        asked = {self._call(worker, *message): worker for worker in workers}
        answers, failed = {}, None
        for ref in self._wait(asked, len(asked), message[0]):
            try:
                answers[asked[ref]] = self._answer(ref, asked[ref], message[0])
            except WorkerError:
                raise
            except PufferError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return dict(sorted(answers.items()))

    def _wait(self, asked: Mapping[Any, int], count: int, call: str | None = None) -> list[Any]:
        """Wait until `count` of the calls are answered; return all that are, in order.

        Without the name of the `call` it is the turn of each worker.
        """
        refs = list(asked)
        if count < 1:
            return []
        done, pending = self._ray.wait(
            refs, num_returns=count, timeout=self._timeout, fetch_local=False
        )
        if len(done) < count:
            worker = asked[pending[0]]
            raise self._late(worker, call or self._call_of(worker))
        if pending:  # more may have come meanwhile
            done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        answered = set(done)
        return [ref for ref in refs if ref in answered]

    def _answer(self, ref: Any, worker: int, call: str) -> Any:
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref, timeout=self._timeout)
        except errors.RayTaskError as error:  # its answer cannot travel, or it could not be asked
            said = " ".join(str(error.cause).split())
            raise EnvError(
                f"{self._named(worker)}, `{_spelled(call)}`: what it answers must be able to leave "
                f"its worker, but {type(error.cause).__name__}: {said}"
            ) from error
        except errors.GetTimeoutError:
            raise self._late(worker, call) from None
        except errors.RayError as error:
            raise self._lost(worker, f"died during `{_spelled(call)}`: {_reason(error)}") from error
        if isinstance(answer, Failure):
            raise rebuilt(answer)
        return answer

    def _late(self, worker: int, call: str) -> WorkerError:
        limit = f"within {self._timeout:g} s (`timeout`)"
        if call == "create":
            cluster, free = self._ray.cluster_resources(), self._ray.available_resources()
            limit += f"; the cluster has {cluster.get('CPU', 0):g} CPUs, "
            limit += f"{free.get('CPU', 0):g} of them free"
        return self._lost(worker, f"did not finish `{_spelled(call)}` {limit}")

    def _lost(self, worker: int, how: str) -> WorkerError:
        """End all and return the error that says how a worker was lost; the caller raises it."""
        self._closed = True
        self._finalizer()
        return WorkerError(f"{self._named(worker)} {how}.", worker, self._envs(worker))

    def _named(self, worker: int) -> str:
        envs = self._envs(worker)
        which = f"env {envs[0]}" if len(envs) == 1 else f"envs {envs[0]} to {envs[-1]}"
        return f"worker {worker} ({which})"

    # ---- Statistics, state, pictures, end ------------------------------------------------------

    def drain_stats(self) -> EpisodeStats:
        stats, self._stats = self._stats, EpisodeStats()
        return stats

    def snapshot(self) -> NDArray[np.uint8] | None:
        self._begin("snapshot")
        self._collect(len(self._running))
        states = self._ask(self._workers, "snapshot")
        if any(state is None for state in states.values()):
            return None
        return np.concatenate(list(states.values()))

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        self._begin("restore")
        states = self._state_rows(state, env)
        self._collect(len(self._running))
        for worker in self._workers:
            envs = self._envs(worker)
            if env is None:
                given = self._ask([worker], "restore", states[envs.start : envs.stop], None)
            elif env in envs:
                given = self._ask([worker], "restore", states, env - envs.start)
            else:
                continue
            self._keep(worker, given[worker])
        if env is None:
            self._begin_anew()
        self._idle, self._batch_workers, self._spoken = list(self._workers), [], {}
        if self.surplus_envs:
            self._batch_workers = self._next_workers()
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        self._note_restore()

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        self._begin("render")
        total = self.num_envs + self.surplus_envs
        if not 0 <= env < total:
            raise UsageError(f"`env` must be in 0..{total - 1}, but got {env}.")
        self._collect(len(self._running))
        worker = next(each for each in self._workers if env in self._envs(each))
        picture: NDArray[np.uint8] | None
        picture = self._ask([worker], "render", env - self._envs(worker).start)[worker]
        return picture

    def close(self) -> None:
        """Close the envs and end the actors. Safe to call twice, and at any moment."""
        closed, self._closed = self._closed, True
        if closed:
            return
        failed: EnvError | None = None
        if self._finalizer.alive and not self._running:
            self._timeout = _CLOSE_SECONDS
            try:
                self._ask(self._workers, "close")
            except EnvError as error:
                failed = error
            except PufferError:  # one is gone, or hangs: it is ended like the others
                pass
        self._finalizer()
        if failed is not None:
            raise failed


class Rows(NamedTuple):
    """What an actor answers after a step: copies of its rows, and what its envs said."""

    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    action_masks: NDArray[np.bool_] | None
    final_observations: NDArray[Any] | None  # of truncated slots only
    spoken: dict[int, dict[str, Any]]
    stats: EpisodeStats | None
    agent_ids: tuple[Any, ...] | None

    def copy_to(self, rows: Buffers) -> None:
        """Write to the slots of the same envs in a larger vector."""
        for name in ("observations", "rewards", "terminals", "truncations", "masks"):
            getattr(rows, name)[:] = getattr(self, name)
        if self.action_masks is not None:
            assert rows.action_masks is not None
            rows.action_masks[:] = self.action_masks
        if self.final_observations is not None:
            rows.final_observations[self.truncations] = self.final_observations


class Actor:
    """A part of the envs, in a process of the cluster. `call` answers a `Failure` for an error."""

    def __init__(self, creator: bytes, first_unit: int, num_units: int, path: list[str]) -> None:
        self._creator, self._first_unit, self._num_units = creator, first_unit, num_units
        # modules beside the user's script, where this machine has them at the same place
        sys.path += [each for each in path if each not in sys.path and os.path.isdir(each)]

    def call(self, name: str, *arguments: Any) -> Any:
        """Run one of the methods below."""
        try:
            return getattr(self, f"_{name}")(*arguments)
        except Exception as error:
            return failure(error)

    def _create(self) -> Facts:
        try:
            creator = cloudpickle.loads(self._creator)
        except Exception as error:
            raise EnvError(
                "`env_creator` must be something a worker can import, but "
                f"{type(error).__name__}: {error}"
            ) from error
        self._vecenv = Serial(creator, self._num_units, first_env=self._first_unit)
        return self._vecenv.shard.facts

    def _reset(self, seed: int) -> Rows:
        self._vecenv.reset(seed=seed)
        return self._rows([])

    def _step(self, actions: NDArray[Any]) -> Rows:
        layout = action_layout(self._vecenv.action_space)
        *_, infos = self._vecenv.step(action_values(layout, actions))
        return self._rows(infos)

    def _rows(self, infos: list[dict[str, Any]]) -> Rows:
        vecenv = self._vecenv
        cut = vecenv.truncations
        any_cut, any_ended = cut.any(), bool(cut.any() or vecenv.terminals.any())
        return Rows(
            vecenv.observations,
            vecenv.rewards,
            vecenv.terminals,
            cut,
            vecenv.masks,
            vecenv.action_masks,
            vecenv.final_observations[cut] if any_cut else None,
            {slot: info for slot, info in enumerate(infos) if info},
            vecenv.drain_stats() if any_ended else None,
            vecenv.agent_ids,
        )

    def _snapshot(self) -> NDArray[np.uint8] | None:
        return self._vecenv.snapshot()

    def _restore(self, state: NDArray[np.uint8], env: int | None) -> Rows:
        self._vecenv.restore(state, env)
        return self._rows([])

    def _render(self, env: int) -> Any:
        return self._vecenv.render(env)

    def _close(self) -> None:
        self._vecenv.close()


class _Connection:
    """This process's connection to a cluster, and whether vectors of this module opened it."""

    current: _Connection | None = None

    def __init__(self, ray: Any, id: str, is_own: bool) -> None:
        self.ray, self._id, self._is_own = ray, id, is_own
        self._num_users = 0

    @classmethod
    def join(cls, address: str | None) -> _Connection:
        """Return the connection of a new vector, which must `leave` it in the end."""
        ray = _imported()
        is_own = not ray.is_initialized()
        if is_own:
            _connect(ray, address)
        id = ray.get_runtime_context().get_worker_id()
        if cls.current is None or cls.current._id != id:
            cls.current = cls(ray, id, is_own)
        cls.current._num_users += 1
        return cls.current

    def leave(self) -> None:
        """Disconnect, if this is the last vector of a connection that the first one opened."""
        self._num_users -= 1
        if self._num_users or not self._is_own or not self._is_open():
            return
        if _Connection.current is self:
            _Connection.current = None
        self.ray.shutdown()

    def _is_open(self) -> bool:
        """Return whether the process is still connected, and not through another connection."""
        if not self.ray.is_initialized():
            return False
        return bool(self.ray.get_runtime_context().get_worker_id() == self._id)

    def end(self, actors: list[Any]) -> None:
        """End actors that were made through this connection."""
        if self._is_open():
            for actor in actors:
                self.ray.kill(actor)

    @property
    def num_cpus(self) -> int:
        """CPUs of the whole cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def default_options(self, num_workers: int) -> dict[str, Any]:
        """Return options with which actors spread over the machines, however many there are.

        One CPU is for each, if there are as many: an actor that asks for more than what is free
        would wait for ever.
        """
        free = self.ray.available_resources().get("CPU", 0.0)
        share = math.floor(min(1.0, free / num_workers) * _CPU_STEP) / _CPU_STEP
        return {"num_cpus": share, "scheduling_strategy": "SPREAD"}


def _imported() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError(
            f"`Ray` needs the package ray, but cannot import it ({error}). "
            "Try: pip install 'pufferlib[ray]'"
        ) from error


def _connect(ray: Any, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a library must not call home
    is_given = address is not None or bool(os.environ.get("RAY_ADDRESS"))
    given = {} if address is None else {"address": address}
    try:
        with contextlib.nullcontext() if is_given else _on_loopback():
            ray.init(**given, include_dashboard=None if address else False, logging_level="warning")
    except Exception as error:  # Ray raises plain Exceptions too
        said = " ".join(str(error).split())
        if address is not None:
            raise UsageError(
                f"`address` must be that of a Ray cluster, but got {address!r}: {said}"
            ) from error
        raise PufferError(f"Ray cannot be started here: {said}") from error


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a cluster that starts here bind to 127.0.0.1, as Ray does by itself on macOS.

    Else all of its processes listen on every network interface. Ray reads the variable once, when
    it is imported; the processes that it starts read it too.
    """
    constants: Any = importlib.import_module("ray._private.ray_constants")
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, kept = constants.ENABLE_RAY_CLUSTER, os.environ.get(name)
    constants.ENABLE_RAY_CLUSTER, os.environ[name] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        if kept is None:
            del os.environ[name]
        else:
            os.environ[name] = kept


def _stop(connection: _Connection, actors: list[Any]) -> None:
    with contextlib.suppress(Exception):  # the cluster may be gone, or the interpreter ending
        connection.end(actors)
    with contextlib.suppress(Exception):
        connection.leave()


def _pickled(env_creator: Callable[[], Any]) -> bytes:
    try:
        data: bytes = cloudpickle.dumps(env_creator)
    except Exception as error:
        raise UsageError(
            "`env_creator` must be able to go to another machine, but cannot be pickled: "
            f"{' '.join(str(error).split())}. Try creating what it holds inside of it."
        ) from error
    return data


def _spelled(call: str) -> str:
    return "__init__" if call == "create" else call


def _reason(error: Exception) -> str:
    """Return the line of Ray's report that says why an actor is gone."""
    report = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # colours
    lines = [" ".join(line.split()) for line in report.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if "creation task" in lines[0]:  # a traceback follows, which ends with the error
        return lines[-1].rstrip(".")
    start = "The actor is dead because "
    telling = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return (telling or lines)[0].partition(" Some common causes")[0].rstrip(".")
