"""Envs that break their contract, in worker processes: the very lines that Serial gives (R5)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty import Faulty, nothing_left
from gymnasium.spaces import Box
from malformed import CASES, Gym, Unmakeable, without_place
from waiting import wait_until, watchdog

import pufferlib
from pufferlib.errors import EnvError, UsageError
from pufferlib.vectorization import Multiprocessing

FORK: Any = {"start_method": "fork"}


@pytest.fixture(autouse=True, scope="module")
def clean() -> Iterator[None]:
    with watchdog(600), nothing_left():
        yield


def run(create: Any, num_envs: int = 1, num_workers: int = 1) -> None:
    with pufferlib.emulate(
        create, num_envs=num_envs, num_workers=num_workers, backend="multiprocessing", vec=FORK
    ) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(0)
        vecenv.step(1)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_line_is_that_of_serial(name: str) -> None:
    with pytest.raises((EnvError, UsageError)) as caught:
        run(CASES[name].create)
    assert without_place(str(caught.value)) == CASES[name].said


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("reset raises", 'raise KeyError("level")'),
        ("action refused", "is not allowed"),
        ("constructor raises", "raise FileNotFoundError("),
    ],
)
def test_the_traceback_of_the_env_is_chained(name: str, shown: str) -> None:
    with pytest.raises(EnvError) as caught:
        run(CASES[name].create)
    cause = str(caught.value.__cause__)
    assert "Traceback (most recent call last)" in cause
    assert "malformed.py" in cause
    assert shown in cause


def test_the_index_is_that_of_the_env_in_the_whole_vector() -> None:
    class Odd(Faulty):
        """Breaks at the chosen call."""

        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(0)
            return observation, None if action == 1 else 1.0, *rest

    with Multiprocessing(Odd, 5, 2, **FORK) as vecenv:
        for env in range(5):
            vecenv.reset(seed=0)
            actions = [int(i == env) for i in range(5)]
            with pytest.raises(EnvError, match=rf"^Odd \(env {env}\), `step`: `reward` must be"):
                vecenv.step(actions)


def test_of_several_that_break_the_first_is_reported(tmp_path: Path) -> None:
    class Odd(Faulty):
        def step(self, action: Any) -> Any:
            if action:
                wait_until((tmp_path / "gate").exists)
            raise ValueError("all of us")

    with Multiprocessing(Odd, 6, 3, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.recv()
        vecenv.send([1, 0, 0, 0, 0, 0])
        wait_until(lambda: len(vecenv._flags.ready(np.array([1, 2], np.int32))) == 2)
        (tmp_path / "gate").touch()  # worker 0 is the last to be done
        with pytest.raises(EnvError, match=r"^Odd \(env 0\), `step`: raised ValueError"):
            vecenv.recv()
    with pytest.raises(EnvError, match=r"^Unmakeable \(env 0\), `__init__`: raised FileNotFound"):
        run(Unmakeable, 4, 4)


def test_nan_that_came_in_as_an_action_is_not_the_fault_of_the_env_alone() -> None:
    class Steered(Faulty):
        action_space = Box(-1, 1, (1,), np.float32)  # type: ignore[assignment]

        def __init__(self, in_reward: bool) -> None:
            super().__init__()
            self.in_reward = in_reward

        def step(self, action: Any) -> Any:
            seen = np.array([0.0 if self.in_reward else action[0], 0], np.float32)
            return seen, float(action[0]) if self.in_reward else 0.0, False, False, {}

    for in_reward, field in ((True, "reward"), (False, "observation")):
        creator = functools.partial(Steered, in_reward)
        with Multiprocessing(creator, 2, 1, **FORK) as vecenv:
            vecenv.reset(seed=0)
            said = rf"\(env 1\), `step`: `{field}` must be finite, .*\. Its action was nan\.$"
            with pytest.raises(EnvError, match=said):
                vecenv.step([[0.0], [np.nan]])


def test_an_error_that_cannot_be_printed_is_still_reported() -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise AttributeError("code")

    class Odd(Faulty):
        def step(self, action: Any) -> Any:
            raise SpeechlessError

    with Multiprocessing(Odd, 2, 1, **FORK) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(EnvError, match=r"^Odd \(env 0\), `step`: raised SpeechlessError \("):
            vecenv.step(0)


def test_render_and_close_that_raise_are_reported() -> None:
    class Falling(Gym):
        render_mode = "rgb_array"

        def render(self) -> Any:
            raise OSError("no display")

        def close(self) -> None:
            raise OSError("already gone")

    vecenv = Multiprocessing(Falling, 2, 2, **FORK)
    vecenv.reset(seed=0)
    with pytest.raises(EnvError, match=r"Falling \(env 1\), `render`: raised OSError: no display"):
        vecenv.render(1)
    with pytest.raises(EnvError, match=r"Falling \(env 0\), `close`: raised OSError: already gone"):
        vecenv.close()


def test_an_action_that_is_no_choice_never_reaches_the_env() -> None:
    with Multiprocessing(Gym, 2, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(UsageError, match=r"be in 0\.\.1 for Discrete\(2\), but slot 1 got 2"):
            vecenv.step([0, 2])
