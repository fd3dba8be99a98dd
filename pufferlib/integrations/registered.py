"""Envs that a package registers with Gymnasium: their creator, and families of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.envs.registration import load_env_creator

from pufferlib.errors import MissingExtraError, one_line, unknown_name
from pufferlib.integrations.packages import imported, is_installed, missing, quietly
from pufferlib.integrations.params import keyword_signature, refused_param
from pufferlib.registry import EnvSpec, plain

# defaults of families that draw a picture only when asked, and without a display
PICTURES = {"render_mode": "rgb_array"}

# params of `gymnasium.make` itself; the others go to the env
_MAKE_PARAMS = ("max_episode_steps", "disable_env_checker")


class Creator:
    """Makes envs of one Gymnasium id. Its signature has the params that such an env takes.

    `install` is the command for a missing `package`. `wrap(env, **params)` returns the env to use;
    its keywords are params too.
    """

    def __init__(
        self,
        spec: GymnasiumSpec,
        id: str,
        package: str = "",
        install: str = "",
        wrap: Callable[..., Any] | None = None,
    ) -> None:
        self.spec, self.id, self.package, self.install, self.wrap = spec, id, package, install, wrap
        self._wrap_params = list(inspect.signature(wrap).parameters.values())[1:] if wrap else []
        self.__signature__ = self._signature()

    def __call__(self, **params: Any) -> Any:
        own = {p.name: params.pop(p.name) for p in self._wrap_params if p.name in params}
        # emulation checks what an env returns: a second check would only take longer
        params = {"disable_env_checker": True, **params}
        try:
            self._entry_point()  # else `make` would import it, and not in silence
            env = gymnasium.make(self.spec, **params)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise self._missing(error) from error
        except TypeError as error:
            raise refused_param(self.id, error, self.__signature__) or error from None
        return env if self.wrap is None else self.wrap(env, **own)

    def __reduce__(self) -> tuple[Callable[[bytes], Creator], tuple[bytes]]:
        return _unpickled, (cloudpickle.dumps(vars(self)),)

    def _signature(self) -> inspect.Signature:
        try:
            make = self._entry_point()
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise self._missing(error) from error
        params = keyword_signature(make, _MAKE_PARAMS).parameters.values()
        own = [p.replace(kind=p.KEYWORD_ONLY) for p in self._wrap_params]
        return inspect.Signature(sorted([*params, *own], key=lambda p: p.kind))

    def _entry_point(self) -> Callable[..., Any] | None:
        entry_point: str | Callable[..., Any] | None = self.spec.entry_point
        with quietly():
            return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point

    def _missing(self, error: Exception) -> MissingExtraError:
        """Return the error that names the package to install."""
        if self.install:
            return missing(self.id, self.package, self.install)
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            package = error.name.partition(".")[0]
            return MissingExtraError(f"`{self.id}` needs {package}, which is not installed.")
        return MissingExtraError(f"`{self.id}` cannot be loaded: {one_line(error)}")


def _unpickled(state: bytes) -> Creator:
    """Return a creator in another process; where its spec holds a function, that is imported."""
    creator = Creator.__new__(Creator)
    with quietly():
        vars(creator).update(cloudpickle.loads(state))
    return creator


class RegisteredFamily:
    """The ids that a package registers, as names under a prefix.

    `name_of(spec)` returns the name of an id within the family, with its version, or None where it
    belongs elsewhere. `single` is what the prefix alone means. `defaults` are params that callers
    may override.
    """

    def __init__(
        self,
        family: str,
        package: str,
        name_of: Callable[[GymnasiumSpec], str | None],
        install: str,
        *,
        module: str = "",
        wrap: Callable[..., Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        single: str = "",
    ) -> None:
        self.family, self.prefix, self.package = family, f"{family}-", package
        self.name_of, self.install, self.wrap = name_of, install, wrap
        self.module = module or package  # importing it registers the ids
        self.defaults = dict(defaults or {})
        self.single = single

    def find(self, name: str) -> EnvSpec:
        """Return the env of a name, in any case, with or without dashes and version.

        Without a version it is the newest. A name that is only the beginning of others, such as
        `doorkey` of `doorkey-5x5`, means the one that the package registers first.
        """
        full = self.prefix + name if name else self.family
        if not is_installed(self.package):
            raise missing(full, self.package, self.install)
        specs = self._specs(full)
        id = match(plain(name or self.single), specs)
        if id is None:
            raise unknown_name("environment", full, [self.prefix + each for each in newest(specs)])
        made = Creator(specs[id], self.prefix + id, self.package, self.install, self.wrap)
        return EnvSpec(self.prefix + id, made, dict(self.defaults), family=self.family)

    def names(self) -> list[str]:
        """Return the newest version of every name; none if the package is not installed."""
        if not is_installed(self.package):
            return []
        alone = [self.family] if self.single else []
        return alone + [self.prefix + each for each in newest(self._specs(self.family))]

    def _specs(self, full: str) -> dict[str, GymnasiumSpec]:
        """Return the registered ids by their names in this family, with versions."""
        imported(full, self.module, self.install)
        named = ((self.name_of(spec), spec) for spec in gymnasium.registry.values())
        return {plain(name): spec for name, spec in named if name is not None}


def named_after(
    *prefixes: str, whole: tuple[str, ...] = ()
) -> Callable[[GymnasiumSpec], str | None]:
    """Return a `name_of` for ids that begin with one of `prefixes`, which is cut off.

    Ids that begin with one of `whole` keep it.
    """

    def name_of(spec: GymnasiumSpec) -> str | None:
        for prefix in prefixes:
            if spec.id.startswith(prefix) and spec.id != f"{prefix}v{spec.version}":
                return spec.id[len(prefix) :].lstrip("-")
        return spec.id if spec.id.startswith(whole) else None

    return name_of


def match(wanted: str, known: Mapping[str, GymnasiumSpec]) -> str | None:
    """Return the id that a name means: exact, the newest version, or the first that begins so."""
    latest = newest(known)
    spellings = {**latest, **{id: id for id in known}}
    squeezed = {each.replace("-", ""): id for each, id in spellings.items()}
    first = next(
        (id for each, id in latest.items() if wanted and each.startswith(f"{wanted}-")), None
    )
    return squeezed.get(wanted.replace("-", "")) or first


def newest(known: Mapping[str, GymnasiumSpec]) -> dict[str, str]:
    """Return the id of the newest version of each name, by the name without a version."""
    latest: dict[str, str] = {}
    for id, spec in known.items():
        bare = re.sub(r"-v\d+$", "", id)
        held = latest.setdefault(bare, id)
        if (spec.version or 0) > (known[held].version or 0):
            latest[bare] = id
    return latest
