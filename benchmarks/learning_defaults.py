"""How well `PuffeRL(pufferlib.make(NAME))` learns by default, beside Stable-Baselines3.

    python benchmarks/learning.py --defaults                      every environment and contestant
    python benchmarks/learning.py --defaults gym-CartPole-v1 --seeds 3 --who ours sb3

Contestants:

    ours        PuffeRL(pufferlib.make(NAME)) and nothing else
    puffer      `puffer train NAME`, stopped at the same number of steps
    sb3         PPO("MlpPolicy", NAME) of Stable-Baselines3, and nothing else
    ours-equal  the settings of EQUAL: SB3's but for 8 envs and larger minibatches
    sb3-equal   the same, with rewards normalised as ours are: VecNormalize(norm_obs=False)

Each seed is a process of its own with one thread. `return` is the mean over the last 100 episodes
of training at the end of the budget; `reached` is the first step at which that mean was at the
mark. Results are written to benchmarks/results/defaults.json one by one, so an interrupted command
continues where it stopped. A result counts for the code and the engine that it was measured with:
those of other code (`code_of`), or of another engine than `--engine`, are run again, and so are all
with `--again`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bars import cpu_model, say
from learning import Row, read_log, store

from pufferlib.config import ENGINES

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "defaults.json"
LEARNING_CODE = (  # what decides how well we learn
    "csrc/nn/*.[ch]",
    "pufferlib/config/*.py",
    "pufferlib/configs/**/gym*.ini",
    "pufferlib/models.py",
    "pufferlib/policies/*.py",
    "pufferlib/training/*.py",
)
WINDOW = 100  # episodes
EQUAL = {
    "num_envs": 8,
    "batch_size": 2048,
    "minibatch_size": 256,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "anneal_lr": False,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.0,
}


class Budget(NamedTuple):
    """Steps of a run, and the return that its last episodes must have, if there is a bar."""

    steps: int
    mark: float | None = None


BUDGETS = {
    "gym-CartPole-v1": Budget(150_000, 475),
    "gym-Acrobot-v1": Budget(150_000, -100),
    "gym-Pendulum-v1": Budget(200_000, -250),
    "gym-LunarLander-v3": Budget(400_000, 150),
    "gym-MountainCarContinuous-v0": Budget(120_000),
    "gym-BipedalWalker-v3": Budget(100_000),
    "gym-Taxi-v4": Budget(60_000),
    "gym-FrozenLake-v1": Budget(60_000),
}


def code_of(who: str) -> str:
    """Name the code that trains `who`: a digest of LEARNING_CODE, or versions of packages."""
    if who.startswith("sb3"):
        packages = ("stable-baselines3", "gymnasium")
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    digest = hashlib.sha256()
    for pattern in LEARNING_CODE:
        for file in sorted(ROOT.glob(pattern)):
            digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def engine_of(name: str, wanted: str) -> str:
    """Return the name of the engine that trains an environment by default, or the wanted one."""
    import pufferlib

    with pufferlib.make(name) as vecenv:
        return pufferlib.PuffeRL(vecenv, engine=wanted, dashboard="off").engine.name


def is_current(row: Row, code: str, engine: str) -> bool:
    """Return whether a result was measured with this code and, if it is ours, this engine."""
    return row.get("code") == code and (row["who"].startswith("sb3") or row["engine"] == engine)


class Returns:
    """The returns of finished episodes, and when their mean was first at the mark."""

    def __init__(self, mark: float | None) -> None:
        self.mark, self.reached = mark, None
        self.last: deque[float] = deque(maxlen=WINDOW)

    @property
    def mean(self) -> float | None:
        """Mean of the last WINDOW episodes; None if fewer have ended."""
        return statistics.fmean(self.last) if len(self.last) == WINDOW else None

    def note(self, episode_return: float, steps: int) -> None:
        """Add an episode that ended after `steps` steps of training."""
        self.last.append(float(episode_return))
        mean = self.mean
        if self.reached is None and self.mark is not None and mean is not None:
            self.reached = steps if mean >= self.mark else None


def train_ours(name: str, seed: int, returns: Returns, steps: int, **settings: Any) -> None:
    """Train with PuffeRL in this process."""
    import pufferlib

    num_envs = settings.pop("num_envs", None)
    sizes = {} if num_envs is None else {"num_envs": num_envs}
    with pufferlib.make(name, **sizes) as vecenv:
        trainer = pufferlib.PuffeRL(vecenv, seed=seed, torch_threads=1, dashboard="off", **settings)
        receive = vecenv.recv

        def recv() -> Any:
            batch = receive()
            for info in batch.infos:
                if "episode" in info:
                    returns.note(info["episode"]["r"], trainer.steps)
            return batch

        vecenv.recv = recv
        while trainer.steps < steps:
            trainer.evaluate()
            trainer.train()


def train_puffer(name: str, seed: int, returns: Returns, steps: int, engine: str) -> None:
    """Train with the command line, and stop it at the end of the budget."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pufferlib", "train", name, f"--train.seed={seed}"]
        command += [f"--train.run-dir={folder}", "--train.torch-threads=1"]
        command += [f"--train.engine={engine}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            while process.poll() is None:
                time.sleep(1)
                log = [
                    row for path in Path(folder).glob("*/metrics.jsonl") for row in read_log(path)
                ]
                if log and log[-1]["steps"] >= steps:
                    break
        finally:
            process.kill()
            process.wait()
    rows = [row for row in log if row["steps"] <= steps and row.get("mean_reward") is not None]
    for row in rows:  # the log has the mean of the last episodes
        if returns.reached is None and returns.mark is not None:
            returns.reached = row["steps"] if row["mean_reward"] >= returns.mark else None
    returns.last.extend([rows[-1]["mean_reward"]] * WINDOW)


def train_sb3(name: str, seed: int, returns: Returns, steps: int, equal: bool) -> None:
    """Train with Stable-Baselines3 in this process."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    class Note(BaseCallback):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    returns.note(info["episode"]["r"], self.num_timesteps)
            return True

    torch.set_num_threads(1)
    env_id, env = name.removeprefix("gym-"), None
    settings: dict[str, Any] = {}
    if equal:
        env = VecNormalize(make_vec_env(env_id, n_envs=8, seed=seed), norm_obs=False)
        same = ("n_epochs", "learning_rate", "gamma", "gae_lambda", "ent_coef")
        settings = {"n_steps": 256, "batch_size": 256, **{key: EQUAL[key] for key in same}}
    model = PPO("MlpPolicy", env or env_id, seed=seed, device="cpu", **settings)
    model.learn(steps, callback=Note())


def run_one(name: str, who: str, seed: int, engine: str) -> Row:
    """Train once in this process and return the result."""
    budget, load, began = BUDGETS[name], os.getloadavg()[0], time.perf_counter()
    returns = Returns(budget.mark)
    if who == "puffer":
        train_puffer(name, seed, returns, budget.steps, engine)
    elif who.startswith("sb3"):
        train_sb3(name, seed, returns, budget.steps, who == "sb3-equal")
    else:
        equal = EQUAL if who == "ours-equal" else {}
        train_ours(name, seed, returns, budget.steps, engine=engine, **equal)
    return {
        "env": name,
        "who": who,
        "seed": seed,
        "code": code_of(who),
        "engine": "torch" if who.startswith("sb3") else engine,
        "steps": budget.steps,
        "return": None if returns.mean is None else round(returns.mean, 2),
        "reached": returns.reached,
        "seconds": round(time.perf_counter() - began, 1),
        "load": round(load, 1),
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
    }


def report(rows: Sequence[Row], names: Sequence[str], contestants: Sequence[str]) -> bool:
    """Print the means over seeds, a line for each environment; return whether all marks are met."""
    say(f"\n{'env':<30}{'steps':>8}{'mark':>8}" + "".join(f"{who:>16}" for who in contestants))
    everything_met = True
    for name in names:
        budget = BUDGETS[name]
        mark = "-" if budget.mark is None else f"{budget.mark:g}"
        line = f"{name:<30}{budget.steps // 1000:>7}k{mark:>8}"
        for who in contestants:
            own = [row for row in rows if (row["env"], row["who"]) == (name, who)]
            known = [row["return"] for row in own if row["return"] is not None]
            line += f"{statistics.fmean(known):>12.1f} ({len(known)})" if known else f"{'-':>16}"
            if who in ("ours", "puffer") and budget.mark is not None:
                everything_met &= bool(own) and all(row["reached"] is not None for row in own)
        say(line)
    return everything_met


WHO = ("ours", "puffer", "sb3", "ours-equal", "sb3-equal")


def main() -> int:
    """Run the command line; exit code 1 means that a seed of ours missed its mark."""
    parser = argparse.ArgumentParser(description="defaults beside Stable-Baselines3's")
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments; default: all")
    parser.add_argument("--defaults", action="store_true", help="this comparison")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 1 to N")
    parser.add_argument("--who", nargs="+", choices=WHO, default=list(WHO))
    parser.add_argument(
        "--engine", choices=("auto", *ENGINES), default="auto", help="of our contestants"
    )
    parser.add_argument("--again", action="store_true", help="also run what has a result")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.names or list(BUDGETS)
    for name in names:
        if name not in BUDGETS:
            parser.error(f"no environment `{name}` in the table; there are {', '.join(BUDGETS)}")
    if options.one:
        print(json.dumps(run_one(names[0], options.who[0], options.seeds, options.engine)))
        return 0
    codes = {who: code_of(who) for who in WHO}

    def known() -> dict[str, Row]:
        if not options.results.exists():
            return {}
        return {
            f"{row['env']} {row['who']} {row['seed']}": row
            for row in json.loads(options.results.read_text(encoding="utf-8"))["rows"]
        }

    counted: list[Row] = []
    for name in names:
        engine = engine_of(name, options.engine)
        for who in options.who:
            for seed in range(1, options.seeds + 1):
                key = f"{name} {who} {seed}"
                row = known().get(key)
                if row is not None and not options.again:
                    if is_current(row, codes[who], engine):
                        counted.append(row)
                        continue
                    say(f"{key}: the result is of other code or another engine, so it runs again")
                command = [sys.executable, __file__, name, "--one", "--engine", engine]
                command += ["--who", who, "--seeds", str(seed)]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                row = json.loads(done.stdout.splitlines()[-1])
                counted.append(row)
                say(f"{key}: {row['return']}, mark reached at {row['reached']}")
                rows = {**known(), key: row}  # read again: another process may have added some
                store(options.results, {"rows": [rows[each] for each in sorted(rows)]})
    return 0 if report(counted, names, options.who) else 1


if __name__ == "__main__":
    sys.exit(main())
