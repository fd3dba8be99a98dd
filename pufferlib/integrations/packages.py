"""Packages of families: whether they are installed, what to say if not, imports that need `gym`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import gymnasium

from pufferlib.errors import MissingExtraError


def is_installed(package: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # its parent is missing, or it was loaded by hand
        return package in sys.modules


def extra(name: str) -> str:
    """Return the command that installs an extra of this package."""
    return f"pip install 'pufferlib[{name}]'"


def missing(id: str, package: str, install: str) -> MissingExtraError:
    """Return the error for a package that env `id` needs; the caller raises it."""
    return MissingExtraError(f"`{id}` needs {package}, which is not installed: {install}")


def require(id: str, package: str, install: str) -> None:
    """Raise `missing` unless the package is installed."""
    if not is_installed(package):
        raise missing(id, package, install)


def imported(id: str, module: str, install: str) -> Any:
    """Import a module that env `id` needs; what is missing raises `missing`."""
    try:
        with quietly():
            return importlib.import_module(module)
    except ImportError as error:
        package = (error.name or module).partition(".")[0]
        raise missing(id, package, install) from error


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Hide warnings of a package about its own code and dependencies, in Python's stderr too."""
    stream = _Muted()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(stream):
            warnings.simplefilter("ignore")
            yield
    finally:
        stream.is_muted = False


class _Muted(io.TextIOBase):
    """A stderr that discards text for a while: a logger made then keeps it, and must be heard."""

    is_muted = True

    def write(self, text: str) -> int:
        return len(text) if self.is_muted else sys.stderr.write(text)

    def flush(self) -> None:
        if not self.is_muted:
            sys.stderr.flush()


@contextlib.contextmanager
def gymnasium_as_gym() -> Iterator[None]:
    """Let `import gym` give Gymnasium, for packages that were written before it.

    Afterwards the module `gym` is what it was, or absent.
    """
    before = _gym_modules()
    for name in before:
        del sys.modules[name]
    sys.modules["gym"] = gymnasium
    for name in ("spaces", "utils", "envs", "envs.registration"):
        sys.modules[f"gym.{name}"] = importlib.import_module(f"gymnasium.{name}")
    try:
        yield
    finally:
        for name in _gym_modules():
            del sys.modules[name]
        sys.modules.update(before)


def _gym_modules() -> dict[str, ModuleType]:
    return {name: sys.modules[name] for name in list(sys.modules) if name.split(".")[0] == "gym"}
