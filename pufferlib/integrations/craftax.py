"""The family `craftax`: Craftax and Craftax-Classic (Matthews et al. 2024), in JAX.

`craftax` and `craftax-classic` observe symbols, `craftax-pixels` and `craftax-classic-pixels` a
picture. XLA takes minutes to compile `craftax` on a CPU, `craftax-classic` much less.
"""

from __future__ import annotations

import functools
from typing import Any

from pufferlib.errors import unknown_name
from pufferlib.integrations.gymnax import params_signature
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
from pufferlib.vectorization.batched import SimulatorCreator, Sizes

_IDS = {
    "craftax": "Craftax-Symbolic-v1",
    "craftax-classic": "Craftax-Classic-Symbolic-v1",
    "craftax-pixels": "Craftax-Pixels-v1",
    "craftax-classic-pixels": "Craftax-Classic-Pixels-v1",
}


def find(name: str) -> EnvSpec:
    """Return the env of `craftax`, or of what follows `craftax-`; Craftax's ids are names too."""
    wanted = plain(f"craftax-{name}" if name else "craftax")
    for short, id in _IDS.items():
        if wanted in (short, plain(id), f"craftax-{plain(id)}"):
            return EnvSpec(short, creator(short), family="craftax")
    raise unknown_name("environment", wanted, _IDS)


def names() -> list[str]:
    """Return the four variants."""
    return [] if not is_installed("craftax") else list(_IDS)


def creator(name: str) -> SimulatorCreator:
    """Return the creator of one variant; the fields of its `EnvParams` are params."""
    params = params_signature(_make(name).default_params)
    return SimulatorCreator(functools.partial(make_simulator, name), params)


def make_simulator(name: str, sizes: Sizes, **params: Any) -> JaxSimulator:
    """Make many envs of a variant."""
    env = _make(name)
    return JaxSimulator(CraftaxEnv(env, env.default_params.replace(**params)), sizes)


def _make(name: str) -> Any:
    module = load("craftax.craftax_env", name, "craftax")
    return module.make_craftax_env_from_name(_IDS[name], auto_reset=False)


class CraftaxEnv(JaxEnv):
    """One env of Craftax. An episode that ends only because of `max_timesteps` is truncated."""

    def __init__(self, env: Any, params: Any) -> None:
        self._env, self._params = env, params
        self._unlimited = params.replace(max_timesteps=2**31 - 1)
        self.action_space = action_space_of(env.action_space(params))

    def reset(self, key: Array) -> tuple[Array, Seen]:
        observation, state = self._env.reset_env(key, self._params)
        return state, Seen(observation)

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Result]:
        observation, state, reward, ended, info = self._env.step_env(
            key, state, action, self._params
        )
        terminal = self._env.is_terminal(state, self._unlimited)
        infos = {name: value for name, value in info.items() if name != "discount"}
        return state, Result(Seen(observation), reward, terminal, ended & ~terminal, infos)
