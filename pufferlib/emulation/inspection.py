"""What envs tell about themselves: their spaces, their agents, whether `reset` takes a seed.

Read off the env before its first step. What is missing or of the wrong kind is an EnvError.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from pufferlib.emulation.messages import class_name, spell
from pufferlib.env import Wrapper, defines
from pufferlib.errors import EnvError, UsageError
from pufferlib.spaces import Space


def spaces_of(env: Any) -> tuple[Space, Space]:
    """Return the spaces of one agent."""
    found = []
    for name in ("observation_space", "action_space"):
        space = _space_of(env, name)
        if not isinstance(space, gymnasium.Space):
            name_of_class = class_name(getattr(env, "unwrapped", env))
            if space is None:
                raise EnvError(f"{name_of_class} must set `{name}`, but has none.")
            raise EnvError(
                f"`{name}` of {name_of_class} must be a Gymnasium space, but got {spell(space)}."
            )
        found.append(space)
    return found[0], found[1]


def _space_of(env: Any, name: str) -> Any:
    """Return the space that the outermost layer sets, of one agent where it tells them apart."""
    for layer in _layers(env):
        for spelling in (f"single_{name}", name):
            if defines(layer, spelling):
                return getattr(layer, spelling)
    return getattr(env, name, None)


def zoo_spaces(env: Any) -> tuple[tuple[Any, ...], Space, Space]:
    """Return the agents of a PettingZoo env and the spaces that all of them share."""
    name = class_name(getattr(env, "unwrapped", env))
    ids = tuple(getattr(env, "possible_agents", ()) or ())
    if not ids:
        raise EnvError(
            f"{name} must have `possible_agents`, but has none: its slots need a number."
        )
    shared: list[Space] = []
    for field in ("observation_space", "action_space"):
        given = {id: _zoo_space(env, field, id, name) for id in ids}
        first = given[ids[0]]
        for id, space in given.items():
            if space != first:
                raise UsageError(
                    f"`{field}` must be the same for all agents of {name}, but {ids[0]} has "
                    f"{first} and {id} has {space}. Try "
                    "`pufferlib.emulation.PadAgents` around it."
                )
        shared.append(first)
    return ids, shared[0], shared[1]


def _zoo_space(env: Any, field: str, id: Any, name: str) -> Space:
    given = getattr(env, field, None)
    try:
        space = given(id) if callable(given) else getattr(env, f"{field}s")[id]
    except Exception as error:
        raise EnvError(f"{name} must give `{field}({id!r})`, but raised {error!r}.") from error
    if not isinstance(space, gymnasium.Space):
        raise EnvError(
            f"`{field}({id!r})` of {name} must be a Gymnasium space, but got {spell(space)}."
        )
    return space


def num_agents_of(env: Any) -> int:
    """Return the number of agents that a PufferEnv sets: a whole number, at least 1."""
    num_agents = env.num_agents
    if isinstance(num_agents, bool) or not isinstance(num_agents, int | np.integer):
        raise EnvError(
            f"`num_agents` of {class_name(env)} must be a whole number, but got {num_agents!r}."
        )
    if num_agents < 1:
        raise EnvError(f"`num_agents` of {class_name(env)} must be at least 1, got {num_agents}.")
    return int(num_agents)


def takes_seed(env: Any) -> bool:
    """Return whether a seed given to `reset` reaches the env through all layers."""
    for layer in _layers(env):
        try:
            params = inspect.signature(layer.reset).parameters
        except (TypeError, ValueError):  # C code may not tell
            continue
        if "seed" not in params and all(p.kind is not p.VAR_KEYWORD for p in params.values()):
            return False
    return True


def _layers(env: Any) -> Iterator[Any]:
    """Yield our wrappers around an env from the outside, then the env."""
    while isinstance(env, Wrapper):
        yield env
        env = env.env
    yield env
