"""The family `gym-`: every id that Gymnasium knows, and those of packages that register theirs."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.envs.registration import load_env_creator

from pufferlib.errors import MissingExtraError, UsageError, one_line, quoted, unknown_name
from pufferlib.integrations.params import keyword_signature, refused_param
from pufferlib.registry import EnvSpec, plain

PREFIX = "gym-"
# params of `gymnasium.make` itself; the others go to the env
_MAKE_PARAMS = ("max_episode_steps", "disable_env_checker")
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
    wanted = plain(id)
    known = {plain(spec.id): spec for spec in _specs()}
    versions = {
        spec.version or 0: spec for spec in known.values() if _without_version(spec.id) == wanted
    }
    if wanted in known:
        spec = known[wanted]
    elif versions:
        spec = versions[max(versions)]
    else:
        offered = [PREFIX + spec.id for spec in _specs() if spec.namespace != _OWN_NAMESPACE]
        raise unknown_name("environment", PREFIX + name, offered)
    prefix = f"{PREFIX}{module}:" if module else PREFIX
    return EnvSpec(prefix + spec.id, Creator(spec), family="gym")


def names() -> list[str]:
    """Return the newest version of every id. Some of them need a package that may be missing."""
    newest: dict[str, GymnasiumSpec] = {}
    for spec in _specs():
        if spec.namespace == _OWN_NAMESPACE or spec.name in _PLACEHOLDERS:
            continue
        held = newest.setdefault(_without_version(spec.id), spec)
        if (spec.version or 0) > (held.version or 0):
            newest[_without_version(spec.id)] = spec
    return [PREFIX + spec.id for spec in newest.values()]


class Creator:
    """Makes envs of one Gymnasium id. Its signature has the params that such an env takes."""

    def __init__(self, spec: GymnasiumSpec) -> None:
        self.spec = spec
        self.__signature__ = self._signature()

    def __call__(self, **params: Any) -> gymnasium.Env[Any, Any]:
        # emulation checks what an env returns: a second check would only take longer
        params = {"disable_env_checker": True, **params}
        try:
            return gymnasium.make(self.spec, **params)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise self._missing(error) from error
        except TypeError as error:
            raise refused_param(PREFIX + self.spec.id, error, self.__signature__) or error from None

    def _signature(self) -> inspect.Signature:
        entry_point: str | Callable[..., Any] | None = self.spec.entry_point
        try:
            make = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise self._missing(error) from error
        return keyword_signature(make, _MAKE_PARAMS)

    def _missing(self, error: Exception) -> MissingExtraError:
        """Return the error that names the package to install."""
        id, entry_point = PREFIX + self.spec.id, str(self.spec.entry_point)
        for module, extra in _EXTRAS.items():
            if entry_point.startswith(module):
                return MissingExtraError(
                    f"`{id}` needs {extra}, which is not installed: "
                    f"pip install 'pufferlib[{extra}]'"
                )
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            package = error.name.partition(".")[0]
            return MissingExtraError(f"`{id}` needs {package}, which is not installed.")
        return MissingExtraError(f"`{id}` cannot be loaded: {one_line(error)}")


def _specs() -> Iterator[GymnasiumSpec]:
    """Yield ids of single envs; some ids have only a vector form."""
    return (spec for spec in gymnasium.registry.values() if spec.entry_point is not None)


def _without_version(id: str) -> str:
    return re.sub(r"-v\d+$", "", plain(id))


def _import(module: str, name: str) -> None:
    try:
        importlib.import_module(module)
    except Exception as error:
        raise UsageError(
            f"{quoted(PREFIX + name)} must begin with a module that can be imported, but "
            f"{quoted(module)} raised {type(error).__name__}: {one_line(error)}"
        ) from error
