"""What this process may use of the machine: cores, memory, file descriptors; whether a run fits.

A container's limits count, not what the machine has. What a run needs is computed before anything
of that size is allocated, as a lower bound, so nothing that could run is refused.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from pufferlib.errors import UsageError
from pufferlib.spaces import action_layout, observation_layout

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

_CGROUP = Path("/sys/fs/cgroup")
_NUMBERS = 4 * 4 + 4  # bytes of a step: log-probability, value, reward, final value; four flags
_SIZES = (16, 32, 48)  # of small policies, which tell how large ones grow
_ANY_DEVICE = 2.0**40  # bytes; what is not known to be in our memory may have this much


def has_workers() -> bool:
    """Return whether this system has what `Multiprocessing` is built on."""
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
    """Return how many cores' worth of time the control groups allow, None for no limit."""
    quotas = []
    for folder in _own_groups():
        limit, _, period = _read(folder / "cpu.max").partition(" ")  # "200000 100000", or "max ..."
        if limit and limit != "max":
            quotas.append(int(limit) / int(period or 100000))
    limit, period = (_read(_CGROUP / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if limit and period and int(limit) > 0:  # the older kind of control group
        quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def available_memory() -> float:
    """Return the bytes that can still be had, inf where nobody tells."""
    free = float(psutil.virtual_memory().available)
    for folder in _own_groups():
        limit, used = _read(folder / "memory.max"), _read(folder / "memory.current")
        if limit and used and limit != "max":
            free = min(free, int(limit) - int(used) + _file_cache(folder))
    return free


def check_memory(needed: int, what: str, option: str, available: float | None = None) -> None:
    """Raise UsageError if `what` needs more bytes than can be had; `option` makes it smaller."""
    free = available_memory() if available is None else available
    if needed > free:
        raise UsageError(
            f"{what} must fit into memory, but need {needed / 1e6:,.0f} MB and "
            f"{free / 1e6:,.0f} MB are available. Try a smaller `{option}`."
        )


def _file_cache(folder: Path) -> int:
    """Return the bytes of a control group that the system gives back when they are wanted."""
    rows = (line.split() for line in _read(folder / "memory.stat").splitlines())
    return sum(int(row[1]) for row in rows if row[0] in ("active_file", "inactive_file"))


def check_descriptors(needed: int) -> None:
    """Raise unless `needed` more files can be opened; the soft limit is lifted where it may be."""
    try:
        import resource
    except ImportError:  # not POSIX
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = _open_descriptors()
    if soft == resource.RLIM_INFINITY or used + needed <= soft:
        return
    if hard == resource.RLIM_INFINITY or used + needed <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(used + needed + 64, _max(hard)), hard))
        return
    raise UsageError(
        f"workers need {needed} file descriptors, but {max(0, hard - used)} of {hard} are left. "
        "Try fewer workers, or `ulimit -n`."
    )


def _max(hard: int) -> int:
    return 2**20 if hard < 0 else hard


def _open_descriptors() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return 32


def _own_groups() -> list[Path]:
    """Return the control group of this process and those above it, as far as they can be seen."""
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
    """Raise UsageError unless a rollout of `batch_size` steps of this process can be stored."""
    observation, action = observation_layout(env.observation_space), action_layout(env.action_space)
    per_step = _NUMBERS + sum(
        int(np.prod(layout.shape, dtype=np.int64)) * layout.dtype.itemsize
        for layout in (observation, action)
    )
    if env.action_masks is not None:
        per_step += sum(action.nvec)
    available = available_memory() if device == "cpu" else _ANY_DEVICE
    check_memory(batch_size * per_step, "the steps of a batch", "batch_size", available)


def check_policy(count_bytes: Callable[[int], int], hidden_size: int, copies: int) -> None:
    """Raise UsageError unless `copies` of the parameters of a policy can be held.

    `count_bytes` returns the bytes of the parameters for a hidden size. It is asked for small ones:
    a layer is a matrix whose sides grow with the hidden size, so the count is a quadratic in it.
    """
    first, second, third = map(count_bytes, _SIZES)
    unit, beyond = _SIZES[0], hidden_size - _SIZES[0]
    slope, bend = second - first, third - 2 * second + first
    size = first + slope * beyond // unit + bend * beyond * (beyond - unit) // (2 * unit * unit)
    check_memory(copies * size, "the policy, its gradients and its optimizer", "hidden_size")
