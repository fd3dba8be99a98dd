"""Studies: budgets, ends, resuming, several drivers, and journals of killed processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pufferlib.config import SweepConfig, check_range
from pufferlib.errors import UsageError
from pufferlib.sweep import JOURNAL, SearchSpace, Study, Trial, create_study, load_study

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")

CURVE = np.array([[0.5, 1.0, 2.0], [1.0, 2.0, 3.0]])


def space() -> SearchSpace:
    texts = {"train.learning_rate": "log_uniform 1e-4 1e-2", "train.n_epochs": "int 1 4"}
    return SearchSpace({key: check_range(key, text, key) for key, text in texts.items()})


def new_study(folder: Path | None = None, storage: str | None = None, **options: object) -> Study:
    return create_study(storage, "study", space(), SweepConfig(**options), folder)


def asked(study: Study) -> Trial:
    trial = study.ask()
    assert trial is not None
    return trial


def curve(score: float, cost: float = 1.0) -> np.ndarray:
    return np.array([[0.5, cost / 2, score / 2], [1.0, cost, score]])


@pytest.mark.parametrize("method", ["protein", "random", "tpe", "gp"])
def test_every_method_fills_the_number_of_trials(method: str) -> None:
    study = new_study(method=method, num_trials=13)
    for number in range(13):  # samplers of Optuna draw ten at random first
        trial = asked(study)
        assert study.space.contains(trial.config)
        if number % 5 == 4:
            study.tell(trial, "failed", failure="it was nan")
        else:
            study.tell(trial, "complete", curve(float(number)))

    assert study.ask() is None
    best = study.best()
    assert best is not None
    assert best.number == 12


def test_cost_ends_a_sweep_and_stops_its_last_trial() -> None:
    study = new_study(max_cost=5.0, method="random")
    study.tell(asked(study), "complete", curve(1.0, cost=3.0))
    trial = asked(study)

    assert not study.note(trial, np.array([[0.5, 1.0, 1.0]]))
    assert study.note(trial, np.array([[0.5, 2.5, 1.0]])) == "cut"
    study.tell(trial, "cut", np.array([[0.5, 2.5, 1.0]]))
    assert study.ask() is None


def test_a_trial_that_the_cost_has_cut_is_not_hopeless_after_a_resume(tmp_path: Path) -> None:
    study = new_study(tmp_path, max_cost=5.0, method="random")
    trial = asked(study)
    study.tell(trial, "cut", np.array([[0.5, 5.0, 1.0]]))

    again, _ = load_study(None, None, tmp_path, {"max_cost": 10.0})

    (cut,) = again.trials()
    assert (cut.state, cut.is_counted, cut.cost) == ("cut", True, 5.0)
    assert [each.state for each in again._evidence([cut])] == ["cut"]
    assert asked(again).retry_of is None


def test_samplers_of_optuna_see_no_trial_that_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    study = new_study(max_cost=5.0, method="tpe")
    study.tell(asked(study), "complete", curve(1.0, 1.0))
    study.tell(asked(study), "cut", np.array([[0.5, 1.0, 1.0]]))
    seen: list[int] = []
    known = type(study._sampler).infer_relative_search_space

    def count(sampler: Any, copied: Any, trial: Any) -> Any:
        seen.append(len(copied.get_trials(states=None)) - 1)  # without the one that it asks for
        return known(sampler, copied, trial)

    monkeypatch.setattr(type(study._sampler), "infer_relative_search_space", count)
    asked(study)

    assert seen == [1]


def test_cost_counts_what_running_trials_have_spent() -> None:
    study = new_study(max_cost=10.0, method="random")
    first, second = asked(study), asked(study)

    assert not study.note(first, np.array([[0.1, 1.0, 1.0]]))
    assert not study.note(first, np.array([[0.1, 1.0, 1.0], [0.6, 6.0, 1.0]]))
    assert not study.note(second, np.array([[0.3, 3.0, 1.0]]))
    assert study.note(second, np.array([[0.4, 4.0, 1.0]]))


def test_minimizing_turns_scores_around() -> None:
    study = new_study(goal="minimize", method="random", num_trials=3)
    for score, cost in [(3.0, 1.0), (1.0, 2.0), (2.0, 3.0)]:
        study.tell(asked(study), "complete", curve(score, cost))

    best = study.best()
    assert best is not None
    assert best.score == 1.0
    assert [trial.score for trial in study.pareto()] == [3.0, 1.0]


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_a_study_is_resumed_as_it_was(tmp_path: Path, kind: str) -> None:
    storage = None if kind == "journal" else f"sqlite:///{tmp_path}/s.db"
    study = new_study(tmp_path, storage, method="tpe", num_trials=3, metric="perf")
    first = asked(study)
    study.tell(first, "complete", CURVE)
    study.tell(asked(study), "failed", failure="it was nan")

    again, _ = load_study(storage, None, tmp_path, {"num_trials": 5})

    trials = again.trials()
    assert [trial.state for trial in trials] == ["complete", "failed"]
    assert trials[0].config == first.config
    assert trials[1].failure == "it was nan"
    np.testing.assert_array_equal(trials[0].curve, CURVE)
    assert (again.config.num_trials, again.config.method, again.config.metric) == (5, "tpe", "perf")
    assert again.space.ranges == study.space.ranges


def test_a_trial_ends_once(tmp_path: Path) -> None:
    first = new_study(tmp_path, method="random")
    second, _ = load_study(None, None, tmp_path)
    trial = asked(first)
    second.trials()

    assert second.tell(trial, "complete", curve(1.0))
    assert not first.tell(trial, "failed", failure="too late")
    assert [t.state for t in first.trials()] == ["complete"]


def test_two_drivers_share_the_number_of_trials(tmp_path: Path) -> None:
    first = new_study(tmp_path, method="random", num_trials=5)
    second, _ = load_study(None, None, tmp_path)
    trials = []
    for study in [first, second] * 5:
        trial = study.ask()
        if trial is not None:
            trials.append(trial)

    assert [trial.number for trial in trials] == [0, 1, 2, 3, 4]


def test_the_same_config_runs_with_another_seed() -> None:
    ranges = {"train.n_epochs": check_range("train.n_epochs", [2], "x")}
    study = create_study(None, "x", SearchSpace(ranges), SweepConfig(num_trials=3, seed=7))

    assert [asked(study).seed for _ in range(3)] == [7, 8, 9]


def test_a_trial_of_a_dead_driver_is_found_and_its_config_runs_again(tmp_path: Path) -> None:
    study = new_study(tmp_path, method="random", num_trials=2)
    code = (
        "import sys; from pathlib import Path; from pufferlib.sweep import load_study;"
        "load_study(None, None, Path(sys.argv[1]))[0].ask()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    own = asked(study)

    (abandoned,) = study.abandoned()  # our own runs
    assert abandoned.number == 0
    study.tell(abandoned, "lost", failure="its driver was killed")
    retry = asked(study)

    assert own.number == 1
    assert (retry.config, retry.retry_of) == (abandoned.config, 0)
    study.tell(retry, "lost")
    assert asked(study).config != abandoned.config  # a third time would be too much


def test_a_line_that_a_killed_process_began_is_removed(tmp_path: Path) -> None:
    study = new_study(tmp_path, method="random")
    study.tell(asked(study), "complete", CURVE)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 4, "wor')  # no newline

    again, _ = load_study(None, None, tmp_path)
    again.tell(asked(again), "complete", CURVE)

    lines = (tmp_path / JOURNAL).read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    assert [t.state for t in load_study(None, None, tmp_path)[0].trials()] == ["complete"] * 2


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be the URL of a database"):
        new_study(storage="nonsense")
    new_study(tmp_path)
    with pytest.raises(UsageError, match="Try --resume"):
        new_study(tmp_path)
    with pytest.raises(UsageError, match="must have the study `other`"):
        load_study(None, "other", tmp_path)


# ---- Journals that are damaged -------------------------------------------------------------------


def study_of_three(folder: Path) -> list[Trial]:
    study = new_study(folder, method="random")
    for score in (1.0, 2.0, 3.0):
        study.tell(asked(study), "complete", curve(score))
    return study.trials()


def lines_of(folder: Path) -> list[bytes]:
    return (folder / JOURNAL).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "text", [b"garbage\n", b"[]\n", b"null\n", b"\xff\n", b'{"op_code":99}\n', b""]
)
def test_a_lost_line_moves_no_result_to_another_trial(tmp_path: Path, text: bytes) -> None:
    before = study_of_three(tmp_path)
    lines = lines_of(tmp_path)
    second = [number for number, line in enumerate(lines) if b'"op_code":4' in line][1]
    lines[second] = text
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))

    study, _ = load_study(None, None, tmp_path)

    assert [(t.number, t.config, t.score) for t in study.trials()] == [
        (t.number, t.config, t.score) for t in (before[0], before[2])
    ]
    named = f"line {second + 1} of its journal and " if text else ""
    assert study.damage == f"cannot read {named}trial 1; the rest is used"
    new = asked(study)  # and the sweep goes on
    study.tell(new, "complete", curve(4.0))
    again, _ = load_study(None, None, tmp_path)
    assert [t.number for t in again.trials()] == [0, 2, 3]


def test_two_drivers_number_their_trials_alike(tmp_path: Path) -> None:
    first = new_study(tmp_path, method="random")
    second, _ = load_study(None, None, tmp_path)
    for _ in range(3):
        asked(first), asked(second)

    created = [json.loads(line) for line in lines_of(tmp_path) if b'"op_code":4' in line]
    assert [log["trial_id"] for log in created] == list(range(6))
    assert [t.number for t in first.trials()] == list(range(6))


def test_a_line_that_comes_twice_counts_once(tmp_path: Path) -> None:
    study_of_three(tmp_path)
    lines = [part for line in lines_of(tmp_path) for part in (line, line)]
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))

    study, _ = load_study(None, None, tmp_path)

    assert [t.score for t in study.trials()] == [1.0, 2.0, 3.0]


def test_a_journal_without_a_study_is_one_line(tmp_path: Path) -> None:
    study_of_three(tmp_path)
    (tmp_path / JOURNAL).write_bytes(b"garbage\n" + b"".join(lines_of(tmp_path)[1:]))
    with pytest.raises(UsageError, match=r"must have a study, but does not\. It has none\."):
        load_study(None, None, tmp_path)


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo", "folder"])
def test_a_journal_that_is_no_file_of_its_own_is_refused(tmp_path: Path, kind: str) -> None:
    study_of_three(tmp_path / "s")
    path = tmp_path / "s" / JOURNAL
    path.rename(tmp_path / "other")
    if kind == "link":
        path.symlink_to(tmp_path / "other")
    elif kind == "hard link":
        os.link(tmp_path / "other", path)
    else:
        os.mkfifo(path) if kind == "fifo" else path.mkdir()

    with pytest.raises(UsageError, match="must be the journal of a sweep, but"):
        load_study(None, None, tmp_path / "s")


def test_a_cost_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"`max_cost` must be a number of at least 0\.001"):
        SweepConfig(max_cost=0)
