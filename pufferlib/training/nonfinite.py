"""Find nan and inf in a rollout or an update, and where they came from.

The check is a few sums, whatever the size of the run: a sum is finite only if all its parts are.
The search begins where a sum is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pufferlib.policies.observations import Observations, unflatten_observations
from pufferlib.spaces import ObservationLayout
from pufferlib.training.rollout import Rollout


def rollout_fault(
    rollout: Rollout, layout: ObservationLayout, agents_per_env: int = 1
) -> str | None:
    """Describe the first non-finite number in the steps that carry data; None if there is none."""
    parts = list(_parts(rollout, layout))
    if torch.stack([part.sum(dtype=torch.float32) for _, part in parts]).isfinite().all():
        return None
    for name, part in parts:  # a sum of finite parts may overflow: look at each
        bad = part.isfinite().logical_not().flatten(2).any(2) & rollout.masks
        if bad.any():
            segment, t = bad.nonzero()[0].tolist()
            slot, step = rollout.origin(segment, t)
            found = part[segment, t]
            value = found[found.isfinite().logical_not()].flatten()[0].item()
            return (
                f"`{name}` must be finite, but {value} came from slot {slot} (env "
                f"{slot // agents_per_env}) in step {step} of the rollout"
            )
    return None


def update_fault(names: Sequence[str], table: NDArray[np.float32]) -> str | None:
    """Describe the first non-finite number of [updates, names]; None if there is none."""
    bad = np.argwhere(~np.isfinite(table))
    if not len(bad):
        return None
    update, column = bad[0]
    return f"`{names[column]}` must be finite, but is {table[update, column]} in update {update}"


def _parts(rollout: Rollout, layout: ObservationLayout) -> Iterator[tuple[str, Tensor]]:
    """Yield names and tensors [S, T, ...]: those of the env before those of the policy."""
    yield "rewards", rollout.rewards.unsqueeze(2)
    for leaf in layout.leaves:
        if leaf.dtype.kind == "f":
            part: Observations = unflatten_observations(rollout.observations, layout)
            for key in leaf.path:
                part = part[key]
            yield "observations", part.flatten(2) if part.dim() > 2 else part.unsqueeze(2)
    yield "values", rollout.values.unsqueeze(2)
    yield "logprobs", rollout.logprobs.unsqueeze(2)
