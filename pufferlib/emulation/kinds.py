"""as_rows and create: which kind of env it is, and the class that speaks its API."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium

from pufferlib.emulation.agents import AgentDicts, Parallel
from pufferlib.emulation.base import Emulated
from pufferlib.emulation.inplace import InPlace
from pufferlib.emulation.messages import class_name, spell, what_was_raised
from pufferlib.emulation.single import Gymnasium, SingleAgent
from pufferlib.emulation.turns import TurnBased
from pufferlib.env import PufferEnv, Wrapper, defines
from pufferlib.errors import EnvError, PufferError, UsageError


def as_rows(env: Any, index: int = 0, like: PufferEnv | None = None) -> PufferEnv:
    """Return `env` as an env that works in place; one that does so already is returned as it is.

    What the result needs from the env it finds out here, so a breach of contract shows now. `index`
    is the env's place in its vector, for messages. `like` is one of the same making: what took a
    look to find out there is not looked for again.
    """
    if isinstance(env, Emulated):
        env.index = index
    if isinstance(env, Emulated) or getattr(env, "is_native", False):
        return env  # type: ignore[no-any-return]
    inner = env.unwrapped if isinstance(env, Wrapper) else env
    if isinstance(inner, type) or (callable(inner) and not hasattr(inner, "step")):
        raise UsageError(
            f"an environment is needed, but got {spell(inner)}. Try `{spell(inner)}()`."
        )
    missing = [name for name in ("reset", "step") if not callable(getattr(inner, name, None))]
    if isinstance(inner, PufferEnv):
        missing = [
            name
            for name in ("reset", "step")
            if getattr(type(inner), name) is getattr(PufferEnv, name)
        ]
    if missing:
        raise EnvError(f"{class_name(inner)} must define `{missing[0]}`, but has none.")
    if hasattr(inner, "recv"):
        raise UsageError(
            f"one environment is needed, but got a vector env, {class_name(inner)}. "
            "Try the env that it is made of."
        )
    return _kind(inner)(env, index, like if isinstance(like, Emulated) else None)


def create(
    env_creator: Callable[[], Any], index: int = 0, like: PufferEnv | None = None
) -> PufferEnv:
    """Make env `index` of a vector and return it as one that works in place, see `as_rows`."""
    return as_rows(call_creator(env_creator, index), index, like)


def call_creator(env_creator: Callable[[], Any], index: int = 0) -> Any:
    """Return what `env_creator` makes; an EnvError names env `index` where it raises."""
    try:
        return env_creator()
    except PufferError:
        raise
    except Exception as error:
        while isinstance(env_creator, functools.partial):
            env_creator = env_creator.func
        made_by: Any = env_creator
        while isinstance(made_by, functools.partial):
            made_by = made_by.func
        name = getattr(made_by, "__name__", type(made_by).__name__)
        raise EnvError(f"{name} (env {index}), `__init__`: {what_was_raised(error)}") from error


def _kind(inner: Any) -> Callable[[Any, int, Emulated | None], Emulated]:
    """Return the class that speaks the API of `inner`."""
    if isinstance(inner, PufferEnv):
        if "observations" in vars(inner):
            return InPlace
        return AgentDicts if defines(inner, "single_observation_space") else SingleAgent
    if isinstance(inner, gymnasium.Env):
        return Gymnasium
    if hasattr(inner, "agent_selection") or hasattr(inner, "agent_iter"):
        parallelizable = getattr(inner, "metadata", {}).get("is_parallelizable", False)
        return Parallel if parallelizable else TurnBased
    if hasattr(inner, "possible_agents"):
        return Parallel
    return SingleAgent
