"""Making the envs of a vector: from an env, a class or a factory to envs that work in place."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np

from pufferlib.emulation.agent_dicts import Aec, AgentDicts, Parallel
from pufferlib.emulation.base import Emulated
from pufferlib.emulation.in_place import InPlace
from pufferlib.emulation.inspection import class_name, describe, inspect_env, name_of
from pufferlib.emulation.single_agent import Gymnasium, SingleAgent
from pufferlib.env import PufferEnv
from pufferlib.errors import FAULTS, EnvError, PufferError, UsageError, raised_text

_CLASSES: dict[str, type[InPlace | AgentDicts | SingleAgent | Parallel | Aec]] = {
    "in_place": InPlace,
    "agent_dicts": AgentDicts,
    "single_agent": SingleAgent,
    "gymnasium": Gymnasium,
    "parallel": Parallel,
    "aec": Aec,
}


def adapt(env: Any, index: int = 0, like: PufferEnv | None = None) -> PufferEnv:
    """Return `env` as an env that works in place; one that does so already is returned as it is.

    `index` is the env's place in its vector, for messages. `like` is another env from the same
    creator: what had to be tried out there is not tried again.
    """
    if isinstance(env, Emulated):
        env.index = index
        return env
    if getattr(env, "is_native", False):  # also of a Wrapper, which forwards it
        return env  # type: ignore[no-any-return]
    traits = inspect_env(env)
    return _CLASSES[traits.api](traits, index, like if isinstance(like, Emulated) else None)


def create(
    env_creator: Callable[[], Any], index: int = 0, like: PufferEnv | None = None
) -> PufferEnv:
    """Make env `index` of a vector and return it as one that works in place, see `adapt`."""
    return adapt(call_creator(env_creator, index), index, like)


def call_creator(env_creator: Callable[[], Any], index: int = 0) -> Any:
    """Return what `env_creator` makes; where it raises, an EnvError names env `index`."""
    try:
        return env_creator()
    except PufferError:
        raise
    except FAULTS as error:
        made_by: Any = env_creator
        while isinstance(made_by, functools.partial):
            made_by = made_by.func
        raise EnvError(
            f"{name_of(made_by)} (env {index}), `__init__`: {raised_text(error)}"
        ) from error


def env_seed(seed: int, index: int) -> int:
    """Return the seed of Python env `index`; env 0 gets `seed` itself.

    The others get different numbers below 2**32, which old generators accept too.
    """
    if index == 0:
        return seed
    state = np.random.SeedSequence(seed).generate_state(1)[0]
    derived = (int(state) + index * 0x9E3779B1) % 2**32  # odd: no two indices collide
    return int(state) if derived == seed else derived


def creator_of(x: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a function that makes envs like `x`.

    `x` is an env, a class, a factory, or a PettingZoo module. From an env, the function returns
    that env first, then copies of it: from its `spec`, else by deepcopy.
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
                f"`emulate` must get an env, or the class or factory of one, but got {describe(x)}."
            )

        def make_one() -> Any:
            return x(**kwargs)

        make_one.__name__ = describe(x)
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
    spec = env.spec if isinstance(env, gymnasium.Env) else None
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
        name = name_of(env)
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
