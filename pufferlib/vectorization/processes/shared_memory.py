"""SharedRows: the rows of a whole vector, and the turns of its workers, in one shared memory.

The memory has no name: it is gone with the last process that maps it, however that ends.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.buffers import ALIGNMENT, allocate, num_bytes
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
        rows = (
            num_slots,
            description.observation_space,
            description.action_space,
            description.has_action_masks,
        )
        flags_end = native.flags_bytes(num_workers)
        rows_end = flags_end + num_bytes(*rows)
        lengths_start = rows_end + -(-8 * num_slots // ALIGNMENT) * ALIGNMENT
        resets_start = lengths_start + 8 * num_slots
        size = resets_start + 3 * 8 * num_workers
        self.fd = _anonymous_file(size) if fd is None else fd
        mapped = mmap.mmap(self.fd, size)
        memory: NDArray[np.uint8] = np.frombuffer(mapped, dtype=np.uint8)
        self.flags: Any = native.Flags(memory[:flags_end], num_workers, spin_us)
        self.buffers = allocate(*rows, memory=memory[flags_end:rows_end])
        self.returns: NDArray[np.float64] = np.frombuffer(
            mapped, np.float64, num_slots, offset=rows_end
        )
        self.lengths: NDArray[np.int64] = np.frombuffer(
            mapped, np.int64, num_slots, offset=lengths_start
        )
        # of each worker: whether its next turn is a reset, the seed, the envs before the vector's
        self.resets: NDArray[np.uint64] = np.frombuffer(
            mapped, np.uint64, 3 * num_workers, offset=resets_start
        ).reshape(num_workers, 3)
        if fd is None:
            self.buffers.unmask()


def _anonymous_file(size: int) -> int:
    """Return the descriptor of a nameless file in memory, its pages set aside for us."""
    free = available_memory()
    try:
        if size > free:
            raise MemoryError
        if hasattr(os, "memfd_create"):  # not limited by the size of /dev/shm
            fd = os.memfd_create("pufferlib")
        else:
            fd, path = tempfile.mkstemp()
            os.unlink(path)
        try:
            if hasattr(
                os, "posix_fallocate"
            ):  # a lack of memory shows now, not as a crash in the middle of a run
                os.posix_fallocate(fd, 0, size)
            else:
                os.ftruncate(fd, size)
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
