"""Envs of the user, `puffer train|eval|bench|resume module:Env`, and animations of envs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from pufferlib import registry
from pufferlib.cli import main
from pufferlib.cli.eval import with_pictures
from pufferlib.config import Config

WORDS = ["--vec.num-envs=4", "--train.batch-size=64", "--train.num-iterations=2"]
WORDS += ["--train.dashboard=off"]
MODULE = '''
import gymnasium
import numpy as np


class Walk(gymnasium.Env):
    """Walks `length` steps; each earns 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, length=5, render_mode=None):
        self.observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.length, self.render_mode = length, render_mode

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.place += 1
        ended = self.place == self.length
        return np.zeros(2, np.float32), 1.0, ended, False, {"walked": self.place} if ended else {}

    def render(self):
        return np.full((16, 24, 3), self.place, np.uint8) if self.render_mode else None


def factory(length=3):
    return Walk(length)


number = 3
'''


@pytest.fixture(autouse=True)
def own_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the working folder, which is not on the path; forgotten afterwards."""
    name = "walks_of_mine"
    Path(f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part not in ("", ".")])
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    yield name
    sys.modules.pop(name, None)


def scores(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return reported


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_users_class_trains_resumes_and_plays(
    workers: str, own_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{own_module}:Walk"
    words = [*WORDS, f"--vec.num-workers={workers}"]
    assert main(["train", name, *words, "--env.length", "7"]) == 0
    (run,) = Path("runs").iterdir()
    assert json.loads((run / "config.json").read_text())["name"] == name
    assert main(["resume", name, "--train.num-iterations=3"]) == 0
    capsys.readouterr()
    assert main(["eval", name, "--episodes=6", "--json"]) == 0
    reported = scores(capsys)
    assert (reported["env"], reported["episodes"], reported["mean_reward"], reported["walked"]) == (
        name,
        6,
        7,
        7,
    )
    assert main(["eval", name, "--checkpoint", str(run), "--env.length=4", "--json"]) == 0
    assert scores(capsys)["episode_length"] == 4


def test_a_factory_can_be_measured_and_trained(
    own_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"{own_module}:factory"
    for mode in ("sim", "train"):
        words = ["--mode", mode, "--seconds=0.05", "--num-envs=2", "--json"]
        assert main(["bench", name, *words, *WORDS[1:2]]) == 0
        reported = scores(capsys)
        assert (reported["env"], reported["mode"]) == (name, mode)
        assert reported["sps"] > 0


def test_measured_sizes_are_written_and_kept_by_a_resume(
    own_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pufferlib.vectorization import backends

    monkeypatch.setattr(backends, "usable_cores", lambda: 2)
    monkeypatch.setattr(backends, "step_seconds", lambda creator: 1.0)
    name, words = f"{own_module}:Walk", ["--train.dashboard=off", "--vec.num-envs=2"]
    assert main(["train", name, "--train.num-iterations=1", *words]) == 0
    (run,) = Path("runs").iterdir()

    def batch_size() -> int:
        return int(json.loads((run / "config.json").read_text())["train"]["batch_size"])

    assert batch_size() == 2 * 16  # 2048 steps would take 17 minutes
    monkeypatch.setattr(backends, "step_seconds", lambda creator: 1e-6)
    assert main(["resume", name, "--train.num-iterations=2", "--train.dashboard=off"]) == 0
    assert batch_size() == 2 * 16
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in rows] == [32, 64]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("walks_of_mine:Wlk", "must name an importable object, but got `walks_of_mine:Wlk`"),
        ("no_such_module:Env", "must name an importable object, but got `no_such_module:Env`"),
        ("walks_of_mine:number", "must be a class or a factory of envs, but got neither"),
    ],
)
@pytest.mark.parametrize("command", ["train", "eval", "bench", "resume"])
def test_an_invalid_env_is_reported_in_one_line(
    command: str, word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, word]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not Path("runs").exists()


def test_an_unknown_param_of_a_users_env_is_reported(
    own_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", f"{own_module}:Walk", *WORDS, "--env.lenght=3"]) == 2
    assert "Did you mean `length`?" in capsys.readouterr().err


def test_a_module_that_only_a_file_names_is_not_imported(
    own_module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", f"{own_module}:Walk", *WORDS]) == 0
    (run,) = Path("runs").iterdir()
    sys.modules.pop(own_module)
    registry._registered.clear()
    Path(f"{own_module}.py").write_text("raise SystemExit('imported')")
    capsys.readouterr()
    assert main(["resume", str(run)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"is a run of `{own_module}:Walk`" in error
    assert "Try `puffer resume` with that name" in error


# ---- Films ---------------------------------------------------------------------------------------


def frames_of(path: str) -> list[Any]:
    image = pytest.importorskip("PIL.Image")
    with image.open(path) as film:
        frames = []
        for number in range(film.n_frames):
            film.seek(number)
            frames.append(np.asarray(film.convert("RGB")))
        return frames


def test_an_animation_sets_the_render_mode(own_module: str) -> None:
    name = f"{own_module}:Walk"
    assert main(["train", name, *WORDS]) == 0
    assert main(["eval", name, "--episodes=2", "--num-envs=1", "--gif", "walk.gif"]) == 0
    frames = frames_of("walk.gif")
    assert frames[0].shape == (16, 24, 3)
    assert len(frames) > 1


@pytest.mark.parametrize(
    ("default", "params"), [(None, {"render_mode": "rgb_array"}), ("pixel", {})]
)
def test_an_animation_keeps_the_mode_of_a_family(
    default: str | None, params: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(render_mode: str) -> None: ...

    monkeypatch.setattr(registry, "_registered", {})
    registry.register("drawn", drawn, {"render_mode": default})
    assert with_pictures(Config(name="drawn")) == params


def test_an_animation_of_a_gymnasium_env(monkeypatch: pytest.MonkeyPatch) -> None:
    sys.path.insert(0, str(Path.cwd()))
    from walks_of_mine import Walk  # type: ignore[import-not-found]

    monkeypatch.setitem(
        gymnasium.registry,
        "Walks-v0",
        gymnasium.envs.registration.EnvSpec("Walks-v0", entry_point=Walk, max_episode_steps=4),
    )
    assert main(["train", "gym-Walks-v0", *WORDS]) == 0
    assert main(["eval", "gym-Walks-v0", "--episodes=1", "--gif", "walk.gif"]) == 0
    assert len(frames_of("walk.gif")) > 1
