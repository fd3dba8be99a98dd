"""Families of ids that a package registers with Gymnasium, tried with a package of our own."""

from __future__ import annotations

import importlib
import logging
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

import pufferlib
from pufferlib import registry
from pufferlib.errors import MissingExtraError, UnknownNameError
from pufferlib.integrations.packages import gymnasium_as_gym, quietly
from pufferlib.integrations.registered import Creator, RegisteredFamily, named_after

IDS = ["Walk-Empty-5x5-v0", "Walk-Empty-8x8-v0", "Walk-Empty-8x8-v1", "Walk-DoorKey-6x6-v0"]


class Walk(gymnasium.Env[Any, Any]):
    """Observes its speed and the offset that a wrapper adds."""

    observation_space = gymnasium.spaces.Box(0, 99, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, speed: int = 1) -> None:
        self.speed = speed

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([self.speed, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        return np.array([self.speed, 0], np.float32), 0.0, False, False, {}


class Offset(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Adds `offset` to the second number."""

    def __init__(self, env: Any, offset: int = 3) -> None:
        super().__init__(env)
        self.offset = offset

    def observation(self, observation: Any) -> Any:
        return observation + np.array([0, self.offset], np.float32)


@pytest.fixture
def walks(
    monkeypatch: pytest.MonkeyPatch, stand_in: Callable[..., ModuleType]
) -> Iterator[RegisteredFamily]:
    stand_in("walks")
    for id in IDS:
        gymnasium.register(id, Walk)
    family = RegisteredFamily(
        "walk",
        "walks",
        named_after("Walk-"),
        "pip install walks",
        wrap=Offset,
        defaults={"speed": 2},
        single="doorkey",
    )
    module = stand_in("pufferlib.integrations.walks", find=family.find, names=family.names)
    entry = registry.Family("walks", module.__name__, single=True)
    monkeypatch.setitem(registry.FAMILIES, "walk", entry)
    yield family
    for id in IDS:
        gymnasium.registry.pop(id)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("walk-empty-8x8", "walk-empty-8x8-v1"),  # the newest version
        ("Walk_Empty_8x8_v0", "walk-empty-8x8-v0"),
        ("walk-door-key-6x6", "walk-doorkey-6x6-v0"),  # dashes do not count
        ("walk-empty", "walk-empty-5x5-v0"),  # the first that begins so
        ("walk", "walk-doorkey-6x6-v0"),  # the name alone
    ],
)
def test_a_name_has_many_spellings(walks: RegisteredFamily, name: str, id: str) -> None:
    assert registry.find(name).id == id
    assert registry.find(id).id == id


@pytest.mark.parametrize("is_named", [True, False])
def test_a_package_is_imported_in_silence(
    is_named: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lines = [
        "import sys, warnings",
        "warnings.warn('pkg_resources is deprecated as an API')",
        "print('Gym has been unmaintained since 2022', file=sys.stderr)",
        f"from {__name__} import Walk",
        "def make(): return Walk()",
    ]
    (tmp_path / "noisy.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    with quietly():
        entry_point = "noisy:make" if is_named else importlib.import_module("noisy").make
    spec = gymnasium.envs.registration.EnvSpec("Noisy-v0", entry_point=entry_point)
    data = pickle.dumps(Creator(spec, "gym-Noisy"))
    del sys.modules["noisy"]  # as in a worker
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(pickle.loads(data)().unwrapped, Walk)
    assert "noisy" in sys.modules
    assert capfd.readouterr().err == ""


def test_a_logger_made_in_a_quiet_import_is_heard_later(capsys: pytest.CaptureFixture[str]) -> None:
    with quietly():
        handler = logging.StreamHandler()
        sys.stderr.write("noise")
    handler.emit(logging.makeLogRecord({"msg": "news"}))
    assert capsys.readouterr().err == "news\n"


def test_names_are_the_newest_versions(walks: RegisteredFamily) -> None:
    listed = ["walk", "walk-empty-5x5", "walk-empty-8x8", "walk-doorkey-6x6"]
    assert pufferlib.list_envs("walk") == listed


def test_params_of_env_wrapper_and_gymnasium_are_known(walks: RegisteredFamily) -> None:
    with pufferlib.make("walk-empty", num_envs=2) as vecenv:
        assert vecenv.reset().tolist() == [[2, 3], [2, 3]]  # the family's speed, our offset
    with pufferlib.make("walk-empty", num_envs=1, speed=5, offset=7, max_episode_steps=1) as vecenv:
        assert vecenv.reset().tolist() == [[5, 7]]
        vecenv.step(0)
        assert vecenv.truncations.all()
    with pytest.raises(UnknownNameError, match=r"`ofset`\. Did you mean `offset`"):
        pufferlib.make("walk-empty", ofset=1)


def test_an_unknown_name_suggests_the_nearest(walks: RegisteredFamily) -> None:
    with pytest.raises(UnknownNameError, match=r"`walk-emty-8x8`\. Did you mean `walk-empty-8x8`"):
        registry.find("walk-emty-8x8")


def test_a_missing_package_is_one_line(walks: RegisteredFamily, hide: Callable[..., None]) -> None:
    hide("walks")
    with pytest.raises(MissingExtraError) as caught:
        registry.find("walk-empty")
    assert (
        str(caught.value) == "`walk-empty` needs walks, which is not installed: pip install walks"
    )
    assert walks.names() == []


def test_a_package_whose_import_fails_names_what_is_missing(
    walks: RegisteredFamily, hide: Callable[..., None]
) -> None:
    walks.module = "no_such_walks.registration"
    with pytest.raises(MissingExtraError, match="needs no_such_walks, which is not installed"):
        walks.find("empty")


def test_gym_is_gymnasium_only_while_asked_for(
    stand_in: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith("gym.")]:
        monkeypatch.delitem(sys.modules, name)  # a package of another test may have loaded gym
    own = stand_in("gym")
    with gymnasium_as_gym():
        import gym
        from gym import spaces

        assert gym is gymnasium
        assert spaces is gymnasium.spaces
    assert sys.modules["gym"] is own
    del sys.modules["gym"]
    with gymnasium_as_gym():
        pass
    assert "gym" not in sys.modules
    assert "gym.spaces" not in sys.modules
