"""Errors and warnings on the command line: the line of the user, and flags as they were typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pufferlib import registry
from pufferlib.cli import main
from pufferlib.cli.messages import in_words_of, report

TINY = ["--vec.num-envs=2", "--train.batch-size=64", "--train.num-iterations=1"]
TINY += ["--train.dashboard=off"]
MODULE = """
import gymnasium
import numpy as np


class Sound(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    ticks = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.ticks += 1
        return np.zeros(2, np.float32), 0.0, self.ticks % 5 == 0, False, {}


class Broken(Sound):
    def step(self, action):
        if self.ticks == 17:
            self.look()
        return super().step(action)

    def look(self):
        raise KeyError("boom")  # line 27
"""
SAID = "Broken (env 0), `step`: raised KeyError: 'boom' (worlds_of_mine.py:27, in look)"


@pytest.fixture(autouse=True)
def own_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Path("worlds_of_mine.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    yield
    sys.modules.pop("worlds_of_mine", None)


# ---- Exceptions of the user's code ---------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", "multiprocessing"])
def test_an_exception_of_an_env_shows_its_line(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "worlds_of_mine:Broken", *TINY, f"--vec.backend={backend}"]
    assert main(words) == 2
    assert capsys.readouterr().err == f"puffer: {SAID}\n"


def test_check_and_eval_show_the_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "worlds_of_mine:Broken"]) == 1
    assert f"error: {SAID.replace(' (env 0)', '')}\n" in capsys.readouterr().out
    assert main(["train", "worlds_of_mine:Sound", *TINY]) == 0
    (run,) = Path("runs").iterdir()
    config = run / "config.json"
    config.write_text(config.read_text().replace("mine:Sound", "mine:Broken"))
    capsys.readouterr()
    words = ["eval", "worlds_of_mine:Broken", "--checkpoint", str(run), "--episodes=9"]
    assert main([*words, "--num-envs=1"]) == 2
    assert f"puffer: {SAID}\n" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "check"])
def test_traceback_shows_all_calls(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*TINY, "--vec.backend=multiprocessing"] if command == "train" else []
    main([command, "worlds_of_mine:Broken", "--traceback", *words])
    err = capsys.readouterr().err
    assert 'worlds_of_mine.py", line 23, in step' in err
    assert 'worlds_of_mine.py", line 27, in look' in err


def test_a_module_that_cannot_be_imported_shows_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("worlds_of_mine.py").write_text("\n\nboom\n")
    assert main(["train", "worlds_of_mine:Env"]) == 2
    said = "name 'boom' is not defined (worlds_of_mine.py:3, in <module>)\n"
    assert capsys.readouterr().err.endswith(said)


def test_an_exception_of_a_users_policy_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    class Policy(torch.nn.Module):
        def forward(self, observations: object) -> None:
            raise LookupError("no such layer")

    with pytest.raises(LookupError) as caught:
        Policy()(None)
    assert report(caught.value, ["train"]) == 1
    line = Policy.forward.__code__.co_firstlineno + 1
    path = os.path.abspath(__file__)
    assert capsys.readouterr().err == (
        f"puffer: LookupError: no such layer ({path}:{line}, in forward). See all calls with "
        "`--traceback`.\n"
    )


def test_an_exception_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="no place"):
        report(ValueError("no place"), ["train"])


# ---- Flags ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message", "said"),
    [
        (["--env.brick-rows", "300"], "`brick_rows` must be 1", "`--env.brick-rows` must be 1"),
        (["--vec.num-envs=3"], "a smaller `num_envs`.", "a smaller `--vec.num-envs`."),
        (["--seconds", "0"], "`seconds` must be above 0", "`--seconds` must be above 0"),
        (["--run", "x"], "`--checkpoint` must be", "`--run` must be"),
        ([], "Try device='cpu'.", "Try `--train.device cpu`."),
        ([], "Try `opponent='self'` if", "Try `--env.opponent self` if"),
        ([], "Try norm_obs=False.", "Try `--train.norm-obs false`."),
        (["--", "--seconds"], "`seconds` must be", "`seconds` must be"),
        (["--checkpoint", "x"], "`--checkpoint` must be", "`--checkpoint` must be"),
    ],
)
def test_a_message_names_the_flag(words: list[str], message: str, said: str) -> None:
    assert in_words_of(words, message) == said


def test_weights_of_another_env_name_the_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "squared", *TINY]) == 0
    (run,) = Path("runs").iterdir()
    capsys.readouterr()
    assert main(["train", "cartpole", *TINY, "--from", str(run)]) == 2
    assert "`env` must have the observation space of the checkpoint" in capsys.readouterr().err


# ---- Warnings ------------------------------------------------------------------------------------


def test_warnings_look_like_errors() -> None:
    words = ["train", "cartpole", *TINY, "--train.batch-size=65", "--train.run-dir=elsewhere"]
    ran = subprocess.run(
        [sys.executable, "-m", "pufferlib", *words], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0
    assert ran.stderr == (
        "puffer: `--train.batch-size` is rounded from 65 to 64, a multiple of the 2 slots.\n"
    )


def test_warnings_of_others_have_a_place() -> None:
    more = "\nimport warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=1)\n"
    Path("worlds_of_mine.py").write_text(MODULE + more)
    ran = subprocess.run(
        [sys.executable, "-W", "always", "-m", "pufferlib", "check", "worlds_of_mine:Sound"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "puffer: old (DeprecationWarning, " in ran.stderr
    assert "worlds_of_mine.py:30)\n" in ran.stderr


# ---- The end of a run ----------------------------------------------------------------------------


def test_a_run_without_a_dashboard_ends_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "cartpole", *TINY]) == 0
    (run,) = Path("runs").iterdir()
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith(f"{run}: ")
    assert ", 64 steps in " in out[-1]


def test_folders_of_runs_have_no_colon_and_old_ones_are_found() -> None:
    name = "worlds_of_mine:Sound"
    assert main(["train", name, *TINY]) == 0
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("worlds_of_mine.Sound-")
    assert main(["eval", name, "--episodes=2"]) == 0
    run.rename(run.with_name(run.name.replace(".", ":")))
    assert main(["eval", name, "--episodes=2"]) == 0
