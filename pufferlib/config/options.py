"""One option: its declaration, what its values must be, and how text becomes a value."""

from __future__ import annotations

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from pufferlib.errors import UsageError, did_you_mean, quoted, unknown_name

BOOLS = {"true": True, "yes": True, "on": True, "1": True}
BOOLS |= {"false": False, "no": False, "off": False, "0": False}


def option(
    default: Any,
    help: str,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[str] = (),
) -> Any:  # as `dataclasses.field`, whose result stands for a value of any type
    """Declare a field of a section; `low` and `high` are inclusive.

    `choices` are the words that a `str` may be; those of a Literal are read off its annotation.
    """
    metadata = {"help": help, "low": low, "high": high, "choices": tuple(choices)}
    return field(default=default, metadata=metadata)


class Rule(NamedTuple):
    """What the values of one option must be."""

    base: type  # int, float, bool or str
    optional: bool
    choices: tuple[str, ...]
    low: float | None
    high: float | None
    default: object
    help: str

    @property
    def is_flag(self) -> bool:
        """Whether the option can be true or false, so that its name alone means true."""
        return self.base is bool or {"on", "off"} <= set(self.choices)

    def parse(self, text: str) -> object:
        """Return the value that `text` spells, or `text` itself if it has the wrong form."""
        word = text.strip().lower()
        if self.optional and word == "none":
            return None
        if self.is_flag and word in BOOLS:
            return BOOLS[word]
        if self.base in (int, float):
            number = parse_number(word)
            return text if number is None else number
        return word if self.choices else text.strip()

    def check(self, value: object, label: str) -> object:
        """Return `value` in the option's type, or raise UsageError naming `label`."""
        checked = self._converted(value)
        if checked is None and not (value is None and self.optional):
            hint = did_you_mean(str(value), self.choices)
            wanted = self._requirement()
            raise UsageError(f"`{label}` must be {wanted}, but got {quoted(value)}.{hint}")
        return checked

    def _converted(self, value: object) -> object:
        """Return `value` in the option's type, None if it is invalid."""
        if self.choices:
            word = {True: "on", False: "off"}[value] if isinstance(value, bool) else value
            return word if word in self.choices else None
        if self.base is str:  # no path may hold a NUL
            return value if isinstance(value, str) and "\0" not in value else None
        if self.base is bool:
            return value if isinstance(value, bool) else None
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return None
        try:
            number = self.base(value)  # an infinity is no int, a huge int no float
        except (OverflowError, ValueError):
            return None
        low, high = self.low, self.high
        within = (low is None or number >= low) and (high is None or number <= high)
        is_exact = number == value if self.base is int else math.isfinite(number)
        return number if within and is_exact else None

    def _requirement(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        text = {
            int: "an integer",
            float: "a number",
            bool: "true or false",
            str: "text without NUL",
        }[self.base]
        if self.low is not None and self.high is not None:
            text += f" between {self.low} and {self.high}"
        elif self.low is not None:
            text += f" of at least {self.low}"
        return f"{text}, or none" if self.optional else text

    def type_text(self) -> str:
        """Return the type as `--help` shows it: "int", "float or none", "auto | on | off"."""
        if self.choices:
            return " | ".join(self.choices)
        return f"{self.base.__name__} or none" if self.optional else self.base.__name__


@dataclass(frozen=True, kw_only=True)
class Section:
    """A group of options. Every instance is checked, however it is made."""

    def __post_init__(self) -> None:
        for key, rule in rules_of(type(self)).items():
            checked = rule.check(getattr(self, key), key)
            object.__setattr__(self, key, checked)  # frozen: only here, before anything reads it

    def changed(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        rules = rules_of(type(self))
        return {key: value for key, value in vars(self).items() if value != rules[key].default}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Self:
        """Build the section from plain values; absent keys take their defaults."""
        known = rules_of(cls)
        for key in values:
            if key not in known:
                raise unknown_name("option", key, known)
        return cls(**values)


def rules_of(section: type[Section]) -> dict[str, Rule]:
    """Read the rules of a section off its fields."""
    hints = typing.get_type_hints(section)
    rules = {}
    for declared in dataclasses.fields(section):
        hint, optional = hints[declared.name], False
        metadata = dict(declared.metadata)
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint, _ = typing.get_args(hint)
            optional = True
        if typing.get_origin(hint) is Literal:
            hint, metadata["choices"] = str, typing.get_args(hint)
        rules[declared.name] = Rule(hint, optional, default=declared.default, **metadata)
    return rules


def guess_value(text: str) -> int | float | bool | str | None:
    """Return the plainest value that `text` spells, for params whose types only the env knows."""
    word = text.strip().lower()
    if word == "none":
        return None
    number = parse_number(word)
    if number is not None:
        return number
    return BOOLS.get(word, text.strip())


def parse_number(word: str) -> int | float | None:
    """Read `10_000`, `-3`, `1e6` or `0.5`; without fraction and exponent it is an int."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return None
