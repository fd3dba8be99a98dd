"""Emulated: the base of all emulated envs; checks what an env returns and writes it into its rows.

A subclass calls the methods of one API and unpacks what they return. Checks, action masks and
messages are the same for all APIs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.emulation.inspection import EnvTraits, describe, undisturbed
from pufferlib.env import AgentIds, PufferEnv
from pufferlib.episodes import EpisodeStats, Info, metrics_of
from pufferlib.errors import FAULTS, EnvError, PufferError, raised_text
from pufferlib.spaces import (
    Space,
    action_layout,
    action_reader,
    missing_choice,
    observation_layout,
    observation_writer,
)

MASK_KEY = "action_mask"  # of infos and of Dict observations
MAX_REWARD = float(np.finfo(np.float32).max)  # larger ones would be inf in a row of float32
MIN_REWARD = -MAX_REWARD

_NUMBERS = (int, float, np.integer, np.floating, np.bool_)
_SCALAR_REWARDS = (
    " One for each agent: make it a ParallelEnv of PettingZoo. One for each objective: make one "
    "number of them, as LinearReward of mo-gymnasium does."
)


class Emulated(PufferEnv):
    """Any env, working in place. `env` is the wrapped env; unknown attributes are forwarded to it.

    `agent_ids` are the agents in slot order where the env uses dicts per agent (known after the
    first reset at the latest), else None. `index` is the env's place in its vector, for messages.
    """

    _masks_from: str  # where action masks come from: "observation", "method", "info", "rows", ...

    def __init__(
        self,
        traits: EnvTraits,
        observation_space: Space,
        action_space: Space,
        num_agents: int = 1,
        agent_ids: AgentIds = None,
        index: int = 0,
        like: Emulated | None = None,
    ) -> None:
        self.traits, self.env = traits, traits.env
        self.index = index
        self.agent_ids = agent_ids
        self.observation_space, self.action_space = observation_space, action_space
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.num_agents = num_agents
        self.render_mode = traits.render_mode
        self._stats = EpisodeStats()
        with self._naming_env("observation_space"):
            self._observation_layout = observation_layout(observation_space)
        with self._naming_env("action_space"):
            self._action_layout = action_layout(action_space)
        self._masks_from = self._find_action_masks() if like is None else like._masks_from
        self.has_action_masks = bool(self._masks_from)
        super().__init__()

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        slots = range(self.num_agents)
        layout, actions = self._observation_layout, self._action_layout
        self._write = [observation_writer(layout, self.observations[slot, ...]) for slot in slots]
        self._write_final = [
            observation_writer(layout, self.final_observations[slot, ...]) for slot in slots
        ]
        self._read = [action_reader(actions, self.actions[slot, ...]) for slot in slots]

    def __getattr__(self, name: str) -> Any:
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    # ---- Calls to the env ----------------------------------------------------------------------

    def _reset_env(self, seed: int | None) -> Any:
        """Call the env's `reset` with the seed, or its `seed` method first (gym before 0.26)."""
        try:
            if seed is not None:
                if self.traits.takes_seed:
                    return self.env.reset(seed=seed)
                if self.traits.seed is not None:
                    self.traits.seed(seed)
            return self.env.reset()
        except FAULTS as error:
            raise self.raised("reset", error) from error

    def _call(self, method: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the env; what it raises becomes an error that names the env."""
        try:
            return function(*arguments)
        except FAULTS as error:
            raise self.raised(method, error) from error

    def drain(self) -> EpisodeStats:
        """Return the metrics of episodes finished since the last drain."""
        stats, self._stats = self._stats, EpisodeStats()
        return stats

    def render(self) -> Any:
        render = self.traits.render
        if render is None:
            return None
        inner = self.traits.unwrapped
        has_modes = "render_modes" in (getattr(inner, "metadata", None) or {})
        if self.render_mode is None and has_modes and hasattr(inner, "render_mode"):
            return None  # without a mode, envs of Gymnasium and PettingZoo warn and draw nothing
        picture = self._call("render", render)
        if isinstance(picture, list) and picture:
            picture = picture[-1]
        return picture if isinstance(picture, np.ndarray) else None

    def close(self) -> None:
        if self.traits.close is not None:
            self._call("close", self.traits.close)

    # ---- Checks --------------------------------------------------------------------------------

    def _observe(self, method: str, slot: int, observation: Any, final: bool = False) -> None:
        """Write an observation into its row (or that of final observations)."""
        try:
            (self._write_final if final else self._write)[slot](observation)
        except EnvError as error:
            raise self.broken(method, str(error), slot) from error

    def _reward(self, reward: Any, slot: int = 0) -> float:
        """Return a reward as a float, or raise if it is not a finite number."""
        if type(reward) is not float:
            if isinstance(reward, np.ndarray) and reward.shape == ():
                reward = reward[()]
            if not isinstance(reward, _NUMBERS):
                what = must("reward", "a number", reward)
                if isinstance(reward, list | tuple | np.ndarray) and len(reward) > 1:
                    what += _SCALAR_REWARDS
                raise self.broken("step", what, slot)
            try:
                reward = float(reward)
            except OverflowError:  # an int beyond all floats
                reward = math.inf
        if not MIN_REWARD <= reward <= MAX_REWARD:  # false for nan too
            what = must("reward", "finite", reward)
            raise self.broken("step", what + self.cause_of_nan(slot), slot)
        return reward  # type: ignore[no-any-return]

    def _flag(self, field: str, value: object, slot: int | None = 0) -> bool:
        if type(value) is bool:  # the usual case
            return value
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
            return bool(value)
        raise self.broken("step", must(field, "True or False", value), slot)

    def _info(self, method: str, info: Any, slot: int = 0) -> Info:
        if isinstance(info, Mapping):
            return info if isinstance(info, dict) else dict(info)
        raise self.broken(method, must("info", "a dict", info), slot)

    def _add_metrics(self, info: Mapping[str, Any]) -> None:
        """Count the numbers that an episode's last info holds."""
        for name, value in metrics_of(info).items():
            self._stats.add_metric(name, value)

    # ---- Action masks --------------------------------------------------------------------------

    def _find_action_masks(self) -> str:
        """Return where the env declares which actions are allowed: "" if nowhere."""
        width = sum(self._action_layout.nvec)
        if not width:
            return ""
        parts = getattr(self.single_observation_space, "spaces", {})
        if isinstance(parts, Mapping) and MASK_KEY in parts and parts[MASK_KEY].shape == (width,):
            return "observation"
        if self.traits.action_masks is not None:
            return "method"
        declared = isinstance(self.traits.unwrapped, PufferEnv) and self.env.has_action_masks
        return "info" if declared or self._info_has_mask() else ""

    def _info_has_mask(self) -> bool:
        """Return whether infos carry masks; only a reset shows it, and a seed makes it harmless."""
        if not self.traits.takes_seed:
            return False
        with undisturbed():
            return any(isinstance(info, Mapping) and MASK_KEY in info for info in self._try_infos())

    def _try_infos(self) -> Iterable[Any]:
        """Return the infos of a seeded reset, or none where the API has no masks in infos."""
        return ()

    def _mask(self, method: str, slot: int, observation: Any, info: Mapping[str, Any]) -> None:
        """Write the action mask that came with an observation."""
        if self._masks_from == "observation":
            given = observation[MASK_KEY]
        elif self._masks_from == "info":
            given = info.get(MASK_KEY)
        else:
            assert self.traits.action_masks is not None
            given = self._call("action_masks", self.traits.action_masks)
            if isinstance(given, Mapping) and self.agent_ids is not None:
                given = given.get(self.agent_ids[slot])
        assert self.action_masks is not None
        row = self.action_masks[slot]
        if given is None:
            row[:] = True
            return
        if isinstance(given, tuple | list) and len(given) and not np.isscalar(given[0]):
            given = np.concatenate([np.asarray(part).ravel() for part in given])
        mask = np.asarray(given)
        if mask.size != row.size or mask.dtype.kind not in "biu":
            wanted = f"{row.size} flags, one for each choice"
            got = f"{mask.dtype} of shape {mask.shape}"
            raise self.broken(method, f"`{MASK_KEY}` must be {wanted}, but got {got}.", slot)
        row[:] = mask.ravel()
        self._allow_one(method, slot, row)

    def _allow_one(self, method: str, slot: int, row: NDArray[np.bool_]) -> None:
        """Raise if a component has no allowed choice: no policy could sample from it."""
        what = missing_choice(self._action_layout, row)
        if what is not None:
            raise self.broken(method, what, slot)

    def _wait(self, slot: int) -> None:
        """Mask all but one choice of an agent that does not act: nothing is learned from it."""
        if self.action_masks is not None:
            row = self.action_masks[slot]
            row[:] = False
            if not self._action_layout.num_continuous:  # a Box has no single choice
                row[self._action_layout.firsts] = True

    # ---- Messages ------------------------------------------------------------------------------

    def _place(self, method: str, slot: int | None = None) -> str:
        agent = ""
        if self.agent_ids is not None and slot is not None and slot < len(self.agent_ids):
            agent = f", agent {self.agent_ids[slot]}"
        return f"{self.traits.name} (env {self.index}{agent}), `{method}`"

    def broken(self, method: str, what: str, slot: int | None = None) -> EnvError:
        """Return the error that names this env, its agent and `method`; the caller raises it."""
        return EnvError(f"{self._place(method, slot)}: {what}")

    def cause_of_nan(self, slot: int) -> str:
        """Return a sentence where the action was nan already: then the env is not at fault."""
        row = self.actions[slot]
        if row.dtype.kind == "f" and np.isnan(row).any():
            return " Its action was nan."
        return ""

    def raised(self, method: str, error: BaseException) -> EnvError:
        """Return the error for an exception raised by the env in `method`; the caller raises it.

        One of a signal that found the env there is raised as it is.
        """
        return self.broken(method, raised_text(error))

    @contextmanager
    def _naming_env(self, field: str) -> Iterator[None]:
        """Prefix errors about the env's spaces with the env's name."""
        try:
            yield
        except PufferError as error:
            raise EnvError(f"{self._place(field)}: {error}") from error


def must(field: str, wanted: str, value: object) -> str:
    """Describe what a field must be, and what was given instead."""
    return f"`{field}` must be {wanted}, but got {describe(value)} ({type(value).__name__})."


def must_return(wanted: str, result: object) -> str:
    """Describe how many parts a method must return, and how many were given."""
    given = f"{len(result)} parts" if isinstance(result, tuple | list) else describe(result)
    return f"must return {wanted}, but got {given}."
