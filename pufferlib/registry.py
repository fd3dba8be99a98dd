"""Environments by name: `register`, `make`, `list_envs`; and without one: `emulate`.

A name is looked for in this order: what was registered, the Ocean suite, the family that its first
word names (`gym-...`), then what installed packages offer. Families and packages are imported only
when a name needs them.
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
from typing import TYPE_CHECKING, Any, NamedTuple

from pufferlib import config
from pufferlib.emulation import creator_of
from pufferlib.errors import UnknownNameError, UsageError, nearest, one_line, quoted, unknown_name
from pufferlib.native import NativeCreator
from pufferlib.ocean import OCEAN_REGISTRY

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

DEFAULT_NUM_ENVS = 256
ENTRY_POINT_GROUP = "pufferlib.environments"


@dataclass(frozen=True)
class EnvSpec:
    """What `make` knows of a name: how to create one env, and with which settings."""

    id: str
    entry_point: Callable[..., Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    family: str = ""  # a key of FAMILIES


class Family(NamedTuple):
    """Environments of other packages whose names share their first word."""

    about: str
    module: str  # with `find(name)` and `names()`, see pufferlib.integrations


# families without a module here: the package, and how to make its envs ("" where nothing does)
_EMULATE = "pufferlib.emulate(env)"
_ELSEWHERE = {
    "atari": ("ale-py", 'pufferlib.make("gym-ale_py:ALE/Pong-v5")'),
    "minigrid": ("minigrid", 'pufferlib.make("gym-minigrid:MiniGrid-Empty-8x8-v0")'),
    "nethack": ("nle", 'pufferlib.make("gym-nle:NetHackScore-v0")'),
    "minihack": ("minihack", 'pufferlib.make("gym-minihack:MiniHack-Room-5x5-v0")'),
    "crafter": ("crafter", _EMULATE),
    "griddly": ("griddly", _EMULATE),
    "magent": ("magent2", _EMULATE),
    "neuralmmo": ("nmmo", _EMULATE),
    "procgen": ("envpool", ""),
    "microrts": ("gym-microrts", ""),
    "pokemon": ("pyboy", ""),
    "gpudrive": ("gpudrive", ""),
}
FAMILIES = {
    "gym": Family("every id of Gymnasium", "pufferlib.integrations.gymnasium"),
    "pettingzoo": Family("PettingZoo and MPE2", "pufferlib.integrations.pettingzoo"),
}

_registered: dict[str, dict[str, Any]] = {}  # by plain name
_offered: dict[str, dict[str, Any]] = {}  # the same, by installed packages


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
    """Return the names that `make` takes: the Ocean suite, then what was registered.

    A `family` (a key of `families()`) lists its own names instead, as far as they are installed.
    """
    if family is None:
        return list(dict.fromkeys([*list_envs("ocean"), *list_envs("registered")]))
    if plain(family) == "ocean":
        return list(OCEAN_REGISTRY)
    if plain(family) == "registered":
        _load_offers()
        offered = {key: entry for key, entry in _offered.items() if key not in _registered}
        return [entry["id"] for entry in (*_registered.values(), *offered.values())]
    if plain(family) not in FAMILIES:
        raise unknown_name("family", family, families())
    names: list[str] = _family(plain(family)).names()
    return names


def families() -> dict[str, str]:
    """Return what each family is, by the name that `list_envs` takes."""
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
        if dash and family in FAMILIES:
            found: EnvSpec = _family(family).find(name.strip()[len(family) + 1 :])
            return found
        raise _unknown(name)
    except UnknownNameError:
        _load_offers()
        if wanted not in _offered:
            raise
    return _spec(_offered[wanted]["id"], _offered[wanted])


def find_or_load(name: str) -> EnvSpec:
    """Return the entry for `name`, which may be a "module:Object" that nobody has registered."""
    is_path = isinstance(name, str) and name.count(":") == 1
    if is_path and plain(name).partition("-")[0] not in FAMILIES:  # `gym-module:id` is a name
        entry_point = _loaded(name)
        if not callable(entry_point):
            raise UsageError(
                f"{quoted(name)} must be the class or a factory of envs, but is neither."
            )
        return EnvSpec(name, entry_point)
    return find(name)


def make(
    name: str,
    num_envs: int | None = None,
    num_workers: int | None = None,
    envs_per_worker: int | None = None,
    backend: str | None = None,
    seed: int | None = None,
    vec: Mapping[str, Any] | None = None,
    double_buffer: bool = False,
    **env_kwargs: Any,
) -> VectorEnv:
    """Create `num_envs` envs of one name behind one VectorEnv.

    Two of `num_envs`, `num_workers` and `envs_per_worker` imply the third; `num_envs` is 256 by
    default, or what the ini of the name's family (pufferlib/configs/families) says. Ocean envs run
    on C threads (`num_workers` of them, all cores by default); others in worker processes where
    that is worth it, else in a Serial loop. `backend` (a key of BACKENDS, or "auto") overrides
    that. `vec` are further options of the backend, such as {"restart": 3} for worker processes;
    `double_buffer` lets half of the slots step on C threads while the others are looked at.
    `seed` is held until `reset`. Further keywords are the env's own params; an unknown one is an
    error that offers the nearest.
    """
    spec = find(name)
    settings = {**spec.kwargs, **env_kwargs}
    default = config.family_num_envs(spec.id) if spec.family else None
    envs, workers = resolve_sizes(
        num_envs, num_workers, envs_per_worker, default or DEFAULT_NUM_ENVS
    )
    check_settings(spec, settings)
    options = {**(vec or {}), **({"double_buffer": True} if double_buffer else {})}
    vecenv = _vecenv(Recipe(spec.id, spec.entry_point, settings, envs, workers), backend, options)
    return _named(vecenv, spec.id, seed)


def emulate(
    x: Any,
    num_envs: int | None = None,
    num_workers: int | None = None,
    envs_per_worker: int | None = None,
    backend: str | None = None,
    seed: int | None = None,
    vec: Mapping[str, Any] | None = None,
    **env_kwargs: Any,
) -> VectorEnv:
    """Create `num_envs` (1 by default) envs like `x` behind one VectorEnv.

    `x` is a Gymnasium, PettingZoo or legacy gym env, a PufferEnv, or the class or factory of one,
    which gets `env_kwargs`. An env is used itself and copied for the rest: by its `spec`, else by
    deepcopy. Same seed and same actions give the env's own numbers. The rest is as for `make`.
    """
    if num_envs is None and envs_per_worker is None:
        num_envs = 1
    creator = creator_of(x, **env_kwargs)
    envs, workers = resolve_sizes(num_envs, num_workers, envs_per_worker)
    name = getattr(x, "__name__", None) or type(getattr(x, "unwrapped", x)).__name__
    name = name.rpartition(".")[2]
    if env_kwargs and callable(x):
        check_settings(EnvSpec(name, x), env_kwargs)
    recipe = Recipe(name, creator, {}, envs, workers, is_instance=not callable(x))
    return _named(_vecenv(recipe, backend, vec or {}), name, seed)


class Recipe(NamedTuple):
    """What a backend must know to make a vector env."""

    name: str
    entry_point: Callable[..., Any]
    settings: dict[str, Any]
    num_envs: int
    num_workers: int | None
    is_instance: bool = False  # the first env exists already, in this process

    def creator(self) -> Callable[[], Any]:
        """Return a function that makes one env and can go to another process."""
        return functools.partial(self.entry_point, **self.settings)


BACKENDS = {
    "threads": "C envs on threads of this process",
    "serial": "one env after another, in this process",
    "multiprocessing": "worker processes over one shared memory",
    "ray": "actors of a Ray cluster, on other machines too",
}
_WORTH_SECONDS = 4e-4  # of a step of all envs; below, processes cost more than they save


def _vecenv(recipe: Recipe, backend: str | None, options: Mapping[str, Any]) -> VectorEnv:
    """Make the vector env with the backend that was asked for, or the best one."""
    from pufferlib import vectorization

    if backend is not None and backend != "auto" and backend not in BACKENDS:
        raise unknown_name("backend", str(backend), ["auto", *BACKENDS])
    is_native = isinstance(recipe.entry_point, NativeCreator)
    if backend == "threads" and not is_native:
        raise UsageError(
            f"`backend` must be auto, serial, multiprocessing or ray for `{recipe.name}`: "
            "it is not a C env."
        )
    chosen = backend if backend not in (None, "auto") else _best_backend(recipe, options)
    envs, workers = recipe.num_envs, recipe.num_workers
    kind: Any = {
        "threads": vectorization.Threads,
        "serial": vectorization.Serial,
        "multiprocessing": vectorization.Multiprocessing,
        "ray": vectorization.Ray,
    }[chosen]
    _check_options(chosen, kind, options)
    if chosen == "threads":
        return kind(recipe.entry_point, envs, workers, **options, **recipe.settings)  # type: ignore[no-any-return]
    if chosen == "serial":
        return kind(recipe.creator(), envs)  # type: ignore[no-any-return]
    return kind(recipe.creator(), envs, workers, **options)  # type: ignore[no-any-return]


def _best_backend(recipe: Recipe, options: Mapping[str, Any]) -> str:
    """Choose: threads for C envs; for others processes, if asked for by an option or worth it."""
    from pufferlib.system import usable_cores
    from pufferlib.vectorization.creators import can_run
    from pufferlib.vectorization.measuring import step_seconds_apart

    if isinstance(recipe.entry_point, NativeCreator):
        return "threads"
    if recipe.is_instance:
        return "serial"
    if options or (recipe.num_workers or 1) > 1:
        return "multiprocessing"
    if recipe.num_workers == 1 or recipe.num_envs < 2 or usable_cores() < 2:
        return "serial"
    creator = recipe.creator()
    if not can_run(creator):
        return "serial"
    is_worth_it = step_seconds_apart(creator) * recipe.num_envs > _WORTH_SECONDS
    return "multiprocessing" if is_worth_it else "serial"


def _check_options(backend: str, kind: type, options: Mapping[str, Any]) -> None:
    """Raise for the first option that the backend does not take."""
    params = inspect.signature(kind).parameters
    given_apart = ("env_creator", "num_envs", "num_workers", "envs_per_worker", "settings")
    known = [name for name in params if name not in given_apart and name != "first_env"]
    for name in options:
        if name not in known:
            raise unknown_name(f"option of backend {backend}", name, known)


def _named(vecenv: VectorEnv, name: str, seed: int | None) -> VectorEnv:
    vecenv.name = name
    if seed is not None:
        vecenv.seed(seed)
    return vecenv


def resolve_sizes(
    num_envs: int | None,
    num_workers: int | None,
    envs_per_worker: int | None,
    default: int = DEFAULT_NUM_ENVS,
) -> tuple[int, int | None]:
    """Return (num_envs, num_workers) from any of the three; None workers means "as many as fit"."""
    given = {
        "num_envs": num_envs,
        "num_workers": num_workers,
        "envs_per_worker": envs_per_worker,
    }
    for name, value in given.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"`{name}` must be a whole number, but got {quoted(value)}.")
        if value is not None and value < 1:
            raise UsageError(f"`{name}` must be at least 1, but got {value}.")
    if envs_per_worker is None:
        return num_envs or default, num_workers
    if num_workers is None:
        total = num_envs or default
        if total % envs_per_worker:
            fits = max(1, total // envs_per_worker) * envs_per_worker
            raise UsageError(
                f"`num_envs` must be a multiple of `envs_per_worker`, but got {total} and "
                f"{envs_per_worker}. Try num_envs={fits}."
            )
        return total, total // envs_per_worker
    total = num_workers * envs_per_worker
    if num_envs is not None and num_envs != total:
        raise UsageError(
            f"`num_envs` must be num_workers x envs_per_worker, but got {num_envs} and "
            f"{num_workers} x {envs_per_worker}. Try num_envs={total}, or leave one of them out."
        )
    return total, num_workers


def plain(name: str) -> str:
    """Return the spelling that names are compared in: lower case, `-` for `_`."""
    return name.strip().lower().replace("_", "-")


def _spec(id: str, entry: Mapping[str, Any]) -> EnvSpec:
    if "entry_point" not in entry:
        raise UsageError(f"the entry of `{id}` must have an `entry_point`, but has none.")
    return EnvSpec(id, _loaded(entry["entry_point"]), dict(entry.get("kwargs") or {}))


def check_settings(spec: EnvSpec, settings: dict[str, Any]) -> None:
    """Raise for the first setting that `entry_point` does not take, with the nearest it does."""
    if isinstance(spec.entry_point, NativeCreator):
        _check_names(spec.id, settings, spec.entry_point.param_names)
        return
    try:
        params = inspect.signature(spec.entry_point).parameters
    except ValueError:  # a class of C code may not tell
        return
    if any(param.kind is param.VAR_KEYWORD for param in params.values()):
        return
    _check_names(spec.id, settings, [name for name in params if name != "buf"])


def _check_names(id: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise for the first setting that is not `known`; it may be an option of `make` misspelt."""
    own = list(inspect.signature(make).parameters)[1:-1]
    for name in settings:
        if name not in known:
            candidates = [*own, *known] if nearest(name, own) else known
            raise unknown_name(f"param of `{id}`", name, candidates)


