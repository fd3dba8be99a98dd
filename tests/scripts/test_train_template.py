"""The training script that users start from: it learns, resumes, and honours every argument."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import pufferlib
from pufferlib.runs import checkpoint

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "train_template.py"
TINY = [
    *("--num-envs", "8", "--num-workers", "1", "--batch-size", "256"),
    *("--device", "cpu", "--num-iterations", "4"),
]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_template", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


template = load()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> list[pufferlib.PuffeRL]:
    """Every trainer that the script makes."""
    made = []

    class Kept(pufferlib.PuffeRL):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            self.loggers = list(settings["logger"])
            made.append(self)

    monkeypatch.setattr(pufferlib, "PuffeRL", Kept)
    return made


def steps(run: str = "cartpole") -> list[int]:
    lines = Path("checkpoints", run, "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def weights(run: str) -> dict[str, torch.Tensor]:
    saved = checkpoint.load(Path("checkpoints", run, "latest.safetensors"))
    return {name: part for name, part in saved.tensors.items() if name.startswith("policy/")}


@pytest.mark.slow
def test_the_script_trains_falls_back_to_the_cpu_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has what the test wants to miss")
    words = [*TINY, "--num-iterations", "2", "--device", "cuda"]
    command = [sys.executable, SCRIPT, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.stderr == "No CUDA device for `--device cuda`: training on the CPU instead.\n"
    assert done.returncode == 0
    assert "checkpoints/cartpole/latest.safetensors" in done.stdout  # where it is
    assert steps() == [256, 512]

    assert template.main(TINY) == 0
    reported = "Resuming from checkpoints/cartpole/latest.safetensors, after iteration 2.\n"
    assert capsys.readouterr().err == reported
    assert steps() == [256, 512, 768, 1024]


def test_it_learns() -> None:
    # Random play keeps the pole up for 22 steps; seeds 1 to 3 were at 141, 132 and 170 after these.
    words = ["--num-envs", "32", "--batch-size", "2048", "--num-iterations", "10", "--seed", "1"]
    assert template.main([*words, "--num-workers", "1", "--device", "cpu"]) == 0
    lines = Path("checkpoints/cartpole/metrics.jsonl").read_text().splitlines()

    assert json.loads(lines[-1])["mean_reward"] > 80


def test_interrupted_and_started_again_equals_uninterrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert template.main([*TINY, "--exp-name", "whole"]) == 0

    train = pufferlib.PuffeRL.train

    def interrupted(self: pufferlib.PuffeRL) -> dict[str, float]:
        if self.iteration == 2:
            raise KeyboardInterrupt
        return train(self)

    words = [*TINY, "--exp-name", "parted", "--save-freq", "2"]
    with monkeypatch.context() as patch:
        patch.setattr(pufferlib.PuffeRL, "train", interrupted)
        assert template.main(words) == 130
    assert "The same command resumes" in capsys.readouterr().err
    assert steps("parted") == [256, 512]
    assert template.main(words) == 0

    assert steps("parted") == steps("whole") == [256, 512, 768, 1024]
    whole, parted = weights("whole"), weights("parted")
    assert whole.keys() == parted.keys()
    assert all(torch.equal(whole[name], parted[name]) for name in whole)


def test_a_finished_run_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert template.main(TINY) == 0
    before = weights("cartpole")
    assert template.main(TINY) == 0

    assert "has trained all 4 iterations" in capsys.readouterr().err
    assert steps() == [256, 512, 768, 1024]
    assert all(torch.equal(before[name], part) for name, part in weights("cartpole").items())


def test_every_argument_reaches_the_trainer(trainers: list[pufferlib.PuffeRL]) -> None:
    given = {
        "env_name": "squared",
        "num_envs": 6,
        "num_workers": 2,
        "num_iterations": 3,
        "learning_rate": 0.0007,
        "batch_size": 192,
        "n_epochs": 2,
        "device": "cpu",
        "gamma": 0.9,
        "gae_lambda": 0.8,
        "clip_coef": 0.3,
        "ent_coef": 0.02,
        "vf_coef": 0.4,
        "max_grad_norm": 0.6,
        "logger": "tensorboard",
        "project": "mine",
        "exp_name": "first",
        "neptune_token": "secret",
        "log_freq": 2,
        "checkpoint_dir": Path("kept"),
        "save_freq": 3,
        "seed": 7,
        "compile": "off",
    }
    words = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
    args = vars(template.parse(words))
    assert args == given  # no argument is missing here, and all are read
    defaults = vars(template.parse([]))
    assert [key for key in given if given[key] == defaults[key]] == []  # so each one matters
    pytest.importorskip("tensorboard")
    assert template.main(words) == 0

    (trainer,) = trainers
    same = given.keys() & {"num_iterations", "learning_rate", "batch_size", "n_epochs", "device"}
    same |= given.keys() & {"gamma", "gae_lambda", "clip_coef", "ent_coef", "vf_coef"}
    same |= given.keys() & {"max_grad_norm", "seed", "compile"}
    assert len(same) == 13
    assert {key: getattr(trainer.config, key) for key in same} == {key: given[key] for key in same}
    assert trainer.config.log_interval == 2
    assert (trainer.env.name, trainer.env.num_envs, trainer.env.num_workers) == ("squared", 6, 2)
    rows = [json.loads(line) for line in Path("kept/first/metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [384]  # every second iteration
    assert len(list(Path("kept/first/tensorboard").iterdir())) == 1
    assert checkpoint.load("kept/first/latest.safetensors").values["iteration"] == 3


@pytest.mark.parametrize(("iterations", "saves"), [(4, [2, 4]), (3, [2, 3])])
def test_it_saves_at_intervals_and_at_the_end(
    iterations: int, saves: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    monkeypatch.setattr(
        pufferlib.PuffeRL,
        "save_checkpoint",
        lambda self, path, metadata: saved.append((self.iteration, path, metadata["steps"])),
    )
    words = [*TINY, "--save-freq", "2", "--num-iterations", str(iterations)]
    assert template.main(words) == 0

    path = Path("checkpoints/cartpole/latest.safetensors")
    assert saved == [(count, path, 256 * count) for count in saves]


@pytest.mark.parametrize("name", ["wandb", "neptune"])
def test_services_get_names_but_no_secret(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    for known in ("WandbLogger", "NeptuneLogger"):
        monkeypatch.setattr(pufferlib, known, lambda *args, **kw: made.append((args, kw)))
    words = ["--logger", name, "--project", "mine", "--exp-name", "first"]
    args = template.parse([*words, "--neptune-token", "secret"])
    template.make_loggers(args, Path("first"))
    ((given, keywords),) = made
    if name == "wandb":
        assert keywords["id"] == Path("first/wandb.id").read_text()

    if name == "neptune":
        assert (given, keywords) == (("mine", "first", "secret"), {})
    else:
        assert given == ("mine",)
        assert keywords["name"] == "first"
        assert keywords["config"]["learning_rate"] == "0.003"
        assert "secret" not in str(keywords)


def test_only_the_first_of_several_processes_logs_and_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    template.say("hello")

    assert template.make_loggers(template.parse(["--logger", "wandb"]), Path("first")) == []
    assert capsys.readouterr().err == ""
    assert not Path("first").exists()


@pytest.mark.parametrize("env", ["squared", "continuous", "gym-CartPole-v1"])
def test_its_policy_plays_images_and_continuous_actions_too(env: str) -> None:
    assert template.main([*TINY, "--env-name", env, "--num-iterations", "1"]) == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--env-name", "cartpol"], "Unknown environment `cartpol`. Did you mean `cartpole`"),
        (["--gamma", "2"], "`gamma` must be a number between 0 and 1, but got 2.0."),
        (["--env-name", "gym-FrozenLake-v1"], "`Policy` needs Box observations, not Discrete"),
    ],
)
def test_a_mistake_is_one_line(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert template.main([*TINY, *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"train_template: {line}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["--logger", "csv"], ["--save-freq", "0"], ["--num-envs", "x"]])
def test_a_mistake_in_an_argument_exits_with_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        template.main(words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize(("words", "value"), [([], "auto"), (["--compile"], "on")])
def test_compile_needs_no_value(words: list[str], value: str) -> None:
    assert template.parse(words).compile == value


def test_a_failed_save_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*args: object, **kw: object) -> None:
        raise pufferlib.errors.CheckpointError("No space left on device")

    monkeypatch.setattr(pufferlib.PuffeRL, "save_checkpoint", full)
    assert template.main(TINY) == 0

    assert capsys.readouterr().err == "No space left on device. The run continues.\n"
    assert steps() == [256, 512, 768, 1024]


def test_a_finished_run_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY[:-1], "1"]
    assert template.main(words) == 0
    capsys.readouterr()
    assert template.main(words) == 0
    captured = capsys.readouterr()
    assert "checkpoints/cartpole has trained all 1 iterations. Choose another" in captured.err
    assert "mean reward" not in captured.out
