"""Names and values from files and arguments: a message is one short printable line (R6, R10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import pufferlib
from pufferlib import PuffeRL
from pufferlib.cli import main
from pufferlib.errors import CheckpointError
from pufferlib.runs import checkpoint

HOSTILE = "x\n\x1b[2Jpuffer: all is well\r\x07\u202e" + "y" * 100_000
TINY = [
    *("--train.batch-size=64", "--train.num-iterations=1", "--train.n-epochs=1"),
    *("--vec.num-envs=4", "--vec.num-workers=1", "--policy.hidden-size=8", "--train.device=cpu"),
    "--train.dashboard=off",
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def assert_harmless(text: str) -> None:
    assert text.isprintable(), f"{text[:500]!r}"
    assert 0 < len(text) < 1000


def refuse(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Give a command that must be refused in one harmless line; return the line."""
    capsys.readouterr()
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\n")
    assert_harmless(err[:-1])
    return err


# ---- Inis and arguments --------------------------------------------------------------------------

ONE_LINE = HOSTILE.replace("\n", "").replace("\r", "")  # an ini would end its line there


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"[{ONE_LINE}]", "Unknown section"),
        (f"[train]\n{ONE_LINE} = 1", "Unknown key of [train]"),
        (f"[train]\ngamma = {ONE_LINE}", "must be a number"),
        (f"[train]\noptimizer = {ONE_LINE}", "must be one of adam, muon"),
        (f"[train]\n{ONE_LINE}", "must be `[section]` or `key = value`"),
        (f"[env]\n{ONE_LINE} = 1\n{ONE_LINE} = 1", "must not set"),
        (f"[env]\n{ONE_LINE} = 1", "Unknown param of `cartpole`"),
        (f"[env]\ngravity = {ONE_LINE}", "`gravity` of `cartpole` must be a number"),
        (f"[log]\nlogger = {ONE_LINE}", "Unknown logger"),
    ],
)
def test_an_ini_cannot_write_to_the_terminal(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.ini").write_text(text)
    assert message in refuse(["train", "cartpole", *TINY, "--config", "a.ini"], capsys)
    hostile = Path("a\n\x1b[2J.ini")  # its own name may be as bad as what is in it
    hostile.write_text(text)
    refuse(["train", "cartpole", *TINY, "--config", str(hostile)], capsys)


@pytest.mark.parametrize(
    "words",
    [
        [HOSTILE],
        ["train", HOSTILE],
        ["train", "cartpole", HOSTILE],
        ["train", "cartpole", f"--{HOSTILE}"],
        ["train", "cartpole", f"--train.gamma={HOSTILE}"],
        ["train", "cartpole", f"--env.{'y' * 100_000}=3"],
        ["train", "cartpole", f"--env.gravity={HOSTILE}"],
        ["train", "cartpole", f"--train.device={HOSTILE}"],
        ["train", "cartpole", f"--train.run-dir={HOSTILE}"],
        ["train", "cartpole", f"--from={HOSTILE}"],
        ["train", "cartpole", f"--config={HOSTILE}"],
        ["train", f"gym-{HOSTILE}"],
        ["resume", HOSTILE],
        ["eval", "cartpole", f"--run={HOSTILE}"],
        ["eval", "cartpole", f"--run-dir={HOSTILE}"],
        ["eval", "cartpole", f"--seed={HOSTILE}"],
        ["bench", "cartpole", f"--mode={HOSTILE}"],
        ["check", HOSTILE],
        ["check", f"json:{HOSTILE}"],
        ["envs", HOSTILE],
        ["autotune", f"json:{HOSTILE}"],
    ],
    ids=lambda words: " ".join(words)[:40].encode("unicode_escape").decode(),
)
def test_an_argument_comes_back_in_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(words, capsys)


# ---- Runs ----------------------------------------------------------------------------------------


@pytest.fixture
def run() -> Path:
    assert main(["train", "cartpole", *TINY]) == 0
    (folder,) = Path("runs").iterdir()
    return folder


def test_a_config_json_cannot_write_to_the_terminal(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((run / "config.json").read_text())
    forged: list[dict[str, Any]] = [
        {**config, HOSTILE: {}},
        {**config, "name": HOSTILE},
        {**config, "name": f"gym-{HOSTILE}"},
        {**config, "name": [HOSTILE]},
        {**config, "env": {HOSTILE: 1}},
        {**config, "env": {"gravity": HOSTILE}},
        {**config, "env": HOSTILE},
        {**config, "train": {**config["train"], HOSTILE: 1}},
        {**config, "train": {**config["train"], "gamma": HOSTILE}},
        {**config, "train": {**config["train"], "gamma": [HOSTILE] * 1000}},
        {**config, "train": {**config["train"], "device": HOSTILE}},
        {**config, "log": {**config["log"], "logger": HOSTILE}},
    ]
    for values in forged:
        (run / "config.json").write_text(json.dumps(values))
        refuse(["resume", str(run), "--train.num-iterations=2"], capsys)
        if "device" not in str(values["train"]).replace("'device': 'cpu'", ""):
            refuse(["eval", "cartpole", "--checkpoint", str(run)], capsys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, f: ({**t, f"policy/{HOSTILE}": torch.zeros(1)}, f), "must fit the policy"),
        (lambda t, f: ({**t, f"optimizer/{HOSTILE}": torch.zeros(1)}, f), "fit the optimizer"),
        (lambda t, f: (t, {**f, "iteration": HOSTILE}), "`iteration` must be a whole number"),
        (lambda t, f: (t, {**f, "learning_rate": [HOSTILE] * 99}), "must be a finite number"),
        (
            lambda t, f: (t, {**f, "train": {**f["train"], "optimizer": HOSTILE}}),
            "`optimizer` must",
        ),
        (lambda t, f: (t, {**f, "state": {HOSTILE: HOSTILE}}), "does not fit this run"),
        (lambda t, f: (t, {**f, "episodes": [{"a": HOSTILE}]}), "does not fit this run"),
        (lambda t, f: (t, {**f, "episodes": HOSTILE}), "`episodes` must be"),
    ],
)
def test_a_checkpoint_cannot_write_to_the_terminal(change: Any, message: str) -> None:
    path = Path("a")
    with pufferlib.make("cartpole", num_envs=4, num_workers=1) as env:
        trainer = PuffeRL(env, batch_size=64, device="cpu", dashboard="off")
        trainer.save_checkpoint(path)
        saved = checkpoint.load(path)
        checkpoint.save(path, *change(saved.tensors, saved.values))
        with pytest.raises(CheckpointError, match=message) as caught:
            trainer.load_checkpoint(path)
        assert_harmless(str(caught.value))
