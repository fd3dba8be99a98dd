"""Malformed envs: one line that names env, method and field, and what `check_env` reports.

Lines of `check_env` are those of `emulate` without the index of the env.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from malformed import CASES, ZEROS, Gym, Legacy, Unmakeable, without_place

import pufferlib
from pufferlib import check_env
from pufferlib.errors import EnvError, PufferError, UsageError


def run(create: Callable[[], Any], num_envs: int = 1) -> None:
    with pufferlib.emulate(create, num_envs=num_envs) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(0)
        vecenv.step(1)


def without_index(said: str) -> str:
    return said.replace(" (env 0)", "", 1).replace(" (env 0, ", " (", 1)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_malformed_env_raises_one_line(name: str) -> None:
    with pytest.raises((EnvError, UsageError)) as caught:
        run(CASES[name].create)
    assert without_place(str(caught.value)) == CASES[name].said
    assert "\n" not in CASES[name].said


@pytest.mark.parametrize("name", CASES)
def test_check_env_reports_the_same_line_and_all_others(name: str) -> None:
    case = CASES[name]
    report = check_env(case.create, steps=8)
    assert sorted(map(without_place, report.of("error"))) == sorted(
        [without_index(case.said), *case.more]
    )
    with pytest.raises(EnvError):
        report.raise_for_errors()


@pytest.mark.parametrize("name", ["reset raises", "action refused", "constructor raises"])
def test_the_error_of_the_env_is_chained(name: str) -> None:
    with pytest.raises(EnvError) as caught:
        run(CASES[name].create)
    cause = caught.value.__cause__
    assert cause is not None
    assert not isinstance(cause, PufferError)
    assert cause.__traceback__ is not None


def test_messages_have_the_index_of_the_env_in_its_vector() -> None:
    envs = iter([Gym(), Gym(), Gym(reward=None)])
    with pytest.raises(EnvError, match=r"^Gym \(env 2\), `step`: `reward` must be a number"):
        run(lambda: next(envs), num_envs=3)
    made: list[Any] = []

    def create() -> Any:
        made.append(Gym() if len(made) < 2 else Unmakeable())
        return made[-1]

    with pytest.raises(EnvError, match=r"^create \(env 2\), `__init__`: raised FileNotFoundError"):
        run(create, num_envs=3)


@pytest.mark.parametrize(("action", "said"), [(2, "but slot 0 got 2"), (-1, "but slot 0 got -1")])
def test_an_invalid_action_never_reaches_the_env(action: int, said: str) -> None:
    with pufferlib.emulate(Gym) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(UsageError, match=rf"be in 0\.\.1 for Discrete\(2\), {said}"):
            vecenv.step(action)


def test_exceptions_of_render_and_close_name_the_env() -> None:
    class Falling(Gym):
        render_mode = "rgb_array"

        def render(self) -> Any:
            raise OSError("no display")

        def close(self) -> None:
            raise OSError("already gone")

    vecenv = pufferlib.emulate(Falling)
    vecenv.reset(seed=0)
    with pytest.raises(EnvError, match=r"Falling \(env 0\), `render`: raised OSError: no display"):
        vecenv.render()
    with pytest.raises(EnvError, match=r"Falling \(env 0\), `close`: raised OSError: already gone"):
        vecenv.close()


def test_unknown_params_raise_before_the_env_is_made() -> None:
    with pytest.raises(UsageError, match=r"param of `Legacy` `frist`\. Did you mean `first`"):
        pufferlib.emulate(Legacy, frist=ZEROS)
