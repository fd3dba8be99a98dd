"""VectorEnv: what every way of running many environments at once has in common."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.episodes import EpisodeStats, EpisodeTracker, Infos
from pufferlib.errors import EnvError, UsageError, unknown_name
from pufferlib.spaces import (
    ObservationLayout,
    Space,
    action_layout,
    flatten_action,
    observation_layout,
)

_INT32 = np.iinfo(np.int32)


class Batch(NamedTuple):
    """Slots handed over by one `recv`. Arrays are views, valid until the next `send`."""

    slots: slice | NDArray[np.int64]
    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    infos: Any


class VectorEnv:
    """Many environments stepped together; one row ("slot") for each agent of each env.

    Autoreset is same-step: the observation after an end is the first of the next episode. A
    *terminal* ended the episode and cuts the value to zero; a *truncation* cut it short, and the
    value goes on from its last observation, which `final_observations` holds in rows where
    `truncations` is set. Slots whose `masks` row is False belong to absent agents: no data and no
    loss.

    All arrays are views of one memory that the next `step` overwrites; copy what must outlive it.
    `reset`, then `step` again and again, or `recv` and `send` in turns. A subclass needs only
    `reset` and `step`: it sets `num_envs` and the spaces (or a list `self.envs` of envs that have
    them). What its `step` calls done is terminal, unless the slot's info has a true
    `TimeLimit.truncated`; that info may bring the `final_observation` as well.
    """

    name: str = ""  # as `make` was told, for people to read
    num_envs: int
    num_workers: int = 1
    agents_per_env: int = 1
    batches: int = 1  # into which the slots are split; `recv` hands over one of them
    surplus_envs: int = 0  # that step in the background while `num_envs` are handed over
    agent_ids: tuple[Any, ...] | None = None  # in slot order, where envs speak dicts per agent
    action_masks: NDArray[np.bool_] | None = None
    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    final_observations: NDArray[Any]

    _next_seed: int | None = None
    _closed: bool = False
    _ready: bool = False  # reset has been called
    _sent: bool = False
    _received: bool = False
    _batch: Batch | None = None
    _tracker: EpisodeTracker | None = None
    _observation_space: Space | None = None
    _action_space: Space | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "reset" in vars(cls):  # whoever writes it need not know what has to follow
            cls.reset = _noted(vars(cls)["reset"])  # type: ignore[method-assign]

    # ---- Spaces and sizes ----------------------------------------------------------------------

    @property
    def observation_space(self) -> Space:
        """The observation space of one agent."""
        return self._space("observation")

    @observation_space.setter
    def observation_space(self, space: Space) -> None:
        self._observation_space = space

    @property
    def action_space(self) -> Space:
        """The action space of one agent."""
        return self._space("action")

    @action_space.setter
    def action_space(self, space: Space) -> None:
        self._action_space = space

    def _space(self, noun: str) -> Space:
        space: Space | None = getattr(self, f"_{noun}_space")
        if space is None:
            envs = getattr(self, "envs", None)
            space = getattr(envs[0], f"{noun}_space", None) if envs else None
        if space is None:
            raise UsageError(
                f"`{noun}_space` must be known, but {type(self).__name__} has none. "
                f"Try `self.{noun}_space = ...` in its __init__."
            )
        return space

    @property
    def single_observation_space(self) -> Space:
        """Alias of `observation_space`."""
        return self.observation_space

    @property
    def single_action_space(self) -> Space:
        """Alias of `action_space`."""
        return self.action_space

    @property
    def num_agents(self) -> int:
        """Slots in all: envs x agents, surplus envs included."""
        if not hasattr(self, "num_envs"):
            raise UsageError(
                f"`num_envs` must be known, but {type(self).__name__} has none. "
                "Try `self.num_envs = ...` in its __init__."
            )
        return (self.num_envs + self.surplus_envs) * self.agents_per_env

    @property
    def batch_slots(self) -> int:
        """Slots that one `recv` hands over: all of them, unless envs step in the background."""
        return self.num_envs * self.agents_per_env // self.batches

    @property
    def envs_per_worker(self) -> int:
        """Envs of a worker; the last one may have fewer."""
        return -(-self.num_envs // self.num_workers)

    # ---- What a subclass defines ---------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Any:
        """Start new episodes everywhere and return the first observations."""
        raise NotImplementedError(f"{type(self).__name__} must define `reset`")

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """Step every env; return observations, rewards, dones (terminals | truncations), infos."""
        raise NotImplementedError(f"{type(self).__name__} must define `step`")

    # ---- Seeding -------------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        """Use `seed` for the next `reset`."""
        self._next_seed = _checked_seed(seed)

    def _take_seed(self, seed: int | None) -> int | None:
        """Return the seed for this reset: the given one, else what `seed` left, else None."""
        held, self._next_seed = self._next_seed, None
        return held if seed is None else _checked_seed(seed)

    # ---- Halves of a step ----------------------------------------------------------------------

    def send(self, actions: Any) -> None:
        """Hand over actions for the slots of the last batch; `recv` must follow."""
        self._begin("send")
        result = self.step(actions)
        if len(result) != 4:
            raise EnvError(
                f"`step` of {type(self).__name__} must return 4 parts (observations, rewards, "
                f"dones, infos), but got {len(result)}."
            )
        self._batch = self._as_batch(*result)
        self._sent = True

    def recv(self) -> Batch:
        """Return the next batch: after `reset` the first observations, after `send` its results."""
        self._begin("recv")
        if not self._sent:
            self._batch = self._first_batch()
        self._sent, self._received = False, True
        assert self._batch is not None
        return self._batch

    def _begin(self, call: str) -> None:
        """Raise, naming the call that is due, unless `call` may be made now."""
        if self._closed:
            raise UsageError(f"`{call}` must not be called on a closed {type(self).__name__}.")
        if call not in ("reset", "restore") and not self._ready:
            raise UsageError(f"`reset` must be called before `{call}`.")
        if call in ("step", "send") and self._sent:
            raise UsageError(f"`recv` must be called before the next `{call}`.")
        if call == "recv" and self._received and not self._sent:
            raise UsageError("`send` must be called before the next `recv`.")

    def _note_reset(self, observations: Any) -> None:
        """Begin anew after a subclass's `reset`, which returned `observations`."""
        self._next_seed = None
        self._ready, self._sent, self._received = True, False, False
        self.observations = self._as_rows("observations", observations)
        if not hasattr(self, "masks"):
            self.masks = np.ones(self.num_agents, dtype=np.bool_)
        self._tracker = EpisodeTracker(self.num_agents)

    def _first_batch(self) -> Batch:
        slots = self.num_agents
        rewards, flags = np.zeros(slots, dtype=np.float32), np.zeros(slots, dtype=np.bool_)
        infos = Infos(slots, dict)
        return Batch(slice(0, slots), self.observations, rewards, flags, flags, self.masks, infos)

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        """Make a batch of what a subclass's `step` returned, and count its episodes."""
        self.observations = self._as_rows("observations", observations)
        self.rewards = self._as_rows("rewards", rewards)
        ended = self._as_rows("dones", dones)
        self.truncations = np.zeros_like(ended)
        self.final_observations = self.observations
        if infos and isinstance(infos, Mapping):
            raise self._misfit("infos", "a list with a dict for each slot", "one dict for all")
        for slot, info in enumerate(infos or ()):
            if ended[slot] and info.get("TimeLimit.truncated", False):
                self.truncations[slot] = True
                if "final_observation" in info:
                    if self.final_observations is self.observations:
                        self.final_observations = self.observations.copy()
                    self.final_observations[slot] = info["final_observation"]
        self.terminals = ended & ~self.truncations
        assert self._tracker is not None
        self._tracker.step(self.rewards, ended, self.masks)
        return self._batch_of(infos)

    def _batch_of(self, infos: Any) -> Batch:
        return Batch(
            slice(0, self.num_agents),
            self.observations,
            self.rewards,
            self.terminals,
            self.truncations,
            self.masks,
            infos,
        )

    def _as_rows(self, field: str, value: Any) -> NDArray[Any]:
        """Return what a subclass gave as an array of rows, or raise where it does not fit."""
        layout = self._observation_layout
        shape, dtype = {
            "observations": (layout.shape, layout.dtype),
            "rewards": ((), np.dtype(np.float32)),
            "dones": ((), np.dtype(np.bool_)),
        }[field]
        wanted = (self.num_agents, *shape)
        try:
            rows = np.asarray(value)
        except ValueError as error:  # rows of different lengths
            raise self._misfit(field, f"one array of shape {wanted}", str(error)) from error
        if rows.shape != wanted:
            raise self._misfit(field, f"of shape {wanted}", str(rows.shape))
        if rows.dtype == dtype:
            return rows
        cast = rows.astype(dtype) if rows.dtype.kind in "biuf" else None
        if cast is None or (dtype.kind != "f" and not np.array_equal(cast, rows)):
            raise self._misfit(field, f"of dtype {dtype}", str(rows.dtype))
        return cast

    def _misfit(self, field: str, wanted: str, given: str) -> EnvError:
        return EnvError(f"`{field}` of {type(self).__name__} must be {wanted}, but got {given}.")

    @functools.cached_property
    def _observation_layout(self) -> ObservationLayout:
        return observation_layout(self.observation_space)

    def wrapped_by(self, wrapper: Any) -> WrappedVectorEnv:
        """Return the vector env that steps this one through `wrapper`, which stands around it."""
        return WrappedVectorEnv(wrapper, self)

    # ---- Statistics, state, pictures, end ------------------------------------------------------

    def drain_metrics(self) -> dict[str, float]:
        """Return means over the episodes finished since the last call.

        Keys: `episodes`, and where there were any `mean_reward`, `min_reward`, `max_reward`,
        `episode_length` and the env's own metrics.
        """
        return self.drain_stats().means()

    def drain_stats(self) -> EpisodeStats:
        """Return what `drain_metrics` averages as sums, which add up over several vectors."""
        return self._tracker.drain() if self._tracker else EpisodeStats()

    def snapshot(self) -> NDArray[np.uint8] | None:
        """Return the whole state of every env, or None where the envs cannot give it."""
        return None

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        """Put every env back into a state that `snapshot` returned, or only `env` into its row.

        Observations and masks come back too; rewards and flags are cleared. `recv` or `step` next.
        """
        raise UsageError(f"{type(self).__name__} cannot restore a state: its envs cannot give one.")

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        """Return a picture [height, width, 3] of one env, or None where there is none."""
        return None

    def close(self) -> None:
        """Free what the envs hold. Safe to call twice."""
        self._closed = True

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class BufferedVectorEnv(VectorEnv):
    """A vector env whose rows live in one set of `Buffers`; the base of the backends."""

    _buffers: Buffers

    def _attach(self, buffers: Buffers, observation_space: Space, action_space: Space) -> None:
        self._buffers = buffers
        self.observation_space, self.action_space = observation_space, action_space
        self._action_layout = action_layout(action_space)
        self._action_shape = self._action_layout.shape
        self.observations, self.rewards = buffers.observations, buffers.rewards
        self.terminals, self.truncations = buffers.terminals, buffers.truncations
        self.masks, self.action_masks = buffers.masks, buffers.action_masks
        self.final_observations = buffers.final_observations
        self._action_rows = buffers.actions[: self.batch_slots]  # for the slots of one batch

    def rebind(self, buffers: Buffers) -> bool:
        """Move to rows of a larger vector before the first reset; False where that cannot be."""
        return False

    def place(self, first_env: int) -> bool:
        """Take the seeds of envs `first_env` and on of a larger vector; False where it cannot."""
        return False

    def _is_step_overridden(self, backend: type[VectorEnv]) -> bool:
        """Return whether halves of a step must go through a `step` that is not the backend's own.

        A mix-in that times or changes steps must see them all; surplus envs have no whole steps.
        """
        return type(self).step is not backend.step and not self.surplus_envs

    def _begin(self, call: str) -> None:
        super()._begin(call)
        if call == "step":
            self._received = True  # nothing is left to receive from before this step

    def _note_reset(self, observations: Any) -> None:
        self._next_seed = None
        self._ready, self._sent, self._received = True, False, False

    def _note_restore(self) -> None:
        self._ready, self._sent, self._received = True, False, False

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        return self._batch_of(infos)

    def _state_rows(self, state: Any, env: int | None) -> NDArray[np.uint8]:
        """Return `state` as rows for all envs, or as the one row for `env`."""
        rows = np.atleast_2d(np.asarray(state))
        total = self.num_envs + self.surplus_envs
        wanted = total if env is None else 1
        if rows.dtype != np.uint8 or len(rows) != wanted:
            raise UsageError(
                f"`state` must be {wanted} rows of bytes from `snapshot`, "
                f"but got {rows.dtype} of shape {rows.shape}."
            )
        if env is not None and not self._ready:
            raise UsageError("`reset` must be called before `restore` of one env.")
        if env is not None and not 0 <= env < total:
            raise UsageError(f"`env` must be in 0..{total - 1}, but got {env}.")
        return rows

    def _rows(self, actions: Any, wanted: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return `actions` as rows like `wanted`, by default one for each slot of a batch.

        Takes a row for each slot, one action for all, or either of them by agent id. The result
        may be the very array given.
        """
        one = self._action_shape
        if wanted is None:
            wanted = self._action_rows
        if (
            type(actions) is np.ndarray
            and actions.dtype == wanted.dtype
            and actions.shape == wanted.shape
            and actions.flags.carray
        ):
            return actions
        if isinstance(actions, Mapping) and self.agent_ids and not self._is_one_action(actions):
            return self._rows_by_agent(actions, wanted)
        if self._is_one_action(actions):
            row = np.zeros(one, wanted.dtype)
            flatten_action(self._action_layout, actions, row)
            actions = row
        return self._fitted(actions, wanted)

    def _fitted(self, actions: Any, wanted: NDArray[Any]) -> NDArray[Any]:
        """Return `actions` as an array like `wanted`, which has a row for each slot."""
        one = self._action_shape
        try:
            rows = np.asarray(actions)
        except Exception as error:  # rows of different lengths; a tensor with a gradient, or on GPU
            said = " ".join(str(error).split()).rstrip(".")
            raise UsageError(f"`actions` must be one array, but {said}.") from None
        if rows.dtype != wanted.dtype:
            if rows.dtype.kind not in ("biu" if wanted.dtype.kind == "i" else "biuf"):
                given = type(actions).__name__ if rows.dtype == object else rows.dtype
                raise UsageError(
                    f"`actions` must be of dtype {wanted.dtype} for {self.action_space}, "
                    f"but got {given}."
                )
            if wanted.dtype.kind == "i" and rows.dtype.itemsize >= wanted.dtype.itemsize:
                # what is out of range must stay so: 2**32 is no action, and must not become 0
                rows = rows.clip(0 if rows.dtype.kind == "u" else _INT32.min, _INT32.max)
            rows = rows.astype(wanted.dtype)
        if rows.shape == self.action_space.shape or (rows.shape == () and math.prod(one) == 1):
            rows = rows.reshape(one)  # of a MultiBinary((2, 2)), or a number for a Box of one
        if rows.shape == one:
            rows = np.broadcast_to(rows, wanted.shape)
        elif rows.shape[:1] == wanted.shape[:1] and rows.size == wanted.size:
            rows = rows.reshape(wanted.shape)  # [slots, 1] for a Discrete
        if rows.shape != wanted.shape:
            raise UsageError(
                f"`actions` must have shape {wanted.shape} (a row for each slot) or {one} "
                f"(one for all), but got {rows.shape}."
            )
        return np.require(rows, requirements=("C", "A"))

    def _is_one_action(self, actions: Any) -> bool:
        """Return whether `actions` is one value of a structured space, as `sample` gives it."""
        layout = self._action_layout
        if not layout.structured or isinstance(actions, np.ndarray | list):
            return False
        keys = {leaf.path[0] for leaf in layout.leaves}
        if isinstance(actions, Mapping):
            return actions.keys() == keys
        return isinstance(actions, tuple) and len(actions) == len(keys)

    def _rows_by_agent(self, actions: Mapping[Any, Any], wanted: NDArray[Any]) -> NDArray[Any]:
        """Return {agent_id: rows} as rows like `wanted`."""
        assert self.agent_ids is not None
        known = [str(id) for id in self.agent_ids]
        for id in actions:
            if id not in self.agent_ids:
                raise unknown_name("agent", str(id), known)
        for id in self.agent_ids:
            if id not in actions:
                raise UsageError(f"`actions` must have rows for every agent, but lacks {id!r}.")
        rows = np.zeros_like(wanted)
        for slot, id in enumerate(self.agent_ids):
            rows[slot :: self.agents_per_env] = self._fitted(
                actions[id], wanted[slot :: self.agents_per_env]
            )
        return rows

    def _by_agent(self, rows: NDArray[Any]) -> Any:
        """Return rows as {agent_id: rows of that agent}, views, where the envs speak so."""
        if self.agent_ids is None:
            return rows
        return {id: rows[slot :: self.agents_per_env] for slot, id in enumerate(self.agent_ids)}


class WrappedVectorEnv(VectorEnv):
    """The halves of a step, and the statistics, of a Wrapper around a vector env.

    Observations, rewards and dones are what the wrapper's `reset` and `step` return; what these
    cannot say (truncations, masks) comes from the env within. Final observations are the inner
    env's where the wrapper leaves observations alone, its own `final_observations` where it has
    such, else the last ones it returned before the end.
    """

    def __init__(self, wrapper: Any, inner: VectorEnv) -> None:
        self._wrapper, self._inner = wrapper, inner
        self.num_envs, self.agents_per_env = inner.num_envs, inner.agents_per_env
        self.observation_space = wrapper.observation_space
        self.action_space = wrapper.action_space
        self.masks = inner.masks

    def note_reset(self, observations: Any) -> None:
        """Begin anew with what the wrapper's `reset` returned."""
        self._note_reset(observations)
        self.rewards = np.zeros(self.num_agents, dtype=np.float32)
        self.terminals = np.zeros(self.num_agents, dtype=np.bool_)
        self.truncations = np.zeros(self.num_agents, dtype=np.bool_)
        self.final_observations = self.observations

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        self._present = self.masks.copy()  # who acts in this step
        result: tuple[Any, Any, Any, Any] = self._wrapper.step(actions)
        return result

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        if type(self._inner)._as_batch is VectorEnv._as_batch:
            return super()._as_batch(observations, rewards, dones, infos)  # all is in what it says
        before = self.observations
        self.observations = self._as_rows("observations", observations)
        self.rewards = self._as_rows("rewards", rewards)
        ended = self._as_rows("dones", dones)
        self.truncations = ended & self._inner.truncations
        self.terminals = ended & ~self.truncations
        if "final_observations" in vars(self._wrapper):
            self.final_observations = self._wrapper.final_observations
        elif np.may_share_memory(self.observations, self._inner.observations):
            self.final_observations = self._inner.final_observations
        else:
            self.final_observations = before
        assert self._tracker is not None
        self._tracker.step(self.rewards, ended, self._present)
        return self._batch_of(infos)

    def _as_rows(self, field: str, value: Any) -> NDArray[Any]:
        if isinstance(value, Mapping):  # by agent id, as the env within answers
            parts = [np.asarray(part) for part in value.values()]
            if np.may_share_memory(parts[0], self._inner.observations):
                return self._inner.observations
            value = np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])
        return super()._as_rows(field, value)

    def drain_metrics(self) -> dict[str, float]:
        return {**self._inner.drain_metrics(), **super().drain_metrics()}


def other_process(call: str, vecenv: VectorEnv) -> UsageError:
    """Return the error for a `call` in a fork of the process that made `vecenv`."""
    name = type(vecenv).__name__
    return UsageError(
        f"`{call}` must be called in the process that made this {name}, but this is a fork of it: "
        f"workers stay behind. Try a {name} of its own."
    )


def _noted(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Let a `reset` have the seed that is held, if it takes one, and note what it returned."""
    takes_seed = "seed" in inspect.signature(reset).parameters

    @functools.wraps(reset)
    def noted(self: VectorEnv, *args: Any, **kwargs: Any) -> Any:
        if takes_seed and not args and kwargs.get("seed") is None:
            kwargs["seed"] = self._next_seed
        observations = reset(self, *args, **kwargs)
        self._note_reset(observations)
        return observations

    return noted


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"`seed` must be a whole number >= 0, but got {seed!r}.")
    return int(seed) & (2**63 - 1)
