"""Statistics of finished episodes, and the infos of one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Info: TypeAlias = dict[str, Any]  # as in Gymnasium: what an env reports besides its results
WINDOW = 100  # episodes over which the numbers of a run are averaged
STANDINGS = ("elo", "pool_size", "restarts")  # the last value counts, not a mean over episodes
# names with a fixed meaning in `drain_metrics`
RESERVED = frozenset({"episodes", "mean_reward", "min_reward", "max_reward", "episode_length"})
_NO_METRICS = RESERVED | {"TimeLimit.truncated", "action_mask", "level_seed", "prev_level_seed"}
_NUMBERS = (int, float, np.integer, np.floating, np.bool_)


@dataclass
class EpisodeStats:
    """Sums over finished episodes; `merge` adds those of another vector env."""

    episodes: int = 0
    return_sum: float = 0.0
    length_sum: float = 0.0
    return_min: float = float("inf")
    return_max: float = float("-inf")
    samples: dict[str, int] = field(default_factory=dict)
    metric_sums: dict[str, float] = field(default_factory=dict)

    def add(self, returns: ArrayLike, lengths: ArrayLike) -> None:
        """Count finished episodes, at least one."""
        returns = np.asarray(returns)
        sums = float(returns.sum()), float(np.sum(lengths))
        bounds = float(returns.min()), float(returns.max())
        self.merge(EpisodeStats(returns.size, *sums, *bounds))

    def add_metric(self, name: str, value: float) -> None:
        """Count one value of a metric."""
        self.metric_sums[name] = self.metric_sums.get(name, 0.0) + value
        self.samples[name] = self.samples.get(name, 0) + 1

    def merge(self, other: EpisodeStats) -> None:
        """Add the sums of `other`."""
        self.episodes += other.episodes
        self.return_sum += other.return_sum
        self.length_sum += other.length_sum
        self.return_min = min(self.return_min, other.return_min)
        self.return_max = max(self.return_max, other.return_max)
        for name, total in other.metric_sums.items():
            self.metric_sums[name] = self.metric_sums.get(name, 0.0) + total
            self.samples[name] = self.samples.get(name, 0) + other.samples[name]

    def means(self) -> dict[str, float]:
        """Return the metrics that `VectorEnv.drain_metrics` documents."""
        out: dict[str, float] = {"episodes": float(self.episodes)}
        if self.episodes:
            out["mean_reward"] = self.return_sum / self.episodes
            out["min_reward"] = self.return_min
            out["max_reward"] = self.return_max
            out["episode_length"] = self.length_sum / self.episodes
        for name, total in self.metric_sums.items():
            if self.samples[name]:
                out[name] = total / self.samples[name]
        return out


def joined_metrics(parts: list[dict[str, float]]) -> dict[str, float]:
    """Return the metrics of several processes or rollouts as one; episodes weight the means."""
    if len(parts) == 1:
        return parts[0]
    out: dict[str, float] = {"episodes": sum(part["episodes"] for part in parts)}
    weights: dict[str, float] = {}
    for part in parts:
        weight = part["episodes"] or 1e-9
        for name, value in part.items():
            if name == "episodes":
                continue
            if name == "min_reward":
                out[name] = min(value, out.get(name, value))
            elif name == "max_reward":
                out[name] = max(value, out.get(name, value))
            else:
                out[name] = out.get(name, 0.0) + value * weight
                weights[name] = weights.get(name, 0.0) + weight
    for name, weight in weights.items():
        out[name] /= weight
    return out


def metrics_of(info: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers in the info of an episode's last step: the env's own metrics."""
    return {
        name: float(value)
        for name, value in info.items()
        if isinstance(value, _NUMBERS)
        and isinstance(name, str)
        and name not in _NO_METRICS
        and np.isfinite(float(value))
    }


def info_at(infos: Sequence[Info] | None, slot: int) -> Mapping[str, Any]:
    """Return the info of one slot; a user's vector env may return None, or fewer."""
    return infos[slot] if infos is not None and slot < len(infos) else {}


