"""The launcher: a small process between a vector env and its workers.

It starts workers when told to, notices at once when one dies, keeps the last lines that each wrote
to stderr (and passes them on), and ends all of them when its parent is gone, however that ended. It
knows nothing of environments, so starting a worker from it is cheap and safe: it has no threads, no
locks and none of the user's objects.

Messages from the parent: `("start", worker)` with the worker's end of a channel, `("signal",
worker, number)`. To the parent: `("started", worker, pid)`, `("died", worker, status, tail)`, where
`status` is an exit code, or minus the signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from pufferlib import native
from pufferlib.errors import UsageError
from pufferlib.vectorization.channel import Channel

START_METHODS = ("forkserver", "spawn", "fork")
TAIL_BYTES = 8192
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
            raise UsageError(
                f"`start_method` must be one of {', '.join(START_METHODS)}, "
                f"but got {start_method!r}."
            )
        self.channel, theirs = Channel.pair()
        self._process: subprocess.Popen[bytes] | None = None
        if start_method == "fork":
            sys.stdout.flush()
            sys.stderr.flush()
            self.pid = os.fork()
            if self.pid == 0:
                _run_forked(self.channel, theirs, worker_threads, run)
        else:
            caps = {name: str(worker_threads) for name in _THREAD_CAPS if name not in os.environ}
            arguments = [str(theirs.fileno()), start_method, str(os.getpid())]
            self._process = subprocess.Popen(
                _interpreter("pufferlib.vectorization.launcher", "main", arguments),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **caps},
            )
            self.pid = self._process.pid
        theirs.close()

    def stop(self, seconds: float = 3.0) -> None:
        """Let go of the launcher, which ends its workers, and wait until it is gone."""
        self.channel.close()
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
    """Return the command that calls a function in a new interpreter which finds what we find.

    The user's script is not imported there: it may have no `__main__` guard.
    """
    if not sys.executable:
        raise UsageError("workers need `sys.executable`, but there is none. Try Serial.")
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from {module} import {function}; {function}(*sys.argv[1:])"
    )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code, *arguments]


# ---- The launcher's side -------------------------------------------------------------------------


def main(fd: str, start_method: str, parent: str) -> None:
    """Run a launcher over the channel `fd` until the parent is gone."""
    _serve(Channel.of_fd(int(fd)), start_method, int(parent), None)


def _run_forked(
    parents: Channel, own: Channel, worker_threads: int, run: Callable[[Channel], None] | None
) -> NoReturn:
    try:
        parent = os.getppid()
        parents.close()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)  # nobody but the parent reads the terminal
        os.close(null)
        for name in _THREAD_CAPS:
            os.environ.setdefault(name, str(worker_threads))
        _serve(own, "fork", parent, run)
    finally:
        os._exit(0)


@dataclass
class _Worker:
    number: int
    pid: int
    stderr: int  # the reading end of its pipe
    tail: bytearray = field(default_factory=bytearray)

    def read(self) -> bytes | None:
        """Pass on what it wrote to stderr: b"" at the end of it, None if there is nothing now."""
        try:
            data = os.read(self.stderr, 65536)
        except BlockingIOError:
            return None
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        with contextlib.suppress(OSError):  # nobody may be there to read it
            os.write(2, data)
        return data


def _serve(
    channel: Channel, start_method: str, parent: int, run: Callable[[Channel], None] | None
) -> None:
    workers: dict[int, _Worker] = {}  # by pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ignore)  # the parent decides; it tells by closing the channel
    news, wake = os.pipe()
    for fd in (news, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _ignore)
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    poll.register(news, select.POLLIN)
    parent_fd = _watch(parent)
    if parent_fd is not None:
        poll.register(parent_fd, select.POLLIN)
    own_fds = (news, wake)
    try:
        while True:
            for fd, _ in poll.poll():
                if fd == parent_fd:
                    return
                if fd == channel.fileno():
                    message, fds = channel.receive_with_fds()
                    if message[0] == "start":
                        worker = _start(message[1], fds[0], start_method, run, channel, own_fds)
                        workers[worker.pid] = worker
                        poll.register(worker.stderr, select.POLLIN)
                        channel.send(("started", worker.number, worker.pid))
                    else:
                        _signal(workers, message[1], message[2])
                elif fd == news:
                    with contextlib.suppress(BlockingIOError):
                        os.read(news, 4096)
                else:
                    worker = next(each for each in workers.values() if each.stderr == fd)
                    if worker.read() == b"":
                        poll.unregister(fd)
            for worker, status in _reap(workers):
                with contextlib.suppress(KeyError):
                    poll.unregister(worker.stderr)
                os.close(worker.stderr)
                tail = worker.tail.decode(errors="replace")
                channel.send(("died", worker.number, status, tail))
    except EOFError:
        pass
    finally:
        _end(workers, poll)


def _ignore(number: int, frame: Any) -> None:
    """Do nothing: unlike SIG_IGN, this is not inherited by what a worker runs."""


def _watch(pid: int) -> int | None:
    """Return a descriptor that becomes readable when `pid` dies, where the system has such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _start(
    number: int,
    end: int,
    start_method: str,
    run: Callable[[Channel], None] | None,
    channel: Channel,
    own_fds: tuple[int, ...],
) -> _Worker:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    launcher = os.getpid()
    pid = os.fork()
    if pid:
        os.close(end)
        os.close(writing)
        return _Worker(number, pid, reading)
    code = 1
    try:
        native.die_with_parent()
        if os.getppid() != launcher:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.dup2(writing, 2)
        channel.close()
        for fd in (reading, writing, *own_fds):
            os.close(fd)
        if start_method == "spawn":
            os.set_inheritable(end, True)
            words = _interpreter("pufferlib.vectorization.worker", "main", [str(end)])
            os.execv(words[0], words)
        if run is None:
            from pufferlib.vectorization.worker import run_worker

            run = run_worker
        run(Channel.of_fd(end))
        code = 0
    except SystemExit as leaving:
        given = leaving.code
        code = given if isinstance(given, int) else int(given is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _signal(workers: dict[int, _Worker], number: int, what: int) -> None:
    for worker in workers.values():
        if worker.number == number:
            os.kill(worker.pid, what)  # not reaped yet, so the pid is still its own


def _reap(workers: dict[int, _Worker]) -> list[tuple[_Worker, int]]:
    """Return the workers that have died, with their status, all they wrote read."""
    dead = []
    while workers:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if not pid:
            break
        worker = workers.pop(pid, None)
        if worker is not None:
            while worker.read():  # a grandchild may hold the pipe open: stop when it is empty
                pass
            dead.append((worker, os.waitstatus_to_exitcode(status)))
    return dead


def _end(workers: dict[int, _Worker], poll: Any) -> None:
    """Wait for workers to leave by themselves, for a moment; then end them."""
    deadline = time.monotonic() + GRACE_SECONDS
    while workers and time.monotonic() < deadline:
        _reap(workers)
        if workers:
            select.select([worker.stderr for worker in workers.values()], [], [], 0.005)
            for worker in workers.values():
                worker.read()
    for worker in workers.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
    for pid in list(workers):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
