"""What `check_env` found: findings, how they are collected, and the report of all of them."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from pufferlib.errors import EnvError, PufferError

Level: TypeAlias = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = get_args(Level)


class Finding(NamedTuple):
    """One line of a report. An error stops a run, a warning spoils it, a note is worth knowing."""

    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


@dataclass(frozen=True, repr=False)
class Report:
    """What `check_env` found, errors first. As text: a line for each, and a verdict.

    `tracebacks` are those of the exceptions behind the errors.
    """

    name: str
    findings: tuple[Finding, ...]
    tracebacks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not self.of("error")

    def of(self, level: Level) -> list[str]:
        """Return the texts of one level."""
        return [finding.text for finding in self.findings if finding.level == level]

    def raise_for_errors(self) -> None:
        """Raise the first error as an EnvError, which counts the others."""
        errors = self.of("error")
        if errors:
            others = f" ({len(errors) - 1} more in `check_env`)" if len(errors) > 1 else ""
            raise EnvError(errors[0] + others)

    @property
    def verdict(self) -> str:
        """One line that sums up."""
        counts = [len(self.of(level)) for level in LEVELS]
        listed = [f"{n} {level}{'s' * (n != 1)}" for n, level in zip(counts, LEVELS, strict=True)]
        return f"{self.name}: {'ok' if self.ok else 'broken'}, {', '.join(listed)}"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), self.verdict])

    __repr__ = __str__


class Findings:
    """Collects findings about one env. `name` is its class, as errors of emulation spell it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._found: dict[tuple[str, str], Finding] = {}
        self._tracebacks: list[str] = []

    def report(self, label: str = "") -> Report:
        """Return the report of what was found so far."""
        found = sorted(self._found.values(), key=lambda finding: LEVELS.index(finding.level))
        return Report(label or self.name, tuple(found), tuple(self._tracebacks))

    @property
    def failed(self) -> bool:
        """Whether an error was found."""
        return any(finding.level == "error" for finding in self._found.values())

    def add(self, level: Level, method: str, what: str) -> None:
        """Add a finding about a method of the env."""
        self.add_text(level, f"{self.name}, `{method}`: {what}")

    def add_text(self, level: Level, text: str, topic: str = "") -> None:
        """Add a whole line, unless one with the same topic is there.

        Without a topic, lines that differ just in the value they got count as the same.
        """
        text = text.replace(" (env 0)", "", 1).replace(" (env 0, ", " (", 1)
        self._found.setdefault(
            (level, topic or text.partition(", but got")[0]), Finding(level, text)
        )

    def attempt(self, call: Callable[..., Any], *args: object) -> tuple[Any, bool]:
        """Return what `call` returns, and whether it succeeded; a PufferError becomes a finding."""
        try:
            return call(*args), True
        except PufferError as error:
            self.add_text("error", str(error))
            self.keep_traceback(error)
            return None, False

    def keep_traceback(self, error: BaseException) -> None:
        """Keep the traceback of an exception that was added as an error."""
        self._tracebacks.append("".join(traceback.format_exception(error)))

    @contextmanager
    def catching_warnings(self) -> Iterator[None]:
        """Turn warnings of emulation into findings; other warnings still reach the user."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for each in caught:
            text = str(each.message)
            if text.startswith(f"{self.name} (env 0"):
                self.add_text("warning", text)
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
