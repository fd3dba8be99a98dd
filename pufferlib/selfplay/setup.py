"""Set up self-play: for a run with `self_play`, and for a policy against the pool of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from pufferlib.config import TrainConfig
from pufferlib.distributed.world import ALONE, World
from pufferlib.env import Wrapper
from pufferlib.errors import CheckpointError, UsageError, one_line
from pufferlib.runs import checkpoint
from pufferlib.selfplay.env import SelfPlay
from pufferlib.selfplay.pool import START_RATING, Normalise
from pufferlib.vectorization import VectorEnv


def as_self_play(
    env: VectorEnv,
    settings: Mapping[str, Any],
    world: World = ALONE,
    before: VectorEnv | None = None,
) -> VectorEnv:
    """Return the learner's side of `env` if `self_play` is set, else `env`.

    `before` is the env that it replaces, whose pool and ratings it keeps.
    """
    config = TrainConfig.from_dict(settings)
    own = self_play_of(env)
    if own is None and config.self_play:
        env = own = SelfPlay(
            env,
            pool_size=config.self_play_pool,
            interval=config.self_play_interval,
            seed=config.seed,
        )
        old = self_play_of(before)
        if old is not None:
            own.take_over(old)
    if own is not None:
        own.world = world
    return env


def self_play_of(env: object) -> SelfPlay | None:
    """Return the SelfPlay that `env` is or wraps, if any."""
    inside = env.unwrapped if isinstance(env, Wrapper) else env
    return inside if isinstance(inside, SelfPlay) else None


def against_past(
    env: VectorEnv,
    policy: nn.Module,
    saved: checkpoint.Checkpoint,
    normalise: Normalise | None = None,
    seed: int = 0,
) -> SelfPlay:
    """Return one side of `env`, against the pool of a checkpoint.

    Ratings do not change. Where the checkpoint has no pool, the opponent is `policy` itself.
    """
    tensors = checkpoint.under(saved.tensors, "self_play/")
    tensors.pop("rng", None)
    try:
        values = {"rating": START_RATING, "pool": [], **saved.values.get("self_play", {})}
        own = SelfPlay(
            env,
            pool_size=max(1, len(values["pool"])),
            interval=2**62,  # no policy is added
            latest_share=0.0,
            rated=False,
        )
        own.load_pool(tensors, {**values, "seed": seed}, policy, normalise)
    except UsageError:  # a ValueError too, but about the env
        raise
    except checkpoint.MALFORMED as error:
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        raise CheckpointError(
            f"the checkpoint has an invalid pool of past policies: {reason}"
        ) from error
    own.note_policy(policy, 0, normalise)
    return own
