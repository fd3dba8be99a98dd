"""Team: the processes behind a `Multiprocessing`, and what becomes of them.

Every wait here ends: with an answer, with the news that a worker has died, or at a deadline.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pufferlib import errors
from pufferlib.errors import PufferError, WorkerError
from pufferlib.vectorization.channel import Channel
from pufferlib.vectorization.launcher import Launcher
from pufferlib.vectorization.worker import STACK_SIGNAL, Failure, Setup, run_worker

TAIL_LINES = 12  # of stderr, in an error
STACK_LINES = 40
_NEWS_SECONDS = 1.0  # how long the launcher may take to say how a worker ended
_STACK_SECONDS = 0.5  # how long a worker may take to write its stack


class Death(NamedTuple):
    """How a worker ended: an exit code, or minus a signal; and its last words."""

    status: int
    tail: str


class LostWorkerError(WorkerError):
    """A worker died or was ended; raised inside of the package, where it may yet be replaced."""


class RemoteTraceback(Exception):  # noqa: N818 - it is shown as a cause, never caught
    """The traceback of an error in a worker."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


class Team:
    """Starts workers, calls them, and says in words how one was lost."""

    def __init__(
        self,
        creator: Callable[[], Any],
        pickled_creator: bytes | None,
        units: list[range],
        start_method: str,
        worker_threads: int,
        timeout: float | None,
    ) -> None:
        self._units, self._creator = units, pickled_creator
        self._worker_threads, self.timeout = worker_threads, timeout
        self.envs_per_unit = 1

        def run(channel: Channel) -> None:
            run_worker(channel, creator)

        self._launcher = Launcher(
            start_method, worker_threads, run if start_method == "fork" else None
        )
        self.channels: dict[int, Channel] = {}
        self.pids: dict[int, int] = {}
        self._deaths: dict[int, Death] = {}
        self._owner = os.getpid()

    @property
    def life_fd(self) -> int:
        """Readable when a worker has died: call `news` then."""
        return self._launcher.channel.fileno()

    def envs(self, worker: int) -> range:
        """Return the envs of a worker."""
        units, per_unit = self._units[worker], self.envs_per_unit
        return range(units.start * per_unit, units.stop * per_unit)

    def start(self, worker: int) -> None:
        """Start a worker process, or another one in the place of a lost one; `gather` follows."""
        if worker in self.channels:
            self.channels.pop(worker).close()
        self._deaths.pop(worker, None)
        ours, theirs = Channel.pair()
        self.channels[worker] = ours
        try:
            self._launcher.channel.send(("start", worker), (theirs.fileno(),))
            theirs.close()
            units = self._units[worker]
            setup = Setup(
                worker,
                units.start,
                len(units),
                self._creator,
                list(sys.path),
                os.getcwd(),
                self._worker_threads,
            )
            ours.send(setup)
        except EOFError:
            self.news()
            raise self.lost(worker, "start") from None

    # ---- Calls -----------------------------------------------------------------------------------

    def call(self, workers: Iterable[int], *message: Any, fds: Any = None) -> dict[int, Any]:
        """Send one message to each worker and return their answers; `fds(worker)` come along."""
        asked = list(workers)
        for worker in asked:
            try:
                self.channels[worker].send(message, fds(worker) if fds else ())
            except EOFError:
                raise self.lost(worker, message[0]) from None
        return self.gather(asked, message[0])

    def gather(
        self, workers: Iterable[int], call: str, progress: Callable[[int], int] | None = None
    ) -> dict[int, Any]:
        """Wait for the answer of each worker to `call`; the first failure is raised at the end.

        The deadline of a worker moves whenever it gets on: it says how many envs it has created, or
        `progress` changes.
        """
        waiting, answers = list(workers), {}
        failures: dict[int, Failure] = {}
        poll = select.poll()
        poll.register(self.life_fd, select.POLLIN)
        for worker in waiting:
            poll.register(self.channels[worker].fileno(), select.POLLIN)
        by_fd = {self.channels[worker].fileno(): worker for worker in waiting}
        clock = Clock(self.timeout, waiting, progress or (lambda worker: 0))
        while waiting:
            for fd, _ in poll.poll(clock.slice_ms):
                if fd == self.life_fd:
                    for worker in self.news():
                        if worker in waiting and not self._has_answer(worker):
                            raise self.lost(worker, call)
                    continue
                worker = by_fd[fd]
                try:
                    kind, value = self.channels[worker].receive()
                except EOFError:
                    raise self.lost(worker, call) from None
                clock.moved(worker)
                if kind == "created":
                    continue
                waiting.remove(worker)
                poll.unregister(fd)
                if kind == "error":
                    failures[worker] = value
                else:
                    answers[worker] = value
            hung = clock.hung(waiting)
            if hung is not None:
                raise self.hung(hung, call, None)
        if failures:
            raise rebuilt(failures[min(failures)])
        return answers

    def _has_answer(self, worker: int) -> bool:
        poll = select.poll()
        poll.register(self.channels[worker].fileno(), select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))

    # ---- Lost workers ----------------------------------------------------------------------------

    def news(self) -> list[int]:
        """Read what the launcher has to say; return the workers whose death it tells."""
        dead = []
        poll = select.poll()
        poll.register(self.life_fd, select.POLLIN)
        while poll.poll(0):
            try:
                kind, worker, *rest = self._launcher.channel.receive()
            except EOFError:
                raise LostWorkerError(
                    "the process that starts the workers died. Was it killed?", signal="SIGKILL"
                ) from None
            if kind == "started":
                self.pids[worker] = rest[0]
            else:
                self._deaths[worker] = Death(*rest)
                self.pids.pop(worker, None)
                dead.append(worker)
        return dead

    def lost(self, worker: int, call: str) -> LostWorkerError:
        """Return the error that says how `worker` ended, during `call`; the caller raises it."""
        death = self._await_death(worker)
        name, how = None, "went away"
        if death is not None and death.status < 0:
            name = _signal_name(-death.status)
            hint = ", from outside or for want of memory" if name == "SIGKILL" else ""
            how = f"died of {name}{hint}"
        elif death is not None:
            how = f"exited with code {death.status}"
        tail = death.tail if death else ""
        said = _indented(tail, TAIL_LINES, "Its last lines on stderr:")
        envs = self.envs(worker)
        return LostWorkerError(
            f"{self._named(worker)} {how} during `{_spelled(call)}`.{said}",
            worker,
            envs,
            name,
            tail,
        )

    def hung(self, worker: int, call: str, env: int | None) -> LostWorkerError:
        """End a worker that hangs, after it has shown its stack; return the error that says so."""
        self._signal(worker, STACK_SIGNAL)
        time.sleep(_STACK_SECONDS)
        self._signal(worker, signal.SIGKILL)
        death = self._await_death(worker)
        tail = death.tail if death else ""
        said = _indented(tail, STACK_LINES, "Where it is:")
        which = self._named(worker) if env is None else f"env {env} of {self._named(worker)}"
        limit = f"{self.timeout:g} s (`timeout`)"
        return LostWorkerError(
            f"{which} did not finish `{_spelled(call)}` within {limit}.{said}",
            worker,
            self.envs(worker),
            "SIGKILL",
            tail,
        )

    def _await_death(self, worker: int) -> Death | None:
        deadline = time.monotonic() + _NEWS_SECONDS
        while worker not in self._deaths and time.monotonic() < deadline:
            left = max(0.0, deadline - time.monotonic())
            select.select([self.life_fd], [], [], left)
            try:
                self.news()
            except LostWorkerError:
                break
        return self._deaths.get(worker)

    def _signal(self, worker: int, number: int) -> None:
        with contextlib.suppress(EOFError):
            self._launcher.channel.send(("signal", worker, int(number)))

    def _named(self, worker: int) -> str:
        envs = self.envs(worker)
        which = f"env {envs[0]}" if len(envs) == 1 else f"envs {envs[0]} to {envs[-1]}"
        return f"worker {worker} ({which})"

    def stop(self) -> None:
        """Let the workers close their envs, for a moment, and end them all. Safe to call twice."""
        for channel in self.channels.values():
            channel.close()
        self.channels.clear()
        if os.getpid() == self._owner:  # a fork of the owner must not end what is not its own
            self._launcher.stop()


