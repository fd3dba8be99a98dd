"""Play a trained policy: scores over whole episodes, and pictures of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.episodes import STANDINGS, EpisodeStats, info_at, metrics_of
from pufferlib.errors import UsageError
from pufferlib.policies.acting import Actor, on_device
from pufferlib.policies.calling import in_eval_mode
from pufferlib.policies.observations import policy_spaces
from pufferlib.policies.recurrent import reset_state
from pufferlib.runs.loading import LoadedPolicy, check_spaces, norm_of

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL
    from pufferlib.vectorization import VectorEnv


@torch.no_grad()
def evaluate_policy(
    env: VectorEnv,
    policy: nn.Module | PuffeRL,
    episodes: int,
    *,
    deterministic: bool = False,
    seed: int = 0,
    normalise: Callable[[Tensor], Tensor] | None = None,
    on_frame: Callable[[NDArray[np.uint8]], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Play `episodes` episodes; return the means of them and of the env's own metrics.

    Every slot plays the same number of episodes, the first slots one more where that does not
    divide, and what a slot plays beyond that does not count: to take the first to finish would
    favour short ones. `episodes` in the result is the number that did count, which is less only
    where a slot stays empty.

    `policy` may be any module, what `load` returned, a trainer or its policy. It is put into eval
    mode meanwhile, and sees observations as it did in training: through the statistics of a run
    with `norm_obs`, or through `normalise` if that is given. `on_frame` gets a picture of env 0
    before each step, `on_progress` the number of episodes that count after each.
    """
    if episodes < 1:
        raise UsageError(f"`episodes` must be at least 1, but got {episodes}.")
    if isinstance(policy, LoadedPolicy):
        check_spaces(policy_spaces(env), policy.spaces, "of the policy")
    if isinstance(policy, LoadedPolicy) or not isinstance(policy, nn.Module):  # or a trainer
        policy = policy.policy
    normalise = normalise or norm_of(policy)
    with in_eval_mode(policy):
        return _play(env, policy, episodes, deterministic, seed, normalise, on_frame, on_progress)


def _play(
    env: VectorEnv,
    policy: nn.Module,
    episodes: int,
    deterministic: bool,
    seed: int,
    normalise: Callable[[Tensor], Tensor] | None,
    on_frame: Callable[[NDArray[np.uint8]], None] | None,
    on_progress: Callable[[int], None] | None,
) -> dict[str, float]:
    device = next(policy.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    actor = Actor(policy, policy_spaces(env), device, normalise=normalise, generator=generator)
    stats, present = EpisodeStats(), np.zeros(env.num_agents, dtype=np.bool_)
    running, ticks = np.zeros(env.num_agents), np.zeros(env.num_agents, dtype=np.int64)
    returns: list[float] = []
    env.seed(seed)
    env.reset()
    batch = env.recv()
    each, more = divmod(episodes, env.num_agents)
    left = np.full(env.num_agents, each)  # episodes that a slot has to play; those present first
    left[np.argsort(~batch.masks, kind="stable")[:more]] += 1
    state: Any = None
    fresh = np.ones(env.num_agents, dtype=np.bool_)  # whose memory is to be empty
    while left[present].any() or not present.any():  # a slot that is always absent plays nothing
        if on_frame is not None:
            picture = env.render(0)
            if picture is not None:
                on_frame(picture)
        masks = None if env.action_masks is None else on_device(env.action_masks, device)
        here = batch.masks.copy()
        present |= here
        ticks += here
        decision = actor.act(
            actor.observe(batch.observations),
            state,
            action_masks=masks,
            deterministic=deterministic,
        )
        env.send(decision.env_actions.cpu().numpy())
        batch = env.recv()
        running += batch.rewards
        ended = batch.terminals | batch.truncations
        fresh = ended | (fresh & ~here)  # who left at an end must come back without a memory
        state = decision.state
        if fresh.any():
            state = reset_state(state, torch.from_numpy(fresh).to(device))
        if ended.any():
            counted = np.flatnonzero(ended & (left > 0)).tolist()
            for slot in counted:
                stats.add(running[slot], ticks[slot])
                for name, value in metrics_of(info_at(batch.infos, slot)).items():
                    stats.add_metric(name, value)
            returns.extend(running[counted])
            left[counted] -= 1
            running[ended], ticks[ended] = 0, 0
        if on_progress is not None:
            on_progress(stats.episodes)
    last = env.drain_metrics()
    standings = {name: last[name] for name in STANDINGS if name in last}
    return {**stats.means(), **standings, "std_reward": float(np.std(returns))}
