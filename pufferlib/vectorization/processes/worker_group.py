"""WorkerGroup: the processes of a `Multiprocessing`: start, calls, deaths.

Every wait ends: with an answer, with the report of a death, or at a deadline.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pufferlib.vectorization.creators import EnvCreator, pickled
from pufferlib.vectorization.failures import (
    Failure,
    LostWorkerError,
    OnLost,
    rebuilt,
    unreadable,
)
from pufferlib.vectorization.processes.channel import Channel
from pufferlib.vectorization.processes.launcher import Launcher
from pufferlib.vectorization.processes.worker import STACK_SIGNAL, Setup, run_worker
from pufferlib.vectorization.sizes import Partition

TAIL_LINES = 12  # of stderr, in an error
STACK_LINES = 40
START_SECONDS = 60.0  # that a new process may take to load what it needs, if `timeout` is shorter
_NEWS_SECONDS = 1.0  # how long the launcher may take to report a death
_STACK_SECONDS = 0.5  # how long a worker may take to write its stack
_OUR_LINES = re.compile(
    r'Extension modules: |  File "'
    r'(<string>|.*vectorization/(service|processes/(worker|launcher))\.py)", line \d+ in '
)
_STACK_STARTS = ("Fatal Python error", "Current thread 0x", "Thread 0x")


class Death(NamedTuple):
    """How a worker ended: an exit code, or minus a signal; and its last lines on stderr."""

    status: int
    tail: str


class WorkerGroup:
    """Starts workers, calls them, and describes how one was lost."""

    def __init__(
        self,
        creator: EnvCreator,
        partition: Partition,
        start_method: str,
        worker_threads: int,
        timeout: float | None,
    ) -> None:
        self._partition = partition
        self._worker_threads, self.timeout = worker_threads, timeout
        is_fork = start_method == "fork"
        self._creator = None if is_fork else pickled(creator)
        run = functools.partial(run_worker, creator=creator) if is_fork else None
        self._launcher = Launcher(start_method, worker_threads, run)
        self.channels: dict[int, Channel] = {}
        self.dead: dict[int, Death] = {}  # until they are replaced
        self.flags: Any = None  # of all workers, from their first `bind` on
        self.pids: dict[int, int] = {}  # of those that are alive
        # of workers that have begun to create: units made, and if the next one is being adapted
        self._created: dict[int, tuple[int, bool]] = {}
        self._number = 0  # of the last call
        self._owner = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process made the group: a fork of it must leave the workers alone."""
        return os.getpid() == self._owner

    @property
    def _start_timeout(self) -> float | None:
        return None if self.timeout is None else max(self.timeout, START_SECONDS)

    @property
    def life_fd(self) -> int:
        """Readable when a worker has died: call `read_news` then."""
        return self._launcher.channel.fileno()

    # ---- Calls -----------------------------------------------------------------------------------

    def create(self, workers: list[int]) -> dict[int, Any]:
        """Start processes, in place of lost ones too; return the descriptions of their envs."""
        number = self._next_number()
        total = sum(len(self._partition.units[worker]) for worker in workers)
        for worker in workers:
            self._start(worker, number, total)
            self.read_news()  # hundreds of unread answers would block the launcher
        return self._gather(workers, "create", number)

    def _start(self, worker: int, number: int, total: int) -> None:
        if worker in self.channels:
            self.channels.pop(worker).shut()
        for known in (self.dead, self.pids, self._created):
            known.pop(worker, None)
        self.channels[worker], theirs = Channel.pair()
        self.channels[worker].set_timeout(self._start_timeout)
        with contextlib.suppress(EOFError):  # `read_news` will raise
            self._launcher.channel.send(("start", worker), (theirs.fileno(),))
        theirs.close()
        units = self._partition.units[worker]
        place = (list(sys.path), _folder(), self._worker_threads)
        self._send(worker, Setup(number, worker, units, total, self._creator, *place))

    def bind(self, workers: list[int], message: Callable[[int, int], tuple[Any, Any]]) -> None:
        """Give workers their rows: `message(number, worker)` and descriptors go to each."""
        number = self._next_number()
        for worker in workers:
            self._send(worker, *message(number, worker))
        self._gather(workers, "bind", number)

    def call(
        self, workers: list[int], call: str, *arguments: object, on_lost: OnLost = None
    ) -> dict[int, Any]:
        """Call workers that have been bound and return their answers.

        An error that one of them answers with is raised when all have answered. `on_lost` may
        replace a lost worker, which is then called in turn; without it that error is raised at
        once.
        """
        number = self._next_number()
        for worker in workers:
            self._send(worker, (number, call, *arguments))

        def again(error: LostWorkerError) -> None:
            assert on_lost is not None
            on_lost(error)
            self._send(error.worker, (number, call, *arguments))

        return self._gather(workers, call, number, again if on_lost else None)

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _send(self, worker: int, message: object, fds: tuple[int, ...] = ()) -> None:
        with contextlib.suppress(EOFError, TimeoutError):  # the wait for the answer will notice
            self.channels[worker].send(message, fds)
            self._wake(worker)

    def _wake(self, worker: int) -> None:
        """Let a worker that waits for its turn look at its channel."""
        if self.flags is not None:
            self.flags.call(worker)

    def receive(self, worker: int) -> Any:
        """Return the next message of a worker, None where none can come any more."""
        try:
            return self.channels[worker].receive()
        except (EOFError, TimeoutError):
            return None
        except Exception as error:
            raise unreadable(self._partition.label(worker), error) from error

    def _gather(
        self, workers: list[int], call: str, number: int, on_lost: OnLost = None
    ) -> dict[int, Any]:
        """Wait for the answer of each worker to the call with this number."""
        waiting, answers = list(workers), {}
        failures: dict[int, Failure] = {}
        is_start = call == "create"
        clock = Clock(self.timeout)
        start_clock = Clock(self._start_timeout)
        while waiting:
            lost: LostWorkerError | None = None
            for worker in self._readable(waiting, clock.slice_ms):
                has_message = worker not in self.dead or self._has_message(worker)
                message = self.receive(worker) if has_message else None
                if message is None:
                    lost = self.lost(worker, call, self._unit(worker, call))
                    break
                of, kind, value = message
                if of != number or kind not in ("ok", "error", "created"):
                    continue  # of a call that was interrupted
                if kind == "created":
                    self._created[worker] = value
                    continue
                if kind == "error" and value.is_lost_worker:
                    lost = self.lost_inside(worker, call, value)
                    break
                waiting.remove(worker)
                if kind == "error":
                    failures[worker] = value
                else:
                    answers[worker] = value
            if lost is None:
                begun = [w for w in waiting if not is_start or w in self._created]
                late = clock.late({w: self._unit(w, call) for w in begun})
                if late is None:
                    late = start_clock.late({w: 0 for w in waiting if w not in begun})
                if late is not None:
                    lost = self.hung(late, call, self._unit(late, call))
            if lost is not None:
                if on_lost is None:
                    raise lost
                on_lost(lost)
        if failures:
            raise rebuilt(failures[min(failures)])
        return answers

    def _unit(self, worker: int, call: str) -> int | None:
        """Return which of its units a worker is at, None before the first."""
        if call in ("create", "bind"):
            made = self._created.get(worker)
            return made[0] if made is not None and call == "create" else None
        return int(self.flags.progress(worker))

    def _readable(self, workers: list[int], timeout_ms: int) -> list[int]:
        """Wait for a message or the death of one of `workers`; return those workers."""
        by_fd = {self.channels[worker].fileno(): worker for worker in workers}
        heard = {fd for fd, _ in _poll([*by_fd, self.life_fd], timeout_ms)}
        if self.life_fd in heard:
            self.read_news()
        return [worker for fd, worker in by_fd.items() if fd in heard or worker in self.dead]

    def _has_message(self, worker: int) -> bool:
        """Return whether a message of a dead worker is left to read."""
        events = _poll([self.channels[worker].fileno()], 0)
        return any(event & select.POLLIN for _, event in events)

    # ---- Lost workers ----------------------------------------------------------------------------

    def read_news(self) -> None:
        """Note the starts and deaths of workers that the launcher has reported."""
        while _poll([self.life_fd], 0):
            try:
                kind, worker, pid, *rest = self._launcher.channel.receive()
            except EOFError:
                raise LostWorkerError(
                    "the process that starts the workers died. Was it killed?", signal="SIGKILL"
                ) from None
            if kind == "started":
                self.pids[worker] = pid
            elif self.pids.get(worker) == pid:  # else it has been replaced already
                del self.pids[worker]
                self.dead[worker] = Death(*rest)

    def lost(self, worker: int, call: str, unit: int | None = None) -> LostWorkerError:
        """Return the error for a worker that died in `unit` of `call`."""
        death = self._await_death(worker)
        name, how = None, "was cut off in the middle of a message"
        if death is None:
            self._signal(worker, signal.SIGKILL)
        elif death.status < 0:
            name = _signal_name(-death.status)
            hint = " (from outside, or out of memory)" if name == "SIGKILL" else ""
            how = f"died of {name}{hint}"
        else:
            how = f"exited with code {death.status}"
        tail = death.tail if death else ""
        lines = _indented(tail, "Its last lines on stderr:")
        how = f"{how} during {self._place(worker, call, unit)}.{lines}"
        return self._partition.lost(worker, how, name, tail)

    def hung(self, worker: int, call: str, unit: int | None) -> LostWorkerError:
        """End a worker that hangs, once it has written its stack; return the error for it."""
        self._signal(worker, STACK_SIGNAL)
        time.sleep(_STACK_SECONDS)
        self._signal(worker, signal.SIGKILL)
        death = self._await_death(worker)
        tail = death.tail if death else ""
        lines = _indented(tail, "Where it is:")
        if call == "create" and unit is None:
            limit, what = f"{max(self.timeout or 0, START_SECONDS):g} s", "start"
        else:
            limit = f"{self.timeout:g} s (`timeout`)"
            what = f"finish {self._place(worker, call, unit)}"
        how = f"did not {what} within {limit}.{lines}"
        return self._partition.lost(worker, how, "SIGKILL", tail)

    def lost_inside(self, worker: int, call: str, failure: Failure) -> LostWorkerError:
        """End a worker whose envs lost a worker of their own; return the error for it."""
        self._signal(worker, signal.SIGKILL)  # it could do nothing but repeat the error
        self._await_death(worker)
        how = f"lost a worker of its own during `{call}`: {failure.message}"
        return self._partition.lost(worker, how)

    def _await_death(self, worker: int) -> Death | None:
        deadline = time.monotonic() + _NEWS_SECONDS
        with contextlib.suppress(LostWorkerError):
            self.read_news()
            while worker not in self.dead and time.monotonic() < deadline:
                _poll([self.life_fd], 20)
                self.read_news()
        return self.dead.get(worker)

    def _signal(self, worker: int, number: int) -> None:
        with contextlib.suppress(EOFError):
            self._launcher.channel.send(("signal", worker, int(number)))

    def _place(self, worker: int, call: str, unit: int | None) -> str:
        """Return "`step` of env 5", or "`step`" where that is the only one."""
        spelled = "__init__" if call in ("create", "bind") else call
        if call == "create" and self._created.get(worker, (0, False))[1]:
            spelled = "reset"  # which shows if infos have action masks
        envs = self._partition.envs(worker)
        if unit is None or len(envs) == 1:
            return f"`{spelled}`"
        env = min(envs[0] + unit * self._partition.envs_per_unit, envs[-1])
        if self._partition.envs_per_unit > 1:
            return f"`{spelled}` of envs {env} to {env + self._partition.envs_per_unit - 1}"
        return f"`{spelled}` of env {env}"

    def stop(self) -> None:
        """Give the workers a moment to close their envs, and end them. Safe to call twice."""
        is_owner = self.is_ours
        for worker, channel in self.channels.items():
            if is_owner:
                channel.shut()
                self._wake(worker)
            else:
                channel.close()
        self.channels.clear()
        if is_owner:
            self._launcher.stop()
        else:
            self._launcher.channel.close()


