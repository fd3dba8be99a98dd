"""Parsing of a command line: options, the config, and the envs that it describes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pufferlib import config as configs
from pufferlib.cli.commands import COMMANDS
from pufferlib.config import SECTIONS, Config, Override
from pufferlib.errors import UnknownNameError, UsageError, nearest, one_line, quoted

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv


class Parser(argparse.ArgumentParser):
    """The parser of one command. Reports mistakes as a UsageError of one line.

    With `with_config` the command takes ini files, and its help lists every option of a run;
    `with_sweep` adds those of section `sweep`.
    """

    def __init__(
        self, command: str, *, with_config: bool = False, with_sweep: bool = False
    ) -> None:
        self._with_sweep = with_sweep
        super().__init__(
            prog=f"puffer {command}",
            description=COMMANDS[command].about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=_options_text(with_sweep) if with_config else None,
            allow_abbrev=False,
        )
        if with_config:
            self.add_config_files()
        self.add_argument(
            "--traceback", action="store_true", help="show where an error came from, call by call"
        )

    def add_config_files(self) -> None:
        """Add `--config`, which can be repeated."""
        text = "ini file with options of a run; may be repeated, later files win"
        self.add_argument("--config", action="append", default=[], metavar="FILE", help=text)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{one_line(message)}. See `{self.prog} --help`.")

    def parse(self, words: list[str]) -> tuple[argparse.Namespace, list[Override]]:
        """Return the options of the command, and the options of a run that `words` set."""
        for word in words:
            if "\0" in word:
                self.error(f"arguments must not hold NUL characters, but got {quoted(word)}")
        overrides, rest = configs.parse_overrides(words, self._with_sweep)
        options, unknown = self.parse_known_args(rest)
        if unknown:
            if not unknown[0].startswith("-"):
                self.error(f"unexpected argument {quoted(unknown[0])}")
            raise self._unknown_option(unknown[0].partition("=")[0])
        self._expand_home(options)
        return options, overrides

    def _expand_home(self, options: argparse.Namespace) -> None:
        """Replace the `~` of paths, which a shell leaves in `--video=~/a.gif` and in quotes."""
        for action in self._actions:
            given = getattr(options, action.dest, None)
            if not re.search("FILE|FOLDER|RUN", str(action.metavar)):
                continue
            if isinstance(given, str):
                setattr(options, action.dest, os.path.expanduser(given))
            elif isinstance(given, list):
                setattr(options, action.dest, list(map(os.path.expanduser, given)))

    def _unknown_option(self, word: str) -> UnknownNameError:
        """Build the error for an unknown flag, which may be a key without its section."""
        flags = {flag.lstrip("-"): flag for each in self._actions for flag in each.option_strings}
        for section in (*SECTIONS, "sweep") if self._with_sweep else SECTIONS:
            for option in configs.describe(section):
                flags[option.key] = spell_flag(section, option.key)
        suggestions = [flags[key] for key in nearest(word.lstrip("-"), flags)]
        hint = (
            f" Did you mean `{suggestions[0]}`?" if suggestions else f" See `{self.prog} --help`."
        )
        return UnknownNameError(f"Unknown option {quoted(word)}.{hint}", suggestions)


def spell_flag(section: str, key: str) -> str:
    """Return the flag of a key: `--train.batch-size`."""
    return f"--{section}.{key.replace('_', '-')}"


def check_counts(options: argparse.Namespace, *names: str) -> None:
    """Raise UsageError unless these options are unset or from 1 to 2**31 - 1."""
    for name in names:
        _check_range(name, vars(options)[name], 1, 2**31 - 1)


def check_seed(options: argparse.Namespace) -> None:
    """Raise UsageError unless `--seed` is valid for envs and generators."""
    _check_range("seed", options.seed, 0, 2**63 - 1)


def _check_range(name: str, value: int | None, low: int, high: int) -> None:
    if value is None or low <= value <= high:
        return
    flag, given = f"--{name.replace('_', '-')}", quoted(value)
    if value < low:
        raise UsageError(f"`{flag}` must be at least {low}, but got {given}.")
    raise UsageError(f"`{flag}` must be at most {high}, but got {given}.")


def check_output(options: argparse.Namespace, name: str) -> None:
    """Raise UsageError unless the file that an option names can be written. Call it first."""
    given = vars(options)[name]
    if given is None:
        return
    path = Path(given)
    reason = None
    if os.path.isdir(path):
        reason = "it is a folder"
    elif not os.path.isdir(path.parent):
        reason = "its folder does not exist"
    elif not os.access(path if os.path.exists(path) else path.parent, os.W_OK):
        reason = "permission denied"
    if reason is not None:
        raise UsageError(
            f"`--{name}` must be a file that can be written, but got {quoted(path)}: {reason}."
        )


def env_params(name: str, overrides: list[Override]) -> dict[str, Any]:
    """Return the env params among `overrides`; raise for any other section."""
    for section, key, _ in overrides:
        if section != "env":
            raise UsageError(
                f"only --env params can be set here, but got {quoted(spell_flag(section, key))}."
            )
    loaded = configs.load(name, overrides).env
    return {key: loaded[key] for _, key, _ in overrides}


def env_id(name: str) -> str:
    """Return the id of the env that the user typed, registered for `make`.

    A "module:Object" is imported, also from the working folder, so a name that comes from a file
    must not be passed.
    """
    from pufferlib.registry import find_or_load, register

    see_working_folder(name)
    spec = find_or_load(name)
    if spec.id == name and ":" in name and not spec.family:
        register(name, spec.entry_point)
    return spec.id


def is_native(name: str) -> bool:
    """Return whether the env is one of the C core, which are made at once."""
    from pufferlib.native import NativeCreator
    from pufferlib.registry import find

    return isinstance(find(name).entry_point, NativeCreator)


def make_vecenv(config: Config, **changes: Any) -> VectorEnv:
    """Make the envs of `config`, with `changes` of its section `vec`."""
    from pufferlib.vectorization import make

    return make(config.name, **replace(config.vec, **changes).arguments(), **config.env)


def see_working_folder(name: str) -> None:
    """Let a "module:Object" be imported from the working folder; other names need no folder."""
    if ":" in name and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _options_text(with_sweep: bool) -> str:
    """Return a line for every option: its flag, meaning, type and default."""
    lines = ["options of a run (type; default), which an ini file can set too:"]
    for section in ("sweep", *SECTIONS) if with_sweep else SECTIONS:
        lines.append("")
        for option in configs.describe(section):
            flag = spell_flag(section, option.key)
            default = str(option.default)
            if option.default is None or isinstance(option.default, bool):
                default = default.lower()  # as one types it
            lines.append(f"  {flag:<32} {option.help} ({option.type}; {default})")
    lines += ["", "  --env.<param> VALUE              see `puffer envs NAME`"]
    if with_sweep:
        lines += ['  --sweep.<key> "RANGE"            what to search: see docs/sweeps.md']
    return "\n".join(lines)
