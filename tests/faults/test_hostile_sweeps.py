"""Sweep folders and databases of strangers: nothing that they name is run, printed or written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged_sweeps import cases

from pufferlib import config as configs
from pufferlib.cli import main
from pufferlib.config import SweepConfig, check_range
from pufferlib.sweep import SearchSpace, create_study, executors, plots
from pufferlib.sweep.executors import Job, Progress

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")

RATES = {"train.learning_rate": "log_uniform 1e-5 1e-1"}
TINY = {"train": {"total_timesteps": 8192, "batch_size": 4096, "dashboard": "off"}}
COMMAND = {"args": "touch RUN", "shell": True}


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make_sweep(
    folder: Path, about: dict[str, Any], storage: str | None = None, trials: int = 1
) -> None:
    """Write a sweep of bandit with one complete trial; `about` changes what is kept with it."""
    ranges = {key: check_range(key, text, key) for key, text in RATES.items()}
    options = SweepConfig(method="random", num_trials=trials, parallel=1)
    config = configs.load("bandit").to_dict()
    kept = {"name": "bandit", "config": {**config, **TINY}, "chosen": sorted(TINY["train"])}
    study = create_study(storage, "s", SearchSpace(ranges), options, folder, {**kept, **about})
    trial = study.ask()
    assert trial is not None
    study.tell(trial, "complete", np.array([[0.5, 1.0, 2.0], [1.0, 2.0, 3.0]]))


def forged(name: str, env: dict[str, Any]) -> dict[str, Any]:
    return {**configs.load("bandit").to_dict(), **TINY, "name": name, "env": env}


FORGED = {
    "config.name": {"config": forged("subprocess:check_output", COMMAND)},
    "both names": {
        "name": "subprocess:check_output",
        "config": forged("subprocess:check_output", COMMAND),
    },
    "gym-module": {"config": forged("gym-antigravity:CartPole-v1", {})},
    "nested": {"config": forged("bandit", {"config": {"other_vehicles_type": "os.system"}})},
    "two lines": {"config": forged("bandit", {"arms": "4\n[log]\nlogger = wandb"})},
    "comment": {"config": forged("bandit", {"arms": "4 ; and more"})},
}


@pytest.mark.parametrize("storage", [None, "sqlite:///shared.db"], ids=["journal", "database"])
@pytest.mark.parametrize("command", ["--resume", "--report"])
@pytest.mark.parametrize("about", FORGED.values(), ids=FORGED)
def test_only_what_the_user_typed_names_code(
    about: dict[str, Any], command: str, storage: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    make_sweep(Path("s"), about, storage, trials=2)
    words = ["sweep", "bandit", command, "--folder", "s"]
    words += ["--sweep.storage", storage] if storage else []

    assert main(words) == 2

    output = capfd.readouterr()
    assert len(output.err.splitlines()) == 1
    assert "subprocess" not in output.out
    assert not Path("RUN").exists()
    assert not Path("s/best.ini").exists()
    assert not Path("s/trials").exists() or not list(Path("s/trials").glob("*/*/metrics.jsonl"))


@pytest.mark.slow
def test_a_trial_imports_no_module_of_the_working_folder() -> None:
    make_sweep(Path(), {}, trials=2)
    spoilt = "import os\nos.close(os.open({!r}, os.O_CREAT | os.O_WRONLY))\n"
    for name in ("numpy", "optuna", "torch", "runpy", "cloudpickle", "gymnasium", "rich"):
        Path(f"{name}.py").write_text(spoilt.format(str(Path("RUN").absolute())))
    command = [sys.executable, "-m", "pufferlib", "sweep", "bandit", "--resume", "--folder", "."]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert "[2] trial 1 complete" in done.stdout, done.stdout + done.stderr
    assert not Path("RUN").exists()


def test_resume_imports_no_module_that_only_a_file_names(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evil.py").write_text("open('RUN', 'w')\n")
    monkeypatch.syspath_prepend(os.getcwd())  # as if it were installed
    train = ["train", "bandit", "--train.num-iterations", "1", "--train.dashboard", "off"]
    assert main([*train, "--train.batch-size", "4096", "--vec.num-envs", "64"]) == 0
    (run,) = Path("runs").iterdir()
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"bandit"', '"gym-evil:CartPole-v1"'))
    capfd.readouterr()

    assert main(["resume", str(run), "--train.num-iterations", "2"]) == 2

    assert "modules are only imported if you type them" in capfd.readouterr().err
    assert not Path("RUN").exists()


@pytest.mark.parametrize("place", ["report.png", "best.ini"])
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_report_writes_through_no_link(
    place: str, link: Callable[[Path, Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    make_sweep(Path("s"), {})
    Path("precious").write_text("precious")
    link(Path("precious").absolute(), Path("s") / place)

    assert main(["sweep", "bandit", "--report", "--folder", "s"]) == 0

    assert Path("precious").read_text() == "precious"
    assert not Path("s", place).is_symlink()
    assert Path("s", place).stat().st_size > 8


def test_a_command_to_copy_is_quoted(capfd: pytest.CaptureFixture[str]) -> None:
    make_sweep(Path("a; touch RUN"), {})
    assert main(["sweep", "bandit", "--report", "--folder", "a; touch RUN"]) == 0
    command = "best config: puffer train bandit --config 'a; touch RUN/best.ini'"
    assert command in capfd.readouterr().out


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv"
)
@pytest.mark.slow
@pytest.mark.parametrize("command", ["--report", "--resume"])
def test_a_folder_of_another_user_is_one_line(command: str) -> None:
    make_sweep(Path("s"), {}, trials=2)
    for path in (Path("s"), Path("s/study.journal")):
        os.chown(path, 12345, 12345)
    may_not = "-dac_override,-dac_read_search,-fowner,-chown,-setuid"  # root may write anywhere
    words = ["setpriv", "--inh-caps", may_not, "--bounding-set", may_not, sys.executable, "-m"]
    words += ["pufferlib", "sweep", "bandit", command, "--folder", "s"]

    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Permission denied" in done.stderr


# ---- 200 and more of them ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep whose budget is spent, in a journal and in a database."""
    folder = tmp_path_factory.mktemp("good")
    make_sweep(folder / "s", {})
    make_sweep(folder / "d", {}, f"sqlite:///{folder / 's.db'}")
    (folder / "outside").mkdir()
    (folder / "outside/precious").write_text("precious")
    (folder / "evil.py").write_text("open('RUN', 'w')\n")
    return folder


