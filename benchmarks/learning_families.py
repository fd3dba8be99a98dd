"""How well environments of other packages are learned with the options of their families.

    python benchmarks/learning.py --families minigrid-doorkey-5x5 --seeds 2
    python benchmarks/learning.py --families             every environment of the table

Each seed is one `puffer train NAME` in a process of its own, on all cores, one after another. It
ends when the mean return of the last 100 episodes reaches the mark, or after the minutes of its
bar; `--minutes` sets others. `random` is the mean return of random actions. Curves, [steps,
seconds, mean return], are written to benchmarks/results/families.json seed by seed; seeds that are
there are only run again with `--again`. `--set=--train.torch-threads=1` changes an option of all
runs.

A result holds the load at its start and the CPU seconds of its processes: on a busy machine, half
of those is what two free cores would have taken.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bars import cpu_model, say
from learning import POLL_SECONDS, Row, chosen_names, read_log, settled, store, stored

RESULTS = Path(__file__).resolve().parent / "results" / "families.json"
CURVE_POINTS = 60
RANDOM_EPISODES = 100


class Bar(NamedTuple):
    """The mean return to reach, and the minutes of training on two cores to reach it in."""

    mark: float
    minutes: float


BARS = {
    "minigrid-empty-8x8": Bar(0.9, 10),  # the shortest way earns 0.96
    "minigrid-doorkey-5x5": Bar(0.8, 10),
    "minihack-room-5x5": Bar(0.8, 10),
    "nethack": Bar(35.0, 15),  # 1.4 times what random actions earn
    "crafter": Bar(3.0, 15),  # achievements of an episode; random actions reach about 2
    "atari-pong": Bar(-18.0, 40),
}


def train(name: str, seed: int, bar: Bar, extra: Sequence[str] = ()) -> Row:
    """Run one training until its mark or its time is reached; return its result."""
    load = os.getloadavg()[0]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pufferlib", "train", name, f"--train.seed={seed}"]
        command += [f"--train.run-dir={folder}", "--train.dashboard=off", "--train.log-interval=1"]
        command += extra
        errors = Path(folder) / "errors.txt"
        with errors.open("w") as sink:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sink)
            try:
                log = watch(process, Path(folder), name, seed, bar)
            finally:
                process.terminate()  # in a job of a script, SIGINT would be ignored
                process.wait()
        if not log:
            sys.exit(f"puffer train {name} failed:\n{errors.read_text().strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    curve = [(row["steps"], row["uptime"], row["mean_reward"]) for row in settled(log)]
    reached = next((point for point in curve if point[2] >= bar.mark), None)
    every = max(1, len(curve) // CURVE_POINTS)
    return {
        "env": name,
        "seed": seed,
        "mark": bar.mark,
        "steps": reached and reached[0],
        "seconds": reached and round(reached[1], 1),
        "best": max((point[2] for point in curve), default=None),
        "total_steps": log[-1]["steps"],
        "total_seconds": round(log[-1]["uptime"], 1),
        "cpu_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "curve": [
            [steps, round(seconds, 1), round(mean, 3)]
            for steps, seconds, mean in [*curve[:-1:every], *curve[-1:]]
        ],
        "settings": list(extra),
        "load": round(load, 1),
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
    }


def watch(
    process: subprocess.Popen[bytes], folder: Path, name: str, seed: int, bar: Bar
) -> list[Row]:
    """Print the state of a run every few seconds until it ends or may end; return its log."""
    log: list[Row] = []
    while process.poll() is None:
        time.sleep(POLL_SECONDS)
        for path in folder.glob("*/metrics.jsonl"):
            log = read_log(path)
        if not log:
            continue
        mean, seconds = log[-1]["mean_reward"], log[-1]["uptime"]
        latest = "-" if mean is None else f"{mean:.3g}"
        say(f"  {name} seed {seed}: {log[-1]['steps'] / 1e3:.0f}k steps, {seconds:.0f} s, {latest}")
        if seconds > 60 * bar.minutes:
            break
        if any(row["mean_reward"] >= bar.mark for row in settled(log)):
            break
    return log


def random_return(name: str) -> float:
    """Return the mean return of random actions."""
    import torch

    import pufferlib

    class Uniform(torch.nn.Module):
        def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            rows = (
                next(iter(observations.values()))
                if isinstance(observations, dict)
                else observations
            )
            return torch.zeros(len(rows), vecenv.action_space.n), torch.zeros(len(rows))

    with pufferlib.make(name, seed=0) as vecenv:
        found = pufferlib.evaluate_policy(vecenv, Uniform(), RANDOM_EPISODES, deterministic=False)
    return found["mean_reward"]


def report(results: dict[str, Row]) -> None:
    """Print a line for each seed."""
    say(f"\n{'env':<24}{'seed':>5}{'random':>9}{'mark':>7}{'best':>8}{'steps':>9}{'seconds':>9}")
    for name, entry in results.items():
        for row in entry["rows"]:
            place = f"{name:<24}{row['seed']:>5}{entry['random']:>9.2f}{row['mark']:>7g}"
            best = "-" if row["best"] is None else f"{row['best']:.2f}"
            steps = "-" if row["steps"] is None else f"{row['steps'] / 1e3:.0f}k"
            say(f"{place}{best:>8}{steps:>9}{row['seconds'] or '-':>9}")


def main() -> int:
    """Run the command line; exit code 1 means that a seed missed its mark."""
    parser = argparse.ArgumentParser(description="train envs of other packages, record progress")
    parser.add_argument("--families", action="store_true", help="choose this table")
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; default: all")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="seeds 1 to N")
    parser.add_argument("--minutes", type=float, metavar="M", help="of each run, at most")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION")
    parser.add_argument("--again", action="store_true", help="also run seeds that have a result")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    names = chosen_names(parser, options, BARS)
    results = stored(options.results)
    for name in names:
        bar = BARS[name]._replace(minutes=options.minutes or BARS[name].minutes)
        entry = results.get(name) or {"random": round(random_return(name), 3), "rows": []}
        results[name] = entry
        for seed in range(1, options.seeds + 1):
            if options.again or seed not in {row["seed"] for row in entry["rows"]}:
                rows = [row for row in entry["rows"] if row["seed"] != seed]
                entry["rows"] = [*rows, train(name, seed, bar, options.set)]
                store(options.results, results)
    report({name: results[name] for name in names})
    return 0 if all(row["steps"] for name in names for row in results[name]["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
