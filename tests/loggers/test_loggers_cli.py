"""`puffer train --log.logger ...`: which loggers a run gets, and with which names."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pufferlib import config, loggers
from pufferlib.cli import main
from pufferlib.config import LogConfig
from pufferlib.errors import UnknownNameError

TINY = [
    "--train.num-iterations=2",
    "--train.batch-size=64",
    "--train.n-epochs=1",
    "--train.device=cpu",
    "--train.dashboard=off",
    "--vec.num-envs=8",
    "--vec.num-workers=1",
    "--policy.hidden-size=8",
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Recorder:
    """Stands for a service: keeps how it was made, and the rows."""

    made: list[Recorder]

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.steps: list[int] = []
        self.closed = False
        self.url: str | None = None
        self.made.append(self)

    def log(self, metrics: object, step: int) -> None:
        self.steps.append(step)
        self.url = "https://example.org/run/1"

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    Recorder.made = []
    for name in ("WandbLogger", "NeptuneLogger"):
        monkeypatch.setattr(loggers, name, type(name, (Recorder,), {}))
    return Recorder.made


def test_several_loggers_beside_the_lines_of_json(
    services: list[Recorder], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard")
    words = ["--log.logger", "wandb,tensorboard, Neptune", "--log.project=mine"]
    words += ["--log.entity=team", "--log.name=first", "--train.dashboard=auto"]
    assert main(["train", "squared", *TINY, *words]) == 0
    (folder,) = Path("runs").iterdir()
    wandb, neptune = services

    project, entity, name, shown, _ = wandb.args
    assert (project, entity, name) == ("mine", "team", "first")
    assert shown == json.loads((folder / "config.json").read_text())
    assert neptune.args == ("mine", "first")
    assert [service.steps for service in services] == [[64, 128], [64, 128]]
    assert all(service.closed for service in services)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [64, 128]
    assert len(list(folder.glob("tensorboard/*tfevents*"))) == 1
    out = capsys.readouterr().out
    assert "https://example.org/run/1" in out  # where to look
    assert str(folder / "tensorboard") in out


def test_a_run_that_goes_on_is_the_same_at_its_service(services: list[Recorder]) -> None:
    for _ in range(2):
        assert main(["train", "squared", *TINY, "--log.logger=wandb"]) == 0
    folder = sorted(Path("runs").iterdir())[0]
    assert main(["resume", str(folder), "--train.num-iterations=4"]) == 0
    first, other, again = (service.args[-1] for service in services)

    assert first == again == (folder / "wandb.id").read_text()
    assert other != first
    assert services[2].steps == [192, 256]


def test_a_run_without_a_name_has_that_of_its_folder(services: list[Recorder]) -> None:
    Path("mine.ini").write_text("[log]\nlogger = wandb\n")
    assert main(["train", "squared", *TINY, "--config", "mine.ini"]) == 0
    (folder,) = Path("runs").iterdir()

    assert services[0].args[:3] == ("pufferlib", None, folder.name)


@pytest.mark.parametrize("spoilt", [b"", b"../other", b"\xff" * 16, b"0" * 1000])
def test_an_id_is_kept_and_a_spoilt_one_replaced(spoilt: bytes, tmp_path: Path) -> None:
    path = tmp_path / "new" / "wandb.id"
    first = loggers.kept_id(path)
    assert loggers.kept_id(path) == first
    path.write_bytes(spoilt)
    second = loggers.kept_id(path)
    assert loggers.kept_id(path) == second != first
    assert len(second) == 16
    assert loggers.kept_id("/proc/none/wandb.id") != first  # cannot be kept: an id all the same


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--log.logger=wandb,tensorbord"],
            "Unknown logger `tensorbord` (log.logger). Did you mean `tensorboard`?",
        ),
        (
            ["--log.logger=csv"],
            "Unknown logger `csv` (log.logger). Known: wandb, tensorboard, neptune, none.",
        ),
        (
            ["--train.logger=wandb"],
            "Unknown key of [train] `train.logger` (--train.logger). Did you mean `log.logger`?",
        ),
    ],
)
def test_a_mistake_is_told_in_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "squared", *words]) == 2
    assert capsys.readouterr().err == f"puffer: {line}\n"


def test_a_missing_package_ends_the_command_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", "squared", *TINY, "--log.logger=wandb"]) == 2

    line = "puffer: `WandbLogger` needs wandb: pip install 'pufferlib[wandb]'\n"
    assert capsys.readouterr().err == line
    assert list(Path("runs").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", ()),
        ("", ()),
        ("wandb", ("wandb",)),
        (" TensorBoard ,wandb,wandb,none", ("tensorboard", "wandb")),
    ],
)
def test_the_words_of_logger(text: str, names: tuple[str, ...]) -> None:
    assert LogConfig(logger=text).loggers == names


def test_a_config_of_an_older_version_has_no_loggers() -> None:
    assert config.Config.from_dict({"name": "squared"}).log.loggers == ()
    with pytest.raises(UnknownNameError, match="Unknown logger `x`"):
        config.Config.from_dict({"name": "squared", "log": {"logger": "x"}})
