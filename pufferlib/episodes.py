"""What finished episodes report: their statistics, and the infos of one step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


@dataclass
class EpisodeStats:
    """Sums over finished episodes; sums of two vectors add up to those of both."""

    episodes: int = 0
    return_sum: float = 0.0
    length_sum: float = 0.0
    return_min: float = float("inf")
    return_max: float = float("-inf")
    samples: dict[str, int] = field(default_factory=dict)
    metric_sums: dict[str, float] = field(default_factory=dict)

    def add(self, episode_return: float, length: float) -> None:
        """Count one finished episode."""
        self.episodes += 1
        self.return_sum += episode_return
        self.length_sum += length
        self.return_min = min(self.return_min, episode_return)
        self.return_max = max(self.return_max, episode_return)

    def add_many(self, returns: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Count finished episodes, at least one."""
        self.episodes += len(returns)
        self.return_sum += float(returns.sum())
        self.length_sum += float(lengths.sum())
        self.return_min = min(self.return_min, float(returns.min()))
        self.return_max = max(self.return_max, float(returns.max()))

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
        """Return what `VectorEnv.drain_metrics` promises."""
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


class Infos(Sequence[dict[str, Any]]):
    """A list of dicts, one for each slot, built when first looked at.

    Most loops never look; so what a slot has to say stays in arrays until someone asks. A vector
    env calls `detach` before those arrays change, if the infos are still held by then. That reads
    the few slots that have something to say; one dict for every slot is made by `settle` only.
    """

    __slots__ = ("__weakref__", "_build", "_dicts", "_length", "_spoken")

    def __init__(self, length: int, build: Callable[[], Mapping[int, dict[str, Any]]]) -> None:
        self._length = length
        self._build: Callable[[], Mapping[int, dict[str, Any]]] | None = build
        self._spoken: Mapping[int, dict[str, Any]] = {}
        self._dicts: list[dict[str, Any]] | None = None

    def detach(self) -> None:
        """Take what the slots say from the arrays, unless that has happened already."""
        if self._build is not None:
            self._spoken = self._build()
            self._build = None

    def settle(self) -> list[dict[str, Any]]:
        """Build the dicts if that has not happened yet, and return them."""
        if self._dicts is None:
            self.detach()
            self._dicts = [self._spoken.get(slot) or {} for slot in range(self._length)]
        return self._dicts

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self.settle()[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.settle())

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        return self.settle() == (other.settle() if isinstance(other, Infos) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.settle())


def finished(
    ended: NDArray[np.bool_],
    returns: NDArray[Any],
    lengths: NDArray[Any],
    seconds: float,
) -> dict[int, dict[str, Any]]:
    """Return slot -> {"episode": {r, l, t}} for the slots whose episode ended in this step."""
    return {
        int(slot): {"episode": {"r": float(returns[slot]), "l": int(lengths[slot]), "t": seconds}}
        for slot in np.flatnonzero(ended)
    }


class EpisodeTracker:
    """Sums rewards and steps per slot, for vector envs that do not do so themselves.

    Whoever adds to `returns` and `lengths` itself calls `close` where `step` would be called.
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
        self, rewards: NDArray[Any], ended: NDArray[Any], masks: NDArray[Any]
    ) -> dict[int, dict[str, Any]]:
        """Add one step of every slot, `masks` says who acted in it; close episodes where `ended`.

        Returns slot -> info of those that ended, as `finished` does.
        """
        self.returns += rewards
        self.lengths += masks
        return self.close(ended)

    def close(self, ended: NDArray[Any]) -> dict[int, dict[str, Any]]:
        """Close episodes where `ended`, and return their infos."""
        if not ended.any():
            return {}
        seconds = time.perf_counter() - self._started
        infos = finished(ended, self.returns, self.lengths, seconds)
        for info in infos.values():
            self.stats.add(info["episode"]["r"], info["episode"]["l"])
        self.returns[ended], self.lengths[ended] = 0, 0
        return infos

    def drain(self) -> EpisodeStats:
        """Return the statistics since the last drain and start anew."""
        stats, self.stats = self.stats, EpisodeStats()
        return stats
