"""One thing, one name: public names are made of the glossary's nouns and of common words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pufferlib
from pufferlib import models, pytorch, vectorization
from pufferlib.runs.loading import LoadedPolicy

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pufferlib"

# verbs, adjectives, and names of algorithms and of other packages
COMMON = set(
    re.findall(
        r"\S+",
        """
        make register emulate list check connect to load save evaluate train predict close reset
        send recv render seed place bind rebind finish restart restore create forward init drain
        unflatten each hold can learn measuring is has all no and of by from with done
        first single multi final mean num per default native discrete puffe rl puffer
        wandb neptune tensorboard jsonl petting pettingzoo
        zoo sb 3 gymnasium ray cnn mlp lstm self play state log learning rate uptime stats wrapped
        wrapper encoded critic input unit scale category image encoder head layer serial threads
        multiprocessing batched errors adjusted clock settled name ids mode cycle surplus picture
        convolutions protein reduced left seconds
        """,
    )
)
RETIRED = {"halves", "meeting", "team", "kinds", "facts", "fit", "making", "turns", "rows"}


def words(name: str) -> list[str]:
    """Split a name in CamelCase or snake_case into lower-case words."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def glossary() -> set[str]:
    """Return the words of the glossary's nouns."""
    page = (ROOT / "docs" / "design.md").read_text()
    section = page[page.index("## Glossary") : page.index("## Chosen parts")]
    return {word for noun in re.findall(r"\*\*([a-z ]+)\*\*", section) for word in noun.split()}


def public_names() -> Iterator[str]:
    for module in (pufferlib, pytorch, vectorization):
        yield from module.__all__
    for name, value in vars(models).items():
        if isinstance(value, type) and value.__module__ == models.__name__:
            yield name
    for kind in (pufferlib.PuffeRL, vectorization.VectorEnv, pufferlib.PufferEnv, LoadedPolicy):
        yield from (name for name in vars(kind) if not name.startswith("_"))


def test_public_names_are_made_of_the_glossarys_nouns() -> None:
    known = glossary() | COMMON

    def is_known(word: str) -> bool:
        return bool({word, word.removesuffix("s"), word.removesuffix("es")} & known)

    names = {name for name in public_names() if not name.startswith("_")}
    assert sorted(name for name in names if not all(map(is_known, words(name)))) == []


def test_every_noun_of_the_glossary_is_used() -> None:
    text = " ".join(path.read_text().lower() for path in PACKAGE.rglob("*.py"))
    assert sorted(noun for noun in glossary() if noun not in text) == []


def test_retired_names_stay_away_from_modules_and_classes() -> None:
    assert RETIRED.isdisjoint(path.stem for path in PACKAGE.rglob("*.py"))
    for path in PACKAGE.rglob("*.py"):
        names = {
            n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)
        }
        assert not {name for name in names if (RETIRED - {"rows"}) & set(words(name))}, path
