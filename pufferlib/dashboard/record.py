"""The metrics of a run as a dashboard keeps them and spells them: values, curves, short text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

TIME_DECAY = 0.8  # the time split is smoothed over about the last five iterations
HEADLINES = ("env/elo", "env/score", "env/perf")  # the most important metrics: first, and in colour
CURVES = (
    ("env/elo", "elo"),  # of self-play, where the mean reward stays near 0
    ("env/score", "score"),
    ("mean_reward", "mean reward"),
    ("env/perf", "perf"),
)


@dataclass
class Record:
    """The metrics of a run, ready to be shown. Call `take` with a log dict once per iteration."""

    env_name: str
    num_parameters: int
    device: str
    engine: str
    total_steps: float = math.nan  # nan: no budget

    def __post_init__(self) -> None:
        self.log: dict[str, float] = {}
        self.activity = ""  # what a slow iteration is doing
        self.first: tuple[float, float] | None = None  # (steps, uptime) of the first log
        self._seen: set[str] = set()  # all keys logged so far
        self.env_keys: dict[str, None] = {}  # an ordered set of those of the env
        self._spans: dict[str, str] = {}  # name of a span by its key
        self.seconds: dict[str, float] = {}  # by span, smoothed
        self.curves = {key: History() for key, _ in CURVES}

    def take(self, log: Mapping[str, float]) -> None:
        """Record the metrics of one iteration. Copies `log`."""
        self.log, self.activity = dict(log), ""
        steps = self.number("steps")
        if self.first is None:
            self.first = (steps, self.number("uptime"))
        if not self._seen.issuperset(log):
            self._seen.update(log)
            self.env_keys |= {key: None for key in log if key.startswith("env/")}
            self._spans |= {key: key[5:] for key in log if key.startswith("time/")}
        for key, span in self._spans.items():
            seconds = self.number(key)
            if math.isfinite(seconds):
                self.seconds[span] = TIME_DECAY * self.seconds.get(span, 0.0) + seconds
        for key, curve in self.curves.items():
            if key in log:
                curve.append(steps, self.number(key))

    def note_progress(self, activity: str, uptime: float) -> None:
        """Record what the present iteration is doing, and for how long the run has lasted."""
        self.activity, self.log["uptime"] = activity, uptime

    def number(self, key: str) -> float:
        """Return the latest value of `key`, NaN if it is missing or not a number."""
        value = self.log.get(key, math.nan)
        try:
            return float(value)
        except (TypeError, ValueError):
            return math.nan

    def budget(self) -> float:
        """Return the total number of steps of the run, NaN if it has no budget."""
        logged = self.number("total_steps")
        return logged if math.isfinite(logged) else self.total_steps

    def curve(self) -> tuple[str, History]:
        """Return the curve to show and its name: the first of CURVES that has points."""
        for key, label in CURVES:
            if len(self.curves[key]):
                return label, self.curves[key]
        return "mean reward", self.curves["mean_reward"]

    def tags(self) -> list[str]:
        """Return what stays the same in a run: device, engine, size of the policy."""
        tags = [self.device, self.engine, f"{format_count(self.num_parameters)} params"]
        return [tag for tag in tags if tag]

    def line(self) -> str:
        """Return the latest metrics as one line of plain text."""
        parts = [
            format_duration(self.number("uptime")),
            f"{format_count(self.number('steps'))} steps",
            f"{format_count(self.number('sps'))} SPS",
            f"reward {format_short(self.number('mean_reward'))}",
        ]
        for key in HEADLINES:
            if key in self.env_keys:
                parts.append(f"{key[4:]} {format_short(self.number(key))}")
        parts.append(f"kl {format_short(self.number('approx_kl'))}")
        return "  ".join(parts)


class History:
    """A curve over the whole run in bounded memory.

    At `capacity` points, neighbours are averaged, and from then on each point stands for twice as
    many samples. Non-finite samples are dropped.
    """

    def __init__(self, capacity: int = 256) -> None:
        self.best = -math.inf
        self.last = math.nan
        self._capacity = capacity
        self._points: list[tuple[float, float]] = []
        self._stride = 1
        self._count, self._steps, self._values = 0, 0.0, 0.0  # samples since the last point, sums

    def append(self, step: float, value: float) -> None:
        """Add one sample."""
        if not (math.isfinite(step) and math.isfinite(value)):
            return
        self.best = max(self.best, value)
        self.last = value
        self._count, self._steps, self._values = (
            self._count + 1,
            self._steps + step,
            self._values + value,
        )
        if self._count < self._stride:
            return
        self._points.append((self._steps / self._count, self._values / self._count))
        self._count, self._steps, self._values = 0, 0.0, 0.0
        if len(self._points) >= self._capacity:
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairs]
            self._stride *= 2

    def points(self) -> list[tuple[float, float]]:
        """Return (step, value) in the order of the samples, the newest included."""
        last = [(self._steps / self._count, self._values / self._count)] if self._count else []
        return [*self._points, *last]

    def __len__(self) -> int:
        return len(self._points) + bool(self._count)


# ---- Numbers as short text -----------------------------------------------------------------------


def format_count(count: float) -> str:
    """Return at most four characters of digits: 999, 1.2k, 251k, 12.4M, 3B; "-" for NaN."""
    if not math.isfinite(count):
        return "-"
    scaled = abs(count)
    for unit in ("", "k", "M", "B", "T"):
        digits = 1 if unit and scaled < 99.95 else 0
        if round(scaled, digits) < 1000 or unit == "T":
            break
        scaled /= 1000
    text = f"{scaled:.{digits}f}".removesuffix(".0")
    return f"{'-' if count < 0 else ''}{text}{unit}"


def format_duration(seconds: float) -> str:
    """Return 12.3s, 3m12s, 2h05m, 4d03h; "-" for NaN."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def format_value(value: float) -> str:
    """Return about four digits: 123.4, 56, 6.25, 0.610, 3.0e-4, or a count; "-" for NaN."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 99_999.5:
        return format_count(value)
    if value == int(value):
        return str(int(value))
    if size >= 99.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    if size >= 0.001:
        return f"{value:.3f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def format_memory(megabytes: float) -> str:
    """Return 812 MB, 4.1 GB; "-" for NaN."""
    if not math.isfinite(megabytes):
        return "-"
    return f"{megabytes:.0f} MB" if megabytes < 999.5 else f"{megabytes / 1000:.1f} GB"


def format_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f}%" if math.isfinite(fraction) else "-"


def format_short(value: float) -> str:
    """Return `format_value` without trailing zeros, for running text."""
    text = format_value(value)
    return text.rstrip("0").rstrip(".") if "." in text and text[-1] == "0" else text
