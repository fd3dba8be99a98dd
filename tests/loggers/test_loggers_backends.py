"""W&B, TensorBoard and Neptune as installed: their files hold what was logged."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pufferlib.errors import UsageError
from pufferlib.loggers import TensorboardLogger

ROWS = {10: {"sps": 1.5, "env/score": 2.0}, 20: {"sps": 2.5, "env/score": math.nan}}


def run(script: str, folder: Path, **variables: str) -> str:
    """Run a script in a folder of its own, without any account; return stderr.

    What a backend needs for its end on a busy machine is not what these tests are about.
    """
    script = f"from pufferlib.loggers import BackgroundLogger as B; B.patience = 60\n{script}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    home = {"HOME": str(folder), "NETRC": str(folder / "netrc"), "WANDB_ERROR_REPORTING": "false"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**clean, **home, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""  # the terminal belongs to the dashboard
    return done.stderr


# ---- TensorBoard ---------------------------------------------------------------------------------


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(row.step, row.value) for row in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with TensorboardLogger(tmp_path / "runs" / "one") as logger:
        for step, metrics in ROWS.items():
            logger.log(metrics, step)

    found = scalars(tmp_path / "runs" / "one")
    assert found["sps"] == [(10, 1.5), (20, 2.5)]
    assert found["env/score"][0] == (10, 2.0)
    assert math.isnan(found["env/score"][1][1])
    assert logger.url == str(tmp_path / "runs" / "one")


def test_tensorboard_shows_a_resumed_run_as_one_curve(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for steps, value in ([1, 2, 3, 4], 0.0), ([3, 4, 5], 1.0):  # resumed after step 2
        with TensorboardLogger(tmp_path) as logger:
            for step in steps:
                logger.log({"sps": value}, step)

    assert len(list(tmp_path.iterdir())) == 2
    assert scalars(tmp_path)["sps"] == [(1, 0.0), (2, 0.0), (3, 1.0), (4, 1.0), (5, 1.0)]


def test_a_tensorboard_logger_without_entries_leaves_no_file(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    TensorboardLogger(tmp_path).close()

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"`dir` must be a folder that can be written, but got '"):
        TensorboardLogger(tmp_path / "file" / "tb")


# ---- Neptune -------------------------------------------------------------------------------------


def series(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Read the numbers of the only run out of the client's own files."""
    found: dict[str, list[tuple[float, float]]] = {}
    (path,) = folder.glob(".neptune/offline/*/data-1.log")
    for line in path.read_text().splitlines():
        operation = json.loads(line)["obj"]
        if operation["type"] == "LogFloats":
            rows = [(row["step"], row["value"]) for row in operation["values"]]
            found.setdefault("/".join(operation["path"]), []).extend(rows)
    return found


# ---- W&B -----------------------------------------------------------------------------------------


def wandb_records(folder: Path) -> list[Any]:
    """Read the only run that W&B has kept: 7 bytes, then blocks of 32 KiB as in LevelDB's log."""
    messages = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data = path.read_bytes()
    assert data.startswith(b":W&B")
    records, whole, at = [], b"", 7
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:  # too little for a header: the rest of the block is empty
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            records.append(messages.Record.FromString(whole))
            whole = b""
    return records


def wandb_rows(folder: Path) -> dict[int, dict[str, float]]:
    rows = {}
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            names = {
                item.nested_key[0]: json.loads(item.value_json) for item in record.history.item
            }
            step = names["_step"]
            rows[step] = {k: v for k, v in names.items() if not k.startswith("_")}
    return rows


