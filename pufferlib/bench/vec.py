"""Python envs on worker processes: how near two ideal cores, beside Gymnasium's AsyncVectorEnv.

All entrants of one cost run in turns, in short rounds, and the best round of each counts: other
programs only ever slow a round down. The ideal is what `workers` cores would do if each ran a plain
loop over bare envs, measured in the same turns.

A second part measures what a turn of the workers costs by itself, beside a yardstick: the
same turn between bare processes in C that do nothing but wake each other.
"""

from __future__ import annotations

import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
import psutil
from gymnasium.spaces import Box, Discrete

from pufferlib import native
from pufferlib.errors import UsageError
from pufferlib.vectorization import Multiprocessing, Serial, VectorEnv

COSTS_US = (0, 10, 100, 1000)
EPISODE_LENGTH = 200
SERIAL_ENVS = 64
ENVS_PER_WORKER = (32, 256)
CHEAP_US = 100  # up to here more envs per worker are tried too: the turns weigh less then
PEER_PROCESSES = (2, 8)  # of AsyncVectorEnv, which has a process for each env
UNEVEN_ENVS, UNEVEN_BATCH = 16, 4
UNEVEN_SECONDS = (1e-3, 10e-3)
IDLE_SECONDS = 1.0
TURN_ENVS = (2, 16, 64, 256)
TURN_COSTS_US = (0, 10, 100)
TURN_OVER_BARE_US = 40.0  # that our turn may take longer than the bare hand-over

_ROUND_SECONDS = 0.03
_LONG_ROUND_SECONDS = 0.3  # of envs whose steps are drawn at random: luck must not decide
_MIN_ROUNDS = 2
_TURN_ENTRANTS = 3

# a rate: run this many calls, return steps per second
_Run: TypeAlias = Callable[[int], float]


class BusyEnv(gymnasium.Env[Any, Any]):
    """An env whose step keeps a core busy for `seconds`, and does nothing else."""

    def __init__(self, seconds: float) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (4,), np.float32), Discrete(2)
        self._seen = np.zeros(4, dtype=np.float32)
        self._tick, self._seconds = 0, seconds
        if not seconds:
            self.step = self._idle  # type: ignore[method-assign]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._tick = 0
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        clock = time.perf_counter
        deadline = clock() + self._seconds
        self._tick += 1
        while clock() < deadline:
            pass
        return self._seen, 1.0, self._tick >= EPISODE_LENGTH, False, {}

    def _idle(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._tick += 1
        return self._seen, 1.0, self._tick >= EPISODE_LENGTH, False, {}


class UnevenEnv(BusyEnv):
    """An env whose steps take 1 to 10 ms, drawn from its seed; it sleeps, like one that waits."""

    def __init__(self) -> None:
        super().__init__(UNEVEN_SECONDS[0])
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self._rng.uniform(*UNEVEN_SECONDS))
        return self._idle(action)


class CostResult(NamedTuple):
    """Steps per second at one cost of a step; each the best round of the best layout."""

    cost_us: int
    ideal_sps: float  # of as many perfect cores as there are workers
    serial_sps: float
    multiprocessing_sps: float
    envs_per_worker: int  # of the best layout
    gymnasium_sps: float | None  # None where it could not be run
    gymnasium_processes: int | None
    serial_share: float  # of the ideal
    multiprocessing_share: float
    ratio: float | None  # of our best to AsyncVectorEnv's


class UnevenResult(NamedTuple):
    """Envs with random step times: every step of all envs, or batches of those that are ready."""

    num_envs: int  # in all, the same for both
    batch: int  # handed over at once in mode async
    sync_sps: float
    async_sps: float
    ratio: float


class TurnResult(NamedTuple):
    """What a turn of the workers costs on top of the envs' steps: medians of the best round."""

    num_envs: int
    cost_us: int  # of one env's step
    turn_us: float  # one step of the vector
    work_us: float  # one worker's part of it, stepped in this process
    turn_cost_us: float  # the difference
    bare_us: float  # the same difference for bare processes that wake each other by futex
    over_bare_us: float


class Bar(NamedTuple):
    """A figure that is wanted, and the one that was measured."""

    what: str
    value: float
    wanted: float
    is_met: bool


