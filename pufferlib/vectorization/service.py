"""ShardService: what a worker does for its parent, whatever carries the messages between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.env import AgentIds
from pufferlib.episodes import EpisodeStats, Info, metrics_of
from pufferlib.vectorization.shard import Shard


class TurnReport(NamedTuple):
    """What a worker reports of its turn, besides the rows."""

    infos: dict[int, Info]  # by slot within the worker; slots without one are missing
    stats: EpisodeStats | None = None  # of envs that count their episodes themselves
    agent_ids: AgentIds = None  # after a reset, and where they have changed


class ShardService:
    """Resets, steps and calls of a shard that has been bound to its rows.

    `returns` and `lengths` [slots] get the return and the length of each episode that ends.
    """

    def __init__(
        self, shard: Shard, returns: NDArray[np.float64], lengths: NDArray[np.int64]
    ) -> None:
        self.shard = shard
        self._returns, self._lengths = returns, lengths
        self._agent_ids: AgentIds = None  # as the parent knows them

    def reset(self, seed: int, before: int) -> TurnReport:
        """Start new episodes, see `Shard.reset`."""
        self.shard.reset(seed, before)
        self._agent_ids = self.shard.agent_ids
        return TurnReport({}, None, self._agent_ids)

    def step(self) -> tuple[TurnReport | None, bool]:
        """Step every env; return the report, None where it is empty, and if an episode ended."""
        shard = self.shard
        infos, finished = shard.step()
        if shard.is_silent:
            return None, bool(finished)
        is_python = shard.description.is_python
        for slot, info in finished.items():
            own = None if is_python else infos[slot].get("episode")
            episode = info["episode"] if own is None else own
            self._returns[slot], self._lengths[slot] = episode["r"], episode["l"]
        if is_python:
            given = {slot: info for slot, info in enumerate(infos) if info}
        else:  # the infos of C envs are in the rows already, except for their metrics
            given = {slot: metrics_of(infos[slot]) for slot in finished}
        stats = None
        if finished:
            stats = shard.drain({slot // shard.slots_per_unit for slot in finished})
            if not stats.episodes and not stats.samples:
                stats = None
        ids = None if shard.agent_ids == self._agent_ids else shard.agent_ids
        self._agent_ids = shard.agent_ids
        has_news = given or stats is not None or ids is not None
        return TurnReport(given, stats, ids) if has_news else None, bool(finished)

    def call(self, name: str, *arguments: object) -> Any:
        """Run a call that is no step, between two turns."""
        shard = self.shard
        calls: dict[str, Callable[..., Any]] = {"reset": self.reset, "snapshot": shard.snapshot}
        calls |= {"restore": shard.restore, "render": shard.render, "close": shard.close}
        return calls[name](*arguments)
