"""Ranges: what the values of a searched option may be, and how text spells one.

    log_uniform 1e-4 1e-2     between both, evenly in the logarithm
    uniform 0.1 0.9           between both
    int 1 8                   a whole number
    log_int 10 1000           a whole number, evenly in the logarithm
    pow2 64 1024              a power of two
    logit 0.9 0.999           evenly in log(x / (1 - x)): for what is close to 0 or 1
    32, 64, 128               one of these
    0 or log_uniform 1e-4 1   switched off with this value, or in the range

A range maps its values to coordinates in [0, 1] and back, so a method of search sees numbers only.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pufferlib.config.options import parse_number
from pufferlib.errors import UsageError, did_you_mean, one_line, quoted

_EDGE = 1e-9  # how far from 0 and 1 a logit must stay


class Range(ABC):
    """The values that a searched option may take."""

    @property
    def width(self) -> int:
        """Number of coordinates of a value."""
        return 1

    @property
    def levels(self) -> int:
        """Number of values, each with an equal part of [0, 1]; 0 if they are continuous."""
        return 0

    @abstractmethod
    def decode(self, coordinates: Sequence[float]) -> Any:
        """Return the value at these coordinates; those outside of [0, 1] are clipped."""

    @abstractmethod
    def encode(self, value: Any) -> list[float]:
        """Return the coordinates of `value`; `decode` gives it back if it is in the range."""

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Return whether `decode` can give this value."""

    @abstractmethod
    def checked(self, check: Callable[[Any], Any], integer: bool) -> Range:
        """Return the range for an option: `check` converts its values or raises UsageError.

        An `integer` option gets whole numbers only.
        """

    @abstractmethod
    def __str__(self) -> str:
        """Return the text that `parse_range` reads."""


@dataclass(frozen=True)
class Uniform(Range):
    """Numbers from `low` to `high`; with `integer` whole ones, both ends included."""

    low: float
    high: float
    integer: bool = False

    def __post_init__(self) -> None:
        _check_ends(self._name, self.low, self.high)
        if self.integer and not (_is_whole(self.low) and _is_whole(self.high)):
            raise UsageError(
                f"the ends of `{self._name}` must be whole numbers, but got {self.low} and "
                f"{self.high}."
            )

    @property
    def _name(self) -> str:
        return "int" if self.integer else "uniform"

    @property
    def levels(self) -> int:
        return int(self.high) - int(self.low) + 1 if self.integer else 0

    def decode(self, coordinates: Sequence[float]) -> Any:
        unit = _clipped(coordinates[0])
        if self.integer:
            count = int(self.high) - int(self.low) + 1
            return int(self.low) + min(int(unit * count), count - 1)
        return self.low + unit * (self.high - self.low)

    def encode(self, value: Any) -> list[float]:
        if self.integer:
            return [_clipped((value - self.low + 0.5) / (self.high - self.low + 1))]
        return [_clipped((value - self.low) / (self.high - self.low))]

    def contains(self, value: Any) -> bool:
        return _is_between(value, self.low, self.high) and not (
            self.integer and not _is_whole(value)
        )

    def checked(self, check: Callable[[Any], Any], integer: bool) -> Range:
        return Uniform(check(self.low), check(self.high), self.integer or integer)

    def __str__(self) -> str:
        return f"{self._name} {self.low} {self.high}"


@dataclass(frozen=True)
class LogUniform(Range):
    """Numbers from `low` to `high`, evenly in the logarithm; `integer` rounds them."""

    low: float
    high: float
    integer: bool = False

    def __post_init__(self) -> None:
        _check_ends("log_uniform", self.low, self.high)
        if self.low <= 0:
            raise UsageError(
                f"`log_uniform` must begin above 0, but got {self.low}. "
                f"Try `0 or log_uniform {self.high / 1000:g} {self.high:g}`."
            )

    def decode(self, coordinates: Sequence[float]) -> Any:
        unit = _clipped(coordinates[0])
        value = self.low * (self.high / self.low) ** unit
        value = min(max(value, self.low), self.high)  # rounding must not leave the range
        return round(value) if self.integer else value

    def encode(self, value: Any) -> list[float]:
        return [_clipped(math.log(value / self.low) / math.log(self.high / self.low))]

    def contains(self, value: Any) -> bool:
        return _is_between(value, self.low, self.high) and not (
            self.integer and not _is_whole(value)
        )

    def checked(self, check: Callable[[Any], Any], integer: bool) -> Range:
        return LogUniform(check(self.low), check(self.high), self.integer or integer)

    def __str__(self) -> str:
        return f"{'log_int' if self.integer else 'log_uniform'} {self.low} {self.high}"


