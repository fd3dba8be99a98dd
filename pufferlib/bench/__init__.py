"""Benchmarks: an env alone, the training loop, emulation, worker processes; and autotune."""

from pufferlib.bench.emulation import EmulationResult, bench_emulation
from pufferlib.bench.rates import Result, bench_sim, bench_train
from pufferlib.bench.vec import VecResult, bench_vec

__all__ = [
    "EmulationResult",
    "Result",
    "VecResult",
    "autotune",
    "bench_emulation",
    "bench_sim",
    "bench_train",
    "bench_vec",
]
