"""Families of one env, whose name is the whole name: `crafter`, `pokemon-red`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pufferlib.errors import unknown_name
from pufferlib.integrations.packages import is_installed, require
from pufferlib.registry import EnvSpec, plain


class SingleFamily:
    """One env of one package; `install` is the command for a missing package.

    `entry_point` makes an env; it may import the package, since it is called only where that is
    installed. Its signature has the params.
    """

    def __init__(
        self, id: str, package: str, install: str, entry_point: Callable[..., Any]
    ) -> None:
        self.id, self.package, self.install, self.entry_point = id, package, install, entry_point

    def find(self, name: str) -> EnvSpec:
        """Return the env; `name` is what follows the first word of its id."""
        family, _, rest = self.id.partition("-")
        if plain(name) != rest:
            raise unknown_name("environment", f"{family}-{name}", [self.id])
        require(self.id, self.package, self.install)
        return EnvSpec(self.id, self.entry_point, family=family)

    def names(self) -> list[str]:
        """Return the name where the package is installed."""
        return [self.id] if is_installed(self.package) else []
