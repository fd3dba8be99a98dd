"""Double-buffered rollouts: step one half of the envs while the policy acts on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pufferlib.policies.acting import Actor
from pufferlib.training.rollout import Carry, Lane, Rollout, finish

if TYPE_CHECKING:
    from pufferlib.training.profiling import Profiler
    from pufferlib.vectorization import VectorEnv


@torch.no_grad()
def collect_double_buffered(
    env: VectorEnv, actor: Actor, rollout: Rollout, carry: Carry, profiler: Profiler
) -> Carry:
    """Fill `rollout` as `rollout.collect` does, with the same numbers.

    The env gives its batches by halves in turn. No actions are under way before and after.
    """
    rollout.all_present = True
    lanes = [
        Lane(env, actor, rollout, carry, profiler, number) for number in range(len(carry.batches))
    ]
    is_first = True
    for stretch in range(rollout.num_stretches):
        for t in range(rollout.horizon):
            for lane in lanes:
                if not is_first:
                    lane.receive()
                lane.act(stretch, t)
            is_first = False
            actor.end_step()
    for lane in lanes:
        lane.receive()
    return finish(rollout, lanes)
