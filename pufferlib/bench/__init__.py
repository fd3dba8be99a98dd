"""Benchmarks: an env alone, the training loop, emulation, worker processes; and autotune."""

from pufferlib.bench.emulation import bench_emulation
from pufferlib.bench.rates import bench_sim, bench_train
from pufferlib.bench.vec import bench_vec

__all__ = ["autotune", "bench_emulation", "bench_sim", "bench_train", "bench_vec"]
