"""What a run has told so far: its latest numbers, and what is kept of the earlier ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pufferlib.dashboard.curves import History
from pufferlib.dashboard.spelling import format_count, format_duration, format_short

TIME_DECAY = 0.8  # the time split is smoothed over about the last five iterations
HEADLINES = ("env/elo", "env/score", "env/perf")  # what people look at first: shown so, in colour
CURVES = (
    ("env/elo", "elo"),  # of self-play, whose rewards are about even whatever is learnt
    ("env/score", "score"),
    ("mean_reward", "mean reward"),
    ("env/perf", "perf"),
)


class Record:
    """The numbers of a run, ready to be shown. `take` a log dict once an iteration."""

    def __init__(
        self,
        *,
        env_name: str,
        num_parameters: int,
        device: str,
        engine: str,
        total_steps: float | None,
    ) -> None:
        self.env_name = env_name
        self.log: dict[str, float] = {}
        self.first: tuple[float, float] | None = None  # (steps, uptime) of the first log
        self.env_keys: dict[str, None] = {}  # an ordered set of all that were ever logged
        self.seconds: dict[str, float] = {}  # by span, smoothed
        self.curves = {key: History() for key, _ in CURVES}
        self._num_parameters = num_parameters
        self._device = device
        self._engine = engine
        self._total_steps = math.nan if total_steps is None else float(total_steps)

    def take(self, log: Mapping[str, float]) -> None:
        """Take in one iteration's numbers. `log` is copied."""
        self.log = dict(log)
        steps = self.number("steps")
        if self.first is None:
            self.first = (steps, self.number("uptime"))
        for key in log:
            if key.startswith("env/"):
                self.env_keys[key] = None
            elif key.startswith("time/"):
                span, seconds = key[5:], self.number(key)
                if math.isfinite(seconds):
                    self.seconds[span] = TIME_DECAY * self.seconds.get(span, 0.0) + seconds
        for key, curve in self.curves.items():
            curve.append(steps, self.number(key))

    def number(self, key: str) -> float:
        """The latest value of `key`, NaN if it is missing or no number."""
        try:
            return float(self.log[key])
        except (KeyError, TypeError, ValueError):
            return math.nan

    def budget(self) -> float:
        """The steps that the run will take in all, NaN if nobody knows."""
        logged = self.number("total_steps")
        return logged if math.isfinite(logged) else self._total_steps

    def curve(self) -> tuple[str, History]:
        """The curve to show and its name: the first of CURVES that has points."""
        for key, label in CURVES:
            if len(self.curves[key]):
                return label, self.curves[key]
        return "mean reward", self.curves["mean_reward"]

    def facts(self) -> list[str]:
        """What stays the same: device, engine, size of the policy."""
        facts = [self._device, self._engine, f"{format_count(self._num_parameters)} params"]
        return [fact for fact in facts if fact]

    def line(self) -> str:
        """The latest numbers as one line of plain text."""
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
