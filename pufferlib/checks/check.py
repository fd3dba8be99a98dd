"""check_env: play an environment and report, in one line each, what is wrong with it.

Emulation itself judges what an env returns, so an error here is the error that training would stop
with. Warnings are faults that a run survives (a seed that changes nothing, an observation that
changes after it was returned); notes are worth knowing.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pufferlib import registry
from pufferlib.checks.batched import BatchOfOne, stepped_alone
from pufferlib.checks.play import Guards, PlayCheck
from pufferlib.checks.report import Findings, Report
from pufferlib.checks.steps import StepCheck
from pufferlib.emulation import (
    AgentDicts,
    Emulated,
    SingleAgent,
    create,
    creator_of,
    name_of,
    undisturbed,
)
from pufferlib.env import PufferEnv
from pufferlib.errors import FAULTS, UsageError, error_line, raised_text
from pufferlib.native import NativeCreator, NativeEnv
from pufferlib.spaces import action_layout, observation_layout, spell_path
from pufferlib.vectorization.batched import SimulatorCreator


def check_env(
    env: Any, *, kwargs: Mapping[str, Any] | None = None, steps: int = 1000, seed: int = 0
) -> Report:
    """Play `env` and report all that is wrong with it.

    `env` is what `emulate` takes, a name that `make` takes, or "module:Object"; `kwargs` are params
    for a name, a class or a factory. Two runs of at most `steps` random steps (fewer for a slow
    env) begin with `seed`. An env that was given stays open, in the middle of an episode; one that
    was made here is closed.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"`steps` must be a whole number of at least 1, but got {steps!r}.")
    name, creator, is_given = _source(env, dict(kwargs or {}))
    findings = Findings(name)
    with findings.catching_warnings(), undisturbed():
        made: PufferEnv | None = findings.attempt(create, creator)[0]
        if made is not None:
            _check(made, findings, seed, steps, is_given)
            if not is_given:
                _close(made, findings)
    return findings.report(env if isinstance(env, str) else "")


def _source(env: Any, kwargs: dict[str, Any]) -> tuple[str, Callable[[], Any], bool]:
    """Return (name, creator, whether `env` is an env already)."""
    if isinstance(env, str):
        spec = registry.find_or_load(env)
        settings = {**spec.kwargs, **kwargs}
        registry.check_settings(spec, settings)
        if isinstance(spec.entry_point, NativeCreator):
            native = spec.entry_point(**settings)  # invalid params are the caller's mistake
            return spec.id, lambda: native, False

        def make_one() -> Any:
            if isinstance(spec.entry_point, SimulatorCreator):
                return BatchOfOne(spec.entry_point, settings)
            return spec.entry_point(**settings)

        make_one.__name__ = spec.id.rpartition(":")[2]
        return make_one.__name__, make_one, False
    is_given = not isinstance(env, type) and hasattr(env, "step")
    name = name_of(env)
    if kwargs and not is_given and callable(env):
        registry.check_settings(registry.EnvSpec(name, env), kwargs)
    return name, creator_of(env, **kwargs), is_given


def _check(env: PufferEnv, findings: Findings, seed: int, steps: int, is_given: bool) -> None:
    guards = None
    if isinstance(env, NativeEnv):
        findings.name = env._vec.info.name
        if not is_given:
            guards = Guards(env._vec.buffers)
            env.bind(guards.buffers)
    alone = stepped_alone(env)
    if alone is not None:
        findings.name = alone.traits.name
    check_spaces(env, findings)
    if alone is not None:
        check_reset_parameters(alone, findings)
    if isinstance(env, SingleAgent | AgentDicts):
        StepCheck(env, findings).run(seed)
    if not findings.failed:
        PlayCheck(env, findings, guards).run(seed, steps)
    check_picture(env, findings)
    if alone is not None:
        check_copies(alone.env, findings)


def _close(env: PufferEnv, findings: Findings) -> None:
    if findings.attempt(env.close)[1]:
        try:
            env.close()
        except FAULTS as error:
            cause = error_line(error.__cause__ or error)
            what = f"must not fail when called twice, but raised {cause}."
            findings.add("warning", "close", what)


# ---- Checks that need no steps -------------------------------------------------------------------


def check_spaces(env: PufferEnv, findings: Findings) -> None:
    """Report spaces that are valid but cost memory or learning."""
    for leaf in observation_layout(env.single_observation_space).leaves:
        if leaf.dtype == np.float64:
            field = spell_path("observation_space", leaf.path)
            what = f"`{field}` is float64, twice the memory of float32, which policies read."
            findings.add("note", "__init__", what)
    layout = action_layout(env.single_action_space)
    if not (np.isfinite(layout.low).all() and np.isfinite(layout.high).all()):
        what = "`action_space` must have bounds for policies to know its scale, but has none."
        findings.add("warning", "__init__", what)
    if any(n == 1 for n in layout.nvec):
        findings.add("note", "__init__", "`action_space` has a component with a single choice.")


def check_reset_parameters(env: Emulated, findings: Findings) -> None:
    """Report a `reset` without the keywords that Gymnasium and PettingZoo promise."""
    if env.traits.api not in ("gymnasium", "parallel", "aec"):
        return
    try:
        params = inspect.signature(env.traits.unwrapped.reset).parameters
    except (TypeError, ValueError):  # C code may have no signature
        return
    takes_any = any(param.kind is param.VAR_KEYWORD for param in params.values())
    missing = [name for name in ("seed", "options") if name not in params and not takes_any]
    if missing:
        listed = " and ".join(f"`{name}`" for name in missing)
        what = f"must take `seed` and `options` by keyword, but takes no {listed}."
        findings.add("warning", "reset", what)


def check_picture(env: PufferEnv, findings: Findings) -> None:
    """Report a `render` that raises or returns something else than pixels."""
    if isinstance(env, Emulated):
        render, mode, unwrapped = env.traits.render, env.traits.render_mode, env.traits.unwrapped
    else:
        render, mode, unwrapped = env.render, env.render_mode, env
    is_drawn = mode not in (None, "human") or isinstance(unwrapped, PufferEnv)
    if findings.failed or not is_drawn or render is None:
        return
    known = (getattr(unwrapped, "metadata", None) or {}).get("render_modes")
    if mode is not None and known is not None and mode not in known:
        what = f"`render_mode` must be one of metadata's {list(known)}, but got {mode!r}."
        findings.add("warning", "render", what)
    try:
        picture = render()
    except FAULTS as error:
        findings.add("error", "render", raised_text(error))
        return
    if isinstance(picture, list) and picture:
        picture = picture[-1]
    if isinstance(picture, np.ndarray):
        is_rgb = picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
        given = f"{picture.dtype} {picture.shape}"
    else:
        is_rgb = picture is None or isinstance(picture, str | list)
        given = type(picture).__name__
    if not is_rgb:
        what = f"must return uint8 pixels [height, width, 3] or None, but got {given}."
        findings.add("warning", "render", what)


def check_copies(env: object, findings: Findings) -> None:
    """Note an env that cannot be copied or pickled."""
    for method, call, hint in (
        ("deepcopy", copy.deepcopy, "more than one must come from a class or factory"),
        ("pickle", pickle.dumps, "it must be made in the process that runs it"),
    ):
        if method == "pickle" and "<locals>" in type(env).__qualname__:
            continue  # a property of the class, not of the env
        try:
            call(env)
        except FAULTS as error:
            findings.add("note", method, f"cannot be copied ({error_line(error)}): {hint}.")
            return
