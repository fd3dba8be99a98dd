"""PufferEnv: one environment, in any of three forms. Wrapper: changes an env from outside."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pufferlib import spaces
from pufferlib.buffers import Buffers, allocate
from pufferlib.closing import Closing
from pufferlib.episodes import EpisodeStats
from pufferlib.errors import UsageError
from pufferlib.spaces import Array, Space

AgentId: TypeAlias = Hashable  # a key of the dicts of an env that uses dicts per agent
AgentIds: TypeAlias = tuple[AgentId, ...] | None  # in slot order; None without such dicts
_ROWS = tuple(field.name for field in dataclasses.fields(Buffers))


class _Unset:
    """An attribute that an env has not set: reading gives its alias or an error with a reason."""

    def __init__(self, name: str, alias: str | None = None) -> None:
        self._name, self._alias = name, alias

    def __get__(self, env: Any, owner: type) -> Any:
        if env is None:
            return self
        if self._alias is None:
            raise AttributeError(
                f"`{self._name}` exists in the in-place form only: {type(env).__name__} must set "
                "`single_observation_space`, `single_action_space` and `num_agents` before "
                "`super().__init__(buf)`"
            )
        if defines(env, self._alias):
            return getattr(env, self._alias)
        raise AttributeError(f"`{self._name}` of {type(env).__name__} must be set, but is not")


class PufferEnv:
    """One environment, written in one of three forms.

    *Plain*: `super().__init__(buf)`, then `self.observation_space` and `self.action_space`. `reset`
    returns an observation, or (observation, info); `step(action)` returns (observation, reward,
    done, info) or Gymnasium's five.

    *Multi-agent*: `num_agents`, `single_observation_space` and `single_action_space`; actions,
    observations and the rest are dicts by agent id, and `dones["__all__"]` ends the episode of all.

    *In place*: the single spaces and `num_agents` are set first, then `super().__init__(buf)`.
    `step` reads `self.actions` and writes `self.observations`, `rewards`, `terminals`,
    `truncations` and `masks`, one row for each agent. Where an episode ends it writes the last
    observation to `final_observations`, sets the flag, and starts the next episode within the same
    step. In a vector env, rewards and flags are zero when `step` begins. Rows live in `buf` or,
    without one, in the env's own memory; `bind` moves them.

    Outside of a vector env, `reset` and `step` return exactly what the class returns.
    """

    num_agents: int = 1
    has_action_masks: bool = False
    is_native: bool = False  # implemented in C, and not checked by emulation
    render_mode: str | None = None
    agent_ids: AgentIds = None  # in slot order, where the env uses dicts per agent

    observation_space: Space
    action_space: Space
    single_observation_space: Space
    single_action_space: Space
    observations: Array
    actions: Array
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    action_masks: NDArray[np.bool_] | None
    final_observations: Array

    make_space = staticmethod(spaces.make_space)
    make_discrete = staticmethod(spaces.make_discrete)
    make_multi_discrete = staticmethod(spaces.make_multi_discrete)

    def __init__(self, buf: Buffers | None = None) -> None:
        if buf is not None and not isinstance(buf, Buffers):
            raise UsageError(
                f"`buf` must be rows of a vector env, or None, but {type(self).__name__} got "
                f"{type(buf).__name__}. To wrap an env, try `class {type(self).__name__}(Wrapper)`."
            )
        if defines(self, "single_observation_space") and defines(self, "single_action_space"):
            spaces = self.single_observation_space, self.single_action_space
            self.bind(buf or allocate(self.num_agents, *spaces, self.has_action_masks))

    def bind(self, buffers: Buffers) -> None:
        """Read and write these rows from now on. The next call must be `reset`."""
        if buffers.num_slots != self.num_agents:
            raise UsageError(
                f"`buf` must have one row for each of {self.num_agents} agents, "
                f"but got {buffers.num_slots}."
            )
        for name in _ROWS:
            setattr(self, name, getattr(buffers, name))

    def reset(self, seed: int | None = None) -> Any:
        """Start an episode and return its first observation, or write it in place."""
        raise NotImplementedError(f"{type(self).__name__} must define `reset`")

    def step(self, action: Any) -> Any:
        """Take one step; in place, return observations, rewards, terminals, truncations, infos."""
        raise NotImplementedError(f"{type(self).__name__} must define `step`")

    def drain(self) -> EpisodeStats:
        """Return statistics that the env itself has counted since the last call."""
        return EpisodeStats()

    def render(self) -> Any:
        """Return a picture [height, width, 3], or None."""
        return None

    def close(self) -> None:
        """Free the env's resources."""


