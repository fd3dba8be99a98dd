"""A terminal that is closed ends a run as SIGTERM does; a reader that leaves ends nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE, wait_until

from pufferlib.runs import checkpoint

WORDS = [
    *("train", "cartpole", "--train.batch-size=256", "--train.n-epochs=1", "--vec.num-envs=8"),
    *("--policy.hidden-size=16", "--train.device=cpu", "--train.checkpoint-interval=0"),
]
PUFFER = [sys.executable, "-m", "pufferlib", *WORDS]
# a session of its own whose terminal is stdin, as a shell's window has it
IN_A_TERMINAL = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL);"  # nohup hands it down ignored
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def rows(folder: Path) -> list[int]:
    logs = list(folder.glob("runs/*/metrics.jsonl"))
    lines = logs[0].read_text().splitlines() if logs else []
    return [json.loads(line)["iteration"] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("dashboard", ["on", "auto"])
def test_a_run_goes_on_when_its_output_is_closed(dashboard: str, tmp_path: Path) -> None:
    words = [*PUFFER, "--train.num-iterations=40", f"--train.dashboard={dashboard}"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read().decode()
        assert process.wait(PATIENCE) == 0, err
    assert err == ""
    assert rows(tmp_path) == list(range(1, 41))
    (latest,) = tmp_path.glob("runs/*/latest.safetensors")
    assert checkpoint.load(latest).values["iteration"] == 40


@pytest.mark.slow
def test_a_run_whose_terminal_is_closed_is_saved(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    words = [sys.executable, "-c", IN_A_TERMINAL, *PUFFER, "--train.num-iterations=1000000"]
    process = subprocess.Popen(
        words, cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    os.set_blocking(master, False)

    def has_three_rows() -> bool:
        with contextlib.suppress(BlockingIOError):
            os.read(master, 1 << 16)  # a terminal that is not read would hold the run up
        return len(rows(tmp_path)) >= 3

    try:
        wait_until(has_three_rows, process)
        os.close(master)
        assert process.wait(PATIENCE) == 129  # 128 + SIGHUP
    finally:
        process.kill()
        process.wait()
    (latest,) = tmp_path.glob("runs/*/latest.safetensors")
    assert checkpoint.load(latest).values["iteration"] == rows(tmp_path)[-1]


def test_a_result_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pufferlib", "bench", "cartpole", "--seconds=0.1", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            text=True,
            timeout=PATIENCE,
        )
    assert done.returncode == 1
    assert done.stderr == "puffer: cannot write to stdout: No space left on device\n"
