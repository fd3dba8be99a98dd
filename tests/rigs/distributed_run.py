"""A training run for torchrun, and for one process: prints its weights' fingerprint as JSON.

    distributed_run.py OUT KIND...

Every KIND is trained for a few iterations with the same slots in all, however many processes share
them; OUT gets what came of it.
"""

from __future__ import annotations

import sys

import torch

import pufferlib
from pufferlib.distributed.world import join_world
from pufferlib.models import make_policy

SLOTS, STEPS, ITERATIONS = 16, 32, 4
KINDS: dict[str, dict[str, object]] = {
    "plain": {"env": "cartpole"},
    "normalised": {"env": "cartpole", "norm_obs": True, "norm_reward": True, "prio_alpha": 0.8},
    "masked": {"env": "connect4", "target_kl": 1e9},
    "continuous": {"env": "continuous", "vtrace": True, "gradient_accumulation": 2},
    "torch": {"env": "cartpole", "engine": "torch", "norm_obs": True},
    "torch masked": {"env": "connect4", "engine": "torch", "prio_alpha": 0.8},
    "memory": {"env": "cartpole", "recurrent": "lstm"},
    "self-play": {"env": "connect4", "self_play": True, "self_play_interval": 1},
    "self-play memory": {"env": "connect4", "self_play": True, "recurrent": "gru"},
}


def trainer_of(kind: str) -> pufferlib.PuffeRL:
    settings = dict(KINDS[kind])
    name, recurrent = settings.pop("env"), settings.pop("recurrent", "none")
    params = {"opponent": "self"} if "self_play" in settings else {}
    env = pufferlib.make(str(name), SLOTS // join_world("cpu").size, 1, **params)
    torch.manual_seed(join_world("cpu").rank)  # rank 0's weights must count
    policy = make_policy(env, hidden_size=16, recurrent=recurrent)
    return pufferlib.PuffeRL(
        env,
        policy,
        batch_size=SLOTS * STEPS,
        num_steps=STEPS // 4,
        minibatch_size=SLOTS * STEPS // 4,
        n_epochs=2,
        learning_rate=1e-3,
        num_iterations=2 * ITERATIONS,
        seed=3,
        dashboard="off",
        device="cpu",
        **settings,
    )


def main(out: str, *kinds: str) -> None:
    torch.set_num_threads(1)
    results = {}
    for kind in kinds:
        trainer = trainer_of(kind)
        for _ in range(ITERATIONS):
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
        trainer.save_checkpoint(f"{out}.{kind}.safetensors")
        results[kind] = {
            "weights": [part.detach().clone() for part in trainer.policy.parameters()],
            "log": log,
        }
        trainer.env.close()
    if join_world("cpu").is_first:
        torch.save(results, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
