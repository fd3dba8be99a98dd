"""Environments by name: `register`, `list_envs`, and the search for a name.

Names are searched in this order: registered envs, the Ocean suite, the family that the first word
of the name selects (`gym-...`), then the envs of installed packages. Families and packages are
imported only when a name needs them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from pufferlib.errors import (
    FAULTS,
    UnknownNameError,
    UnknownParamError,
    UsageError,
    nearest,
    one_line,
    quoted,
    raised_text,
    unknown_name,
)
from pufferlib.native import NativeCreator
from pufferlib.ocean import OCEAN_REGISTRY

ENTRY_POINT_GROUP = "pufferlib.environments"


@dataclass(frozen=True)
class EnvSpec:
    """The entry of a name: how to create one env, and with which settings."""

    id: str
    entry_point: Callable[..., Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    family: str = ""  # a key of FAMILIES


class Family(NamedTuple):
    """Environments of other packages whose names share their first word."""

    about: str
    module: str  # with `find(name)` and `names()`, see pufferlib.integrations
    single: bool = False  # the first word alone is a name too: `find("")`
    is_slow: bool = False  # its package takes seconds to import: not asked for similar names


FAMILIES = {
    "gym": Family("every id of Gymnasium", "pufferlib.integrations.gymnasium"),
    "atari": Family("games of the Arcade Learning Environment", "pufferlib.integrations.atari"),
    "procgen": Family("the 16 games of Procgen", "pufferlib.integrations.procgen"),
    "envpool": Family("every task of EnvPool", "pufferlib.integrations.envpool", is_slow=True),
    "craftax": Family(
        "Craftax in JAX; also craftax-classic, craftax-pixels, craftax-classic-pixels",
        "pufferlib.integrations.craftax",
        single=True,
    ),
    "gymnax": Family("envs of Gymnax, in JAX", "pufferlib.integrations.gymnax", is_slow=True),
    "brax": Family("physics of Brax, in JAX", "pufferlib.integrations.brax"),
    "pgx": Family("board games of Pgx, in JAX", "pufferlib.integrations.pgx", is_slow=True),
    "pettingzoo": Family("PettingZoo and MPE2", "pufferlib.integrations.pettingzoo"),
    "minigrid": Family("MiniGrid and BabyAI", "pufferlib.integrations.minigrid"),
    "nethack": Family("tasks of NetHack (NLE)", "pufferlib.integrations.nethack", single=True),
    "minihack": Family("levels of MiniHack", "pufferlib.integrations.minihack"),
    "crafter": Family("Crafter", "pufferlib.integrations.crafter", single=True),
    "mujoco": Family("Gymnasium's MuJoCo robots", "pufferlib.integrations.mujoco"),
    "dmc": Family("DeepMind Control Suite", "pufferlib.integrations.dmc", is_slow=True),
    "highway": Family("driving tasks", "pufferlib.integrations.highway", is_slow=True),
    "vizdoom": Family("scenarios of Doom", "pufferlib.integrations.vizdoom"),
    "bsuite": Family("Behaviour Suite", "pufferlib.integrations.bsuite"),
    "magent": Family("battles of many agents", "pufferlib.integrations.magent"),
    "griddly": Family("grid games of Griddly", "pufferlib.integrations.griddly"),
    "openspiel": Family("games of OpenSpiel", "pufferlib.integrations.openspiel"),
    "retro": Family("console games, with your ROMs", "pufferlib.integrations.retro"),
    "microrts": Family("MicroRTS, with Java", "pufferlib.integrations.microrts", single=True),
    "neuralmmo": Family("Neural MMO 2", "pufferlib.integrations.neuralmmo", single=True),
    "pokemon": Family("Pokemon Red, with your ROM", "pufferlib.integrations.pokemon"),
    "gpudrive": Family("GPUDrive, with your build", "pufferlib.integrations.gpudrive", single=True),
}

_registered: dict[str, dict[str, Any]] = {}  # by plain name
_offered: dict[str, dict[str, Any]] = {}  # the same, of installed packages


def register(
    id: str, entry_point: str | Callable[..., Any], kwargs: dict[str, Any] | None = None
) -> None:
    """Let `make(id)` create envs from `entry_point`, a callable or a "module:Object" string.

    `kwargs` are settings that `make` passes on and callers may override. A later registration of
    the same id replaces the earlier one.
    """
    if not isinstance(id, str) or not plain(id):
        raise UsageError(f"`id` must be a name, but got {quoted(id)}.")
    if not callable(entry_point) and (
        not isinstance(entry_point, str) or entry_point.count(":") != 1
    ):
        raise UsageError(
            f'`entry_point` must be a callable or "module:Object", but got {quoted(entry_point)}.'
        )
    _registered[plain(id)] = {"id": id, "entry_point": entry_point, "kwargs": dict(kwargs or {})}


def list_envs(family: str | None = None) -> list[str]:
    """Return the names that `make` takes: the Ocean suite, then registered envs.

    With a `family` (a key of `families()`), return the names of its installed envs instead.
    """
    if family is None:
        return list(dict.fromkeys([*list_envs("ocean"), *list_envs("registered")]))
    if plain(family) == "ocean":
        return list(OCEAN_REGISTRY)
    if plain(family) == "registered":
        _load_entry_points()
        offered = {key: entry for key, entry in _offered.items() if key not in _registered}
        return [entry["id"] for entry in (*_registered.values(), *offered.values())]
    if plain(family) not in FAMILIES:
        raise unknown_name("family", family, families())
    names: list[str] = _family(plain(family)).names()
    return names


def families() -> dict[str, str]:
    """Return a description of each family, by the name that `list_envs` takes."""
    return {
        "ocean": "environments in C, part of this package",
        "registered": "yours, and those of installed packages",
        **{name: family.about for name, family in FAMILIES.items()},
    }


def find(name: str) -> EnvSpec:
    """Return the entry for `name`; an UnknownNameError offers the nearest names."""
    if not isinstance(name, str):
        raise UsageError(f"`name` must be the name of an environment, but got {quoted(name)}.")
    wanted = plain(name)
    if wanted in _registered:
        return _spec(_registered[wanted]["id"], _registered[wanted])
    ocean = {plain(id): id for id in OCEAN_REGISTRY}
    for prefix in ("", "ocean-", "puffer-"):
        if wanted.startswith(prefix) and wanted[len(prefix) :] in ocean:
            id = ocean[wanted[len(prefix) :]]
            return _spec(id, OCEAN_REGISTRY[id])
    family, dash, _ = wanted.partition("-")
    try:
        if family in FAMILIES and (dash or FAMILIES[family].single):
            found: EnvSpec = _family(family).find(name.strip()[len(family) + 1 :])
            return found
        raise _unknown(name)
    except UnknownNameError:
        _load_entry_points()
        if wanted not in _offered:
            raise
    return _spec(_offered[wanted]["id"], _offered[wanted])


def find_or_load(name: str) -> EnvSpec:
    """Return the entry for `name`, or for a "module:Object" that is not registered."""
    is_path = isinstance(name, str) and name.count(":") == 1
    if is_path and plain(name).partition("-")[0] not in FAMILIES:  # `gym-module:id` is a name
        entry_point = _loaded(name)
        if not callable(entry_point):
            raise UsageError(
                f"{quoted(name)} must be a class or a factory of envs, but got neither."
            )
        return EnvSpec(name, entry_point)
    return find(name)


def plain(name: str) -> str:
    """Return the spelling that names are compared in: lower case, `-` for `_`."""
    return name.strip().lower().replace("_", "-")


def _spec(id: str, entry: Mapping[str, Any]) -> EnvSpec:
    if "entry_point" not in entry:
        raise UsageError(f"The entry of `{id}` must have an `entry_point`, but has none.")
    return EnvSpec(id, _loaded(entry["entry_point"]), dict(entry.get("kwargs") or {}))


def check_settings(spec: EnvSpec, settings: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """Raise for the first setting that `entry_point` does not take, and suggest the nearest names.

    A misspelt name may also stand for one of `options`, which the caller takes itself.
    """
    if isinstance(spec.entry_point, NativeCreator):
        known = spec.entry_point.param_names
    else:
        try:
            params = inspect.signature(spec.entry_point).parameters
        except ValueError:  # classes written in C may have no signature
            return
        if any(param.kind is param.VAR_KEYWORD for param in params.values()):
            return
        known = [name for name in params if name != "buf"]
    for name in settings:
        if name not in known:
            candidates = [*options, *known] if nearest(name, options) else known
            error = unknown_name(f"param of `{spec.id}`", name, candidates)
            raise UnknownParamError(str(error), error.suggestions, name)


def _loaded(entry_point: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the callable; a "module:Object" string is imported only now, when it is needed."""
    if not isinstance(entry_point, str):
        return entry_point
    module_name, _, attribute = entry_point.partition(":")
    try:
        module = importlib.import_module(module_name)
        loaded: Callable[..., Any] = operator.attrgetter(attribute)(module)
    except FAULTS as error:  # importing a user's module may raise anything
        raise UsageError(
            f"`entry_point` must name an importable object, but got {quoted(entry_point)}: "
            f"importing it {raised_text(error)}"
        ) from error
    return loaded


