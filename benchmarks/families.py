"""Environments of other packages on worker processes, beside plain loops over them.

    python benchmarks/families.py                       every name of NAMES; some minutes
    python benchmarks/families.py crafter nethack --rounds 9 --seconds 1

For each name three things run alternately, with random actions: a plain loop over one env in one
process; the same loop in as many processes as there are cores, at once; `make(NAME,
backend="multiprocessing")` with as many workers. *Ideal* is the first rate times the cores. The
second says how much of that these cores give: they share caches and memory, and other programs run.
On a busy machine no wall-clock rate says much, so the CPU time of a step is measured too, each in
its best round: in the plain loop, in all workers with the main process, and in this process for
the envs of one worker (`Serial`), which costs what a worker does apart from turns. Steps are those
of envs. Other ratios are medians over rounds. Workers have as many envs as the family's ini says,
or more where the envs of a worker would take less than TURN_SECONDS for a step of all; LARGE ones
stay as they are.

Results go to benchmarks/results/workers.json, name by name; `make docs` writes the table into
docs/performance.md. The bar: 0.9 of the ideal.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from bars import cpu_model, say
from learning import store

RESULTS = Path(__file__).resolve().parent / "results" / "workers.json"
BAR = 0.9
TURN_SECONDS = 0.005  # of a worker: a turn itself takes up to 1 ms on busy cores
MAX_ENVS = 1024
LARGE = ("nethack", "minihack-", "vizdoom-", "magent-")  # more of these leave a core's cache
NUM_ACTIONS = 256  # drawn beforehand
NAMES = (
    "gym-CartPole-v1",
    "gym-FrozenLake-v1",
    "gym-LunarLander-v3",
    "mujoco-hopper",
    "pettingzoo-simple-spread",
    "pettingzoo-knights-archers-zombies",
    "pettingzoo-connect-four",
    "minigrid-empty-8x8",
    "minigrid-doorkey-8x8",
    "nethack",
    "minihack-room-5x5",
    "crafter",
    "griddly-clusters",
    "magent-battle",
    "magent-adversarial-pursuit",
    "dmc-walker-walk",
    "highway-merge",
    "vizdoom-basic",
    "bsuite-catch",
    "openspiel-tic-tac-toe",
    "retro-airstriker-genesis",
    "neuralmmo",
)


class Rate(NamedTuple):
    """Steps of envs per second, and CPU seconds of a step."""

    steps: float
    cpu: float


def own_pids(but: Sequence[int] = ()) -> list[int]:
    """Return this process and those that it has started, some envs included."""
    children = {each.pid for each in psutil.Process().children(recursive=True)}
    return [os.getpid(), *children.difference(but)]


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds that the threads of processes have used, to the nanosecond."""
    threads = (path for pid in pids for path in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((path / "schedstat").read_text("utf-8").split()[0]) for path in threads) / 1e9


# ---- Plain loops ---------------------------------------------------------------------------------


class PlainLoop:
    """Steps one env as its own docs do, with random actions, and resets it where it ends."""

    def __init__(self, name: str, seed: int) -> None:
        from pufferlib.registry import find

        spec = find(name)
        self.env = spec.entry_point(**spec.kwargs)
        self.env.reset(seed=seed)
        self.seed, self.count, self.pids = seed, 0, own_pids()
        if hasattr(self.env, "agent_iter"):
            self.step = self._step_turn
        elif hasattr(self.env, "possible_agents"):
            self.step = self._step_all
            self.actions = {id: self._drawn(id) for id in self.env.possible_agents}
        else:
            self.step = self._step_one
            self.actions = {None: self._drawn(None)}

    def _drawn(self, agent: Any) -> list[Any]:
        space = self.env.action_space if agent is None else self.env.action_space(agent)
        space.seed(self.seed)
        return [space.sample() for _ in range(NUM_ACTIONS)]

    def run(self, seconds: float) -> Rate:
        """Step for about `seconds`."""
        step, count, used, start = self.step, 0, cpu_seconds(self.pids), time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            step()
            count += 1
        return Rate(count / passed, (cpu_seconds(self.pids) - used) / count)

    def _step_one(self) -> None:
        self.count += 1
        result = self.env.step(self.actions[None][self.count % NUM_ACTIONS])
        if any(result[2:-1]):  # terminated and truncated, or done in the old API
            self.env.reset()

    def _step_all(self) -> None:
        self.count += 1
        number = self.count % NUM_ACTIONS
        self.env.step({id: self.actions[id][number] for id in self.env.agents})
        if not self.env.agents:
            self.env.reset()

    def _step_turn(self) -> None:
        self.count += 1
        while True:  # agents that have ended are stepped with None
            if not self.env.agents:
                self.env.reset()
            observation, _, terminal, truncated, info = self.env.last()
            if not (terminal or truncated):
                break
            self.env.step(None)
        mask = observation["action_mask"] if isinstance(observation, dict) else info["action_mask"]
        legal = np.flatnonzero(mask)
        self.env.step(int(legal[self.count % len(legal)]))


def serve_plain_loop(name: str, seed: int, connection: Connection) -> None:
    """Run a plain loop for each number of seconds received, and send its rate."""
    warnings.filterwarnings("ignore")
    loop = PlainLoop(name, seed)
    loop.run(0.2)
    connection.send(loop.run(0.2))
    while (seconds := connection.recv()) is not None:
        connection.send(loop.run(seconds))


