"""Families whose package lists its envs by name, each made by the same function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from pufferlib.errors import unknown_name
from pufferlib.integrations.packages import is_installed, require
from pufferlib.registry import EnvSpec, plain


class ChosenFamily:
    """The envs that `make(name, **params)` makes, for each of `list_names()`.

    Both may import the package: they are called only where it is installed. `make` must be a
    function or class of a module, so that worker processes can import it.
    """

    def __init__(
        self,
        family: str,
        package: str,
        install: str,
        list_names: Callable[[], Iterable[str]],
        make: Callable[..., Any],
    ) -> None:
        self.family, self.prefix, self.package = family, f"{family}-", package
        self.install, self.list_names, self.make = install, list_names, make

    def find(self, name: str) -> EnvSpec:
        """Return the env of a name, in any case, with `-` for `_`."""
        require(self.prefix + name, self.package, self.install)
        known = {plain(each): each for each in self.list_names()}
        if plain(name) not in known:
            raise unknown_name("environment", self.prefix + name, self.names())
        made = functools.partial(self.make, known[plain(name)])
        return EnvSpec(self.prefix + plain(name), made, family=self.family)

    def names(self) -> list[str]:
        """Return all names; none if the package is not installed."""
        listed = self.list_names() if is_installed(self.package) else ()
        return [self.prefix + plain(each) for each in listed]
