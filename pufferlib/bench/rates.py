"""Steps per second of an env alone and of the whole training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pufferlib.errors import UsageError
from pufferlib.system import usable_cores
from pufferlib.vectorization import make
from pufferlib.vectorization.measuring import random_actions
from pufferlib.vectorization.threads import Threads

if TYPE_CHECKING:
    from pufferlib.config import Config
    from pufferlib.training.trainer import PuffeRL

ROUNDS = 5
SIM_NUM_SLOTS = 8192  # agents in all: enough to keep threads busy, few enough for the cache


class Result(NamedTuple):
    """The result of `puffer bench`; rate, steps and seconds are those of the best round."""

    env: str
    mode: str
    sps: float
    steps: int
    seconds: float
    num_envs: int
    threads: int
    engine: str
    sgemm_gflops: float | None = None  # of torch, [8192, 64] x [64, 64] on as many threads
    efficiency: float | None = None  # of training: its arithmetic per second over that rate


def bench_sim(
    config: Config, *, num_envs: int | None = None, threads: int | None = None, seconds: float = 3
) -> Result:
    """Step an env with random actions that are drawn beforehand; count steps of all agents."""
    workers = threads or config.vec.num_workers
    envs = num_envs or max(1, SIM_NUM_SLOTS // _agents_per_env(config))
    with make(config.name, envs, workers, None, config.vec.backend, **config.env) as vecenv:
        vecenv.reset(seed=0)
        drawn = random_actions(vecenv, count=16)

        def advance() -> int:
            for actions in drawn:
                vecenv.step(actions)
            return len(drawn) * vecenv.num_agents

        sps, steps, taken = _best_rate(advance, seconds)
        engine = "native" if isinstance(vecenv, Threads) else "python"
        return Result(
            config.name, "sim", sps, steps, taken, vecenv.num_envs, vecenv.num_workers, engine
        )


def _agents_per_env(config: Config) -> int:
    with make(config.name, 1, 1, **config.env) as vecenv:
        return vecenv.agents_per_env


def bench_train(config: Config, *, threads: int | None = None, seconds: float = 10) -> Result:
    """Run whole training iterations and count their steps."""
    import torch

    from pufferlib.models import make_policy
    from pufferlib.training.trainer import PuffeRL

    before = torch.get_num_threads()
    try:
        vec = config.vec
        with make(
            config.name,
            vec.num_envs,
            threads or vec.num_workers,
            vec.envs_per_worker,
            vec.backend,
            vec=vec.options(),
            **config.env,
        ) as vecenv:
            settings = {**config.chosen_train(), "dashboard": "off", "anneal_lr": False}
            if threads is not None:
                settings["torch_threads"] = threads
            trainer = PuffeRL(vecenv, make_policy(vecenv, **config.to_dict()["policy"]), **settings)

            def advance() -> int:
                trainer.evaluate()
                trainer.train()
                trainer.mean_and_log()
                return trainer.config.batch_size

            sps, steps, taken = _best_rate(advance, seconds)
            trainer.close()
            threads = trainer.config.torch_threads or usable_cores()
            gflops = _sgemm_gflops(threads)
            work = _flops_per_step(trainer)
            return Result(
                config.name,
                "train",
                sps,
                steps,
                taken,
                vecenv.num_envs,
                vecenv.num_workers,
                trainer.engine.name,
                gflops,
                sps * work * 1e-9 / gflops,
            )
    finally:
        torch.set_num_threads(before)


def _flops_per_step(trainer: PuffeRL) -> float:
    """Return the arithmetic of one step of training: forward 2, backward 4 for each weight."""
    matrices = [p.numel() for p in trainer.policy.parameters() if p.dim() == 2]
    passes = trainer.config.replay_ratio or trainer.config.n_epochs
    return (2 + 6 * passes) * sum(matrices)


def _sgemm_gflops(threads: int) -> float:
    """Return the best rate of torch's product of [8192, 64] and [64, 64]: what the CPU can do."""
    import torch

    torch.set_num_threads(threads)
    a, b, out = torch.ones(8192, 64), torch.ones(64, 64), torch.empty(8192, 64)
    best = math.inf
    for _ in range(300):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return 2 * 8192 * 64 * 64 / best * 1e-9


def _best_rate(advance: Callable[[], int], seconds: float) -> tuple[float, int, float]:
    """Repeat `advance` for ROUNDS rounds of equal length; return the best round.

    Other programs can only slow a round down, so the best is the least disturbed.
    """
    if not 0 < seconds < math.inf:
        raise UsageError(f"`seconds` must be above 0, but got {seconds}.")
    advance()  # caches, lazy imports, first allocations
    best = (0.0, 0, 0.0)
    for _ in range(ROUNDS):
        steps, taken = 0, 0.0
        start = time.perf_counter()
        while taken < seconds / ROUNDS:
            steps += advance()
            taken = time.perf_counter() - start
        best = max(best, (steps / taken, steps, taken))
    return best
