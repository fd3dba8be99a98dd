"""VectorEnv: the interface of many environments that are stepped together, and its order of calls.

Users subclass it too, so it turns whatever their `reset` and `step` return into rows (results.py).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pufferlib import native
from pufferlib.buffers import Buffers
from pufferlib.closing import Closing
from pufferlib.env import AgentId, AgentIds, Wrapper, space_of
from pufferlib.episodes import EpisodeStats, EpisodeTracker, Info, Infos
from pufferlib.errors import EnvError, UsageError, raised_text
from pufferlib.spaces import (
    Array,
    ObservationLayout,
    Space,
    action_layout,
    check_choices,
    observation_layout,
    outside_choices,
)
from pufferlib.vectorization.actions import Slots, action_rows
from pufferlib.vectorization.creators import EnvCreator, Recipe
from pufferlib.vectorization.results import (
    first_observations,
    infos_by_slot,
    result_rows,
    truncations_in,
)

_REWARD, _FLAG = np.dtype(np.float32), np.dtype(np.bool_)


StepResult: TypeAlias = tuple[Any, Any, Any, Any]  # observations, rewards, dones, infos


class Batch(NamedTuple):
    """Slots handed over by one `recv`. Arrays are views, valid until the next `send`."""

    slots: slice | NDArray[np.int64]
    observations: Array
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    infos: Sequence[Info]  # one for each row


def _noted(reset: Callable[..., Any]) -> Callable[..., Any]:
    """Give a `reset` that takes a seed the one set by `seed`, and note what it returns."""
    takes_seed = "seed" in inspect.signature(reset).parameters

    @functools.wraps(reset)
    def noted(self: VectorEnv, *args: Any, **kwargs: Any) -> Any:
        if takes_seed and not args and kwargs.get("seed") is None:
            kwargs["seed"] = self._next_seed
        try:
            observations = reset(self, *args, **kwargs)
        except SystemExit as error:
            raise EnvError(f"{type(self).__name__}, `reset`: {raised_text(error)}") from error
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
    value continues from its last observation, which `final_observations` holds in rows where
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

    name: str = ""  # of the env
    is_from_make: bool = False  # so the options in the ini of its name apply
    backend: str = "custom"  # a key of config.BACKENDS: where the envs run
    num_envs: int = 0  # a subclass sets it
    num_workers: int = 1
    step_seconds: float = 0.0  # of one env, where `make` has measured it
    reduced: str = ""  # one line about a default number of envs that was too many
    batches: int = 1  # parts of the slots; `recv` hands over one of them
    surplus_envs: int = 0  # further envs that step in the background
    can_hold: bool = False  # `hold` works: envs can be stepped without the others
    metric_names: tuple[str, ...] = ()  # of C envs: what their episodes report
    agent_ids: AgentIds = None  # in slot order, where envs use dicts per agent
    agent_cycle: int = 0  # slot n is agent n % agent_cycle of its env; 0: `agents_per_env`
    envs: Sequence[Any] = ()  # where they are in this process
    action_masks: NDArray[np.bool_] | None = None  # [slots, choices]
    observations: Array
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    final_observations: Array

    _owns_rows: bool = False  # `reset` and `step` set the rows themselves, truncations included
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

    def __init__(self, env_creator: EnvCreator | None = None, num_envs: int | None = None) -> None:
        if env_creator is None:
            return  # a subclass has envs of its own
        if num_envs is None:
            raise UsageError("`num_envs` must be given with `env_creator`. Try num_envs=8.")
        serial = self._serial(env_creator, num_envs)
        self._surround(serial)
        self.envs = serial.envs
        self.action_masks = serial.action_masks
        self.observation_space, self.action_space = serial.observation_space, serial.action_space

    def _surround(self, inner: VectorEnv) -> None:
        """Take backend, sizes and rows of the vector env that this one steps."""
        self._within, self.backend = inner, inner.backend
        self.num_envs, self.agents_per_env = inner.num_envs, inner.agents_per_env
        self.masks = inner.masks

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "reset" in vars(cls):  # its author need not know what must follow a reset
            cls.reset = _noted(vars(cls)["reset"])  # type: ignore[method-assign]
        # a mix-in that times or changes `step` must see every step, so `send` calls it then
        halves = _definer(cls, "_give")
        cls._has_halves = halves is not VectorEnv and halves is _definer(cls, "step")

    # ---- Spaces and sizes ----------------------------------------------------------------------

    @functools.cached_property
    def observation_space(self) -> Space:
        """The observation space of one agent; where a subclass sets none, that of its first env."""
        return self._space("observation")

    @functools.cached_property
    def action_space(self) -> Space:
        """The action space of one agent; where a subclass sets none, that of its first env."""
        return self._space("action")

    @functools.cached_property
    def agents_per_env(self) -> int:
        """Agents of one env; where a subclass does not set it, those of its first env."""
        env = self._first_env()
        agents = getattr(env, "possible_agents", None)
        return len(agents) if agents else int(getattr(env, "num_agents", 1) or 1)

    def _first_env(self) -> Any:
        return next(iter(self.envs or ()), None)

    def _space(self, noun: str) -> Space:
        env = self._first_env()
        space: Any = space_of(env, noun)
        if callable(space):  # a method of PettingZoo's envs
            space = space(env.possible_agents[0])
        if space is None:
            raise UsageError(
                f"`{noun}_space` must be set, but {type(self).__name__} has none. "
                f"Try `self.{noun}_space = ...` in its __init__."
            )
        return space  # type: ignore[no-any-return]

    single_observation_space = property(lambda self: self.observation_space, doc="An alias.")
    single_action_space = property(lambda self: self.action_space, doc="An alias.")

    @property
    def num_agents(self) -> int:
        """Slots in all: envs x agents, surplus envs included."""
        if not self.num_envs:
            raise UsageError(
                f"`num_envs` must be set, but {type(self).__name__} has none. "
                "Try `self.num_envs = ...` in its __init__."
            )
        return (self.num_envs + self.surplus_envs) * self.agents_per_env

    @num_agents.setter
    def num_agents(self, count: int) -> None:
        raise UsageError(
            f"`num_agents` of {type(self).__name__} must not be set: it is `num_envs` x "
            "`agents_per_env`. Try `self.agents_per_env = ...`."
        )

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

    def step(self, actions: Any) -> StepResult:
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

    def seed_each(self, seeds: Sequence[int]) -> None:
        """Use one seed for each env in the next `reset`: env i starts as env 0 with `seeds[i]`."""
        raise self._hides_envs("seed_each")

    def _take_seed(self, seed: int | None) -> int | None:
        """Return the seed for this reset: the given one, else the one set by `seed`, else None."""
        held, self._next_seed = self._next_seed, None
        return held if seed is None else _checked_seed(seed)

    def _hides_envs(self, call: str) -> UsageError:
        return UsageError(
            f"`{call}` must be able to reach each env, but {type(self).__name__} does not let it. "
            "Try a vector env of `make` or `emulate` with backend='serial'."
        )

    # ---- Halves of a step: `send` and `recv` ---------------------------------------------------

    def hold(self, envs: NDArray[np.bool_]) -> None:
        """Leave the envs flagged in `envs` [num_envs] as they are in the next step.

        Their actions are ignored, observations and masks stay, rewards and flags are zero, and
        their episodes count no step.
        """
        raise self._hides_envs("hold")

    def send(self, actions: Any) -> None:
        """Hand over actions for the slots of the last batch; `recv` must follow."""
        self._begin("send")
        if self._has_halves:
            self._give(actions)
        else:
            self._acting = self.masks.copy() if self._within is not None else self.masks
            try:
                result = self.step(self._as_step_takes(actions))
            except SystemExit as error:
                raise EnvError(f"{type(self).__name__}, `step`: {raised_text(error)}") from error
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
        slots = self.num_agents
        rewards, flags = np.zeros(slots, dtype=np.float32), np.zeros(slots, dtype=np.bool_)
        infos = Infos(slots, dict)
        return Batch(slice(0, slots), self.observations, rewards, flags, flags, self.masks, infos)

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
        if call == "step":
            self._received = True  # nothing is left to receive from before this step

    def _note_reset(self, observations: Any) -> None:
        """Take the `observations` that a subclass's `reset` returned, and start over."""
        self._next_seed = None
        self._start_over()
        if self._owns_rows:
            return
        if self._within is not None:
            self.agent_ids = self._within.agent_ids
        elif isinstance(observations, Mapping):
            self._note_agents(tuple(observations))
        self.observations = self._observation_rows(observations)
        self.rewards = np.zeros(self.num_agents, dtype=np.float32)
        self.terminals = np.zeros(self.num_agents, dtype=np.bool_)
        self.truncations = np.zeros(self.num_agents, dtype=np.bool_)
        self.final_observations = self.observations
        if self._within is not None and not self._derives_all():
            inner = self._within  # its rows are valid after a plain `step` too
            self.rewards, self.terminals = inner.rewards, inner.terminals
            self.truncations, self.final_observations = inner.truncations, inner.final_observations
        self._tracker = EpisodeTracker(self.num_agents)

    def _start_over(self) -> None:
        """Note that new episodes have begun: `recv` or `step` is next."""
        self._ready, self._sent, self._received = True, False, False

    def _note_agents(self, ids: tuple[AgentId, ...]) -> None:
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
        if self.agent_ids is None or self._owns_rows or self._within is not None:
            return actions
        return actions if isinstance(actions, Mapping) else self._by_agent(np.asarray(actions))

    def _by_agent(self, rows: Array) -> Any:
        """Return rows as {agent_id: rows of that agent}, views, where the envs use agent ids."""
        if self.agent_ids is None:
            return rows
        return {id: rows[slot :: self.agents_per_env] for slot, id in enumerate(self.agent_ids)}

    def _derives_all(self) -> bool:
        """Return whether truncations and final observations are in the results of `step`."""
        return not self._owns_rows and (self._within is None or self._within._derives_all())

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        """Make a batch of what `step` returned, and count its episodes."""
        if self._owns_rows:
            return self._batch_of(infos)
        before = self.observations
        self.observations = self._observation_rows(observations)
        self.rewards = result_rows(self, "rewards", rewards, _REWARD)
        ended = result_rows(self, "dones", dones, _FLAG)
        if self._derives_all():
            infos = infos_by_slot(self, infos)
            found = truncations_in(self.observations, ended, infos)
            self.truncations, self.final_observations = found
        else:
            assert self._within is not None
            self.truncations = ended & self._within.truncations
            self.final_observations = self._final_rows(self._within, before)
        self.terminals = ended & ~self.truncations
        assert self._tracker is not None
        self._tracker.step(self.rewards, ended, self._acting)
        return self._batch_of(infos)

    def _observation_rows(self, observations: Any) -> Array:
        layout = self._observation_layout
        return result_rows(self, "observations", observations, layout.dtype, layout.shape)

    def _final_rows(self, inner: VectorEnv, before: Array) -> Array:
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

    def _state_rows(self, state: ArrayLike, env: int | None, above: int = -1) -> NDArray[np.uint8]:
        """Return `state` as rows for all envs, or as the one for `env`, longer than `above`."""
        rows = np.atleast_2d(np.asarray(state))
        wanted = self.num_envs + self.surplus_envs if env is None else 1
        if rows.dtype != np.uint8 or len(rows) != wanted or rows.shape[1] <= above:
            raise UsageError(
                f"`state` must be {wanted} rows of bytes from `snapshot`, "
                f"but got {rows.dtype} of shape {rows.shape}."
            )
        if env is not None and not self._ready:
            raise UsageError("`reset` must be called before `restore` of one env.")
        self._check_env(env or 0)
        return rows

    def _check_env(self, env: int) -> None:
        total = self.num_envs + self.surplus_envs
        if not 0 <= env < total:
            raise UsageError(f"`env` must be in 0..{total - 1}, but got {env}.")

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        """Return a picture [height, width, 3] of one env, or None where there is none."""
        return None if self._within is None else self._within.render(env)

    def close(self) -> None:
        """Free what the envs hold. Safe to call twice."""
        self._closed = True
        if self._within is not None:
            self._within.close()

    def __repr__(self) -> str:
        parts = [repr(self.name)] if self.name else []
        parts.append(f"num_envs={self.num_envs or None}")
        for name, usual in (("agents_per_env", 1), ("num_workers", 1), ("surplus_envs", 0)):
            if getattr(self, name) != usual:
                parts.append(f"{name}={getattr(self, name)}")
        with contextlib.suppress(UsageError):  # a subclass has not set them yet
            spaces = f"observation_space={self.observation_space}, action_space={self.action_space}"
            parts.append(spaces)
        return f"{type(self).__name__}({', '.join(parts)})"


