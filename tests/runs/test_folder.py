"""The folder of a run: which checkpoints it keeps, and how it is resumed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pufferlib import runs
from pufferlib.config import Config, TrainConfig
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.files import write_atomically
from pufferlib.runs import Run


class FakeTrainer:
    """Saves its iteration and the metadata as JSON."""

    iteration = 0

    def save_checkpoint(self, path: str | Path, metadata: Any = None) -> None:
        body = {"iteration": self.iteration, "metadata": metadata}
        write_atomically(Path(path), json.dumps(body).encode())


def save_all(run: Run, scores: Sequence[float], key: str = "mean_reward") -> FakeTrainer:
    trainer = FakeTrainer()
    for score in scores:
        trainer.iteration += 1
        run.save(trainer, {key: score})
    return trainer


def names(run: Run) -> set[str]:
    return {path.name for path in run.folder.iterdir()}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


# ---- Which checkpoints are kept ------------------------------------------------------------------


def test_the_newest_few_the_latest_and_the_best_are_kept(tmp_path: Path) -> None:
    run = Run(tmp_path, keep=2)
    save_all(run, [1, 5, 2, 3])
    assert names(run) == {
        "iteration-000003.safetensors",
        "iteration-000004.safetensors",
        "latest.safetensors",
        "best.safetensors",
    }
    assert read(run.latest)["iteration"] == 4
    assert run.latest.samefile(tmp_path / "iteration-000004.safetensors")
    assert read(tmp_path / "best.safetensors")["iteration"] == 2
    assert [path.name for path in run.candidates()] == [
        "latest.safetensors",
        "iteration-000004.safetensors",
        "iteration-000003.safetensors",
        "best.safetensors",
    ]


def test_without_numbered_checkpoints_there_are_latest_and_best(tmp_path: Path) -> None:
    run = Run(tmp_path, keep=0)
    save_all(run, [1, 5, 2])
    assert names(run) == {"latest.safetensors", "best.safetensors"}
    assert read(run.latest)["iteration"] == 3
    assert read(tmp_path / "best.safetensors")["iteration"] == 2


@pytest.mark.parametrize(
    ("metric", "log", "score"),
    [
        ("auto", {"mean_reward": 3.0}, 3.0),
        ("auto", {"mean_reward": 3.0, "env/perf": 0.5}, 0.5),
        ("auto", {"mean_reward": 3.0, "env/perf": 0.5, "env/elo": 1020.0}, 1020.0),
        ("auto", {"mean_reward": math.nan}, None),
        ("auto", {}, None),
        ("mean_reward", {"mean_reward": 3.0, "env/perf": 0.5}, 3.0),
        ("env/lane", {"mean_reward": 3.0, "env/lane": -2}, -2.0),
        ("env/lane", {"mean_reward": 3.0}, None),
        ("auto", {"env/perf": math.inf}, None),
    ],
)
def test_the_metric_selects_the_best_checkpoint(
    metric: str, log: dict[str, float], score: float | None, tmp_path: Path
) -> None:
    run = Run(tmp_path, metric=metric)
    run.save(FakeTrainer(), log)
    assert run.best_score == score
    assert (tmp_path / "best.safetensors").exists() == (score is not None)


def test_an_equal_score_does_not_replace_the_best(tmp_path: Path) -> None:
    save_all(Run(tmp_path), [2, 2])
    assert read(tmp_path / "best.safetensors")["iteration"] == 1


def test_until_scores_are_settled_the_latest_is_the_best(tmp_path: Path) -> None:
    run, trainer = Run(tmp_path), FakeTrainer()
    best = tmp_path / "best.safetensors"
    for score, settled, iteration in ((9, False, 1), (3, False, 2), (4, True, 3), (2, True, 3)):
        trainer.iteration += 1
        run.save(trainer, {"mean_reward": score}, settled)
        assert read(best)["iteration"] == iteration
    # a run whose envs begin new episodes at a resume keeps the best that it had
    trainer.iteration += 1
    run.save(trainer, {"mean_reward": 9}, False)
    assert read(best)["iteration"] == 3
    assert run.best_score == 4


def test_a_resumed_run_knows_its_best_score(tmp_path: Path) -> None:
    save_all(Run(tmp_path, keep=1), [1, 5, 2])
    run = Run(tmp_path, keep=1)
    run.note_resume(run.latest, read(run.latest)["metadata"])
    assert run.best_score == 5
    trainer = FakeTrainer()
    trainer.iteration = 4
    run.save(trainer, {"mean_reward": 4})
    assert read(tmp_path / "best.safetensors")["iteration"] == 2
    assert names(run) == {
        "iteration-000004.safetensors",
        "latest.safetensors",
        "best.safetensors",
    }


def test_resuming_restores_a_best_link_that_a_kill_prevented(tmp_path: Path) -> None:
    save_all(Run(tmp_path), [1, 5])
    (tmp_path / "best.safetensors").unlink()
    run = Run(tmp_path)
    run.note_resume(run.latest, read(run.latest)["metadata"])
    assert read(tmp_path / "best.safetensors")["iteration"] == 2


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        3,
        {},
        {"run": None},
        {"run": {"best": "x", "score": 1}},
        {"run": {"best": [], "score": 1}},
    ],
)
def test_foreign_metadata_gives_no_best_score(metadata: Any, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.note_resume(run.latest, metadata)
    assert run.best_score is None


def test_another_branch_is_not_removed(tmp_path: Path) -> None:
    save_all(Run(tmp_path, keep=3), [1, 2, 3])
    run, trainer = Run(tmp_path, keep=1), FakeTrainer()
    trainer.iteration = 2  # gone on from the first, so the third is of a future that never comes
    run.save(trainer, {})
    assert [path.name for path in run.numbered()] == [
        "iteration-000003.safetensors",
        "iteration-000002.safetensors",
    ]
    assert read(run.latest)["iteration"] == 2


def test_a_failed_save_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, keep=2)
    trainer = save_all(run, [1, 2])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pufferlib.runs.folder.link_atomically", full)
        with pytest.raises(CheckpointError, match="No space left on device"):
            run.save(trainer, {"mean_reward": 9})
    assert read(run.latest)["iteration"] == 2
    assert run.best_score == 2


# ---- The folder ----------------------------------------------------------------------------------


def config_in(folder: Path, **train: Any) -> Config:
    return Config(name="cartpole", train=TrainConfig(run_dir=str(folder), **train))


def test_a_new_run_has_its_config(tmp_path: Path) -> None:
    config = config_in(tmp_path, gamma=0.5, keep_checkpoints=7, best_metric="sps")
    run = runs.create(config)
    assert run.read_config() == config
    assert (run.keep, run.metric) == (7, "sps")
    other = runs.create(config)
    assert other.folder != run.folder
    changed = config_in(tmp_path, gamma=0.25)
    other.write_config(changed)
    assert other.read_config() == changed


def test_a_name_with_a_slash_makes_one_folder(tmp_path: Path) -> None:
    run = runs.create(Config(name="gym-ALE/Pong-v5", train=TrainConfig(run_dir=str(tmp_path))))
    assert run.folder.parent == tmp_path
    assert runs.newest(tmp_path, "gym-ALE/Pong-v5", with_checkpoint=False).folder == run.folder


def test_a_folder_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"`--train.run-dir` must be a folder that can be written"):
        runs.create(config_in(tmp_path / "file"))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "{}", '{"name": 3}', '{"name": "x", "train": []}', "[" * 100_000, "\x00"],
)
def test_an_invalid_config_is_reported_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match="must be the folder of a run") as caught:
        Run(tmp_path).read_config()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_an_endless_config_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match="must be the folder of a run"):
        Run(tmp_path).read_config()


def test_one_process_at_a_time_trains_a_run(tmp_path: Path) -> None:
    with (
        Run(tmp_path),
        pytest.raises(UsageError, match="must not be in use, but another process trains"),
        Run(tmp_path),
    ):
        pass
    with Run(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    Run(tmp_path).check_own()
    target = tmp_path / "precious"
    target.write_text("")
    (tmp_path / "metrics.jsonl").symlink_to(target)
    with pytest.raises(UsageError, match="must be in the folder of the run, but is a link"):
        Run(tmp_path).check_own()


def test_a_log_with_another_name_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    (tmp_path / "metrics.jsonl").hardlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match="must be in the folder of the run, but is a hard link"):
        Run(tmp_path).check_own()


# ---- Finding one ---------------------------------------------------------------------------------


def test_a_run_is_found_by_folder_file_and_name(tmp_path: Path) -> None:
    run = runs.create(config_in(tmp_path))
    save_all(run, [1])
    best = run.folder / "best.safetensors"
    found = runs.find(str(run.folder), tmp_path)
    assert found is not None
    assert (found.run.folder, found.checkpoint) == (run.folder, None)
    found = runs.find(str(best), tmp_path)
    assert found is not None
    assert (found.run.folder, found.checkpoint) == (run.folder, best)
    found = runs.find(run.folder.name, tmp_path)
    assert found is not None
    assert found.run.folder == run.folder
    assert runs.find("cartpole", tmp_path) is None
    with pytest.raises(UsageError, match="must be a checkpoint in the folder of a run"):
        runs.find("none.safetensors", tmp_path)


def test_the_newest_run_is_the_one_trained_last(tmp_path: Path) -> None:
    first, second = runs.create(config_in(tmp_path)), runs.create(config_in(tmp_path))
    for run, age in ((first, 5), (second, 10)):
        save_all(run, [1])
        for path in run.folder.iterdir():
            os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "cartpole-of-mine").mkdir()
    (tmp_path / "cartpole-of-mine" / "latest.safetensors").write_text("")  # not one of ours
    assert runs.newest(tmp_path, "cartpole").folder == first.folder
    with pytest.raises(UsageError, match="must hold a run of pong, but has none"):
        runs.newest(tmp_path, "pong")
    third = runs.create(config_in(tmp_path))
    assert runs.newest(tmp_path, "cartpole").folder == first.folder
    assert runs.newest(tmp_path, "cartpole", with_checkpoint=False).folder == third.folder
