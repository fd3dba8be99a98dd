"""How fast: an env alone, the whole training loop, emulation, and envs in worker processes."""

from pufferlib.benchmark.emulation import EmulationResult, bench_emulation
from pufferlib.benchmark.rates import Result, bench_sim, bench_train
from pufferlib.benchmark.vec import VecResult, bench_vec

__all__ = [
    "EmulationResult",
    "Result",
    "VecResult",
    "bench_emulation",
    "bench_sim",
    "bench_train",
    "bench_vec",
]
