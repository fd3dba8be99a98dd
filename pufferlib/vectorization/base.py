"""VectorEnv: what every way of running many environments at once has in common."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.closing import Closing
from pufferlib.episodes import EpisodeStats, EpisodeTracker, Infos
from pufferlib.errors import EnvError, UsageError
from pufferlib.spaces import ObservationLayout, Space, action_layout, observation_layout
from pufferlib.vectorization.actions import Slots, action_rows
from pufferlib.vectorization.first import first_observations


class Batch(NamedTuple):
    """Slots handed over by one `recv`. Arrays are views, valid until the next `send`."""

    slots: slice | NDArray[np.int64]
    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    infos: Any


def _noted(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Let a `reset` have the seed that is held, if it takes one, and note what it returned."""
    takes_seed = "seed" in inspect.signature(reset).parameters

    @functools.wraps(reset)
    def noted(self: VectorEnv, *args: Any, **kwargs: Any) -> Any:
        if takes_seed and not args and kwargs.get("seed") is None:
            kwargs["seed"] = self._next_seed
        observations = reset(self, *args, **kwargs)
        self._note_reset(observations)
        return first_observations(observations)

    return noted


def _definer(cls: type, name: str) -> type:
    """Return the class of the hierarchy whose `name` this one uses."""
    return next(each for each in cls.__mro__ if name in vars(each))


