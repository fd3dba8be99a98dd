"""The gain of double buffering: steps per second of Threads and a policy, with it and without.

    python benchmarks/double_buffer.py                          breakout, 4096 envs
    python benchmarks/double_buffer.py --env pong --num-envs 8192 --workers 1

The policy is a stand-in that takes as long for all slots as a step of the envs: it computes in the
calling thread, as on a CPU, or waits, as for a GPU. Both vectors run alternately, and the best
round counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from pufferlib.system import usable_cores
from pufferlib.vectorization import Threads


def compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Run:
    """A running vector, with actions drawn beforehand."""

    def __init__(self, name: str, num_envs: int, workers: int, double_buffer: bool) -> None:
        self.vecenv = Threads(name, num_envs, workers, double_buffer)
        self.vecenv.reset(seed=0)
        choices = self.vecenv.action_space.n
        shape = (64, self.vecenv.num_agents)
        self.actions = np.random.default_rng(0).integers(0, choices, shape, dtype=np.int32)
        self.batches = [self.vecenv.recv() for _ in range(self.vecenv.batches)]

    def rate(self, steps: int, policy: Callable[[float], None], seconds: float) -> float:
        """Return steps per second of all slots, with a policy that takes `seconds` for them."""
        count = self.vecenv.batches
        start = time.perf_counter()
        for t in range(steps):
            for b in range(count):
                if t:
                    self.batches[b] = self.vecenv.recv()
                if seconds:
                    policy(seconds / count)
                self.vecenv.send(self.actions[t % 64, self.batches[b].slots])
        self.batches = [self.vecenv.recv() for _ in range(count)]
        return steps * self.vecenv.num_agents / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--num-envs", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--round-seconds", type=float, default=0.2)
    options = parser.parse_args()
    plain, double = (
        Run(options.env, options.num_envs, options.workers, flag) for flag in (False, True)
    )
    bare = max(plain.rate(100, compute, 0) for _ in range(options.rounds))
    seconds = plain.vecenv.num_agents / bare
    steps = max(16, round(options.round_seconds / (2 * seconds)))
    print(f"{options.env}, {options.num_envs} envs on {options.workers} threads: ", end="")
    print(f"{bare:,.0f} steps/s without a policy, {seconds * 1e6:.0f} us a step")
    for what, policy in (("computes", compute), ("waits", time.sleep)):
        one, two = 0.0, 0.0
        for _ in range(options.rounds):
            one = max(one, plain.rate(steps, policy, seconds))
            two = max(two, double.rate(steps, policy, seconds))
        print(f"  policy {what:8} {one:14,.0f} -> {two:14,.0f} steps/s, {two / one:.2f} x")


if __name__ == "__main__":
    main()
