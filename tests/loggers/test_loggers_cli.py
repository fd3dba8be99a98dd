"""`puffer train --log.logger ...`: the registry of loggers, and which ones a run gets."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import pufferlib
from pufferlib import config, loggers
from pufferlib.cli import main
from pufferlib.config import LOGGERS, LogConfig, load_choice
from pufferlib.errors import UnknownNameError

ROOT = Path(__file__).resolve().parents[2]
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
    """Stands in for a service: keeps its arguments and the steps of its entries."""

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
    for module in ("wandb", "neptune"):
        location = LOGGERS[module].location
        original = load_choice(location)
        members = {"for_run": classmethod(original.for_run.__func__)}
        recorder = type(original.__name__, (Recorder,), members)
        monkeypatch.setattr(location.replace(":", "."), recorder)
    return Recorder.made


def test_several_loggers_run_beside_the_json_lines(
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


def test_a_resumed_run_has_the_same_id_at_its_service(services: list[Recorder]) -> None:
    for _ in range(2):
        assert main(["train", "squared", *TINY, "--log.logger=wandb"]) == 0
    folder = sorted(Path("runs").iterdir())[0]
    assert main(["resume", str(folder), "--train.num-iterations=4"]) == 0
    first, other, again = (service.args[-1] for service in services)

    assert first == again == (folder / "wandb.id").read_text()
    assert other != first
    assert services[2].steps == [192, 256]


def test_a_run_without_a_name_gets_that_of_its_folder(services: list[Recorder]) -> None:
    Path("mine.ini").write_text("[log]\nlogger = wandb\n")
    assert main(["train", "squared", *TINY, "--config", "mine.ini"]) == 0
    (folder,) = Path("runs").iterdir()

    assert services[0].args[:3] == ("pufferlib", None, folder.name)


@pytest.mark.parametrize("invalid", [b"", b"../other", b"\xff" * 16, b"0" * 1000])
def test_an_id_is_kept_and_an_invalid_one_replaced(invalid: bytes, tmp_path: Path) -> None:
    path = tmp_path / "new" / "wandb.id"
    first = loggers.kept_id(path)
    assert loggers.kept_id(path) == first
    path.write_bytes(invalid)
    second = loggers.kept_id(path)
    assert loggers.kept_id(path) == second != first
    assert len(second) == 16
    assert loggers.kept_id("/proc/none/wandb.id") != first  # an id that cannot be kept


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
def test_a_mistake_is_reported_in_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "squared", *words]) == 2
    assert capsys.readouterr().err == f"puffer: {line}\n"


def test_every_registered_logger_has_a_class_and_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for choice in LOGGERS.values():
        logger = load_choice(choice.location)
        assert issubclass(logger, loggers.RunLogger)
        assert getattr(loggers, logger.__name__) is logger
        assert choice.extra in project["optional-dependencies"]
        assert choice.about
    assert {"WandbLogger", "NeptuneLogger", "TensorboardLogger"} <= {*dir(pufferlib)}


def test_a_new_logger_is_one_line_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    class CsvLogger(loggers.NoLogger, loggers.RunLogger):
        @classmethod
        def for_run(cls, config: config.Config, folder: Path) -> CsvLogger:
            made.append(folder)
            return cls()

    monkeypatch.setattr(loggers.base, "CsvLogger", CsvLogger, raising=False)
    line = config.choices.LoggerChoice("pufferlib.loggers.base:CsvLogger", "csv", "a table")
    monkeypatch.setitem(LOGGERS, "csv", line)

    assert main(["train", "squared", *TINY, "--log.logger=csv"]) == 0
    assert made == list(Path("runs").iterdir())


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
