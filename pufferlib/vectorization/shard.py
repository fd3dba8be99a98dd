"""Shard: a contiguous part of a vector's envs and the loop that steps them, in one process.

`Serial` is one shard over rows of its own; a worker of `Multiprocessing` is one shard over rows
that it shares with its parent. So both do the same, in the same order.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pufferlib import emulation, native
from pufferlib.buffers import Buffers, allocate, num_bytes
from pufferlib.emulation import Emulated, SingleAgent, adapt, call_creator
from pufferlib.env import AgentIds, PufferEnv
from pufferlib.episodes import EpisodeStats, EpisodeTracker, Finished, Info, metrics_of
from pufferlib.errors import FAULTS, EnvError, UsageError, error_line
from pufferlib.spaces import Array, ObservationChecks, Space, action_layout, action_values
from pufferlib.system import MemoryForecast, check_memory
from pufferlib.vectorization.base import Batch, BufferedVectorEnv, VectorEnv
from pufferlib.vectorization.creators import EnvCreator
from pufferlib.vectorization.processes.channel import pickled

# the envs' infos, one for each slot, and slot -> info of finished episodes
StepInfos: TypeAlias = tuple[list[Info], Mapping[int, Info]]

_CHECKED_STEPS = 32  # in which observations are compared with the bounds of their Box


class EnvDescription(NamedTuple):
    """What a vector env must know of its envs to give them rows; all workers must agree on it."""

    observation_space: Space
    action_space: Space
    agents_per_env: int
    envs_per_unit: int  # 1, or the envs of a vector env that the creator returned
    has_action_masks: bool
    is_python: bool = False  # seeds must stay below 2**32
    can_restore: bool = False

    def allocate(self, num_slots: int, memory: NDArray[np.uint8] | None = None) -> Buffers:
        """Return rows for `num_slots` agents, see `buffers.allocate`."""
        spaces = self.observation_space, self.action_space
        return allocate(num_slots, *spaces, self.has_action_masks, memory)

    def num_bytes(self, num_slots: int) -> int:
        """Return how much memory `allocate` fills."""
        spaces = self.observation_space, self.action_space
        return num_bytes(num_slots, *spaces, self.has_action_masks)

    def check(self, other: EnvDescription, env: int) -> None:
        """Raise unless `other`, which describes `env`, equals this description of env 0."""
        names = ("single_observation_space", "single_action_space", "num_agents", "num_envs")
        for name, own, others in zip(names, self, other):
            if own != others:
                raise UsageError(
                    f"`{name}` of every env must be that of env 0, {own}, "
                    f"but env {env} has {others}."
                )


class Shard:
    """Envs `first`, `first + 1`, ... of a vector; `bind` gives them rows, then `reset` comes first.

    A creator may return an env of any kind that `emulation.adapt` knows, or a vector env, whose
    envs then count one by one. `on_created` is called with the number of units made so far, and
    with True while the next one is made already and adapted, for which it may be reset. Of
    `total_units`, all others are made by other processes at the same time.
    """

    def __init__(
        self,
        env_creator: EnvCreator,
        num_units: int,
        first_unit: int = 0,
        on_created: Callable[[int, bool], None] | None = None,
        total_units: int | None = None,
    ) -> None:
        self.envs: list[Any] = []
        # the unit that runs: others see whether a long call makes progress, and where it hangs
        self.progress: list[int] | memoryview[int] = [0]
        description: EnvDescription | None = None
        total = total_units or num_units
        forecast = MemoryForecast(num_units, total)
        try:
            for unit in range(first_unit, first_unit + num_units):
                env = self._created(env_creator, unit, on_created)
                if description is None:
                    description = _described(env)
                    rows = description.num_bytes(total * env.num_agents)
                    check_memory(rows, "the rows of all envs", "num_envs")
                forecast.note(len(self.envs))
                description.check(_described(env), unit * description.envs_per_unit)
                if on_created is not None:
                    on_created(len(self.envs), False)
        except BaseException:
            with contextlib.suppress(Exception):
                self.close()
            raise
        assert description is not None
        self.description = description._replace(
            has_action_masks=any(env.has_action_masks for env in self.envs),
            is_python=is_python(self.envs[0]),
            can_restore=all(hasattr(env, "restore") for env in self.envs),
        )
        self.first_env = first_unit * description.envs_per_unit
        self.num_envs = num_units * description.envs_per_unit
        self.slots_per_unit = description.agents_per_env * description.envs_per_unit
        self.num_slots = num_units * self.slots_per_unit
        self.agent_ids: AgentIds = None
        self.is_silent = False  # the last step surely left nothing but rows

    def _created(
        self,
        env_creator: EnvCreator,
        unit: int,
        on_created: Callable[[int, bool], None] | None,
    ) -> Any:
        made = call_creator(env_creator, unit)
        if on_created is not None and not self.envs:
            on_created(0, True)
        if isinstance(made, VectorEnv):
            env: Any = _Nested(made, unit)
        else:
            like = self.envs[0] if self.envs and isinstance(self.envs[0], PufferEnv) else None
            env = adapt(made, unit, like)
        self.envs.append(env)
        return env

    def bind(self, buffers: Buffers, progress: NDArray[np.uint32] | None = None) -> None:
        """Use these rows, one for each slot of the shard, from now on.

        With `progress`, a word in shared memory, the unit that runs is written there.
        """
        self.buffers = buffers
        word = np.zeros(1, dtype=np.uint32) if progress is None else progress
        self.progress = memoryview(word)  # type: ignore[arg-type]
        for unit, env in enumerate(self.envs):
            first = unit * self.slots_per_unit
            env.bind(buffers.slots(first, first + self.slots_per_unit))
        self._steps = [(unit, env.step, env.actions) for unit, env in enumerate(self.envs)]
        self.tracker = EpisodeTracker(buffers.num_slots)
        space = self.description.observation_space
        self._check, self._check_final = (
            ObservationChecks(space, rows)
            for rows in (buffers.observations, buffers.final_observations)
        )
        is_single = all(isinstance(env, SingleAgent) for env in self.envs)
        self._loop: Any = None
        if is_single and buffers.action_masks is None:
            sums = self.tracker.returns, self.tracker.lengths
            self._loop = emulation.env_loop(self.envs, buffers, *sums, word)
        self._bounds_checks_left = _CHECKED_STEPS

    def reset(self, seed: int, before: int = 0, seeds: Sequence[int] | None = None) -> None:
        """Start new episodes everywhere; env `i` of the vector is seeded from (seed, before + i).

        `before` counts the envs that a still larger vector has before this one's. With `seeds`, one
        for each env of this shard, those are used.
        """
        buffers = self.buffers
        self.tracker.reset()
        buffers.rewards[:], buffers.terminals[:], buffers.truncations[:] = 0, False, False
        for unit, env in enumerate(self.envs):
            self.progress[0] = unit
            first = self.first_env + unit * self.description.envs_per_unit
            if isinstance(env, _Nested):
                env.reset_from(seed, before + first, seeds and seeds[self._envs_of(unit)])
            elif seeds is not None:
                env.reset(seed=seeds[unit])
            else:
                env_seed = emulation.env_seed if isinstance(env, Emulated) else native.env_seed
                env.reset(seed=env_seed(seed, before + first))
            env.drain()
            check_agent_ids(self.envs[0].agent_ids, env.agent_ids, first)
        self.agent_ids = self.envs[0].agent_ids
        self._check_observations("reset")

    def _envs_of(self, unit: int) -> slice:
        """Return the range of a unit's envs in this shard."""
        per_unit = self.description.envs_per_unit
        return slice(unit * per_unit, (unit + 1) * per_unit)

    def step(self, held: NDArray[np.bool_] | None = None) -> StepInfos:
        """Step every env with its action row, but for those flagged in `held` [envs]."""
        self.is_silent = False
        if self._loop is not None and held is None:
            return self._step_in_c()
        buffers, progress = self.buffers, self.progress
        present = buffers.masks.copy()
        if held is not None:
            present &= ~held.repeat(self.description.agents_per_env)
        buffers.rewards[:], buffers.terminals[:], buffers.truncations[:] = 0, False, False
        infos: list[Info] = []
        slots = self.slots_per_unit
        for unit, step, own_actions in self._steps:
            progress[0] = unit
            given = None if self._holds(unit, held) else step(own_actions)[4]
            if slots == 1 and type(given) is dict:
                infos.append(given)
            else:
                given = [given] if isinstance(given, dict) else list(given or ())
                infos += (given + [{}] * slots)[:slots]
        ended = buffers.terminals | buffers.truncations
        finished = self.tracker.step(buffers.rewards, ended, present)
        self._check_observations("step", bool(finished))
        if self.agent_ids is not None:
            self.agent_ids = self.envs[0].agent_ids  # one may have come
        return infos, finished

    def _holds(self, unit: int, held: NDArray[np.bool_] | None) -> bool:
        """Return whether the env of this unit is held; a nested vector env holds its own."""
        if held is None:
            return False
        env, own = self.envs[unit], held[self._envs_of(unit)]
        if isinstance(env, _Nested) and own.any():
            env.vecenv.hold(own)
            return False
        return bool(own[0])

    def _step_in_c(self) -> StepInfos:
        """Do what `step` does; Python handles only unusual results and ends of episodes."""
        infos: list[Info] = []
        stopped = self._run(0, infos)
        if stopped is None:
            if self._bounds_checks_left or not self._loop.checks_finite:
                self._check_observations("step")
            self.is_silent = not self._loop.num_infos
            return infos, {}
        while stopped is not None:
            unit, result = stopped
            env = self.envs[unit]
            infos.append(env.step(env.actions)[4] if result is None else env.finish(result))
            stopped = self._run(unit + 1, infos)
        finished = self.tracker.close(self.buffers.terminals | self.buffers.truncations)
        self._check_observations("step", bool(finished))
        return infos, finished

    def _run(self, first: int, infos: list[Info]) -> tuple[int, Any] | None:
        """Step units from `first` on, up to one that Python must handle; None at the end."""
        try:
            stopped: tuple[int, Any] | None = self._loop.run(first, infos)
        except FAULTS as error:
            raise self.envs[self.progress[0]].raised("step", error) from error
        return stopped

    def _check_observations(self, method: str, ended: bool = False) -> None:
        """Raise if a Python env gave nan or inf; warn once of values outside of their Box.

        Bounds are compared in the first steps only: many envs with wrong bounds train well.
        """
        if not isinstance(self.envs[0], Emulated):
            return
        found = self._check.nonfinite() or (self._check_final.nonfinite() if ended else None)
        if found is not None:
            slot, what = found
            if method == "step":
                unit, within = divmod(slot, self.slots_per_unit)
                what += self.envs[unit].cause_of_nan(within)
            raise self.broken(method, what, slot)
        if self._bounds_checks_left:
            self._bounds_checks_left -= 1
            outside = self._check.outside(self.buffers.masks)
            if outside is not None:
                self._bounds_checks_left = 0
                warnings.warn(str(self.broken(method, outside[1], outside[0])), stacklevel=2)

    def broken(self, method: str, what: str, slot: int) -> EnvError:
        """Return the error that the env of `slot` did `what` in `method`; the caller raises it."""
        unit, within = divmod(slot, self.slots_per_unit)
        if isinstance(self.envs[unit], Emulated):
            error: EnvError = self.envs[unit].broken(method, what, within)
            return error
        env = self.first_env + slot // self.description.agents_per_env
        return EnvError(f"env {env}, `{method}`: {what}")

    def drain(self, units: Iterable[int] | None = None) -> EpisodeStats:
        """Return what the envs, or those of some units, have counted since the last drain."""
        stats = EpisodeStats()
        for env in self.envs if units is None else [self.envs[unit] for unit in units]:
            stats.merge(env.drain())
        return stats

    def snapshot(self) -> NDArray[np.uint8] | None:
        """Return the snapshot of every env, or None where the envs have none."""
        if not all(hasattr(env, "snapshot") for env in self.envs):
            return None
        states = []
        for unit, env in enumerate(self.envs):
            self.progress[0] = unit
            states.append(env.snapshot())
        return None if any(state is None for state in states) else np.concatenate(states)

    def restore(self, rows: NDArray[np.uint8], first: int = 0) -> None:
        """Put envs `first`, `first + 1`, ... of this shard back into rows of `snapshot`."""
        per_unit = self.description.envs_per_unit
        for offset in range(0, len(rows), per_unit):
            self.progress[0] = unit = (first + offset) // per_unit
            self.envs[unit].restore(rows[offset : offset + per_unit])

    def render(self, env: int) -> Any:
        """Return a picture of one env of this shard, or None."""
        self.progress[0], inner = divmod(env, self.description.envs_per_unit)
        target = self.envs[self.progress[0]]
        return target.render(inner) if isinstance(target, _Nested) else target.render()

    def close(self) -> None:
        """Close every env, and raise the first failure afterwards."""
        failed: Exception | None = None
        for unit, env in enumerate(self.envs):
            self.progress[0] = unit
            try:
                env.close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed


