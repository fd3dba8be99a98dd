"""Stand-ins for packages of other people: modules with the same API."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Return a function that lets a module be installed: `stand_in("nmmo", Env=...)`."""

    def install(name: str, **attributes: Any) -> ModuleType:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return install


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that lets packages be missing."""

    def uninstall(*packages: str) -> None:
        found = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda name, *rest: None if name.split(".")[0] in packages else found(name, *rest),
        )
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)

    return uninstall


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, str], None]]:
    """Return a function that lets a package in a folder be found instead of an installed one."""
    packages: list[str] = []
    before = dict(sys.modules)

    def modules() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] in packages]

    def put(folder: Path, package: str) -> None:
        packages.append(package)
        for name in modules():
            del sys.modules[name]
        monkeypatch.syspath_prepend(str(folder))

    yield put
    for name in modules():
        del sys.modules[name]
    sys.modules.update({name: module for name, module in before.items() if name not in sys.modules})
