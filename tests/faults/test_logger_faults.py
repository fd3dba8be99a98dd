"""What happens to runs and to their logs: a killed process, a server that never answers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import PATIENCE, wait_until


def start(script: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    home = {"HOME": str(folder), "NETRC": str(folder / "netrc"), "WANDB_ERROR_REPORTING": "false"}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**clean, **home, "OMP_NUM_THREADS": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def steps_of_jsonl(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def steps_of_tensorboard(folder: Path) -> list[int]:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    return [row.step for row in events.Scalars("sps")]


@pytest.mark.slow
def test_logs_of_a_run_that_is_killed_can_be_read_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    for package in ("wandb", "tensorboard"):
        pytest.importorskip(package)
    script = """
import pufferlib
loggers = [
    pufferlib.JsonlLogger("log.jsonl"),
    pufferlib.TensorboardLogger("tb"),
    pufferlib.WandbLogger("project"),
]
with pufferlib.make("squared", num_envs=8, num_workers=1) as env:
    settings = {"batch_size": 64, "n_epochs": 1, "num_iterations": 10**6, "dashboard": "off"}
    with pufferlib.PuffeRL(env, logger=loggers, device="cpu", **settings) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            trainer.mean_and_log()
"""
    log = tmp_path / "log.jsonl"
    process = start(script, tmp_path, WANDB_MODE="offline")
    try:
        wait_until(lambda: log.exists() and log.read_bytes().count(b"\n") >= 50, process)
        wait_until(lambda: any(tmp_path.glob("wandb/offline-run-*/*.wandb")), process)
        wait_until(lambda: sum(f.stat().st_size for f in tmp_path.glob("tb/*")) > 5000, process)
        helpers = psutil.Process(process.pid).children(recursive=True)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    steps = steps_of_jsonl(log)

    assert process.returncode == -signal.SIGKILL
    assert steps == [64 * (i + 1) for i in range(len(steps))]  # all of them, and all whole
    seen = steps_of_tensorboard(tmp_path / "tb")
    assert seen
    assert seen == steps[: len(seen)]  # only rows that waited for the thread can be missing
    assert helpers  # W&B works in a process of its own
    _, left = psutil.wait_procs(helpers, timeout=60)
    assert left == []


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that takes connections and never says a word: worse than none."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
def test_a_server_that_never_answers_costs_no_time_and_no_row(
    tmp_path: Path, silent_server: str
) -> None:
    pytest.importorskip("wandb")
    script = """
import time
from pufferlib.loggers import BackgroundLogger, JsonlLogger, SafeLogger, WandbLogger
BackgroundLogger.patience = 120  # a busy machine takes its time to open the run offline
logger = SafeLogger([JsonlLogger("log.jsonl"), WandbLogger("project")])
slowest = 0.0
for step in range(300):
    start = time.perf_counter()
    logger.log({f"metric/{i}": 1.0 for i in range(40)}, step)
    slowest = max(slowest, time.perf_counter() - start)
    time.sleep(0.005)
logger.close()
print(slowest)
"""
    process = start(
        script,
        tmp_path,
        WANDB_BASE_URL=silent_server,
        WANDB_API_KEY="0" * 40,
        WANDB_INIT_TIMEOUT="10",
    )
    output, reported = process.communicate(timeout=PATIENCE)

    assert process.returncode == 0
    assert float(output) < 9  # the server alone holds up whoever waits for it for 10 s
    assert steps_of_jsonl(tmp_path / "log.jsonl") == list(range(300))
    assert reported.count("WandbLogger cannot reach the server") == 1
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert f"`wandb sync {kept.parent}` uploads it" in reported
    assert kept.stat().st_size > 300 * 40  # every number takes more than a byte