def is_python(env: Any) -> bool:
    """Return whether a unit is made of Python envs, whose old generators need small seeds."""
    if isinstance(env, _Nested):
        shard = getattr(env.vecenv, "shard", None)
        return shard is None or shard.description.is_python
    return isinstance(env, Emulated)


def check_agent_ids(first: AgentIds, own: AgentIds, env: int) -> None:
    """Raise unless the agents of `env` are those of env 0."""
    if own != first:
        raise EnvError(
            f"agents of every env must be those of env 0, {first}, but env {env} has {own}. "
            "Try `possible_agents`, a list of all ids in order."
        )


def _described(env: Any) -> EnvDescription:
    inner = env.vecenv if isinstance(env, _Nested) else None
    return EnvDescription(
        observation_space=env.single_observation_space,
        action_space=env.single_action_space,
        agents_per_env=env.num_agents if inner is None else inner.agents_per_env,
        envs_per_unit=1 if inner is None else inner.num_envs,
        has_action_masks=env.has_action_masks,
    )


class _Nested:
    """A vector env as one unit of a shard: its rows become a part of the larger vector's."""

    def __init__(self, vecenv: VectorEnv, unit: int) -> None:
        if vecenv.surplus_envs or vecenv.batch_slots != vecenv.num_agents:
            raise UsageError(
                "a vector env inside another must hand over all its slots at once, but "
                f"{type(vecenv).__name__} of unit {unit} does not. Try mode='sync'."
            )
        self.vecenv = vecenv
        self.num_agents = vecenv.num_agents
        self.single_observation_space = vecenv.observation_space
        self.single_action_space = vecenv.action_space
        self.has_action_masks = vecenv.action_masks is not None
        self._action_layout = action_layout(vecenv.action_space)
        self._rebound = False

    @property
    def agent_ids(self) -> AgentIds:
        return self.vecenv.agent_ids

    def bind(self, buffers: Buffers) -> None:
        self._rows, self.actions = buffers, buffers.actions
        if isinstance(self.vecenv, BufferedVectorEnv):
            self._rebound = self.vecenv.rebind(buffers)

    def reset_from(self, seed: int, first_env: int, seeds: Sequence[int] | None = None) -> None:
        """Reset; where the vector env can, its envs get the seeds of `first_env` and on."""
        vecenv = self.vecenv
        if seeds is not None:
            vecenv.seed_each(seeds)
            vecenv.reset()
        elif isinstance(vecenv, BufferedVectorEnv) and vecenv.place(first_env):
            vecenv.reset(seed=seed)
        else:
            vecenv.reset(seed=native.env_seed(seed, first_env) % 2**32)
        self._take(vecenv.recv())

    def step(self, actions: Array) -> tuple[Any, ...]:
        self.vecenv.send(action_values(self._action_layout, actions))
        batch = self.vecenv.recv()
        self._take(batch)
        return None, None, None, None, batch.infos

    def _take(self, batch: Batch) -> None:
        """Copy the rows of a batch to where the larger vector has them, if they are not there."""
        if self._rebound:
            return
        rows = self._rows
        rows.observations[:], rows.rewards[:] = batch.observations, batch.rewards
        rows.terminals[:], rows.truncations[:] = batch.terminals, batch.truncations
        rows.masks[:] = batch.masks
        if (batch.terminals | batch.truncations).any():
            rows.final_observations[:] = self.vecenv.final_observations
        if rows.action_masks is not None:
            rows.action_masks[:] = self.vecenv.action_masks

    def drain(self) -> EpisodeStats:
        return self.vecenv.drain_stats()

    def snapshot(self) -> NDArray[np.uint8] | None:
        return self.vecenv.snapshot()

    def restore(self, rows: NDArray[np.uint8]) -> None:
        self.vecenv.restore(rows)
        self._take(self.vecenv.recv())

    def render(self, env: int = 0) -> Any:
        return self.vecenv.render(env)

    def close(self) -> None:
        self.vecenv.close()