class Clock:
    """Finds workers without progress for `timeout` seconds; None: no limit."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._seen: dict[int, tuple[object, float]] = {}
        self.slice_ms = 1000 if timeout is None else max(5, min(1000, round(timeout * 250)))

    def late(self, marks: Mapping[int, object]) -> int | None:
        """Note the progress of each worker; return one that has made none for too long, or None."""
        now = time.monotonic()
        late = None
        for worker, mark in marks.items():
            seen = self._seen.get(worker)
            if seen is None or seen[0] != mark:
                self._seen[worker] = (mark, now)
            elif self._timeout is not None and now - seen[1] > self._timeout:
                del self._seen[worker]
                late = worker
        return late


def _poll(fds: list[int], timeout_ms: int) -> list[tuple[int, int]]:
    """Wait for something to read; unlike `select.select`, for descriptors above 1023 too."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return poll.poll(timeout_ms)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _indented(text: str, heading: str) -> str:
    """Return the last lines of stderr for an error; a Python stack is shown from just before it."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not _OUR_LINES.match(line)]
    start = next((i for i, line in enumerate(lines) if line.startswith(_STACK_STARTS)), None)
    lines = lines[-TAIL_LINES:] if start is None else lines[max(0, start - 3) :][:STACK_LINES]
    return "".join(f"\n  {line}" for line in [heading, *lines]) if lines else ""
