"""Trains while its workers are killed, one after the other: it must still learn, step for step.

    python tests/faults/train_through_kills.py [KILLS=50] [SEED=0]

CartPole-v1 of Gymnasium in worker processes that are killed at random moments and replaced. The run
must end at the same step as an undisturbed one, report its restarts in its log, and solve the
game: a mean return of 475 or more over the last episodes, as Gymnasium has it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rigs"))

import numpy as np
from faulty import nothing_left, watchdog

import pufferlib

SOLVED = 475.0
NUM_ENVS, NUM_WORKERS, BATCH = 32, 2, 2048
ITERATIONS = 200  # 400k steps; undisturbed it is solved after about half of them


class Result(NamedTuple):
    """What became of a run."""

    steps: int
    kills: int
    restarts: int
    logged_restarts: float
    mean_reward: float
    seconds: float


class Killer(threading.Thread):
    """Kills a random worker every now and then, until it has killed enough."""

    def __init__(self, vecenv: Any, kills: int, pause: tuple[float, float], seed: int) -> None:
        super().__init__(daemon=True)
        self.vecenv, self.left, self.killed = vecenv, kills, 0
        self.pause, self.rng = pause, np.random.default_rng(seed)
        self.stopped = threading.Event()

    def run(self) -> None:
        while self.left > 0 and not self.stopped.wait(self.rng.uniform(*self.pause)):
            pids = list(self.vecenv._group.pids.values())  # as the main thread knows them
            try:
                os.kill(int(self.rng.choice(pids)), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                continue  # that one was dead already
            self.left, self.killed = self.left - 1, self.killed + 1


def train(
    kills: int,
    iterations: int,
    pause: tuple[float, float] = (0.05, 0.5),
    seed: int = 0,
    n_epochs: int = 10,
) -> Result:
    """Train for `iterations` while up to `kills` workers die, with `pause` seconds in between."""
    start = time.monotonic()
    options = {"restart": 2 * kills + 1, "timeout": 60.0, "start_method": "fork"}
    with (
        tempfile.TemporaryDirectory() as folder,
        pufferlib.make(
            "gym-CartPole-v1",
            num_envs=NUM_ENVS,
            num_workers=NUM_WORKERS,
            backend="multiprocessing",
            vec=options if kills else {"start_method": "fork"},
        ) as vecenv,
        pufferlib.PuffeRL(
            vecenv,
            batch_size=BATCH,
            minibatch_size=512,
            n_epochs=n_epochs,
            learning_rate=1e-3,
            reward_scale=0.1,
            num_iterations=iterations,
            seed=seed,
            device="cpu",
            dashboard="off",
            logger=pufferlib.JsonlLogger(Path(folder) / "log.jsonl"),
        ) as trainer,
    ):
        killer = Killer(vecenv, kills, pause, seed)
        killer.start()
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
        killer.stopped.set()
        killer.join()
        steps = trainer.steps
        lines = (Path(folder) / "log.jsonl").read_text().splitlines()
        logged = json.loads(lines[-1]).get("env/restarts", 0.0)
        assert len(lines) == iterations
    return Result(
        steps,
        killer.killed,
        getattr(vecenv, "restarts", 0),
        logged,
        log["mean_reward"],
        time.monotonic() - start,
    )


def main(kills: int = 50, seed: int = 0) -> None:
    warnings.simplefilter("ignore")
    with watchdog(3000), nothing_left():
        undisturbed = train(0, ITERATIONS, seed=seed)
    print(f"undisturbed: {undisturbed}", flush=True)
    pause = 0.8 * undisturbed.seconds / max(1, kills)
    with watchdog(3000), nothing_left():
        disturbed = train(kills, ITERATIONS, (0.2 * pause, 1.6 * pause), seed)
    print(f"disturbed:   {disturbed}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    good = (
        disturbed.steps == undisturbed.steps == ITERATIONS * BATCH
        and disturbed.kills == kills
        and 0 < disturbed.restarts <= kills
        and disturbed.logged_restarts > 0
        and disturbed.mean_reward >= SOLVED
    )
    print("solved, at the same step" if good else "NOT as promised")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
