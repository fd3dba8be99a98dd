"""Layers of a config: where the values of options come from, and which one wins.

Later layers win: defaults, the inis of the env's family and of the env in this package, the user's
ini files, the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from pufferlib.config.options import BOOLS, Rule, guess_value, rules_of
from pufferlib.config.ranges import Range, as_range
from pufferlib.config.schema import SECTIONS, Config, SweepConfig
from pufferlib.errors import UsageError, one_line, quoted, unknown_name
from pufferlib.files import read_regular

Override: TypeAlias = tuple[str, str, str]  # section, key, text

_MAX_INI = 1 << 20  # bytes


def load(
    env_name: str,
    overrides: Iterable[Override] = (),
    files: Iterable[Path | str] = (),
    packaged: bool = True,
) -> Config:
    """Read the layers for `env_name` and return the checked config.

    Without `packaged` the inis of this package are left out, so that the env is what `make` gives.
    `overrides` come from `parse_overrides`, `files` are the user's. Raises UnknownNameError for a
    section or key that does not exist, and UsageError for an invalid value; both name the file and
    line, or the flag.
    """
    inis = _family_settings(env_name), _packaged_ini(f"{_file_name(env_name)}.ini")
    values = _read(chain(*inis) if packaged else ())
    from_files = (_read_ini(_file_text(Path(path)), one_line(path)) for path in files)
    from_flags = (
        _Setting(section, key, text, _spell(section, key)) for section, key, text in overrides
    )
    own = _read(chain(chain.from_iterable(from_files), from_flags))
    train = merge_train_layers(values["train"], own["train"])
    joined = {name: values[name] | own[name] for name in values} | {"train": train}
    config = Config.from_dict({"name": env_name, **joined})
    if own["vec"].keys() & {"num_envs", "envs_per_worker"} or not packaged:
        return config
    usual = family_vec(env_name).get("num_envs")
    return replace(config, has_default_envs=config.vec.num_envs == usual is not None)


class SweepLayers(NamedTuple):
    """What section [sweep] says: options of the sweep, and ranges by `section.key`."""

    config: SweepConfig
    ranges: dict[str, Range]
    chosen: frozenset[str]  # options that any layer has set


def load_sweep(
    env_name: str,
    overrides: Iterable[Override] = (),
    files: Iterable[Path | str] = (),
) -> SweepLayers:
    """Read section [sweep] of the layers for `env_name`, with checked ranges.

    Overrides of other sections are skipped. A key of [sweep] is an option of `SweepConfig`, or what
    to search: `train.learning_rate`, or `learning_rate` for short.
    """
    layers = chain(
        _family_settings(env_name),
        _packaged_ini(f"{_file_name(env_name)}.ini"),
        *(_read_ini(_file_text(Path(path)), one_line(path)) for path in files),
        (_Setting(*override, _spell(*override[:2])) for override in overrides),
    )
    options, ranges, rules = {}, {}, rules_of(SweepConfig)
    for setting in layers:
        if setting.section != "sweep":
            continue
        if setting.key in rules:
            rule = rules[setting.key]
            options[setting.key] = rule.check(rule.parse(setting.text), setting.label)
        else:
            key = full_key(setting.key, setting.where)
            ranges[key] = check_range(key, setting.text, setting.label)
    return SweepLayers(SweepConfig.from_dict(options), ranges, frozenset(options))


def full_key(key: str, where: str = "") -> str:
    """Return `section.key` of what a user searches; a bare key is one of `train`.

    Raises UnknownNameError, with similar names, for an option that does not exist.
    """
    section, dot, name = key.replace("-", "_").partition(".")
    if not dot:
        section, name = "train", section
    if section == "env" and name:
        return f"env.{name}"
    if section == "log":
        raise UsageError(f"{quoted(key)} must be an option that training depends on, but is not.")
    if not dot and name not in rules_of(SECTIONS["train"]):
        known = list(rules_of(SweepConfig)) if where else []
        known += [
            f"{each}.{option}" if each != "train" else option
            for each in ("train", "vec", "policy")
            for option in rules_of(SECTIONS[each])
        ]
        spelled = [option for option in known if option.partition(".")[2] == name]
        raise unknown_name("key to search", name, spelled or known, where)
    _find_rule(_Setting(section, name, "", where))
    return f"{section}.{name}"


def check_range(key: str, given: Any, label: str) -> Range:
    """Return the range that was given for `section.key`; all of its values are valid there."""
    section, _, name = key.partition(".")
    if section == "env":
        return as_range(given, label, guess_value)
    rule = _find_rule(_Setting(section, name, "", label))
    found = as_range(given, label, rule.parse)
    return found.checked(lambda value: rule.check(value, label), rule.base is int)


def _spell(section: str, key: str) -> str:
    return f"--{section}.{key.replace('_', '-')}"


def merge_train_layers(packaged: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of `train` of this package, overridden by the user's own.

    A `batch_size` of the user's own drops the packaged sizes that were chosen for another one.
    """
    sizes = {"minibatch_size", "num_steps"} if "batch_size" in own else set()
    return {key: packaged[key] for key in packaged.keys() - sizes} | dict(own)


