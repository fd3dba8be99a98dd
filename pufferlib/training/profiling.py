"""Profiling: wall-clock time of named spans of the loop, and load of the machine."""

import math
import sys
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import TypeAlias

import psutil

MEGABYTE = 1e6
PROGRESS_SECONDS = 0.25  # between two reports

# Gets what an iteration does ("collecting"), how much is done, how much there is, and of what.
OnProgress: TypeAlias = Callable[[str, int, int, str], None]


class Span:
    """Adds up the wall-clock time spent inside its `with` blocks. Handed out by Profiler."""

    __slots__ = ("_depth", "_start", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:  # a span inside itself counts once
            self._start = perf_counter()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += perf_counter() - self._start


class Profiler:
    """Seconds per named span: `with profiler("env"): ...`, then `drain()` once an iteration.

    Spans of different names may nest; the inner time then counts in both, so spans that shall add
    up to the whole must not nest. Work queued on a GPU is counted where the host waits for it. For
    one thread only.
    """

    __slots__ = ("_next", "_on_progress", "_spans")

    def __init__(self, on_progress: OnProgress | None = None) -> None:
        self._spans: defaultdict[str, Span] = defaultdict(Span)
        self._on_progress, self._next = on_progress, 0.0

    def __call__(self, name: str) -> Span:
        return self._spans[name]

    def add(self, name: str, seconds: float) -> None:
        """Add time that was measured elsewhere."""
        self._spans[name].seconds += seconds

    def progress(self, doing: str, done: int, total: int, unit: str) -> None:
        """Report progress within an iteration, which only slow ones show: 4 times a second.

        What the report raises ends the iteration, so call it where that is sound.
        """
        if self._on_progress is not None and perf_counter() >= self._next:
            self._next = perf_counter() + PROGRESS_SECONDS
            self._on_progress(doing, done, total, unit)

    def drain(self) -> dict[str, float]:
        """Seconds per span since the last drain, and start again from zero.

        Every name ever used is present (0.0 if idle), in order of first use. A block that is still
        open is counted as a whole by the drain after its end.
        """
        seconds = {}
        for name, span in self._spans.items():
            seconds[name] = span.seconds
            span.seconds = 0.0
        return seconds


class SystemMonitor:
    """How busy the machine is, sampled at most once per `interval` seconds.

    `sample()` can be called every iteration: between two samples it returns the last one. Torch is
    asked about CUDA only if the program has imported it and is using CUDA already.
    """

    def __init__(self, interval: float = 1.0) -> None:
        self._process = psutil.Process()
        self._interval = interval
        self._sampled_at = -math.inf
        self._sample: dict[str, float] = {}
        self._ask_gpu_load = True
        psutil.cpu_percent()  # starts the clock: each call measures the time since the one before
        self._cpu_since = perf_counter()

    def sample(self) -> dict[str, float]:
        """Return `system/cpu` (percent of all cores) and `system/memory` (MB, this process).

        With CUDA also `system/gpu_memory` (MB in use on the device, by all processes) and, where
        the driver supports it, `system/gpu` (percent). The dict is a copy.
        """
        now = perf_counter()
        if now - self._sampled_at >= self._interval:
            self._sampled_at = now
            self._sample = {
                "system/cpu": self._cpu(now),
                "system/memory": self._process.memory_info().rss / MEGABYTE,
                **self._gpu(),
            }
        return dict(self._sample)

    def _cpu(self, now: float) -> float:
        if now - self._cpu_since < 0.1:  # too few of the kernel's ticks of 10 ms
            return math.nan
        self._cpu_since = now
        return float(psutil.cpu_percent())

    def _gpu(self) -> dict[str, float]:
        torch = sys.modules.get("torch")
        # A query to an idle CUDA would create its context, hundreds of MB.
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return {}
        free, total = torch.cuda.mem_get_info()
        sample = {"system/gpu_memory": (total - free) / MEGABYTE}
        if self._ask_gpu_load:
            try:
                sample["system/gpu"] = float(torch.cuda.utilization())
            except Exception:  # the NVML binding is missing or broken, and stays so
                self._ask_gpu_load = False
        return sample
