"""Batched: envs of a simulator that steps a whole batch itself, in threads or on a device.

A family of such envs gives `make` a `SimulatorCreator`. `Batched` knows one contract, `Simulator`:
what it returns already follows the same-step autoreset of every vector env.
"""

from __future__ import annotations

import inspect
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pufferlib import emulation, native
from pufferlib.buffers import Buffers, allocate, num_bytes
from pufferlib.episodes import EpisodeStats, EpisodeTracker, Infos, metrics_of
from pufferlib.errors import FAULTS, EnvError, PufferError, UsageError, raised_text
from pufferlib.spaces import (
    ObservationChecks,
    Space,
    batch_reader,
    batch_writer,
    observation_layout,
)
from pufferlib.system import check_memory, usable_cores
from pufferlib.vectorization.base import Batch, BufferedVectorEnv
from pufferlib.vectorization.creators import Recipe
from pufferlib.vectorization.sizes import check_options

# ---- What a family of batched envs implements ----------------------------------------------------


class Sizes(NamedTuple):
    """How many envs a simulator has, and how many threads may step them."""

    num_envs: int  # in all, surplus envs included
    batch_envs: int  # envs that one `recv` returns: the first that are ready
    num_threads: int

    @property
    def is_async(self) -> bool:
        """Whether a `recv` returns some of the envs, while the others still step."""
        return self.batch_envs < self.num_envs


class Outcome(NamedTuple):
    """What envs answered, an entry for each of their slots, in order.

    Arrays are the simulator's own. `Batched` copies them before its next call, all but `infos`,
    which must not change later, and pictures: `observations` of a Box of whole numbers may be
    handed on as they are, and must not change before the next `send` or `reset`.

    Where an episode ended, `observations` holds the first of the next one and `finals` the last of
    the ended one. A simulator that resets an env only in its next step sets the slot's mask to
    False instead: the policy acts on nothing there, and that step carries no data.
    """

    observations: Any  # a batch of the observation space: leaves [slots, *shape]
    rewards: NDArray[Any]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    finals: Any = None  # a batch with an entry for each slot whose episode ended; None: none did
    slots: NDArray[np.int64] | None = None  # None: all, in order
    masks: NDArray[np.bool_] | None = None  # None: every slot carries data
    action_masks: NDArray[np.bool_] | None = None  # [slots, choices], if `has_action_masks`
    infos: Mapping[str, NDArray[Any]] = {}  # numbers by name, [slots]; nan: no info


