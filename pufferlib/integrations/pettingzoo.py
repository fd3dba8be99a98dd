"""The family `pettingzoo-`: PettingZoo's environments, and those that moved to MPE2.

A bare name means the newest installed version. AEC envs stay AEC: emulation steps one agent at a
time.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pufferlib.errors import MissingExtraError, UsageError, unknown_name
from pufferlib.integrations.packages import quietly
from pufferlib.integrations.params import keyword_signature, refused_param
from pufferlib.registry import EnvSpec, plain

PREFIX = "pettingzoo-"
INSTALL = "pip install 'pufferlib[pettingzoo]'"

# packages with modules named <name>_v<version>
_SUITES = (
    "pettingzoo.butterfly",
    "pettingzoo.classic",
    "pettingzoo.sisl",
    "mpe2",
    "pettingzoo.mpe",  # before it moved to mpe2
    "pettingzoo.atari",
)
# commands for what the extra does not install, by the missing module
_INSTALLS = {
    "multi_agent_ale_py": "pip install 'pettingzoo[atari]'",
    "pyspiel": "pip install open_spiel",
}
# the param that sets the number of agents
_COUNTS = {
    "hanabi": "players",
    "multiwalker": "n_walkers",
    "pistonball": "n_pistons",
    "pursuit": "n_pursuers",
    "simple_formation": "N",
    "simple_line": "N",
    "simple_spread": "N",
    "texas_holdem": "num_players",
    "texas_holdem_no_limit": "num_players",
}
# envs whose number of agents is a sum of params
_SUMS = {"knights_archers_zombies": "`num_archers` and `num_knights`"}


class Found(NamedTuple):
    """A module with one version of an env."""

    suite: str
    name: str
    version: int
    prefix: str = PREFIX

    @property
    def id(self) -> str:
        return f"{self.prefix}{plain(self.name)}-v{self.version}"

    @property
    def module(self) -> str:
        return f"{self.suite}.{self.name}_v{self.version}"


def find(name: str) -> EnvSpec:
    """Return the env of a name, with a version (`rps-v2`) or without: then the newest present."""
    if importlib.util.find_spec("pettingzoo") is None:
        raise MissingExtraError(f"`{PREFIX}{name}` needs PettingZoo: {INSTALL}")
    present = _present()
    has_mpe = importlib.util.find_spec("mpe2") is not None
    if not has_mpe and plain(name).startswith("simple"):
        raise MissingExtraError(f"`{PREFIX}{name}` needs mpe2: {INSTALL}")
    newest = newest_of(name, present, names())
    return EnvSpec(newest.id, Creator(newest), family="pettingzoo")


def names() -> list[str]:
    """Return the bare names of installed envs."""
    has_atari = importlib.util.find_spec("multi_agent_ale_py") is not None
    listed = [found for found in _present() if has_atari or found.suite != "pettingzoo.atari"]
    return list(dict.fromkeys(PREFIX + plain(found.name) for found in listed))


def newest_of(name: str, present: list[Found], offered: list[str]) -> Found:
    """Return the newest version of a name, or the version that it has.

    An unknown name raises an error that suggests the nearest of `offered`.
    """
    wanted = plain(name)
    matching = [found for found in present if wanted in (plain(found.name), _bare_id(found))]
    if not matching:
        prefix = present[0].prefix if present else PREFIX
        versions = [found.id for found in present if wanted.startswith(f"{plain(found.name)}-v")]
        raise unknown_name("environment", prefix + name, versions or offered)
    return max(matching, key=lambda found: found.version)


class Creator:
    """Makes envs of one PettingZoo module. Its signature has the params that such an env takes."""

    def __init__(self, found: Found, install: str = INSTALL) -> None:
        self.found, self.install = found, install
        module = self._module()
        raw = getattr(module, "raw_env", None)  # `env` and `parallel_env` take any keyword
        raw = raw or _make_of(module)
        takes_it = "num_agents" in keyword_signature(raw).parameters
        self._count = "num_agents" if takes_it else _COUNTS.get(found.name)
        self.__signature__ = keyword_signature(raw, ("num_agents",))

    def __call__(self, num_agents: int | None = None, **params: Any) -> Any:
        if num_agents is not None and self._count is not None:
            params.setdefault(self._count, num_agents)
        try:
            env = _make_of(self._module())(**params)
        except ImportError as error:
            raise self._missing(error) from error
        except TypeError as error:
            raise refused_param(self.found.id, error, self.__signature__) or error from None
        present = len(env.possible_agents)
        if num_agents not in (None, present):
            env.close()
            hint = f" Try {_SUMS[self.found.name]}." if self.found.name in _SUMS else ""
            raise UsageError(
                f"`num_agents` of `{self.found.id}` must be {present}, but got {num_agents!r}."
                f"{hint}"
            )
        return env

    def _module(self) -> ModuleType:
        try:
            with quietly():
                return importlib.import_module(self.found.module)
        except ImportError as error:
            raise self._missing(error) from error

    def _missing(self, error: ImportError) -> MissingExtraError:
        package = (error.name or "a package").partition(".")[0]
        install = _INSTALLS.get(package, self.install)
        return MissingExtraError(
            f"`{self.found.id}` needs {package}, which is not installed: {install}"
        )


def _make_of(module: ModuleType) -> Callable[..., Any]:
    make: Callable[..., Any] = getattr(module, "parallel_env", None) or module.env
    return make


def _present() -> list[Found]:
    return modules_in(_SUITES, PREFIX)


def modules_in(suites: tuple[str, ...], prefix: str) -> list[Found]:
    """Find the modules of envs in packages, without importing them."""
    found = []
    for suite in suites:
        package, *folders = suite.split(".")
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            for module in pkgutil.iter_modules([str(Path(location, *folders))]):
                match = re.fullmatch(r"(\w+)_v(\d+)", module.name)
                if match is not None:
                    found.append(Found(suite, match[1], int(match[2]), prefix))
    return found


def _bare_id(found: Found) -> str:
    return found.id.removeprefix(found.prefix)
