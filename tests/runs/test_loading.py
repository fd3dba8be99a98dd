"""A policy from a checkpoint plays as it did in its run, without trainer and without env."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import Tensor, nn

import pufferlib
from pufferlib.cli import main
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.models import make_policy
from pufferlib.runs import checkpoint
from pufferlib.runs.evaluation import evaluate_policy
from pufferlib.runs.loading import LoadedPolicy
from pufferlib.spaces import space_from_json, space_to_json
from pufferlib.training.trainer import PuffeRL

SMALL: dict[str, Any] = {
    "batch_size": 64,
    "n_epochs": 1,
    "learning_rate": 0.01,
    "device": "cpu",
    "dashboard": "off",
}


def trained(env: Any, policy: nn.Module | None = None, **settings: Any) -> PuffeRL:
    trainer = PuffeRL(env, policy, **{**SMALL, **settings})
    for _ in range(2):
        trainer.evaluate()
        trainer.train()
    return trainer


class Shapes(pufferlib.PufferEnv):
    """Observations of several leaves; the reward is nothing."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.observation_space = Dict(
            OrderedDict(
                vector=Box(-2, 2, (3,), np.float32),
                image=Box(0, 255, (8, 8, 3), np.uint8),
                choice=Discrete(4),
            )
        )
        self.action_space = MultiDiscrete([3, 2])

    def reset(self) -> Any:
        return self.observation_space.sample()

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, False, {}


# ---- The same actions ----------------------------------------------------------------------------


@pytest.mark.parametrize("recurrent", ["none", "lstm", "gru", "mingru", "transformer"])
def test_a_loaded_policy_predicts_what_its_trainer_does(recurrent: Any, tmp_path: Path) -> None:
    with pufferlib.make("cartpole", num_envs=8, num_workers=1) as vecenv:
        policy = make_policy(vecenv, hidden_size=8, recurrent=recurrent)
        trainer = trained(vecenv, policy, norm_obs=True)
        trainer.save_checkpoint(tmp_path / "a.safetensors", {"note": 1})
        loaded = pufferlib.load(tmp_path / "a.safetensors")
        assert isinstance(loaded, LoadedPolicy)
        assert not any(module.training for module in loaded.modules())
        assert loaded.metadata == {"note": 1}
        rows = np.random.default_rng(0).normal(size=(20, 5, 4)).astype(np.float32)
        own = state = None
        for row in rows:  # the recurrent state is passed on
            wanted, own = trainer.predict(row, own)
            actions, state = loaded.predict(row, state)
            assert actions.tolist() == wanted.tolist()
        one, _ = loaded.predict(rows[0, 0])
        assert one.shape == ()
        draws = {int(loaded.predict(rows[0, 0], deterministic=False)[0]) for _ in range(200)}
        assert draws == {0, 1}


@pytest.mark.slow
def test_structured_observations_and_actions_come_back(tmp_path: Path) -> None:
    with pufferlib.emulate(Shapes, num_envs=4) as vecenv:
        trainer = trained(vecenv)
        trainer.save_checkpoint(tmp_path / "a.safetensors")
        loaded = pufferlib.load(str(tmp_path / "a.safetensors"))
        value = vecenv.observation_space.sample()
        rows = vecenv.reset(seed=1)
        masks = np.array([False, True, False, True, False])
        for observations in (rows, value):  # flat rows, and one value of the space
            for legal in (None, masks):
                wanted, _ = trainer.predict(observations, action_masks=legal)
                actions, _ = loaded.predict(observations, action_masks=legal)
                assert actions.tolist() == wanted.tolist()
        assert loaded.predict(value, action_masks=masks)[0].tolist() == [1, 0]


@pytest.mark.parametrize("norm_obs", [False, True])
def test_an_evaluation_applies_the_statistics_of_the_run_by_itself(
    norm_obs: bool, tmp_path: Path
) -> None:
    with pufferlib.make("cartpole", num_envs=8, num_workers=1) as vecenv:
        trainer = trained(vecenv, make_policy(vecenv, hidden_size=8), norm_obs=norm_obs)
        trainer.save_checkpoint(tmp_path / "a.safetensors")
        loaded = pufferlib.load(tmp_path / "a.safetensors")
        wanted = evaluate_policy(
            vecenv, trainer.policy, 16, normalise=trainer.observation_norm, deterministic=True
        )
        for policy in (trainer, trainer.policy, loaded, loaded.policy):
            scores = pufferlib.evaluate_policy(vecenv, policy, 16, deterministic=True)
            assert scores == wanted
        raw = evaluate_policy(vecenv, trainer.policy, 16, normalise=lambda rows: rows)
        assert (raw != wanted) or not norm_obs


