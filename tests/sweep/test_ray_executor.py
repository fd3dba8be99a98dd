"""Trials on a Ray cluster: one of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pufferlib import config as configs
from pufferlib.config import SweepConfig, check_range
from pufferlib.sweep import Driver, Event, SearchSpace, create_study
from pufferlib.sweep.executors import RayExecutor

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")
pytestmark = pytest.mark.slow

FAKE = Path(__file__).resolve().parents[1] / "rigs" / "fake_trial.py"


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[RayExecutor]:
    pytest.importorskip("ray", reason="needs pufferlib[ray]")
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    made = RayExecutor((str(FAKE),))
    yield made
    made.close()


def test_trials_run_on_a_cluster_and_a_killed_one_is_replaced(
    tmp_path: Path, executor: RayExecutor
) -> None:
    ranges = {"train.learning_rate": check_range("train.learning_rate", [0.001, 0.01], "x")}
    options = SweepConfig(num_trials=3, method="random", parallel=2, early_stop=False)
    study = create_study(None, "study", SearchSpace(ranges), options, tmp_path)
    config = configs.load("", [("env", "pause", "0.3")], packaged=False)
    driver = Driver(study, config, tmp_path, executor=executor)
    killed: list[int] = []

    def kill_once(event: Event) -> None:
        if event.kind == "progress" and not killed:
            killed.append(event.trial.number)
            running = next(r for r in driver._running if r.trial.number == killed[0])
            running.process.kill()

    driver.on_event = kill_once
    driver.run()

    states = {trial.number: trial.state for trial in study.trials()}
    assert states.pop(killed[0]) == "lost"
    assert sorted(states.values()) == ["complete"] * 3