class VecResult(NamedTuple):
    """What `puffer bench vec` reports."""

    env: str
    workers: int
    rounds: int
    load: float  # mean number of processes that wanted a core during the last minute
    costs: list[CostResult]
    turns: list[TurnResult]
    uneven: UnevenResult
    idle_cpu: float  # of a core, for each worker that waits
    bars: list[Bar]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        out = self._asdict()
        out["uneven"] = self.uneven._asdict()
        for name in ("costs", "turns", "bars"):
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
    """Measure everything in about `seconds`; `on_progress` is told what comes next."""
    if not 0 < seconds < math.inf:
        raise UsageError(f"`seconds` must be above 0, but got {seconds}.")
    entrants = (2 + len(ENVS_PER_WORKER) + len(PEER_PROCESSES)) * len(costs_us)
    # slow envs take longer rounds than they should
    rounds = max(_MIN_ROUNDS, int(0.6 * seconds / (1.5 * _ROUND_SECONDS * entrants)))
    costs = []
    for cost in costs_us:
        on_progress(f"envs of {cost} us a step")
        costs.append(_bench_cost(cost, workers, rounds))
    layouts = [(count, cost) for count in turn_envs if count >= workers for cost in turn_costs_us]
    turns = []
    for count, cost in layouts:
        on_progress(f"turns of {count} envs of {cost} us a step")
        each = 0.2 * seconds / (len(layouts) * _TURN_ENTRANTS * _ROUND_SECONDS)
        turns.append(_bench_turn(count, cost, workers, max(_MIN_ROUNDS, int(each))))
    on_progress("envs of 1 to 10 ms a step, sync and async")
    uneven = _bench_uneven(max(_MIN_ROUNDS, int(0.1 * seconds / _LONG_ROUND_SECONDS)))
    on_progress("workers that wait")
    idle = _idle_cpu(workers)
    bars = _bars(costs, turns, uneven, idle)
    return VecResult("vec", workers, rounds, os.getloadavg()[0], costs, turns, uneven, idle, bars)


# ---- Envs of one cost ----------------------------------------------------------------------------


def _bench_cost(cost_us: int, workers: int, rounds: int) -> CostResult:
    creator = partial(BusyEnv, cost_us * 1e-6)
    per_worker = ENVS_PER_WORKER if cost_us <= CHEAP_US else ENVS_PER_WORKER[:1]
    with ExitStack() as stack:
        # theirs first: processes that fork must not inherit what belongs to ours
        peers = {count: _peer(stack, creator, count) for count in PEER_PROCESSES}
        ours = {
            count: _ours(stack.enter_context(_multiprocessing(creator, workers * count, workers)))
            for count in per_worker
        }
        serial = _ours(stack.enter_context(Serial(creator, SERIAL_ENVS)))
        plain = _plain_loop(creator)
        entrants = [plain, serial, *ours.values(), *filter(None, peers.values())]
        best = dict(zip(entrants, _best_of(rounds, entrants)))
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


def _best_of(rounds: int, entrants: Sequence[_Run], seconds: float = _ROUND_SECONDS) -> list[float]:
    """Run all in turns, in rounds of about `seconds`; return the best rate of each."""
    calls = [_calls(run, seconds) for run in entrants]
    best = [0.0] * len(entrants)
    for _ in range(rounds):
        for index, run in enumerate(entrants):
            best[index] = max(best[index], run(calls[index]))
    return best


def _calls(run: _Run, seconds: float) -> int:
    """Return how many calls fill a round, at least two; the calls made here warm it up."""
    calls = 2
    while True:
        start = time.perf_counter()
        run(calls)
        taken = time.perf_counter() - start
        if taken > seconds / 4:
            return max(2, round(calls * seconds / taken))
        calls *= 2


def _plain_loop(creator: Callable[[], Any]) -> _Run:
    """Step bare envs one after another: what one core can do."""
    envs = [creator() for _ in range(ENVS_PER_WORKER[0])]
    for env in envs:
        env.reset()

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            for env in envs:
                _, _, terminated, truncated, _ = env.step(0)
                if terminated or truncated:
                    env.reset()
        return calls * len(envs) / (time.perf_counter() - start)

    return run


def _ours(vecenv: VectorEnv) -> _Run:
    vecenv.reset(seed=0)
    actions = np.zeros(vecenv.num_agents, dtype=np.int32)

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            vecenv.step(actions)
        return calls * vecenv.num_agents / (time.perf_counter() - start)

    return run


def _peer(stack: ExitStack, creator: Callable[[], Any], processes: int) -> _Run | None:
    try:
        vector = gymnasium.vector.AsyncVectorEnv([creator] * processes)
    except Exception:  # a system without the shared memory that it needs
        return None
    stack.callback(vector.close)
    vector.reset(seed=0)
    actions = np.zeros(processes, dtype=np.int64)

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            vector.step(actions)
        return calls * processes / (time.perf_counter() - start)

    return run


@contextmanager
def _multiprocessing(
    creator: Callable[[], Any], num_envs: int, workers: int, **options: Any
) -> Iterator[Multiprocessing]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores are the point of some layouts
        vecenv = Multiprocessing(creator, num_envs, workers, **options)
    with vecenv:
        yield vecenv


# ---- Turns ---------------------------------------------------------------------------------------