def _loaded(entry_point: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the callable; a "module:Object" string is imported now, where `make` needs it."""
    if not isinstance(entry_point, str):
        return entry_point
    module_name, _, attribute = entry_point.partition(":")
    try:
        module = importlib.import_module(module_name)
        loaded: Callable[..., Any] = operator.attrgetter(attribute)(module)
    except Exception as error:  # whatever a stranger's module does when it is imported
        raise UsageError(
            f"`entry_point` must name an importable object, but got {quoted(entry_point)}: "
            f"{one_line(error)}"
        ) from error
    return loaded


# ---- Families, and what installed packages offer -------------------------------------------------


def _family(name: str) -> Any:
    """Import the module of a family."""
    return importlib.import_module(FAMILIES[name].module)


def _unknown(name: str) -> UnknownNameError:
    """Build the error for a name of no family; one of them may know it without its prefix."""
    wanted = _without_version(name)
    known = [id for family in FAMILIES for id in list_envs(family)]
    same = [id for id in known if _without_version(id.partition("-")[2]) == wanted]
    if same:
        listed = " or ".join(f"`{id}`" for id in same)
        return UnknownNameError(f"Unknown environment {quoted(name)}. Did you mean {listed}?", same)
    family = plain(name).partition("-")[0]
    if family in _ELSEWHERE:
        package, way = _ELSEWHERE[family]
        hint = f"Try pip install {package}, then {way}." if way else "It has no names here yet."
        return UnknownNameError(
            f"Unknown environment `{name}`: envs of {family} come with {package}. {hint}"
        )
    return unknown_name("environment", name, [*list_envs(), *known])


def _without_version(name: str) -> str:
    return re.sub(r"-v\d+$", "", plain(name))


@functools.cache
def _load_offers() -> None:
    """Note the envs of the entry-point group of installed packages; once.

    `name = "module:Object"` is one env, imported when it is made. `name = "module"` is imported now
    and calls `register` for what it has. One that fails is left out, with a warning.
    """
    from importlib.metadata import entry_points  # slow, and only here

    for offer in entry_points(group=ENTRY_POINT_GROUP):
        own = dict(_registered)
        try:
            if offer.attr:
                register(offer.name, f"{offer.module}:{offer.attr}")
            else:
                importlib.import_module(offer.module)
        except Exception as error:  # a stranger's package must not stop this one
            warnings.warn(
                f"`{offer.value}` of the entry points `{ENTRY_POINT_GROUP}` is left out: it raised "
                f"{type(error).__name__}: {one_line(error)}",
                stacklevel=2,
            )
        for key, entry in _registered.items():
            if own.get(key) is not entry:
                _offered.setdefault(key, entry)
        _registered.clear()  # offers come last: a name must not change its meaning on the way
        _registered.update(own)
