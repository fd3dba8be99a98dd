"""Protein beside random search and Optuna's TPE and GP, at equal total cost.

    python benchmarks/sweeps.py                      all tasks, methods and seeds
    python benchmarks/sweeps.py branin --seeds 40 41 --methods protein random
    python benchmarks/sweeps.py --table              only print what has been measured
    python benchmarks/sweeps.py --plot docs/images/sweeps.png

Tasks: three functions of known optimum whose trials cost different amounts, have learning curves
and (two of them) noise, and two environments that are really trained. A method gets a budget of
cost, and the number is the area under its best score so far against the cost spent, as a share of
the area of the optimum (functions) or of the highest score that any method saw (environments).

The best score so far of a function is the true value of the config that the method would recommend;
that of an environment is the highest score at the end of a trial. Protein begins with the middle of
the ranges and stops hopeless trials early, as it does by default; Optuna's samplers have no such
rules of their own, so `gp+middle` has the same first trial and `gp+pruner` Optuna's median pruner.
Results are kept one by one in benchmarks/results/sweeps.json, so an interrupted command continues
where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pufferlib import config as configs
from pufferlib.config import Range, as_range
from pufferlib.sweep.distributions import from_params, to_distributions, to_params
from pufferlib.sweep.evidence import Evidence, is_hopeless, thin
from pufferlib.sweep.method import Budget, Protein
from pufferlib.sweep.search_space import SearchSpace

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "sweeps.json"
METHODS = ("protein", "random", "tpe", "gp", "gp+middle", "gp+pruner")
MAIN = METHODS[:4]  # those that the bar is about
SEEDS = range(40, 45)  # those below were looked at while Protein was developed


class Step(NamedTuple):
    """A point of a trial's learning curve."""

    share: float  # of the trial that is done
    cost: float  # so far
    score: float


class Task(NamedTuple):
    """What is searched: ranges, how a trial goes, and the true value of a config if it is known."""

    ranges: dict[str, Range]
    run: Callable[[dict[str, Any], int], Iterator[Step]]  # of a config and a seed
    budget: float  # of cost, for all trials of a sweep
    truth: Callable[[dict[str, Any]], float] | None = None
    best: float = math.nan  # the highest true value
    worst: float = 0.0  # what counts as nothing


def ranges_of(**texts: str) -> dict[str, Range]:
    return {key: as_range(text, key, configs.parse_number) for key, text in texts.items()}


# ---- Functions of known optimum ------------------------------------------------------------------


def branin() -> Task:
    """Branin in two dimensions; the cost grows twentyfold along x. Without noise."""

    def truth(config: Mapping[str, Any]) -> float:
        x, y = config["x"], config["y"]
        bowl = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
        return -(bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10)

    def run(config: dict[str, Any], seed: int) -> Iterator[Step]:
        full, value = 20 ** ((config["x"] + 5) / 15), truth(config)
        for share in np.linspace(0.1, 1, 10):
            yield Step(share, share * full, value - 60 * (math.exp(-4 * share) - math.exp(-4)))

    return Task(ranges_of(x="uniform -5 10", y="uniform 0 15"), run, 100, truth, -0.397887, -60)


_HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann() -> Task:
    """Hartmann in six dimensions; two of them cost, two decide how fast a trial gets there."""

    def truth(config: Mapping[str, Any]) -> float:
        x = np.array([config[f"x{i}"] for i in range(6)])
        inner = (_HARTMANN_A * (x - _HARTMANN_P) ** 2).sum(1)
        return float((np.array([1.0, 1.2, 3.0, 3.2]) * np.exp(-inner)).sum())

    def run(config: dict[str, Any], seed: int) -> Iterator[Step]:
        rng = np.random.default_rng([seed, int(1e6 * config["x0"])])
        full, value = 10 ** (config["x0"] + config["x1"]), truth(config)
        speed = 2 + 4 * config["x2"] + 2 * config["x3"]
        for share in np.linspace(0.1, 1, 10):
            part = (1 - math.exp(-speed * share)) / (1 - math.exp(-speed))
            yield Step(share, share * full, value * part + 0.03 * rng.standard_normal())

    ranges = ranges_of(**{f"x{i}": "uniform 0 1" for i in range(6)})
    return Task(ranges, run, 250, truth, 3.32237)


