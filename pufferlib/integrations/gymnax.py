"""The family `gymnax-`: the envs of Gymnax (Lange 2022), in JAX."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

from pufferlib.errors import unknown_name
from pufferlib.integrations.jax_simulator import (
    Array,
    JaxEnv,
    JaxSimulator,
    Result,
    Seen,
    action_space_of,
    load,
)
from pufferlib.integrations.packages import is_installed
from pufferlib.registry import EnvSpec, plain
from pufferlib.spaces import make_discrete
from pufferlib.vectorization.batched import SimulatorCreator, Sizes

PREFIX = "gymnax-"


def find(name: str) -> EnvSpec:
    """Return the env of an id such as `CartPole-v1`: in any case, with or without what follows `-`.

    `breakout` is `Breakout-MinAtar`, for example.
    """
    ids = list(load("gymnax", PREFIX + name, "gymnax").registered_envs)
    for id in ids:
        if plain(name) in (plain(id), plain(id).rpartition("-")[0]):
            return EnvSpec(PREFIX + id, creator(id), family="gymnax")
    raise unknown_name("environment", PREFIX + name, [PREFIX + id for id in ids])


def names() -> list[str]:
    """Return the ids that Gymnax registers."""
    if not is_installed("gymnax"):
        return []
    return [PREFIX + id for id in load("gymnax", PREFIX, "gymnax").registered_envs]


def creator(id: str) -> SimulatorCreator:
    """Return the creator of one env; the fields of its `EnvParams` are params."""
    _, params = load("gymnax", PREFIX + id, "gymnax").make(id)
    return SimulatorCreator(functools.partial(make_simulator, id), params_signature(params))


def make_simulator(id: str, sizes: Sizes, **params: Any) -> JaxSimulator:
    """Make many envs of an id."""
    env, defaults = load("gymnax", PREFIX + id, "gymnax").make(id)
    return JaxSimulator(GymnaxEnv(env, defaults.replace(**params)), sizes)


def params_signature(params: Any) -> inspect.Signature:
    """Return the fields of a dataclass of params as keywords."""
    return inspect.Signature(
        [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(params, field.name)
            )
            for field in dataclasses.fields(params)
        ]
    )


class GymnaxEnv(JaxEnv):
    """One env of Gymnax 1.0 or later, which separates terminals from time limits."""

    def __init__(self, env: Any, params: Any) -> None:
        self._env, self._params = env, params
        self.action_space = action_space_of(env.action_space(params))
        observed = env.observation_space(params)
        if hasattr(observed, "n"):
            self.observation_space = make_discrete(int(observed.n))

    def reset(self, key: Array) -> tuple[Array, Seen]:
        observation, state = self._env.reset_env(key, self._params)
        return state, Seen(observation)

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Result]:
        observation, state, reward, terminal, _ = self._env.step_env(
            key, state, action, self._params
        )
        truncation = self._env.is_truncated(state, self._params)
        return state, Result(Seen(observation), reward, terminal, truncation)
