"""The family `gym-`: every id that Gymnasium knows, and those of packages that register theirs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from pufferlib.errors import UsageError, one_line, quoted, unknown_name
from pufferlib.integrations.packages import extra
from pufferlib.integrations.registered import Creator, match, newest
from pufferlib.registry import EnvSpec, plain

PREFIX = "gym-"
_EXTRAS = {"gymnasium.envs.box2d": "box2d", "gymnasium.envs.mujoco": "mujoco"}
_OWN_NAMESPACE = "ocean"  # envs of this package have shorter names
_PLACEHOLDERS = {"GymV21Environment", "GymV26Environment"}  # need shimmy and an env of its


def find(name: str) -> EnvSpec:
    """Return the env of a Gymnasium id: in any case, without a version the newest.

    `module:id` imports the module first, which registers the id.
    """
    module, _, id = name.rpartition(":")
    if module:
        _import(module, name)
    known = {plain(spec.id): spec for spec in _specs()}
    found = match(plain(id), known)
    if found is None:
        offered = [PREFIX + spec.id for spec in _specs() if spec.namespace != _OWN_NAMESPACE]
        raise unknown_name("environment", PREFIX + name, offered)
    spec = known[found]
    own = PREFIX + spec.id
    extras = [each for path, each in _EXTRAS.items() if str(spec.entry_point).startswith(path)]
    made = Creator(spec, own, *((extras[0], extra(extras[0])) if extras else ()))
    return EnvSpec(f"{PREFIX}{module}:{spec.id}" if module else own, made, family="gym")


def names() -> list[str]:
    """Return the newest version of every id. Some of them need a package that may be missing."""
    listed = {
        spec.id: spec
        for spec in _specs()
        if spec.namespace != _OWN_NAMESPACE and spec.name not in _PLACEHOLDERS
    }
    return [PREFIX + id for id in newest(listed).values()]


def _specs() -> Iterator[GymnasiumSpec]:
    """Yield ids of single envs; some ids have only a vector form."""
    return (spec for spec in gymnasium.registry.values() if spec.entry_point is not None)


def _import(module: str, name: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:
        raise UsageError(
            f"{quoted(PREFIX + name)} must begin with a module that can be imported, but "
            f"{quoted(module)} raised {type(error).__name__}: {one_line(error)}"
        ) from error
