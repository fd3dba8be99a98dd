"""The driver: trials as processes, how they end, and what is recorded."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_trial import GATE

from pufferlib import config as configs
from pufferlib.config import SweepConfig, check_range
from pufferlib.errors import MissingExtraError, PufferError, UsageError
from pufferlib.sweep import (
    Driver,
    Event,
    SearchSpace,
    Study,
    Trial,
    config_ini,
    create_study,
    load_study,
)
from pufferlib.sweep.executors import LocalExecutor, _LogReader
from pufferlib.sweep.report import make_report, write_best

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")

FAKE = Path(__file__).resolve().parents[1] / "rigs" / "fake_trial.py"
RATES = {"train.learning_rate": "log_uniform 1e-5 1e-1"}


@pytest.fixture(autouse=True)
def look_at_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver looks again when there is a new line: a trial that is held has no other."""
    monkeypatch.setattr("pufferlib.sweep.driver._CHECK", 0.0)


def make_driver(
    folder: Path, texts: dict[str, str] | None = None, env: dict[str, str] | None = None, **options
) -> Driver:
    ranges = {key: check_range(key, text, key) for key, text in (texts or RATES).items()}
    chosen = {"method": "random", "num_trials": 3, "parallel": 2, "early_stop": False, **options}
    study = create_study(None, "study", SearchSpace(ranges), SweepConfig(**chosen), folder)
    overrides = [("env", key, value) for key, value in (env or {}).items()]
    config = configs.load("", overrides, packaged=False)
    return Driver(study, config, folder, executor=LocalExecutor((str(FAKE),)))


HELD = {"gate": "5"}  # half of a trial, and no more until its gate is open


def open_gate(event: Event) -> None:
    (Path(event.trial.folder) / GATE).touch()


def states(study: Study) -> list[str]:
    return [trial.state for trial in study.trials()]


def test_trials_run_to_their_end_and_leave_ordinary_runs(tmp_path: Path) -> None:
    driver = make_driver(tmp_path)
    driver.run()

    assert states(driver.study) == ["complete"] * 3
    for trial in driver.study.trials():
        assert len(trial.curve) == 10
        assert trial.curve[-1].tolist() == [1.0, 1.0, trial.score]  # all of it, one second
        assert list(Path(trial.folder).glob("*/metrics.jsonl"))


def test_the_values_of_the_config_come_first(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, num_trials=1)
    driver.run()

    (trial,) = driver.study.trials()
    assert trial.config == {"train.learning_rate": 3e-4}  # the default


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("diverge", "`loss` must be finite, but is nan"),
        ("crash", "signal 6"),
        ("usage", "Unknown param"),
        ("bug", "LookupError: a mistake of ours"),
    ],
)
def test_a_bad_trial_is_one_line_and_the_sweep_goes_on(
    tmp_path: Path, fault: str, message: str
) -> None:
    texts = {**RATES, "env.fault": f"none, {fault}"}
    driver = make_driver(tmp_path, texts, num_trials=8, start=False)
    driver.run()

    trials = driver.study.trials()
    bad = [trial for trial in trials if trial.config["env.fault"] == fault]
    good = [trial for trial in trials if trial.config["env.fault"] is None]
    assert bad
    assert good
    assert all(trial.state == "failed" for trial in bad)
    assert all(message in trial.failure and "\n" not in trial.failure for trial in bad)
    assert all(trial.state == "complete" for trial in good)


def test_a_metric_that_one_trial_lacks_fails_it(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, {**RATES, "env.fault": "none, silent"}, num_trials=8, parallel=1)
    driver.run()

    bad = [t for t in driver.study.trials() if t.config["env.fault"] == "silent"]
    assert bad
    assert {t.state for t in bad} == {"failed"}
    assert {t.failure for t in bad} == {"its log never had a value of `mean_reward`"}


def test_a_metric_that_no_run_reports_ends_the_sweep_at_once(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, metric="mean_rewrd", num_trials=20, parallel=1)
    with pytest.raises(UsageError, match=r"no run has `mean_rewrd`\. Try `mean_reward`"):
        driver.run()

    assert states(driver.study) == ["failed"]


def test_trials_that_cannot_start_end_the_sweep(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env={"fault": "usage"}, num_trials=20, parallel=1)
    with pytest.raises(UsageError, match="first 3 trials could not start: Unknown param"):
        driver.run()


