"""How a breach of contract is worded: what must hold, and what was given, in one line."""

from __future__ import annotations

from typing import Any


def class_name(env: Any) -> str:
    """Return the name of an env's class, or of a class itself."""
    return env.__name__ if isinstance(env, type) else type(env).__name__


def spell(value: Any) -> str:
    """Return a value's name, or its text in one line of at most 60 characters."""
    text = getattr(value, "__name__", None) or " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def what_was_raised(error: Exception) -> str:
    """Say in one line what an env's own code raised."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # an exception of the user's, whose own code may be broken too
        said = ""
    return f"raised {type(error).__name__}{f': {said}' if said else '.'}"


def must(field: str, wanted: str, value: Any) -> str:
    """Say what a field must be, and what was given instead."""
    return f"`{field}` must be {wanted}, but got {spell(value)} ({type(value).__name__})."


def arity(wanted: str, result: Any) -> str:
    """Say how many parts a method must return, and how many came."""
    given = f"{len(result)} parts" if isinstance(result, tuple | list) else spell(result)
    return f"must return {wanted}, but got {given}."


def observation_at(path: tuple[str | int, ...]) -> str:
    """Return how a user writes the part of an observation at `path`: `observation['a'][0]`."""
    return "observation" + "".join(f"[{key!r}]" for key in path)
