"""`puffer envs`: lists all envs or a family, and describes one in C or Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pufferlib
from pufferlib import registry
from pufferlib.cli import main


def test_envs_lists_all_environments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in pufferlib.list_envs())


def test_the_list_as_json_has_the_spaces_of_c_envs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert list(listed) == pufferlib.list_envs()
    assert listed["connect4"] == {
        "name": "connect4",
        "group": "boards",
        "about": "drop stones; four in a line win",
        "observations": "float32 42",
        "actions": "7",
        "agents": 1,
        "action_masks": True,
    }
    assert main(["envs", "snake", "--json"]) == 2
    assert "`--json` must be used without a name" in capsys.readouterr().err


def test_a_registered_env_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    pufferlib.register("my-own", lambda: None)
    assert main(["envs"]) == 0
    assert "my-own" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["connect4", "ocean-connect4"])
def test_one_env_is_shown_with_params_metrics_and_a_picture(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["envs", name, "--picture", "board.png", "--env.opponent", "self"]) == 0
    out = capsys.readouterr().out
    for text in ("Discrete(7)", "opponent-random", "scripted|self|random", "moves", "picture:"):
        assert text in out

    image = pytest.importorskip("PIL.Image")
    picture = np.asarray(image.open("board.png"))
    assert picture.ndim == 3
    assert picture.std() > 10


def test_pictures_are_reproducible() -> None:
    for name in ("a.png", "b.png"):
        assert main(["envs", "snake", "--picture", name]) == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


def test_a_param_of_the_env_needs_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["envs", "snake", "--env.leave-corpse"]) == 2
    assert "`--env.leave-corpse` must have a value" in capsys.readouterr().err
    assert main(["envs", "snake", "--env.leave-corpse", "true"]) == 0


def test_envs_shows_a_python_env(
    world: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.syspath_prepend(str(Path.cwd()))
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
    assert "required" in unregistered


def test_envs_shows_the_form_of_names_of_each_family(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["envs"]) == 0
    lines = capsys.readouterr().out.partition("families\n")[2].partition("\n\n")[0].splitlines()
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


def test_a_family_without_its_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "list_envs", lambda family: [])
    assert main(["envs", "atari"]) == 2
    assert "Try pip install 'pufferlib[atari]'." in capsys.readouterr().err