def test_a_request_to_stop_starts_no_further_trial(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, parallel=3)
    started = []
    driver.on_event = lambda event: started.append(event.kind)
    driver.run(lambda: started)

    assert started.count("start") == 1
    assert states(driver.study) == ["lost"]


def test_a_report_needs_no_botorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_driver(tmp_path, method="protein", num_trials=1).run()
    monkeypatch.setattr("pufferlib.sweep.study.find_spec", lambda name: None)
    study, _ = load_study(None, None, tmp_path)
    driver = Driver(study, configs.load("", [], packaged=False), tmp_path)

    assert make_report(driver.study).best is not None
    with pytest.raises(MissingExtraError, match=r"pufferlib\[sweep\]"):
        driver.run()


def test_a_killed_trial_is_lost_and_replaced(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env=HELD, num_trials=2, parallel=1)
    kills = []

    def kill_first(event: Event) -> None:
        if kills:
            open_gate(event)
        elif event.kind == "progress":
            (child,) = psutil.Process().children()
            kills.append(child.pid)
            os.kill(child.pid, signal.SIGKILL)

    driver.on_event = kill_first
    driver.run()

    lost, retry, other = driver.study.trials()
    assert (lost.state, retry.state, other.state) == ("lost", "complete", "complete")
    assert "signal 9" in lost.failure
    assert retry.config == lost.config


def test_a_config_that_is_killed_twice_has_failed(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env=HELD, num_trials=1, parallel=1)

    def kill(event: Event) -> None:
        if event.kind == "progress":
            for child in psutil.Process().children():
                child.kill()

    driver.on_event = kill
    driver.run()

    assert states(driver.study) == ["lost", "failed"]


@pytest.mark.slow
def test_a_hopeless_trial_is_stopped(tmp_path: Path) -> None:
    texts = {"train.learning_rate": "0.001, 0.0011, 0.0012, 0.0013, 0.1"}
    driver = make_driver(
        tmp_path, texts, env={"gate": "9"}, num_trials=12, parallel=1, early_stop=True
    )

    def let_others_finish(event: Event) -> None:
        if event.trial.number < 5 or event.trial.config["train.learning_rate"] < 0.1:
            open_gate(event)

    driver.on_event = let_others_finish
    driver.run()

    bad = [t for t in driver.study.trials() if t.config["train.learning_rate"] == 0.1]
    late = [t for t in bad if t.number >= 5]
    assert late
    assert {t.state for t in late} == {"stopped"}
    assert all(t.curve[-1, 0] < 1 for t in late)


def test_a_trial_that_runs_when_the_cost_is_spent_is_cut(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env=HELD, num_trials=None, max_cost=1.5, parallel=1)
    driver.on_event = lambda event: open_gate(event) if event.trial.number == 0 else None
    driver.run()  # a whole trial costs 1

    assert states(driver.study) == ["complete", "cut"]
    assert driver.study.trials()[1].cost == 0.5


def test_an_interrupt_ends_the_trials_and_the_sweep_can_be_resumed(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env=HELD, num_trials=3, parallel=2)

    def interrupt(event: Event) -> None:
        if event.kind == "progress":
            raise KeyboardInterrupt

    driver.on_event = interrupt
    with pytest.raises(KeyboardInterrupt):
        driver.run()
    assert psutil.Process().children() == []
    assert set(states(driver.study)) == {"lost"}

    study, _ = load_study(None, None, tmp_path)
    again = Driver(study, driver.config, tmp_path, executor=LocalExecutor((str(FAKE),)))
    again.on_event = open_gate
    again.run()
    assert states(study).count("complete") == 3


def of_a_dead_driver(tmp_path: Path) -> tuple[Driver, Trial]:
    """Return the driver of a study whose trial has run, but whose driver died before it ended."""
    driver = make_driver(tmp_path, num_trials=1)
    driver.run()
    (trial,) = driver.study.trials()
    other = make_driver(tmp_path / "other", num_trials=1)
    os.rename(tmp_path / "trials", tmp_path / "other/trials")
    attrs = {"driver": {"host": other.study._driver["host"], "pid": 1, "born": 0}}
    template = other.study._template(
        {"train.learning_rate": 0.002}, {**attrs, "folder": trial.folder, "seed": 1, "beat": 0}
    )
    other.study._storage.create_new_trial(other.study._study._study_id, template_trial=template)
    return other, trial


