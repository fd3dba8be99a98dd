"""Emulated, the ground of all kinds: what an env returns is checked and written into its rows.

Each kind adds how its API is called and parted; calls, checks, action masks and the wording of
errors are the same for all of them and stand here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.emulation.inspection import takes_seed
from pufferlib.emulation.messages import class_name, must, observation_at, what_was_raised
from pufferlib.env import PufferEnv
from pufferlib.episodes import EpisodeStats, metrics_of
from pufferlib.errors import EnvError, PufferError
from pufferlib.spaces import (
    Space,
    action_layout,
    action_reader,
    observation_layout,
    observation_writer,
)

MASK_KEY = "action_mask"  # of infos and of Dict observations
MAX_REWARD = float(np.finfo(np.float32).max)  # beyond it, a row of float32 would say inf
MIN_REWARD = -MAX_REWARD

_NUMBERS = (int, float, np.integer, np.floating, np.bool_)
_CHECKED_STEPS = 32  # how long values are compared with the bounds of their Box


class Emulated(PufferEnv):
    """Any env, working in place. `env` is the one within; further attributes are forwarded to it.

    `agent_ids` are the agents in slot order where the env speaks dicts per agent (known after the
    first reset at the latest), else None. `index` is the env's place in its vector, for messages.
    """

    _masks_from: str  # where action masks come from, "" for nowhere

    def __init__(
        self,
        env: Any,
        observation_space: Space,
        action_space: Space,
        num_agents: int = 1,
        agent_ids: tuple[Any, ...] | None = None,
        index: int = 0,
        like: Emulated | None = None,
    ) -> None:
        self.env = env
        self.index = index
        self.agent_ids = agent_ids
        self.observation_space, self.action_space = observation_space, action_space
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.num_agents = num_agents
        self.render_mode = getattr(env, "render_mode", None)
        self._stats = EpisodeStats()
        self._steps_to_check = _CHECKED_STEPS
        self._takes_seed = takes_seed(env)
        with self._told("observation_space"):
            self._observation_layout = observation_layout(observation_space)
        with self._told("action_space"):
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
        """Call the env's `reset`; the seed goes where the env takes one."""
        try:
            if seed is None:
                return self.env.reset()
            if self._takes_seed:
                return self.env.reset(seed=seed)
            if callable(getattr(self.env, "seed", None)):  # gym before 0.26
                self.env.seed(seed)
            return self.env.reset()
        except Exception as error:
            raise self.raised("reset", error) from error

    def drain(self) -> EpisodeStats:
        """Return the metrics of episodes finished since the last drain."""
        stats, self._stats = self._stats, EpisodeStats()
        return stats

    def render(self) -> Any:
        if self.render_mode is None and isinstance(self._unwrapped, gymnasium.Env):
            return None  # Gymnasium warns that nothing will be drawn
        try:
            picture = self.env.render() if hasattr(self.env, "render") else None
        except Exception as error:
            raise self.raised("render", error) from error
        if isinstance(picture, list) and picture:
            picture = picture[-1]
        return picture if isinstance(picture, np.ndarray) else None

    def close(self) -> None:
        if callable(getattr(self.env, "close", None)):
            try:
                self.env.close()
            except Exception as error:
                raise self.raised("close", error) from error

    # ---- Checks --------------------------------------------------------------------------------

    def _observe(self, method: str, slot: int, observation: Any, final: bool = False) -> None:
        """Write an observation into its row (or that of final observations)."""
        try:
            (self._write_final if final else self._write)[slot](observation)
        except EnvError as error:
            raise self.broken(method, str(error), slot) from error
        if self._steps_to_check > 0 and not final:
            self._steps_to_check -= 1
            self._check_bounds(method, slot)

    def _check_bounds(self, method: str, slot: int) -> None:
        """Warn of values outside of their Box: wrong, but many envs do it and train well."""
        layout = self._observation_layout
        for leaf in layout.leaves:
            if leaf.kind == "box":
                part = layout.view(self.observations[slot, ...], leaf)
                if ((part < leaf.lowest) | (part > leaf.highest)).any():
                    field = observation_at(leaf.path)
                    self._steps_to_check = 0
                    warnings.warn(
                        f"{self._place(method, slot)}: `{field}` is outside of {leaf.space}.",
                        stacklevel=2,
                    )

    def _reward(self, reward: Any, slot: int = 0) -> float:
        """Return a reward as a float, or raise if it is not a finite number."""
        if type(reward) is not float:
            if isinstance(reward, np.ndarray) and reward.shape == ():
                reward = reward[()]
            if not isinstance(reward, _NUMBERS):
                raise self.broken("step", must("reward", "a number", reward), slot)
            try:
                reward = float(reward)
            except OverflowError:  # an int beyond all floats
                reward = math.inf
        if not MIN_REWARD <= reward <= MAX_REWARD:  # false for nan too
            said = must("reward", "finite", reward)
            raise self.broken("step", said + self.cause_of_nan(slot), slot)
        return reward  # type: ignore[no-any-return]

    def _flag(self, field: str, value: Any, slot: int | None = 0) -> bool:
        if isinstance(value, np.ndarray) and value.shape == ():
            value = value[()]
        if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
            return bool(value)
        raise self.broken("step", must(field, "True or False", value), slot)

    def _info(self, method: str, info: Any, slot: int = 0) -> dict[str, Any]:
        if isinstance(info, Mapping):
            return info if isinstance(info, dict) else dict(info)
        raise self.broken(method, must("info", "a dict", info), slot)

    def _add_metrics(self, info: Mapping[str, Any]) -> None:
        """Count the numbers that an episode's last info holds."""
        for name, value in metrics_of(info).items():
            self._stats.add_metric(name, value)

    # ---- Action masks --------------------------------------------------------------------------

    def _find_action_masks(self) -> str:
        """Return where the env says which actions are allowed: "" if nowhere."""
        width = sum(self._action_layout.nvec)
        if not width:
            return ""
        parts = getattr(self.single_observation_space, "spaces", {})
        if isinstance(parts, Mapping) and MASK_KEY in parts and parts[MASK_KEY].shape == (width,):
            return "observation"
        if self._mask_method() is not None:
            return "method"
        declared = isinstance(self._unwrapped, PufferEnv) and self.env.has_action_masks
        return "info" if declared or self._info_has_mask() else ""

    def _mask_method(self) -> Callable[[], Any] | None:
        if isinstance(self.env, gymnasium.Wrapper):
            found = self.env.has_wrapper_attr("action_masks")
            method = self.env.get_wrapper_attr("action_masks") if found else None
        else:
            method = getattr(self.env, "action_masks", None)
        return method if callable(method) else None

    def _info_has_mask(self) -> bool:
        """Look into the info of a reset. Only where a seed makes it leave no trace."""
        return False

    def _mask(self, method: str, slot: int, observation: Any, info: Mapping[str, Any]) -> None:
        """Write the action mask that came with an observation."""
        if self._masks_from == "observation":
            given = observation[MASK_KEY]
        elif self._masks_from == "info":
            given = info.get(MASK_KEY)
        else:
            mask_method = self._mask_method()
            assert mask_method is not None
            try:
                given = mask_method()
            except Exception as error:
                raise self.raised("action_masks", error) from error
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
        """Raise if a component has no choice left: no policy could sample from it."""
        first = 0
        for component, n in enumerate(self._action_layout.nvec):
            if not row[first : first + n].any():
                said = f"`{MASK_KEY}` must allow at least one choice of component {component}"
                raise self.broken(method, f"{said}, but allows none.", slot)
            first += n

    def _wait(self, slot: int) -> None:
        """Leave one choice to an agent that need not act: a sure action, and nothing to learn."""
        if self.action_masks is not None:
            row, first = self.action_masks[slot], 0
            row[:] = False
            if self._action_layout.num_continuous:
                return  # no number of a Box is a sure one: see `ActionLayout.mask_width`
            for n in self._action_layout.nvec:
                row[first] = True
                first += n

    # ---- Messages ------------------------------------------------------------------------------

    @property
    def _unwrapped(self) -> Any:
        inner = getattr(self.env, "unwrapped", self.env)  # of our wrappers, then of Gymnasium's
        return getattr(inner, "unwrapped", inner)

    def _place(self, method: str, slot: int | None = None) -> str:
        agent = ""
        if self.agent_ids is not None and slot is not None and slot < len(self.agent_ids):
            agent = f", agent {self.agent_ids[slot]}"
        return f"{class_name(self._unwrapped)} (env {self.index}{agent}), `{method}`"

    def broken(self, method: str, what: str, slot: int | None = None) -> EnvError:
        """Return the error that this env did `what` in `method`; the caller raises it."""
        return EnvError(f"{self._place(method, slot)}: {what}")

    def cause_of_nan(self, slot: int) -> str:
        """Say so where the action was nan already: that is not the env's fault."""
        row = self.actions[slot]
        if row.dtype.kind == "f" and np.isnan(row).any():
            return " Its action was nan."
        return ""

    def raised(self, method: str, error: Exception) -> EnvError:
        """Return the error that this env raised `error` in `method`; the caller raises it."""
        return self.broken(method, what_was_raised(error))

    @contextmanager
    def _told(self, field: str) -> Iterator[None]:
        """Say which env a complaint about its spaces is about."""
        try:
            yield
        except PufferError as error:
            name = class_name(self._unwrapped)
            raise EnvError(f"{name} (env {self.index}), `{field}`: {error}") from error
