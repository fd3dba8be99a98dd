"""Ray: envs in actors of a Ray cluster, on this machine and on others.

An actor holds a shard of the envs. Actions go to it and rows come back as messages, so a step costs
a round trip and a copy: worth it for envs that need more cores than one machine has, or machines of
another kind. For one machine `Multiprocessing` is faster.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
import socket
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import (
    FAULTS,
    EnvError,
    PufferError,
    UsageError,
    WorkerError,
    error_line,
    imported,
)
from pufferlib.vectorization.creators import EnvCreator, pickled, unpickled
from pufferlib.vectorization.failures import Failure, LostWorkerError, OnLost, failure_of, rebuilt
from pufferlib.vectorization.shard import EnvDescription, Shard, ShardService, TurnReport
from pufferlib.vectorization.sizes import check_options, unit_ranges
from pufferlib.vectorization.workers import DEFAULT_TIMEOUT, WorkerVectorEnv, warn

_CLOSE_SECONDS = 2.0  # how long envs may take to close
_SENT = ("observations", "rewards", "terminals", "truncations", "masks")  # after every step
_PLACE_SECONDS = 5.0  # in which Ray notices what is free, and that a machine is gone
_CPU_STEP = 1e4  # Ray counts in ten-thousandths of a CPU


class Ray(WorkerVectorEnv):
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
    `timeout` is how many seconds one call of an actor may take, None for no limit. `restart` is how
    many actors that died or hang are replaced, as for `Multiprocessing`.
    """

    backend = "ray"

    def __init__(
        self,
        env_creator: EnvCreator,
        num_envs: int,
        num_workers: int | None = None,
        envs_per_worker: int | None = None,
        mode: Literal["sync", "async"] = "sync",
        surplus_envs: int = 0,
        *,
        address: str | None = None,
        worker_options: Mapping[str, object] | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        restart: int = 0,
    ) -> None:
        check_options(mode, surplus_envs, timeout=timeout, restart=restart)
        self._creator = pickled(env_creator, "machine", else_try="")
        connection = _Connection.join(address)
        self._actors: dict[int, Any] = {}
        self._finalizer = weakref.finalize(self, _stop, connection, self._actors)
        self._ray = connection.ray
        try:
            units, workers = unit_ranges(
                num_envs, num_workers, envs_per_worker, surplus_envs, connection.num_cpus
            )
            self._plan(units, workers, mode, restart)
            self._timeout = timeout
            self._turns: dict[int, Any] = {}  # worker -> what its turn will answer
            self._worker_options = dict(worker_options or {})
            self._options = {**connection.default_options(len(units)), **self._worker_options}
        except BaseException:
            self._closed = True
            self._finalizer()
            raise
        self._open(num_envs, surplus_envs)

    def _create(self, workers: list[int]) -> dict[int, EnvDescription]:
        self._start(workers, self._options)
        return self._call(workers, "create")

    def _start(self, workers: list[int], options: Mapping[str, object]) -> None:
        path, remote = list(sys.path), self._ray.remote(Actor).options(**options)
        for worker in workers:
            units = self._partition.units[worker]
            self._actors[worker] = remote.remote(self._creator, units.start, len(units), path)

    def _allocate(self) -> None:
        returns, lengths = np.zeros(self.num_agents), np.zeros(self.num_agents, dtype=np.int64)
        rows = self._description.allocate(self.num_agents)
        self._arrays = {**vars(rows), "returns": returns, "lengths": lengths}
        self._share(rows, returns, lengths)

    # ---- Turns ---------------------------------------------------------------------------------

    def _start_step(self, workers: list[int], idle: list[int]) -> None:
        actions = self._buffers.actions
        for worker in workers:
            self._turns[worker] = self._send(worker, "step", actions[self._worker_slots[worker]])
        running = self._running + workers
        self._batch_workers, self._idle, self._running = [], idle, running

    def _start_reset(self) -> None:
        for worker in self._everyone:
            self._turns[worker] = self._send(worker, "reset", self._seed, self._envs_before)
        self._resetting, self._running = set(self._everyone), self._everyone

    def _await(self, count: int) -> None:
        if count < 1:
            return
        while True:
            pending = {self._turns[w]: w for w in self._running if w in self._turns}
            missing = count - (len(self._running) - len(pending))  # those replaced are done
            done, others = self._answered(list(pending), missing)
            if len(done) >= missing:
                break
            worker = pending[others[0]]
            self._lose(self._late(worker, self._call_of(worker)))
        answered = [pending[ref] for ref in done]
        ready = [w for w in self._running if w in answered or w not in self._turns]
        running = [worker for worker in self._running if worker not in ready]
        idle, unread = self._idle + ready, self._unread + answered
        self._running, self._idle, self._unread = running, idle, unread

    def _report(self, worker: int) -> TurnReport | None:
        turn = self._turns.pop(worker)
        return self._answer(turn, worker, self._call_of(worker))  # type: ignore[no-any-return]

    def _recreate(self, worker: int) -> None:
        self._turns.pop(worker, None)
        deadline = time.monotonic() + (self._timeout or DEFAULT_TIMEOUT)
        shares, lacking = False, None
        while lacking is None and time.monotonic() < deadline:
            self._ray.kill(self._actors[worker])
            options: dict[str, Any] = dict(self._options)
            if shares:
                options["num_cpus"] = 0
            self._start([worker], options)
            lacking = self._place(worker, options, deadline)
            if lacking and not shares and "num_cpus" not in self._worker_options:
                shares, lacking = True, None  # the CPUs of the other workers
        if lacking:
            self._give_up(self._lost(worker, f"cannot be replaced: {lacking}"))
        if not options["num_cpus"] and "num_cpus" not in self._worker_options:
            cpus = self._ray.cluster_resources().get("CPU", 0)
            warn(
                f"{self._partition.label(worker)} shares the CPUs of other workers: the cluster "
                f"has {cpus:g} CPUs, 0 of them free."
            )
        self._call([worker], "create")

    def _place(self, worker: int, options: Mapping[str, Any], deadline: float) -> str | None:
        """Wait until a new actor starts; return "", what the cluster lacks, or None if it died."""
        started = self._send(worker, "start")
        needs: dict[str, float | None] = {
            "CPU": options.get("num_cpus"),
            "GPU": options.get("num_gpus"),
            **(options.get("resources") or {}),
        }
        lacking_since = math.inf
        while not self._ray.wait([started], timeout=1.0)[0]:
            now = time.monotonic()
            whole, free = self._ray.cluster_resources(), self._ray.available_resources()
            lacking = [name for name, need in needs.items() if need and free.get(name, 0) < need]
            lacking_since = min(lacking_since, now) if lacking else math.inf
            if now - lacking_since > _PLACE_SECONDS:
                name = lacking[0]
                noun = "CPUs" if name == "CPU" else f"`{name}`"
                return (
                    f"the cluster has {whole.get(name, 0):g} {noun}, {free.get(name, 0):g} of them "
                    f"free; a worker needs {needs[name]:g}. Try more machines, fewer workers or "
                    "smaller `worker_options`"
                )
            if now > deadline:
                return ""
        try:
            self._ray.get(started)
        except self._ray.exceptions.RayError:  # on a machine that is gone
            return None
        return ""

    # ---- Calls ---------------------------------------------------------------------------------

    def _send(self, worker: int, call: str, *arguments: object) -> Any:
        return self._actors[worker].call.remote(call, *arguments)

    def _call(
        self, workers: list[int], call: str, *arguments: object, on_lost: OnLost = None
    ) -> dict[int, Any]:
        refs = {worker: self._send(worker, call, *arguments) for worker in workers}
        answers: dict[int, Any] = {}
        failed: dict[int, PufferError] = {}
        waiting = list(workers)
        while waiting:
            worker = waiting.pop(0)
            try:
                answers[worker] = self._answer(refs[worker], worker, call)
            except LostWorkerError as error:
                if on_lost is None:
                    raise
                on_lost(error)
                refs[worker] = self._send(worker, call, *arguments)
                waiting.append(worker)
            except PufferError as error:
                failed[worker] = error
        if failed:
            raise failed[min(failed)]
        return answers

    def _answered(self, refs: list[Any], count: int) -> tuple[list[Any], list[Any]]:
        """Wait for `count` answers, until `timeout`; return the calls answered, and the others."""
        if count < 1:
            return [], refs
        done, others = self._ray.wait(
            refs, num_returns=count, timeout=self._timeout, fetch_local=False
        )
        if others and len(done) >= count:  # more may have come meanwhile
            done, others = self._ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
        answered = set(done)
        return [ref for ref in refs if ref in answered], others

    def _answer(self, ref: Any, worker: int, call: str) -> Any:
        """Return the value of an answer, after its rows are copied to the slots of the worker."""
        errors, label = self._ray.exceptions, self._partition.label(worker)
        try:
            answer: Answer | Failure = self._ray.get(ref, timeout=self._timeout)
        except errors.RayTaskError as error:  # the answer, or what was asked, cannot be pickled
            raise EnvError(
                f"{label}, `{_spelled(call)}`: the result must be picklable, "
                f"but {error_line(error.cause)}"
            ) from error
        except errors.GetTimeoutError:
            raise self._late(worker, call) from None
        except errors.RayError as error:
            raise self._lost(worker, f"died during `{_spelled(call)}`: {_reason(error)}") from error
        if isinstance(answer, Failure):
            if answer.is_lost_worker:
                how = f"lost a worker of its own during `{_spelled(call)}`: {answer.message}"
                raise self._lost(worker, how.rstrip("."))
            raise rebuilt(answer)
        for name, rows in (answer.rows or {}).items():
            self._arrays[name][self._worker_slots[worker]] = rows
        return answer.value

    def _late(self, worker: int, call: str) -> LostWorkerError:
        limit = f"within {self._timeout:g} s (`timeout`)"
        if call == "create":
            cluster, free = self._ray.cluster_resources(), self._ray.available_resources()
            limit += f"; the cluster has {cluster.get('CPU', 0):g} CPUs, "
            limit += f"{free.get('CPU', 0):g} of them free"
        return self._lost(worker, f"did not finish `{_spelled(call)}` {limit}")

    def _lost(self, worker: int, how: str) -> LostWorkerError:
        return self._partition.lost(worker, f"{how}.")

    def _close_envs(self) -> None:
        self._timeout = _CLOSE_SECONDS
        with contextlib.suppress(WorkerError):  # all actors are ended anyway
            super()._close_envs()