class PlainLoops:
    """Plain loops in processes of their own."""

    def __init__(self, name: str, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connections, self.processes = [], []
        for seed in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=serve_plain_loop, args=(name, seed, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self.connections.append(ours)
            self.processes.append(process)
        self.first_rates = [connection.recv() for connection in self.connections]

    def rate(self, count: int, seconds: float) -> Rate:
        """Return the steps of the first `count` loops together."""
        for connection in self.connections[:count]:
            connection.send(seconds)
        rates = [connection.recv() for connection in self.connections[:count]]
        return Rate(sum(rate.steps for rate in rates), statistics.mean(rate.cpu for rate in rates))

    def close(self) -> None:
        for connection, process in zip(self.connections, self.processes, strict=True):
            connection.send(None)
            process.join()


# ---- Through workers -----------------------------------------------------------------------------


class VectorLoop:
    """Steps a vector env with random actions; `others` are processes that do not belong to it."""

    def __init__(self, vecenv: Any, others: Sequence[int]) -> None:
        from pufferlib.vectorization.measuring import legal_actions

        self.vecenv, rng = vecenv, np.random.default_rng(0)
        vecenv.reset(seed=0)
        self.pids = own_pids(but=others)
        self.legal = lambda: legal_actions(vecenv, rng)
        self.actions = [self.legal() for _ in range(16)]
        self.rate(0.2)

    def rate(self, seconds: float) -> Rate:
        """Step for about `seconds`; the time in which legal actions are drawn does not count."""
        vecenv, is_masked = self.vecenv, self.vecenv.action_masks is not None
        count, drawing, used, start = 0, 0.0, cpu_seconds(self.pids), time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            actions = self.actions[count % 16]
            if is_masked:
                began = time.thread_time()
                actions = self.legal()
                drawing += time.thread_time() - began
            vecenv.step(actions)
            count += 1
        steps = count * vecenv.num_envs
        return Rate(steps / (passed - drawing), (cpu_seconds(self.pids) - used - drawing) / steps)


def num_envs_of(name: str, num_workers: int, plain_rate: float) -> int:
    """Return how many envs the workers get."""
    import pufferlib

    if name.startswith("retro-"):  # an emulator fills its process
        return num_workers
    needed = min(num_workers * math.ceil(TURN_SECONDS * plain_rate), MAX_ENVS)
    with pufferlib.make(name, num_workers=num_workers, backend="multiprocessing") as vecenv:
        usual: int = vecenv.num_envs
    return usual if name.startswith(LARGE) else max(usual, needed)


def measure(name: str, cores: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the rates and ratios of one name."""
    import pufferlib

    warnings.filterwarnings("ignore")
    plain = PlainLoops(name, cores)
    first = statistics.mean(rate.steps for rate in plain.first_rates)
    num_envs = num_envs_of(name, cores, first)
    others = own_pids()[1:]
    sizes = {"num_envs": num_envs, "num_workers": cores}
    workers = VectorLoop(pufferlib.make(name, backend="multiprocessing", **sizes), others)
    others = own_pids()[1:]
    share = VectorLoop(pufferlib.make(name, backend="serial", num_envs=num_envs // cores), others)
    parts = {
        "alone": lambda: plain.rate(1, seconds),
        "together": lambda: plain.rate(cores, seconds),
        "workers": lambda: workers.rate(seconds),
        "share": lambda: share.rate(seconds),
    }
    found: dict[str, list[Rate]] = {part: [] for part in parts}
    for number in range(rounds):
        for part in list(parts)[:: 1 if number % 2 else -1]:
            found[part].append(parts[part]())
    workers.vecenv.close()
    share.vecenv.close()
    plain.close()
    rates = list(zip(*found.values(), strict=True))
    cpu = {part: min(rate.cpu for rate in found[part]) for part in parts}
    return {
        **{part: round(statistics.median(r.steps for r in found[part]), 1) for part in parts},
        "of_ideal": round(
            statistics.median(w.steps / (cores * a.steps) for a, _, w, _ in rates), 3
        ),
        "of_together": round(statistics.median(w.steps / t.steps for _, t, w, _ in rates), 3),
        "cpu_workers": round(cpu["alone"] / cpu["workers"], 3),
        "cpu_share": round(cpu["alone"] / cpu["share"], 3),
        "num_envs": num_envs,
        "cores": cores,
        "rounds": rounds,
        "load": round(os.getloadavg()[0], 1),
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
    }


def main() -> int:
    """Run the command line; exit code 1 means that a name failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a part of a round")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        from pufferlib.system import usable_cores

        found = measure(options.names[0], usable_cores(), options.rounds, options.seconds)
        sys.stdout.write(f"\n{json.dumps(found)}\n")
        return 0
    failed = 0
    for name in options.names or NAMES:
        failed += not measured_apart(name, options.rounds, options.seconds, options.results)
    return 1 if failed else 0


def measured_apart(name: str, rounds: int, seconds: float, results: Path) -> bool:
    """Measure a name in a process of its own, and keep the result; return whether it worked."""
    command: Sequence[str] = (sys.executable, __file__, name, "--one", "--rounds", str(rounds))
    done = subprocess.run(
        [*command, "--seconds", str(seconds)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        say(f"{name}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
        return False
    row = json.loads(done.stdout.splitlines()[-1])
    known = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    store(results, {**known, name: row})
    rates = (
        f"{row['alone']:,.0f} alone, {row['together']:,.0f} together, {row['workers']:,.0f} ours"
    )
    shares = f"{row['of_ideal']:.2f} of the ideal, {row['of_together']:.2f} of the plain loops"
    shares += f"; by CPU time {row['cpu_workers']:.2f}, without turns {row['cpu_share']:.2f}"
    say(f"{name}: {rates} with {row['num_envs']} envs: {shares}, load {row['load']}")
    return True


if __name__ == "__main__":
    sys.exit(main())