def test_an_env_of_another_form_is_refused(tmp_path: Path) -> None:
    with (
        pufferlib.make("cartpole", num_envs=8, num_workers=1) as vecenv,
        pufferlib.make("squared", num_envs=2, num_workers=1) as other,
    ):
        trained(vecenv).save_checkpoint(tmp_path / "a.safetensors")
        loaded = pufferlib.load(tmp_path / "a.safetensors")
        with pytest.raises(UsageError, match="`env` must have the observation space of the policy"):
            evaluate_policy(other, loaded, 1)
        with pytest.raises(UsageError, match=r"but got the result of `load`. Try its `policy`"):
            PuffeRL(vecenv, loaded, **SMALL)
        assert PuffeRL(vecenv, loaded.policy, **SMALL).evaluate()


# ---- Which file ----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of the command line, in a working folder of its own."""
    monkeypatch.chdir(tmp_path)
    words = ["--vec.num-envs=8", "--train.batch-size=256", "--train.num-iterations=3"]
    words += ["--train.dashboard=off", "--policy.hidden-size=8", "--policy.recurrent=gru"]
    assert main(["train", "cartpole", *words, "--train.norm-obs"]) == 0
    (folder,) = Path("runs").iterdir()
    return folder


def test_a_run_of_the_command_line_loads_in_python(run: Path) -> None:
    rows = np.linspace(-1, 1, 4, dtype=np.float32)
    names = (run, str(run), run.name, run / "latest.safetensors", run / "best.safetensors")
    answers = {int(pufferlib.load(name).predict(rows)[0]) for name in names}
    assert len(answers) == 1
    loaded = pufferlib.load(run)
    assert loaded.observation_norm is not None
    assert type(loaded.policy).__name__ == "RecurrentWrapper"
    with pytest.raises(UsageError, match="must be a checkpoint, the folder of a run or a run in"):
        pufferlib.load("nowhere")
    with pytest.raises(UsageError, match="must be a checkpoint"):
        pufferlib.load("nowhere.safetensors")


