"""Imports, read from the syntax tree: each layer imports only from those below it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "pufferlib"

# From the bottom up. A module may import from lower lines only; a folder counts as one module.
LAYERS = [
    {"errors", "files"},
    {"closing"},
    {"config", "spaces"},
    {"buffers", "system"},
    {"episodes"},
    {"env"},
    {"native"},
    {"emulation"},
    {"ocean"},
    {"registry"},
    {"vectorization"},
    {"checks"},
    {"adapters", "integrations"},
    # ---- the torch line: nothing above imports torch, not even inside of a function
    {"distributed"},
    {"policies"},
    {"pytorch"},
    {"models"},
    {"networks"},
    {"runs", "loggers", "dashboard"},
    {"selfplay"},
    {"training"},
    {"bench"},
    {"sweep"},
    {"protein"},
    {"cli"},
    {"__main__", "__init__"},
]
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}
TORCH_LINE = RANK["distributed"]

# Calls that must reach up, inside of a function: what they make lies above them.
MAY_REACH_UP = {("registry", "integrations")}
MAY_IMPORT_CORE = {"native"}
MAY_NAME_SPACES = {"spaces", "native", "bench"}  # the latter two build some of their own
TORCH_IN_FUNCTIONS_ONLY = {"cli", "bench", "__init__", "__main__"}
RUNS_WITH_TORCH = {f"pufferlib.runs.{name}" for name in ("checkpoint", "evaluation", "loading")}
WITHOUT_TORCH = {"runs/__init__.py", "runs/folder.py"}  # `puffer` lists runs without loading it
BANNED_NAMES = {"utils", "util", "common", "misc", "helpers"}


class Import(NamedTuple):
    """One import statement: the full name it reaches for, and where it stands."""

    target: str
    in_function: bool
    for_types: bool  # under `if TYPE_CHECKING`
    line: int


class Module(NamedTuple):
    """A file of the package."""

    name: str  # first part below `pufferlib`: the module, or the package it lies in
    path: Path
    tree: ast.Module

    @property
    def label(self) -> str:
        return str(self.path.relative_to(PACKAGE))


def modules() -> Iterator[Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        first = path.relative_to(PACKAGE).parts[0]
        yield Module(first.removesuffix(".py"), path, ast.parse(path.read_text()))


def imports(node: ast.AST, in_function: bool = False, for_types: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, in_function, for_types, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import in line {child.lineno}"
            for alias in child.names:
                yield Import(f"{child.module}.{alias.name}", in_function, for_types, child.lineno)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            yield from imports(child, in_function or inside, for_types or types)


MODULES = list(modules())
every_module = pytest.mark.parametrize("module", MODULES, ids=[module.label for module in MODULES])


def own_module(target: str) -> str | None:
    """Return the module of this package that an import reaches for."""
    package, _, rest = target.partition(".")
    return rest.partition(".")[0] if package == "pufferlib" else None


def test_every_module_has_a_place() -> None:
    assert {module.name for module in MODULES} <= RANK.keys()


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    names = {part for path in PACKAGE.rglob("*") for part in (path.stem, path.parent.name)}
    assert not names & BANNED_NAMES


@every_module
def test_imports_go_down(module: Module) -> None:
    for found in imports(module.tree):
        target = own_module(found.target)
        if target is None or target == "_core" or found.for_types or target == module.name:
            continue
        if target == "__version__":
            continue
        if (module.name, target) in MAY_REACH_UP and found.in_function:
            continue
        assert RANK[target] < RANK[module.name], (
            f"{module.label}:{found.line} imports {found.target}, which is not below it"
        )


@pytest.mark.parametrize(
    "package", sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
)
def test_files_of_a_package_import_in_no_circle(package: str) -> None:
    def name_of(path: Path) -> str:
        return ".".join(path.relative_to(PACKAGE / package).with_suffix("").parts)

    files = {name_of(module.path): module for module in MODULES if module.name == package}
    below: dict[str, set[str]] = {}
    for name, module in files.items():
        below[name] = set()
        for found in imports(module.tree):
            inside = found.target.removeprefix(f"pufferlib.{package}.")
            if inside == found.target or found.for_types:
                continue
            parts = inside.split(".")
            candidates = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
            below[name].add(next((each for each in candidates if each in files), "__init__"))
    TopologicalSorter(below).prepare()  # raises CycleError, which names the files


@every_module
def test_others_enter_a_room_by_its_front_door(module: Module) -> None:
    """`__all__` of a folder lists the names, or the files, that the rest of the package may use."""
    for found in imports(module.tree):
        room, _, name = found.target.removeprefix("pufferlib.").partition(".")
        if (PACKAGE / room / "__init__.py").exists() and room != module.name and name:
            exported = importlib.import_module(f"pufferlib.{room}").__all__
            assert name.split(".")[0] in exported, (
                f"{module.label}:{found.line} imports {found.target}"
            )


@every_module
def test_torch_stays_below_its_line(module: Module) -> None:
    for found in imports(module.tree):
        if found.target.split(".")[0] != "torch" or found.for_types:
            continue
        assert RANK[module.name] >= TORCH_LINE, f"{module.label}:{found.line} imports torch"
        assert module.label not in WITHOUT_TORCH, f"{module.label}:{found.line} imports torch"
        if module.name in TORCH_IN_FUNCTIONS_ONLY:
            assert found.in_function, f"{module.label}:{found.line} imports torch at the top"


@pytest.mark.parametrize("name", ["cli", "bench"])
def test_what_must_answer_at_once_loads_nothing_below_the_torch_line(name: str) -> None:
    files = [module for module in MODULES if module.name == name]
    assert files
    for module in files:
        for found in imports(module.tree):
            target = own_module(found.target)
            if target in {None, name, "__version__"} or found.in_function or found.for_types:
                continue
            if target == "runs" and found.target not in RUNS_WITH_TORCH:
                continue
            assert RANK[target] < TORCH_LINE, f"{module.label}:{found.line} loads {target}"


@every_module
def test_only_native_knows_the_compiled_core(module: Module) -> None:
    for found in imports(module.tree):
        if own_module(found.target) == "_core":
            assert module.name in MAY_IMPORT_CORE, f"{module.label}:{found.line}"


@every_module
def test_only_spaces_looks_into_gymnasium_spaces(module: Module) -> None:
    if module.name in MAY_NAME_SPACES:
        return
    named = [found.line for found in imports(module.tree) if "gymnasium.spaces" in found.target]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "gymnasium.spaces":
            named.append(node.lineno)
    assert not named, f"{module.label} names gymnasium.spaces in lines {named}"
