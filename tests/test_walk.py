"""One iteration of training passes few files, and docs/design.md names them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest

import pufferlib
from pufferlib.cli import run_loop as loop
from pufferlib.dashboard.dashboards import PlainDashboard
from pufferlib.loggers import JsonlLogger
from pufferlib.runs import Run
from pufferlib.training.trainer import PuffeRL

PACKAGE = Path(pufferlib.__file__).parent
DESIGN = Path(__file__).resolve().parent.parent / "docs/design.md"
MOST_FILES = 19


class WatchedTrainer(PuffeRL):
    """Notes the files of this package that the third iteration passes, the loop's condition too."""

    def watch(self) -> set[str]:
        self.passed: set[str] = set()
        return self.passed

    @property
    def done(self) -> bool:
        sys.setprofile(self._note if self.iteration == 2 else None)
        return super().done

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            self.passed.add(path.relative_to(PACKAGE).as_posix())


def files_of_one_iteration(engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setattr(PlainDashboard, "_interval", 0.0)  # a line for every iteration
    env = pufferlib.vectorization.make("breakout", num_envs=64)
    logger = JsonlLogger(folder / "metrics.jsonl")
    options = {"engine": engine, "num_iterations": 4, "dashboard": "auto", "torch_threads": 1}
    with (
        env,
        Run(folder) as run,
        WatchedTrainer(env, logger=logger, batch_size=2048, **options) as trainer,
    ):
        passed = trainer.watch()
        loop.run_loop(trainer, run)
    return passed


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_one_iteration_passes_few_files(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = files_of_one_iteration(engine, tmp_path, monkeypatch)

    assert {
        "cli/run_loop.py",
        "training/trainer.py",
        f"training/{engine}_engine.py",
        "vectorization/threads.py",
        "loggers/base.py",
        "dashboard/dashboards.py",
    } <= passed
    assert len(passed) <= MOST_FILES, "\n".join(sorted(passed))


def test_the_design_names_the_files_of_one_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, section = DESIGN.read_text().partition("## One iteration, file by file\n")
    section, _, _ = section.partition("\n## ")
    passed = files_of_one_iteration("torch", tmp_path, monkeypatch)

    assert [path for path in sorted(passed) if path not in section] == []