def family_vec(env_name: str) -> dict[str, Any]:
    """Return the options of section `vec` in the ini of the env's family."""
    settings = _family_settings(env_name)
    return _read(setting for setting in settings if setting.section == "vec")["vec"]


# ---- The command line ----------------------------------------------------------------------------


def parse_overrides(
    argv: Sequence[str], with_sweep: bool = False
) -> tuple[list[Override], list[str]]:
    """Take `--section.key value` and `--section.key=value` out of `argv`; return them and the rest.

    An option that can be true or false needs no value; a param of the env always does, since only
    the env knows its type. Words after a bare `--` are left alone. `with_sweep` allows section
    `sweep`, whose keys may have a section of their own: `--sweep.train.gamma "0.9, 0.99"`.
    """
    overrides: list[Override] = []
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            return overrides, [*rest, word, *words]
        match = re.fullmatch(r"--([A-Za-z]\w*)\.([A-Za-z][\w.-]*)(?:=(.*))?", word, re.DOTALL)
        if match is None:
            rest.append(word)
            continue
        section, key, text = match[1].lower(), match[2].replace("-", "_"), match[3]
        setting = _Setting(section, key, "", f"--{match[1]}.{match[2]}")
        if section == "sweep" and not with_sweep:
            raise unknown_name("section", section, ["env", *SECTIONS], setting.where)
        if text is None:
            text = _next_value(setting, words)
        overrides.append((section, key, text))
    return overrides, rest


def _next_value(setting: _Setting, words: list[str]) -> str:
    """Take the value of an option off `words`; a flag without one is "true"."""
    rule = _rule_of_flag(setting)
    has_value = bool(words) and not words[0].startswith("--")
    if rule is not None and rule.is_flag:
        is_own_value = has_value and words[0].lower() in {*BOOLS, *rule.choices}
        return words.pop(0) if is_own_value else "true"
    if not has_value:
        where = quoted(setting.where)
        if rule is None:
            raise UsageError(f"{where} must have a value, but got none. Try a number, or true.")
        raise UsageError(f"{where} must have a value ({rule.type_text()}), but got none.")
    return words.pop(0)


def _rule_of_flag(setting: _Setting) -> Rule | None:
    """Return the rule of what a flag sets; None for params of the env and for ranges."""
    if setting.section == "sweep":
        return rules_of(SweepConfig).get(setting.key)
    return None if setting.section == "env" else _find_rule(setting)


# ---- Settings of all layers ----------------------------------------------------------------------


