"""R17: a process of a torchrun dies. All end soon, or go on from the last checkpoint."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from faulty import wait_for_end
from signalled_run import signalled
from waiting import PATIENCE, is_within, wait_until


def started(
    tmp_path: Path, *words: str, restarts: int = 0, puffer: Sequence[str] = ("-m", "pufferlib")
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    run = [*puffer, "train", "cartpole", f"--train.run-dir={tmp_path / 'runs'}"]
    sizes = ["--vec.num-envs=8", "--vec.num-workers=1", "--train.batch-size=512"]
    sizes += ["--train.minibatch-size=none", "--train.num-steps=none"]
    return subprocess.Popen(
        [*command, f"--max-restarts={restarts}", *run, *sizes, *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def trainers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "train" in child.cmdline()
    ]


def rows(tmp_path: Path) -> list[dict[str, float]]:
    logs = list(tmp_path.glob("runs/*/metrics.jsonl"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def wait_for(tmp_path: Path, iteration: int) -> None:
    wait_until(lambda: any(row["iteration"] >= iteration for row in rows(tmp_path)))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_all_processes_end_soon_after_one_is_killed(tmp_path: Path, victim: int) -> None:
    process = started(tmp_path, "--train.num-iterations=1000000")
    try:
        wait_for(tmp_path, 5)
        children = trainers(process)
        assert len(children) == 2
        killed = time.monotonic()
        os.kill(children[victim].pid, signal.SIGKILL)
        assert process.wait(PATIENCE) != 0
        assert is_within(time.monotonic() - killed, 30)
        assert not [
            child for child in children if child.is_running() and child.status() != "zombie"
        ]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_a_restart_resumes_from_the_last_checkpoint(tmp_path: Path) -> None:
    words = ["--train.num-iterations=60", "--train.checkpoint-interval=10"]
    puffer = signalled(signal.SIGKILL, iteration=25, once=tmp_path / "killed")
    # gloo may fail to connect on a busy machine
    process = started(tmp_path, *words, restarts=3, puffer=puffer)
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, output[-3000:]
    assert len(list(tmp_path.glob("runs/*"))) == 1  # the same folder
    iterations = [int(row["iteration"]) for row in rows(tmp_path)]
    assert iterations[-1] == 60
    back = [now for before, now in itertools.pairwise(iterations) if now != before + 1]
    assert back == [21]  # after the checkpoint before


@pytest.mark.slow
def test_no_process_outlives_a_torchrun_that_is_killed(tmp_path: Path) -> None:
    process = started(tmp_path, "--train.num-iterations=1000000")
    try:
        wait_for(tmp_path, 5)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.kill()
        assert not wait_for_end({child.pid for child in children}, 3)
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.communicate()


@pytest.mark.slow
def test_a_rank_that_is_stopped_is_named(tmp_path: Path) -> None:
    process = started(tmp_path, "--train.num-iterations=1000000", "--train.timeout=5")
    try:
        wait_for(tmp_path, 5)
        first, second = trainers(process)
        second.suspend()
        stopped = time.monotonic()
        assert not wait_for_end({first.pid}, 300)
        assert is_within(time.monotonic() - stopped, 30)
        second.resume()
        output, _ = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode != 0
    line = f"puffer: no answer within 5 s (`--train.timeout`) from rank 1 (pid {second.pid} on "
    assert output.count(line) >= 1, output


BUSY = """
import os, sys, time
import torch
from pufferlib.distributed.world import join_world
world = join_world("cpu", timeout=2.0)
for _ in range(2):
    if world.rank == 1:
        time.sleep(6.0)  # a long step of an env
    for size in (1, 1 << 23):  # through shared memory, and through gloo
        assert world.sum_(torch.ones(size)).max() == 2
"""


@pytest.mark.slow
def test_a_rank_that_is_busy_for_longer_than_the_timeout_is_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run([*command, script], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "the other ranks have waited 2 s for rank 1 (pid " in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, True),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, False),  # once is enough
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, False),
    ],
)
def test_srun_without_torchrun_is_one_warning(
    tmp_path: Path, variables: dict[str, str], says: bool
) -> None:
    words = ["--train.num-iterations=1", "--train.batch-size=512", f"--train.run-dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "pufferlib", "train", "cartpole", "--vec.num-envs=8", *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("SLURM has 4 tasks, and this one has no rank") == says


LEAVES = """
import os, sys
from pufferlib.distributed import world as distributed
if os.environ["RANK"] == "1":
    sys.exit(0)  # torchrun takes that for a success, and waits for the other
distributed._JOIN_SECONDS = 2.0
distributed.join_world("cpu")
"""


@pytest.mark.slow
def test_a_rank_that_never_joins_is_named(tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(LEAVES)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=2",
            script,
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode != 0
    assert "all 2 ranks must join within 2 s, but 1 did not." in done.stderr
