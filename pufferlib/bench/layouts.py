"""Layouts: where the envs of a run step, how many there are, and which are worth a trial."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from pufferlib.system import available_memory, usable_cores
from pufferlib.vectorization.measuring import EnvCost, Memory

MAX_ENVS_PER_WORKER = 1024
MAX_WORKERS = 64
NATIVE_SLOTS = (64, 256, 1024, 4096, 16384)  # agents in all: from a small cache to a large one

# how long one step of a worker should last: short ones delay a batch less, long ones cost less
_WORKER_SECONDS = (0.6e-3, 2.5e-3, 10e-3)
_SMALL_ENVS = 8  # of Serial, as a reference
_UNEVEN = 0.15  # deviation of a worker's step, as a share of its mean, from which async pays
_MEMORY_SHARE = 0.5  # of the free memory, for all envs


class Layout(NamedTuple):
    """Where envs step, and how many there are: a section [vec]."""

    backend: str
    num_envs: int
    num_workers: int = 1
    surplus_envs: int = 0  # above 0 in mode async

    @property
    def total_envs(self) -> int:
        """All envs, surplus envs included."""
        return self.num_envs + self.surplus_envs

    @property
    def total_workers(self) -> int:
        """All workers, those of surplus envs included."""
        return self.num_workers * self.total_envs // self.num_envs

    def settings(self) -> dict[str, Any]:
        """Return the keys of [vec] that make this layout."""
        out: dict[str, Any] = {"backend": self.backend, "num_envs": self.num_envs}
        if self.backend != "serial":
            out["num_workers"] = self.num_workers
        if self.surplus_envs:
            out |= {"mode": "async", "surplus_envs": self.surplus_envs}
        return out

    def __str__(self) -> str:
        """Return `multiprocessing, 64 envs on 2 workers`."""
        if self.backend == "serial":
            return f"serial, {_count(self.num_envs, 'env')}"
        workers = _count(self.total_workers, "thread" if self.backend == "threads" else "worker")
        text = f"{self.backend}, {_count(self.total_envs, 'env')} on {workers}"
        return f"{text}, {self.num_envs} at a time" if self.surplus_envs else text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def most_envs(cost: EnvCost, memory: Memory, seconds: float) -> int:
    """Return how many envs fit into memory and can be created in a tenth of `seconds`."""
    room = _MEMORY_SHARE * available_memory() / max(memory.env, 1)
    in_time = seconds / 10 * usable_cores() / max(cost.create, 1e-9)
    return int(2 ** math.floor(math.log2(max(1, min(room, in_time, 1e6)))))


def native_layouts(
    cost: EnvCost, cores: int, limit: int, num_envs: int | None = None
) -> list[Layout]:
    """Return layouts for a C env: threads, and other backends for comparison."""
    if num_envs is not None:
        counts = [num_envs]
    else:
        counts = sorted({min(limit, max(1, n // cost.num_agents)) for n in NATIVE_SLOTS})
    threads = sorted({1, cores, *(2**k for k in range(cores.bit_length()) if 2**k <= cores)})
    layouts = [Layout("threads", n, k) for n in counts for k in threads if k <= n]
    few = min(counts[0], 64)
    layouts.append(Layout("serial", num_envs or few))
    if cores > 1 and counts[-1] >= cores:
        each = max(1, counts[0] // cores)
        layouts += _divided(cores, each, num_envs)
    return layouts


def python_layouts(
    cost: EnvCost, cores: int, limit: int, num_envs: int | None = None
) -> list[Layout]:
    """Return layouts for a Python env: one process, a worker per core, more for envs that wait.

    If the time of a step varies, some layouts are async: batches of the workers that are ready.
    """
    counts = {_power_of_two(seconds / max(cost.mean, 1e-9)) for seconds in _WORKER_SECONDS}
    counts |= set() if len(counts) > 1 else {2 * max(counts)}
    room = max(1, limit // cores)  # for each worker
    per_worker = sorted({min(count, room) for count in counts})
    workers = {cores, *([cores // 2] if cores > 3 else [])}
    if cost.wait_share > 0.5:  # a core is free while an env waits: it can serve more of them
        workers |= {min(MAX_WORKERS, cores * factor) for factor in (2, 4, 8)}
    alone = {num_envs or min(limit, n) for n in (_SMALL_ENVS, cores * per_worker[-1])}
    layouts = [Layout("serial", count) for count in sorted(alone)]
    for count in sorted(workers):
        if count > 1:
            for each in per_worker:
                layouts += _divided(count, each, num_envs)
    for each in per_worker:
        if cost.spread / math.sqrt(each) > _UNEVEN * cost.mean:  # over a whole step of a worker
            for count in sorted(workers | {2 * cores})[-2:]:
                layouts += _async_layouts(count, each, num_envs)
    return [each for each in dict.fromkeys(layouts) if num_envs or each.total_envs <= limit]


def _divided(workers: int, each: int, num_envs: int | None) -> list[Layout]:
    """Return `workers` workers with `each` envs, or with their share of `num_envs`."""
    if num_envs is None:
        return [Layout("multiprocessing", workers * each, workers)]
    return [Layout("multiprocessing", num_envs, workers)] if workers <= num_envs else []


def _async_layouts(workers: int, each: int, num_envs: int | None) -> list[Layout]:
    """Return async layouts whose batches are half, and a quarter, of `workers` workers."""
    if num_envs is not None:
        each = num_envs // workers
        if each * workers != num_envs:
            return []
    out = []
    for share in (2, 4):
        ready = workers // share
        if ready and each and ready * share == workers:
            surplus = (workers - ready) * each
            out.append(Layout("multiprocessing", ready * each, ready, surplus))
    return out


def _power_of_two(value: float) -> int:
    return int(2 ** round(math.log2(min(max(value, 1), MAX_ENVS_PER_WORKER))))