def snapshot(folder: Path) -> dict[str, object]:
    """Return what lies in a folder, but for the sweep's own."""
    paths = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != "s"]
    return {
        str(path): path.read_bytes() if path.is_file() else path.lstat().st_mode
        for path in paths
        if not path.name.startswith("s.db")
    }


class QuickTrial:
    """A trial that is over at once: damage may have cost the sweep its only one."""

    def __init__(self, jobs: list[Job], job: Job) -> None:
        jobs.append(job)

    def poll(self) -> Progress:
        record = {"steps": 9, "total_steps": 9, "uptime": 1.0, "mean_reward": 1.0, "perf": 1.0}
        return Progress([record], 0)

    def stop(self) -> None: ...

    def kill(self) -> None: ...


CASES = list(cases())
SAMPLE = max(1, len(CASES) // 40)  # every so many of them are quick enough to be run always


@pytest.mark.parametrize(
    ("label", "forge", "is_quick"),
    [
        pytest.param(
            *(label, forge, number % SAMPLE == 0),
            id=label,
            marks=[pytest.mark.slow] if number % SAMPLE else [],
        )
        for number, (label, forge) in enumerate(CASES)
    ],
)
def test_a_forged_sweep_runs_nothing_and_writes_nowhere_else(
    label: str,
    forge: Callable[[], None],
    is_quick: bool,
    good_sweep: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(good_sweep, tmp_path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(str(tmp_path))  # as if evil.py were installed
    jobs: list[Job] = []
    monkeypatch.setattr(executors, "LocalProcess", lambda job, program: QuickTrial(jobs, job))
    if is_quick:  # a picture takes a second
        monkeypatch.setattr(plots, "_drawn", lambda *arguments: b"a picture")
    forge()
    before = snapshot(tmp_path)
    words = ["--folder", "s"]
    if label.startswith("database"):
        words += ["--sweep.storage", "sqlite:///s.db"]
    for command in ("--report", "--resume"):
        code = main(["sweep", "bandit", command, *words])

        output = capfd.readouterr()
        assert code in (0, 1, 2)
        assert len(output.err.splitlines()) <= 3, output.err
        assert "Traceback" not in output.err
        assert code != 2 or output.err.startswith("puffer: ")
        assert not {"subprocess", "evil", "\x1b"} & {*output.out.replace(":", " ").split()}
        assert snapshot(tmp_path) == before
    for job in jobs:
        assert job.name == "bandit"
        assert Path(job.folder).parent == Path("s/trials")
        assert "[log]" not in job.ini
        assert f"run_dir = {job.folder}\n" in job.ini
