"""VectorEnv: the interface of many environments that are stepped together, and its order of calls.

Users subclass it too, so it turns whatever their `reset` and `step` return into rows (results.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.closing import Closing
from pufferlib.episodes import EpisodeStats, EpisodeTracker, Infos
from pufferlib.errors import EnvError, UsageError
from pufferlib.spaces import ObservationLayout, Space, observation_layout
from pufferlib.vectorization.actions import AgentIds
from pufferlib.vectorization.creators import EnvCreator
from pufferlib.vectorization.reset_observations import first_observations
from pufferlib.vectorization.results import result_rows, truncations_in


class Batch(NamedTuple):
    """Slots handed over by one `recv`. Arrays are views, valid until the next `send`."""

    slots: slice | NDArray[np.int64]
    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    infos: Sequence[dict[str, Any]]  # one for each row


def _noted(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Give a `reset` that takes a seed the one set by `seed`, and note what it returns."""
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
    """Return the class that defines `name` for `cls`."""
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

    name: str = ""  # of the env, as `make` knows it
    backend: str = "custom"  # "threads", "serial", "multiprocessing", "ray"; where the envs run
    num_envs: int = 0  # a subclass sets it
    num_workers: int = 1
    batches: int = 1  # parts of the slots; `recv` hands over one of them
    surplus_envs: int = 0  # further envs that step in the background
    agent_ids: AgentIds = None  # in slot order, where envs use dicts per agent
    agent_cycle: int = 0  # slot n is agent n % agent_cycle of its env; 0: `agents_per_env`
    envs: Sequence[Any] = ()  # where they are in this process
    action_masks: NDArray[np.bool_] | None = None  # [slots, choices]
    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    final_observations: NDArray[Any]

    _has_halves: bool = False  # `send` and `recv` are `_give` and `_take`, without `step`
    _serial: ClassVar[type[Any]]  # Serial, which is a subclass: serial.py sets it
    _within: VectorEnv | None = None  # the vector env that this one steps
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

    def __init__(self, env_creator: EnvCreator | None = None, num_envs: int | None = None) -> None:
        if env_creator is None:
            return  # a subclass has envs of its own
        if num_envs is None:
            raise UsageError("`num_envs` must be given with `env_creator`. Try num_envs=8.")
        serial = self._serial(env_creator, num_envs)
        self._stand_around(serial)
        self.envs = serial.envs
        self.action_masks = serial.action_masks
        self.observation_space, self.action_space = serial.observation_space, serial.action_space

    def _stand_around(self, inner: VectorEnv) -> None:
        """Take backend, sizes and rows of the vector env that this one steps."""
        self._within, self.backend = inner, inner.backend
        self.num_envs, self.agents_per_env = inner.num_envs, inner.agents_per_env
        self.masks = inner.masks

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "reset" in vars(cls):  # its author need not know what must follow a reset
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
        return next(iter(self.envs or ()), None)

    def _known_space(self, noun: str) -> Space | None:
        space: Any = {"observation": self._observation_space, "action": self._action_space}[noun]
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
        if not self.num_envs:
            raise UsageError(
                f"`num_envs` must be known, but {type(self).__name__} has none. "
                "Try `self.num_envs = ...` in its __init__."
            )
        return (self.num_envs + self.surplus_envs) * self.agents_per_env

    @functools.cached_property
    def masks(self) -> NDArray[np.bool_]:
        """[slots] False where the agent of a slot is absent: no data and no loss."""
        return np.ones(self.num_agents, dtype=np.bool_)

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

    def place(self, first_env: int) -> bool:
        """Use the seeds of envs `first_env` and on of a larger vector; False where it cannot."""
        return False

    def seed(self, seed: int) -> None:
        """Use `seed` for the next `reset`."""
        self._next_seed = _checked_seed(seed)

    def _take_seed(self, seed: int | None) -> int | None:
        """Return the seed for this reset: the given one, else the one set by `seed`, else None."""
        held, self._next_seed = self._next_seed, None
        return held if seed is None else _checked_seed(seed)

    # ---- Halves of a step: `send` and `recv` ---------------------------------------------------

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
        """Run `step`, also one of a mix-in, and return its results as a batch."""
        self._acting = self.masks.copy() if self._within is not None else self.masks
        result = self.step(self._as_step_takes(actions))
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
        """Take the `observations` that a subclass's `reset` returned, and start over."""
        self._next_seed = None
        self._ready, self._sent, self._received = True, False, False
        if self._within is not None:
            self.agent_ids = self._within.agent_ids
        elif isinstance(observations, Mapping):
            self._note_agents(tuple(observations))
        self.observations = self._as_rows("observations", observations)
        self.rewards = np.zeros(self.num_agents, dtype=np.float32)
        self.terminals = np.zeros(self.num_agents, dtype=np.bool_)
        self.truncations = np.zeros(self.num_agents, dtype=np.bool_)
        self.final_observations = self.observations
        if self._within is not None and not self._derives_all():
            inner = self._within  # its rows are valid right after a plain `step` too
            self.rewards, self.terminals = inner.rewards, inner.terminals
            self.truncations = inner.truncations
            self.final_observations = inner.final_observations
        self._tracker = EpisodeTracker(self.num_agents)

    def _note_agents(self, ids: tuple[Any, ...]) -> None:
        """Note the agent ids that a subclass's results have as keys."""
        self.agent_ids = self.agent_ids or ids
        if "agents_per_env" not in vars(self):  # neither set nor computed so far
            self.agents_per_env = len(self.agent_ids)
        if self.agents_per_env != len(self.agent_ids):
            raise UsageError(
                f"`agents_per_env` of {type(self).__name__} must be {len(self.agent_ids)}, because "
                f"it returns rows for {list(self.agent_ids)}, but is {self.agents_per_env}. "
                f"Try `self.agents_per_env = {len(self.agent_ids)}` in its __init__."
            )

    def _as_step_takes(self, actions: Any) -> Any:
        """Return actions as a subclass's `step` takes them: by agent where its results are."""
        if self.agent_ids is None or self._within is not None or isinstance(actions, Mapping):
            return actions
        return self._by_agent(np.asarray(actions))

    def _by_agent(self, rows: NDArray[Any]) -> Any:
        """Return rows as {agent_id: rows of that agent}, views, where the envs use agent ids."""
        if self.agent_ids is None:
            return rows
        return {id: rows[slot :: self.agents_per_env] for slot, id in enumerate(self.agent_ids)}

    def _first_batch(self) -> Batch:
        slots = self.num_agents
        rewards, flags = np.zeros(slots, dtype=np.float32), np.zeros(slots, dtype=np.bool_)
        infos = Infos(slots, dict)
        return Batch(slice(0, slots), self.observations, rewards, flags, flags, self.masks, infos)

    def _derives_all(self) -> bool:
        """Return whether truncations and final observations are in the results of `step`."""
        own = type(self)._as_batch is VectorEnv._as_batch
        return own and (self._within is None or self._within._derives_all())

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        """Make a batch of what `step` returned, and count its episodes."""
        before = self.observations
        self.observations = self._as_rows("observations", observations)
        self.rewards = self._as_rows("rewards", rewards)
        ended = self._as_rows("dones", dones)
        if self._derives_all():
            found = truncations_in(self, self.observations, ended, infos)
            self.truncations, self.final_observations = found
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

    def _batch_of(self, infos: Any) -> Batch:
        rows = (self.observations, self.rewards, self.terminals, self.truncations, self.masks)
        if self._handed is not None:
            rows = tuple(array[self._handed] for array in rows)  # type: ignore[assignment]
        return Batch(self.slots, *rows, infos)

    def _as_rows(self, field: str, value: Any) -> NDArray[Any]:
        inner = None if self._within is None else self._within.observations
        return result_rows(self, self._observation_layout, field, value, inner)

    @functools.cached_property
    def _observation_layout(self) -> ObservationLayout:
        return observation_layout(self.observation_space)

    def wrapped_by(self, wrapper: Any) -> WrappedVectorEnv:
        """Return the vector env that steps this one through `wrapper`, a `Wrapper` around it."""
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
        inner = self._within.drain_metrics()  # plain steps are counted there alone
        return {**inner, **stats.means()} if stats.episodes else inner

    def drain_stats(self) -> EpisodeStats:
        """Return the sums behind `drain_metrics`, which can be added over several vectors."""
        return self._tracker.drain() if self._tracker else EpisodeStats()

    def snapshot(self) -> NDArray[np.uint8] | None:
        """Return the snapshot of every env as a row of bytes, or None where the envs have none."""
        return None

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        """Put all envs back into the rows that `snapshot` returned, or only `env` into one row.

        Observations and masks come back too; rewards and flags are cleared. `recv` or `step` next.
        """
        raise UsageError(f"{type(self).__name__} cannot restore a snapshot: its envs have none.")

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        """Return a picture [height, width, 3] of one env, or None where there is none."""
        return None if self._within is None else self._within.render(env)

    def close(self) -> None:
        """Free what the envs hold. Safe to call twice."""
        self._closed = True
        if self._within is not None:
            self._within.close()

    def __repr__(self) -> str:
        parts = [f"num_envs={self.num_envs or None}"]
        sizes = {
            "agents_per_env": (self.agents_per_env, 1),
            "num_workers": (self.num_workers, 1),
            "surplus_envs": (self.surplus_envs, 0),
        }
        parts += [f"{name}={value}" for name, (value, usual) in sizes.items() if value != usual]
        parts += [f"{noun}_space={self._known_space(noun)}" for noun in ("observation", "action")]
        name = [repr(self.name)] if self.name else []
        return f"{type(self).__name__}({', '.join(name + parts)})"


class WrappedVectorEnv(VectorEnv):
    """`send`, `recv` and the statistics of a Wrapper around a vector env.

    Observations, rewards and dones are what the wrapper's `reset` and `step` return; truncations
    and masks come from the inner env. Final observations are the inner env's where the wrapper does
    not change observations, else the wrapper's own `final_observations` where it has them, else the
    last ones it returned before the end.
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


def _checked_seed(seed: Any) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"`seed` must be a whole number >= 0, but got {seed!r}.")
    return int(seed) & (2**63 - 1)