def test_the_finished_run_of_a_dead_driver_is_adopted(tmp_path: Path) -> None:
    driver, trial = of_a_dead_driver(tmp_path)

    driver.run()

    (adopted,) = driver.study.trials()
    assert (adopted.state, adopted.score) == ("complete", trial.score)


@pytest.mark.parametrize("place", ["trials", "trial", "elsewhere"])
def test_no_run_outside_the_folder_of_the_sweep_is_adopted(tmp_path: Path, place: str) -> None:
    driver, trial = of_a_dead_driver(tmp_path)
    trials, outside = tmp_path / "other/trials", tmp_path / "outside"
    if place == "trials":
        os.rename(trials, outside)
        trials.symlink_to(outside)
        with pytest.raises(UsageError, match="must be in the folder of the sweep, but is a link"):
            driver.run()
    else:
        os.rename(trials / Path(trial.folder).name, outside)
        if place == "trial":
            (trials / Path(trial.folder).name).symlink_to(outside)
        driver.run()

    assert driver.study.trials()[0].state == "lost"
    assert len(list(tmp_path.glob("outside/*/metrics.jsonl"))) == (place != "trials")


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_trial_that_dies_in_the_act_of_ending_is_complete(tmp_path: Path, signum: int) -> None:
    driver = make_driver(tmp_path, env={"fault": f"dies-ending-{signum:d}"}, num_trials=1)
    driver.run()

    (trial,) = driver.study.trials()
    assert (trial.state, len(trial.curve)) == ("complete", 10)


def test_a_trial_that_dies_before_its_last_checkpoint_is_lost(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env={"fault": "dies-training"}, num_trials=1)
    driver.run()

    assert states(driver.study) == ["lost", "failed"]


def test_a_full_disk_ends_the_sweep_and_blames_no_config(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env={"fault": "full"}, num_trials=4, parallel=1)
    with pytest.raises(PufferError, match=f"cannot write to {tmp_path}: No space left on device"):
        driver.run()

    assert states(driver.study) == ["lost"]


def test_a_second_interrupt_leaves_no_trial_running(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, env={"pause": "0.05"}, num_trials=3, parallel=3)
    tell = driver.study.tell

    def interrupted(*arguments: Any) -> bool:  # while it records each of them
        os.kill(os.getpid(), signal.SIGINT)
        return tell(*arguments)

    def interrupt(event: Event) -> None:
        if len(driver.running) == 3:
            driver.study.tell = interrupted  # type: ignore[method-assign]
            raise KeyboardInterrupt

    driver.on_event = interrupt
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            driver.run()
    finally:
        signal.signal(signal.SIGINT, before)

    assert psutil.Process().children() == []
    assert set(states(driver.study)) == {"lost"}


def test_the_folder_of_a_run_may_vanish(tmp_path: Path) -> None:
    log = tmp_path / "run" / "metrics.jsonl"  # a run that fails before it trains removes it
    log.parent.mkdir()
    log.write_text('{"steps": 1}\n')
    reader = _LogReader(tmp_path)
    assert reader.read() == [{"steps": 1}]
    log.unlink()

    assert reader.read() == []
    assert reader.read() == []


def test_trials_are_limited_to_their_cores(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, threads=2)
    trial = driver.study.ask(None, tmp_path)
    assert trial is not None

    config = driver.trial_config(trial)

    assert (config.train.torch_threads, config.vec.num_workers) == (2, 2)
    assert config.train.run_dir == trial.folder
    assert config.train.dashboard == "off"


def test_a_searched_batch_drops_the_packaged_minibatch(tmp_path: Path) -> None:
    ranges = {"train.batch_size": check_range("train.batch_size", "pow2 1024 2048", "x")}
    study = create_study(None, "x", SearchSpace(ranges), SweepConfig(num_trials=1), tmp_path)
    driver = Driver(study, configs.load("breakout"), tmp_path)
    trial = study.ask(None, tmp_path)
    assert trial is not None

    ini = config_ini(driver.trial_config(trial))

    assert "batch_size" in ini
    assert "minibatch_size" not in ini


def test_the_best_config_is_an_ini_for_train(tmp_path: Path) -> None:
    driver = make_driver(tmp_path, num_trials=4)
    driver.run()
    report = make_report(driver.study)
    path = tmp_path / "best.ini"

    write_best(driver, report, path)
    config = configs.load("", (), [path], packaged=False)

    assert report.best is not None
    assert config.train.learning_rate == report.best.config["train.learning_rate"]
    assert config.train.run_dir == "runs"
    assert config.train.torch_threads is None