def learner() -> Task:
    """A model of PPO: seven options, one of them the length, noise, and configs that diverge."""

    def rate(config: Mapping[str, Any]) -> float:
        wanted = -3 + 0.25 * math.log2(config["batch"] / 4096)  # larger batches, larger steps
        miss = math.log10(config["learning_rate"]) - wanted
        gamma = math.log10((1 - config["gamma"]) / 0.01)
        entropy = config["entropy"]
        bonus = 0.8 if not entropy else math.exp(-0.3 * math.log10(entropy / 0.01) ** 2)
        return math.exp(-0.9 * miss**2) * math.exp(-0.7 * gamma**2) * bonus

    def truth(config: Mapping[str, Any]) -> float:
        if diverges(config):
            return 0.0
        quality = rate(config) * (1 - 0.3 * math.exp(-config["hidden"] / 40))
        needed = 2e6 / (0.3 + quality) / config["epochs"] ** 0.5
        return quality * (1 - math.exp(-config["steps"] / needed))

    def diverges(config: Mapping[str, Any]) -> bool:
        return bool(config["learning_rate"] * config["epochs"] > 0.03)

    def run(config: dict[str, Any], seed: int) -> Iterator[Step]:
        rng = np.random.default_rng([seed, int(1e9 * config["learning_rate"])])
        per_step = 1e-6 * (1 + config["epochs"] * (0.5 + config["hidden"] / 64))
        for share in np.linspace(0.05, 1, 20):
            cost = per_step * share * config["steps"]
            if diverges(config) and share > 0.2:
                yield Step(share, cost, math.nan)
                return
            now = truth({**config, "steps": share * config["steps"]})
            yield Step(share, cost, now + 0.02 * rng.standard_normal())

    ranges = ranges_of(
        learning_rate="log_uniform 1e-5 1e-1",
        batch="pow2 1024 65536",
        gamma="logit 0.8 0.9995",
        entropy="0 or log_uniform 1e-4 1",
        hidden="32, 64, 128, 256",
        epochs="int 1 8",
        steps="log_uniform 3e5 3e7",
    )
    top = {"learning_rate": 1e-3, "batch": 4096, "gamma": 0.99, "entropy": 0.01}
    best = truth({**top, "hidden": 256, "epochs": 8, "steps": 3e7})
    return Task(ranges, run, 2000, truth, best)


# ---- Environments that are really trained --------------------------------------------------------


def trained(name: str, budget: float, texts: Mapping[str, str]) -> Task:
    """Return the search for options of an environment; the score is mean_reward.

    A step is collected once and learned from `n_epochs` times, each at about equal cost. The cost
    is the millions of them: measured seconds would depend on what else the machine does.
    """
    ranges = {key: configs.check_range(key, text, key) for key, text in texts.items()}

    def run(config: dict[str, Any], seed: int) -> Iterator[Step]:
        import torch

        from pufferlib import PuffeRL, make
        from pufferlib.errors import NonFiniteError
        from pufferlib.models import make_policy
        from pufferlib.sweep import with_values

        own = {"seed": seed, "dashboard": "off", "torch_threads": 1, "engine": "native"}
        own = {f"train.{key}": value for key, value in own.items()}
        options = with_values(configs.load(name), {**config, **own, "vec.num_workers": 1})
        price = 1e-6 * (1 + options.train.n_epochs)
        is_known, cost = False, 0.0
        torch.manual_seed(seed)  # of the first weights
        with make(name, **options.vec.arguments(), **options.env) as vecenv:
            policy = make_policy(vecenv, **vars(options.policy))
            with PuffeRL(vecenv, policy, **options.chosen_train()) as trainer:
                while not trainer.done:
                    try:
                        trainer.evaluate()
                        trainer.train()
                    except NonFiniteError:
                        break
                    log = trainer.mean_and_log()
                    cost = price * log["steps"]
                    if math.isfinite(log["mean_reward"]):
                        is_known = True
                        share = trainer.iteration / trainer.num_iterations
                        yield Step(share, cost, log["mean_reward"])
                if not trainer.done or not is_known:
                    yield Step(1.0, cost, math.nan)

    return Task(ranges, run, budget)


def cartpole() -> Task:
    """CartPole: eight options, and few steps to learn it in."""
    return trained("cartpole", 20, {**PPO, "train.total_timesteps": "log_uniform 30e3 300e3"})


def breakout() -> Task:
    """Breakout: harder, with longer trials."""
    return trained("breakout", 60, {**PPO, "train.total_timesteps": "log_uniform 200e3 2e6"})


PPO = {
    "train.learning_rate": "log_uniform 1e-5 0.1",
    "train.gamma": "logit 0.7 0.9995",
    "train.gae_lambda": "logit 0.5 0.998",
    "train.ent_coef": "log_uniform 1e-5 0.3",
    "train.clip_coef": "uniform 0.05 0.5",
    "train.n_epochs": "int 1 6",
    "vec.num_envs": "pow2 32 1024",
}

TASKS: dict[str, Callable[[], Task]] = {
    "branin": branin,
    "hartmann": hartmann,
    "learner": learner,
    "cartpole": cartpole,
    "breakout": breakout,
}


