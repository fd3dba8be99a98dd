"""Protein: search for hyper-parameters and reward weights that respects what a trial costs.

    protein = Protein(
        env_name="breakout",
        search_space={"learning_rate": "log_uniform 1e-4 1e-2", "ent_coef": [0.001, 0.01, 0.1]},
        num_trials=100,
        metric="mean_reward",
    )
    best_config = protein.optimize()

Without `env_name` it searches for anything: see `ask` and `tell`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pufferlib import config as configs
from pufferlib.config import Config, SweepConfig, as_range, check_range, full_key
from pufferlib.errors import PufferError, UsageError, error_line, imported, one_line, quoted
from pufferlib.sweep import (
    BUDGET_KEYS,
    Driver,
    Event,
    SearchSpace,
    Study,
    Trial,
    TrialState,
    check_installed,
    check_params,
    create_study,
    find_env,
    load_study,
    with_values,
)

__all__ = ["Protein"]


class Protein:
    """A search over `search_space`: keys with a list of choices or a range each.

    Keys are options of a run: `learning_rate` (of section `train`), `policy.hidden_size`,
    `vec.num_envs`, or a param of the env such as a reward weight, `env.<param>`. Ranges are spelled
    as in section [sweep] of an ini: "log_uniform 1e-4 1e-2", "int 1 8", "pow2 64 1024",
    "logit 0.9 0.999", "0 or uniform 0.1 1".

    A trial is an ordinary run in a process of its own, in a folder below `folder`. Its length is
    `total_timesteps` or `num_iterations`, which may be searched too; other options of a run are
    given as `settings`, by `section.key`. `num_trials` and `max_cost`, in seconds of training or in
    steps (`cost`), limit the sweep. `storage` is the URL of a database; by default the trials are
    kept in a journal in `folder`. `resume` continues the sweep that is there. Further keywords are
    those of `config.SweepConfig`.
    """

    def __init__(
        self,
        env_name: str | None = None,
        search_space: Mapping[str, Any] | None = None,
        num_trials: int | None = None,
        metric: str = "mean_reward",
        goal: str = "maximize",
        max_cost: float | None = None,
        seed: int | None = None,
        storage: str | None = None,
        *,
        total_timesteps: int | None = None,
        num_iterations: int | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        resume: bool = False,
        on_event: Callable[[Event], None] | None = None,
        **options: Any,
    ) -> None:
        imported("optuna", "sweep", "Optuna")
        if not isinstance(search_space, Mapping):
            raise UsageError(
                f"`search_space` must be a dict of keys and ranges, but got {quoted(search_space)}."
            )
        given = {"metric": metric, "goal": goal, "num_trials": num_trials, "max_cost": max_cost}
        options = {**options, **given, "storage": storage}
        if seed is not None:
            options["seed"] = seed
        self.config = SweepConfig.from_dict(options)
        self._on_event = on_event or (lambda event: None)
        self._base: Config | None = None
        self._keys: dict[str, str] = {}
        self._env = b""
        self._curves: dict[int, list[tuple[float, float, float]]] = {}  # of reported trials
        self._ends: dict[int, TrialState] = {}  # of trials that should be stopped
        name = "function"
        if env_name is None:
            ranges = {
                key: as_range(each, key, _number_or_text) for key, each in search_space.items()
            }
        else:
            name, self._env = find_env(env_name)
            self._keys = {key: full_key(key) for key in search_space}
            ranges = {k: check_range(self._keys[k], each, k) for k, each in search_space.items()}
            length = {"total_timesteps": total_timesteps, "num_iterations": num_iterations}
            fixed = {f"train.{key}": value for key, value in length.items() if value is not None}
            fixed |= {full_key(key): value for key, value in (settings or {}).items()}
            check_params(name, {self._keys[key]: each for key, each in ranges.items()})
            self._base = with_values(configs.load(name), fixed)
        full = {key: self._keys.get(key, f"train.{key}") for key in ranges}
        budget = next((key for key in ranges if full[key] in BUDGET_KEYS), None)
        self.space = SearchSpace(ranges, budget)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        is_stored = env_name is not None or folder is not None
        self.folder = Path(folder or f"sweeps/{name.replace('/', '-')}-{stamp}")
        kept = self.folder if is_stored else None
        if resume:
            self.study = self._resumed(storage, kept)
        else:
            self.study = create_study(storage, f"{name}-{stamp}", self.space, self.config, kept)

    def _resumed(self, storage: str | None, folder: Path | None) -> Study:
        """Return the newest study of the storage, which must have the same search space."""
        check_installed(self.config.method)
        study, _ = load_study(storage, None, folder, vars(self.config))
        if study.space.ranges.keys() != self.space.ranges.keys():
            raise UsageError(
                "`search_space` must have the keys of the sweep that is resumed, "
                f"{quoted(', '.join(study.space.ranges))}, but has others."
            )
        return study

    def optimize(self, function: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
        """Search until the budget is spent and return the best config: a dict of the searched keys.

        Trains on `env_name`, or calls `function(config)`, which returns a score or (score, cost).
        A trial that raises is recorded as failed, and the search goes on.
        """
        if function is not None:
            self._call(function)
        elif self._base is None:
            raise UsageError("`optimize` must get a function, since there is no `env_name`.")
        else:
            driver = Driver(
                self.study, self._base, self.folder, self._env, self._on_event, self._keys
            )
            driver.run()
        best = self.best
        if best is None:
            failed = [each.failure for each in self.trials if each.failure]
            raise PufferError(f"no trial has ended well. The last one: {one_line(failed[-1:])}")
        return dict(best.config)

    def _call(self, function: Callable[[dict[str, Any]], Any]) -> None:
        while (trial := self.ask()) is not None:
            started = time.perf_counter()
            try:
                result = function(dict(trial.config))
            except Exception as error:  # of the user's function, of any kind
                self.tell(trial, failure=error_line(error))
                continue
            except BaseException:
                self.study.tell(trial, "lost", failure="the search was interrupted")
                raise
            is_pair = isinstance(result, Sequence) and not isinstance(result, str)
            score, cost = result if is_pair else (result, time.perf_counter() - started)
            self.tell(trial, score, cost)

    # ---- Ask and tell ----------------------------------------------------------------------------

    def ask(self) -> Trial | None:
        """Return the next trial to run, None if the budget is spent; `tell` must follow."""
        return self.study.ask()

    def report(self, trial: Trial, share: float, score: float, cost: float) -> bool:
        """Report a trial on its way, done up to `share`; return whether it should be stopped.

        Then `tell` it with its last score: it is recorded as stopped, or cut if the cost is spent.
        """
        curve = self._curves.setdefault(trial.number, [])
        curve.append((float(share), float(cost), float(score)))
        end = self.study.note(trial, np.array(curve))
        if end is None or share >= 1:  # one that is done is a result, whatever it cost
            return False
        self._ends[trial.number] = end
        return True

    def tell(
        self, trial: Trial, score: float = math.nan, cost: float = 1.0, failure: str = ""
    ) -> None:
        """Record the end of a trial: its score and cost, or why it failed. Nan is a failure."""
        points = self._curves.pop(trial.number, [])
        if not failure and not (_is_number(score) and _is_number(cost) and cost > 0):
            failure = f"the score must be finite and the cost above 0, but got {score} and {cost}"
        if failure:
            self.study.tell(trial, "failed", np.array(points).reshape(-1, 3), failure)
        elif trial.number in self._ends:
            self.study.tell(trial, self._ends[trial.number], np.array(points))
        else:
            points = [point for point in points if point[0] < 1]
            curve = np.array([*points, (1.0, float(cost), float(score))])
            self.study.tell(trial, "complete", curve)

    # ---- Results ---------------------------------------------------------------------------------

    @property
    def trials(self) -> list[Trial]:
        """All trials by number."""
        return self.study.trials()

    @property
    def best(self) -> Trial | None:
        """The complete trial with the best config."""
        return self.study.best()

    def pareto(self) -> list[Trial]:
        """Return the trials that no other beats in score and cost, the cheapest first."""
        return self.study.pareto()


def _is_number(value: Any) -> bool:
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _number_or_text(text: str) -> Any:
    number = configs.parse_number(text)
    return text if number is None else number