class BufferedVectorEnv(VectorEnv):
    """A vector env whose rows live in one set of `Buffers`; the base of the backends."""

    _owns_rows = True
    _checks_actions = True  # not those that a trainer draws, see `no_action_check`
    can_hold = True
    _next_seeds: tuple[int, ...] | None = None  # one for each env
    _held: NDArray[np.bool_] | None = None  # envs that the next step leaves alone
    _buffers: Buffers
    _owner: int = 0  # the process that made what steps the envs, which a fork does not have; 0: any

    @classmethod
    def from_recipe(cls, recipe: Recipe, options: Mapping[str, Any]) -> Self:
        """Make the vector env of a recipe; `options` are keywords of the constructor."""
        return cls(recipe.creator(), recipe.num_envs, recipe.num_workers, **options)  # type: ignore[call-arg]

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the keywords of the constructor that no recipe holds."""
        own = ("env_creator", "num_envs", "num_workers", "envs_per_worker", "first_env", "settings")
        return [name for name in inspect.signature(cls).parameters if name not in own]

    def _attach(self, buffers: Buffers, observation_space: Space, action_space: Space) -> None:
        self._buffers = buffers
        self.observation_space, self.action_space = observation_space, action_space
        self._action_layout = layout = action_layout(action_space)
        is_single = layout.num_discrete == 1 and not layout.num_continuous
        self._limit = layout.nvec[0] if is_single else 0  # of all numbers in rows of actions
        self.observations, self.rewards = buffers.observations, buffers.rewards
        self.terminals, self.truncations = buffers.terminals, buffers.truncations
        self.masks, self.action_masks = buffers.masks, buffers.action_masks
        self.final_observations = buffers.final_observations
        self._action_rows = buffers.actions[: self.batch_slots]  # for the slots of one batch

    def rebind(self, buffers: Buffers) -> bool:
        """Use rows of a larger vector from the next reset on; return False where that cannot be."""
        return False

    def _begin(self, call: str) -> None:
        super()._begin(call)
        if self._owner and self._owner != os.getpid():
            name = type(self).__name__
            raise UsageError(
                f"`{call}` must be called in the process that made this {name}, but this is a fork "
                f"of it, which has no workers. Try a new {name} here."
            )

    def seed_each(self, seeds: Sequence[int]) -> None:
        if self.batch_slots != self.num_agents:
            raise self._hides_envs("seed_each")
        if len(seeds) != self.num_envs:
            raise UsageError(
                f"`seeds` must be one for each of {self.num_envs} envs, but got {len(seeds)}."
            )
        self._next_seeds = tuple(map(_checked_seed, seeds))

    def _take_seeds(self, seed: int | None) -> tuple[int, ...] | None:
        """Return the seeds for this reset, one for each env; None where one `seed` is given."""
        held, self._next_seeds = self._next_seeds, None
        return held if seed is None else None

    def hold(self, envs: NDArray[np.bool_]) -> None:
        if self.batch_slots != self.num_agents or not self.can_hold:
            raise self._hides_envs("hold")
        self._begin("send")
        self._held = np.array(envs, dtype=np.bool_).reshape(self.num_envs)

    def _take_held(self) -> NDArray[np.bool_] | None:
        """Return the envs that this step must leave alone, None for none."""
        held, self._held = self._held, None
        return held

    def _fresh_seed(self, seed: int | None, is_python: bool = False) -> int:
        """Return the seed for this reset: a random one where none was given or set by `seed`."""
        given = self._take_seed(seed)
        return native.fresh_seed() >> (32 if is_python else 0) if given is None else given

    def _rows(self, actions: Any, slots: slice | None = None) -> Array:
        """Return `actions`, in any form of `action_rows`, as rows for `slots`.

        By default for those handed over last. The result may be the very array given. A choice that
        the space does not have is a UsageError, before anything changes.
        """
        rows = self._as_rows(actions, slots)
        if not self._are_choices(rows):
            given_for = self.slots if slots is None else slots
            check_choices(self._action_layout, rows, self.masks, given_for)
        return rows

    def _are_choices(self, rows: Array) -> bool:
        """Return whether all indices in contiguous rows are choices, or need no check."""
        if not self._checks_actions:
            return True
        if self._limit:  # the usual case, in one pass
            return native.words_below(rows, self._limit)
        return outside_choices(self._action_layout, rows) is None

    def _as_rows(self, actions: Any, slots: slice | None) -> Array:
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
        given_for = Slots(masks, self.agents_per_env, self.agent_ids)
        return action_rows(self._action_layout, actions, given_for)


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
        self._surround(inner)
        self.observation_space = wrapper.observation_space
        self.action_space = wrapper.action_space

    def note_reset(self, observations: Any) -> Any:
        """Start over after the wrapper's `reset`; return the observations of what it returned."""
        self._note_reset(observations)
        return first_observations(observations)

    def step(self, actions: Any) -> StepResult:
        result: StepResult = self._wrapper.step(actions)
        return result

    def _final_rows(self, inner: VectorEnv, before: Array) -> Array:
        if "final_observations" in vars(self._wrapper):
            rows: Array = self._wrapper.final_observations
            return rows
        return super()._final_rows(inner, before)


@contextlib.contextmanager
def no_action_check(env: Any) -> Iterator[None]:
    """Step `env` with actions that are drawn from its space, and need no check."""
    inside = env.unwrapped if isinstance(env, Wrapper) else env
    while getattr(inside, "_within", None) is not None:  # a user's class around a backend
        inside = inside._within
    before = getattr(inside, "_checks_actions", False)
    inside._checks_actions = False
    try:
        yield
    finally:
        inside._checks_actions = before


def check_vector_env(env: object, name: str = "env") -> None:
    """Raise UsageError, with the way to make one, unless `env` works like a VectorEnv."""
    if all(hasattr(env, name) for name in ("reset", "send", "recv", "num_agents")):
        return
    is_env = callable(getattr(env, "reset", None)) and callable(getattr(env, "step", None))
    way = "`pufferlib.emulate(env, num_envs=8)`" if is_env else "`pufferlib.make(name)`"
    raise UsageError(f"`{name}` must be a VectorEnv, but got {type(env).__name__}. Try {way}.")


def _checked_seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"`seed` must be a whole number >= 0, but got {seed!r}.")
    return int(seed) & (2**63 - 1)
