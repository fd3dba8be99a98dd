"""`puffer envs`: list the environments, or show one with its params and metrics."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from pufferlib.cli.arguments import Parser, check_output, env_params, see_working_folder, spell_flag
from pufferlib.cli.pictures import write_png
from pufferlib.cli.printing import print_table
from pufferlib.errors import UsageError

if TYPE_CHECKING:
    from pufferlib.native import NativeInfo
    from pufferlib.registry import EnvSpec
    from pufferlib.spaces import ActionLayout
    from pufferlib.vectorization import VectorEnv


def main(words: list[str]) -> int:
    parser = Parser("envs")
    parser.add_argument("name", nargs="?", help="show this one, or the names of this family")
    parser.add_argument("--picture", metavar="FILE.png", help="save a picture of it")
    options, overrides = parser.parse(words)
    check_output(options, "picture")
    if options.name is None:
        return _list_envs()
    from pufferlib.registry import FAMILIES, list_envs, plain

    if plain(options.name) in FAMILIES:
        print("\n".join(list_envs(options.name)))
        return 0
    from pufferlib.native import infos
    from pufferlib.registry import emulate, find_or_load, make

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
        _print_facts(spec.id, vecenv)
    info = infos().get(spec.id)
    if info is not None:
        _print_native_env(info)
    else:
        _print_python_env(spec)
    if options.picture:
        print(f"picture: {options.picture}")
    return 0


# ---- one env -------------------------------------------------------------------------------------


def _print_facts(name: str, vecenv: VectorEnv) -> None:
    facts = {
        "observations": vecenv.observation_space,
        "actions": vecenv.action_space,
        "agents": vecenv.agents_per_env,
        "action masks": "yes" if vecenv.action_masks is not None else "no",
    }
    print_table(name, ["", ""], [[key, str(value)] for key, value in facts.items()])


def _print_native_env(info: NativeInfo) -> None:
    """Print what an env of the C core says of itself: its doc, its params and its metrics."""
    print(f"\n{info.doc}\n")
    rows = [
        [
            spell_flag("env", param.name),
            str(param.spell(param.default)),
            "|".join(param.choices) or f"{param.low:g} to {param.high:g}",
            param.doc,
        ]
        for param in info.params
    ]
    print_table("params", ["param", "default", "range", "meaning"], rows)
    print_table("metrics", ["metric", "meaning"], [[m.name, m.doc] for m in info.metrics])


def _print_python_env(spec: EnvSpec) -> None:
    """Print what a Python env says of itself: its first line, and its params by signature."""
    if inspect.isclass(spec.entry_point) or inspect.isfunction(spec.entry_point):
        doc = (inspect.getdoc(spec.entry_point) or "").partition("\n")[0]
        print(f"\n{doc}\n" if doc else "")
    try:
        params = inspect.signature(spec.entry_point).parameters
    except (TypeError, ValueError):  # C code may not tell
        return
    rows = []
    for name, param in params.items():
        if name == "buf" or param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD):
            continue
        default = spec.kwargs.get(name, param.default)
        is_typed = param.annotation is not param.empty
        rows.append(
            [
                spell_flag("env", name),
                "must be given" if default is param.empty else repr(default),
                inspect.formatannotation(param.annotation) if is_typed else "",
            ]
        )
    if rows:
        print_table("params", ["param", "default", "type"], rows)


def _take_picture(vecenv: VectorEnv, path: Path) -> None:
    """Save a picture of the env after some random play, always the same."""
    from pufferlib.vectorization.measuring import random_actions

    vecenv.reset(seed=0)
    for actions in random_actions(vecenv, count=50):
        vecenv.step(actions)
    picture = vecenv.render(0)
    if picture is None:
        raise UsageError(f"`--picture` needs an env that can be drawn, but {vecenv.name} cannot.")
    write_png(path, picture)


# ---- all of them ---------------------------------------------------------------------------------


def _list_envs() -> int:
    from pufferlib.native import infos
    from pufferlib.registry import FAMILIES, list_envs, make
    from pufferlib.spaces import action_layout

    rows = []
    for name in list_envs():
        info = infos().get(name)
        if info is None:
            rows.append(["registered", name, "", "", "", ""])
            continue
        with make(name, num_envs=1, num_workers=1) as vecenv:
            space = vecenv.observation_space
            rows.append(
                [
                    info.group,
                    name,
                    f"{space.dtype} {'x'.join(map(str, space.shape or ()))}",
                    _choices(action_layout(vecenv.action_space)),
                    str(vecenv.agents_per_env),
                    info.doc,
                ]
            )
    print_table("environments", ["group", "name", "obs", "actions", "agents", "what"], rows)
    print("\nfamilies:")
    forms = {
        "ocean": ("NAME", "as above, in C; also ocean-NAME and puffer_NAME"),
        "registered": ("NAME", "what `pufferlib.register` and installed packages add"),
        **{name: (f"{name}-NAME", family.about) for name, family in FAMILIES.items()},
    }
    for name, (form, about) in forms.items():
        known = f"; `puffer envs {name}` lists them" if name in FAMILIES else ""
        print(f"  {name:<12}{form:<18}{about}{known}")
    print("  module:Object                 your class or factory, for `puffer train` and others")
    return 0


def _choices(layout: ActionLayout) -> str:
    """Spell what there is to choose: `9`, `3x2x2`, `Box(2)`, `4 + Box(1)`."""
    indices = "x".join(map(str, layout.nvec))
    reals = f"Box({layout.num_continuous})" if layout.num_continuous else ""
    return " + ".join(filter(None, (indices, reals)))
