"""Runs that are killed, disks that are full, folders that cannot be written: nothing is lost."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from signalled_run import signalled
from waiting import PATIENCE

from pufferlib.cli import main
from pufferlib.errors import CheckpointError
from pufferlib.runs import checkpoint

TINY = [
    *("--train.batch-size=256", "--train.num-steps=8", "--train.n-epochs=1", "--vec.num-envs=8"),
    *("--policy.hidden-size=16", "--train.device=cpu", "--train.minibatch-size=none"),
    *("--train.checkpoint-interval=3", "--train.num-iterations=40"),
]
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ---- Kills ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_saves_always_leave_a_sound_checkpoint() -> None:
    script = Path(__file__).with_name("kill_saves.py")
    command = [sys.executable, str(script), "--kills", "20", "--every-line"]
    if os.access("/dev/shm", os.W_OK):  # a kill is no power cut: what is synced does not matter
        command += ["--folder", "/dev/shm"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=300)
    assert done.returncode == 0, done.stderr
    lines, random = (
        [int(number) for number in re.findall(r"\d+", line)] for line in done.stdout.splitlines()
    )
    assert lines[0] > 50, "a save has more lines than that"
    assert random[0] == 20
    assert lines[1] > 0, "some kills must come in the middle of a file"
    assert lines[3] == random[3] == 0


def learnt(folder: Path) -> list[dict[str, Any]]:
    """Return what the log says of each iteration, but for times; later rows count."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("time/", "system/", "sps", "uptime", "eta", "total_steps")
    last = {row["iteration"]: row for row in rows}
    return [
        {key: value for key, value in last[iteration].items() if not key.startswith(timed)}
        for iteration in sorted(last)
    ]


def assert_same_end(one: Path, other: Path) -> None:
    left, right = (checkpoint.load(folder / "latest.safetensors") for folder in (one, other))
    assert left.tensors.keys() == right.tensors.keys()
    for name, part in left.tensors.items():
        assert torch.equal(part, right.tensors[name]), name
    for values in (left.values, right.values):
        values.pop("uptime")
        values["train"].pop("run_dir")
    assert left.values == right.values
    assert learnt(one) == learnt(other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "code", "name", "words"),
    [
        (signal.SIGKILL, -9, "cartpole", ["--vec.num-workers=2", "--train.norm-obs"]),
        (signal.SIGTERM, 143, "memory", ["--policy.recurrent=lstm", "--train.norm-reward"]),
    ],
)
def test_a_stopped_run_that_is_resumed_ends_as_if_nothing_had_happened(
    signum: int, code: int, name: str, words: list[str]
) -> None:
    puffer = [sys.executable, *signalled(signum, iteration=8, once=Path("signalled"))]
    run = [*puffer, "train", name, *TINY, *words, "--train.run-dir=stopped"]
    done = subprocess.run(run, capture_output=True, text=True, env=ENV, timeout=PATIENCE)
    assert done.returncode == code, done.stderr
    (stopped,) = Path("stopped").iterdir()
    before = checkpoint.load(stopped / "latest.safetensors").values["iteration"]
    assert before == (6 if signum == signal.SIGKILL else 8)
    assert main(["resume", str(stopped)]) == 0
    assert main(["train", name, *TINY, *words]) == 0
    (uninterrupted,) = Path("runs").iterdir()
    assert_same_end(uninterrupted, stopped)


def test_a_run_killed_before_its_first_checkpoint_begins_again() -> None:
    assert main(["train", "squared", *TINY, "--train.num-iterations=4"]) == 0
    (run,) = Path("runs").iterdir()
    once = checkpoint.load(run / "latest.safetensors")
    for path in run.glob("*.safetensors"):
        path.unlink()
    assert main(["resume", "squared"]) == 0
    again = checkpoint.load(run / "latest.safetensors")
    assert all(torch.equal(part, again.tensors[name]) for name, part in once.tensors.items())


# ---- Weights that are not finite -----------------------------------------------------------------