def _bench_turn(num_envs: int, cost_us: int, workers: int, rounds: int) -> TurnResult:
    """Measure a turn beside one worker's part of it in this process, and the bare hand-over."""
    creator = partial(BusyEnv, cost_us * 1e-6)
    share = -(-num_envs // workers)
    with _multiprocessing(creator, num_envs, workers) as vecenv, Serial(creator, share) as alone:
        ours, own = _turns(vecenv), _turns(alone)
        work = 1 / own(_calls(own, _ROUND_SECONDS))  # that the bare processes have to do

        def bare(calls: int) -> float:
            return 1 / native.futex_baseline(workers, work, calls)

        turn_us, work_us, bare_us = (1e6 / rate for rate in _best_of(rounds, [ours, own, bare]))
    turn_cost_us, bare_us = turn_us - work_us, bare_us - 1e6 * work
    return TurnResult(
        num_envs, cost_us, turn_us, work_us, turn_cost_us, bare_us, turn_cost_us - bare_us
    )


def _turns(vecenv: VectorEnv) -> _Run:
    """Return what steps the vector, and says how many median steps fit into a second.

    The median leaves out the steps in which episodes end: here they all end at once.
    """
    vecenv.reset(seed=0)
    actions = np.zeros(vecenv.num_agents, dtype=np.int32)

    def run(calls: int) -> float:
        clock, taken = time.perf_counter, []
        for _ in range(calls):
            start = clock()
            vecenv.step(actions)
            taken.append(clock() - start)
        return 1 / statistics.median(taken)

    return run


# ---- Envs whose steps differ ---------------------------------------------------------------------


def _bench_uneven(rounds: int) -> UnevenResult:
    """Compare modes with the same envs, each in a worker of its own, which sleeps most of the time.

    The batches of mode async are smaller; what they leave out is under way meanwhile.
    """
    surplus = UNEVEN_ENVS - UNEVEN_BATCH
    with (
        _multiprocessing(UnevenEnv, UNEVEN_ENVS, UNEVEN_ENVS) as whole,
        _multiprocessing(
            UnevenEnv, UNEVEN_BATCH, UNEVEN_BATCH, mode="async", surplus_envs=surplus
        ) as parts,
    ):
        parts.reset(seed=0)
        parts.recv()
        actions = np.zeros(parts.batch_slots, dtype=np.int32)

        def run(calls: int) -> float:
            for _ in range(parts.num_agents // parts.batch_slots):
                parts.send(actions)  # what got ready since the last round is not what they can do
                parts.recv()
            start = time.perf_counter()
            for _ in range(calls):
                parts.send(actions)
                parts.recv()
            return calls * parts.batch_slots / (time.perf_counter() - start)

        sync_sps, async_sps = _best_of(rounds, [_ours(whole), run], _LONG_ROUND_SECONDS)
    return UnevenResult(UNEVEN_ENVS, UNEVEN_BATCH, sync_sps, async_sps, async_sps / sync_sps)


# ---- Workers that wait ---------------------------------------------------------------------------


def _idle_cpu(workers: int) -> float:
    """Return how much of a core a worker uses while the policy is busy."""
    with _multiprocessing(partial(BusyEnv, 0.0), workers * ENVS_PER_WORKER[0], workers) as vecenv:
        _ours(vecenv)(10)
        before = _cpu_seconds(vecenv.worker_pids)
        start = now = time.perf_counter()
        while now - start < IDLE_SECONDS:
            now = time.perf_counter()
        return (_cpu_seconds(vecenv.worker_pids) - before) / (now - start) / workers


def _cpu_seconds(pids: Sequence[int]) -> float:
    return float(sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids))


# ---- Bars ----------------------------------------------------------------------------------------


def _bars(
    costs: Sequence[CostResult], turns: Sequence[TurnResult], uneven: UnevenResult, idle: float
) -> list[Bar]:
    bars = []
    for row in costs:
        if row.cost_us in _SHARES:
            bars.append(_at_least("share of the ideal", row, row.multiprocessing_share, _SHARES))
        if row.cost_us in _RATIOS and row.ratio is not None:
            bars.append(_at_least("times AsyncVectorEnv", row, row.ratio, _RATIOS))
    for count in dict.fromkeys(row.num_envs for row in turns):
        over = max(row.over_bare_us for row in turns if row.num_envs == count)
        what = f"{count} envs, us of a turn over the bare hand-over, at most"
        bars.append(Bar(what, over, TURN_OVER_BARE_US, over <= TURN_OVER_BARE_US))
    bars.append(Bar("async, times sync", uneven.ratio, 1.5, uneven.ratio >= 1.5))
    bars.append(Bar("cpu of a waiting worker, at most", idle, 0.05, idle <= 0.05))
    return bars


# at 0 and 10 us what PufferLib 3.0 reaches with its best backend, which is its loop in one process
_SHARES = {0: 0.06, 10: 0.35, 100: 0.95, 1000: 0.95}
_RATIOS = {0: 5.0, 10: 3.0}


def _at_least(what: str, row: CostResult, value: float, wanted: dict[int, float]) -> Bar:
    bar = wanted[row.cost_us]
    return Bar(f"{row.cost_us} us, {what}", value, bar, value >= bar)