# ---- Families, and envs of installed packages ----------------------------------------------------


def _family(name: str) -> ModuleType:
    """Import the module of a family."""
    return importlib.import_module(FAMILIES[name].module)


def _unknown(name: str) -> UnknownNameError:
    """Return the error for an unknown name; a family may have it under its prefix."""
    if plain(name) in FAMILIES:
        which = f"`puffer envs {plain(name)}` lists them"
        return UnknownNameError(f"{quoted(name)} is a family of environments: {which}.")
    wanted = _without_version(name)
    known = [id for name in FAMILIES if not FAMILIES[name].is_slow for id in list_envs(name)]
    same = [id for id in known if _without_version(id.partition("-")[2]) == wanted]
    if same:
        listed = " or ".join(f"`{id}`" for id in same)
        return UnknownNameError(f"Unknown environment {quoted(name)}. Did you mean {listed}?", same)
    return unknown_name("environment", name, [*list_envs(), *known])


def _without_version(name: str) -> str:
    return re.sub(r"-v\d+$", "", plain(name))


@functools.cache
def _load_entry_points() -> None:
    """Load the entry-point group of installed packages, once.

    `name = "module:Object"` is one env, imported when it is made. `name = "module"` is imported now
    and calls `register` for its envs. An entry that fails is skipped with a warning.
    """
    from importlib.metadata import entry_points  # slow, and only here

    for entry_point in entry_points(group=ENTRY_POINT_GROUP):
        own = dict(_registered)
        try:
            if entry_point.attr:
                register(entry_point.name, f"{entry_point.module}:{entry_point.attr}")
            else:
                importlib.import_module(entry_point.module)
        except FAULTS as error:  # a broken package must not stop this one
            warnings.warn(
                f"Entry point `{entry_point.value}` of group `{ENTRY_POINT_GROUP}` is skipped: "
                f"it raised {type(error).__name__}: {one_line(error)}",
                stacklevel=2,
            )
        for key, entry in _registered.items():
            if own.get(key) is not entry:
                _offered.setdefault(key, entry)
        _registered.clear()  # they come last in a search: a name must keep its meaning
        _registered.update(own)
