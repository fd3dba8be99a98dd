"""`puffer resume` and `puffer train --from`: what goes on, with what, and what is refused."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from pufferlib.cli import main
from pufferlib.runs import checkpoint

TINY = [
    *("--train.batch-size=64", "--train.n-epochs=1", "--vec.num-envs=4", "--vec.num-workers=1"),
    *("--policy.hidden-size=8", "--train.device=cpu", "--train.minibatch-size=none"),
    *("--train.num-iterations=4", "--train.checkpoint-interval=2", "--train.keep-checkpoints=2"),
    "--env.max-steps=7",  # so that episodes end, and there is a best
]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Path:
    """A run of four iterations that is over."""
    assert main(["train", "squared", *TINY]) == 0
    (folder,) = Path("runs").iterdir()
    capsys.readouterr()
    return folder


def values_in(path: Path) -> dict[str, Any]:
    return checkpoint.load(path).values


def iterations(run: Path) -> list[int]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["iteration"] for line in lines]


@pytest.mark.parametrize("word", ["squared", "ocean-squared", "{folder}", "{name}", "{file}"])
def test_a_run_resumes_in_its_folder_with_a_larger_budget(word: str, run: Path) -> None:
    named = word.format(folder=run, name=run.name, file=run / "latest.safetensors")
    assert main(["resume", named, "--train.num-iterations", "6"]) == 0
    assert values_in(run / "latest.safetensors")["iteration"] == 6
    assert iterations(run) == [1, 2, 3, 4, 5, 6]
    assert list(Path("runs").iterdir()) == [run]
    config = json.loads((run / "config.json").read_text())
    assert config["train"]["num_iterations"] == 6  # the next resume knows


def test_a_budget_in_steps_takes_the_place_of_one_in_iterations(run: Path) -> None:
    assert main(["resume", str(run), "--train.total-timesteps", str(64 * 7)]) == 0
    assert values_in(run / "latest.safetensors")["iteration"] == 7


def test_a_certain_checkpoint_of_a_run_can_be_gone_on_from(run: Path) -> None:
    older = run / "iteration-000002.safetensors"
    assert main(["resume", str(older)]) == 0
    assert iterations(run) == [1, 2, 3, 4, 3, 4]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for before, after in zip(rows[2:4], rows[4:6], strict=True):
        assert before["policy_loss"] == after["policy_loss"]  # the same run once more


def test_options_that_change_the_numbers_cannot_change(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["--train.gamma=0.5"],
        ["--env.distance=4"],
        ["--policy.hidden-size=16"],
        ["--train.batch-size=128"],
    ):
        assert main(["resume", str(run), *words]) == 2
        err = capsys.readouterr().err
        assert "must not change when a run is resumed" in err
        assert err.count("\n") == 1
    assert main(["resume", str(run), "--train.gama=0.5"]) == 2
    assert "Did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}"], "must have budget left, but has trained all 256 steps"),
        (["nothing-like-it"], "`nothing-like-it` must be a run or an environment"),
        (["pong"], "`runs` must hold a run of pong, but has none"),
        (["none.safetensors"], "must be a checkpoint in the folder of a run"),
        (["."], "`.` must be the folder of a run"),
        (["{run}", "--train.num-iterations=0"], "`--train.num-iterations` must be"),
    ],
)
def test_a_mistake_prints_one_line(
    words: list[str], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in run.iterdir())
    assert main(["resume", *(word.format(run=run) for word in words)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in run.iterdir()) == before
    assert iterations(run) == [1, 2, 3, 4]


# 64 steps are 8 for each of 8 slots, but not a multiple of 24
@pytest.mark.parametrize(("num_envs", "batch_size"), [(8, 64), (24, 72)])
def test_a_run_resumes_with_another_number_of_envs(
    num_envs: int, batch_size: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def resume(*words: str) -> str:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert main(["resume", str(run), *words]) == 0
        return "\n".join([capsys.readouterr().err, *(str(each.message) for each in caught)])

    budget = 64 * 4 + batch_size * 2
    said = resume(f"--vec.num-envs={num_envs}", f"--train.total-timesteps={budget}")
    begun = f"the checkpoint has 4 slots, but this run has {num_envs}: new episodes begin."
    assert said.count(begun) == 1
    assert ("is rounded from 64 to 72, a multiple of the 24 slots." in said) == (num_envs == 24)
    assert iterations(run) == [1, 2, 3, 4, 5, 6]
    config = json.loads((run / "config.json").read_text())
    assert config["vec"]["num_envs"] == num_envs  # the next resume knows
    assert config["train"]["batch_size"] == batch_size

    assert resume(f"--train.total-timesteps={budget + batch_size}").strip() == ""
    assert iterations(run) == [1, 2, 3, 4, 5, 6, 7]
    assert values_in(run / "latest.safetensors")["steps"] == budget + batch_size


def test_resume_names_a_damaged_latest_and_takes_the_one_before(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "latest.safetensors"
    path.write_bytes(path.read_bytes()[:-1])  # both names of the file
    assert main(["resume", str(run), "--train.num-iterations=5"]) == 0
    err = capsys.readouterr().err
    assert "latest.safetensors is not a checkpoint" in err
    assert err.strip().endswith("trying iteration-000002.safetensors")
    assert iterations(run) == [1, 2, 3, 4, 3, 4, 5]
    for other in run.glob("*.safetensors"):
        other.write_bytes(b"")
    assert main(["resume", str(run), "--train.num-iterations=6"]) == 2
    assert "is not a checkpoint" in capsys.readouterr().err


def test_a_log_that_leads_out_of_the_run_is_not_written(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("precious").write_text("mine\n")
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(Path("precious").absolute())
    assert main(["resume", str(run), "--train.num-iterations=6"]) == 2
    assert "must be in the folder of the run, but is a link" in capsys.readouterr().err
    assert Path("precious").read_text() == "mine\n"


def test_a_new_run_begins_with_the_weights_of_another(run: Path) -> None:
    words = [*TINY, "--train.num-iterations=1", "--train.learning-rate=0", "--env.max-steps=9"]
    for source in (run, run / "best.safetensors"):
        assert main(["train", "squared", *words, "--vec.num-envs=8", "--from", str(source)]) == 0
        (new,) = (folder for folder in Path("runs").iterdir() if folder != run)
        path = source if source.is_file() else run / "latest.safetensors"
        old, begun = checkpoint.load(path).tensors, checkpoint.load(new / "latest.safetensors")
        for name, part in begun.tensors.items():
            if name.startswith("policy/"):  # nothing was learnt: the step size is 0
                assert torch.equal(part, old[name])
        assert begun.values["iteration"] == 1
        shutil.rmtree(new)


def test_weights_that_do_not_fit_leave_no_run_behind(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "squared", *TINY, "--policy.hidden-size=16", "--from", str(run)]) == 2
    assert "must fit the policy" in capsys.readouterr().err
    assert main(["train", "squared", *TINY, "--from", "nowhere"]) == 2
    assert (
        "`--from` must be a checkpoint, the folder of a run or a run in" in capsys.readouterr().err
    )
    assert list(Path("runs").iterdir()) == [run]


def test_the_best_checkpoint_can_be_played(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", "squared", "--run", str(run / "best.safetensors"), "--episodes", "2"]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"] == str(run)
