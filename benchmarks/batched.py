"""Batched simulators through this package: steps per second beside the simulator's own batches.

    python benchmarks/batched.py                                Pong and CoinRun, 64 envs
    python benchmarks/batched.py atari-pong --num-envs 16 --rounds 20 --json

Atari is compared with Gymnasium's AsyncVectorEnv over AtariPreprocessing too, with a process for
each core. All loops of a game take random actions and run alternately, in rounds of `--seconds`,
every other round in reverse order. A rate is that of the median round, a ratio the median over
rounds: what slows the machine down for a while slows both loops of a round. Bars: 0.95 times the
simulator, 2.5 times Gymnasium. EnvPool's Procgen needs Qt 5, AtariPreprocessing OpenCV (`pip
install opencv-python-headless`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import pufferlib
from pufferlib.emulation import env_seed
from pufferlib.system import usable_cores

SIMULATOR_BAR, GYMNASIUM_BAR = 0.95, 2.5
Step = Callable[[Any], Any]


class Loop:
    """Steps one vector of envs with random actions drawn beforehand."""

    def __init__(self, step: Step, num_envs: int, choices: int) -> None:
        self.step, self.num_envs = step, num_envs
        shape = (64, num_envs)
        self.actions = np.random.default_rng(0).integers(choices, size=shape, dtype=np.int32)
        self.rates: list[float] = []

    def run(self, calls: int) -> None:
        start = time.perf_counter()
        for call in range(calls):
            self.step(self.actions[call % 64])
        self.rates.append(calls * self.num_envs / (time.perf_counter() - start))

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


def ours(name: str, num_envs: int, threads: int) -> Loop:
    vecenv = pufferlib.make(name, num_envs=num_envs, num_workers=threads)
    vecenv.reset(seed=0)
    return Loop(vecenv.step, num_envs, vecenv.action_space.n)


def seeds(num_envs: int) -> list[int]:
    """Return the seeds that our envs get: some levels and games take longer than others."""
    return [env_seed(0, env) & 0x7FFFFFFF for env in range(num_envs)]


def ale_py(num_envs: int, threads: int) -> Loop:
    from ale_py.vector_env import AtariVectorEnv

    vector = AtariVectorEnv("pong", num_envs, num_threads=threads)
    vector.reset(seed=np.array(seeds(num_envs)))
    return Loop(vector.step, num_envs, vector.single_action_space.n)


def envpool(num_envs: int, threads: int) -> Loop:
    import envpool

    task, options = "CoinrunEasy-v0", {"num_threads": threads, "channel_first": False}
    pool = envpool.make_gymnasium(task, num_envs=num_envs, seed=seeds(num_envs), **options)
    pool.reset()
    return Loop(pool.step, num_envs, pool.action_space.n)


def gymnasium_async(processes: int) -> Loop:
    vector = gymnasium.vector.AsyncVectorEnv([_preprocessed_pong] * processes)
    vector.reset(seed=0)
    return Loop(vector.step, processes, vector.single_action_space.n)


def _preprocessed_pong() -> gymnasium.Env[Any, Any]:
    import ale_py

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    env = gymnasium.wrappers.AtariPreprocessing(env)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


def run_all(loops: dict[str, Loop], rounds: int, seconds: float) -> None:
    """Run all loops alternately."""
    for loop in loops.values():
        loop.run(2)
        loop.run(8)
    calls = {
        name: max(2, round(seconds * loop.rates[-1] / loop.num_envs))
        for name, loop in loops.items()
    }
    for loop in loops.values():
        loop.rates.clear()
    for number in range(rounds):
        for name in list(loops)[:: 1 if number % 2 else -1]:
            loops[name].run(calls[name])


def ratio(ours: Loop, other: Loop) -> float:
    """Return the median over rounds of the ratio of their rates."""
    return statistics.median(a / b for a, b in zip(ours.rates, other.rates, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("games", nargs="*", metavar="GAME", help="atari-pong, procgen-coinrun")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round, about")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = options.num_envs, options.threads
    bars = {"simulator": SIMULATOR_BAR, "gymnasium": GYMNASIUM_BAR}
    rates, ratios = {}, {}
    for name in options.games or ("atari-pong", "procgen-coinrun"):
        loops = {"ours": ours(name, *sizes)}
        if name == "atari-pong":
            loops["simulator"] = ale_py(*sizes)
            loops["gymnasium"] = gymnasium_async(options.threads)
        else:
            loops["simulator"] = envpool(*sizes)
        run_all(loops, options.rounds, options.seconds)
        rates[name] = {other: loop.rate for other, loop in loops.items()}
        for other, bar in bars.items():
            if other in loops:
                ratios[f"{name} / {other}"] = ratio(loops["ours"], loops[other]), bar
    load = os.getloadavg()[0]
    if options.json:
        print(json.dumps({"rates": rates, "ratios": ratios, "load": load}))
        return
    for name, by_loop in rates.items():
        print(name, ", ".join(f"{other} {rate:,.0f}/s" for other, rate in by_loop.items()))
    for name, (found, bar) in ratios.items():
        print(f"{name}: {found:.3f}, wanted {bar}, {'met' if found >= bar else 'missed'}")
    print(f"{options.num_envs} envs, {options.threads} threads, load {load:.1f}")


if __name__ == "__main__":
    main()
