"""Spans add up, drains start again, and the monitor stays cheap and quiet."""

import math
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from pufferlib.training import profiling
from pufferlib.training.profiling import Profiler, SystemMonitor


class Clock:
    """Stands in for perf_counter: time passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(profiling, "perf_counter", clock)
    return clock


def test_spans_of_one_name_add_up(clock: Clock) -> None:
    profiler = Profiler()
    for seconds in (0.25, 0.5):
        with profiler("env"):
            clock.now += seconds
        clock.now += 10  # outside of any span
    with profiler("update"):
        clock.now += 2

    assert profiler.drain() == {"env": 0.75, "update": 2.0}


def test_time_measured_elsewhere_adds_to_a_span(clock: Clock) -> None:
    profiler = Profiler()
    with profiler("env"):
        clock.now += 1
    profiler.add("env", 0.5)
    profiler.add("forward", 0.25)

    assert profiler.drain() == {"env": 1.5, "forward": 0.25}


def test_drain_starts_again_from_zero_and_keeps_the_names(clock: Clock) -> None:
    profiler = Profiler()
    with profiler("env"):
        clock.now += 1
    profiler.drain()

    assert profiler.drain() == {"env": 0.0}


def test_a_span_inside_itself_counts_once(clock: Clock) -> None:
    profiler = Profiler()
    with profiler("env"):
        clock.now += 1
        with profiler("env"):
            clock.now += 1
        clock.now += 1

    assert profiler.drain() == {"env": 3.0}


def test_a_span_left_by_an_exception_is_counted_and_closed(clock: Clock) -> None:
    profiler = Profiler()

    def fail() -> None:
        with profiler("env"):
            clock.now += 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with profiler("env"):
        clock.now += 2

    assert profiler.drain() == {"env": 3.0}


def test_a_span_open_during_a_drain_is_counted_by_the_next(clock: Clock) -> None:
    profiler = Profiler()
    with profiler("env"):
        clock.now += 1
        assert profiler.drain() == {"env": 0.0}
        clock.now += 1

    assert profiler.drain() == {"env": 2.0}


def test_a_span_costs_microseconds_at_most() -> None:
    profiler = Profiler()
    count = 20_000
    start = time.thread_time()
    for _ in range(count):
        with profiler("one"):
            pass

    # About 0.5 us each on a slow core; CPU time, whatever else the machine does.
    assert (time.thread_time() - start) / count < 10e-6


def test_monitor_samples_at_most_once_per_interval(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def cpu_percent() -> float:
        asked.append(clock.now)
        return 42.0

    monkeypatch.setattr(psutil, "cpu_percent", cpu_percent)
    monitor = SystemMonitor(interval=1.0)
    asked.clear()  # the constructor starts psutil's own clock
    for _ in range(25):  # 0.125 .. 3.125 s after the start; samples at 0.125, 1.125, 2.125, 3.125
        clock.now += 0.125
        monitor.sample()

    assert asked == [100.125, 101.125, 102.125, 103.125]


def test_monitor_gives_cpu_in_percent_and_memory_in_megabytes(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "cpu_percent", lambda: 42.0)
    monitor = SystemMonitor()
    clock.now += 1

    sample = monitor.sample()

    assert sample["system/cpu"] == 42.0
    assert 5 < sample["system/memory"] < 100_000  # a Python process, in MB rather than bytes


def test_monitor_does_not_guess_the_cpu_load_of_a_moment(clock: Clock) -> None:
    monitor = SystemMonitor()
    clock.now += 0.01  # one tick of the kernel: any answer would be noise

    assert math.isnan(monitor.sample()["system/cpu"])


class FakeCuda:
    """The calls of torch.cuda that the monitor makes, for a device with 3 of 8 GB free."""

    def __init__(self, *, initialized: bool = True, nvml: bool = True) -> None:
        self.initialized = initialized
        self.nvml = nvml
        self.load_asked = 0

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.initialized

    def mem_get_info(self) -> tuple[int, int]:
        return 3_000_000_000, 8_000_000_000

    def utilization(self) -> int:
        self.load_asked += 1
        if not self.nvml:
            raise ModuleNotFoundError("pynvml")
        return 93


def gpu_sample(monkeypatch: pytest.MonkeyPatch, cuda: FakeCuda) -> dict[str, float]:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monitor = SystemMonitor(interval=0.0)
    monitor.sample()
    return {key: value for key, value in monitor.sample().items() if "gpu" in key}


def test_gpu_load_and_memory_are_sampled_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = gpu_sample(monkeypatch, FakeCuda())

    assert sample == {"system/gpu": 93.0, "system/gpu_memory": 5000.0}


def test_cuda_is_not_started_by_the_monitor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu_sample(monkeypatch, FakeCuda(initialized=False)) == {}


def test_gpu_load_is_asked_once_where_the_driver_cannot_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = FakeCuda(nvml=False)

    assert gpu_sample(monkeypatch, cuda) == {"system/gpu_memory": 5000.0}
    assert cuda.load_asked == 1


def test_monitor_does_not_import_torch() -> None:
    script = (
        "import sys; from pufferlib.training.profiling import SystemMonitor;"
        "SystemMonitor().sample();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
