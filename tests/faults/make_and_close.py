"""Makes and closes vectors again and again: memory, files, threads and processes must stay flat.

python tests/faults/make_and_close.py [CYCLES=1000] [fork|forkserver|spawn]
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rigs"))

import psutil
from faulty import NOTHING, Faulty, children, memory_maps, open_files
from waiting import watchdog

from pufferlib.vectorization import Multiprocessing

NUM_ENVS, NUM_WORKERS = 256, 2


class Use(NamedTuple):
    """What this process holds."""

    processes: int
    files: int
    shared_memories: int
    threads: int
    megabytes: float

    @staticmethod
    def now() -> Use:
        gc.collect()
        memory = psutil.Process().memory_info().rss / 1e6
        return Use(
            len(children()), len(open_files()), memory_maps(), threading.active_count(), memory
        )


def cycle(number: int, **options: Any) -> None:
    """Make a vector, use it, and let go of it in one of three ways."""
    vecenv: Any = Multiprocessing(Faulty, NUM_ENVS, NUM_WORKERS, **options)
    vecenv.reset(seed=number)
    for _ in range(3):
        vecenv.step(NOTHING)
    if number % 3 == 0:
        vecenv.send(NOTHING)  # closed while its envs step
    if number % 3 < 2:
        vecenv.close()
    del vecenv  # or by the garbage collector


def run(cycles: int, every: int = 0, **options: Any) -> tuple[Use, Use]:
    """Return what is held after a tenth of the cycles, and after all of them."""
    first: Use | None = None
    for number in range(cycles):
        with watchdog(60):
            cycle(number, **options)
        if first is None and number + 1 >= max(2, cycles // 10):
            first = Use.now()
        if every and (number + 1) % every == 0:
            print(number + 1, Use.now(), flush=True)
    assert first is not None
    return first, Use.now()


def main(cycles: int = 1000, start_method: str = "forkserver") -> None:
    warnings.simplefilter("ignore")
    start = time.monotonic()
    first, last = run(cycles, every=max(1, cycles // 10), start_method=start_method)
    seconds = time.monotonic() - start
    print(f"{cycles} cycles of {NUM_ENVS} envs over {NUM_WORKERS} workers ({start_method})")
    print(f"{seconds:.0f} s, {seconds / cycles:.2f} s each")
    print(f"after {max(2, cycles // 10)}: {first}\nafter {cycles}: {last}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    flat = last[:4] == first[:4] and last.megabytes < first.megabytes + 8
    print("flat" if flat else "NOT flat")
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main(*(int(word) if word.isdigit() else word for word in sys.argv[1:]))  # type: ignore[arg-type]
