"""What `emulate` and `make` take for an env: instances, classes, factories; and what not."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import pytest
from playback import Gym, Legacy

import pufferlib
from pufferlib.errors import EnvError, UsageError


def test_an_instance_is_used_itself_and_copied_by_its_spec() -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=7)
    vecenv = pufferlib.emulate(env, num_envs=3)
    assert vecenv.name == "CartPoleEnv"
    assert vecenv.envs[0].env is env
    assert len({id(each.env.unwrapped) for each in vecenv.envs}) == 3
    assert vecenv.envs[2].env.spec.max_episode_steps == 7


def test_an_instance_without_a_spec_is_deep_copied() -> None:
    env = Gym(length=2)
    vecenv = pufferlib.emulate(env, num_envs=2)
    vecenv.reset(seed=0)
    vecenv.step([0, 1])
    assert env.actions == [0]
    assert vecenv.envs[1].env.actions == [1]


def test_an_env_that_cannot_be_copied_raises_and_suggests_a_factory() -> None:
    import threading

    env = Gym()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"Try a factory: `emulate\(lambda: Gym\(\.\.\.\)\)`"):
        pufferlib.emulate(env, num_envs=2)
    assert pufferlib.emulate(env).num_envs == 1


def test_classes_and_factories_take_params() -> None:
    vecenv = pufferlib.emulate(Gym, num_envs=2, length=1)
    vecenv.reset(seed=0)
    assert vecenv.step(0)[2].all()
    with pytest.raises(UsageError, match="env params must go to a class or factory"):
        pufferlib.emulate(Gym(), length=1)


def test_emulate_takes_the_sizes_and_seed_of_make() -> None:
    assert pufferlib.emulate(Gym).num_envs == 1
    assert pufferlib.emulate(Gym, num_workers=2, envs_per_worker=3).num_envs == 6
    with pytest.raises(UsageError, match="`num_envs` must be a multiple of `envs_per_worker`"):
        pufferlib.emulate(Gym, num_envs=5, envs_per_worker=2)
    vecenv = pufferlib.emulate(Gym, seed=8)
    vecenv.reset()
    assert vecenv.envs[0].seeds[-1] == 8


def test_make_emulates_registered_envs_of_any_api() -> None:
    pufferlib.register("a-gym-env", Gym, {"length": 2})
    pufferlib.register("a-legacy-env", Legacy)
    for name in ("a-gym-env", "a-legacy-env"):
        with pufferlib.make(name, num_envs=2) as vecenv:
            vecenv.reset(seed=0)
            vecenv.step(0)
            assert vecenv.name == name


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ("CartPole-v1", r"`emulate` must get an env, but got the name .* Try `make\('CartPole"),
        (3, "`emulate` must get an env, or the class or factory of one, but got 3"),
        (math, "`math` must have `parallel_env` or `env`"),
        (lambda: Gym, r"`env` must be an environment, but got Gym. Try `Gym\(\)`"),
        (lambda: object(), "object must define `reset`, but has none"),
    ],
)
def test_an_object_that_is_not_an_env_raises(x: Any, said: str) -> None:
    with pytest.raises((UsageError, EnvError), match=said):
        pufferlib.emulate(x)


def test_a_vector_env_of_gymnasium_is_not_taken_for_one_env() -> None:
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(UsageError, match="must be a single environment, but got the vector env"):
        pufferlib.emulate(vector)
