"""Whether a run fits into memory: what it needs, what is available, which option to lower.

Each figure is a lower bound, so nothing that could run is refused. It is computed before anything
of that size is allocated: the system would end the process later, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from pufferlib.spaces import action_layout, observation_layout
from pufferlib.vectorization.machine import available_memory, check_memory

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

_NUMBERS = 4 * 4 + 4  # bytes of a step: log-probability, value, reward, final value; four flags
_SIZES = (16, 32, 48)  # of small policies, which tell how large ones grow
_ANY_DEVICE = 2.0**40  # bytes; what is not known to be in our memory may have this much


def check_batch(env: VectorEnv, batch_size: int, device: str = "auto") -> None:
    """Raise UsageError unless a rollout of `batch_size` steps of this process can be stored."""
    observation, action = observation_layout(env.observation_space), action_layout(env.action_space)
    per_step = _NUMBERS + sum(
        int(np.prod(layout.shape, dtype=np.int64)) * layout.dtype.itemsize
        for layout in (observation, action)
    )
    if env.action_masks is not None:
        per_step += sum(action.nvec)
    available = available_memory() if device == "cpu" else _ANY_DEVICE
    check_memory(batch_size * per_step, "the steps of a batch", "batch_size", available)


def check_policy(count_bytes: Callable[[int], int], hidden_size: int, copies: int) -> None:
    """Raise UsageError unless `copies` of the parameters of a policy can be held.

    `count_bytes` returns the bytes of the parameters for a hidden size. It is asked for small ones:
    a layer is a matrix whose sides grow with the hidden size, so the count is a quadratic in it.
    """
    first, second, third = map(count_bytes, _SIZES)
    unit, beyond = _SIZES[0], hidden_size - _SIZES[0]
    slope, bend = second - first, third - 2 * second + first
    size = first + slope * beyond // unit + bend * beyond * (beyond - unit) // (2 * unit * unit)
    check_memory(copies * size, "the policy, its gradients and its optimizer", "hidden_size")
