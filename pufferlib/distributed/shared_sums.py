"""SharedSums: sums over the processes of one machine, through shared memory.

Each process writes its numbers into its own slot, waits at a barrier, and adds up all slots in
order of rank: the result is bit-identical in all processes. That takes tens of microseconds; a
round trip through sockets takes a millisecond, as long as a whole update of a small network.
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
from pufferlib.errors import PufferError
from pufferlib.system import usable_cores

_FOLDER = "/dev/shm"
_MOST_BYTES = 16 << 20  # of the shared memory; larger tensors are summed by torch.distributed
_SPINS, _SHORT_SPINS = (
    20_000,
    200,
)  # checks before sleeping, about 300 us; with fewer cores than processes
_SLICE_MS = 500  # between checks that the other processes are there


class SharedSums:
    """Sums tensors over `size` processes; all must make the same calls in the same order.

    `from_first` returns the object of rank 0 to all, and `gather` the objects of all to all. While
    a process waits it calls `check`, which raises if another one is gone.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        timeout: float,
        from_first: Callable[[Any], Any],
        gather: Callable[[Any], list[Any]],
        check: Callable[[], None],
    ) -> None:
        self._rank, self._size, self._timeout, self._check = rank, size, timeout, check
        self._spins = _SPINS if size <= usable_cores() else _SHORT_SPINS
        self._turn = 0
        barrier_bytes = -(-native.barrier_bytes(size) // 64) * 64
        self._slot_bytes = (_MOST_BYTES - barrier_bytes) // (2 * size) // 64 * 64
        total = barrier_bytes + 2 * size * self._slot_bytes
        path = from_first(_create(total) if rank == 0 else None)
        memory = _mapped(path, total)
        self.is_available = all(gather(memory is not None))
        if rank == 0 and path is not None:
            os.unlink(path)  # every process that can has mapped it by now
        if memory is None or not self.is_available:
            return
        whole = np.frombuffer(memory, dtype=np.uint8)
        self._barrier = whole[:barrier_bytes]
        # two sets: one is read while the next is written
        self._slots = whole[barrier_bytes:].reshape(2, size, self._slot_bytes)

    def fits(self, tensor: Tensor) -> bool:
        """Return whether a tensor can be summed here."""
        known = tensor.dtype in (torch.float32, torch.float64, torch.int64)
        small = tensor.numel() * tensor.element_size() <= self._slot_bytes
        return self.is_available and tensor.device.type == "cpu" and known and small

    def sum_(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over all processes."""
        own = tensor.detach().reshape(-1).numpy()
        slots = self._slots[self._turn % 2, :, : own.nbytes].view(own.dtype)
        slots[self._rank] = own
        self._wait()
        total = slots[0].copy()
        for slot in slots[1:]:
            total += slot
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(total).view_as(tensor))

    def _wait(self) -> None:
        """Wait until all processes have written; raise if one is gone or the timeout is over."""
        self._turn += 1
        deadline = time.monotonic() + self._timeout
        while not self._all_arrive(_SLICE_MS):
            try:
                self._check()
            except PufferError:
                if self._all_arrive(1):  # the one that is gone came first
                    return
                raise
            if time.monotonic() > deadline:
                raise PufferError(
                    f"rank {self._rank} waited {self._timeout:g} s for the other ranks."
                )

    def _all_arrive(self, milliseconds: int) -> bool:
        return native.barrier_wait(
            self._barrier, self._rank, self._size, self._turn, self._spins, milliseconds
        )


def _create(size: int) -> str | None:
    """Return the path of a new zeroed file in shared memory, None where there is no room."""
    try:
        fd, path = tempfile.mkstemp(prefix="pufferlib-", dir=_FOLDER)
    except OSError:
        return None
    try:
        os.posix_fallocate(fd, 0, size)  # fail now, not by a crash in the middle of a run
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
