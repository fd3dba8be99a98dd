"""What a sweep has found: the best config, the Pareto front, and which options mattered."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pufferlib.errors import one_line
from pufferlib.files import write_atomically
from pufferlib.sweep.driver import Driver, config_ini
from pufferlib.sweep.study import Study, Trial

BEST = "best.ini"
_FEW = 6  # trials that importance needs


class Report(NamedTuple):
    """The results of a study."""

    trials: list[Trial]
    best: Trial | None
    pareto: list[Trial]
    importance: dict[str, float]  # share of the score's variation that a key explains
    runs_of_best: list[Trial]  # complete trials with the best config

    def count(self, state: str) -> int:
        """Return the number of trials in a state."""
        return sum(each.state == state for each in self.trials)


def make_report(study: Study) -> Report:
    """Read the study and return its results."""
    trials, best = study.trials(), study.best()
    same = [t for t in trials if best and t.config == best.config and t.state == "complete"]
    return Report(trials, best, study.pareto(), importance(study, trials), same)


def importance(study: Study, trials: list[Trial]) -> dict[str, float]:
    """Return how much of the score's variation each key explains, the largest first.

    Trees of a random forest are fitted to the scores of all trials that have one, and each key is
    judged by the error that shuffling its values adds. Empty with few trials.
    """
    scored = [each for each in trials if each.state in ("complete", "stopped") and len(each.curve)]
    if len(scored) < _FEW:
        return {}
    from sklearn.ensemble import RandomForestRegressor

    units = np.array([study.space.encode(each.config) for each in scored])
    scores = np.array([each.score for each in scored])
    floor = np.median(scores) - 3 * (scores.max() - np.median(scores) + 1e-12)
    scores = np.clip(scores, floor, None) if study.config.goal == "maximize" else scores
    if scores.std() < 1e-12:
        return {}
    forest = RandomForestRegressor(n_estimators=100, min_samples_leaf=2, random_state=0, n_jobs=1)
    forest.fit(units, scores)
    base = ((forest.predict(units) - scores) ** 2).mean()
    rng = np.random.default_rng(0)
    found: dict[str, float] = {}
    for key in study.space.ranges:
        errors = []
        for _ in range(5):
            shuffled = units.copy()
            columns = study.space.columns(key)
            shuffled[:, columns] = shuffled[rng.permutation(len(units)), columns]
            errors.append(((forest.predict(shuffled) - scores) ** 2).mean())
        found[key] = max(0.0, float(np.mean(errors) - base))
    total = sum(found.values()) or 1.0
    return dict(sorted(((k, v / total) for k, v in found.items()), key=lambda each: -each[1]))


def write_best(driver: Driver, report: Report, path: Path) -> None:
    """Write the best config as an ini for `puffer train NAME --config best.ini`."""
    if report.best is None:
        return
    study, best = driver.study, report.best
    scores = [each.score for each in report.runs_of_best]
    spread = f" +- {np.std(scores):.4g} ({len(scores)} seeds)" if len(scores) > 1 else ""
    comment = (
        f"{driver.config.name}: {study.config.metric} {np.mean(scores):.4g}{spread} at "
        f"{best.cost:.4g} {study.config.cost}; trial {best.number} of study {one_line(study.name)}"
    )
    text = config_ini(driver.trial_config(best), comment, own=False)
    write_atomically(path, text.encode())


def format_value(value: Any) -> str:
    """Return a value of a config for a table."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.3g}" if math.isfinite(value) else str(value)
    return str(value)