@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_weights_that_are_not_finite_are_not_saved(
    on_nan: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # with `adam_eps` 0 a weight whose gradient was always 0 moves by 0 / 0 in the first update
    words = [*TINY, "--train.adam-eps=0", f"--train.on-nan={on_nan}", "--train.num-iterations=1"]
    assert main(["train", "cartpole", *words, "--train.minibatch-size=256"]) == 2
    (run,) = Path("runs").iterdir()
    assert not list(run.glob("*.safetensors"))
    err = capsys.readouterr().err
    assert re.search(r"^puffer: `policy/[\w.]+` must be finite to be saved, but is not", err, re.M)


def spoiled(path: Path, name: str, value: float) -> None:
    """Write the checkpoint again with one tensor of nothing but `value`."""
    saved = checkpoint.load(path)
    tensors = {**saved.tensors, name: torch.full_like(saved.tensors[name], value)}
    path.unlink()  # `latest` and `best` may be names of the same file
    checkpoint.save(path, tensors, saved.values, saved.metadata)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy/layers.0.weight", math.nan),
        ("optimizer/0/exp_avg", math.inf),
        ("optimizer/0/exp_avg_sq", -1.0),
        ("observation_norm/moments.0.mean", math.nan),
        ("observation_norm/moments.0.count", -1.0),
        ("reward_norm/moments.var", -1.0),
    ],
)
def test_a_run_resumes_from_the_newest_finite_checkpoint(
    name: str, value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, "--train.norm-obs", "--train.norm-reward", "--train.num-iterations=6"]
    assert main(["train", "cartpole", *words]) == 0
    (run,) = Path("runs").iterdir()
    whole = checkpoint.load(run / "latest.safetensors")
    for file in ("latest", "iteration-000006"):
        spoiled(run / f"{file}.safetensors", name, value)
    capsys.readouterr()
    assert main(["resume", str(run), "--train.num-iterations=7"]) == 0
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert "must be" in first
    assert first.endswith("; trying iteration-000006.safetensors")
    assert second.endswith("; trying iteration-000003.safetensors")
    assert [row["iteration"] for row in learnt(run)] == list(range(1, 8))
    again = checkpoint.load(run / "latest.safetensors")
    assert again.values["iteration"] == 7
    assert again.values["steps"] == whole.values["steps"] + 256


def test_the_best_checkpoint_is_the_last_resort(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "--train.num-iterations=6", "--train.keep-checkpoints=0", "--env.max-steps=9"]
    assert main(["train", "cartpole", *words]) == 0
    (run,) = Path("runs").iterdir()
    (run / "latest.safetensors").write_bytes(b"not a checkpoint")
    assert main(["resume", str(run)]) in (0, 2)  # over, if the last was the best
    assert "; trying best.safetensors" in capsys.readouterr().err


# ---- Disks ---------------------------------------------------------------------------------------


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_run_on_a_full_disk_continues_with_a_warning_and_keeps_its_checkpoints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*TINY, "--policy.hidden-size=64", "--train.num-iterations=3"]
    assert main(["train", "cartpole", *words]) == 0
    (run,) = Path("runs").iterdir()
    size = (run / "latest.safetensors").stat().st_size
    capsys.readouterr()
    with file_limit(size // 2), pytest.warns(RuntimeWarning, match="The run continues") as warned:
        # two saves on the way fail with a warning, the last one is the end
        assert main(["resume", str(run), "--train.num-iterations=11"]) == 2
    assert len(warned) == 2
    err = capsys.readouterr().err
    assert re.fullmatch(r"puffer: cannot write .*: File too large\n", err)
    assert [row["iteration"] for row in learnt(run)] == list(range(1, 12))
    assert not list(run.glob(".*"))
    assert checkpoint.load(run / "latest.safetensors").values["iteration"] == 3
    assert main(["resume", str(run)]) == 0
    assert checkpoint.load(run / "latest.safetensors").values["iteration"] == 11


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(disk)]
    try:
        mounted = subprocess.run(options, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small disk is not allowed here; the test before stands for it")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_disk_that_fills_up_keeps_the_last_checkpoint(small_disk: Path) -> None:
    path = small_disk / "a"
    checkpoint.save(path, {"x": torch.ones(20_000)}, {"iteration": 1})
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        checkpoint.save(path, {"x": torch.zeros(50_000)}, {"iteration": 2})
    assert "\n" not in str(caught.value)
    assert [entry.name for entry in small_disk.iterdir()] == ["a"]
    assert checkpoint.load(path).values == {"iteration": 1}


def test_a_disk_that_is_read_only_keeps_the_last_checkpoint(small_disk: Path) -> None:
    path = small_disk / "a"
    checkpoint.save(path, {"x": torch.ones(3)}, {"iteration": 1})
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    if subprocess.run(remount, capture_output=True, check=False).returncode:
        pytest.skip("remounting is not allowed here")
    with pytest.raises(CheckpointError, match=r"cannot write .*Read-only file system"):
        checkpoint.save(path, {"x": torch.zeros(3)}, {"iteration": 2})
    assert checkpoint.load(path).values == {"iteration": 1}


def test_an_unwritable_folder_is_refused_before_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "cartpole", *TINY, "--train.run-dir=/proc/runs"]) == 2
    err = capsys.readouterr().err
    assert "`--train.run-dir` must be a folder that can be written" in err
    assert err.count("\n") == 1
    with pytest.raises(CheckpointError, match="cannot write /proc/a"):
        checkpoint.save("/proc/a", {}, {})
