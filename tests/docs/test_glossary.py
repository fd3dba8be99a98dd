"""One thing, one name: class names of the package are made of the nouns of docs/design.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pufferlib"

# words that need no entry: of the language, of torch, NumPy and Gymnasium, and of other packages
COMMON = [
    "error",
    "usage",
    "missing",
    "extra",
    "unknown",
    "name",
    "native",
    "non",
    "finite",
    "lost",
    "interrupted",
    "timeout",
    "base",
    "buffered",
    "wrapped",
    "emulated",
    "multi",
    "single",
    "in",
    "place",
    "dict",
    "parallel",
    "based",
    "two",
    "part",
    "async",
    "safe",
    "background",
    "config",
    "train",
    "vec",
    "log",
    "result",
    "found",
    "list",
    "text",
    "line",
    "lines",
    "table",
    "number",
    "numbers",
    "field",
    "choice",
    "kind",
    "index",
    "key",
    "value",
    "parts",
    "state",
    "span",
    "profiler",
    "monitor",
    "system",
    "window",
    "stats",
    "tracker",
    "form",
    "box",
    "discrete",
    "mlp",
    "cnn",
    "lstm",
    "gru",
    "min",
    "ga",
    "transformer",
    "image",
    "encoder",
    "encoders",
    "input",
    "head",
    "heads",
    "wrapper",
    "adam",
    "muon",
    "squash",
    "moments",
    "norm",
    "loss",
    "ppo",
    "sums",
    "shared",
    "memory",
    "generator",
    "hidden",
    "gymnasium",
    "petting",
    "zoo",
    "sb3",
    "sb",
    "ray",
    "threads",
    "serial",
    "multiprocessing",
    "wandb",
    "neptune",
    "tensorboard",
    "jsonl",
    "no",
    "puffe",
    "rl",
    "puffer",
    "panel",
    "curve",
    "history",
    "glyphs",
    "clock",
    "binding",
    "flags",
    "command",
    "commands",
]
RETIRED = {"halves", "meeting", "team", "kinds", "facts", "fit", "making", "cells", "turns", "anew"}


def words(name: str) -> list[str]:
    """Split a name in CamelCase or snake_case into lower-case words, nouns in the singular."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return [part.lower() for part in parts]


def glossary() -> set[str]:
    """Return the words of the nouns in the glossary."""
    page = (ROOT / "docs" / "design.md").read_text()
    section = page[page.index("## Glossary") : page.index("## Chosen parts")]
    nouns = re.findall(r"\*\*([a-z ]+)\*\*", section)
    return {word for noun in nouns for word in noun.split()}


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE), ast.parse(path.read_text())


def known(word: str, nouns: set[str]) -> bool:
    forms = {word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ed")}
    return bool(forms & (nouns | set(COMMON)))


def test_class_names_are_made_of_the_glossarys_nouns() -> None:
    nouns = glossary()
    strange = [
        f"{path}: {node.name}"
        for path, tree in trees()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if not all(known(word, nouns) for word in words(node.name))
    ]
    assert strange == []


def test_every_noun_of_the_glossary_is_used() -> None:
    text = " ".join(path.read_text().lower() for path in PACKAGE.rglob("*.py"))
    assert {noun for noun in glossary() if noun not in text} == set()


def test_retired_names_stay_away() -> None:
    used = [
        f"{path}: {name}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        for name in [node.name]
        if RETIRED & set(words(name))
    ]
    assert used == []
    assert RETIRED.isdisjoint(path.stem for path, _ in trees())
