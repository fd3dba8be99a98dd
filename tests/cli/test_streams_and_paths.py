"""Closed standard streams, NUL and `~` in paths, and run folders that lose their files."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY, only_run

from pufferlib.cli import main
from pufferlib.training.trainer import PuffeRL

PUFFER = f"{shlex.quote(sys.executable)} -m pufferlib"


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def iterations(log: Path) -> list[int]:
    return [json.loads(line)["iteration"] for line in log.read_text().splitlines()]


# ---- Streams -------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["--help", "envs", "envs cartpole", "train --help"])
def test_a_command_works_without_standard_streams(words: str, closed: str) -> None:
    done = subprocess.run(
        f"{PUFFER} {words} {closed}", shell=True, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr


def test_the_code_of_a_mistake_stays_without_standard_streams() -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        command = f"{PUFFER} train no_such_env {closed}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_run_is_saved_without_standard_streams(closed: str) -> None:
    tiny = shlex.join([word for word in TINY if "dashboard" not in word])
    for words in (
        f"train cartpole {tiny}",
        "eval cartpole --episodes=2",
        "check cartpole",
        "bench cartpole --seconds=0.1",
        "resume cartpole --train.total-timesteps=2000",
    ):
        command = f"{PUFFER} {words} {closed}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0, words
        assert "Traceback" not in done.stdout + done.stderr, words
    run = only_run()
    assert (run / "latest.safetensors").is_file()
    log = iterations(run / "metrics.jsonl")  # whole lines, and nothing else
    assert log == list(range(1, len(log) + 1))
    assert len(log) > 3


# ---- Paths ---------------------------------------------------------------------------------------


def test_a_nul_in_a_path_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.ini").write_bytes(b"[train]\nrun_dir = a\0b\n")
    for words in (
        ["train", "cartpole", *TINY, "--config=a.ini"],
        ["train", "cartpole", *TINY, "--train.run-dir=a\0b"],
        ["eval", "cartpole", "--checkpoint=a\0b"],
        ["eval", "cartpole", "--run-dir=a\0b"],
        ["resume", "a\0b"],
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "NUL" in error
        assert error.count("\n") == 1
    assert sorted(Path().iterdir()) == [Path("a.ini")]


def test_a_tilde_is_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / "a.ini").write_text("[train]\nrun_dir = ~/runs\n")
    assert main(["train", "cartpole", *TINY, "--train.run-dir=~/runs"]) == 0
    run = only_run(str(home / "runs"))
    shutil.move(run, home / "first")
    assert main(["train", "cartpole", *TINY, "--config=~/a.ini", "--svg=~/a.svg"]) == 0
    assert (home / "a.svg").is_file()
    only_run(str(home / "runs"))
    assert main(["eval", "cartpole", "--run-dir=~/runs", "--episodes=2"]) == 0
    assert main(["eval", "cartpole", "--checkpoint=~/first", "--episodes=2"]) == 0
    assert main(["resume", "~/first", "--train.num-iterations=4"]) == 0
    assert iterations(home / "first" / "metrics.jsonl") == [1, 2, 3, 4]
    assert not Path("~").exists()
    assert not Path("runs").exists()


# ---- Folders of runs -----------------------------------------------------------------------------


def test_a_run_without_checkpoints_starts_over_with_a_log_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "cartpole", *TINY]) == 0
    run = only_run()
    for number in (1, 2):
        for path in run.glob("*.safetensors"):
            path.unlink()
        before = (run / "metrics.jsonl").read_bytes()
        capsys.readouterr()
        assert main(["resume", str(run)]) == 0
        said = f"has no checkpoint, so training starts over; the log so far is metrics-{number}"
        assert said in capsys.readouterr().err
        assert (run / f"metrics-{number}.jsonl").read_bytes() == before
        assert iterations(run / "metrics.jsonl") == [1, 2, 3]


def test_a_run_with_a_checkpoint_goes_on_in_its_log() -> None:
    assert main(["train", "cartpole", *TINY]) == 0
    assert main(["resume", "cartpole", "--train.num-iterations=5"]) == 0
    assert iterations(only_run() / "metrics.jsonl") == [1, 2, 3, 4, 5]
    assert not list(only_run().glob("metrics-*"))


def test_a_folder_that_is_removed_while_training_comes_back_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = PuffeRL.train

    def train(trainer: PuffeRL) -> Any:
        if trainer.iteration == 1:
            shutil.rmtree(only_run())
        return usual(trainer)

    monkeypatch.setattr(PuffeRL, "train", train)
    with pytest.warns(RuntimeWarning, match="was removed, or its config"):
        assert main(["train", "cartpole", *TINY, "--train.checkpoint-interval=1"]) == 0
    run = only_run()
    assert (run / "latest.safetensors").is_file()
    assert iterations(run / "metrics.jsonl") == [2, 3]
    monkeypatch.setattr(PuffeRL, "train", usual)
    assert main(["resume", str(run), "--train.num-iterations=4"]) == 0
    assert iterations(run / "metrics.jsonl") == [2, 3, 4]
