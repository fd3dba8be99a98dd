"""The family `brax-`: the physics envs of Brax (Freeman et al. 2021), in JAX."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pufferlib.errors import unknown_name
from pufferlib.integrations.jax_simulator import Array, JaxEnv, JaxSimulator, Result, Seen, load
from pufferlib.integrations.packages import is_installed
from pufferlib.registry import EnvSpec, plain
from pufferlib.spaces import make_space
from pufferlib.vectorization.batched import SimulatorCreator, Sizes

PREFIX = "brax-"

NAMES = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_pendulum",
    "inverted_double_pendulum",
    "pusher",
    "reacher",
    "swimmer",
    "walker2d",
)


def find(name: str) -> EnvSpec:
    """Return the env of a name."""
    for known in NAMES:
        if plain(name) == plain(known):
            load("brax", PREFIX + plain(name), "brax")
            creator = SimulatorCreator(functools.partial(make_simulator, known))
            return EnvSpec(PREFIX + plain(known), creator, family="brax")
    raise unknown_name("environment", PREFIX + plain(name), [PREFIX + plain(n) for n in NAMES])


def names() -> list[str]:
    """Return Brax's own envs."""
    is_present = is_installed("brax")
    return [PREFIX + plain(name) for name in NAMES] if is_present else []


def make_simulator(
    name: str,
    sizes: Sizes,
    *,
    physics: str = "generalized",
    episode_length: int = 1000,
    action_repeat: int = 1,
) -> JaxSimulator:
    """Make many envs; `physics` is Brax's backend: generalized, positional, spring or mjx."""
    envs = load("brax.envs", PREFIX + name, "brax")
    env = envs.create(
        name,
        episode_length=episode_length,
        action_repeat=action_repeat,
        auto_reset=False,
        backend=physics,
    )
    return JaxSimulator(BraxEnv(env), sizes)


class BraxEnv(JaxEnv):
    """One env of Brax."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.action_space = make_space((env.action_size,), dtype=np.float32, low=-1.0, high=1.0)

    def reset(self, key: Array) -> tuple[Array, Seen]:
        state = self._env.reset(key)
        return state, Seen(state.obs)

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Result]:
        state = self._env.step(state, action)
        truncation = state.info["truncation"] > 0
        terminal = (state.done > 0) & ~truncation
        return state, Result(Seen(state.obs), state.reward, terminal, truncation)
