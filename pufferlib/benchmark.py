"""How fast: steps per second of an env alone, or of the whole training loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError
from pufferlib.registry import make
from pufferlib.spaces import action_layout
from pufferlib.vectorization.threads import usable_cores

if TYPE_CHECKING:
    from pufferlib.config import Config
    from pufferlib.vectorization import VectorEnv

ROUNDS = 5
SIM_NUM_ENVS = 8192


class Result(NamedTuple):
    """What `puffer bench` reports; rate, steps and seconds are those of the best round."""

    env: str
    mode: str
    sps: float
    steps: int
    seconds: float
    num_envs: int
    threads: int
    engine: str


def bench_sim(
    config: Config, *, num_envs: int | None = None, threads: int | None = None, seconds: float = 3
) -> Result:
    """Step an env with random actions, drawn beforehand; count the steps of all agents."""
    envs = num_envs or SIM_NUM_ENVS  # what trains best is not what shows the env's own speed
    with make(config.name, envs, threads, **config.env) as vecenv:
        vecenv.reset(seed=0)
        rows = _random_actions(vecenv, count=16)

        def advance() -> int:
            for actions in rows:
                vecenv.step(actions)
            return len(rows) * vecenv.num_agents

        sps, steps, taken = _best_rate(advance, seconds)
        return Result(
            config.name, "sim", sps, steps, taken, envs, vecenv.num_workers, engine="native"
        )


def bench_train(config: Config, *, threads: int | None = None, seconds: float = 10) -> Result:
    """Run whole training iterations: collect, advantages, updates."""
    import torch

    from pufferlib.models import make_policy
    from pufferlib.trainer import PuffeRL

    before = torch.get_num_threads()
    torch.set_num_threads(threads or usable_cores())
    try:
        vec = config.vec
        with make(
            config.name,
            vec.num_envs,
            threads or vec.num_workers,
            vec.envs_per_worker,
            vec.backend,
            **config.env,
        ) as vecenv:
            settings = {**config.to_dict()["train"], "dashboard": "off", "anneal_lr": False}
            trainer = PuffeRL(vecenv, make_policy(vecenv, **config.to_dict()["policy"]), **settings)

            def advance() -> int:
                trainer.evaluate()
                trainer.train()
                trainer.mean_and_log()
                return trainer.config.batch_size

            sps, steps, taken = _best_rate(advance, seconds)
            trainer.close()
            return Result(
                config.name,
                "train",
                sps,
                steps,
                taken,
                vecenv.num_envs,
                torch.get_num_threads(),
                trainer.engine,
            )
    finally:
        torch.set_num_threads(before)


def _best_rate(advance: Callable[[], int], seconds: float) -> tuple[float, int, float]:
    """Repeat `advance` for ROUNDS rounds of equal length; return the best round.

    Other programs only ever slow a round down, so the best is the least disturbed.
    """
    if seconds <= 0:
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


def _random_actions(vecenv: VectorEnv, count: int) -> list[NDArray[Any]]:
    """Draw `count` rows of actions for every slot."""
    layout = action_layout(vecenv.action_space)
    rng = np.random.default_rng(0)
    slots = vecenv.num_agents
    out = []
    for _ in range(count):
        indices = [rng.integers(0, n, slots, dtype=np.int32) for n in layout.nvec]
        low, high = np.maximum(layout.low, -1e3), np.minimum(layout.high, 1e3)
        reals = rng.uniform(low, high, (slots, layout.num_continuous)).astype(np.float32)
        words = [np.stack(indices, 1)] if indices else []
        if layout.num_continuous:
            words.append(reals.view(np.int32) if indices else reals)
        out.append(np.concatenate(words, 1).astype(layout.dtype).reshape(slots, *layout.shape))
    return out