class _Setting(NamedTuple):
    """One line of an ini file, or one option of the command line."""

    section: str
    key: str  # with `_` for `-`
    text: str
    where: str  # "--train.gamma" or "my.ini:3"

    @property
    def label(self) -> str:
        if self.where.startswith("--"):
            return self.where
        return f"{self.where}: {self.section}.{self.key}"


def _read(settings: Iterable[_Setting]) -> dict[str, dict[str, Any]]:
    """Return the checked values of settings by section, later ones winning."""
    values: dict[str, dict[str, Any]] = {"env": {}, **{name: {} for name in SECTIONS}}
    for setting in settings:
        if setting.section == "sweep":  # for `load_sweep`
            continue
        if setting.section == "env":
            values["env"][setting.key] = guess_value(setting.text)
        else:
            rule = _find_rule(setting)
            value = rule.check(rule.parse(setting.text), setting.label)
            values[setting.section][setting.key] = value
    return values


def _find_rule(setting: _Setting) -> Rule:
    """Return the rule of the option that `setting` names, or raise the name nearest to it."""
    if setting.section not in SECTIONS:
        raise unknown_name("section", setting.section, ["env", *SECTIONS], setting.where)
    rules, key = rules_of(SECTIONS[setting.section]), setting.key
    if key in rules:
        return rules[key]
    kind = f"key of [{setting.section}]"
    for name, section in SECTIONS.items():
        if key in rules_of(section):  # the same key in another section beats any similar one
            raise unknown_name(kind, f"{setting.section}.{key}", [f"{name}.{key}"], setting.where)
    raise unknown_name(kind, key, rules, setting.where)


def _file_text(path: Path) -> str:
    try:
        return read_regular(path, _MAX_INI).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = one_line(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8 text"
        elif isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        raise UsageError(
            f"`--config` must name a readable ini file, but got {quoted(path)}: {reason}."
        ) from error


# ---- Ini files -----------------------------------------------------------------------------------


def _family_settings(env_name: str) -> Iterator[_Setting]:
    """Yield the ini of the envs that share a name prefix, or Ocean's for its envs.

    Ocean's envs have an ini of their own and no prefix. A "module:Object" of the user gets the
    settings of Gymnasium's envs, since it is written in Python too.
    """
    family, _, rest = _file_name(env_name).partition("_")
    if not rest and any(_packaged_ini(f"{family}.ini")):
        family = "ocean"
    elif ":" in env_name and not any(_packaged_ini(f"families/{family}.ini")):
        family = "gym"
    yield from _packaged_ini(f"families/{family}.ini")


def _file_name(env_name: str) -> str:
    return env_name.lower().replace("-", "_")


def _packaged_ini(path: str) -> Iterator[_Setting]:
    from importlib.resources import files  # slow to import, and `puffer --help` does not need it

    if not re.fullmatch(r"(families/)?\w+\.ini", path):
        return
    resource = files("pufferlib").joinpath("configs", *path.split("/"))
    if resource.is_file():
        yield from _read_ini(resource.read_text(encoding="utf-8"), f"configs/{path}")


def _read_ini(text: str, source: str) -> Iterator[_Setting]:
    """Yield the settings in order. Comments are lines with `;` or `#`, and what follows ` ;`."""
    section = ""
    first_line: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = re.split(r"(?:^|\s);", line, maxsplit=1)[0].strip()
        where = f"{source}:{number}"
        if not line or line.startswith("#"):
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip().lower()
            if section not in ("env", "sweep", *SECTIONS):
                raise unknown_name("section", section, ["env", "sweep", *SECTIONS], where)
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        key = key.replace("-", "_")
        if not (section and equals and key and value):
            raise UsageError(
                f"{where} must be `[section]` or `key = value`, but got {quoted(line)}."
            )
        if (section, key) in first_line:
            earlier = first_line[section, key]
            raise UsageError(
                f"{where} must not set {quoted(key)} again: line {earlier} already does."
            )
        first_line[section, key] = number
        yield _Setting(section, key, value, where)
