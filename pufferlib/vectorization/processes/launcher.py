"""The launcher: a small process between a vector env and its workers.

It starts workers on request, notices at once when one dies, keeps the last lines that each wrote
to stderr (and passes them on), and ends all of them when its parent is gone, however that ended.
What a worker's envs have started ends with it: a worker is the leader of a process group, and the
launcher is the parent of all that a dead worker leaves, in whatever session. It knows nothing of
environments, so starting a worker from it is cheap and safe: it has no threads, no locks and none
of the user's objects.

Messages from the parent: `("start", worker)` with the worker's end of a channel, `("signal",
worker, number)`. To the parent: `("started", worker, pid)`, `("died", worker, pid, status, tail)`,
where `status` is an exit code, or minus the signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pufferlib import native
from pufferlib.errors import UsageError, unknown_choice
from pufferlib.vectorization.processes.channel import Channel

START_METHODS = ("forkserver", "spawn", "fork")
TAIL_BYTES = 32768  # a fatal error lists all C modules that are loaded, in one long line
GRACE_SECONDS = 1.0  # for workers to close their envs once the parent is gone

# libraries that start threads of their own read these when they are first loaded
_THREAD_CAPS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


# ---- The parent's side ---------------------------------------------------------------------------


class Launcher:
    """The parent's handle of a launcher process, and how to end it."""

    def __init__(
        self, start_method: str, worker_threads: int, run: Callable[[Channel], None] | None
    ) -> None:
        if start_method not in START_METHODS:
            raise unknown_choice("`start_method`", start_method, START_METHODS)
        self.channel, theirs = Channel.pair()
        self._process: subprocess.Popen[bytes] | None = None
        if start_method == "fork":
            sys.stdout.flush()
            sys.stderr.flush()
            self.pid = os.fork()
            if self.pid == 0:
                _run_forked(self.channel, theirs, worker_threads, run)
        else:
            caps = dict.fromkeys(_THREAD_CAPS, str(worker_threads))
            arguments = [str(theirs.fileno()), start_method, str(os.getpid())]
            self._process = subprocess.Popen(
                _interpreter("pufferlib.vectorization.processes.launcher", "main", arguments),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **caps},
                process_group=0,  # Ctrl-C is for the parent, which decides
            )
            self.pid = self._process.pid
        theirs.close()

    def stop(self, seconds: float = 3.0) -> None:
        """Close the channel, so that the launcher ends its workers; wait until it is gone."""
        self.channel.shut()
        deadline = time.monotonic() + seconds
        while not self._is_gone():
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(0.001)

    def _is_gone(self) -> bool:
        if self._process is not None:
            return self._process.poll() is not None
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True


def _interpreter(module: str, function: str, arguments: list[str]) -> list[str]:
    """Return the command that calls a function in a new interpreter with the same `sys.path`.

    The user's script is not imported there: it may have no `__main__` guard.
    """
    if not sys.executable:
        raise UsageError("Workers need `sys.executable`, but it is empty. Try Serial.")
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from {module} import {function}; {function}(*sys.argv[1:])"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code, *arguments]


# ---- The launcher's side -------------------------------------------------------------------------


def main(fd: str, start_method: str, parent: str) -> None:
    """Run a launcher over the channel `fd` until the parent is gone."""
    channel = Channel.of_fd(int(fd))
    _Server(channel, start_method, int(parent), None).run()
    channel.close()
    os._exit(0)  # nothing is left to clean up, and the parent waits


def _run_forked(
    parents: Channel, own: Channel, worker_threads: int, run: Callable[[Channel], None] | None
) -> NoReturn:
    try:
        parent = os.getppid()
        os.setpgid(0, 0)
        parents.close()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)  # only the parent reads the terminal
        os.close(null)
        os.environ.update(dict.fromkeys(_THREAD_CAPS, str(worker_threads)))
        _Server(own, "fork", parent, run).run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


