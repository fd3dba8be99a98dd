"""The tasks of benchmarks/sweeps.py: their optima are known, and so is the area."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("sweeps")


def test_the_area_counts_the_best_score_from_when_it_is_there(sweeps: ModuleType) -> None:
    # nothing up to cost 2, half of the optimum for 4, all of it for the last 4 of 10
    assert sweeps.area([(2, 0.5), (6, 1.0)], 10, best=1.0, worst=0.0) == pytest.approx(0.6)
    assert sweeps.area([(4, math.nan), (5, -3.0)], 10, best=1.0, worst=0.0) == 0
    assert sweeps.area([(20, 1.0)], 10, best=1.0, worst=0.0) == 0  # it does not fit


def test_functions_have_the_optima_of_the_literature(sweeps: ModuleType) -> None:
    branin, hartmann = sweeps.branin(), sweeps.hartmann()
    place = [0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573]

    assert branin.truth({"x": math.pi, "y": 2.275}) == pytest.approx(branin.best, abs=1e-5)
    top = hartmann.truth({f"x{i}": value for i, value in enumerate(place)})
    assert top == pytest.approx(hartmann.best, abs=1e-4)


@pytest.mark.parametrize("name", ["branin", "hartmann", "learner"])
def test_no_config_beats_the_optimum(sweeps: ModuleType, name: str) -> None:
    task = sweeps.TASKS[name]()
    space = sweeps.SearchSpace(task.ranges)
    units = np.random.default_rng(0).random((2000, space.width))

    assert max(task.truth(space.decode(unit)) for unit in units) <= task.best + 1e-9


def test_a_sweep_stays_within_its_budget(sweeps: ModuleType) -> None:
    pytest.importorskip("optuna", reason="needs pufferlib[sweep]")
    task = sweeps.learner()

    outcomes = sweeps.sweep(task, "random", seed=0)

    assert outcomes[-1].total_cost <= task.budget
    assert {outcome.state for outcome in outcomes} == {"complete", "failed"}
    spent = sum(outcome.curve[-1].cost for outcome in outcomes)
    assert spent == pytest.approx(outcomes[-1].total_cost)


def test_a_sampler_can_begin_with_the_first_trial_of_protein(sweeps: ModuleType) -> None:
    pytest.importorskip("optuna", reason="needs pufferlib[sweep]")
    task = sweeps.learner()

    first = sweeps.OptunaSearch(task, "gp+middle", seed=0).ask(1.0, task.budget)
    protein = sweeps.ProteinSearch(task, seed=0).ask(1.0, task.budget)

    assert first.keys() == protein.keys()
    for key, value in protein.items():
        assert first[key] == pytest.approx(value)