# ---- Methods -------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """A trial of a sweep: its end, and the true value of the config recommended after it."""

    config: dict[str, Any]
    curve: list[Step]
    state: str
    total_cost: float  # of the sweep, at its end
    best: float


def sweep(task: Task, method: str, seed: int) -> list[Outcome]:
    """Search until the budget is spent; a trial that does not fit into the rest is cut off."""
    search = ProteinSearch(task, seed) if method == "protein" else OptunaSearch(task, method, seed)
    outcomes: list[Outcome] = []
    spent, best = 0.0, -math.inf
    while spent < task.budget:
        config = search.ask(1 - spent / task.budget, task.budget - spent)
        curve: list[Step] = []
        state = "complete"
        for step in task.run(config, 1000 * seed + len(outcomes)):
            if math.isnan(step.score):
                state = "failed"
                curve.append(step)
                break
            curve.append(step)
            if spent + step.cost > task.budget:
                state = "cut"
                break
            if step.share < 1 and search.stops(curve):
                state = "stopped"
                break
        spent += curve[-1].cost
        if state == "cut":
            break
        search.tell(curve, state)
        if task.truth is not None:
            recommended = search.recommend()
            best = task.truth(recommended) if recommended is not None else best
        elif state == "complete":
            best = max(best, curve[-1].score)
        outcomes.append(Outcome(config, curve, state, spent, best))
    return outcomes


class ProteinSearch:
    """Protein by its numbers."""

    def __init__(self, task: Task, seed: int) -> None:
        length = "steps" if "steps" in task.ranges else "train.total_timesteps"
        self.space = SearchSpace(task.ranges, budget=length)
        self.method = Protein(self.space, seed)
        self.trials: list[Evidence] = []
        self.configs: list[dict[str, Any]] = []

    def ask(self, share: float, left: float) -> dict[str, Any]:
        self.unit = self.method.suggest(self.trials, Budget(share, left)).unit
        return self.space.decode(self.unit)

    def stops(self, curve: Sequence[Step]) -> bool:
        return is_hopeless(np.array(curve), self.trials)

    def tell(self, curve: Sequence[Step], state: Any) -> None:
        points = thin(np.array([step for step in curve if math.isfinite(step.score)]))
        self.trials.append(Evidence(self.unit, points, state))

    def recommend(self) -> dict[str, Any] | None:
        best = self.method.recommend(self.trials)
        return None if best is None else self.space.decode(self.trials[best].unit)


