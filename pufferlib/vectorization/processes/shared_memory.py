"""SharedRows: the rows of a whole vector, and the turns of its workers, in one shared memory.

The memory has no name: it is gone with the last process that maps it, however that ends.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.buffers import ALIGNMENT
from pufferlib.errors import UsageError
from pufferlib.system import available_memory
from pufferlib.vectorization.shard import EnvDescription


class SharedRows:
    """Rows, flags, return and length of the last episode of each slot, and resets to be made.

    The first process makes it (without `fd`) and sends `fd` to the others, which map the same.
    `spin_us` is how long this process may look at a flag before it sleeps.
    """

    def __init__(
        self,
        description: EnvDescription,
        num_slots: int,
        num_workers: int,
        spin_us: int,
        fd: int | None = None,
    ) -> None:
        flags_end = native.flags_bytes(num_workers)
        rows_end = flags_end + description.num_bytes(num_slots)
        lengths_start = rows_end + -(-8 * num_slots // ALIGNMENT) * ALIGNMENT
        resets_start = lengths_start + 8 * num_slots
        size = resets_start + 3 * 8 * num_workers
        self.fd = _anonymous_file(size) if fd is None else fd
        mapped = mmap.mmap(self.fd, size)
        memory: NDArray[np.uint8] = np.frombuffer(mapped, dtype=np.uint8)
        self.flags: Any = native.Flags(memory[:flags_end], num_workers, spin_us)
        self.buffers = description.allocate(num_slots, memory[flags_end:rows_end])
        self.returns = np.ndarray(num_slots, np.float64, mapped, rows_end)
        self.lengths = np.ndarray(num_slots, np.int64, mapped, lengths_start)
        # of each worker: whether its next turn is a reset, the seed, the envs before the vector's
        self.resets = np.ndarray((num_workers, 3), np.uint64, mapped, resets_start)
        if fd is None:
            self.buffers.unmask()


def _anonymous_file(size: int) -> int:
    """Return the descriptor of a nameless file in memory, its pages set aside for us."""
    free = available_memory()
    try:
        if size > free:
            raise MemoryError
        fd = os.memfd_create("pufferlib")  # not limited by the size of /dev/shm
        try:  # a lack of memory shows now, not as a crash in the middle of a run
            os.posix_fallocate(fd, 0, size)
        except OSError:
            os.close(fd)
            raise
    except (MemoryError, OSError) as error:
        reason = "" if isinstance(error, MemoryError) else f" ({error.strerror})"
        raise UsageError(
            f"The rows of all envs need {size / 1e6:,.1f} MB of shared memory, but "
            f"{free / 1e6:,.1f} MB are free{reason}. Try fewer envs."
        ) from None
    return fd
