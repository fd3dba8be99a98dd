"""Trains while its workers are killed, one after the other: it must still learn, step for step.

    python tests/faults/train_through_kills.py [KILLS=50] [SEED=0]

CartPole-v1 of Gymnasium in worker processes that are killed in random steps and replaced. The run
must end at the same step as an undisturbed one, report its restarts in its log, and solve the
game: a mean return of 475 or more over the last episodes, as Gymnasium has it.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rigs"))

import numpy as np
from faulty import nothing_left
from waiting import watchdog

import pufferlib

SOLVED = 475.0
NUM_ENVS, NUM_WORKERS, BATCH = 32, 2, 2048
TURNS = BATCH // NUM_ENVS  # of an iteration
ITERATIONS = 200  # 400k steps; undisturbed it is solved after about half of them


class Result(NamedTuple):
    """What became of a run."""

    steps: int
    kills: int
    restarts: int
    logged_restarts: float
    mean_reward: float


class Killer:
    """Kills a random worker in some of the turns: a run of any speed gets all of its kills."""

    def __init__(self, vecenv: Any, turns: Collection[int], rng: np.random.Generator) -> None:
        self.turns, self.rng, self.killed = turns, rng, 0
        self.count, self.send = itertools.count(), vecenv.send
        self.vecenv, vecenv.send = vecenv, self.send_and_kill

    def send_and_kill(self, actions: Any) -> None:
        self.send(actions)
        if next(self.count) in self.turns:
            time.sleep(self.rng.uniform(0, 1e-3))  # in a step, or after it
            os.kill(int(self.rng.choice(self.vecenv.worker_pids)), signal.SIGKILL)
            self.killed += 1


def train(
    kills: int, iterations: int, seed: int = 0, n_epochs: int = 10, timeout: float = 60.0
) -> Result:
    """Train for `iterations`, in as many of whose turns as `kills` a worker dies."""
    rng = np.random.default_rng(seed)
    turns = set(rng.choice(iterations * TURNS - 2, kills, replace=False).tolist())
    options = {"restart": 2 * kills + 1, "timeout": timeout, "start_method": "fork"}
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
        killer = Killer(vecenv, turns, rng)
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
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
    )


def main(kills: int = 50, seed: int = 0) -> None:
    warnings.simplefilter("ignore")
    with watchdog(3000), nothing_left():
        undisturbed = train(0, ITERATIONS, seed=seed)
    print(f"undisturbed: {undisturbed}", flush=True)
    with watchdog(3000), nothing_left():
        disturbed = train(kills, ITERATIONS, seed)
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