def test_wandb_keeps_entries_name_and_config_without_a_login(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    script = f"""
from math import nan
from pufferlib.loggers import WandbLogger
with WandbLogger("project", entity="team", name="first", config={{"gamma": 0.9}}) as logger:
    for step, metrics in {ROWS!r}.items():
        logger.log(metrics, step)
"""
    stderr = run(script, tmp_path)
    rows = wandb_rows(tmp_path)
    (about,) = (r.run for r in wandb_records(tmp_path) if r.WhichOneof("record_type") == "run")

    assert rows[10] == ROWS[10]
    assert rows[20]["sps"] == 2.5
    assert math.isnan(rows[20]["env/score"])
    assert (about.project, about.entity, about.display_name) == ("project", "team", "first")
    assert {item.key: item.value_json for item in about.config.update}["gamma"] == "0.9"
    assert stderr.count("WandbLogger is not logged in: the run is kept on disk. `wandb sync ") == 1
    assert stderr.count("\n") == 2  # that warning and the line of code that it points to


def test_wandb_log_of_the_user_adds_to_the_run_of_the_logger(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    script = """
import wandb
from pufferlib.loggers import WandbLogger
with WandbLogger("project", name="ours") as logger:
    logger.log({"loss": 1.0}, 10)
    assert wandb.run is logger.run
    wandb.log({"mine": 2.0})
    logger.log({"loss": 3.0}, 20)
assert wandb.run is None
"""
    assert run(script, tmp_path, WANDB_MODE="offline") == ""
    rows = wandb_rows(tmp_path)
    assert [row["loss"] for row in rows.values() if "loss" in row] == [1.0, 3.0]
    assert [row["mine"] for row in rows.values() if "mine" in row] == [2.0]


def test_an_open_run_of_the_user_stays_current(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    script = """
import wandb
from pufferlib.loggers import WandbLogger
mine = wandb.init(project="project", name="mine", settings=wandb.Settings(silent=True))
with WandbLogger("project", name="ours") as logger:
    logger.log({"loss": 1.0}, 10)
    assert logger.run is not None and wandb.run is mine
assert wandb.run is mine
mine.finish()
"""
    run(script, tmp_path, WANDB_MODE="offline")
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2


def test_wandb_does_not_warn_if_offline_was_requested(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    script = """
from pufferlib.loggers import WandbLogger
first = WandbLogger("project", name="a", id="0123456789abcdef")
second = WandbLogger("project", name="b")
for step in range(3):
    first.log({"sps": 1.0}, step)
    second.log({"sps": 2.0}, step)
first.close()
second.close()
assert first.run.id == "0123456789abcdef" != second.run.id  # two loggers are two runs
assert first.url != second.url
"""
    assert run(script, tmp_path, WANDB_MODE="offline") == ""
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2


# ---- All at once ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_training_run_feeds_all_loggers_at_once(tmp_path: Path) -> None:
    for package in ("wandb", "neptune", "tensorboard"):
        pytest.importorskip(package)
    script = """
import os
import pufferlib
neptune = pufferlib.NeptuneLogger("team/project", name="first", api_token="none")
loggers = [
    pufferlib.JsonlLogger("log.jsonl"),
    pufferlib.TensorboardLogger("tb"),
    pufferlib.WandbLogger("project"),
    neptune,
]
with pufferlib.make("squared", num_envs=8, num_workers=1) as env:
    settings = {"batch_size": 64, "n_epochs": 1, "num_iterations": 3, "dashboard": "off"}
    with pufferlib.PuffeRL(env, logger=loggers, device="cpu", **settings) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            trainer.mean_and_log()
assert neptune.url == ".neptune/offline"
assert neptune.run is not None

os.environ["NEPTUNE_MODE"] = "debug"  # as for a server of one's own: it is not closed
pufferlib.NeptuneLogger("team/project").close()
"""
    stderr = run(script, tmp_path, WANDB_MODE="offline", OMP_NUM_THREADS="1")
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    expected = [(row["step"], row["policy_loss"]) for row in lines]
    nowhere = [name for name, value in lines[0].items() if value is None]

    assert [step for step, _ in expected] == [64, 128, 192]
    in_float32 = [(step, pytest.approx(loss, rel=1e-6)) for step, loss in expected]
    assert scalars(tmp_path / "tb")["policy_loss"] == in_float32
    assert [(step, row["policy_loss"]) for step, row in wandb_rows(tmp_path).items()] == expected
    assert series(tmp_path)["policy_loss"] == expected
    assert "mean_reward" in nowhere  # NaN: no episode has ended yet
    assert all(step > 64 for name in nowhere for step, _ in series(tmp_path).get(name, []))
    assert stderr.count("hosted service closed in March 2026") == 1
    assert stderr.count("\n") == 1


def test_a_full_disk_of_tensorboard_warns_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    script = """
import resource, signal, time
from pufferlib.loggers import SafeLogger, TensorboardLogger
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
logger = SafeLogger([TensorboardLogger("tb")])
for step in range(50):
    logger.log({"sps": 1.0}, step)
    time.sleep(0.002)
logger.close()
"""
    pytest.importorskip("resource")
    stderr = run(script, tmp_path)
    steps = [step for step, _ in scalars(tmp_path / "tb")["sps"]]

    assert steps == list(range(len(steps)))  # whole records up to the limit
    assert 0 < len(steps) < 50
    assert stderr.count("RuntimeWarning: TensorboardLogger failed ") == 1
