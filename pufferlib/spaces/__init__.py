"""Spaces as flat memory: the only package that inspects Gymnasium spaces.

A layout says where each leaf of a space lies in an agent's row of the batch, so that any value of
the space goes into one contiguous row and comes back bit-equal.
"""

from pufferlib.spaces.actions import (
    action_batch_shape,
    action_reader,
    action_values,
    batch_reader,
    check_choices,
    flatten_action,
    missing_choice,
    outside_choices,
    rows_from_values,
    unflatten_action,
)
from pufferlib.spaces.building import largest_space, make_discrete, make_multi_discrete, make_space
from pufferlib.spaces.layouts import (
    ActionLayout,
    Leaf,
    MisfitError,
    ObservationLayout,
    action_layout,
    cast,
    observation_layout,
)
from pufferlib.spaces.observations import (
    ObservationChecks,
    batch_writer,
    flatten_observation,
    observation_writer,
    unflatten_observation,
)
from pufferlib.spaces.serialization import space_from_json, space_to_json
from pufferlib.spaces.trees import Array, Path, Space, brief, rebuilt, spell_path

__all__ = [
    "ActionLayout",
    "Array",
    "Leaf",
    "MisfitError",
    "ObservationChecks",
    "ObservationLayout",
    "Path",
    "Space",
    "action_batch_shape",
    "action_layout",
    "action_reader",
    "action_values",
    "batch_reader",
    "batch_writer",
    "brief",
    "cast",
    "check_choices",
    "flatten_action",
    "flatten_observation",
    "largest_space",
    "make_discrete",
    "make_multi_discrete",
    "make_space",
    "missing_choice",
    "observation_layout",
    "observation_writer",
    "outside_choices",
    "rebuilt",
    "rows_from_values",
    "space_from_json",
    "space_to_json",
    "spell_path",
    "unflatten_action",
    "unflatten_observation",
]
