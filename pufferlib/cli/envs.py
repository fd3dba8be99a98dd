"""`puffer envs`: list the environments, or describe one with its params and metrics."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING

from pufferlib.cli.arguments import Parser, check_output, env_params, see_working_folder, spell_flag
from pufferlib.cli.pictures import write_png
from pufferlib.cli.printing import print_table
from pufferlib.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from pufferlib.native import NativeInfo
    from pufferlib.registry import EnvSpec
    from pufferlib.spaces import ActionLayout
    from pufferlib.vectorization import VectorEnv


def main(words: list[str]) -> int:
    parser = Parser("envs")
    parser.add_argument(
        "name", nargs="?", help="environment to describe, or family whose names to list"
    )
    parser.add_argument("--picture", metavar="FILE.png", help="save a picture of the environment")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    options, overrides = parser.parse(words)
    check_output(options, "picture")
    if options.name is None:
        return _list_envs(options.json)
    if options.json:
        raise UsageError("`--json` must be used without a name: it prints the list.")
    from pufferlib.registry import FAMILIES, list_envs, plain

    family = FAMILIES.get(plain(options.name))
    if family is not None and not family.single:
        names = list_envs(options.name)
        if not names:
            raise MissingExtraError(
                f"No env of `{options.name}` is installed. "
                f"Try pip install 'pufferlib[{plain(options.name)}]'."
            )
        print("\n".join(names))
        return 0
    from pufferlib.native import infos
    from pufferlib.registry import find_or_load
    from pufferlib.vectorization import emulate, make

    see_working_folder(options.name)
    spec = find_or_load(options.name)
    params = env_params(spec.id, overrides)
    if ":" in spec.id:
        vecenv = emulate(spec.entry_point, **{**spec.kwargs, **params})
    else:
        vecenv = make(spec.id, num_envs=1, **params)
    with vecenv:
        if options.picture:
            _take_picture(vecenv, Path(options.picture))
        _print_spaces(spec.id, vecenv)
    info = infos().get(spec.id)
    if info is not None:
        _print_native_env(info)
    else:
        _print_python_env(spec)
    if options.picture:
        print(f"picture: {options.picture}")
    return 0


# ---- one env -------------------------------------------------------------------------------------


def _print_spaces(name: str, vecenv: VectorEnv) -> None:
    about = {
        "observations": vecenv.observation_space,
        "actions": vecenv.action_space,
        "agents": vecenv.agents_per_env,
        "action masks": "yes" if vecenv.action_masks is not None else "no",
    }
    print_table(name, ["", ""], [[key, str(value)] for key, value in about.items()])


def _print_native_env(info: NativeInfo) -> None:
    """Print the docs of a C env: what it is, its params and its metrics."""
    print(f"\n{info.doc}\n")
    lines = [
        [
            spell_flag("env", param.name),
            str(param.spell(param.default)),
            "|".join(param.choices) or f"{param.low:g} to {param.high:g}",
            param.doc,
        ]
        for param in info.params
    ]
    print_table("params", ["param", "default", "range", "meaning"], lines)
    print_table("metrics", ["metric", "meaning"], [[m.name, m.doc] for m in info.metrics])


def _print_python_env(spec: EnvSpec) -> None:
    """Print the first line of a Python env's docstring, and its params by signature."""
    if inspect.isclass(spec.entry_point) or inspect.isfunction(spec.entry_point):
        doc = (inspect.getdoc(spec.entry_point) or "").partition("\n")[0]
        print(f"\n{doc}\n" if doc else "")
    try:
        params = inspect.signature(spec.entry_point).parameters
    except (TypeError, ValueError):  # C code may have no signature
        return
    lines = []
    for name, param in params.items():
        if name == "buf" or param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            continue
        default = spec.kwargs.get(name, param.default)
        is_typed = param.annotation is not param.empty
        lines.append(
            [
                spell_flag("env", name),
                "required" if default is param.empty else repr(default),
                inspect.formatannotation(param.annotation) if is_typed else "",
            ]
        )
    if lines:
        print_table("params", ["param", "default", "type"], lines)


def _take_picture(vecenv: VectorEnv, path: Path) -> None:
    """Save a picture of the env after 50 random steps from a fixed seed."""
    import numpy as np

    from pufferlib.vectorization.measuring import legal_actions

    rng = np.random.default_rng(0)
    vecenv.reset(seed=0)
    for _ in range(50):
        vecenv.step(legal_actions(vecenv, rng))
    picture = vecenv.render(0)
    if picture is None:
        raise UsageError(f"`--picture` needs an env that renders, but {vecenv.name} does not.")
    write_png(path, picture)


# ---- all of them ---------------------------------------------------------------------------------


def _list_envs(as_json: bool) -> int:
    """Print the C envs by group, those that were registered, and the families."""
    from pufferlib.native import infos
    from pufferlib.registry import FAMILIES, list_envs

    if as_json:
        print(json.dumps([_about(name) for name in list_envs()]))
        return 0
    groups: dict[str, list[str]] = {}
    for name in list_envs():
        info = infos().get(name)
        group = "registered" if info is None else info.group
        groups.setdefault(group, []).append(f"  {name:<24}{'' if info is None else info.doc}")
    for group, lines in groups.items():
        print("\n".join([group, *map(str.rstrip, lines), ""]))
    print("families")
    forms = {
        "ocean": ("NAME", "the C envs above; also ocean-NAME and puffer_NAME"),
        "registered": ("NAME", "added by `pufferlib.register` and installed packages"),
        **{
            name: (name if family.single else f"{name}-NAME", family.about)
            for name, family in FAMILIES.items()
        },
    }
    for name, (form, about) in forms.items():
        known = f"; `puffer envs {name}` lists them" if form == f"{name}-NAME" else ""
        print(f"  {name:<12}{form:<18}{about}{known}")
    print("  module:Object                 your own class or factory")
    print("\n`puffer envs NAME` describes an environment: spaces, params, metrics.")
    return 0


def _about(name: str) -> dict[str, object]:
    """Return what `--json` prints for a name; spaces only of C envs, which are made at once."""
    from pufferlib.native import infos
    from pufferlib.spaces import action_layout
    from pufferlib.vectorization import make

    info = infos().get(name)
    if info is None:
        return {"name": name, "group": "registered"}
    with make(name, num_envs=1, num_workers=1) as vecenv:
        space = vecenv.observation_space
        return {
            "name": name,
            "group": info.group,
            "about": info.doc,
            "observations": f"{space.dtype} {'x'.join(map(str, space.shape or ()))}",
            "actions": _choices(action_layout(vecenv.action_space)),
            "agents": vecenv.agents_per_env,
            "action_masks": vecenv.action_masks is not None,
        }


def _choices(layout: ActionLayout) -> str:
    """Return the action space in a few characters: `9`, `3x2x2`, `Box(2)`, `4 + Box(1)`."""
    indices = "x".join(map(str, layout.nvec))
    reals = f"Box({layout.num_continuous})" if layout.num_continuous else ""
    return " + ".join(filter(None, (indices, reals)))