# ---- What a worker process serves ----------------------------------------------------------------


class TurnReport(NamedTuple):
    """What a worker reports of its turn, besides the rows."""

    infos: bytes  # a pickled dict by slot within the worker; empty where no slot has one
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
        self._seeds: Sequence[int] | None = None  # for the next reset
        self._held: NDArray[np.bool_] | None = None  # in the next step

    def reset(self, seed: int, before: int) -> TurnReport:
        """Start new episodes, see `Shard.reset`."""
        seeds, self._seeds = self._seeds, None
        self.shard.reset(seed, before, seeds)
        self._held = None
        self._agent_ids = self.shard.agent_ids
        return TurnReport(b"", None, self._agent_ids)

    def step(self) -> tuple[TurnReport | None, bool]:
        """Step every env; return the report, None where it is empty, and if an episode ended."""
        shard = self.shard
        held, self._held = self._held, None
        infos, finished = shard.step(held)
        if shard.is_silent:
            return None, bool(finished)
        if isinstance(finished, Finished):
            self._returns[finished.slots] = finished.returns
            self._lengths[finished.slots] = finished.lengths
        if shard.description.is_python:
            given = {slot: info for slot, info in enumerate(infos) if info}
        else:  # the infos of C envs are in the rows already, except for their metrics
            given = {slot: metrics_of(infos[slot]) for slot in finished}
            for slot in finished:
                if own := infos[slot].get("episode"):
                    self._returns[slot], self._lengths[slot] = own["r"], own["l"]
        stats = None
        if finished:
            stats = shard.drain({slot // shard.slots_per_unit for slot in finished})
            if not stats.episodes and not stats.samples:
                stats = None
        ids = None if shard.agent_ids == self._agent_ids else shard.agent_ids
        self._agent_ids = shard.agent_ids
        has_news = given or stats is not None or ids is not None
        report = TurnReport(self._pickled(given), stats, ids) if has_news else None
        return report, bool(finished)

    def _pickled(self, infos: dict[int, Info]) -> bytes:
        try:
            return pickled(infos) if infos else b""
        except Exception as error:
            slot = next(slot for slot, info in infos.items() if not _can_leave(info))
            what = "`info` must be able to leave its worker, but cannot be pickled: "
            raise self.shard.broken("step", what + error_line(error), slot) from error

    def seed_each(self, seeds: Sequence[int]) -> None:
        """Use these seeds, one for each env, in the next reset."""
        self._seeds = seeds

    def hold(self, envs: NDArray[np.bool_]) -> None:
        """Leave these envs alone in the next step."""
        self._held = envs

    def call(self, name: str, *arguments: object) -> Any:
        """Run a call that is no step, between two turns."""
        shard = self.shard
        calls: dict[str, Callable[..., Any]] = {"reset": self.reset, "snapshot": shard.snapshot}
        calls |= {"restore": shard.restore, "render": shard.render, "close": shard.close}
        calls |= {"seed_each": self.seed_each, "hold": self.hold}
        return calls[name](*arguments)


def _can_leave(info: Info) -> bool:
    try:
        pickled(info)
    except Exception:
        return False
    return True