class EpisodeWindow:
    """The last rollouts of a run that have at least `size` episodes together, and their means.

    Rollouts are kept and dropped whole, since an env reports sums: a rollout of `size` episodes or
    more is kept alone. `is_settled` is whether the means can be compared with later ones: at first
    only short episodes have ended, so every slot must have ended one, and `size` in all.
    """

    def __init__(self, num_slots: int, size: int = WINDOW) -> None:
        self.size = size
        self.rollouts: list[dict[str, float]] = []  # what `drain_metrics` returned, oldest first
        self.has_ended = np.zeros(num_slots, dtype=np.bool_)  # slots of this process, at least once
        self.all_ended = False  # in every process
        self._means: dict[str, float] | None = {}  # None: not computed since the last `add`

    @property
    def is_settled(self) -> bool:
        """Whether short episodes are no longer favoured."""
        return self.all_ended and self._episodes >= self.size

    @property
    def _episodes(self) -> float:
        return sum(rollout["episodes"] for rollout in self.rollouts)

    def note_ends(
        self, slots: NDArray[np.int64], ended: NDArray[np.bool_], present: NDArray[np.bool_]
    ) -> bool:
        """Note the slots in whose segments an episode ended; return whether all slots had one.

        Each segment has its slot, whether an episode ended in it, and whether its agent was present
        in it. Slots whose agent is absent do not count.
        """
        self.has_ended[slots[ended]] = True
        absent = np.zeros_like(self.has_ended)
        absent[slots[~present]] = True
        absent[slots[present]] = False
        return bool((self.has_ended | absent).all())

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add what `drain_metrics` returned after a rollout, unless no episode ended in it."""
        if not metrics["episodes"]:
            return
        self._means = None
        self.rollouts.append(dict(metrics))
        while self._episodes - self.rollouts[0]["episodes"] >= self.size:
            self.rollouts.pop(0)

    def means(self) -> dict[str, float]:
        """Return the metrics of the window, without `episodes`; empty before the first."""
        if self._means is None:
            last = self.rollouts[-1]
            standings = {name: last[name] for name in STANDINGS if name in last}
            self._means = {**joined_metrics(self.rollouts), **standings}
            del self._means["episodes"]
        return dict(self._means)


class Infos(Sequence[Info]):
    """A list of dicts, one for each slot, built on first access.

    Most loops never read infos, so their values stay in arrays until then. A vector env calls
    `detach` before those arrays change, if the infos are still referenced. That reads only the
    slots with an info; `settle` makes a dict for every slot.
    """

    __slots__ = ("__weakref__", "_build", "_dicts", "_given", "_length")

    def __init__(self, length: int, build: Callable[[], Mapping[int, Info]]) -> None:
        self._length = length
        self._build: Callable[[], Mapping[int, Info]] | None = build
        self._given: Mapping[int, Info] = {}
        self._dicts: list[Info] | None = None

    def detach(self) -> None:
        """Copy the infos out of the arrays, unless that has happened already."""
        if self._build is not None:
            self._given = self._build()
            self._build = None

    def settle(self) -> list[Info]:
        """Build the dicts if that has not happened yet, and return them."""
        if self._dicts is None:
            self.detach()
            self._dicts = [{} for _ in range(self._length)]
            for slot, info in self._given.items():
                self._dicts[slot] = info
        return self._dicts

    @overload
    def __getitem__(self, index: int) -> Info: ...
    @overload
    def __getitem__(self, index: slice) -> list[Info]: ...
    def __getitem__(self, index: int | slice) -> Info | list[Info]:
        return self.settle()[index]

    def __iter__(self) -> Iterator[Info]:
        return iter(self.settle())

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return self.settle() == (other.settle() if isinstance(other, Infos) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.settle())


class Finished(Mapping[int, Info]):
    """Slot -> {"episode": {r, l, t}} for the slots whose episode ended in this step.

    Each also has a number for each of `names`, from `metrics` [slots, names]. The numbers are
    copied at once, the dicts are made on first access: most loops never read them.
    """

    def __init__(
        self,
        ended: NDArray[np.bool_],
        returns: NDArray[np.generic],
        lengths: NDArray[np.generic],
        seconds: float,
        names: Sequence[str] = (),
        metrics: NDArray[np.generic] | None = None,
    ) -> None:
        self.slots = np.flatnonzero(ended)
        self.returns, self.lengths = returns[self.slots], lengths[self.slots]
        self._seconds, self._names = seconds, names
        self._metrics = np.zeros((len(self), 0)) if metrics is None else metrics[self.slots]

    @cached_property
    def _infos(self) -> dict[int, Info]:
        columns = (self.slots, self.returns, self.lengths, self._metrics)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return {
            slot: {"episode": {"r": total, "l": length, "t": self._seconds}}
            | dict(zip(self._names, metrics, strict=True))
            for slot, total, length, metrics in rows
        }

    def __getitem__(self, slot: int) -> Info:
        return self._infos[slot]

    def __iter__(self) -> Iterator[int]:
        return iter(self.slots.tolist())

    def __len__(self) -> int:
        return len(self.slots)


class EpisodeTracker:
    """Sums rewards and steps per slot, for vector envs that do not do so themselves.

    A caller that adds to `returns` and `lengths` itself calls `close` instead of `step`.
    """

    def __init__(self, num_slots: int) -> None:
        self.returns = np.zeros(num_slots, dtype=np.float64)
        self.lengths = np.zeros(num_slots, dtype=np.int64)
        self.reset()

    def reset(self) -> None:
        """Forget running episodes and statistics."""
        self.stats = EpisodeStats()
        self.returns[:] = 0
        self.lengths[:] = 0
        self._started = time.perf_counter()

    def step(
        self, rewards: NDArray[np.float32], ended: NDArray[np.bool_], masks: NDArray[np.bool_]
    ) -> Mapping[int, Info]:
        """Add one step of every slot whose mask is set; close episodes where `ended`."""
        self.returns += rewards
        self.lengths += masks
        return self.close(ended)

    def close(self, ended: NDArray[np.bool_]) -> Mapping[int, Info]:
        """Close episodes where `ended`, and return slot -> info of them."""
        if not ended.any():
            return {}
        seconds = time.perf_counter() - self._started
        infos = Finished(ended, self.returns, self.lengths, seconds)
        self.stats.add(infos.returns, infos.lengths)
        self.returns[ended], self.lengths[ended] = 0, 0
        return infos

    def drain(self) -> EpisodeStats:
        """Return the statistics since the last drain, and clear them."""
        stats, self.stats = self.stats, EpisodeStats()
        return stats
