"""`puffer sweep`: from the command line to best.ini."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE, wait_until

from pufferlib import config as configs
from pufferlib.cli import main
from pufferlib.sweep import executors

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")

TINY = ["--train.total-timesteps", "16384", "--train.batch-size", "4096", "--vec.num-envs", "64"]
SEARCH = ["--only", "learning_rate", "--sweep.method", "random"]


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_sweep_leaves_a_config_that_trains_and_can_be_extended(
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = ["bandit", "--folder", "out", "--sweep.parallel", "1"]
    assert main(["sweep", *words, "--sweep.num-trials", "2", *SEARCH, *TINY]) == 0
    output = capfd.readouterr().out

    assert "[1] trial 0 complete: mean_reward" in output
    assert "[2] trial 1 complete: mean_reward" in output
    assert "Pareto front of cost and mean_reward" in output
    assert Path("out/report.png").stat().st_size > 10_000
    best = configs.load("bandit", (), ["out/best.ini"])
    assert (
        configs.load_sweep("bandit")
        .ranges["train.learning_rate"]
        .contains(best.train.learning_rate)
    )
    assert main(["train", "bandit", "--config", "out/best.ini"]) == 0
    capfd.readouterr()

    resume = ["sweep", "bandit", "--resume", "--folder", "out", "--sweep.num-trials", "3"]
    assert main(resume) == 0
    assert "[3] trial 2 complete" in capfd.readouterr().out
    assert main(["sweep", "bandit", "--report", "--folder", "out"]) == 0
    assert "3 trials (3 complete)" in capfd.readouterr().out


@pytest.mark.slow
def test_an_interrupt_ends_the_trials_and_says_how_to_continue() -> None:
    command = [sys.executable, "-m", "pufferlib", "sweep", "bandit", "--folder", "out", *SEARCH]
    started = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        # a test run in the background of a shell ignores SIGINT, and its children would too
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_until(lambda: list(Path("out").glob("trials/*/*/metrics.jsonl")), started)
    os.kill(started.pid, signal.SIGINT)
    _, errors = started.communicate(timeout=PATIENCE)

    assert started.returncode == 130
    assert "puffer sweep bandit --resume --folder out" in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sweep.metho", "tpe"], "Did you mean `method`"),
        (["--sweep.method", "tpee"], "Did you mean `tpe`"),
        (["--sweep.learning-rat", "0.1, 0.2"], "Did you mean `learning_rate`"),
        (["--sweep.gamma", "uniform 0 2"], "between 0 and 1"),
        (["--sweep.num-trials", "0"], "must be an integer of at least 1"),
        (["--sweep.env.nothing", "1, 2"], "Unknown param of `bandit`"),
        (["--only", "gamma"], "must name keys with a range"),
        (["--only", "ent_coef", "--train.ent-coef", "0.1"], "must name keys with a range"),
        (["--resume"], "must hold a sweep of bandit"),
        (["--resume", "--folder", "nowhere"], "must be the folder of a sweep"),
        (["--report", "--train.gamma", "0.9"], "must not change when a sweep is resumed"),
        (["--sweep.storage", "nonsense"], "must be the URL of a database"),
    ],
)
def test_a_mistake_is_one_line_before_any_trial(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "bandit", *words]) == 2

    output = capfd.readouterr()
    assert message in output.err
    assert len(output.err.splitlines()) == 1
    assert not list(Path().glob("**/trials"))


def test_an_env_without_ranges_says_how_to_give_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "gym-CartPole-v1"]) == 2
    assert 'Try --sweep.learning-rate "log_uniform' in capfd.readouterr().err


def test_the_view_shows_trials_best_and_budget(tmp_path: Path) -> None:
    import numpy as np
    from rich.console import Console

    from pufferlib.cli.sweep import _View
    from pufferlib.config import SweepConfig, check_range
    from pufferlib.sweep import Driver, Event, SearchSpace, create_study

    ranges = {"train.gamma": check_range("train.gamma", [0.9, 0.99], "x")}
    options = SweepConfig(num_trials=4, method="random")
    study = create_study(None, "s", SearchSpace(ranges), options, tmp_path)
    driver = Driver(study, configs.load("bandit"), tmp_path)
    view = _View(driver)

    def run_two(score: float) -> str:
        for _ in range(2):
            trial = study.ask()
            assert trial is not None
            study.tell(trial, "complete", np.array([[1.0, 5.0, score]]))
            view.note(Event("end", study.trials()[-1]))
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(view.render())
        return console.export_text()

    text = run_two(2.0)
    assert "2 complete; 50% of the budget" in text
    assert "best mean_reward 2: gamma=" in text
    assert "trial 1 complete: mean_reward 2 at 5 seconds" in text
    assert "100% of the budget\n" in run_two(3.0).replace(" \n", "\n")  # and no time left


def test_a_sweep_without_a_complete_trial_ends_with_a_code(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = str(Path(__file__).resolve().parents[1] / "rigs/fake_trial.py")
    local = executors.LocalProcess
    monkeypatch.setattr(executors, "LocalProcess", lambda job, program: local(job, (fake,)))
    words = ["sweep", "bandit", "--sweep.method", "random", "--sweep.num-trials", "2"]
    words += ["--only", "learning_rate", "--folder", "s"]

    assert main([*words, "--env.fault", "diverge"]) == 1
    assert "2 failed); no trial is complete" in capfd.readouterr().out