@dataclass(frozen=True)
class Logit(Range):
    """Numbers from `low` to `high` within (0, 1), evenly in log(x / (1 - x))."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_ends("logit", self.low, self.high)
        if not (self.low >= _EDGE and self.high <= 1 - _EDGE):
            raise UsageError(
                f"`logit` must stay between 0 and 1, both excluded, but got {self.low} and "
                f"{self.high}. Try `logit 0.9 0.999`."
            )

    def decode(self, coordinates: Sequence[float]) -> Any:
        low, high = logit(self.low), logit(self.high)
        value = 1 / (1 + math.exp(-(low + _clipped(coordinates[0]) * (high - low))))
        return min(max(value, self.low), self.high)

    def encode(self, value: Any) -> list[float]:
        low, high = logit(self.low), logit(self.high)
        inside = min(max(value, self.low), self.high)
        return [_clipped((logit(inside) - low) / (high - low))]

    def contains(self, value: Any) -> bool:
        return _is_between(value, self.low, self.high)

    def checked(self, check: Callable[[Any], Any], integer: bool) -> Range:
        return Logit(check(self.low), check(self.high))  # an integer option refuses both

    def __str__(self) -> str:
        return f"logit {self.low} {self.high}"


@dataclass(frozen=True)
class Pow2(Range):
    """Powers of two from `low` to `high`, which are powers of two themselves."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check_ends("pow2", self.low, self.high)
        for end in (self.low, self.high):
            if not _is_whole(end) or end < 1 or int(end) & (int(end) - 1):
                raise UsageError(
                    f"the ends of `pow2` must be powers of two, but got {end}. Try `pow2 64 1024`."
                )

    @property
    def exponents(self) -> tuple[int, int]:
        """The exponents of both ends."""
        return int(self.low).bit_length() - 1, int(self.high).bit_length() - 1

    @property
    def levels(self) -> int:
        first, last = self.exponents
        return last - first + 1

    def decode(self, coordinates: Sequence[float]) -> Any:
        count = self.levels
        return 1 << (self.exponents[0] + min(int(_clipped(coordinates[0]) * count), count - 1))

    def encode(self, value: Any) -> list[float]:
        first, last = self.exponents
        return [_clipped((math.log2(value) - first + 0.5) / (last - first + 1))]

    def contains(self, value: Any) -> bool:
        is_power = _is_whole(value) and value > 0 and not int(value) & (int(value) - 1)
        return is_power and _is_between(value, self.low, self.high)

    def checked(self, check: Callable[[Any], Any], integer: bool) -> Range:
        check(self.low), check(self.high)
        return self

    def __str__(self) -> str:
        return f"pow2 {int(self.low)} {int(self.high)}"


