"""SharedSums: sums over the processes of one machine, through memory that all of them have mapped.

Each process writes its numbers into a slot of its own, waits for the others, and adds up all slots
in order of rank: the same everywhere, to the last bit. That takes tens of microseconds where a
round trip through sockets takes a millisecond, as long as a small network's whole update.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pufferlib import native
from pufferlib.system import usable_cores

_FOLDER = "/dev/shm"
_MOST_BYTES = 16 << 20  # of the whole; what does not fit is summed elsewhere
_SPINS, _SHORT_SPINS = 20_000, 200  # looks before sleeping, some 300 us; where cores are scarce
_SLICE_MS = 500  # between looks at whether the others live


class SharedSums:
    """Adds tensors up over `size` processes; all must call it with the same sizes, in one order.

    `from_first` hands an object of rank 0 to all, and `gather` those of all to all.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        timeout: float,
        from_first: Callable[[Any], Any],
        gather: Callable[[Any], list[Any]],
    ) -> None:
        self._rank, self._size, self._timeout = rank, size, timeout
        self._spins = _SPINS if size <= usable_cores() else _SHORT_SPINS
        self._turn = 0
        place = -(-native.barrier_bytes(size) // 64) * 64
        self._slot_bytes = (_MOST_BYTES - place) // (2 * size) // 64 * 64
        total = place + 2 * size * self._slot_bytes
        path = from_first(_create(total) if rank == 0 else None)
        memory = _mapped(path, total)
        self._pids = gather(os.getpid() if memory is not None else 0)
        if rank == 0 and path is not None:
            os.unlink(path)  # all that could have it by now
        self.is_there = all(self._pids)
        if memory is None or not self.is_there:
            return
        whole = np.frombuffer(memory, dtype=np.uint8)
        self._place = whole[:place]
        # two of them: one is read while the next is written
        self._slots = whole[place:].reshape(2, size, self._slot_bytes)

    def fits(self, tensor: Tensor) -> bool:
        """Return whether a tensor can be summed here."""
        known = tensor.dtype in (torch.float32, torch.float64, torch.int64)
        small = tensor.numel() * tensor.element_size() <= self._slot_bytes
        return self.is_there and tensor.device.type == "cpu" and known and small

    def sum_(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes."""
        own = tensor.detach().reshape(-1).numpy()
        slots = self._slots[self._turn % 2, :, : own.nbytes].view(own.dtype)
        slots[self._rank] = own
        self._meet()
        total = slots[0].copy()
        for slot in slots[1:]:
            total += slot
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(total).view_as(tensor))

    def _meet(self) -> None:
        """Wait until all have written; raise where that cannot come."""
        self._turn += 1
        deadline = time.monotonic() + self._timeout
        while not native.barrier_wait(
            self._place, self._rank, self._size, self._turn, self._spins, _SLICE_MS
        ):
            for rank, pid in enumerate(self._pids):
                if not _is_alive(pid):
                    raise RuntimeError(f"rank {rank} died, so rank {self._rank} cannot go on")
            if time.monotonic() > deadline:
                raise RuntimeError(f"rank {self._rank} waited {self._timeout:g} s for the others")


def _create(size: int) -> str | None:
    """Return the path of a new file of zeros in memory, None where it cannot be had."""
    try:
        fd, path = tempfile.mkstemp(prefix="pufferlib-", dir=_FOLDER)
    except OSError:
        return None
    try:
        os.posix_fallocate(fd, 0, size)  # now, and not by a crash in the middle of a run
    except OSError:
        os.unlink(path)
        return None
    finally:
        os.close(fd)
    return path


def _mapped(path: str | None, size: int) -> mmap.mmap | None:
    if path is None:
        return None
    try:
        with open(path, "r+b") as file:
            return mmap.mmap(file.fileno(), size)
    except OSError:
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
