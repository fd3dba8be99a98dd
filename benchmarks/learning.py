"""How fast and how well each environment is learned with its default config.

    python benchmarks/learning.py cartpole squared --seeds 3
    python benchmarks/learning.py tmaze/gru              with another recurrent layer: see VARIANTS
    python benchmarks/learning.py --seeds 3              every environment and variant
    python benchmarks/learning.py gym-Hopper-v5          those of Gymnasium: see learning_gym.py
    python benchmarks/learning.py --defaults             beside SB3: see learning_defaults.py
    python benchmarks/learning.py --families             other packages: see learning_families.py

Each seed is one `puffer train NAME` in a process of its own, one after another. Its result holds
the steps and seconds of training until the mark was first reached, and the final score. Results are
written to benchmarks/results/ocean.json one by one; seeds that are there already, with the same
mark and options, are only run again with `--again`. `--set=--train.gamma=0.9` changes an option of
all runs. Each result holds the load of the machine at its start: on a busy one `seconds` are too
high, and `cpu_seconds` of the whole process tell its cost. `--keep` makes the best policy of each
env the one that `puffer eval NAME --pretrained` plays. `make docs` writes the results
into docs/ocean.md.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bars import cpu_model, say

from pufferlib.runs import keep_policy

Row: TypeAlias = dict[str, Any]  # one seed's result, or one line of a run's log

RESULTS = Path(__file__).resolve().parent / "results" / "ocean.json"
WINDOW_EPISODES = 100  # that the means of a log cover
POLL_SECONDS = 5


class Mark(NamedTuple):
    """The mark that a run must reach: a key of the log, and its value."""

    key: str
    value: float

    @property
    def spelled(self) -> str:
        """The mark as results name it."""
        return f"{self.key} {self.value:g}"


MARKS = {
    "cartpole": Mark("mean_reward", 475),
    "connect4": Mark("env/perf", 0.85),  # of games against the script, which may begin
}
PERF = 0.9  # the mark of all others

# Envs that need a recurrent policy, with each layer. Without any, no seed may reach the mark.
VARIANTS = {
    f"{env}/{memory}": (env, f"--policy.recurrent={memory}")
    for env in ("memory", "tmaze")
    for memory in ("gru", "mingru", "none")
}
MUST_MISS = {name for name in VARIANTS if name.endswith("/none")}


def mark_of(name: str, perf: float | None) -> Mark:
    """Return the mark of an environment; `perf` is that of envs without an entry in MARKS."""
    return MARKS.get(name, Mark("env/perf", PERF if perf is None else perf))


def is_as_expected(name: str, row: Row) -> bool:
    """Return whether a seed reached its mark, or missed one that it must miss."""
    return (row["steps"] is None) == (name in MUST_MISS)


def settled(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield the lines of a log after WINDOW_EPISODES have ended, which its means cover."""
    episodes = 0.0
    for row in rows:
        episodes += row.get("episodes") or 0
        if episodes >= WINDOW_EPISODES:
            yield row


def first_reached(rows: Iterable[Row], mark: Mark) -> Row | None:
    """Return the first line of a log at which the mark is reached, None if it never is."""
    for row in settled(rows):
        value = row.get(mark.key)
        if value is not None and value >= mark.value:
            return row
    return None


def summarised(rows: Sequence[Row], sps_1core: float | None) -> Row:
    """Return one environment's entry: figures over all seeds, then the seeds themselves.

    `perf` is the mean of the final values; `steps` and `seconds` are those of the slowest seed to
    reach its mark, None if a seed did not reach it.
    """
    everyone = all(row["steps"] is not None for row in rows)
    return {
        "sps_1core": sps_1core,
        "perf": statistics.fmean(row["perf"] for row in rows) if rows else None,
        "steps": max(row["steps"] for row in rows) if rows and everyone else None,
        "seconds": max(row["seconds"] for row in rows) if rows and everyone else None,
        "seeds": len(rows),
        "rows": sorted(rows, key=lambda row: row["seed"]),
    }