class OptunaSearch:
    """A sampler of Optuna, as it is, with its median pruner, or with Protein's first trial."""

    def __init__(self, task: Task, method: str, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler, _, extra = method.partition("+")
        samplers = {
            "random": optuna.samplers.RandomSampler,
            "tpe": optuna.samplers.TPESampler,
            "gp": optuna.samplers.GPSampler,
        }
        self.has_pruner = extra == "pruner"
        self.space = SearchSpace(task.ranges)
        self.study = optuna.create_study(
            direction="maximize",
            sampler=samplers[sampler](seed=seed),
            pruner=optuna.pruners.MedianPruner() if self.has_pruner else optuna.pruners.NopPruner(),
        )
        if extra == "middle":
            first = ProteinSearch(task, seed).ask(1.0, task.budget)
            self.study.enqueue_trial(to_params(self.space, first))
        self.done: list[tuple[float, dict[str, Any]]] = []

    def ask(self, share: float, left: float) -> dict[str, Any]:
        self.trial = self.study.ask(to_distributions(self.space))
        self.config = from_params(self.space, self.trial.params)
        return self.config

    def stops(self, curve: Sequence[Step]) -> bool:
        if self.has_pruner:
            self.trial.report(curve[-1].score, len(curve))
        return self.has_pruner and self.trial.should_prune()

    def tell(self, curve: Sequence[Step], state: str) -> None:
        from optuna.trial import TrialState

        if state == "failed":
            self.study.tell(self.trial, state=TrialState.FAIL)
        elif state == "stopped":
            self.study.tell(self.trial, state=TrialState.PRUNED)
        else:
            self.study.tell(self.trial, curve[-1].score)
            self.done.append((curve[-1].score, self.config))

    def recommend(self) -> dict[str, Any] | None:
        return max(self.done, key=lambda each: each[0])[1] if self.done else None


# ---- Results -------------------------------------------------------------------------------------


def area(
    outcomes: Sequence[tuple[float, float]], budget: float, best: float, worst: float
) -> float:
    """Return the area under the best score against cost, 1 for the optimum from the beginning.

    `outcomes` are total cost and best score after each trial.
    """
    total, last_cost, last = 0.0, 0.0, 0.0
    for cost, score in outcomes:
        total += (min(cost, budget) - last_cost) * last
        last_cost = min(cost, budget)
        last = min(max((score - worst) / (best - worst), 0.0), 1.0) if math.isfinite(score) else 0.0
    return (total + (budget - last_cost) * last) / budget


def read_results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def measure(name: str, method: str, seed: int) -> dict[str, Any]:
    """Run one sweep and return what is kept of it."""
    task, started = TASKS[name](), time.process_time()
    outcomes = sweep(task, method, seed)
    states = [outcome.state for outcome in outcomes]
    curve = [(round(each.total_cost, 4), round(each.best, 5)) for each in outcomes]
    return {
        "budget": task.budget,
        "best": None if math.isnan(task.best) else task.best,
        "worst": task.worst,
        "trials": len(outcomes),
        "stopped": states.count("stopped"),
        "failed": states.count("failed"),
        "cpu_seconds": round(time.process_time() - started, 1),
        "curve": [(cost, best if math.isfinite(best) else None) for cost, best in curve],
    }


def comparable(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the results of tasks that all main methods were measured on."""
    measured = {tuple(key.split("/")[:2]) for key in results}
    return {
        key: row
        for key, row in sorted(results.items())
        if all((key.split("/")[0], method) in measured for method in MAIN)
    }


def areas(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return the areas by task and method, of comparable tasks."""
    found: dict[str, dict[str, list[float]]] = {}
    for name in TASKS:
        rows = {k: row for k, row in comparable(results).items() if k.startswith(f"{name}/")}
        seen = [score for row in rows.values() for _, score in row["curve"] if score is not None]
        for key, row in rows.items():
            best = max(seen) if row["best"] is None else row["best"]
            points = [(cost, math.nan if s is None else s) for cost, s in row["curve"]]
            value = area(points, row["budget"], best, row["worst"])
            found.setdefault(name, {}).setdefault(key.split("/")[1], []).append(value)
    return found


def print_table(results: Mapping[str, Any]) -> None:
    for name, by_method in areas(results).items():
        for method, values in by_method.items():
            rows = [row for key, row in results.items() if key.startswith(f"{name}/{method}/")]
            trials, stopped, cpu = (
                statistics.mean(row[key] for row in rows)
                for key in ("trials", "stopped", "cpu_seconds")
            )
            print(
                f"{name:10} {method:12} area {statistics.mean(values):.4f} +- "
                f"{statistics.pstdev(values):.4f} ({len(values)} seeds), {trials:.0f} trials, "
                f"{stopped:.0f} stopped, {cpu:.1f} CPU seconds",
                flush=True,
            )


def plot(results: Mapping[str, Any], path: str) -> None:
    """Draw the best score so far against the cost, the mean of all seeds, for each task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(areas(results))
    figure, axes = pyplot.subplots(2, 3, figsize=(12, 6.6), constrained_layout=True)
    places = axes.ravel()
    for place, name in zip(places, names, strict=False):
        for method in MAIN:
            rows = [row for key, row in results.items() if key.startswith(f"{name}/{method}/")]
            if not rows:
                continue
            costs = np.linspace(0, rows[0]["budget"], 200)
            lines = [_best_at(row, costs) for row in rows]
            width = 2.4 if method == "protein" else 1.4
            place.plot(costs, np.mean(lines, axis=0), label=method, lw=width)
        place.set(title=name, xlabel="cost spent")
        place.grid(alpha=0.25)
    for place in places[len(names) :]:
        place.set_axis_off()
    handles, labels = places[0].get_legend_handles_labels()
    places[-1].legend(handles, labels, loc="center", title="best score so far, mean of seeds")
    figure.savefig(path, dpi=100)


def _best_at(row: Mapping[str, Any], costs: np.ndarray) -> np.ndarray:
    known = [(cost, score) for cost, score in row["curve"] if score is not None]
    steps = np.searchsorted([cost for cost, _ in known], costs, side="right") - 1
    return np.array([row["worst"] if i < 0 else max(row["worst"], known[i][1]) for i in steps])


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare Protein with other methods of search.")
    parser.add_argument("tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--methods", nargs="+", default=list(MAIN), choices=METHODS)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--again", action="store_true", help="measure again what is there")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--plot", metavar="PNG", help="draw what has been measured")
    options = parser.parse_args()
    results = read_results()
    for seed in [] if options.table or options.plot else options.seeds:
        for name in options.tasks:
            for method in options.methods:
                key = f"{name}/{method}/{seed}"
                if key not in results or options.again:
                    measured = measure(name, method, seed)
                    results = {**read_results(), key: measured}  # another process may add some too
                    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=0) + "\n")
                    print(f"{key}: {results[key]['trials']} trials", flush=True)
    print_table(comparable(results))
    if options.plot:
        plot(comparable(results), options.plot)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
