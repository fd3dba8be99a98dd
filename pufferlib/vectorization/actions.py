"""Actions in every form that `step` takes, converted to rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.env import AgentId, AgentIds
from pufferlib.errors import UsageError, unknown_name
from pufferlib.spaces import (
    ActionLayout,
    Array,
    action_batch_shape,
    flatten_action,
    rows_from_values,
)


class Slots(NamedTuple):
    """The slots that actions are for: those of whole envs, one env after another."""

    masks: NDArray[np.bool_]  # [slots]; the agent is there to act
    agents_per_env: int = 1
    agent_ids: AgentIds = None

    @property
    def num_envs(self) -> int:
        """Envs that these slots belong to."""
        return len(self.masks) // self.agents_per_env


def action_rows(layout: ActionLayout, actions: Any, slots: Slots) -> Array:
    """Return `actions` as rows `[slots, *layout.shape]`; a UsageError says what does not fit.

    They may be an array of numbers of the space `[slots, *shape]`, `[envs, agents, *shape]` or
    `[*shape]` (one for all); a list of values of the space, a value for all, or a sample of
    `batch_space(space, slots)`; {agent_id: any of these}; a list of {agent_id: value}, one for each
    env. An array holds values too, not indices: those of a Discrete begin at its start. An array of
    objects is a list of values.
    """
    if isinstance(actions, np.ndarray) and actions.dtype == object:
        actions = actions.tolist()
    if _has_agents(layout, actions, slots):
        return _rows_by_agent(layout, actions, slots)
    if layout.structured and isinstance(actions, Mapping | tuple):
        batch = action_batch_shape(layout, actions)
        if batch is not None:
            return _rows_of_tree(layout, actions, batch, slots)
    if isinstance(actions, list | tuple) and len(actions):
        if _has_agents(layout, actions[0], slots):
            return _rows_by_env(layout, actions, slots)
        if (
            isinstance(actions[0], list | tuple)
            and slots.agents_per_env > 1
            and _is_value(layout, next(iter(actions[0]), None))
        ):
            actions = [value for env in actions for value in env]
        if _is_value(layout, actions[0]):
            return _rows_of_values(layout, actions, slots)
    return _rows_of_array(layout, actions, slots)


def _is_value(layout: ActionLayout, value: Any) -> bool:
    """Return whether `value` is one action of a structured space, as `sample` gives it."""
    is_tree = layout.structured and isinstance(value, Mapping | tuple)
    return is_tree and action_batch_shape(layout, value) is not None


def _has_agents(layout: ActionLayout, actions: Any, slots: Slots) -> bool:
    """Return whether `actions` is a dict by agent id, and not a value of the space."""
    if slots.agent_ids is None or not isinstance(actions, Mapping):
        return False
    return not _is_value(layout, actions)


def _rows_by_agent(layout: ActionLayout, actions: Mapping[AgentId, Any], slots: Slots) -> Array:
    rows = np.zeros((len(slots.masks), *layout.shape), layout.dtype)
    for agent, id in enumerate(_known_agents(actions, slots)):
        if id not in actions:
            raise UsageError(f"`actions` must have rows for every agent, but lacks {id!r}.")
        own = slice(agent, None, slots.agents_per_env)  # in all envs
        rows[own] = action_rows(layout, actions[id], Slots(slots.masks[own]))
    return rows


def _rows_by_env(layout: ActionLayout, actions: Any, slots: Slots) -> Array:
    """Return rows from one {agent_id: value} for each env; agents that have left may be missing."""
    _check_count(actions, slots.num_envs, "a dict for each env")
    rows = np.zeros((len(slots.masks), *layout.shape), layout.dtype)
    one = Slots(np.ones(1, np.bool_))
    for env, own in enumerate(actions):
        if not isinstance(own, Mapping):
            raise UsageError(
                f"`actions[{env}]` must be a dict by agent id, but got {type(own).__name__}."
            )
        for agent, id in enumerate(_known_agents(own, slots)):
            slot = env * slots.agents_per_env + agent
            if id in own:
                rows[slot : slot + 1] = action_rows(layout, own[id], one)
            elif slots.masks[slot]:
                raise UsageError(f"`actions[{env}]` must have every agent, but lacks {id!r}.")
    return rows


def _known_agents(actions: Mapping[AgentId, Any], slots: Slots) -> tuple[AgentId, ...]:
    """Return the ids of all agents; raise for an id of `actions` that is not one of them."""
    assert slots.agent_ids is not None
    for id in actions:
        if id not in slots.agent_ids:
            raise unknown_name("agent", str(id), [str(known) for known in slots.agent_ids])
    return slots.agent_ids


def _rows_of_tree(
    layout: ActionLayout, actions: Any, batch: tuple[int, ...], slots: Slots
) -> Array:
    """Return rows from a value of a structured space, or from one whose leaves are batches."""
    count = len(slots.masks)
    if batch not in ((), (count,), (slots.num_envs, slots.agents_per_env)):
        raise UsageError(
            f"`actions` must have leaves with {count} rows (one for each slot) or none (one action "
            f"for all), but got {batch[0]} rows."
        )
    rows = np.zeros((*batch, *layout.shape), layout.dtype)
    flatten_action(layout, actions, rows)
    if batch:
        return rows.reshape(count, *layout.shape)
    return np.repeat(rows[np.newaxis], count, 0)


def _rows_of_values(layout: ActionLayout, actions: Any, slots: Slots) -> Array:
    _check_count(actions, len(slots.masks), "an action for each slot")
    rows = np.zeros((len(slots.masks), *layout.shape), layout.dtype)
    for row, value in zip(rows, actions, strict=True):
        flatten_action(layout, value, row)
    return rows


def _check_count(actions: Any, wanted: int, noun: str) -> None:
    if len(actions) != wanted:
        raise UsageError(f"`actions` must be a list of {wanted} ({noun}), but got {len(actions)}.")


def _rows_of_array(layout: ActionLayout, actions: Any, slots: Slots) -> Array:
    try:
        values = np.asarray(actions)
    except Exception as error:  # rows of different lengths; a tensor with a gradient, or on GPU
        reason = " ".join(str(error).split()).rstrip(".")
        raise UsageError(f"`actions` must be one array, but {reason}.") from None
    is_whole = bool(layout.nvec) and not layout.num_continuous
    if values.dtype.kind not in ("biu" if is_whole else "biuf"):
        given = type(actions).__name__ if values.dtype == object else values.dtype
        wanted_type = "numbers" if layout.nvec and layout.num_continuous else layout.dtype
        raise UsageError(
            f"`actions` must be of dtype {wanted_type} for {layout.space}, but got {given}."
        )
    one, count = layout.shape, len(slots.masks)
    shape, size = (count, *one), count * math.prod(one)
    if values.shape == layout.space.shape or (values.shape == () and math.prod(one) == 1):
        values = values.reshape(one)  # of a MultiBinary((2, 2)), or a number for a Box of one
    if values.shape == one:
        values = np.broadcast_to(values, shape)
    elif (
        values.size == size
        and (
            values.shape[:1] == (count,)  # [slots, 1] for a Discrete
            or values.shape[:2] == (slots.num_envs, slots.agents_per_env)
        )
    ):
        values = values.reshape(shape)
    if values.shape != shape:
        raise UsageError(
            f"`actions` must have shape {shape} (a row for each slot) or {one} "
            f"(one for all), but got {values.shape}."
        )
    return np.require(rows_from_values(layout, values), requirements=("C", "A"))