class Clock:
    """Finds the worker that has not got on for too long."""

    def __init__(
        self, timeout: float | None, workers: Iterable[int], progress: Callable[[int], int]
    ) -> None:
        self._timeout, self._progress = timeout, progress
        now = time.monotonic()
        self._seen = {worker: (progress(worker), now) for worker in workers}
        self.slice_ms = -1 if timeout is None else max(5, min(1000, round(timeout * 250)))

    def moved(self, worker: int) -> None:
        """Note that a worker has just got on."""
        self._seen[worker] = (self._progress(worker), time.monotonic())

    def hung(self, workers: Iterable[int]) -> int | None:
        """Return a worker whose time is over, None while there is none."""
        if self._timeout is None:
            return None
        now = time.monotonic()
        for worker in workers:
            last, since = self._seen[worker]
            if self._progress(worker) != last:
                self.moved(worker)
            elif now - since > self._timeout:
                return worker
        return None


def rebuilt(failure: Failure) -> Exception:
    """Return an error of a worker as one of this process, the original traceback as its cause."""
    kind = getattr(errors, failure.kind, None)
    is_ours = isinstance(kind, type) and issubclass(kind, PufferError)
    message = failure.message if is_ours else f"{failure.kind}: {failure.message}"
    error: Exception = kind(message) if is_ours else errors.EnvError(message)  # type: ignore[misc]
    error.__cause__ = RemoteTraceback(failure.traceback)
    return error


def _spelled(call: str) -> str:
    return "__init__" if call in ("start", "create", "bind") else call


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _indented(text: str, count: int, heading: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
    return "".join(f"\n  {line}" for line in [heading, *lines]) if lines else ""
