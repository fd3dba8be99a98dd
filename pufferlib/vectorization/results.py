"""What `reset` and `step` of a user's vector env return, as rows of all slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import EnvError
from pufferlib.spaces import ObservationLayout

if TYPE_CHECKING:
    from pufferlib.vectorization.base import VectorEnv


def result_rows(
    env: VectorEnv,
    layout: ObservationLayout,
    field: str,
    value: Any,
    inner: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return `value`, what `env` gave as `field`, as an array of rows; raise where it does not fit.

    `inner` are the observations of the vector env that `env` stands around, if there is one.
    """
    shape, dtype = {
        "observations": (layout.shape, layout.dtype),
        "rewards": ((), np.dtype(np.float32)),
        "dones": ((), np.dtype(np.bool_)),
    }[field]
    wanted = (env.num_agents, *shape)
    if isinstance(value, Mapping):
        value = _rows_of_agents(env, field, value, inner)
    try:
        rows = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise _misfit(env, field, f"one array of shape {wanted}", str(error)) from error
    if rows.shape != wanted:
        raise _misfit(env, field, f"of shape {wanted}", str(rows.shape))
    if rows.dtype == dtype:
        return rows
    cast = rows.astype(dtype) if rows.dtype.kind in "biuf" else None
    if cast is None or (dtype.kind != "f" and not np.array_equal(cast, rows)):
        raise _misfit(env, field, f"of dtype {dtype}", str(rows.dtype))
    return cast


def _rows_of_agents(
    env: VectorEnv, field: str, value: Mapping[Any, Any], inner: NDArray[Any] | None
) -> NDArray[Any]:
    """Return {agent_id: rows} as rows of all slots: `inner` itself where they are views of it."""
    if env.agent_ids is None or any(id not in value for id in env.agent_ids):
        wanted = "one array" if env.agent_ids is None else f"for {list(env.agent_ids)}"
        raise _misfit(env, field, wanted, f"a dict with the keys {list(value)}")
    parts = [np.asarray(value[id]) for id in env.agent_ids]
    if inner is not None and all(np.may_share_memory(part, inner) for part in parts):
        return inner
    if any(len(np.atleast_1d(part)) != env.num_envs for part in parts):
        shapes = ", ".join(str(part.shape) for part in parts)
        raise _misfit(env, field, f"{env.num_envs} rows for each agent", f"shapes {shapes}")
    return np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])


def truncations_in(
    env: VectorEnv, observations: NDArray[Any], ended: NDArray[np.bool_], infos: Any
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Return the truncations that the infos mark, and the final observations of those slots."""
    truncations, final = np.zeros_like(ended), observations
    if infos and isinstance(infos, Mapping):
        raise _misfit(env, "infos", "a list with a dict for each slot", "one dict for all")
    for slot, info in enumerate(_infos_by_slot(env, infos)):
        if ended[slot] and info.get("TimeLimit.truncated", False):
            truncations[slot] = True
            if "final_observation" in info:
                final = observations.copy() if final is observations else final
                final[slot] = info["final_observation"]
    return truncations, final


def _infos_by_slot(env: VectorEnv, infos: Any) -> list[Any]:
    """Return an info for each slot: of its agent, or of its env where agents have none."""
    given = list(infos or ())
    if env.agent_ids is None or len(given) != env.num_envs:
        return given
    return [info.get(id, info) for info in given for id in env.agent_ids]


def _misfit(env: VectorEnv, field: str, wanted: str, given: str) -> EnvError:
    return EnvError(f"`{field}` of {type(env).__name__} must be {wanted}, but got {given}.")
