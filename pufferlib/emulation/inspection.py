"""What emulation must know of an env before its first step: its API, methods, spaces and agents.

Envs come from many packages, and some have only a part of the methods that others have. They are
probed here and nowhere else; the rest of emulation works with `EnvTraits`. A required part that is
missing or of the wrong type is an EnvError.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import gymnasium
import numpy as np

from pufferlib.env import AgentId, PufferEnv, Wrapper, defines
from pufferlib.errors import FAULTS, EnvError, UsageError, imported
from pufferlib.spaces import Space, brief

Api: TypeAlias = Literal["in_place", "agent_dicts", "single_agent", "gymnasium", "parallel", "aec"]


@dataclass(frozen=True)
class EnvTraits:
    """What an env is and which optional methods it has. A method is None where it has none."""

    env: Any  # as given, with all wrappers
    unwrapped: Any  # without any wrapper
    api: Api
    name: str  # of the class, for messages
    takes_seed: bool  # `reset(seed=...)` reaches the env through all wrappers
    seed: Callable[[int], object] | None  # gym before 0.26
    render: Callable[[], Any] | None
    close: Callable[[], object] | None
    action_masks: Callable[[], Any] | None
    render_mode: str | None
    possible_agents: tuple[AgentId, ...]


def inspect_env(env: Any) -> EnvTraits:
    """Probe one env; what is not an env, or lacks `reset` or `step`, raises."""
    inner = env.unwrapped if isinstance(env, Wrapper) else env
    if isinstance(inner, type) or (callable(inner) and not hasattr(inner, "step")):
        name = describe(inner)
        raise UsageError(f"`env` must be an environment, but got {name}. Try `{name}()`.")
    for method in ("reset", "step"):
        given = getattr(inner, method, None)
        if not callable(given) or getattr(type(inner), method, None) is vars(PufferEnv)[method]:
            raise EnvError(f"{class_name(inner)} must define `{method}`, but has none.")
    if hasattr(inner, "recv") or isinstance(inner, gymnasium.vector.VectorEnv):
        raise UsageError(
            f"`env` must be a single environment, but got the vector env {class_name(inner)}. "
            "Try the env that it is made of."
        )
    api = _api(inner)
    if api == "aec" and getattr(inner, "metadata", {}).get("is_parallelizable", False):
        conversions = imported("pettingzoo.utils.conversions", "pettingzoo", "PettingZoo")
        env, api = conversions.aec_to_parallel(env), "parallel"
    unwrapped = unwrapped_of(unwrapped_of(env))  # of our wrappers, then of Gymnasium's
    return EnvTraits(
        env=env,
        unwrapped=unwrapped,
        api=api,
        name=class_name(unwrapped),
        takes_seed=_takes_seed(env),
        seed=_method(env, "seed"),
        render=_method(env, "render"),
        close=_method(env, "close"),
        action_masks=_mask_method(env),
        render_mode=getattr(env, "render_mode", None),
        possible_agents=tuple(getattr(env, "possible_agents", ()) or ()),
    )


def _api(inner: Any) -> Api:
    if isinstance(inner, PufferEnv):
        if "observations" in vars(inner):
            return "in_place"
        return "agent_dicts" if defines(inner, "single_observation_space") else "single_agent"
    if isinstance(inner, gymnasium.Env):
        return "gymnasium"
    if hasattr(inner, "agent_selection") or hasattr(inner, "agent_iter"):
        return "aec"
    return "parallel" if hasattr(inner, "possible_agents") else "single_agent"


def _method(env: Any, name: str) -> Callable[..., Any] | None:
    found = getattr(env, name, None)
    return found if callable(found) else None


def _mask_method(env: Any) -> Callable[[], Any] | None:
    if not isinstance(env, gymnasium.Wrapper):
        return _method(env, "action_masks")
    found = env.has_wrapper_attr("action_masks") and env.get_wrapper_attr("action_masks")
    return found if callable(found) else None


def _takes_seed(env: Any) -> bool:
    for layer in _layers(env):
        try:
            params = inspect.signature(layer.reset).parameters
        except (TypeError, ValueError):  # C code may have no signature
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


# ---- Spaces and agents ---------------------------------------------------------------------------


def spaces_of(traits: EnvTraits) -> tuple[Space, Space]:
    """Return the spaces of one agent, from the outermost wrapper that sets them."""
    found = []
    for name in ("observation_space", "action_space"):
        space = _space(traits.env, name)
        if space is None:
            raise EnvError(f"{traits.name} must set `{name}`, but has none.")
        found.append(_checked_space(space, name, traits))
    return found[0], found[1]


def _space(env: Any, name: str) -> Any:
    for layer in _layers(env):
        for spelling in (f"single_{name}", name):
            if defines(layer, spelling):
                return getattr(layer, spelling)
    return getattr(env, name, None)


def zoo_spaces(traits: EnvTraits) -> tuple[Space, Space]:
    """Return the spaces that all agents of a PettingZoo env share."""
    ids = traits.possible_agents
    if not ids:
        raise EnvError(f"{traits.name} must list its agents in `possible_agents`, but has none.")
    shared: list[Space] = []
    for field in ("observation_space", "action_space"):
        given = {id: _zoo_space(traits, field, id) for id in ids}
        first = given[ids[0]]
        for id, space in given.items():
            if space != first:
                raise UsageError(
                    f"`{field}` must be the same for all agents of {traits.name}, but {ids[0]} has "
                    f"{first} and {id} has {space}. Try "
                    "`pufferlib.emulation.PadAgents` around it."
                )
        shared.append(first)
    return shared[0], shared[1]


def _zoo_space(traits: EnvTraits, field: str, id: AgentId) -> Space:
    given = getattr(traits.env, field, None)
    call = f"{field}({id!r})"
    try:
        space = given(id) if callable(given) else getattr(traits.env, f"{field}s")[id]
    except FAULTS as error:
        raise EnvError(f"{traits.name} must give `{call}`, but raised {error!r}.") from error
    return _checked_space(space, call, traits)


def _checked_space(space: Any, name: str, traits: EnvTraits) -> Space:
    if isinstance(space, gymnasium.Space):
        return space
    given = describe(space)
    raise EnvError(f"`{name}` of {traits.name} must be a Gymnasium space, but got {given}.")


def num_agents_of(traits: EnvTraits) -> int:
    """Return the number of agents that a PufferEnv sets."""
    num_agents = traits.env.num_agents
    is_whole = isinstance(num_agents, int | np.integer) and not isinstance(num_agents, bool)
    if not is_whole or num_agents < 1:
        raise EnvError(
            f"`num_agents` of {traits.name} must be a whole number of at least 1, "
            f"but got {num_agents!r}."
        )
    return int(num_agents)


# ---- Probing without a trace, and the names of what was probed -----------------------------------


@contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the global random generators afterwards: probing an env must not change its play."""
    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def class_name(env: object) -> str:
    """Return the name of an env's class, or of a class itself."""
    return env.__name__ if isinstance(env, type) else type(env).__name__


def unwrapped_of(env: Any) -> Any:
    """Return the env inside all wrappers, which it may not have."""
    return getattr(env, "unwrapped", env)


def name_of(x: object) -> str:
    """Return the name of a class or function, and that of the class of an env."""
    return getattr(x, "__name__", None) or class_name(unwrapped_of(x))


def describe(value: object) -> str:
    """Return the name of a class or function, and of anything else a short repr."""
    return getattr(value, "__name__", None) or brief(value, 60)
