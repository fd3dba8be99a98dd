"""Protein: the documented class, with real training, and with any function."""

from __future__ import annotations

import builtins
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pufferlib
from pufferlib import Protein
from pufferlib.cli import main
from pufferlib.errors import MissingExtraError, PufferError, UsageError
from pufferlib.sweep import Trial

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")


@pytest.mark.slow
def test_the_documented_example_returns_a_config_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    search_space = {
        "learning_rate": [1e-4, 3e-4, 1e-3],
        "batch_size": [4096, 8192],
        "ent_coef": [0.001, 0.01, 0.1],
        "clip_coef": [0.1, 0.2, 0.3],
    }
    protein = Protein(
        env_name="bandit",
        search_space=search_space,
        num_trials=3,
        metric="mean_reward",
        total_timesteps=16384,
        parallel=1,
    )

    best_config = protein.optimize()

    assert best_config.keys() == search_space.keys()
    assert all(best_config[key] in choices for key, choices in search_space.items())
    assert [trial.state for trial in protein.trials] == ["complete"] * 3
    assert protein.pareto()
    settings = {"num_iterations": 1, "dashboard": "off", **best_config}
    with (
        pufferlib.make("bandit", num_envs=64) as vecenv,
        pufferlib.PuffeRL(vecenv, **settings) as trainer,
    ):
        trainer.evaluate()
        assert math.isfinite(trainer.train()["policy_loss"])


ENV_SCRIPT = """
import pufferlib

class Guess(pufferlib.PufferEnv):  # only this script knows it
    def __init__(self, bonus=1.0, buf=None):
        super().__init__(buf)
        self.observation_space = self.make_space((1,))
        self.action_space = self.make_discrete(2)
        self.bonus = bonus

    def reset(self):
        return [0.0]

    def step(self, action):
        return [0.0], float(action) * self.bonus, True, {}

pufferlib.register("guess", Guess)
protein = pufferlib.Protein(
    "guess", {"env.bonus": [1.0, 5.0], "vec.num_envs": [2]}, num_trials=2, parallel=1,
    num_iterations=2, settings={"batch_size": 64, "vec.backend": "serial"}, start=False,
    method="random", seed=1,
)
best = protein.optimize()
print("best", best, [t.failure for t in protein.trials])
"""


@pytest.mark.slow
def test_an_env_that_only_a_script_knows_can_be_searched(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(ENV_SCRIPT)

    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stderr
    assert "best {'env.bonus'" in done.stdout


def test_any_function_can_be_searched() -> None:
    protein = Protein(search_space={"x": "uniform -1 1", "y": [1, 2]}, num_trials=12, method="tpe")

    best = protein.optimize(lambda config: config["y"] - config["x"] ** 2)

    assert best["y"] == 2
    assert len(protein.trials) == 12


def test_ask_and_tell() -> None:
    protein = Protein(search_space={"x": "uniform 0 1"}, num_trials=8, method="random")
    stopped: list[Trial] = []
    while (trial := protein.ask()) is not None:
        score = 10.0 if trial.number < 5 else 1.0
        for share in (0.25, 0.5, 0.75, 1.0):
            if protein.report(trial, share, score * share, cost=share):
                stopped.append(trial)
                break
        protein.tell(trial, score, cost=1.0)

    assert [trial.number for trial in stopped] == [5, 6, 7]
    assert [trial.state for trial in protein.trials] == ["complete"] * 5 + ["stopped"] * 3


def test_a_function_that_raises_or_returns_nan_fails_one_trial() -> None:
    def function(config: dict[str, Any]) -> float:
        if config["x"] == 1:
            raise ZeroDivisionError("no luck")
        return math.nan if config["x"] == 2 else 7.0

    protein = Protein(search_space={"x": [1, 2, 3]}, num_trials=20, method="random", seed=3)

    assert protein.optimize(function) == {"x": 3}
    failures = {trial.config["x"]: trial.failure for trial in protein.trials}
    assert failures[1] == "ZeroDivisionError: no luck"
    assert "must be finite" in failures[2]


def test_a_search_can_be_resumed(tmp_path: Path) -> None:
    space = {"x": "log_int 1 100", "y": [1, 2]}
    first = Protein(search_space=space, num_trials=3, method="random", folder=tmp_path)
    first.optimize(lambda config: config["x"])
    before = [trial.config for trial in first.trials]

    options = {"num_trials": 5, "method": "random", "folder": tmp_path, "resume": True}
    second = Protein(search_space=space, **options)
    second.optimize(lambda config: config["x"])

    assert [t.config for t in second.trials[:3]] == before
    assert len(second.trials) == 5
    with pytest.raises(UsageError, match="must have the keys of the sweep"):
        Protein(search_space={"z": [1]}, **options)


def test_a_search_without_any_result_says_why() -> None:
    protein = Protein(search_space={"x": [1]}, num_trials=1)
    with pytest.raises(PufferError, match=r"no trial has ended well.*ValueError: bad"):
        protein.optimize(lambda config: (_ for _ in ()).throw(ValueError("bad")))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"learning_rat": [1e-3]}, "Did you mean `learning_rate`"),
        ({"learning_rate": []}, "`learning_rate`: a list of choices must not be empty"),
        ({}, "must have a key"),
        (None, "must be a dict"),
        ({"env.gravty": [1]}, "Did you mean `gravity`"),
    ],
)
def test_a_wrong_space_is_one_line_before_any_trial(
    space: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Protein("cartpole", space, num_trials=3, folder=tmp_path)

    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "optuna":
            raise ImportError("No module named 'optuna'")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.partition(".")[0] == "optuna"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr(builtins, "__import__", refuse)

    with pytest.raises(MissingExtraError, match=r"pip install 'pufferlib\[sweep\]'"):
        Protein("cartpole", {"gamma": [0.9]}, num_trials=1)


def test_without_botorch_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "botorch", None)
    folder = tmp_path / "sweep"

    with pytest.raises(MissingExtraError, match=r"pip install 'pufferlib\[sweep\]', or method tpe"):
        Protein("cartpole", {"gamma": [0.9]}, num_trials=1, folder=folder)
    assert main(["sweep", "cartpole", "--folder", str(folder)]) == 2
    assert not folder.exists()


def test_a_trial_that_is_done_is_a_result_though_the_cost_is_spent() -> None:
    protein = Protein(search_space={"x": "uniform 0 1"}, max_cost=10.0, method="random")
    for score in (0.3, 0.9):
        trial = protein.ask()
        assert trial is not None
        assert not protein.report(trial, share=1.0, score=score, cost=5.0)
        protein.tell(trial, score, cost=5.0)

    assert [each.state for each in protein.trials] == ["complete", "complete"]
    assert protein.best is not None
    assert protein.best.score == 0.9
