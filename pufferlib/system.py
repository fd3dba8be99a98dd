"""Cores, memory and file descriptors that this process may use, and whether a run fits.

Limits of a container apply. The memory of a run is checked before it is allocated, against a lower
bound, so a run that fits is never refused.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pufferlib.errors import UsageError
from pufferlib.spaces import action_layout, observation_layout

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

_CGROUP = Path("/sys/fs/cgroup")
_NUMBERS = 4 * 4 + 4  # bytes of a step: log-probability, value, reward, final value; four flags
_SIZES = (16, 32, 48)  # of small policies, to extrapolate from
_SLACK = 2**18  # bytes of heap growth to ignore
_ANY_DEVICE = 2.0**40  # bytes; the memory of a device that is not the CPU is unknown


def has_workers() -> bool:
    """Return whether this system supports `Multiprocessing`."""
    return sys.platform.startswith("linux")


def usable_cores() -> int:
    """Return the number of cores this process may keep busy."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        allowed = os.cpu_count() or 1
    quota = _cpu_quota()
    return allowed if quota is None else max(1, min(allowed, math.floor(quota + 0.01)))


def _cpu_quota() -> float | None:
    """Return the number of cores that the control groups allow, None for no limit."""
    quotas = []
    for folder in _own_groups():
        limit, _, period = _read(folder / "cpu.max").partition(" ")  # "200000 100000", or "max ..."
        if limit and limit != "max":
            quotas.append(int(limit) / int(period or 100000))
    limit, period = (_read(_CGROUP / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if limit and period and int(limit) > 0:  # control groups version 1
        quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def available_memory() -> float:
    """Return the bytes of memory that are available."""
    free = float(psutil.virtual_memory().available)
    for folder in _own_groups():
        limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
        if limit and used and limit != "max":
            free = min(free, int(limit) - int(used) + _file_cache(folder))
    return free


def check_memory(needed: int, what: str, option: str, available: float | None = None) -> None:
    """Raise UsageError if `what` needs more memory than available; `option` makes it smaller."""
    free = available_memory() if available is None else available
    if needed > free:
        raise UsageError(
            f"{what} must fit into memory, but need {needed / 1e6:,.0f} MB and "
            f"{free / 1e6:,.0f} MB are available. Try a smaller `{option}`."
        )


class MemoryForecast:
    """Checks, while many envs are made, that all of them will fit into memory.

    Whenever their number has doubled, the growth of this process is extrapolated. Of the last two
    doublings the one with less growth counts: the other may have loaded what all envs share.
    `made_here` of `total` envs are made by this process, the others by processes like it.
    """

    def __init__(self, made_here: int, total: int) -> None:
        self._here, self._total = made_here, total
        self._made, self._used = 0, 0
        self._per_env = 0.0  # bytes of an env, by the doubling before

    def note(self, made: int) -> None:
        """Take the number of envs made so far; raise UsageError unless the others fit too."""
        if made & (made - 1):  # no power of two
            return
        before, used, now = self._per_env, self._used, _own_memory()
        if self._needed(now, made, before) > available_memory():
            gc.collect()  # what creating them left behind is no cost of an env
            now = _own_memory()
            check_memory(self._needed(now, made, before), f"{self._total:,} envs", "num_envs")
        if made > 1:
            self._per_env = (now - used - _SLACK) / (made - self._made)
        self._made, self._used = made, now

    def _needed(self, used: int, made: int, before: float) -> int:
        """Return the bytes that all envs still to be made will take at least."""
        grown = (used - self._used - _SLACK) / (made - self._made)
        left = (self._here - made) * self._total // self._here
        return int(max(0.0, min(grown, before)) * left)


def _own_memory() -> int:
    """Return the bytes of memory of this process that no file backs."""
    text = _read(Path("/proc/self/status"))
    for line in text.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)


def _file_cache(folder: Path) -> int:
    """Return the bytes of a control group that the system can reclaim."""
    entries = (line.split() for line in _read(folder / "memory.stat").splitlines())
    return sum(int(size) for name, size in entries if name in ("active_file", "inactive_file"))


def check_descriptors(needed: int) -> None:
    """Raise UsageError unless `needed` more files can be opened; raise the soft limit if needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    if soft == resource.RLIM_INFINITY or used + needed <= soft:
        return
    if hard == resource.RLIM_INFINITY or used + needed <= hard:
        most = 2**20 if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(used + needed + 64, most), hard))
        return
    raise UsageError(
        f"workers need {needed} file descriptors, but {max(0, hard - used)} of {hard} are left. "
        "Try fewer workers, or `ulimit -n`."
    )


def _own_groups() -> list[Path]:
    """Return the control group of this process and the visible ones above it."""
    text = _read(Path("/proc/self/cgroup"))
    own = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")
    folder = _CGROUP / own.strip("/")
    return [folder, *(above for above in folder.parents if above.is_relative_to(_CGROUP))]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def check_batch(env: VectorEnv, batch_size: int, device: str = "auto") -> None:
    """Raise UsageError unless a rollout of `batch_size` steps fits into memory."""
    observation, action = observation_layout(env.observation_space), action_layout(env.action_space)
    per_step = _NUMBERS + observation.row_bytes + action.row_bytes
    if env.action_masks is not None:
        per_step += sum(action.nvec)
    available = available_memory() if device == "cpu" else _ANY_DEVICE
    check_memory(batch_size * per_step, "the steps of a batch", "batch_size", available)


def check_policy(count_bytes: Callable[[int], int], hidden_size: int, copies: int) -> None:
    """Raise UsageError unless `copies` of the parameters of a policy fit into memory.

    `count_bytes` returns the bytes of the parameters for a hidden size. It is called for small ones
    only: layers are matrices with sides of the hidden size, so the count is quadratic in it.
    """
    first, second, third = map(count_bytes, _SIZES)
    unit, beyond = _SIZES[0], hidden_size - _SIZES[0]
    slope, bend = second - first, third - 2 * second + first
    size = first + slope * beyond // unit + bend * beyond * (beyond - unit) // (2 * unit * unit)
    check_memory(copies * size, "the policy, its gradients and its optimizer", "hidden_size")
