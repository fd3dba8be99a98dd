"""`puffer check`, and what `puffer envs` tells of envs in Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pufferlib
from pufferlib.cli import main

WORLD = '''
import gymnasium
import numpy as np


class Maze(gymnasium.Env):
    """Find the way out.

    It is dark.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, size: int, prize: float | None = None, wall_color="grey", **_):
        self.size, self.prize = size, prize

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        is_out = bool(self.np_random.random() < 1 / self.size)
        return np.zeros(3, np.float32), self.prize or 0.0, is_out, False, {}


def small(prize=None):
    return Maze(4, prize)


broken = 3
'''


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the folder where the user stands; its name is returned."""
    (tmp_path / "a_dark_world.py").write_text(WORLD)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield "a_dark_world"
    sys.path[:] = path
    sys.modules.pop("a_dark_world", None)


def test_a_sound_env_of_the_working_folder_is_fine(
    world: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{world}:Maze", "--env.size", "4", "--steps", "50"]) == 0
    *lines, verdict = capsys.readouterr().out.splitlines()
    assert verdict == f"{world}:Maze: ok, 0 errors, 0 warnings, 1 note"
    assert [line.partition(" takes ")[0] for line in lines] == ["note: Maze, `step`:"]


def test_an_error_is_a_line_and_exit_1(world: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{world}:small", "--env.prize", "nan"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "error: Maze, `step`: `reward` must be finite, but got nan (float).",
        f"{world}:small: broken, 1 error, 0 warnings, 0 notes",
    ]
    assert err == ""


def test_an_env_that_cannot_be_made_is_an_error(
    world: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{world}:Maze"]) == 1  # `size` has no default
    assert capsys.readouterr().out.startswith("error: Maze, `__init__`: raised TypeError: ")


def test_names_are_checked_too(world: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "cartpole", "--steps", "50"]) == 0
    assert main(["check", "ocean-snake", "--steps", "50", "--env.width", "32"]) == 0
    pufferlib.register("a-dark-world", f"{world}:Maze", {"size": 3})
    assert main(["check", "A_Dark_World", "--steps", "50"]) == 0
    verdicts = [line for line in capsys.readouterr().out.splitlines() if ": ok, " in line]
    assert [line.partition(":")[0] for line in verdicts] == [
        "cartpole",
        "ocean-snake",
        "A_Dark_World",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required"),
        (["no-such-env"], "Unknown environment `no-such-env`"),
        (["cartpol"], "Did you mean `cartpole`"),
        (["no_such_module:Env"], "must name an importable object"),
        (["a_dark_world:Maz"], "module 'a_dark_world' has no attribute 'Maz'"),
        (["a_dark_world:broken"], "must be the class or a factory of envs, but is neither"),
        (["a_dark_world:small", "--env.prise", "1"], "`prise`. Did you mean `prize`?"),
        (["cartpole", "--env.gravty", "1"], "`gravty`. Did you mean `gravity`?"),
        (["cartpole", "--train.gamma", "1"], "only --env params can be set here"),
        (["cartpole", "--steps", "0"], "`steps` must be a whole number of at least 1"),
        (["cartpole", "--step", "5"], "Did you mean `--steps`?"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(
    world: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert said in err


def test_envs_shows_a_python_env(
    world: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    pufferlib.register("a-dark-world", f"{world}:Maze", {"size": 3})
    assert main(["envs", "a-dark-world"]) == 0
    registered = capsys.readouterr().out
    assert main(["envs", f"{world}:Maze", "--env.size", "8"]) == 0
    unregistered = capsys.readouterr().out
    for out in (registered, unregistered):
        for fact in ("Box(0.0, 1.0, (3,), float32)", "Discrete(4)", "Find the way out."):
            assert fact in out
        assert "It is dark" not in out
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in registered.splitlines()
        if "--env." in line
    ]
    assert rows == [
        ["--env.size", "3", "int"],
        ["--env.prize", "None", "float | None"],
        ["--env.wall-color", "'grey'", ""],
    ]
    assert "must be given" in unregistered


def test_envs_says_how_the_names_of_each_family_are_formed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.partition("families:\n")[2].splitlines()
    forms = {line.split()[0]: line.split()[1] for line in lines}
    assert forms["ocean"] == forms["registered"] == "NAME"
    assert forms["gym"] == "gym-NAME"
    assert forms["pettingzoo"] == "pettingzoo-NAME"
    assert "module:Object" in forms


def test_a_family_lists_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "gym"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert "gym-CartPole-v1" in names
    assert all(name.startswith("gym-") for name in names)


def test_help_tells_of_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "\n  check " in capsys.readouterr().out
    assert main(["check", "--help"]) == 0
    assert "--steps" in capsys.readouterr().out