@dataclass(frozen=True)
class Choice(Range):
    """One of `values`. Numbers are taken as ordered; of other values each has a coordinate."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise UsageError("a list of choices must not be empty. Try a value to begin with.")
        given = list(self.values)
        for each in given:
            if isinstance(each, float) and not math.isfinite(each):
                raise UsageError(f"a choice must be finite, but got {each}.")
        kept = [each for i, each in enumerate(given) if not _has(given[:i], each)]
        if self._are_numbers:
            kept.sort()
        object.__setattr__(self, "values", tuple(kept))  # frozen: only here

    @property
    def _are_numbers(self) -> bool:
        return all(map(_is_number, self.values))

    @property
    def is_ordered(self) -> bool:
        """Whether one coordinate is enough: numbers, or at most two values."""
        return self._are_numbers or len(self.values) <= 2

    @property
    def width(self) -> int:
        return 1 if self.is_ordered else len(self.values)

    @property
    def levels(self) -> int:
        return len(self.values)

    def decode(self, coordinates: Sequence[float]) -> Any:
        count = len(self.values)
        if self.is_ordered:
            return self.values[min(int(_clipped(coordinates[0]) * count), count - 1)]
        return self.values[max(range(count), key=coordinates.__getitem__)]

    def encode(self, value: Any) -> list[float]:
        place = next(i for i, each in enumerate(self.values) if _same(each, value))
        if self.is_ordered:
            return [(place + 0.5) / len(self.values)]
        return [1.0 if i == place else 0.0 for i in range(len(self.values))]

    def contains(self, value: Any) -> bool:
        return _has(self.values, value)

    def checked(self, check: Callable[[Any], Any], integer: bool) -> Range:
        return Choice(tuple(map(check, self.values)))

    def __str__(self) -> str:
        return ", ".join(_spelled(value) for value in self.values)


@dataclass(frozen=True)
class OnOff(Range):
    """Off, which is the value `off`, or on: a value of `inner`."""

    off: Any
    inner: Range

    @property
    def width(self) -> int:
        return 1 + self.inner.width

    def decode(self, coordinates: Sequence[float]) -> Any:
        return self.inner.decode(coordinates[1:]) if coordinates[0] >= 0.5 else self.off

    def encode(self, value: Any) -> list[float]:
        if _same(value, self.off):  # what the inner coordinates are makes no difference
            return [0.0] + [0.5] * self.inner.width
        return [1.0, *self.inner.encode(value)]

    def contains(self, value: Any) -> bool:
        return _same(value, self.off) or self.inner.contains(value)

    def checked(self, check: Callable[[Any], Any], integer: bool) -> Range:
        return OnOff(check(self.off), self.inner.checked(check, integer))

    def __str__(self) -> str:
        return f"{_spelled(self.off)} or {self.inner}"


DISTRIBUTIONS: dict[str, Callable[[float, float], Range]] = {
    "uniform": Uniform,
    "log_uniform": LogUniform,
    "int": lambda low, high: Uniform(low, high, integer=True),
    "log_int": lambda low, high: LogUniform(low, high, integer=True),
    "pow2": lambda low, high: Pow2(low, high),  # type: ignore[arg-type]  # checks that they are
    "logit": Logit,
}


def parse_range(text: str, read: Callable[[str], Any], label: str) -> Range:
    """Return the range that `text` spells; `read` turns the text of a choice into its value.

    `label` is the option that it is for, which errors name.
    """
    try:
        first, is_switch, rest = text.partition(" or ")
        if is_switch:
            return OnOff(read(first.strip()), parse_range(rest.strip(), read, label))
        words = text.split()
        name = words[0].lower().replace("-", "_") if words else ""
        if name in DISTRIBUTIONS:
            ends = [parse_number(word) for word in words[1:]]
            if len(ends) != 2 or None in ends:
                raise UsageError(f"`{name}` must have two numbers, but got {quoted(text)}.")
            return DISTRIBUTIONS[name](*ends)  # type: ignore[arg-type]
        if "," not in text and len(words) > 1:
            known = ", ".join(DISTRIBUTIONS)
            hint = did_you_mean(words[0], DISTRIBUTIONS) or " Choices are separated by commas."
            raise UsageError(f"a range must begin with {known}, but got {quoted(text)}.{hint}")
        return Choice(tuple(read(part.strip()) for part in text.split(",") if part.strip()))
    except UsageError as error:
        raise _named(error, label) from None


def as_range(given: Any, label: str, read: Callable[[str], Any]) -> Range:
    """Return the range that a user gave in Python: a list of choices, its text, or a Range."""
    if isinstance(given, Range):
        return given
    if isinstance(given, str):
        return parse_range(given, read, label)
    if isinstance(given, Iterable):
        try:
            return Choice(tuple(given))
        except UsageError as error:
            raise _named(error, label) from None
    raise UsageError(
        f"`{label}` must be a list of choices or a range, but got {quoted(given)}. "
        "Try [0.1, 0.2] or 'log_uniform 1e-4 1e-2'."
    )


def _named(error: UsageError, label: str) -> UsageError:
    message = str(error)
    return error if message.startswith(f"`{label}`") else UsageError(f"`{label}`: {message}")


def logit(value: float) -> float:
    """Return log(x / (1 - x))."""
    return math.log(value / (1 - value))


def _clipped(unit: float) -> float:
    return min(max(float(unit), 0.0), 1.0)


def _check_ends(name: str, low: Any, high: Any) -> None:
    if not (_is_number(low) and _is_number(high) and -math.inf < low < high < math.inf):
        raise UsageError(
            f"`{name}` must go from a number to a larger one, but got {one_line(low)} and "
            f"{one_line(high)}."
        )


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and float(value).is_integer()


def _is_between(value: Any, low: float, high: float) -> bool:
    return _is_number(value) and low <= value <= high


def _same(first: Any, second: Any) -> bool:
    """Return whether both are equal; True is not 1 here."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)


def _has(values: Iterable[Any], value: Any) -> bool:
    return any(_same(each, value) for each in values)


def _spelled(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
