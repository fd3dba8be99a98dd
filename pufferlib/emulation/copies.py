"""creator_of: a function that makes as many envs as are needed, from an env, a class or a factory.

An env that exists already is used first; the others are copies of it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gymnasium

from pufferlib.emulation.messages import class_name, spell
from pufferlib.errors import UsageError


def creator_of(x: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a function that makes envs like `x`.

    `x` is an env, a class, a factory, or a PettingZoo module. An env gives itself first, then
    copies: from its `spec`, else by deepcopy.
    """
    if isinstance(x, str):
        raise UsageError(f"`emulate` must get an env, but got the name {x!r}. Try `make({x!r})`.")
    if isinstance(x, ModuleType):
        factory = getattr(x, "parallel_env", None) or getattr(x, "env", None)
        if factory is None:
            raise UsageError(f"`{x.__name__}` must have `parallel_env` or `env`, but has neither.")
        x = factory
    is_env = not isinstance(x, type) and (hasattr(x, "step") or hasattr(x, "reset"))
    if not is_env:
        if not callable(x):
            raise UsageError(
                f"`emulate` must get an env, or the class or factory of one, but got {spell(x)}."
            )

        def make_one() -> Any:
            return x(**kwargs)

        make_one.__name__ = spell(x)
        return make_one
    if kwargs:
        raise UsageError(
            f"env params must go to a class or factory, but got {', '.join(kwargs)} for an env "
            f"that exists already. Try `emulate({class_name(x)}, ...)`."
        )
    unused = [x]
    return lambda: unused.pop() if unused else _copy(x)


def _copy(env: Any) -> Any:
    """Return a second env like `env`."""
    spec = getattr(env, "spec", None) if isinstance(env, gymnasium.Env) else None
    if spec is not None:
        try:
            made = gymnasium.make(spec)
        except Exception:  # a wrapper that cannot be made again
            made = None
        if made is not None and _classes(made) == _classes(env):
            return made
    try:
        return copy.deepcopy(env)
    except Exception as error:
        name = class_name(getattr(env, "unwrapped", env))
        raise UsageError(
            f"`emulate` must make copies of {name}, but it has no spec and cannot be deep-copied "
            f"({type(error).__name__}). Try a factory: `emulate(lambda: {name}(...))`."
        ) from error


def _classes(env: Any) -> list[type]:
    out = [type(env)]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        out.append(type(env))
    return out
