"""`make` and `emulate`: a vector env from a name or an env, with the backend that fits it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pufferlib import config
from pufferlib.emulation import creator_of, name_of
from pufferlib.errors import UsageError, unknown_name
from pufferlib.native import NativeCreator
from pufferlib.registry import EnvSpec, check_settings, find
from pufferlib.system import usable_cores
from pufferlib.vectorization.base import BufferedVectorEnv, VectorEnv
from pufferlib.vectorization.batched import SimulatorCreator
from pufferlib.vectorization.creators import Recipe, can_run
from pufferlib.vectorization.measuring import step_seconds
from pufferlib.vectorization.sizes import DEFAULT_NUM_ENVS, resolve_sizes

# backends that can run one kind of env only, and what it is called
_NEEDED: dict[str, tuple[type, str]] = {
    "threads": (NativeCreator, "a C env"),
    "batched": (SimulatorCreator, "an env of a batched simulator"),
}
_OF_PYTHON = ("serial", "multiprocessing")
_WORTH_SECONDS = 4e-4  # of a step of all envs; below, processes cost more than they save
_MOST_BYTES = 2**23  # of the observations of all slots, for a number of envs that nobody chose


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
    default, or the number in the ini of the name's family (pufferlib/configs/families). That is
    halved, for envs of Python, while one step of all slots takes more than 8 MB of observations.

    `backend` is "threads", "serial", "multiprocessing", "ray", "batched" or "auto" (the default): C
    threads for Ocean envs (`num_workers` of them, all cores by default); a simulator that steps a
    whole batch itself does so ("batched"); for others the backend of the family's ini, else worker
    processes where options or the time of a step call for them, else a serial loop. The attribute
    `backend` of the result says which it is. `vec` are further options of the backend, such as
    {"restart": 3} for worker processes; `double_buffer` steps one half of the slots on C threads
    while the policy acts on the other.

    `seed` is used by the first `reset`. Further keywords are the env's own params; an unknown one
    is an error that suggests the nearest.
    """
    spec = find(name)
    settings = {**spec.kwargs, **env_kwargs}
    is_module = ":" in spec.id  # the user's own, on the command line
    family = config.family_vec(spec.id) if spec.family or is_module else {}
    default = family.get("num_envs") or DEFAULT_NUM_ENVS
    if num_envs is num_workers is envs_per_worker is None:
        num_workers = family.get("num_workers")
    envs, workers = resolve_sizes(num_envs, num_workers, envs_per_worker, default)
    check_settings(spec, settings, _options_of(make))
    options = {**(vec or {}), **({"double_buffer": True} if double_buffer else {})}
    recipe = Recipe(spec.id, spec.entry_point, settings, envs, workers)
    backend = backend or family.get("backend")
    vecenv = _created(recipe, backend, options)
    if num_envs is envs_per_worker is None and vecenv.backend in _OF_PYTHON:
        vecenv = _with_fewer_envs(vecenv, recipe, backend, options)
    vecenv.is_from_make = True
    return _seeded(vecenv, spec.id, seed)


def _with_fewer_envs(
    vecenv: VectorEnv, recipe: Recipe, backend: str | None, options: Mapping[str, Any]
) -> VectorEnv:
    """Return as many envs as a policy can see at once: `vecenv`, or another one."""
    fewer, each = recipe.num_envs, vecenv.observations.nbytes / recipe.num_envs
    while fewer > 1 and fewer * each > _MOST_BYTES:
        fewer //= 2
    if fewer == recipe.num_envs:
        return vecenv
    vecenv.close()
    workers = None if recipe.num_workers is None else min(recipe.num_workers, fewer)
    vecenv = _created(recipe._replace(num_envs=fewer, num_workers=workers), backend, options)
    size = recipe.num_envs * each / 1e6
    vecenv.reduced = (
        f"num_envs {fewer} instead of {recipe.num_envs}: a step of all would be {size:,.0f} MB"
    )
    return vecenv


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
    name = name_of(x).rpartition(".")[2]
    if env_kwargs and callable(x):
        check_settings(EnvSpec(name, x), env_kwargs, _options_of(emulate))
    recipe = Recipe(name, creator, {}, envs, workers, is_instance=not callable(x))
    return _seeded(_created(recipe, backend, vec or {}), name, seed)


def _options_of(function: Callable[..., VectorEnv]) -> list[str]:
    return list(inspect.signature(function).parameters)[1:-1]


def _seeded(vecenv: VectorEnv, name: str, seed: int | None) -> VectorEnv:
    vecenv.name = name
    if seed is not None:
        vecenv.seed(seed)
    return vecenv


def _created(recipe: Recipe, backend: str | None, options: Mapping[str, Any]) -> VectorEnv:
    """Make the vector env with the backend that was asked for, or the best one."""
    if backend not in (None, "auto", *config.BACKENDS):
        raise unknown_name("backend", str(backend), ["auto", *config.BACKENDS])
    creator, what = _NEEDED.get(backend or "", (object, ""))
    if not isinstance(recipe.entry_point, creator):
        raise UsageError(
            f"`backend` must be auto, serial, multiprocessing or ray for `{recipe.name}`, "
            f"which is not {what}, but got {backend}."
        )
    seconds = 0.0
    if backend is None or backend == "auto":
        backend, seconds = best_backend(recipe, options)
    kind: type[BufferedVectorEnv] = config.load_choice(config.BACKENDS[backend])
    for name in options:
        if name not in kind.option_names():
            raise unknown_name(f"option of backend {backend}", name, kind.option_names())
    vecenv = kind.from_recipe(recipe, options)
    vecenv.step_seconds = seconds
    return vecenv


class Choice(NamedTuple):
    """A backend, and the seconds of a step of one env where they were measured to choose it."""

    backend: str
    step_seconds: float = 0.0


def best_backend(recipe: Recipe, options: Mapping[str, Any]) -> Choice:
    """Choose by what is known of the env and the options, else by the time of a step."""
    for backend, (kind, _) in _NEEDED.items():
        if isinstance(recipe.entry_point, kind):
            return Choice(backend)
    if recipe.is_instance:
        return Choice("serial")
    if options or (recipe.num_workers or 1) > 1:
        return Choice("multiprocessing")
    if recipe.num_workers == 1 or recipe.num_envs < 2 or usable_cores() < 2:
        return Choice("serial")
    creator = recipe.creator()
    if not can_run(creator):
        return Choice("serial")
    seconds = step_seconds(creator)
    is_worth_it = seconds * recipe.num_envs > _WORTH_SECONDS
    known = seconds if math.isfinite(seconds) else 0.0  # it may be slow to create only
    return Choice("multiprocessing" if is_worth_it else "serial", known)