class Answer(NamedTuple):
    """What an actor answers to a call: its value, and the rows where the call has changed them."""

    value: Any
    rows: dict[str, NDArray[np.generic]] | None = None  # by the name of their array


class Actor:
    """A shard of the envs, in a process of the cluster."""

    def __init__(self, creator: bytes, first_unit: int, num_units: int, path: list[str]) -> None:
        self._creator, self._first_unit, self._num_units = creator, first_unit, num_units
        # modules beside the user's script, where this machine has them at the same place
        sys.path += [each for each in path if each not in sys.path and os.path.isdir(each)]

    def call(self, name: str, *arguments: Any) -> Answer | Failure:
        """Create the envs, step them, or run a call of `ShardService`."""
        try:
            if name == "start":
                return Answer(None)
            if name == "create":
                return Answer(self._create())
            if name == "step":
                self._shard.buffers.actions[...] = arguments[0]
                return Answer(self._service.step()[0], self._rows())
            value = self._service.call(name, *arguments)
            return Answer(value, self._rows() if name in ("reset", "restore") else None)
        except FAULTS as error:
            return failure_of(error)

    def _create(self) -> EnvDescription:
        try:
            creator = unpickled(self._creator)
        except EnvError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            raise EnvError(
                f"{error} on the machine {socket.gethostname()}. Try "
                '`ray.init(runtime_env={"working_dir": "."})` before, or '
                "`cloudpickle.register_pickle_by_value` of the module."
            ) from error
        self._shard = Shard(creator, self._num_units, self._first_unit)
        about, slots = self._shard.description, self._shard.num_slots
        self._shard.bind(about.allocate(slots))
        self._returns, self._lengths = np.zeros(slots), np.zeros(slots, dtype=np.int64)
        self._service = ShardService(self._shard, self._returns, self._lengths)
        return about

    def _rows(self) -> dict[str, NDArray[np.generic]]:
        rows = {name: getattr(self._shard.buffers, name) for name in _SENT}
        if self._shard.buffers.action_masks is not None:
            rows["action_masks"] = self._shard.buffers.action_masks
        if self._shard.buffers.truncations.any():
            rows["final_observations"] = self._shard.buffers.final_observations
        return {**rows, "returns": self._returns, "lengths": self._lengths}