class Wrapper(Closing):
    """Wraps an env or a VectorEnv and forwards everything to it.

    A subclass overrides what it changes, usually `reset` and `step`, and calls `super()` for the
    rest; it may set its own spaces. A wrapped VectorEnv can be trained on: PuffeRL calls the
    wrapper's `reset` and `step`.
    """

    def __init__(self, env: Any) -> None:
        for name in ("reset", "step"):
            if not callable(getattr(env, name, None)):
                raise UsageError(
                    f"`env` must be an environment, but {type(env).__name__} has no `{name}`."
                )
        self.env = env

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "reset" in vars(cls):
            cls.reset = _noted(vars(cls)["reset"])  # type: ignore[method-assign]

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Reset the wrapped env."""
        observations = self.env.reset(*args, **kwargs)
        return self._note_reset(observations) if type(self).reset is Wrapper.reset else observations

    def step(self, action: Any) -> Any:
        """Step the wrapped env."""
        return self.env.step(action)

    def close(self) -> None:
        """Close the wrapped env; some envs of old gym have no `close`."""
        if hasattr(self.env, "close"):
            self.env.close()

    @property
    def unwrapped(self) -> Any:
        """The env inside all wrappers of this class."""
        return self.env.unwrapped if isinstance(self.env, Wrapper) else self.env

    def _note_reset(self, observations: Any) -> Any:
        """Make the first `recv` of a wrapped vector env return what `reset` returned."""
        wrapped_by = self._vector_wrapper()
        if wrapped_by is None:
            return observations
        if "_vecenv" not in self.__dict__:
            self._vecenv = wrapped_by(self)
        return self._vecenv.note_reset(observations)

    def _vector_wrapper(self) -> Callable[[Wrapper], Any] | None:
        """Return the method that only vector envs have, also behind other wrappers."""
        return getattr(self.env, "wrapped_by", None)

    def __getattr__(self, name: str) -> Any:
        if name in ("env", "_vecenv"):  # not yet set: a subclass forgot super().__init__(env)
            raise AttributeError(f"{type(self).__name__} must call `super().__init__(env)` first")
        if name in _DERIVED and "_vecenv" in self.__dict__:
            return getattr(self._vecenv, name)
        other = _ALIASES.get(name)  # a wrapper that has set one of two names has set both
        if other is not None and (other in self.__dict__ or hasattr(type(self), other)):
            return getattr(self, other)
        if name in ("batches", "batch_slots"):  # the wrapper's `step` is one of all slots
            wrapped_by = self._vector_wrapper()
            if wrapped_by is not None:
                return getattr(wrapped_by(self), name)
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env!r})"


_ALIASES = {f"single_{noun}_space": f"{noun}_space" for noun in ("observation", "action")}
_ALIASES |= {whole: single for single, whole in _ALIASES.items()}
for _name in (*_ALIASES, *_ROWS):  # a __getattr__ would slow down every attribute of every env
    setattr(PufferEnv, _name, _Unset(_name, _ALIASES.get(_name)))

# what a vector env derives from `step`: of the wrapper, where there is one
_DERIVED = frozenset(
    {"send", "recv", "drain_metrics", "snapshot", "restore", *_ROWS} - {"actions", "action_masks"}
)


def _noted(reset: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(reset)
    def noted(self: Wrapper, *args: Any, **kwargs: Any) -> Any:
        observations = reset(self, *args, **kwargs)
        is_last = type(self).reset is noted  # else a subclass called it, and may still change them
        return self._note_reset(observations) if is_last else observations

    return noted


def space_of(env: Any, noun: str) -> Space | None:
    """Return the "observation" or "action" space of one agent, as any library names it."""
    space: Space | None = getattr(env, f"single_{noun}_space", None)
    return getattr(env, f"{noun}_space", None) if space is None else space  # an empty one is false


def defines(env: object, name: str) -> bool:
    """Return whether `env` or its class sets `name` itself, not through an alias."""
    set_by_class = inspect.getattr_static(type(env), name, None)
    return name in vars(env) or not (set_by_class is None or isinstance(set_by_class, _Unset))
