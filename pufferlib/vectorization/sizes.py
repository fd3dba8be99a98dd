"""How many envs go to how many workers, and which options of workers go together."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from pufferlib.errors import UsageError, quoted
from pufferlib.vectorization.failures import LostWorkerError

DEFAULT_NUM_ENVS = 256
MAX_WORKERS = 2**16  # more than any system starts


@dataclass
class Partition:
    """The envs of each worker: a contiguous range of units, which are calls of the creator."""

    units: list[range]
    envs_per_unit: int = 1  # more where the creator returns a vector env

    def envs(self, worker: int) -> range:
        """Return the envs of a worker."""
        units, each = self.units[worker], self.envs_per_unit
        return range(units.start * each, units.stop * each)

    def worker_of(self, env: int) -> int:
        """Return the worker that has this env."""
        return next(w for w in range(len(self.units)) if env in self.envs(w))

    def label(self, worker: int) -> str:
        """Return how messages name a worker: "worker 1 (envs 2 to 3)"."""
        envs = self.envs(worker)
        which = f"env {envs[0]}" if len(envs) == 1 else f"envs {envs[0]} to {envs[-1]}"
        return f"worker {worker} ({which})"

    def lost(
        self, worker: int, how: str, signal: str | None = None, stderr: str = ""
    ) -> LostWorkerError:
        """Return the error for a worker that died or hangs, as `how` describes."""
        message = f"{self.label(worker)} {how}"
        return LostWorkerError(message, worker, self.envs(worker), signal, stderr)


def resolve_sizes(
    num_envs: int | None,
    num_workers: int | None,
    envs_per_worker: int | None,
    default: int = DEFAULT_NUM_ENVS,
) -> tuple[int, int | None]:
    """Return (num_envs, num_workers) from any of the three; None workers: the backend decides."""
    names = ("num_envs", "num_workers", "envs_per_worker")
    for name, value in zip(names, (num_envs, num_workers, envs_per_worker), strict=True):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"`{name}` must be a whole number, but got {quoted(value)}.")
        if value is not None and value < 1:
            raise UsageError(f"`{name}` must be at least 1, but got {value}.")
    if envs_per_worker is None:
        return num_envs or default, num_workers
    if num_workers is None:
        total = num_envs or default
        if total % envs_per_worker:
            fits = max(1, total // envs_per_worker) * envs_per_worker
            raise UsageError(
                f"`num_envs` must be a multiple of `envs_per_worker`, but got {total} and "
                f"{envs_per_worker}. Try num_envs={fits}."
            )
        return total, total // envs_per_worker
    total = num_workers * envs_per_worker
    if num_envs is not None and num_envs != total:
        raise UsageError(
            f"`num_envs` must be num_workers x envs_per_worker, but got {num_envs} and "
            f"{num_workers} x {envs_per_worker}. Try num_envs={total}, or leave one of them out."
        )
    return total, num_workers


def check_options(
    mode: str,
    surplus_envs: int,
    worker_threads: int = 1,
    timeout: float | None = None,
    restart: int = 0,
) -> None:
    """Raise for the first option that is out of range or contradicts another."""
    if mode not in ("sync", "async"):
        raise UsageError(f"`mode` must be sync or async, but got {mode!r}.")
    if surplus_envs < 0 or restart < 0:
        name, value = ("surplus_envs", surplus_envs) if surplus_envs < 0 else ("restart", restart)
        raise UsageError(f"`{name}` must be at least 0, but got {value}.")
    if surplus_envs and mode == "sync":
        raise UsageError(f"`surplus_envs` must be 0 in mode sync, but got {surplus_envs}.")
    if worker_threads < 1:
        raise UsageError(f"`worker_threads` must be at least 1, but got {worker_threads}.")
    if timeout is not None and not 0 < timeout < math.inf:
        raise UsageError(f"`timeout` must be seconds above 0, or None, but got {timeout!r}.")


def unit_ranges(
    num_envs: int,
    num_workers: int | None,
    envs_per_worker: int | None,
    surplus: int,
    cores: int,
) -> tuple[list[range], int]:
    """Return the creator calls of every worker, and how many workers `num_envs` take."""
    total, workers = resolve_sizes(num_envs, num_workers, envs_per_worker)
    counts = range(1, min(total, MAX_WORKERS) + 1)
    fitting = [count for count in counts if not _misfits(total, count, surplus)] or [total]
    if workers is None:
        few = [count for count in fitting if count <= cores]
        workers = few[-1] if few else fitting[0]
    if workers > total:
        raise UsageError(
            f"`num_workers` must not exceed `num_envs`, but got {workers} for {total} envs. "
            f"Try num_workers={total}."
        )
    if _misfits(total, workers, surplus):
        nearest = min(fitting, key=lambda count: abs(count - workers))
        raise UsageError(
            "`surplus_envs` must fill whole workers: `num_envs` a multiple of `num_workers`, "
            f"and `surplus_envs` of their quotient, but got {total}, {workers} and {surplus}. "
            f"Try num_workers={nearest}."
        )
    each = total // workers
    if workers + surplus // each > MAX_WORKERS:
        raise UsageError(
            f"there must be at most {MAX_WORKERS:,} workers, but {total:,} envs and {surplus:,} "
            f"surplus envs take {workers + surplus // each:,}. Try more envs per worker."
        )
    bounds = [total * worker // workers for worker in range(workers + 1)]
    bounds += range(total + each, total + surplus + 1, each)
    return [range(*pair) for pair in itertools.pairwise(bounds)], workers


def _misfits(total: int, workers: int, surplus: int) -> bool:
    return bool(surplus and (total % workers or surplus % (total // workers)))
