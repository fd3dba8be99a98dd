"""Python envs in worker processes: how near to ideal cores, beside Gymnasium's AsyncVectorEnv.

All loops of one cost run alternately, in short rounds, and the best round of each counts: other
programs can only slow a round down. The ideal is `workers` cores that each run a plain loop over
bare envs, measured in the same rounds.

A second part measures the overhead of one step of the workers, beside a yardstick: the same
hand-over between bare processes in C that only wake each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import numpy as np
import psutil

from pufferlib import native
from pufferlib.bench.loops import (
    ROUND_SECONDS,
    BusyEnv,
    UnevenEnv,
    best_of,
    calls_per_round,
    check_seconds,
    gymnasium_loop,
    median_loop,
    plain_loop,
    quiet_multiprocessing,
    vector_loop,
)
from pufferlib.vectorization import Serial

COSTS_US = (0, 10, 100, 1000)
SERIAL_ENVS = 64
ENVS_PER_WORKER = (32, 256)
CHEAP_US = 100  # up to this cost, more envs per worker are tried too
PEER_PROCESSES = (2, 8)  # of AsyncVectorEnv, which has a process for each env
UNEVEN_ENVS, UNEVEN_BATCH = 16, 4
IDLE_SECONDS = 1.0
TURN_ENVS = (2, 16, 64, 256)
TURN_COSTS_US = (0, 10, 100)

_LONG_ROUND_SECONDS = 0.3  # for random step times, so that luck does not decide
_MIN_ROUNDS = 2
_TURN_LOOPS = 3
_TURN_CALLS = 16  # at least, in a round: its figure is a median


class CostResult(NamedTuple):
    """Steps per second for envs of one cost: the best round of the best layout."""

    cost_us: int
    ideal_sps: float  # of one perfect core per worker
    serial_sps: float
    multiprocessing_sps: float
    envs_per_worker: int  # of the best layout
    gymnasium_sps: float | None  # None if it cannot run here
    gymnasium_processes: int | None
    serial_share: float  # of the ideal
    multiprocessing_share: float
    ratio: float | None  # of our best rate to that of AsyncVectorEnv


class UnevenResult(NamedTuple):
    """Envs with random step times: steps of all envs, or async batches of those that are ready."""

    num_envs: int  # the same for both modes
    batch: int  # envs per batch in mode async
    sync_sps: float
    async_sps: float
    ratio: float


class TurnResult(NamedTuple):
    """The overhead of a turn, one step of all workers: medians of the best round."""

    num_envs: int
    cost_us: int  # of one env's step
    turn_us: float  # one step of the vector
    work_us: float  # one worker's share of it, stepped in this process
    turn_cost_us: float  # the difference
    bare_us: float  # the same difference for bare processes that wake each other by futex
    over_bare_us: float


class VecResult(NamedTuple):
    """The result of `puffer bench vec`."""

    env: str
    workers: int
    rounds: int
    load: float  # load average of the last minute
    costs: list[CostResult]
    turns: list[TurnResult]
    uneven: UnevenResult
    idle_cpu: float  # share of a core that a waiting worker uses

    def to_dict(self) -> dict[str, object]:
        """Return plain values that JSON can hold."""
        out = self._asdict()
        out["uneven"] = self.uneven._asdict()
        for name in ("costs", "turns"):
            out[name] = [row._asdict() for row in out[name]]
        return out


def bench_vec(
    *,
    workers: int = 2,
    seconds: float = 30,
    costs_us: Sequence[int] = COSTS_US,
    turn_envs: Sequence[int] = TURN_ENVS,
    turn_costs_us: Sequence[int] = TURN_COSTS_US,
    on_progress: Callable[[str], None] = lambda text: None,
) -> VecResult:
    """Measure everything in about `seconds`; `on_progress` gets a line for each part."""
    check_seconds(seconds)
    loops = (2 + len(ENVS_PER_WORKER) + len(PEER_PROCESSES)) * len(costs_us)
    # rounds of slow envs are longer than planned
    rounds = max(_MIN_ROUNDS, int(0.6 * seconds / (1.5 * ROUND_SECONDS * loops)))
    costs = []
    for cost in costs_us:
        on_progress(f"envs of {cost} us a step")
        costs.append(_bench_cost(cost, workers, rounds))
    layouts = [(count, cost) for count in turn_envs if count >= workers for cost in turn_costs_us]
    turns = []
    for count, cost in layouts:
        on_progress(f"turns of {count} envs of {cost} us a step")
        each = 0.2 * seconds / (len(layouts) * _TURN_LOOPS * ROUND_SECONDS)
        turns.append(_bench_turn(count, cost, workers, max(_MIN_ROUNDS, int(each))))
    on_progress("envs of 1 to 10 ms a step, sync and async")
    uneven = _bench_uneven(max(_MIN_ROUNDS, int(0.1 * seconds / _LONG_ROUND_SECONDS)))
    on_progress("idle workers")
    idle = _idle_cpu(workers)
    return VecResult("vec", workers, rounds, os.getloadavg()[0], costs, turns, uneven, idle)


# ---- Envs of one cost ----------------------------------------------------------------------------


def _bench_cost(cost_us: int, workers: int, rounds: int) -> CostResult:
    creator = partial(BusyEnv, cost_us * 1e-6)
    per_worker = ENVS_PER_WORKER if cost_us <= CHEAP_US else ENVS_PER_WORKER[:1]
    with ExitStack() as stack:
        # Gymnasium first: its processes fork, and must not inherit ours
        peers = {count: gymnasium_loop(stack, creator, count) for count in PEER_PROCESSES}
        ours = {
            count: vector_loop(
                stack.enter_context(quiet_multiprocessing(creator, workers * count, workers))
            )
            for count in per_worker
        }
        serial = vector_loop(stack.enter_context(Serial(creator, SERIAL_ENVS)))
        plain = plain_loop(creator, ENVS_PER_WORKER[0])
        loops = [plain, serial, *ours.values(), *filter(None, peers.values())]
        best = dict(zip(loops, best_of(rounds, loops)))
    ideal = workers * best[plain]
    envs_per_worker = max(ours, key=lambda count: best[ours[count]])
    found = {count: best[run] for count, run in peers.items() if run is not None}
    processes = max(found, key=lambda count: found[count]) if found else None
    peer_sps = found[processes] if processes is not None else None
    our_sps = best[ours[envs_per_worker]]
    return CostResult(
        cost_us,
        ideal,
        best[serial],
        our_sps,
        envs_per_worker,
        peer_sps,
        processes,
        best[serial] / ideal,
        our_sps / ideal,
        our_sps / peer_sps if peer_sps else None,
    )


# ---- Turns ---------------------------------------------------------------------------------------


def _bench_turn(num_envs: int, cost_us: int, workers: int, rounds: int) -> TurnResult:
    """Measure a turn, one worker's share of it in this process, and the bare hand-over."""
    creator = partial(BusyEnv, cost_us * 1e-6)
    share = -(-num_envs // workers)
    with (
        quiet_multiprocessing(creator, num_envs, workers) as vecenv,
        Serial(creator, share) as alone,
    ):
        ours, own = median_loop(vecenv), median_loop(alone)
        work = 1 / own(calls_per_round(own))  # seconds that each bare process computes

        def bare(calls: int) -> float:
            return 1 / native.futex_baseline(workers, work, calls)

        seconds = max(ROUND_SECONDS, _TURN_CALLS * work)
        rates = best_of(rounds, [ours, own, bare], seconds)
        turn_us, work_us, bare_us = (1e6 / rate for rate in rates)
    turn_cost_us, bare_us = turn_us - work_us, bare_us - 1e6 * work
    return TurnResult(
        num_envs, cost_us, turn_us, work_us, turn_cost_us, bare_us, turn_cost_us - bare_us
    )


# ---- Uneven envs ---------------------------------------------------------------------------------


def _bench_uneven(rounds: int) -> UnevenResult:
    """Compare modes on the same envs, each in a worker of its own, which mostly sleeps.

    Batches of mode async are smaller; the other envs step in the background.
    """
    surplus = UNEVEN_ENVS - UNEVEN_BATCH
    with (
        quiet_multiprocessing(UnevenEnv, UNEVEN_ENVS, UNEVEN_ENVS) as whole,
        quiet_multiprocessing(
            UnevenEnv, UNEVEN_BATCH, UNEVEN_BATCH, mode="async", surplus_envs=surplus
        ) as parts,
    ):
        parts.reset(seed=0)
        parts.recv()
        actions = np.zeros(parts.batch_slots, dtype=np.int32)

        def run(calls: int) -> float:
            for _ in range(parts.num_agents // parts.batch_slots):
                parts.send(actions)  # discard steps that finished between rounds
                parts.recv()
            start = time.perf_counter()
            for _ in range(calls):
                parts.send(actions)
                parts.recv()
            return calls * parts.batch_slots / (time.perf_counter() - start)

        sync_sps, async_sps = best_of(rounds, [vector_loop(whole), run], _LONG_ROUND_SECONDS)
    return UnevenResult(UNEVEN_ENVS, UNEVEN_BATCH, sync_sps, async_sps, async_sps / sync_sps)


# ---- Idle workers --------------------------------------------------------------------------------


def _idle_cpu(workers: int) -> float:
    """Return the share of a core that a worker uses while it waits for the policy."""
    with quiet_multiprocessing(
        partial(BusyEnv, 0.0), workers * ENVS_PER_WORKER[0], workers
    ) as vecenv:
        vector_loop(vecenv)(10)
        before = _cpu_seconds(vecenv.worker_pids)
        start = now = time.perf_counter()
        while now - start < IDLE_SECONDS:
            now = time.perf_counter()
        return (_cpu_seconds(vecenv.worker_pids) - before) / (now - start) / workers


def _cpu_seconds(pids: Sequence[int]) -> float:
    return float(sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids))
