"""The environment of a sweep: how other processes find it, and whether it has the params."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pufferlib.config import Range
from pufferlib.native import NativeCreator, infos
from pufferlib.registry import find_or_load


def find_env(name: str) -> tuple[str, bytes]:
    """Return the id of an env, and its pickled entry if only this process knows it."""
    spec = find_or_load(name)
    if isinstance(spec.entry_point, NativeCreator) or spec.family or ":" in name:
        return spec.id, b""
    import cloudpickle

    return spec.id, bytes(cloudpickle.dumps((spec.id, spec.entry_point, spec.kwargs)))


def check_params(name: str, ranges: Mapping[str, Range]) -> None:
    """Raise UsageError if a C environment lacks a searched param, or cannot take its values.

    Params of other environments are checked by their first trial.
    """
    info = infos().get(name)
    for key, each in ranges.items():
        section, _, param = key.partition(".")
        if section == "env" and info is not None:

            def check(value: Any, param: str = param) -> Any:
                info.values({param: value})
                return value

            each.checked(check, integer=False)
