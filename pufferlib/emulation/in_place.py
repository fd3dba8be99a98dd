"""PufferEnvs that work in place: their rows are checked, not written."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.emulation.agent_dicts import AgentDicts
from pufferlib.emulation.base import Emulated, must, must_return
from pufferlib.emulation.inspection import EnvTraits, num_agents_of, spaces_of
from pufferlib.episodes import EpisodeStats, Info
from pufferlib.errors import FAULTS
from pufferlib.spaces import Array, MisfitError, cast

_UNWRITTEN = 0x5A  # a byte that marks final observations until the env writes them
_IN_PLACE = ("observations", "rewards", "terminals", "truncations")


class InPlace(Emulated):
    """A PufferEnv that works in place itself; what it writes is checked and counted.

    An env whose first reset returns a dict uses the multi-agent form and is passed on to
    `AgentDicts`. Where an episode ends and the env does not write `final_observations`, the row
    gets the observation before the step.
    """

    _dicts: AgentDicts | None = None  # steps the env where it uses dicts per agent
    _has_ended = False  # an episode, in the last step

    def __init__(self, traits: EnvTraits, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = spaces_of(traits)
        self._warned_of: list[str] = like._warned_of if isinstance(like, InPlace) else []
        super().__init__(
            traits, observation_space, action_space, num_agents_of(traits), index=index, like=like
        )

    def _find_action_masks(self) -> str:
        return "rows" if self.env.has_action_masks else ""

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        self._buffers = buffers
        self.traits.unwrapped.bind(buffers)
        self._before = self.observations.copy()
        self._final_bytes = self.final_observations.reshape(self.num_agents, -1).view(np.uint8)
        self._final_bytes[:] = _UNWRITTEN

    def reset(self, seed: int | None = None) -> tuple[Array, list[Info]]:
        if self._dicts is not None:
            return self._dicts.reset(seed)
        self.masks[:] = True
        result = self._reset_env(seed)
        first = result[0] if isinstance(result, tuple) and result else result
        if isinstance(first, Mapping):
            self._dicts = AgentDicts(self.traits, self.index)
            self._final_bytes[:] = 0  # AgentDicts writes them
            self._dicts.bind(self._buffers)
            answer = self._dicts.begin(result)
            self.agent_ids = self._dicts.agent_ids
            return answer
        if first is not None and first is not self.observations:
            self._copy("reset", "observations", first)
        return self.observations, []

    def step(self, action: Any) -> tuple[Any, ...]:
        if action is not self.actions:
            self.actions[...] = action
        if self._dicts is not None:
            return self._dicts.step(self._dicts.actions)
        np.copyto(self._before, self.observations)
        if self._has_ended:
            self._final_bytes[:] = _UNWRITTEN
        try:
            result = self.env.step(self.actions)
        except FAULTS as error:
            raise self.raised("step", error) from error
        if not isinstance(result, tuple) or len(result) != 5:
            wanted = "5 parts (observations, rewards, terminals, truncations, infos)"
            raise self.broken("step", must_return(wanted, result))
        *parts, infos = result
        for name, part in zip(_IN_PLACE, parts, strict=True):
            if part is not getattr(self, name):  # a wrapper returned a new array
                self._copy("step", name, part)
        if infos is not None and not isinstance(infos, Mapping | list | tuple):
            raise self.broken("step", must("infos", "a dict, or a list of dicts", infos))
        ended = self.terminals | self.truncations
        self._has_ended = bool(ended.any())
        if self._has_ended:
            self._complete_finals(ended)
            given = [infos] if isinstance(infos, Mapping) else list(infos or ())
            for slot in np.flatnonzero(ended):
                if slot < len(given) and isinstance(given[slot], Mapping):
                    self._add_metrics(given[slot])
        if not np.isfinite(self.rewards).all():
            first = int(np.flatnonzero(~np.isfinite(self.rewards))[0])
            raise self.broken("step", must("rewards", "finite", self.rewards), first)
        return (*(getattr(self, name) for name in _IN_PLACE), infos)

    def _complete_finals(self, ended: NDArray[np.bool_]) -> None:
        """Fill rows of `final_observations` that the env has not written; warn once."""
        missing = ended & (self._final_bytes == _UNWRITTEN).all(axis=1)
        if not missing.any():
            return
        self.final_observations[missing] = self._before[missing]
        cut = np.flatnonzero(missing & self.truncations)
        if len(cut) and not self._warned_of:
            self._warned_of.append("final_observations")
            warnings.warn(
                f"{self._place('step', int(cut[0]))}: `final_observations` must be written where "
                "`truncations` is set, but is not. Values go on from the observation before.",
                stacklevel=2,
            )

    def _copy(self, method: str, name: str, part: Any) -> None:
        rows = getattr(self, name)
        try:
            rows[...] = cast(part, rows.shape, rows.dtype, "b" if rows.dtype == bool else "")
        except MisfitError as error:
            raise self.broken(method, f"`{name}` {error}") from None

    def drain(self) -> EpisodeStats:
        stats = super().drain()
        if self._dicts is not None:
            stats.merge(self._dicts.drain())
        return stats
