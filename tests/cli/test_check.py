"""`puffer check`: its report on valid, broken and missing envs."""

from __future__ import annotations

from pathlib import Path

import pytest

import pufferlib
from pufferlib.cli import main


def test_a_valid_env_of_the_working_folder_passes(
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


def test_registered_names_can_be_checked(
    world: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))  # a name does not: only `module:Object` looks here
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
        (["a_dark_world:broken"], "must be a class or a factory of envs, but got neither"),
        (["a_dark_world:small", "--env.prise", "1"], "`prise`. Did you mean `prize`?"),
        (["cartpole", "--env.gravty", "1"], "`gravty`. Did you mean `gravity`?"),
        (["cartpole", "--train.gamma", "1"], "only --env params can be set here"),
        (["cartpole", "--steps", "0"], "`--steps` must be at least 1, but got 0"),
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


def test_help_lists_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "\n  check " in capsys.readouterr().out
    assert main(["check", "--help"]) == 0
    assert "--steps" in capsys.readouterr().out
