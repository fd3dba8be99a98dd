"""What `reset` and `step` of vector envs return: rows of all slots, and first observations.

`observations, info = env.reset()`, as in Gymnasium, would fail with "too many values to unpack", or
assign a row to each name where there are two slots or two agents. An iterator cannot distinguish
that from a loop over rows, but the caller's current bytecode instruction can; it is checked when
the result of `reset` is iterated. Where an interpreter does not show its instructions, nothing is
refused.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pufferlib.env import AgentId
from pufferlib.errors import EnvError, UsageError
from pufferlib.spaces import Array, MisfitError, cast

if TYPE_CHECKING:
    from pufferlib.vectorization.base import VectorEnv

Scalar = TypeVar("Scalar", bound=np.generic)
_UNPACK = dis.opmap.get("UNPACK_SEQUENCE", -1)


def result_rows(
    env: VectorEnv, field: str, value: Any, dtype: np.dtype[Scalar], shape: tuple[int, ...] = ()
) -> NDArray[Scalar]:
    """Return `value`, what `env` gave as `field`, as rows of `shape`; raise if it does not fit."""
    if isinstance(value, Mapping):
        value = _rows_of_agents(env, field, value)
    try:
        return cast(value, (env.num_agents, *shape), dtype, "biuf")
    except MisfitError as error:
        raise EnvError(f"`{field}` of {type(env).__name__} {error}") from None


def _rows_of_agents(env: VectorEnv, field: str, value: Mapping[AgentId, Any]) -> Array:
    """Return {agent_id: rows} as rows of all slots.

    Where they are views of the observations of the env that `env` steps, the result is those.
    """
    if env.agent_ids is None or any(id not in value for id in env.agent_ids):
        wanted = "one array" if env.agent_ids is None else f"for {list(env.agent_ids)}"
        raise _misfit(env, field, wanted, f"a dict with the keys {list(value)}")
    parts = [np.asarray(value[id]) for id in env.agent_ids]
    inner = None if env._within is None else env._within.observations
    if inner is not None and all(np.may_share_memory(part, inner) for part in parts):
        return inner
    if any(len(np.atleast_1d(part)) != env.num_envs for part in parts):
        shapes = ", ".join(str(part.shape) for part in parts)
        raise _misfit(env, field, f"{env.num_envs} rows for each agent", f"shapes {shapes}")
    return np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])


def truncations_in(
    observations: Array, ended: NDArray[np.bool_], infos: list[Any]
) -> tuple[NDArray[np.bool_], Array]:
    """Return the truncations that the infos mark, and the final observations of those slots."""
    truncations, final = np.zeros_like(ended), observations
    for slot, info in enumerate(infos):
        if ended[slot] and info.get("TimeLimit.truncated", False):
            truncations[slot] = True
            if "final_observation" in info:
                final = observations.copy() if final is observations else final
                final[slot] = info["final_observation"]
    return truncations, final


def infos_by_slot(env: VectorEnv, infos: Any) -> list[Any]:
    """Return the infos that `env` gave as a list with one for each slot, or an empty list.

    They may come by slot, by env ({agent_id: info} or one info for all its agents), or as
    {agent_id: infos by env}.
    """
    ids = env.agent_ids
    if isinstance(infos, Mapping) and ids is not None and set(infos) <= set(ids):
        by_agent = [infos.get(id) or [{}] * env.num_envs for id in ids]
        if all(not isinstance(own, Mapping) and len(own) == env.num_envs for own in by_agent):
            return [own[n] for n in range(env.num_envs) for own in by_agent]
    if infos and isinstance(infos, Mapping):
        raise _misfit(env, "infos", "a list with a dict for each slot", "one dict for all")
    given = list(infos or ())
    if ids is None or len(given) != env.num_envs:
        return given
    return [info.get(id, info) for info in given for id in ids]


def _misfit(env: VectorEnv, field: str, wanted: str, given: str) -> EnvError:
    return EnvError(f"`{field}` of {type(env).__name__} must be {wanted}, but got {given}.")


def first_observations(observations: Any) -> Any:
    """Return the same observations, rows or rows by agent, in a form that refuses the mistake."""
    if isinstance(observations, np.ndarray):
        rows = observations.view(FirstRows)
        rows.is_whole = True
        return rows
    if type(observations) is dict:
        return FirstRowsByAgent(observations)
    return observations


class FirstRows(np.ndarray[Any, Any]):
    """The array that `reset` returned; parts of it and results with it may be unpacked."""

    is_whole = False

    def __iter__(self) -> Iterator[Any]:
        if self.is_whole:
            _refuse_pair(sys._getframe(1))
        return super().__iter__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __reduce__(self) -> Any:  # a copy or a file of it is a plain array
        return np.asarray(self).__reduce__()


class FirstRowsByAgent(dict[AgentId, Any]):
    """The dict {agent_id: rows} that `reset` returned."""

    def __iter__(self) -> Iterator[Any]:
        _refuse_pair(sys._getframe(1))
        return super().__iter__()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _refuse_pair(frame: FrameType) -> None:
    """Raise if the caller unpacks into two names; more or fewer fail by themselves."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if code[at] == _UNPACK and code[at + 1] == 2:
        raise UsageError(
            "`env.reset()` must be assigned to one name: a VectorEnv returns the observations "
            "alone, but got two names. Try `observations = env.reset()`."
        )
