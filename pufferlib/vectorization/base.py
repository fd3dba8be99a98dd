"""VectorEnv: what every way of running many environments at once has in common."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.episodes import EpisodeTracker
from pufferlib.errors import UsageError
from pufferlib.spaces import ActionLayout, Space, action_layout, observation_layout


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
    `truncations` is set. Slots whose `masks` row is False belong to absent agents: no data, no loss.

    All arrays are views of one memory that the next `step` overwrites; copy what must outlive it.
    `reset`, then `step` again and again, or `recv` and `send` in turns. A subclass needs only `reset`
    and `step`: it sets `num_envs` and the spaces (or a list `self.envs` of envs that have them).
    """

    name: str = ""  # as `make` was told, for people to read
    num_envs: int
    num_workers: int = 1
    envs_per_worker: int
    agents_per_env: int = 1
    action_masks: NDArray[np.bool_] | None = None
    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    final_observations: NDArray[Any]

    _next_seed: int | None = None
    _sent: bool = False
    _received: bool = False
    _batch: Batch | None = None
    _tracker: EpisodeTracker | None = None
    _observation_space: Space | None = None
    _action_space: Space | None = None
    _layout: ActionLayout | None = None

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
        """Slots in all: envs x agents."""
        return self.num_envs * self.agents_per_env

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
        self._next_seed = seed

    def _take_seed(self, seed: int | None) -> int | None:
        """Return the seed for this reset: the given one, else what `seed` left, else None."""
        given = self._next_seed if seed is None else seed
        self._next_seed = None
        if given is None:
            return None
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 0:
            raise UsageError(f"`seed` must be a whole number >= 0, but got {given!r}.")
        return int(given) & (2**63 - 1)

    # ---- Halves of a step ----------------------------------------------------------------------

    def send(self, actions: Any) -> None:
        """Hand over actions for the slots of the last batch; `recv` must follow."""
        if self._sent:
            raise UsageError("`recv` must be called before the next `send`.")
        result = self.step(actions)
        self._batch = self._as_batch(*result)
        self._sent = True

    def recv(self) -> Batch:
        """Return the next batch: after `reset` the first observations, after `send` its results."""
        if not self._sent:
            if self._received:
                raise UsageError("`send` must be called before the next `recv`.")
            self._batch = self._first_batch()
        self._sent, self._received = False, True
        assert self._batch is not None
        return self._batch

    def _first_batch(self) -> Batch:
        observations = getattr(self, "observations", None)
        if observations is None or not self._was_reset():
            observations = np.asarray(self.reset())
        num_slots = self.num_agents
        zeros = np.zeros(num_slots, dtype=np.bool_)
        self.masks = getattr(self, "masks", np.ones(num_slots, dtype=np.bool_))
        rewards = np.zeros(num_slots, dtype=np.float32)
        return Batch(slice(0, num_slots), observations, rewards, zeros, zeros, self.masks, [])

    def _was_reset(self) -> bool:
        return False

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        """Make a batch of what a subclass's `step` returned, and count its episodes."""
        observations = np.asarray(observations)
        rewards = np.asarray(rewards, dtype=np.float32)
        dones = np.asarray(dones, dtype=np.bool_)
        truncations = np.zeros_like(dones)
        for slot, info in enumerate(infos):
            if dones[slot] and info.get("TimeLimit.truncated", False):
                truncations[slot] = True
        self.observations, self.rewards = observations, rewards
        self.terminals, self.truncations = dones & ~truncations, truncations
        self.final_observations = observations
        if self._tracker is None:
            self._tracker = EpisodeTracker(self.num_agents)
        self._tracker.step(rewards, dones, self.masks)
        return Batch(
            slice(0, self.num_agents),
            observations,
            rewards,
            self.terminals,
            self.truncations,
            self.masks,
            infos,
        )

    # ---- Statistics, state, pictures, end ------------------------------------------------------

    def drain_metrics(self) -> dict[str, float]:
        """Return means over the episodes finished since the last call.

        Keys: `episodes`, and where there were any `mean_reward`, `min_reward`, `max_reward`,
        `episode_length` and the env's own metrics.
        """
        return self._tracker.drain().means() if self._tracker else {"episodes": 0.0}

    def snapshot(self) -> NDArray[np.uint8] | None:
        """Return the whole state of every env, or None where the envs cannot give it."""
        return None

    def restore(self, state: NDArray[np.uint8]) -> None:
        """Put every env back into a state that `snapshot` returned."""
        raise UsageError(f"{type(self).__name__} cannot restore a state: its envs cannot give one.")

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        """Return a picture [height, width, 3] of one env, or None where there is none."""
        return None

    def close(self) -> None:
        """Free what the envs hold. Safe to call twice."""

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
    _closed: bool = False
    _ready: bool = False  # reset has been called

    def _attach(self, buffers: Buffers, observation_space: Space, action_space: Space) -> None:
        self._buffers = buffers
        self.observation_space, self.action_space = observation_space, action_space
        self._layout = action_layout(action_space)
        self.observations, self.rewards = buffers.observations, buffers.rewards
        self.terminals, self.truncations = buffers.terminals, buffers.truncations
        self.masks, self.action_masks = buffers.masks, buffers.action_masks
        self.final_observations = buffers.final_observations
        self.observation_layout = observation_layout(observation_space)

    def _begin(self, call: str) -> None:
        if self._closed:
            raise UsageError(f"`{call}` must not be called on a closed {type(self).__name__}.")
        if call != "reset" and not self._ready:
            raise UsageError(f"`reset` must be called before `{call}`.")
        if call == "step" and self._sent:
            raise UsageError("`recv` must be called before the next `step`.")

    def _was_reset(self) -> bool:
        return self._ready

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        return Batch(
            slice(0, self.num_agents),
            observations,
            rewards,
            self.terminals,
            self.truncations,
            self.masks,
            infos,
        )

    def _rows(self, actions: Any) -> NDArray[Any]:
        """Return `actions` as rows of the action layout, one for each slot.

        Takes a row for each slot or one action for all. The result may be the very array given.
        """
        wanted = self._buffers.actions
        rows = np.asarray(actions)
        if rows.dtype == wanted.dtype and rows.shape == wanted.shape and rows.flags.c_contiguous:
            return rows
        assert self._layout is not None
        shape = self._layout.shape
        if rows.dtype != wanted.dtype:
            if rows.dtype.kind not in ("iu" if wanted.dtype.kind == "i" else "iuf"):
                raise UsageError(
                    f"`actions` must be of dtype {wanted.dtype} for {self.action_space}, "
                    f"but got {rows.dtype}."
                )
            rows = rows.astype(wanted.dtype)
        if rows.shape == shape:
            rows = np.broadcast_to(rows, wanted.shape)
        elif rows.shape != wanted.shape and rows.size == wanted.size:
            rows = rows.reshape(wanted.shape)  # [slots, 1] for a Discrete
        if rows.shape != wanted.shape:
            raise UsageError(
                f"`actions` must have shape {wanted.shape} (a row for each slot) or {shape} "
                f"(one for all), but got {rows.shape}."
            )
        return np.ascontiguousarray(rows)

    def close(self) -> None:
        self._closed = True
