"""Play a trained policy: scores over whole episodes, and pictures of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pufferlib.errors import UsageError
from pufferlib.pytorch import mode, policy_spaces, policy_step, reset_state, sample

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv


@torch.no_grad()
def evaluate_policy(
    env: VectorEnv,
    policy: nn.Module,
    episodes: int,
    *,
    deterministic: bool = False,
    seed: int = 0,
    on_frame: Callable[[NDArray[np.uint8]], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Play until at least `episodes` episodes have finished; return their means.

    Every slot plays the same number of episodes or more, and only its first ones count, so short
    episodes are not favoured. `on_frame` gets a picture of env 0 before each step.
    """
    if episodes < 1:
        raise UsageError(f"`episodes` must be at least 1, but got {episodes}.")
    quota = -(-episodes // env.num_agents)
    left = np.full(env.num_agents, quota)
    spaces = policy_spaces(env)
    device = next(policy.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    returns, lengths = [], []
    running, ticks = np.zeros(env.num_agents), np.zeros(env.num_agents, dtype=np.int64)
    env.seed(seed)
    env.reset()
    batch = env.recv()
    env.drain_metrics()
    state: Any = None
    while left.any():
        if on_frame is not None:
            picture = env.render(0)
            if picture is not None:
                on_frame(picture)
        observations = torch.from_numpy(batch.observations).to(device)
        masks = env.action_masks
        legal = None if masks is None else torch.from_numpy(masks).to(device)
        present = batch.masks.copy()
        output = policy_step(policy, observations, state, spaces)
        if deterministic:
            actions = mode(output, spaces.action, legal)
        else:
            actions, _ = sample(output, spaces.action, legal, generator)
        env.send(actions.cpu().numpy())
        batch = env.recv()
        running += batch.rewards
        ticks += present
        ended = batch.terminals | batch.truncations
        state = reset_state(output.state, torch.from_numpy(ended).to(device))
        for slot in np.flatnonzero(ended):
            if left[slot]:
                left[slot] -= 1
                returns.append(running[slot])
                lengths.append(ticks[slot])
            running[slot], ticks[slot] = 0, 0
        if on_progress is not None:
            on_progress(len(returns))
    metrics = env.drain_metrics()
    return {
        **metrics,
        "episodes": float(len(returns)),
        "mean_reward": float(np.mean(returns)),
        "std_reward": float(np.std(returns)),
        "min_reward": float(np.min(returns)),
        "max_reward": float(np.max(returns)),
        "episode_length": float(np.mean(lengths)),
    }
