"""From the words of a command line to options, a config and its environments."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from pufferlib import config as configs
from pufferlib.cli.commands import COMMANDS
from pufferlib.config import Config, Override
from pufferlib.errors import UnknownNameError, UsageError, nearest

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

_SECTIONS = ("train", "vec", "policy", "log")  # besides `env`, whose params only the env knows


class Parser(argparse.ArgumentParser):
    """The parser of one command. Reports mistakes as UsageError, in one line.

    `with_config`: the command takes ini files, and its help lists every key of them.
    """

    def __init__(self, command: str, *, with_config: bool = False) -> None:
        super().__init__(
            prog=f"puffer {command}",
            description=COMMANDS[command],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=_options_text() if with_config else None,
            allow_abbrev=False,
        )
        if with_config:
            self.add_argument(
                "--config", action="append", default=[], metavar="FILE", help="an ini"
            )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See `{self.prog} --help`.")

    def parse(self, words: list[str]) -> tuple[argparse.Namespace, list[Override]]:
        """Return the options of the command, and the keys of sections that `words` set."""
        overrides, rest = configs.parse_overrides(words)
        options, unknown = self.parse_known_args(rest)
        if unknown:
            if not unknown[0].startswith("-"):
                self.error(f"unexpected argument `{unknown[0]}`")
            raise self._unknown_option(unknown[0].partition("=")[0])
        return options, overrides

    def _unknown_option(self, word: str) -> UnknownNameError:
        """Build the error for a flag that does not exist; its key may only lack the section."""
        flags = {flag.lstrip("-"): flag for each in self._actions for flag in each.option_strings}
        for section in _SECTIONS:
            for option in configs.describe(section):
                flags[option.key] = spell_flag(section, option.key)
        suggestions = [flags[key] for key in nearest(word.lstrip("-"), flags)]
        hint = (
            f" Did you mean `{suggestions[0]}`?" if suggestions else f" See `{self.prog} --help`."
        )
        return UnknownNameError(f"Unknown option `{word}`.{hint}", suggestions)


def spell_flag(section: str, key: str) -> str:
    """Return how a key is set on the command line: `--train.batch-size`."""
    return f"--{section}.{key.replace('_', '-')}"


def check_counts(options: argparse.Namespace, *names: str) -> None:
    """Raise UsageError unless these options are at least 1; those not given are fine."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UsageError(f"`--{name.replace('_', '-')}` must be at least 1, but got {value}.")


def is_given(overrides: Iterable[Override], section: str, key: str) -> bool:
    """Return whether the command line has set this key."""
    return any(override[:2] == (section, key) for override in overrides)


def env_params(name: str, overrides: list[Override]) -> dict[str, Any]:
    """Return the params of the env among `overrides`; other sections have no place here."""
    for section, key, _ in overrides:
        if section != "env":
            raise UsageError(f"only --env params can be set here, but got --{section}.{key}.")
    loaded = configs.load(name, overrides).env
    return {key: loaded[key] for _, key, _ in overrides}


def load_config(
    name: str, overrides: list[Override], files: list[str], packaged: bool = True
) -> Config:
    """Read the config; the name is checked first, so that a wrong one is what gets reported."""
    from pufferlib.registry import find

    return configs.load(find(name).id, overrides, files, packaged)


def make_vecenv(config: Config, **changes: Any) -> VectorEnv:
    """Make the envs of `config`, with `changes` of its section `vec`."""
    from pufferlib.registry import make

    vec = replace(config.vec, **changes)
    return make(
        config.name,
        vec.num_envs,
        vec.num_workers,
        vec.envs_per_worker,
        vec.backend,
        vec=vec.options(),
        **config.env,
    )


def see_working_folder() -> None:
    """Let "module:Object" find modules where the user stands, as `python -m` does."""
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _options_text() -> str:
    """Return a line for every key of every section, with type, default and meaning."""
    lines = ["options of a run, also keys of an ini file:"]
    for section in _SECTIONS:
        lines.append("")
        for option in configs.describe(section):
            flag = spell_flag(section, option.key)
            default = "none" if option.default is None else option.default
            lines.append(f"  {flag:<32} {option.help} ({option.type}; {default})")
    lines += ["", "  --env.<param> VALUE              see `puffer envs NAME`"]
    return "\n".join(lines)
