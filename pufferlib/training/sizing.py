"""What a step of a run costs, so that an unset `batch_size` is not hopeless (config/batch.py).

Only envs that run in Python are asked for their time, and only policies that see a lot are timed:
the sizes of all other runs must not depend on the machine.
"""

from __future__ import annotations

import contextlib
import copy
import time
from typing import TYPE_CHECKING

import torch
from torch import nn

from pufferlib.config import StepCost
from pufferlib.policies.acting import policy_step
from pufferlib.policies.observations import PolicySpaces, torch_dtype
from pufferlib.system import available_memory, usable_cores

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

_MOST_BYTES = 2**28  # of the observations of a rollout, without timing the policy
_MOST_ROWS = 64  # that the policy is timed with


def step_cost(
    env: VectorEnv, policy: nn.Module, spaces: PolicySpaces, device: torch.device, batch_size: int
) -> StepCost:
    """Return what a step costs in a run that collects `batch_size` steps at a time."""
    seconds = env.step_seconds / env.agents_per_env / min(env.num_workers, usable_cores())
    row_bytes = spaces.observation.row_bytes
    act = learn = 0.0
    if device.type == "cpu" and batch_size * row_bytes > _MOST_BYTES:
        with contextlib.suppress(Exception):  # the run will raise it again
            act, learn = _policy_seconds(policy, spaces, env.num_agents)
    free = available_memory() if device.type == "cpu" else float("inf")
    return StepCost(seconds, act, learn, row_bytes, free)


def _policy_seconds(policy: nn.Module, spaces: PolicySpaces, slots: int) -> tuple[float, float]:
    """Return the seconds of a row in a forward pass, and in a forward and a backward pass."""
    policy = copy.deepcopy(policy)
    count = max(1, min(slots, _MOST_ROWS) // spaces.num_agents) * spaces.num_agents
    rows = torch.zeros(
        count, *spaces.observation.shape, dtype=torch_dtype(spaces.observation.dtype)
    )

    def forward() -> float:
        start = time.perf_counter()
        output = policy_step(policy, rows, None, spaces)
        if torch.is_grad_enabled():
            output.value.sum().backward()  # type: ignore[no-untyped-call]
        return time.perf_counter() - start

    with torch.random.fork_rng(devices=[]):
        with torch.no_grad():
            act = min(forward() for _ in range(2))  # the first one is slow
        return act / count, min(forward() for _ in range(2)) / count
