"""Trials on a Ray cluster: one of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_trial import GATE
from waiting import wait_until

from pufferlib import config as configs
from pufferlib.config import SweepConfig, check_range
from pufferlib.sweep import Driver, Event, SearchSpace, create_study
from pufferlib.sweep.executors import RayExecutor

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")
pytestmark = pytest.mark.slow

RIGS = Path(__file__).resolve().parents[1] / "rigs"


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayExecutor]:
    """Trials on a cluster of this machine, which ends with the test."""
    monkeypatch.setitem(sys.modules, "rfc3987_syntax", None)  # see ray_cluster.py
    pytest.importorskip("ray", reason="needs pufferlib[ray]")
    folder = tmp_path / "ray"
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        cluster = subprocess.Popen(
            [sys.executable, RIGS / "ray_cluster.py", folder, "2", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until((folder / "address").exists, cluster)
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        monkeypatch.setenv("RAY_ADDRESS", (folder / "address").read_text())
        made = RayExecutor((str(RIGS / "fake_trial.py"),))
        yield made
        made.close()
    finally:
        cluster.terminate()
        cluster.wait()


def test_trials_run_on_a_cluster_and_a_killed_one_is_replaced(
    tmp_path: Path, executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = {"train.learning_rate": check_range("train.learning_rate", [0.001, 0.01], "x")}
    options = SweepConfig(num_trials=3, method="random", parallel=2, early_stop=False)
    study = create_study(None, "study", SearchSpace(ranges), options, tmp_path)
    config = configs.load("", [("env", "gate", "5")], packaged=False)
    driver = Driver(study, config, tmp_path, executor=executor)
    killed: list[int] = []

    def kill_once(event: Event) -> None:
        if event.kind != "progress":
            return
        if not killed:
            killed.append(event.trial.number)
            running = next(r for r in driver._running if r.trial.number == killed[0])
            running.process.kill()
        for trial in driver.running:  # those that have begun; the others report progress later
            if os.path.isdir(trial.folder):
                (Path(trial.folder) / GATE).touch()

    driver.on_event = kill_once
    monkeypatch.setattr("pufferlib.sweep.driver._CHECK", 0.0)  # a held trial has no further line
    driver.run()

    states = {trial.number: trial.state for trial in study.trials()}
    assert states.pop(killed[0]) == "lost"
    assert sorted(states.values()) == ["complete"] * 3


def test_a_cluster_that_starts_here_is_connected_as_the_vector_backend_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On loopback only, and without usage statistics: `tests/vectorization` looks at its ports."""
    monkeypatch.setitem(sys.modules, "rfc3987_syntax", None)  # see ray_cluster.py
    ray = pytest.importorskip("ray", reason="needs pufferlib[ray]")
    from ray._private import ray_constants

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    started: list[tuple[object, str | None, str | None]] = []

    def init(**options: object) -> None:
        environ = os.environ.get
        ends = environ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"), environ("RAY_USAGE_STATS_ENABLED")
        started.append((ray_constants.ENABLE_RAY_CLUSTER, *ends))

    monkeypatch.setattr(ray, "init", init)
    RayExecutor()

    assert started == [(False, "0", "0")]
