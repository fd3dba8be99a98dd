"""Creators of envs, and how lambdas, closures and unimportable modules get to other processes."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import cloudpickle

from pufferlib.errors import FAULTS, EnvError, UsageError, error_line
from pufferlib.system import has_workers

EnvCreator: TypeAlias = Callable[[], Any]  # makes one env, or one vector env


class Recipe(NamedTuple):
    """What a backend must know to make a vector env."""

    name: str
    entry_point: Callable[..., Any]
    settings: dict[str, Any]
    num_envs: int
    num_workers: int | None
    is_instance: bool = False  # the first env exists already, in this process

    def creator(self) -> EnvCreator:
        """Return a function that makes one env and can go to another process."""
        return functools.partial(self.entry_point, **self.settings)


def can_run(env_creator: EnvCreator) -> bool:
    """Return whether this system has worker processes and the creator can be sent to them."""
    if not has_workers():
        return False
    try:
        pickled(env_creator)
    except UsageError:
        return False
    return True


def pickled(
    env_creator: EnvCreator, where: str = "process", else_try: str = ", or start_method='fork'"
) -> bytes:
    """Return the creator as bytes; what lies in modules that a worker cannot import, by value."""
    modules = [module for module in _modules_of(env_creator) if not _is_importable(module)]
    try:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        data: bytes = cloudpickle.dumps(env_creator)
    except Exception as error:
        raise UsageError(
            f"`env_creator` must be picklable to reach another {where}, but is not: "
            f"{' '.join(str(error).split())}. Try creating what it holds inside of it{else_try}."
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    return data


def unpickled(data: bytes) -> EnvCreator:
    """Return the creator in a worker."""
    try:
        creator: EnvCreator = cloudpickle.loads(data)
    except FAULTS as error:
        raise EnvError(
            f"`env_creator` must be importable in a worker, but {error_line(error)}"
        ) from error
    return creator


def copied(env_creator: EnvCreator) -> EnvCreator:
    """Return a copy of the creator, and of the classes and state that it holds, in this process."""
    data, library = pickled(env_creator), cloudpickle.cloudpickle
    # cloudpickle would find the user's own classes by their ids, and replace their methods
    ids, library._DYNAMIC_CLASS_TRACKER_BY_ID = library._DYNAMIC_CLASS_TRACKER_BY_ID, {}
    try:
        return unpickled(data)
    finally:
        library._DYNAMIC_CLASS_TRACKER_BY_ID = ids


def _modules_of(creator: object) -> list[ModuleType]:
    """Return the modules of a creator, and of what its partial or closure holds."""
    found: dict[str, ModuleType] = {}
    waiting: list[Any] = [creator]
    seen: set[int] = set()
    while waiting and len(seen) < 1000:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        named = each if hasattr(each, "__qualname__") else type(each)
        name = getattr(named, "__module__", None)
        if isinstance(name, str) and name != "__main__" and name in sys.modules:
            found[name] = sys.modules[name]
        if isinstance(each, functools.partial):
            waiting += [each.func, *each.args, *each.keywords.values()]
        for cell in getattr(each, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                waiting.append(cell.cell_contents)
    return list(found.values())


def _is_importable(module: ModuleType) -> bool:
    """Return whether an import in another process finds this module: not one loaded from a path."""
    top = module.__name__.partition(".")[0]
    if top in sys.builtin_module_names:
        return True
    with contextlib.suppress(Exception):  # a finder of the user's own may do anything
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        return any(finder.find_spec(top, None) is not None for finder in finders)
    return True
