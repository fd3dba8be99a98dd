"""Steps per second of an env alone and of the whole training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from pufferlib.bench.loops import check_seconds
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

        best = _best_rate(advance, seconds)
        engine = "native" if isinstance(vecenv, Threads) else "python"
        return Result(config.name, "sim", *best, vecenv.num_envs, vecenv.num_workers, engine)


def _agents_per_env(config: Config) -> int:
    with make(config.name, 1, 1, **config.env) as vecenv:
        return vecenv.agents_per_env


def bench_train(
    config: Config,
    engines: Sequence[str] = ("auto",),
    *,
    threads: int | None = None,
    seconds: float = 10,
) -> list[Result]:
    """Run whole training iterations and count their steps; return a result for each engine.

    Engines take turns, and the rate of the matrix product is measured between them, so that all
    figures are of the same minute. `seconds` is the time of one engine.
    """
    import torch

    check_seconds(seconds)
    before = torch.get_num_threads()
    try:
        with ExitStack() as stack:
            runs = [_TrainRun(config, engine, threads, stack) for engine in engines]
            gflops = 0.0
            for _ in range(ROUNDS):
                for run in runs:
                    gflops = max(gflops, _sgemm_gflops(run.sgemm_threads))
                    run.advance_for(seconds / ROUNDS)
            return [run.result(gflops) for run in runs]
    finally:
        torch.set_num_threads(before)


class _TrainRun:
    """A training run that is advanced in rounds; `stack` closes it."""

    def __init__(self, config: Config, engine: str, threads: int | None, stack: ExitStack) -> None:
        import torch

        from pufferlib.models import make_policy
        from pufferlib.training.trainer import PuffeRL

        vec = replace(config.vec, num_workers=threads or config.vec.num_workers)
        vecenv = make(config.name, **vec.arguments(), **config.env)
        self._env = stack.enter_context(vecenv)
        settings = {**config.chosen_train(), "dashboard": "off", "anneal_lr": False}
        if threads is not None:
            settings["torch_threads"] = threads
        policy = make_policy(self._env, **config.to_dict()["policy"])
        self._trainer = PuffeRL(self._env, policy, **{**settings, "engine": engine})
        stack.enter_context(self._trainer)
        self._name = config.name
        self._torch_threads = torch.get_num_threads()  # as the trainer set it, for the process
        self.sgemm_threads = threads or usable_cores()
        self._best = _Round(0.0, 0, 0.0)
        self._advance()  # caches, lazy imports, first allocations

    def _advance(self) -> int:
        self._trainer.evaluate()
        self._trainer.train()
        self._trainer.mean_and_log()
        return self._trainer.config.batch_size

    def advance_for(self, seconds: float) -> None:
        """Run one round."""
        import torch

        torch.set_num_threads(self._torch_threads)
        self._best = max(self._best, _one_round(self._advance, seconds))

    def result(self, gflops: float) -> Result:
        """Return the best round, beside the rate of the matrix product."""
        best = self._best
        return Result(
            self._name,
            "train",
            *best,
            self._env.num_envs,
            self._env.num_workers,
            self._trainer.engine.name,
            gflops,
            best.sps * _flops_per_step(self._trainer) * 1e-9 / gflops,
        )


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


class _Round(NamedTuple):
    sps: float
    steps: int
    seconds: float


def _best_rate(advance: Callable[[], int], seconds: float) -> _Round:
    """Repeat `advance` for ROUNDS rounds of equal length; return the best round.

    Other programs can only slow a round down, so the best is the least disturbed.
    """
    check_seconds(seconds)
    advance()  # caches, lazy imports, first allocations
    return max(_one_round(advance, seconds / ROUNDS) for _ in range(ROUNDS))


def _one_round(advance: Callable[[], int], seconds: float) -> _Round:
    steps, taken = 0, 0.0
    start = time.perf_counter()
    while taken < seconds:
        steps += advance()
        taken = time.perf_counter() - start
    return _Round(steps / taken, steps, taken)