class VectorEnv(Closing):
    """Many environments stepped together; one row ("slot") for each agent of each env.

    Autoreset is same-step: the observation after an end is the first of the next episode. A
    *terminal* ended the episode and cuts the value to zero; a *truncation* cut it short, and the
    value goes on from its last observation, which `final_observations` holds in rows where
    `truncations` is set. Slots whose `masks` row is False belong to absent agents: no data and no
    loss.

    All arrays are views of one memory that the next `step` overwrites; copy what must outlive it.
    `reset`, then `step` again and again, or `recv` and `send` in turns.

    `VectorEnv(env_creator, num_envs)` runs envs in a plain loop; a subclass may change what its
    `reset` and `step` return. One that passes no creator needs only `reset` and `step`: it sets
    `num_envs` and the spaces (or a list `self.envs` of envs that have them). It may answer with
    arrays, or with {agent_id: rows} for `agents_per_env` agents; then `send` hands actions to its
    `step` in this form too. What its `step` calls done is terminal, unless the slot's info has a
    true `TimeLimit.truncated`; that info may bring the `final_observation` as well.
    """

    name: str = ""  # as `make` was told, for people to read
    num_envs: int
    num_workers: int = 1
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

    _has_halves: bool = False  # `send` and `recv` are `_give` and `_take`, without `step`
    _serial: ClassVar[type[Any]]  # Serial, a VectorEnv itself: serial.py sets it
    _within: VectorEnv | None = None  # the vector whose envs these are, where they are not its own
    _next_seed: int | None = None
    _closed: bool = False
    _ready: bool = False  # reset has been called
    _sent: bool = False
    _received: bool = False
    _batch: Batch | None = None
    _handed: slice | NDArray[np.int64] | None = None  # slots handed over last; None for all
    _tracker: EpisodeTracker | None = None
    _observation_space: Space | None = None
    _action_space: Space | None = None

    def __init__(
        self, env_creator: Callable[[], Any] | None = None, num_envs: int | None = None
    ) -> None:
        if env_creator is None:
            return  # a subclass has envs of its own
        if num_envs is None:
            raise UsageError("`num_envs` must be given with `env_creator`. Try num_envs=8.")
        serial = self._serial(env_creator, num_envs)
        self._stand_around(serial)
        self.envs: Any = serial.envs
        self.action_masks = serial.action_masks
        self.observation_space, self.action_space = serial.observation_space, serial.action_space

    def _stand_around(self, inner: VectorEnv) -> None:
        """Take sizes and rows of a vector that this one steps."""
        self._within = inner
        self.num_envs, self.agents_per_env = inner.num_envs, inner.agents_per_env
        self.masks = inner.masks

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "reset" in vars(cls):  # whoever writes it need not know what has to follow
            cls.reset = _noted(vars(cls)["reset"])  # type: ignore[method-assign]
        # a mix-in that times or changes `step` must see every step, so `send` calls it then
        halves = _definer(cls, "_give")
        cls._has_halves = halves is not VectorEnv and halves is _definer(cls, "step")

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

    @functools.cached_property
    def agents_per_env(self) -> int:
        """Agents of one env; where a subclass does not set it, those of its first env."""
        env = self._first_env()
        agents = getattr(env, "possible_agents", None)
        return len(agents) if agents else int(getattr(env, "num_agents", 1) or 1)

    def _first_env(self) -> Any:
        return next(iter(getattr(self, "envs", None) or ()), None)

    def _known_space(self, noun: str) -> Space | None:
        space: Any = getattr(self, f"_{noun}_space")
        env = self._first_env()
        for name in (f"single_{noun}_space", f"{noun}_space"):
            if space is None:
                space = getattr(env, name, None)
        if callable(space):  # a method of PettingZoo's envs
            space = space(env.possible_agents[0])
        known: Space | None = space
        return known

    def _space(self, noun: str) -> Space:
        space = self._known_space(noun)
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
    def slots(self) -> slice | NDArray[np.int64]:
        """The slots that the last `reset`, `step` or `recv` handed over, in order of rows."""
        return slice(0, self.num_agents) if self._handed is None else self._handed

    @property
    def batch_slots(self) -> int:
        """Slots that one `recv` hands over: all of them, unless envs step in the background."""
        return self.num_envs * self.agents_per_env // self.batches

    @property
    def envs_per_worker(self) -> int:
        """Envs of a worker; the last one may have fewer."""
        return -(-self.num_envs // self.num_workers)

    # ---- What a subclass defines ---------------------------------------------------------------

    @_noted
    def reset(self, seed: int | None = None) -> Any:
        """Start new episodes everywhere and return the first observations."""
        if self._within is None:
            raise NotImplementedError(f"{type(self).__name__} must define `reset`")
        return self._within.reset(seed)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        """Step every env; return observations, rewards, dones (terminals | truncations), infos."""
        if self._within is None:
            raise NotImplementedError(f"{type(self).__name__} must define `step`")
        return self._within.step(actions)

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
        if self._has_halves:
            self._give(actions)
        else:
            self._batch = self._batch_of_step(actions)
        self._sent = True

    def recv(self) -> Batch:
        """Return the next batch: after `reset` the first observations, after `send` its results."""
        self._begin("recv")
        if self._has_halves or not self._sent:
            self._batch = self._take()
        self._sent, self._received = False, True
        assert self._batch is not None
        return self._batch

    def _give(self, actions: Any) -> None:
        """Start a step; a backend that defines this defines `_take` and `step` with it."""
        raise NotImplementedError

    def _take(self) -> Batch:
        """Return the first batch after a reset or restore, or the end of a step that was begun."""
        return self._first_batch()

    def _batch_of_step(self, actions: Any) -> Batch:
        """Run `step`, whoever defines it, and return its results as a batch."""
        self._acting = self.masks.copy() if self._within is not None else self.masks
        result = self.step(self._as_spoken(actions))
        if len(result) != 4:
            raise EnvError(
                f"`step` of {type(self).__name__} must return 4 parts (observations, rewards, "
                f"dones, infos), but got {len(result)}."
            )
        return self._as_batch(*result)

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
        """Start over after a subclass's `reset`, which returned `observations`."""
        self._next_seed = None
        self._ready, self._sent, self._received = True, False, False
        if self._within is not None:
            self.agent_ids = self._within.agent_ids
        elif isinstance(observations, Mapping):
            self._note_agents(tuple(observations))
        self.observations = self._as_rows("observations", observations)
        if not hasattr(self, "masks"):
            self.masks = np.ones(self.num_agents, dtype=np.bool_)
        self.rewards = np.zeros(self.num_agents, dtype=np.float32)
        self.terminals = np.zeros(self.num_agents, dtype=np.bool_)
        self.truncations = np.zeros(self.num_agents, dtype=np.bool_)
        self.final_observations = self.observations
        if self._within is not None and not self._derives_all():
            inner = self._within  # whose rows are in place: right after a plain `step` too
            self.rewards, self.terminals = inner.rewards, inner.terminals
            self.truncations = inner.truncations
            self.final_observations = inner.final_observations
        self._tracker = EpisodeTracker(self.num_agents)

    def _note_agents(self, ids: tuple[Any, ...]) -> None:
        """Note the agents that a subclass's answers are keyed by."""
        self.agent_ids = self.agent_ids or ids
        if "agents_per_env" not in vars(self):  # neither set nor asked for so far
            self.agents_per_env = len(self.agent_ids)
        if self.agents_per_env != len(self.agent_ids):
            raise UsageError(
                f"`agents_per_env` of {type(self).__name__} must be {len(self.agent_ids)}, as it "
                f"answers for {list(self.agent_ids)}, but is {self.agents_per_env}. "
                f"Try `self.agents_per_env = {len(self.agent_ids)}` in its __init__."
            )

    def _as_spoken(self, actions: Any) -> Any:
        """Return actions as a subclass's `step` takes them: by agent where it answers so."""
        if self.agent_ids is None or self._within is not None or isinstance(actions, Mapping):
            return actions
        return self._by_agent(np.asarray(actions))

    def _by_agent(self, rows: NDArray[Any]) -> Any:
        """Return rows as {agent_id: rows of that agent}, views, where the envs speak so."""
        if self.agent_ids is None:
            return rows
        return {id: rows[slot :: self.agents_per_env] for slot, id in enumerate(self.agent_ids)}

    def _first_batch(self) -> Batch:
        slots = self.num_agents
        rewards, flags = np.zeros(slots, dtype=np.float32), np.zeros(slots, dtype=np.bool_)
        infos = Infos(slots, dict)
        return Batch(slice(0, slots), self.observations, rewards, flags, flags, self.masks, infos)

    def _derives_all(self) -> bool:
        """Return whether truncations and final observations stand in what `step` returns."""
        own = type(self)._as_batch is VectorEnv._as_batch
        return own and (self._within is None or self._within._derives_all())

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        """Make a batch of what `step` returned, and count its episodes."""
        before = self.observations
        self.observations = self._as_rows("observations", observations)
        self.rewards = self._as_rows("rewards", rewards)
        ended = self._as_rows("dones", dones)
        if self._derives_all():
            self._derive_truncations(ended, infos)
        else:
            assert self._within is not None
            self.truncations = ended & self._within.truncations
            self.final_observations = self._final_rows(self._within, before)
        self.terminals = ended & ~self.truncations
        assert self._tracker is not None
        self._tracker.step(self.rewards, ended, self._acting)
        return self._batch_of(infos)

    def _final_rows(self, inner: VectorEnv, before: NDArray[Any]) -> NDArray[Any]:
        """Return the last observations of episodes: the inner ones, unless those returned differ.

        Then they are the last ones returned before the end.
        """
        is_same = np.may_share_memory(self.observations, inner.observations)
        return inner.final_observations if is_same else before

    def _derive_truncations(self, ended: NDArray[np.bool_], infos: Any) -> None:
        """Find in the infos which ends are truncations, and final observations of them."""
        self.truncations = np.zeros_like(ended)
        self.final_observations = self.observations
        if infos and isinstance(infos, Mapping):
            raise self._misfit("infos", "a list with a dict for each slot", "one dict for all")
        for slot, info in enumerate(self._infos_by_slot(infos)):
            if ended[slot] and info.get("TimeLimit.truncated", False):
                self.truncations[slot] = True
                if "final_observation" in info:
                    if self.final_observations is self.observations:
                        self.final_observations = self.observations.copy()
                    self.final_observations[slot] = info["final_observation"]

    def _infos_by_slot(self, infos: Any) -> list[Any]:
        """Return an info for each slot: of its agent, or of its env where that is all there is."""
        given = list(infos or ())
        if self.agent_ids is None or len(given) != self.num_envs:
            return given
        return [info.get(id, info) for info in given for id in self.agent_ids]

    def _batch_of(self, infos: Any) -> Batch:
        rows = (self.observations, self.rewards, self.terminals, self.truncations, self.masks)
        if self._handed is not None:
            rows = tuple(array[self._handed] for array in rows)  # type: ignore[assignment]
        return Batch(self.slots, *rows, infos)

    def _as_rows(self, field: str, value: Any) -> NDArray[Any]:
        """Return what a subclass gave as an array of rows, or raise where it does not fit."""
        layout = self._observation_layout
        shape, dtype = {
            "observations": (layout.shape, layout.dtype),
            "rewards": ((), np.dtype(np.float32)),
            "dones": ((), np.dtype(np.bool_)),
        }[field]
        wanted = (self.num_agents, *shape)
        if isinstance(value, Mapping):
            value = self._rows_of_agents(field, value)
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

    def _rows_of_agents(self, field: str, value: Mapping[Any, Any]) -> Any:
        """Return {agent_id: rows} as rows of all slots: the inner ones where they are its views."""
        inner = self._within.observations if self._within is not None else None
        if self.agent_ids is None or any(id not in value for id in self.agent_ids):
            wanted = "one array" if self.agent_ids is None else f"for {list(self.agent_ids)}"
            raise self._misfit(field, wanted, f"a dict with the keys {list(value)}")
        parts = [np.asarray(value[id]) for id in self.agent_ids]
        if inner is not None and all(np.may_share_memory(part, inner) for part in parts):
            return inner
        if any(len(np.atleast_1d(part)) != self.num_envs for part in parts):
            shapes = ", ".join(str(part.shape) for part in parts)
            raise self._misfit(field, f"{self.num_envs} rows for each agent", f"shapes {shapes}")
        return np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])

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
        stats = self.drain_stats()
        if self._within is None:
            return stats.means()
        inner = self._within.drain_metrics()  # of its envs, and all there is between plain steps
        return {**inner, **stats.means()} if stats.episodes else inner

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
        return None if self._within is None else self._within.render(env)

    def close(self) -> None:
        """Free what the envs hold. Safe to call twice."""
        self._closed = True
        if self._within is not None:
            self._within.close()

    def __repr__(self) -> str:
        parts = [f"num_envs={getattr(self, 'num_envs', None)}"]
        shown = {"agents_per_env": 1, "num_workers": 1, "surplus_envs": 0}
        parts += [
            f"{name}={getattr(self, name)}"
            for name, usual in shown.items()
            if getattr(self, name) != usual
        ]
        parts += [f"{noun}_space={self._known_space(noun)}" for noun in ("observation", "action")]
        name = [repr(self.name)] if self.name else []
        return f"{type(self).__name__}({', '.join(name + parts)})"


