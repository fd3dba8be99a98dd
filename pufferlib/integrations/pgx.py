"""The family `pgx-`: the games of Pgx (Koyamada et al. 2023), in JAX.

Each player of a game is an agent. One player acts in a step; the others stay present and have one
allowed choice, which does nothing, so that rewards reach them in the step that earns them.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from pufferlib.errors import MissingExtraError, one_line, unknown_name
from pufferlib.integrations.jax_simulator import Array, JaxEnv, JaxSimulator, Result, Seen, load
from pufferlib.integrations.packages import is_installed
from pufferlib.registry import EnvSpec, plain
from pufferlib.spaces import make_discrete
from pufferlib.vectorization.batched import SimulatorCreator, Sizes

PREFIX = "pgx-"


def find(name: str) -> EnvSpec:
    """Return the env of a game such as `go-9x9` or `minatar-breakout`."""
    ids = list(load("pgx", PREFIX + name, "pgx").available_envs())
    for id in ids:
        if plain(name) == plain(id):
            creator = SimulatorCreator(functools.partial(make_simulator, id))
            return EnvSpec(PREFIX + plain(id), creator, family="pgx")
    raise unknown_name("environment", PREFIX + plain(name), [PREFIX + plain(id) for id in ids])


def names() -> list[str]:
    """Return the games that Pgx lists."""
    if not is_installed("pgx"):
        return []
    return [PREFIX + plain(id) for id in load("pgx", PREFIX, "pgx").available_envs()]


def make_simulator(id: str, sizes: Sizes) -> JaxSimulator:
    """Make many games."""
    name = PREFIX + plain(id)
    try:
        env = load("pgx", name, "pgx").make(id)
    except ImportError as error:  # MinAtar's games are a package of their own
        raise MissingExtraError(f"`{name}` cannot be loaded: {one_line(error)}") from error
    return JaxSimulator(PgxEnv(env), sizes)


class PgxEnv(JaxEnv):
    """One game of Pgx."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.action_space = make_discrete(env.num_actions)
        self.num_agents = env.num_players

    def reset(self, key: Array) -> tuple[Array, Seen]:
        state = self._env.init(key)
        return state, self._seen(state)

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Result]:
        chosen = action if self.num_agents == 1 else action[state.current_player]
        state = self._env.step(state, chosen, key)
        rewards, terminal = state.rewards, state.terminated
        truncation = state.truncated & ~terminal
        if self.num_agents == 1:
            return state, Result(self._seen(state), rewards[0], terminal, truncation)
        ends = [terminal.repeat(self.num_agents), truncation.repeat(self.num_agents)]
        return state, Result(self._seen(state), rewards, *ends)

    def _seen(self, state: Array) -> Seen:
        jax: Any = importlib.import_module("jax")
        jnp = jax.numpy
        if self.num_agents == 1:
            return Seen(state.observation, state.legal_action_mask)
        players = jnp.arange(self.num_agents)
        observations = jax.vmap(functools.partial(self._env.observe, state))(players)
        nothing = jnp.arange(self._env.num_actions) == 0
        is_next = (players == state.current_player)[:, None]
        return Seen(observations, jnp.where(is_next, state.legal_action_mask, nothing))
