"""Evaluate a trained policy: scores over whole episodes, and pictures of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.episodes import STANDINGS, EpisodeStats, EpisodeTracker, info_at, metrics_of
from pufferlib.errors import UsageError
from pufferlib.policies.acting import Actor, on_device
from pufferlib.policies.observations import policy_spaces
from pufferlib.policies.recurrent import RecurrentState, reset_state
from pufferlib.runs.loading import LoadedPolicy, check_spaces, norm_of
from pufferlib.vectorization import check_vector_env

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL
    from pufferlib.vectorization import VectorEnv


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

    The same number of episodes counts for every slot, one more for the first slots where that does
    not divide; counting the first episodes to finish would favour short ones. `episodes` in the
    result is the number that counted, which is smaller only where a slot stays empty. The true mean
    is within `mean_reward` +- `ci95_reward` in about 95 of 100 evaluations.

    `policy` may be any module, the result of `load`, a trainer or its policy. It plays in eval mode
    and sees observations as in training: normalised by the statistics of a run with `norm_obs`, or
    by `normalise` if given. `on_frame` gets a picture of env 0 before each step, `on_progress` the
    number of counted episodes after each.
    """
    check_vector_env(env)
    if episodes < 1:
        raise UsageError(f"`episodes` must be at least 1, but got {episodes}.")
    if env.batch_slots != env.num_agents:
        raise UsageError(
            f"`env` must hand over all {env.num_agents} slots at once, but hands over "
            f"{env.batch_slots}. Try one without mode async and `double_buffer`."
        )
    if isinstance(policy, LoadedPolicy):
        check_spaces(policy_spaces(env), policy.spaces, "of the policy")
    if isinstance(policy, LoadedPolicy) or not isinstance(policy, nn.Module):  # or a trainer
        policy = policy.policy
    parameter = next(policy.parameters(), None)  # a scripted policy may have none
    device = torch.device("cpu") if parameter is None else parameter.device
    actor = Actor(
        policy,
        policy_spaces(env),
        device,
        normalise=normalise or norm_of(policy),
        generator=torch.Generator(device).manual_seed(seed),
    )
    env.seed(seed)
    stats, tracker = EpisodeStats(), EpisodeTracker(env.num_agents)
    present = np.zeros(env.num_agents, dtype=np.bool_)
    returns: list[float] = []
    env.reset()
    batch = env.recv()
    each, more = divmod(episodes, env.num_agents)
    left = np.full(env.num_agents, each)  # episodes to play; present slots get the extra ones
    left[np.argsort(~batch.masks, kind="stable")[:more]] += 1
    state: RecurrentState = None
    fresh = np.ones(env.num_agents, dtype=np.bool_)  # slots whose recurrent state is to be zeroed
    with actor.acting():
        while left[present].any() or not present.any():  # an absent slot plays no episodes
            if on_frame is not None:
                picture = env.render(0)
                if picture is not None:
                    on_frame(picture)
            masks = None if env.action_masks is None else on_device(env.action_masks, device)
            here = batch.masks.copy()
            present |= here
            seen = actor.observe(batch.observations)
            decision = actor.act(seen, state, action_masks=masks, deterministic=deterministic)
            env.send(decision.env_actions.cpu().numpy())
            batch = env.recv()
            ended = batch.terminals | batch.truncations
            # an agent that left at an end returns with a state of zeros
            fresh = ended | (fresh & ~here)
            state = decision.state
            if fresh.any():
                state = reset_state(state, torch.from_numpy(fresh).to(device))
            for slot, info in tracker.step(batch.rewards, ended, here).items():
                if left[slot] > 0:
                    left[slot] -= 1
                    returns.append(info["episode"]["r"])
                    stats.add(info["episode"]["r"], info["episode"]["l"])
                    for name, value in metrics_of(info_at(batch.infos, slot)).items():
                        stats.add_metric(name, value)
            if on_progress is not None:
                on_progress(stats.episodes)
    last = env.drain_metrics()
    standings = {name: last[name] for name in STANDINGS if name in last}
    scores = {**stats.means(), **standings, "std_reward": float(np.std(returns))}
    if len(returns) > 1:  # one episode says nothing about the error of the mean
        scores["ci95_reward"] = 1.96 * float(np.std(returns, ddof=1)) / len(returns) ** 0.5
    return scores