@pytest.mark.parametrize("norm_obs", [False, True])
def test_a_checkpoint_of_python_plays_on_the_command_line(
    norm_obs: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pufferlib.make("cartpole", num_envs=8, num_workers=1) as vecenv:
        policy = make_policy(vecenv, hidden_size=24, num_layers=1)
        trained(vecenv, policy, norm_obs=norm_obs).save_checkpoint("mine.safetensors")
        wanted = evaluate_policy(vecenv, pufferlib.load("mine.safetensors"), 12, seed=3)
    words = ["--checkpoint", "mine.safetensors", "--episodes=12", "--num-envs=8", "--seed=3"]
    assert main(["eval", "cartpole", *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {key: printed[key] for key in wanted} == wanted
    assert main(["eval", "cartpole", *words]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "cartpole, mine.safetensors"
    assert main(["eval", "squared", *words]) == 2
    assert "`env` must have the observation space of the policy" in capsys.readouterr().err


# ---- Policies that a file cannot bring along -----------------------------------------------------


class Own(nn.Module):
    """A policy of the user's own."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)
        self.extra = nn.Linear(width, 1)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(observations), self.critic(observations)


def test_a_policy_of_the_users_own_is_passed_and_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.safetensors"
    with pufferlib.make("cartpole", num_envs=8, num_workers=1) as vecenv:
        trainer = trained(vecenv, Own())
        trainer.save_checkpoint(path)
    saved = checkpoint.load(path)
    saved.values["policy"]["class"] = "evil.Policy\x1b[31m" + "x" * 1000
    checkpoint.save(path, saved.tensors, saved.values)
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CheckpointError, match="only default policies can be built from a file"):
        pufferlib.load(path)
    assert main(["eval", "cartpole", "--checkpoint", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "\x1b" not in error
    assert len(error) < 500
    assert "evil" not in sys.modules
    loaded = pufferlib.load(path, policy=Own())
    rows = np.ones((3, 4), np.float32)
    assert loaded.predict(rows)[0].tolist() == trainer.predict(rows)[0].tolist()
    with pytest.raises(CheckpointError, match=r"must fit the policy, but `extra.weight` is"):
        pufferlib.load(path, policy=Own(width=3))


def test_files_that_are_forged_or_old_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pufferlib.make("cartpole", num_envs=8, num_workers=1) as vecenv:
        trained(vecenv, make_policy(vecenv, hidden_size=8)).save_checkpoint(path)
    good = checkpoint.load(path).values
    box = {"box": [4], "low": -1.0, "high": 1.0, "dtype": "float32"}
    spaces: list[Any] = [
        None,
        {},
        {"box": [2**40], "low": 0.0, "high": 1.0, "dtype": "float32"},
        {"box": [4], "low": None, "high": None, "dtype": "float32"},
        {"box": [4], "low": "a", "high": 1.0, "dtype": "float32"},
        {"box": [4], "low": [1.0, 2.0], "high": 1.0, "dtype": "float32"},
        {"box": [4], "low": 0.0, "high": 1.0, "dtype": "object"},
        {"box": [True], "low": 0.0, "high": 1.0, "dtype": "float32"},
        {"discrete": 10**30, "start": 0},
        {"discrete": 2**40, "start": 0},
        {"discrete": -3, "start": 0},
        {"multi_discrete": "many", "start": 0, "dtype": "int64"},
        {"multi_binary": [2**30]},
        {"dict": [["a", box], ["b"]]},
        {"dict": [[["no", "key"], box]]},
        {"tuple": [{"tuple": []}]},
        {"os.system": "ls"},
    ]
    forged: list[dict[str, Any]] = [
        {"spaces": {**good["spaces"], noun: space}}
        for space in spaces
        for noun in ("observation", "action")
    ]
    for options in (
        {"hidden_size": 65536},
        {"hidden_size": 65536, "recurrent": "lstm"},
        {"hidden_size": -1},
        {"hidden_size": "large"},
        {"num_layers": 1024},
        {"depth": 3},
        {"env": 1},
        3,
    ):
        forged.append({"policy": {"class": "pufferlib.models.MLP", "options": options}})
    forged += [{"policy": None}, {"policy": {}}, {"spaces": 3}, {"spaces": {}}]
    tensors = checkpoint.load(path).tensors
    for change in forged:
        checkpoint.save(path, tensors, {**good, **change})
        with pytest.raises(CheckpointError) as caught:
            pufferlib.load(path)
        assert "\n" not in str(caught.value), change
        assert len(str(caught.value)) < 600, change
    older = {name: fact for name, fact in good.items() if name not in ("policy", "spaces")}
    checkpoint.save(path, tensors, older)
    with pytest.raises(CheckpointError, match=r"older versions saved none. Try `PuffeRL"):
        pufferlib.load(path)


# ---- Spaces in a file ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        Box(-1, 1, (4,), np.float32),
        Box(np.array([-np.inf, 0]), np.array([3, np.inf]), dtype=np.float64),
        Box(0, 255, (8, 8, 3), np.uint8),
        Box(-1, 1, (), np.float32),
        Discrete(5),
        Discrete(5, start=-2),
        MultiDiscrete([2, 3]),
        MultiDiscrete([[2, 3], [4, 5]], start=[[0, 1], [2, 3]]),
        MultiBinary(4),
        MultiBinary((2, 3)),
        Tuple((Discrete(2), Box(0, 1, (2,)))),
        Dict(OrderedDict(z=Discrete(2), a=Dict(b=Tuple((MultiBinary(2), Discrete(3)))))),
    ],
)
def test_spaces_come_back_equal(space: Any) -> None:
    back = space_from_json(json.loads(json.dumps(space_to_json(space))))
    assert back == space
    assert str(back) == str(space)  # the order of keys too: rows depend on it
    assert back.dtype == space.dtype


def test_a_space_with_too_many_bounds_is_not_saved() -> None:
    space = Box(np.arange(70_000, dtype=np.float32), np.full(70_000, 1e6, np.float32))
    assert len(json.dumps(space_to_json(space))) < 200
    with pytest.raises(ValueError, match="more than 65536 different bounds"):
        space_from_json(space_to_json(space))


def test_weights_are_those_of_the_file(tmp_path: Path) -> None:
    with pufferlib.make("cartpole", num_envs=8, num_workers=1) as vecenv:
        trainer = trained(vecenv)
        trainer.save_checkpoint(tmp_path / "a.safetensors")
    loaded = pufferlib.load(tmp_path / "a.safetensors")
    for name, part in trainer.policy.state_dict().items():
        assert torch.equal(part, loaded.policy.state_dict()[name])
