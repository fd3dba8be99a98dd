"""Envs that misbehave on command, and a look at what they leave behind."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
from gymnasium.spaces import Box, Discrete
from waiting import is_within

NOTHING, NOW, AT_CLOSE, AT_RESET = range(4)  # actions
BAD_SEED = 13


class Faulty(gymnasium.Env[Any, Any]):
    """Counts its steps, and runs `fault` on demand: by an action, by a seed, or when it is made.

    Action NOW does so in this step, AT_CLOSE when it is closed, AT_RESET in the reset that follows:
    the episode is cut with this step. `at="init"` does so in its constructor, and BAD_SEED in
    `reset`.
    """

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(4)

    def __init__(self, fault: Callable[[], Any] = lambda: None, at: str = "") -> None:
        self.fault = fault
        self.count, self.doomed, self.seed = 0, NOTHING, -1.0
        if at == "init":
            fault()

    def _look(self) -> Any:
        return np.array([self.count, self.seed], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == BAD_SEED or self.doomed == AT_RESET:
            self.fault()
        if seed is not None:
            self.seed, self.count = float(seed % 1000), 0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if action == NOW:
            self.fault()
        elif action != NOTHING:
            self.doomed = action
        return self._look(), 1.0, False, action == AT_RESET, {}

    def close(self) -> None:
        if self.doomed == AT_CLOSE:
            self.fault()


class FaultyStart(Faulty):
    """Runs `fault` if it is the first of all to be reset: only that one can make the file `token`.

    With seed 0 emulation only looks for action masks.
    """

    def __init__(self, fault: Callable[[], Any], token: Path) -> None:
        super().__init__(fault)
        self.token = token

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed:
            with contextlib.suppress(FileExistsError):
                self.token.touch(exist_ok=False)
                self.fault()
        return super().reset(seed=seed)


# what envs start: in the worker's group, in a session of its own, with a child in yet another one
# that no polite signal ends, and left to whatever process adopts it
SIMULATORS = {
    "group": "echo $$; exec sleep 1000",
    "session": "echo $$; exec setsid sleep 1000",
    "tree": "trap '' TERM; setsid sleep 1000 & echo $$ $!; wait",
    "daemon": "setsid sleep 1000 & echo $!",
}


class Simulated(Faulty):
    """Starts a simulator, names its processes in every info, and forgets it."""

    def __init__(self, simulator: str, fault: Callable[[], Any] = lambda: None) -> None:
        super().__init__(fault)
        command = ["sh", "-c", SIMULATORS[simulator]]
        self.simulator = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.simulator.stdout is not None
        self.pids = [int(pid) for pid in self.simulator.stdout.readline().split()]

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, {"pids": self.pids}


# ---- Ways to fail --------------------------------------------------------------------------------


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    sys.stderr.write("about to read address 0\n")
    sys.stderr.flush()
    ctypes.string_at(0)


def leave() -> None:
    sys.stderr.write("the level file is gone\n")
    sys.stderr.flush()
    os._exit(7)


def leave_politely() -> None:
    sys.exit("the level file is gone")


def abort() -> None:
    os.abort()


def sleep_forever() -> None:
    time.sleep(1e6)


def loop_forever_holding_the_gil() -> None:
    """Search for what cannot be found: a step of this regex takes longer than a lifetime."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def stop_the_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


# what happens to the worker: its status, and what the error says
DEATHS: dict[str, tuple[Callable[[], None], str | None, str]] = {
    "kill -9": (kill, "SIGKILL", "died of SIGKILL"),
    "segfault": (crash, "SIGSEGV", "died of SIGSEGV"),
    "os._exit": (leave, None, "exited with code 7"),
    "abort": (abort, "SIGABRT", "died of SIGABRT"),
}


# ---- What is left --------------------------------------------------------------------------------


def memory_maps() -> int:
    """Return how many shared memories of ours this process has mapped."""
    return Path("/proc/self/maps").read_text().count("memfd:pufferlib")


def open_files() -> list[str]:
    """Return what the descriptors of this process stand for."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:  # the one that listed them
            continue
    return found


def children() -> set[int]:
    """Return the processes below this one, zombies too."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])
    found, newest = set(), {os.getpid()}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest}
        found |= newest
    return found


def wait_for_end(pids: set[int], seconds: float) -> set[int]:
    """Wait until all have ended, zombies included; return those that have not."""
    start = time.monotonic()
    while left := {pid for pid in pids if psutil.pid_exists(pid)}:
        if not is_within(time.monotonic() - start, seconds):
            return left
        time.sleep(0.005)
    return set()


@contextmanager
def nothing_left(seconds: float = 3.0) -> Iterator[None]:
    """Assert that no process, thread, descriptor or shared memory outlives the block."""
    before, known = _counts(), children()
    yield
    if _is_more(before, known):
        gc.collect()  # takes long in a process with torch
    start = time.monotonic()
    while _is_more(before, known):
        assert is_within(time.monotonic() - start, seconds), (
            f"left: {children() - known}, {before} -> {_counts()}, {open_files()}"
        )
        time.sleep(0.01)


def _is_more(before: tuple[int, ...], known: set[int]) -> bool:
    return bool(children() - known) or any(now > then for now, then in zip(_counts(), before))


def _counts() -> tuple[int, int, int]:
    return len(open_files()), memory_maps(), threading.active_count()
