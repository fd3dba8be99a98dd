"""Checks that need no steps: spaces, the parameters of `reset`, pictures, copies."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np

from pufferlib.checks.report import Findings
from pufferlib.emulation import Emulated
from pufferlib.env import PufferEnv
from pufferlib.errors import error_line
from pufferlib.spaces import action_layout, observation_layout, spell_path


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
    except Exception as error:
        findings.add("error", "render", f"raised {error_line(error)}.")
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
        except Exception as error:
            findings.add("note", method, f"cannot be copied ({error_line(error)}): {hint}.")
            return