class _Connection:
    """This process's connection to a cluster, and whether vectors of this module opened it."""

    current: _Connection | None = None

    def __init__(self, ray: ModuleType, id: str, is_own: bool) -> None:
        self.ray, self._id, self._is_own = ray, id, is_own
        self._num_users = 0

    @classmethod
    def join(cls, address: str | None) -> _Connection:
        """Return the connection of a new vector, which must `leave` it in the end."""
        ray = imported("ray", "ray", "Ray")
        is_own = not ray.is_initialized()
        if is_own:
            connect_ray(ray, address)
        id = ray.get_runtime_context().get_worker_id()
        if cls.current is None or cls.current._id != id:
            cls.current = cls(ray, id, is_own)
        cls.current._num_users += 1
        return cls.current

    def leave(self) -> None:
        """Disconnect, if this is the last vector of a connection that the first one opened."""
        self._num_users -= 1
        if self._num_users or not self._is_own or not self.is_open():
            return
        if _Connection.current is self:
            _Connection.current = None
        self.ray.shutdown()

    def is_open(self) -> bool:
        """Return whether the process is still connected, and not through another connection."""
        if not self.ray.is_initialized():
            return False
        return bool(self.ray.get_runtime_context().get_worker_id() == self._id)

    @property
    def num_cpus(self) -> int:
        """CPUs of the whole cluster."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def default_options(self, num_workers: int) -> dict[str, object]:
        """Return options with which actors spread over the machines, however many there are.

        One CPU is for each, if there are as many: an actor that asks for more than what is free
        would wait for ever.
        """
        free = self.ray.available_resources().get("CPU", 0.0)
        share = math.floor(min(1.0, free / num_workers) * _CPU_STEP) / _CPU_STEP
        return {"num_cpus": share, "scheduling_strategy": "SPREAD"}


def connect_ray(ray: ModuleType, address: str | None, **options: object) -> None:
    """Connect to a cluster as `Ray` does; `options` are those of `ray.init`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a library must send no statistics
    is_given = address is not None or bool(os.environ.get("RAY_ADDRESS"))
    given = {} if address is None else {"address": address}
    try:
        with contextlib.nullcontext() if is_given else _on_loopback():
            include_dashboard = None if address else False
            options = {"logging_level": "warning", **options}
            ray.init(**given, include_dashboard=include_dashboard, **options)
    except Exception as error:  # Ray raises plain Exceptions too
        reason = " ".join(str(error).split())
        if address is not None:
            raise UsageError(
                f"`address` must be that of a Ray cluster, but got {address!r}: {reason}"
            ) from error
        raise PufferError(f"Ray cannot be started here: {reason}") from error


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


def _stop(connection: _Connection, actors: dict[int, Any]) -> None:
    with contextlib.suppress(Exception):  # the cluster may be gone, or the interpreter ending
        for actor in actors.values() if connection.is_open() else ():
            connection.ray.kill(actor)
    with contextlib.suppress(Exception):
        connection.leave()


def _spelled(call: str) -> str:
    return "__init__" if call == "create" else call


def _reason(error: Exception) -> str:
    """Return the line of Ray's report with the reason why an actor is gone."""
    report = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # colours
    lines = [" ".join(line.split()) for line in report.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if "creation task" in lines[0]:  # a traceback follows, which ends with the error
        return lines[-1].rstrip(".")
    start = "The actor is dead because "
    reasons = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return (reasons or lines)[0].partition(" Some common causes")[0].rstrip(".")