class BufferedVectorEnv(VectorEnv):
    """A vector env whose rows live in one set of `Buffers`; the base of the backends."""

    _buffers: Buffers

    def _attach(self, buffers: Buffers, observation_space: Space, action_space: Space) -> None:
        self._buffers = buffers
        self.observation_space, self.action_space = observation_space, action_space
        self._action_layout = action_layout(action_space)
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

    def _as_spoken(self, actions: Any) -> Any:
        return actions

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

    def _rows(self, actions: Any, slots: slice | None = None) -> NDArray[Any]:
        """Return `actions`, in any form of `action_rows`, as rows for `slots`.

        By default for those handed over last. The result may be the very array given.
        """
        wanted = self._action_rows if slots is None else self._buffers.actions[slots]
        if (
            type(actions) is np.ndarray
            and actions.dtype == wanted.dtype
            and actions.shape == wanted.shape
            and actions.flags.carray
            and self._action_layout.is_plain
        ):
            return actions
        masks = self.masks[self.slots if slots is None else slots]
        whose = Slots(masks, self.agents_per_env, self.agent_ids)
        return action_rows(self._action_layout, actions, whose)


class WrappedVectorEnv(VectorEnv):
    """The halves of a step, and the statistics, of a Wrapper around a vector env.

    Observations, rewards and dones are what the wrapper's `reset` and `step` return; what these
    cannot say (truncations, masks) comes from the env within. Final observations are the inner
    env's where the wrapper leaves observations alone, its own `final_observations` where it has
    such, else the last ones it returned before the end.
    """

    def __init__(self, wrapper: Any, inner: VectorEnv) -> None:
        super().__init__()
        self._wrapper = wrapper
        self._stand_around(inner)
        self.observation_space = wrapper.observation_space
        self.action_space = wrapper.action_space

    def note_reset(self, observations: Any) -> Any:
        """Start over after the wrapper's `reset`; return the observations of what it returned."""
        self._note_reset(observations)
        return first_observations(observations)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        result: tuple[Any, Any, Any, Any] = self._wrapper.step(actions)
        return result

    def _final_rows(self, inner: VectorEnv, before: NDArray[Any]) -> NDArray[Any]:
        if "final_observations" in vars(self._wrapper):
            rows: NDArray[Any] = self._wrapper.final_observations
            return rows
        return super()._final_rows(inner, before)


def other_process(call: str, vecenv: VectorEnv) -> UsageError:
    """Return the error for a `call` in a fork of the process that made `vecenv`."""
    name = type(vecenv).__name__
    return UsageError(
        f"`{call}` must be called in the process that made this {name}, but this is a fork of it: "
        f"workers stay behind. Try a {name} of its own."
    )


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"`seed` must be a whole number >= 0, but got {seed!r}.")
    return int(seed) & (2**63 - 1)