class Simulator(ABC):
    """Many envs that are stepped by one call. Actions and results are batches of the spaces."""

    observation_space: Space  # of one agent
    action_space: Space
    agents_per_env: int = 1
    has_action_masks: bool = False

    @abstractmethod
    def reset(self, seeds: NDArray[np.int64] | None) -> Outcome:
        """Start new episodes, env i from `seeds[i]`; return the first observations, rewards of 0.

        Without seeds, random streams go on; the first reset has some, and each in mode async. With
        fewer envs than all in a batch, return the first batch. No step is under way in mode sync;
        in mode async, those under way are dropped.
        """

    @abstractmethod
    def send(self, actions: Any, slots: NDArray[np.int64] | None) -> None:
        """Begin a step of the slots of the last outcome, in its order; `slots` None: all."""

    @abstractmethod
    def recv(self) -> Outcome:
        """Wait for a batch of envs and return what they answered."""

    def render(self, env: int, observation: NDArray[Any]) -> NDArray[np.uint8] | None:
        """Return a picture [height, width, 3] of one env, or None if it cannot be drawn.

        `observation` is the row of its first agent, which may be a picture itself.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """End threads, and free what the envs hold."""


class SimulatorCreator:
    """The entry point of an env whose simulator steps a whole batch itself.

    `make(sizes, **params)` makes the simulator. The params of the env are the keyword-only ones in
    the signature of `make`, or those in `signature`.
    """

    def __init__(
        self, make: Callable[..., Simulator], signature: inspect.Signature | None = None
    ) -> None:
        self.make = make
        if signature is None:
            given = inspect.signature(make, eval_str=True).parameters.values()
            signature = inspect.Signature([p for p in given if p.kind is p.KEYWORD_ONLY])
        self.__signature__ = signature

    def __call__(self, **params: Any) -> Batched:
        """Make one env, for backends that step envs one by one."""
        return Batched(self, 1, 1, settings=params)


# ---- The backend ---------------------------------------------------------------------------------


class Batched(BufferedVectorEnv):
    """Runs `num_envs` envs of a simulator that steps them itself, on `num_workers` threads.

    `settings` are params of the env.

    `send` starts a step and returns, `recv` waits for it. With `mode="async"`, `surplus_envs` more
    envs step in the background and `recv` hands over the `num_envs` that are ready first.

    Env 0 gets the seed of `reset`, the others get different ones, the same as in other backends.
    """

    backend = "batched"
    can_hold = False  # the simulator steps all envs

    def __init__(
        self,
        env_creator: SimulatorCreator,
        num_envs: int,
        num_workers: int | None = None,
        mode: str = "sync",
        surplus_envs: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        check_options(mode, surplus_envs)
        workers = min(usable_cores(), num_envs) if num_workers is None else num_workers
        self.num_envs, self.surplus_envs, self.mode = num_envs, surplus_envs, mode
        self.num_workers = workers
        sizes = Sizes(num_envs + surplus_envs, num_envs, workers)
        self._simulator = simulator = env_creator.make(sizes, **(settings or {}))
        self._owner, self._envs_before = os.getpid(), 0
        self.agents_per_env = simulator.agents_per_env
        spaces = simulator.observation_space, simulator.action_space
        rows = num_bytes(self.num_agents, *spaces, simulator.has_action_masks)
        check_memory(rows, "the rows of all envs", "num_envs")
        self._bind(allocate(self.num_agents, *spaces, simulator.has_action_masks))
        leaves = observation_layout(simulator.observation_space).leaves
        # a copy of pictures takes the time of many steps: rows of our own take them as they are
        self._takes_pictures = [(leaf.kind, leaf.dtype.kind in "iu") for leaf in leaves] == [
            ("box", True)
        ]
        self._counter = EpisodeTracker(self.num_agents)
        self._acting = np.zeros(self.num_agents, dtype=np.bool_)  # slots with a step under way
        self._is_stepping = self._was_reset = False

    @classmethod
    def from_recipe(cls, recipe: Recipe, options: Mapping[str, Any]) -> Self:
        creator: Any = recipe.entry_point  # a SimulatorCreator: `make` has checked that
        sizes = recipe.num_envs, recipe.num_workers
        return cls(creator, *sizes, settings=recipe.settings, **options)

    def _bind(self, buffers: Buffers) -> None:
        simulator = self._simulator
        self._attach(buffers, simulator.observation_space, simulator.action_space)
        layout = observation_layout(simulator.observation_space)
        self._write = batch_writer(layout, buffers.observations)
        self._write_finals = batch_writer(layout, buffers.final_observations)
        self._read_actions = batch_reader(self._action_layout, self._action_rows)
        self._checks = ObservationChecks(simulator.observation_space, buffers.observations)

    def rebind(self, buffers: Buffers) -> bool:
        self._bind(buffers)
        self._ready = self._takes_pictures = False
        return True

    def place(self, first_env: int) -> bool:
        self._envs_before = first_env
        return True

    # ---- Reset and steps -----------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        self._begin("reset")
        if self._is_stepping and not self.surplus_envs:
            self._call(self._simulator.recv)
        self._ready = self._is_stepping = False
        each = self._take_seeds(seed)
        given = self._take_seed(seed)
        seeds = self._seeds(given) if each is None else np.array(each, dtype=np.int64)
        self._counter.reset()
        self._acting[:] = False
        self._buffers.unmask()
        self._store("reset", self._call(self._simulator.reset, seeds))
        self._was_reset = True
        return self.observations[self.slots]

    def _seeds(self, seed: int | None) -> NDArray[np.int64] | None:
        """Return a seed for each env; None where none is given and random streams can go on."""
        if seed is None:
            if self._was_reset and not self.surplus_envs:
                return None
            seed = native.fresh_seed() >> 32  # Python's generators take 32 bits
        envs = range(self._envs_before, self._envs_before + self.num_envs + self.surplus_envs)
        return np.array([emulation.env_seed(seed, env) for env in envs], dtype=np.int64)

    def step(self, actions: Any) -> tuple[NDArray[Any], NDArray[np.float32], Any, Infos]:
        self._begin("step")
        self._give(actions)
        batch = self._take()
        infos: Any = batch.infos
        return batch.observations, batch.rewards, batch.terminals | batch.truncations, infos

    def _give(self, actions: Any) -> None:
        self._action_rows[...] = self._rows(actions)
        chosen = self._read_actions()
        acting: Any = ... if self._handed is None else self._handed
        self._acting[acting] = self.masks[acting]
        self._is_stepping = True
        self._call(self._simulator.send, chosen, self._handed)

    def _take(self) -> Batch:
        if not self._is_stepping:  # the first batch after a reset
            return self._batch_of(Infos(self.batch_slots, dict))
        outcome = self._call(self._simulator.recv)
        self._is_stepping = False
        return self._batch_of(self._store("step", outcome))

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except PufferError:
            raise
        except FAULTS as error:
            self._ready = self._is_stepping = False  # `reset` may be called
            what = f"`{method.__name__}` {raised_text(error)}"
            raise EnvError(f"{self.name or type(self._simulator).__name__}, {what}") from error

    def _store(self, call: str, outcome: Outcome) -> Infos:
        """Write an outcome into the rows, count its episodes and return its infos."""
        rows = self._buffers
        self._handed = outcome.slots
        slots: Any = ... if outcome.slots is None else outcome.slots
        if outcome.slots is not None:  # the others are under way
            rows.rewards[:], rows.terminals[:], rows.truncations[:] = 0, False, False
        rows.rewards[slots], rows.terminals[slots] = outcome.rewards, outcome.terminals
        rows.truncations[slots] = outcome.truncations > outcome.terminals  # a terminal comes first
        rows.masks[slots] = True if outcome.masks is None else outcome.masks
        if rows.action_masks is not None:
            rows.action_masks[slots] = outcome.action_masks
        self._store_observations(outcome)
        ended = rows.terminals | rows.truncations
        if outcome.finals is not None:
            which = np.flatnonzero(outcome.terminals | outcome.truncations)
            self._write_finals(outcome.finals, which if outcome.slots is None else slots[which])
        self._check_finite(call)
        counted: NDArray[np.bool_] = self._acting
        if outcome.slots is not None:
            counted = np.zeros(self.num_agents, dtype=np.bool_)
            counted[slots] = self._acting[slots]
        finished = self._counter.step(rows.rewards, ended, counted)
        self._acting[slots] = False
        return self._infos(outcome, finished)

    def _store_observations(self, outcome: Outcome) -> None:
        given, rows = outcome.observations, self._buffers.observations
        if (
            self._takes_pictures
            and type(given) is np.ndarray
            and outcome.slots is None
            and given.shape == rows.shape
            and given.dtype == rows.dtype
            and given.flags.carray
        ):
            self.observations = given
        else:
            self.observations = rows
            self._write(given, self.slots)

    def _check_finite(self, call: str) -> None:
        found = self._checks.nonfinite()
        # a sum is finite unless a term is not, or unless it overflows: then look closely
        if found is None and not math.isfinite(self.rewards.sum()):
            slots = np.flatnonzero(~np.isfinite(self.rewards))
            if len(slots):
                slot = int(slots[0])
                found = slot, f"`reward` must be finite, but got {self.rewards[slot]}."
        if found is not None:
            self._ready = False  # `reset` may be called
            env = found[0] // self.agents_per_env
            raise EnvError(f"{self.name or 'the simulator'}, env {env}, `{call}`: {found[1]}")

    def _infos(self, outcome: Outcome, finished: Mapping[int, dict[str, Any]]) -> Infos:
        """Return the infos of a batch, and count the metrics of finished episodes."""
        rows = {} if outcome.slots is None else {s: r for r, s in enumerate(outcome.slots.tolist())}
        for slot in finished:
            for name, value in metrics_of(_entry(outcome.infos, rows.get(slot, slot))).items():
                self._counter.stats.add_metric(name, value)

        def build() -> dict[int, dict[str, Any]]:
            ends = {rows.get(slot, slot): info for slot, info in finished.items()}
            named = range(self.batch_slots) if outcome.infos else ends
            return {row: {**_entry(outcome.infos, row), **ends.get(row, {})} for row in named}

        return Infos(self.batch_slots, build)

    # ---- Statistics, pictures, end -------------------------------------------------------------

    def drain_stats(self) -> EpisodeStats:
        return self._counter.drain()

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        self._begin("render")
        self._check_env(env)
        if self._is_stepping or self._handed is not None:
            raise UsageError("`render` must be called while no env steps: after `recv`, not async.")
        row = self.observations[env * self.agents_per_env]
        picture: NDArray[np.uint8] | None = self._call(self._simulator.render, env, row)
        return picture

    def close(self) -> None:
        if not self._closed and os.getpid() == self._owner:
            self._simulator.close()
        super().close()


def _entry(infos: Mapping[str, NDArray[Any]], row: int) -> dict[str, Any]:
    entry = {name: values[row].item() for name, values in infos.items()}
    return {name: value for name, value in entry.items() if not math.isnan(value)}
