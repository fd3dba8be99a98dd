"""Kills workers at random moments: each kill must be a named error within 2 s, and nothing stays.

python tests/faults/kill_workers.py [KILLS=200] [SEED=0]
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rigs"))

import gymnasium
import numpy as np
import psutil
from faulty import children, nothing_left
from gymnasium.spaces import Box, Discrete
from waiting import is_within, watchdog

from pufferlib.errors import WorkerError
from pufferlib.vectorization import Multiprocessing, Serial

LIMIT = 2.0  # seconds from the kill to the error
LATEST = 0.5  # seconds from the beginning to the kill


class Busy(gymnasium.Env[Any, Any]):
    """Takes a random time for everything, and has much to say."""

    observation_space = Box(-1, 1, (8,), np.float32)
    action_space = Discrete(2)
    render_mode = "rgb_array"

    def __init__(self) -> None:
        self.rng = np.random.default_rng(os.getpid())
        self._work(0.02)

    def _work(self, seconds: float) -> None:
        seconds *= self.rng.random() ** 4
        if self.rng.random() < 0.5:
            time.sleep(seconds)
            return
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._work(0.02)
        return np.zeros(8, np.float32), {}

    def step(self, action: Any) -> Any:
        self._work(0.01)
        info = {"words": self.rng.normal(size=20_000)} if self.rng.random() < 0.1 else {}
        return np.zeros(8, np.float32), 1.0, self.rng.random() < 0.02, False, info

    def render(self) -> Any:
        self._work(0.02)
        return np.zeros((8, 8, 3), np.uint8)


class Kill(NamedTuple):
    """One kill: how long the error took, and what it said."""

    layout: str
    call: str
    seconds: float
    message: str


LAYOUTS: dict[str, Any] = {
    "2 x 2": lambda **how: Multiprocessing(Busy, 4, 2, **how),
    "4 x 1": lambda **how: Multiprocessing(Busy, 4, 4, **how),
    "1 x 3": lambda **how: Multiprocessing(Busy, 3, 1, **how),
    "async, 2 + 2": lambda **how: Multiprocessing(Busy, 2, 2, mode="async", surplus_envs=2, **how),
    "2 x Serial of 2": lambda **how: Multiprocessing(lambda: Serial(Busy, 2), 2, 2, **how),
}


def kill_once(
    rng: np.random.Generator, methods: Sequence[str] = ("fork", "fork", "fork", "forkserver")
) -> Kill:
    """Make a vector, use it, kill one of its workers in between, and wait for the error."""
    layout = str(rng.choice(list(LAYOUTS)))
    how = {"start_method": str(rng.choice(methods))}
    killed: list[tuple[int, float]] = []
    thread = threading.Thread(
        target=_kill_a_worker, args=(children(), rng.uniform(0, LATEST), rng.random(), killed)
    )
    thread.start()
    vecenv, error = None, None
    try:
        vecenv = LAYOUTS[layout](**how)
        while True:
            _use(vecenv, rng)
    except WorkerError as caught:
        raised, error = time.monotonic(), caught
    thread.join()
    said = re.search(r"^worker (\d) \(envs? [^)]*\) died of SIGKILL .* during `(\w+)`", str(error))
    assert said, error
    assert (type(error), error.signal) == (WorkerError, "SIGKILL"), error
    assert error.worker == int(said[1]), error
    return Kill(layout, said[2], raised - killed[0][1], str(error))


def _kill_a_worker(known: set[int], delay: float, which: float, out: list[Any]) -> None:
    """Kill one of the workers, which are the grandchildren of this process, after `delay`."""
    time.sleep(delay)
    while True:
        launchers = [child for child in psutil.Process().children() if child.pid not in known]
        try:
            workers = [worker for launcher in launchers for worker in launcher.children()]
            if workers:
                victim = workers[int(which * len(workers))]
                os.kill(victim.pid, signal.SIGKILL)
                out.append((victim.pid, time.monotonic()))
                return
        except (psutil.NoSuchProcess, ProcessLookupError):
            pass
        time.sleep(0.001)


def _use(vecenv: Any, rng: np.random.Generator) -> None:
    vecenv.reset(seed=int(rng.integers(1000)))
    batch = vecenv.recv()
    for _ in range(int(rng.integers(1, 30))):
        vecenv.send(np.zeros(len(batch.rewards), np.int32))
        if rng.random() < 0.1:
            time.sleep(0.01)  # the policy thinks
        if rng.random() < 0.05:
            vecenv.render(int(rng.integers(vecenv.num_envs)))
        if rng.random() < 0.05:
            vecenv.snapshot()
        batch = vecenv.recv()
        list(batch.infos)


def main(kills: int = 200, seed: int = 0) -> None:
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    found = []
    for number in range(kills):
        with watchdog(30), nothing_left():
            found.append(kill_once(rng))
        if not is_within(found[-1].seconds, LIMIT):
            print(f"kill {number}: {found[-1]}")
    seconds = sorted(kill.seconds for kill in found)
    late = sum(each > LIMIT for each in seconds)
    print(f"{len(found)} kills, {len(found)} named errors, {late} later than {LIMIT:g} s")
    print(f"calls: {dict(Counter(kill.call for kill in found))}")
    print(f"layouts: {dict(Counter(kill.layout for kill in found))}")
    print(
        f"seconds to the error: median {statistics.median(seconds):.3f}, "
        f"95 % {seconds[int(0.95 * (len(seconds) - 1))]:.3f}, most {seconds[-1]:.3f}"
    )
    print(f"left behind: nothing; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
