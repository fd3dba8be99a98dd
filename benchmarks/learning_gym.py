"""How well Gymnasium's MuJoCo envs are learned, beside published figures of PPO.

    python benchmarks/learning_gym.py gym-Hopper-v5 --seeds 3
    python benchmarks/learning_gym.py                       every environment of the table

Each seed is one `puffer train NAME` with the config of this package, in a process of its own, one
after another. `return` is the mean over the last 100 episodes of training, as CleanRL reports it,
`eval` that of the finished policy playing its most likely actions, as RL Zoo reports it. Results
are written to benchmarks/results/gym.json one by one; seeds that are there are only run again with
`--again`, and an interrupted run continues from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bars import cpu_model, say
from learning import (
    WINDOW_EPISODES,
    Mark,
    Row,
    chosen_names,
    read_log,
    settled,
    store,
    stored,
    watch,
)

RESULTS = Path(__file__).resolve().parent / "results" / "gym.json"
EVAL_EPISODES = 50


class Bar(NamedTuple):
    """The bar for the mean of `return` over the seeds, and published figures of others.

    CleanRL: docs of ppo_continuous_action.py, 3 seeds, v4 of MuJoCo. RL Zoo:
    benchmark.md, tuned for each env, one run, v3 of MuJoCo, most likely actions.
    """

    value: float
    cleanrl: str
    zoo: str


BARS = {
    "gym-Hopper-v5": Bar(2382.86, "2382.86 +- 271.74", "2410.44"),
    "gym-Walker2d-v5": Bar(2287.95, "2287.95 +- 571.78", "3478.80"),
    "gym-HalfCheetah-v5": Bar(1442.64, "1442.64 +- 46.03", "5819.10"),
}


def train(name: str, seed: int, threads: int, extra: Sequence[str], base: Path) -> Row:
    """Run or continue one training to its end; return its result."""
    command = [sys.executable, "-m", "pufferlib"]
    checkpoints = sorted(base.glob("*/latest.safetensors"))
    if checkpoints:
        command += ["resume", str(checkpoints[-1].parent)]
    else:
        command += ["train", name, f"--train.seed={seed}", f"--train.run-dir={base}"]
        command += [f"--train.torch-threads={threads}", "--train.dashboard=off"]
        command += ["--vec.backend=serial", "--train.checkpoint-interval=20", *extra]
    base.mkdir(parents=True, exist_ok=True)
    errors = base / "errors.txt"
    if not is_finished(base):
        with errors.open("w") as sink:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sink)
            try:
                watch(process, base, name, seed, Mark("mean_reward", BARS[name].value))
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            sys.exit(f"{' '.join(command[3:])} failed:\n{errors.read_text().strip()}")
    logs = sorted(base.glob("*/metrics.jsonl"))
    log = read_log(logs[-1])
    end = log[-1]
    if not any(settled(log)):
        sys.exit(
            f"puffer train {name} ended before {WINDOW_EPISODES} episodes had: give it more steps."
        )
    return {
        "env": name,
        "seed": seed,
        "return": round(end["mean_reward"], 2),
        "eval": round(evaluated(name, logs[-1].parent), 2),
        "total_steps": end["steps"],
        "total_seconds": round(end["uptime"], 1),
        "sps": round(end["steps"] / end["uptime"]),
        "threads": threads,
        "settings": list(extra),
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
    }


def is_finished(base: Path) -> bool:
    """Return whether the folder holds a run that has spent its budget."""
    logs = [read_log(path) for path in sorted(base.glob("*/metrics.jsonl"))]
    return bool(logs and logs[-1]) and logs[-1][-1]["steps"] >= logs[-1][-1]["total_steps"]


def evaluated(name: str, run: Path) -> float:
    """Return the mean return of a run's policy over EVAL_EPISODES with its most likely actions."""
    command = [sys.executable, "-m", "pufferlib", "eval", name, "--run", str(run), "--json"]
    command += ["--episodes", str(EVAL_EPISODES), "--num-envs", "10", "--deterministic"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"puffer eval {name} failed:\n{done.stderr.strip()}")
    return float(json.loads(done.stdout.splitlines()[-1])["mean_reward"])


def summarised(name: str, rows: Sequence[Row]) -> Row:
    """Return one environment's entry: means and deviations over its seeds, then the seeds."""
    bar = BARS[name]
    entry: Row = {"bar": bar.value, "cleanrl": bar.cleanrl, "zoo": bar.zoo, "seeds": len(rows)}
    for key in ("return", "eval"):
        values = [row[key] for row in rows]
        entry[key] = round(statistics.fmean(values), 2)
        entry[f"{key}_std"] = round(statistics.pstdev(values), 2)
    return {**entry, "rows": sorted(rows, key=lambda row: row["seed"])}


def report(results: dict[str, Row], names: Sequence[str]) -> None:
    """Print a line for each environment."""
    say(f"\n{'env':<20}{'seeds':>6}{'return':>20}{'eval':>20}{'bar':>9}  CleanRL, RL Zoo")
    for name in names:
        row = results[name]
        figures = [f"{row[key]:.1f} +- {row[f'{key}_std']:.1f}" for key in ("return", "eval")]
        place = f"{name:<20}{row['seeds']:>6}{figures[0]:>20}{figures[1]:>20}{row['bar']:>9g}"
        say(f"{place}  {row['cleanrl']}, {row['zoo']}")


def main() -> int:
    """Run the command line; exit code 1 means that an environment missed its bar."""
    parser = argparse.ArgumentParser(description="train Gymnasium envs and record the progress")
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; default: all")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 1 to N")
    parser.add_argument("--threads", type=int, default=1, metavar="K", help="threads of torch")
    parser.add_argument("--set", action="append", default=[], metavar="OPTION")
    parser.add_argument("--again", action="store_true", help="also run seeds that have a result")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--runs", type=Path, default=Path("runs/gym"), metavar="FOLDER")
    options = parser.parse_args()
    names = chosen_names(parser, options, BARS)
    results = stored(options.results)
    for name in names:
        known = {
            row["seed"]: row
            for row in results.get(name, {}).get("rows", [])
            if row["settings"] == options.set and not options.again
        }
        for seed in range(1, options.seeds + 1):
            if seed not in known:
                base = options.runs / f"{name}-seed{seed}"
                if options.again:
                    shutil.rmtree(base, ignore_errors=True)
                known[seed] = train(name, seed, options.threads, options.set, base)
                say(f"{name} seed {seed}: {known[seed]['return']}, eval {known[seed]['eval']}")
            results[name] = summarised(name, list(known.values()))
            store(options.results, results)
    report(results, names)
    return 1 if any(results[name]["return"] < BARS[name].value for name in names) else 0


if __name__ == "__main__":
    sys.exit(main())
