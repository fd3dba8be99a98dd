"""Spaces as trees: Dict and Tuple nodes, leaves in order, and the name of each in messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import EnvError, UsageError

Space: TypeAlias = gymnasium.Space[Any]
Array: TypeAlias = NDArray[np.generic]  # where only a space knows the dtype
Path: TypeAlias = tuple[str | int, ...]
Noun: TypeAlias = Literal["observation", "action"]


def walk(space: Space, path: Path = ()) -> Iterator[tuple[Path, Space]]:
    """Yield path and space of each leaf: Dict in the order of its keys, Tuple by index."""
    if not is_structured(space):
        yield path, space
        return
    for key, child in children_of(space):
        yield from walk(child, (*path, key))


def parts(space: Space, value: Any, noun: Noun, path: Path = ()) -> Iterator[Any]:
    """Yield the value of each leaf in leaf order; the tree must be the tree of `space`."""
    if not is_structured(space):
        yield value
        return
    check_form(space, value, noun, path)
    for key, child in children_of(space):
        yield from parts(child, value[key], noun, (*path, key))


def check_form(space: Space, value: object, noun: Noun, path: Path) -> None:
    """Raise unless `value` has the keys of a Dict, or as many items as a Tuple."""
    keys = [key for key, _ in children_of(space)]
    if isinstance(space, gymnasium.spaces.Dict):
        matches = isinstance(value, Mapping) and value.keys() == set(keys)
        wanted = f"a dict with the keys {keys}"
    else:
        matches = isinstance(value, tuple | list) and len(value) == len(keys)
        wanted = f"a tuple of {len(keys)}"
    if not matches:
        given = f"the keys {list(value)}" if isinstance(value, Mapping) else brief(value)
        raise misfit(noun, path, f"must be {wanted}, but got {given}.")


def rebuilt(space: Space, parts: Iterator[Any]) -> Any:
    """Arrange leaf values, given in leaf order, in the form of `space`."""
    if not is_structured(space):
        return next(parts)
    children = {key: rebuilt(child, parts) for key, child in children_of(space)}
    return children if isinstance(space, gymnasium.spaces.Dict) else tuple(children.values())


def is_structured(space: Space) -> bool:
    """Return whether the space is a Dict or a Tuple."""
    return isinstance(space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)


def children_of(space: Space) -> list[tuple[Any, Space]]:
    """Return (key or index, space) of each child of a Dict or Tuple."""
    if isinstance(space, gymnasium.spaces.Dict):
        return list(space.spaces.items())
    assert isinstance(space, gymnasium.spaces.Tuple)
    return list(enumerate(space.spaces))


def misfit(noun: Noun, path: Path, what: str) -> EnvError | UsageError:
    """Return the error for the part of an observation or action at `path`."""
    kind = EnvError if noun == "observation" else UsageError
    return kind(f"`{spell_path(noun, path)}` {what}")


def spell_path(noun: str, path: Path) -> str:
    """Return the part at `path` as a user writes it: `observation['a'][0]`."""
    return noun + "".join(f"[{key!r}]" for key in path)


def brief(value: object, limit: int = 80) -> str:
    """Return the repr of `value` in one line of at most `limit` characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