@dataclass
class _Worker:
    number: int
    pid: int
    stderr: int  # the reading end of its pipe
    is_open: bool = True
    tail: bytearray = field(default_factory=bytearray)
    line: bytearray = field(default_factory=bytearray)  # begun, and not passed on yet

    def read(self, out: bytearray) -> bool:
        """Move the lines that it wrote to stderr to `out`; False if there is nothing more now.

        A line that is not at its end yet waits: others write there too.
        """
        try:
            data = os.read(self.stderr, 65536)
        except BlockingIOError:
            return False
        self.is_open = bool(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        self.line += data
        end = max(self.line.rfind(b"\n"), self.line.rfind(b"\r")) + 1
        if not data or len(self.line) > TAIL_BYTES:
            end = len(self.line)
        out += self.line[:end]
        del self.line[:end]
        return self.is_open


class _Server:
    """The launcher's loop, which nothing can block."""

    def __init__(
        self,
        channel: Channel,
        start_method: str,
        parent: int,
        run: Callable[[Channel], None] | None,
    ) -> None:
        self._channel, self._start_method, self._run_worker = channel, start_method, run
        self._workers: dict[int, _Worker] = {}  # by pid
        self._groups: set[int] = set()  # of dead workers that may have processes left
        self._orphans: dict[int, int] = {}  # children of the dead by pid, and the signal they got
        self._unwritten = bytearray()  # stderr of workers that is not passed on yet
        self._parent_fd = _watch(parent)
        native.adopt_orphans()  # processes that a dead worker started become ours
        self._news, self._wake = os.pipe()  # SIGCHLD, so that `poll` hears of it
        for fd in (self._news, self._wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _ignore)  # the parent decides, and closes the channel
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # to write to the terminal in the background

    def run(self) -> None:
        """Serve until the parent is gone; then end the workers."""
        try:
            while True:
                ready = self._wait([self._channel.fileno(), self._parent_fd])
                if self._parent_fd in ready:
                    return
                if self._channel.fileno() in ready:
                    self._obey(*self._channel.receive_with_fds())
                for worker, status in self._reap():
                    tail = worker.tail.decode(errors="replace")
                    self._channel.send(("died", worker.number, worker.pid, status, tail))
        except EOFError:
            pass
        finally:
            self._end()

    def _wait(self, fds: list[int], timeout_ms: int | None = None) -> set[int]:
        """Wait for one of `fds`, or the death of a worker; pass on what workers write meanwhile."""
        poll = select.poll()
        for fd in (self._news, *(fd for fd in fds if fd >= 0)):
            poll.register(fd, select.POLLIN)
        stderrs = {w.stderr: w for w in self._workers.values() if w.is_open}
        if self._unwritten:  # like a full pipe: workers must wait, the launcher must not
            poll.register(2, select.POLLOUT)
        else:
            for fd in stderrs:
                poll.register(fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(timeout_ms)}
        if self._news in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._news, 4096)
        for fd in ready & stderrs.keys():
            stderrs[fd].read(self._unwritten)
        self._write()
        return ready

    def _write(self) -> None:
        """Write what can be written now: a writable pipe takes a page without blocking."""
        poll = select.poll()
        poll.register(2, select.POLLOUT)
        while self._unwritten and poll.poll(0):
            try:
                del self._unwritten[: os.write(2, self._unwritten[: select.PIPE_BUF])]
            except OSError:  # the terminal or pipe is closed
                self._unwritten.clear()

    def _obey(self, message: tuple[Any, ...], fds: list[int]) -> None:
        command, number, *rest = message
        if command == "signal":
            pids = [worker.pid for worker in self._workers.values() if worker.number == number]
            if pids:
                os.kill(pids[-1], rest[0])  # not reaped yet, so the pid is still its own
            return
        try:
            worker = self._start(number, fds[0])
        except OSError as error:  # too many processes, or files
            self._channel.send(("started", number, 0))
            tail = f"it could not be started: {error.strerror}"
            self._channel.send(("died", number, 0, 1, tail))
        else:
            self._workers[worker.pid] = worker
            self._channel.send(("started", number, worker.pid))
        finally:
            os.close(fds[0])

    def _start(self, number: int, end: int) -> _Worker:
        reading, writing = os.pipe()
        try:
            os.set_blocking(reading, False)
            launcher = os.getpid()
            pid = os.fork()
            if pid == 0:
                self._become_worker(launcher, end, reading, writing)
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return _Worker(number, pid, reading)

    def _become_worker(self, launcher: int, end: int, reading: int, writing: int) -> NoReturn:
        try:
            native.die_with_parent()
            native.adopt_orphans()  # daemons of its envs: the launcher gets them when it dies
            os.setpgid(0, 0)
            if os.getppid() != launcher:
                os._exit(1)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(writing, 2)
            # those of a notebook or a test may need threads, which a fork does not have
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            self._channel.close()
            others = [worker.stderr for worker in self._workers.values()]
            for fd in (reading, writing, self._news, self._wake, *others):
                os.close(fd)
            if self._start_method == "spawn":
                os.set_inheritable(end, True)
                words = _interpreter("pufferlib.vectorization.processes.worker", "main", [str(end)])
                os.execv(words[0], words)
            from pufferlib.vectorization.processes.worker import run_and_leave, run_worker

            run_and_leave(self._run_worker or run_worker, Channel.of_fd(end))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _reap(self) -> list[tuple[_Worker, int]]:
        """Return the workers that have died, with their status, all they wrote read."""
        dead = []
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            pid = found.si_pid
            worker = self._workers.pop(pid, None)
            if worker is not None:
                left_by_itself = found.si_code == os.CLD_EXITED and found.si_status == 0
                number = int(signal.SIGTERM if left_by_itself else signal.SIGKILL)
                self._end_group(pid, number)
            else:
                number = self._orphans.pop(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)  # only now may another process get its number
            self._end_orphans(number)
            if worker is not None:
                while worker.read(self._unwritten):  # a grandchild may hold the pipe open
                    pass
                self._unwritten += worker.line
                os.close(worker.stderr)
                dead.append((worker, os.waitstatus_to_exitcode(status)))
        self._write()
        return dead

    def _end_group(self, pid: int, number: int) -> None:
        """Signal the processes that the envs of a worker have started, if any are left."""
        try:
            os.killpg(pid, number)
            self._groups.add(pid)
        except ProcessLookupError:
            self._groups.discard(pid)

    def _end_orphans(self, number: int) -> None:
        """Signal the processes that dead workers have left; their children become ours as they die.

        All are children of this process, so no pid is reused before we reap it.
        """
        for pid in _children() - self._workers.keys():
            if number == signal.SIGKILL or pid not in self._orphans:
                self._orphans[pid] = number
                with contextlib.suppress(PermissionError):  # it runs as another user
                    os.kill(pid, number)

    def _end(self) -> None:
        """Give workers a moment to exit by themselves; then end them."""
        self._reap_until(time.monotonic() + GRACE_SECONDS)
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)
        for pid in {*self._workers, *self._groups}:
            self._end_group(pid, signal.SIGKILL)
        self._end_orphans(signal.SIGKILL)
        self._reap_until(time.monotonic() + GRACE_SECONDS)

    def _reap_until(self, deadline: float) -> None:
        """Reap processes until none is left or the deadline has passed."""
        self._reap()
        while self._has_processes() and time.monotonic() < deadline:
            self._wait([], 20)
            self._reap()

    def _has_processes(self) -> bool:
        for pid in list(self._groups):
            self._end_group(pid, 0)
        return bool(self._workers or self._groups or self._orphans)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: unlike SIG_IGN, this is not inherited by what a worker runs."""


def _children() -> set[int]:
    """Return the children of this process, zombies too; empty where the system has no list."""
    try:
        with open("/proc/thread-self/children") as file:
            return set(map(int, file.read().split()))
    except OSError:
        return set()


def _watch(pid: int) -> int:
    """Return a descriptor that becomes readable when `pid` dies; -1 where there is no such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1