def read_log(path: Path) -> list[Row]:
    """Return the whole lines of a log that may still be growing."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def train(
    name: str, seed: int, threads: int, extra: Sequence[str], mark: Mark, keeps: bool = False
) -> Row:
    """Run one training to its end and return its result; print progress meanwhile."""
    load, used = os.getloadavg()[0], cpu_seconds_of_children()
    env, *own = VARIANTS.get(name, (name,))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pufferlib", "train", env, *own]
        command += [f"--train.seed={seed}", f"--train.run-dir={folder}", "--train.dashboard=off"]
        command += [f"--train.torch-threads={threads}", f"--vec.num-workers={threads}"]
        command += ["--train.log-interval=1", *extra]
        errors = Path(folder) / "errors.txt"
        with errors.open("w") as sink:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=sink)
            try:
                log = watch(process, Path(folder), name, seed, mark)
            finally:
                process.kill()
                process.wait()
        if process.returncode or not log:
            sys.exit(f"puffer train {name} failed:\n{errors.read_text().strip()}")
        reached, end = first_reached(log, mark), log[-1]
        if end.get("env/perf") is None:
            sys.exit(f"puffer train {name} ended before any episode did: give it more steps.")
        if keeps and name == env:
            about = {"perf": end["env/perf"], "steps": end["steps"], "seed": seed}
            for path in Path(folder).glob("*/latest.safetensors"):
                keep_policy(path, env, about)
    return {
        "env": name,
        "seed": seed,
        "mark": mark.spelled,
        "steps": None if reached is None else reached["steps"],
        "seconds": None if reached is None else round(reached["uptime"], 2),
        "perf": end["env/perf"],
        "score": end["env/score"],
        "mean_reward": end["mean_reward"],
        "total_steps": end["steps"],
        "total_seconds": round(end["uptime"], 2),
        "sps": round(end["steps"] / end["uptime"]),
        "cpu_seconds": round(cpu_seconds_of_children() - used, 1),
        "threads": threads,
        "load": round(load, 1),
        "settings": list(extra),
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
    }


def cpu_seconds_of_children() -> float:
    """Return the CPU time of all child processes that have ended: what a busy machine gave them."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def watch(
    process: subprocess.Popen[bytes], folder: Path, name: str, seed: int, mark: Mark
) -> list[Row]:
    """Print the state of a run every few seconds until it ends; return its log."""
    log: list[Row] = []
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
        has_ended = process.poll() is not None  # before reading the log, which is then complete
        for path in folder.glob("*/metrics.jsonl"):
            log = read_log(path)
        if has_ended:
            return log
        if log:
            row = log[-1]
            value = row.get(mark.key)
            latest = "-" if value is None else f"{value:.3g}"
            share = f"{row['steps'] / 1e6:.1f}M of {row['total_steps'] / 1e6:.1f}M steps"
            say(f"  {name} seed {seed}: {share}, {mark.key} {latest}, {row['sps']:,.0f} steps/s")


def sim_rate(name: str) -> float:
    """Return the steps per second of the env alone, on one thread."""
    name = VARIANTS.get(name, (name,))[0]
    command = [sys.executable, "-m", "pufferlib", "bench", name, "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"puffer bench {name} failed:\n{done.stderr.strip()}")
    return float(json.loads(done.stdout.splitlines()[-1])["sps"])


def chosen_names(
    parser: argparse.ArgumentParser, options: argparse.Namespace, known: Iterable[str]
) -> list[str]:
    """Return the names given on the command line, all known ones by default."""
    known = list(known)
    for name in options.names:
        if name not in known:
            parser.error(f"no environment `{name}`; there are {', '.join(known)}")
    return options.names or known


def stored(path: Path) -> dict[str, Row]:
    """Return the results that `store` wrote; empty without the file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def store(path: Path, results: dict[str, Row]) -> None:
    """Write the results atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, path)


def report(results: dict[str, Row], names: Sequence[str]) -> None:
    """Print a line for each seed."""
    say(f"\n{'env':<14}{'seed':>5}{'mark':>18}{'steps':>10}{'seconds':>9}{'perf':>7}{'score':>9}")
    for name in names:
        for row in results[name]["rows"]:
            missed = row["steps"] is None
            steps = "-" if missed else f"{row['steps'] / 1e6:.2f}M"
            seconds = "-" if missed else f"{row['seconds']:.1f}"
            place = f"{name:<14}{row['seed']:>5}{row['mark']:>18}"
            say(f"{place}{steps:>10}{seconds:>9}{row['perf']:>7.3f}{row['score']:>9.2f}")


def main() -> int:
    """Run the command line; exit code 1 means that a seed was not as expected."""
    if "--defaults" in sys.argv[1:]:
        import learning_defaults

        return learning_defaults.main()
    if "--families" in sys.argv[1:]:
        import learning_families

        return learning_families.main()
    if any(word.startswith("gym-") for word in sys.argv[1:]):
        import learning_gym

        return learning_gym.main()
    parser = argparse.ArgumentParser(
        description="train with default configs and record the progress"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; default: all")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 1 to N")
    parser.add_argument("--perf", type=float, metavar="P", help=f"the mark; default: {PERF}")
    parser.add_argument(
        "--threads", type=int, default=2, metavar="K", help="threads of torch and of envs"
    )
    parser.add_argument("--set", action="append", default=[], metavar="OPTION")
    parser.add_argument("--again", action="store_true", help="also run seeds that have a result")
    parser.add_argument(
        "--keep", action="store_true", help="keep the best policy of each env in the package"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()

    import pufferlib

    known_names = [*pufferlib.list_envs(), *VARIANTS]
    names = chosen_names(parser, options, known_names)
    results = stored(options.results)
    for name in names:
        entry, mark = results.get(name, {}), mark_of(name, options.perf)
        known = {
            row["seed"]: row
            for row in entry.get("rows", [])
            if row["mark"] == mark.spelled and row["settings"] == options.set
        }
        sps = entry.get("sps_1core")
        if sps is None or options.again:
            sps = sim_rate(name)
            say(f"{name}: {sps / 1e6:.1f}M steps/s on one thread")
        for seed in range(1, options.seeds + 1):
            if seed not in known or options.again:
                known[seed] = train(name, seed, options.threads, options.set, mark, options.keep)
                steps = known[seed]["steps"]
                outcome = "missed" if steps is None else f"reached after {steps / 1e6:.2f}M steps"
                say(f"{name} seed {seed}: {outcome}, perf {known[seed]['perf']:.3f} at the end")
            results[name] = summarised(list(known.values()), sps)
            store(options.results, results)
    report(results, names)
    rows = [(name, row) for name in names for row in results[name]["rows"]]
    return 0 if all(is_as_expected(name, row) for name, row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
