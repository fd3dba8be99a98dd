"""Small machines: an error before work starts says what is needed and what to do (R16)."""

from __future__ import annotations

import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty import NOTHING, Faulty, nothing_left
from gymnasium.spaces import Box
from waiting import watchdog

import pufferlib
from pufferlib import PuffeRL, system
from pufferlib.cli import main
from pufferlib.errors import UsageError
from pufferlib.models import make_policy
from pufferlib.system import check_policy
from pufferlib.vectorization import Multiprocessing, Threads
from pufferlib.vectorization.processes.channel import Channel

FORK: Any = {"start_method": "fork"}
RIGS = Path(__file__).resolve().parents[1] / "rigs"


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


# ---- File descriptors ----------------------------------------------------------------------------


@pytest.fixture
def descriptors() -> Iterator[Any]:
    """Let a test say how many more files may be opened, and up to how many."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))

    def allow(soft: int, hard: int | None = None) -> None:
        most = limits[1] if hard is None else used + hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + soft, most))

    yield allow
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[0], hard), hard))


def test_a_soft_limit_is_lifted(descriptors: Any) -> None:
    descriptors(20)
    with Multiprocessing(Faulty, 8, 8, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(NOTHING)


SCRIPT = """
import os, resource, sys, warnings
sys.path.insert(0, {tests!r})
warnings.simplefilter("ignore")
from faulty import Faulty
from pufferlib.errors import UsageError
from pufferlib.vectorization import Multiprocessing
most = len(os.listdir("/proc/self/fd")) + 40
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
try:
    Multiprocessing(Faulty, 64, 64)
except UsageError as error:
    print(error)
with Multiprocessing(Faulty, 64, 4) as vecenv:
    vecenv.reset(seed=0)
    vecenv.step(0)
"""


def test_a_launcher_with_many_workers_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow(Channel):
        """Holds few messages that are not read yet, as if there were hundreds of workers."""

        @staticmethod
        def pair() -> tuple[Channel, Channel]:
            ends = Channel.pair()
            for end in ends:
                end._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            return ends

    monkeypatch.setattr("pufferlib.vectorization.processes.launcher.Channel", Narrow)
    with watchdog(), Multiprocessing(Faulty, 24, 24, start_method="fork") as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(NOTHING)


def test_a_hard_limit_is_reported_with_the_numbers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(tests=str(RIGS))],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    line = done.stdout.strip()
    assert "\n" not in line
    assert line.startswith("workers need 144 file descriptors, but ")  # 2 x 64 + 16
    assert line.endswith(" are left. Try fewer workers, or `ulimit -n`.")


def test_descriptors_above_1023_are_as_good_as_others() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit[1] < 1200:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limit[0], 1200), limit[1]))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < 1050:
            held.append(os.dup(held[0]))
        with Multiprocessing(Faulty, 4, 2, **FORK) as vecenv:
            vecenv.reset(seed=0)
            vecenv.step(NOTHING)
    finally:
        for fd in held:
            os.close(fd)


# ---- Cores ---------------------------------------------------------------------------------------


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for /sys/fs/cgroup, with this process in `job/step` of it."""
    (tmp_path / "job" / "step").mkdir(parents=True)
    folders = [tmp_path / "job" / "step", tmp_path / "job", tmp_path]
    monkeypatch.setattr(system, "_CGROUP", tmp_path)
    monkeypatch.setattr(system, "_own_groups", lambda: folders)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    return tmp_path


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 16),
        ({"job/cpu.max": "max 100000"}, 16),
        ({"job/cpu.max": "400000 100000"}, 4),
        ({"job/step/cpu.max": "800000 100000", "job/cpu.max": "250000 100000"}, 2),
        ({"job/step/cpu.max": "150000 50000", "job/cpu.max": "max 100000"}, 3),
        ({"job/step/cpu.max": "20000 100000"}, 1),  # a fifth of a core is still one
        ({"job/cpu.max": "9900000 100000"}, 16),
        ({"cpu/cpu.cfs_quota_us": "600000", "cpu/cpu.cfs_period_us": "100000"}, 6),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
    ],
)
def test_a_quota_of_the_control_group_counts_as_cores(
    groups: Path, files: dict[str, str], cores: int
) -> None:
    for name, text in files.items():
        (groups / name).parent.mkdir(exist_ok=True)
        (groups / name).write_text(text + "\n")
    assert system.usable_cores() == cores


def test_the_real_files_are_read() -> None:
    assert 1 <= system.usable_cores() <= (os.cpu_count() or 1)
    assert 0 < system.available_memory() < 1e15


def test_a_quota_decides_the_number_of_workers_and_the_warning(groups: Path) -> None:
    (groups / "job" / "cpu.max").write_text("200000 100000\n")
    with Multiprocessing(Faulty, 8, **FORK) as vecenv:
        assert vecenv.num_workers == 2
        vecenv.reset(seed=0)
    with pytest.warns(UserWarning, match=r"3 workers share 2 cores"):
        Multiprocessing(Faulty, 3, 3, **FORK).close()
    with Threads("cartpole", 64) as threads:
        assert threads.num_workers == 2


def test_one_core_is_enough() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with Multiprocessing(Faulty, 4, **FORK) as vecenv:
            assert vecenv.num_workers == 1
        with pytest.warns(UserWarning, match="2 workers share 1 core"):
            vecenv = Multiprocessing(Faulty, 4, 2, **FORK)
        with vecenv:
            vecenv.reset(seed=0)
            for _ in range(50):
                vecenv.step(NOTHING)
            assert vecenv.observations[:, 0].tolist() == [50] * 4
    finally:
        os.sched_setaffinity(0, allowed)


# ---- Memory --------------------------------------------------------------------------------------


class Large(Faulty):
    """Observes a megabyte."""

    observation_space = Box(0, 1, (262_144,), np.float32)

    def _look(self) -> Any:
        return np.zeros(262_144, np.float32)


def test_too_little_memory_is_reported_before_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pufferlib.vectorization.processes.shared_memory.available_memory",
        lambda: 20e6,
        raising=True,
    )
    said = (
        r"^The rows of all envs need 33\.6 MB of shared memory, but 20\.0 MB are free\. "
        r"Try fewer envs\.$"
    )
    with pytest.raises(UsageError, match=said):
        Multiprocessing(Large, 16, 2, **FORK)  # observations, and final ones
    with Multiprocessing(Large, 8, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)


def test_a_full_memory_is_reported_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UsageError, match=r"MB are free \(No space left on device\)\. Try fewer"):
        Multiprocessing(Faulty, 4, 2, **FORK)


def test_the_limit_of_the_control_group_counts_without_its_file_cache(groups: Path) -> None:
    (groups / "job" / "memory.max").write_text("100000000\n")
    (groups / "job" / "memory.current").write_text("95000000\n")
    assert system.available_memory() == 5e6
    (groups / "job" / "memory.stat").write_text(
        "anon 20000000\nfile 75000000\nactive_file 30000000\ninactive_file 40000000\n"
    )
    assert system.available_memory() == 75e6


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--train.batch-size", str(2**62)], "the steps of a batch"),
        (["--train.batch-size", str(2**62), "--train.minibatch-size=3"], "the steps of a batch"),
        (["--vec.num-envs=2_000_000_000"], "the rows of all envs"),
        (["--policy.hidden-size=65536"], "the policy, its gradients"),
        (
            ["--policy.hidden-size=65536", "--policy.recurrent=transformer"],
            "the policy, its gradients",
        ),
        (["--policy.hidden-size=8192", "--policy.num-layers=1024"], "the policy, its gradients"),
    ],
)
def test_sizes_that_cannot_fit_are_reported_before_work(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--vec.num-envs=8", "--vec.num-workers=1", f"--train.run-dir={tmp_path}"]
    assert main(["train", "squared", *small, "--train.device=cpu", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    flag = words[0].partition("=")[0]  # in the words of the user
    assert re.fullmatch(
        rf"puffer: {what}.* must fit into memory, but need [\d,]+ MB and [\d,]+ MB are available\. "
        rf"Try a smaller `{flag}`\.\n",
        err,
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "multiprocessing", "auto"])
def test_millions_of_python_envs_are_reported_after_the_first_few(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # one takes 11 kB: 30 million take 330 GB, and 9000 seconds of creating
    said = (
        r"30,000,000 envs must fit into memory, but need [\d,]+ MB and [\d,]+ MB are available\. "
        r"Try a smaller `(--vec.num-envs|num_envs)`\."
    )
    start = time.process_time()
    with pytest.raises(UsageError, match=f"^{said}$"):
        pufferlib.make("gym-CartPole-v1", num_envs=30_000_000, backend=backend)
    words = ["--vec.num-envs=30_000_000", f"--vec.backend={backend}", f"--train.run-dir={tmp_path}"]
    assert main(["train", "gym-CartPole-v1", *words]) == 2
    assert re.search(f"^puffer: {said}$", capsys.readouterr().err, re.MULTILINE)
    assert not list(tmp_path.iterdir())
    assert time.process_time() - start < 200


class Pixels(Faulty):
    """Observes a picture, of which it keeps nothing."""

    observation_space = Box(0, 255, (84, 84, 4), np.uint8)


@pytest.mark.parametrize("backend", ["serial", "multiprocessing"])
def test_rows_of_too_many_python_envs_are_reported_after_the_first(backend: str) -> None:
    created: list[int] = []

    def creator() -> Any:
        created.append(1)
        return Pixels()

    with pytest.raises(UsageError, match=r"^the rows of all envs must fit into memory, but need"):
        pufferlib.emulate(
            creator, 30_000_000, backend=backend, vec=FORK if backend[0] == "m" else {}
        )
    assert len(created) <= 1  # in this process


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_envs": 2**62},
        {"num_envs": 2**62, "backend": "multiprocessing"},
        {"num_envs": 2**62, "num_workers": 2**62},
        {"num_workers": 2**31, "envs_per_worker": 2**31},
        {"num_envs": 4, "vec": {"mode": "async", "surplus_envs": 2**62}},
    ],
)
def test_numbers_of_envs_and_workers_beyond_any_machine_are_reported_at_once(sizes: Any) -> None:
    with pytest.raises(UsageError, match=r"must fit into memory|must be at most 65,536 workers"):
        pufferlib.make("gym-CartPole-v1", **sizes)


def forecast(
    monkeypatch: pytest.MonkeyPatch, used: Callable[[int], int], here: int, total: int
) -> int | None:
    """Make envs until they are refused, and return how many those are; memory has a gigabyte."""
    made = 0
    monkeypatch.setattr(system, "_own_memory", lambda: used(made))
    monkeypatch.setattr(system, "available_memory", lambda: 1e9 - used(made) * total / here)
    watch = system.MemoryForecast(here, total)
    for made in range(1, here + 1):
        try:
            watch.note(made)
        except UsageError:
            return made
    return None


@pytest.mark.parametrize(
    ("used", "here", "total", "refused"),
    [
        # 10 kB each. Two doublings must show more than 256 kB: 64 envs, up to the 128th, are
        # (64 x 10 kB - 262 kB) / 64 = 5.9 kB each, the 32 before 1.8 kB; 1.8 kB x 1M is too much
        (lambda made: 10_000 * made, 1_000_000, 1_000_000, 128),
        (lambda made: 10_000 * made, 500_000, 1_000_000, 128),  # by two processes
        (lambda made: 10_000 * made, 90_000, 90_000, None),  # 0.9 GB
        (lambda made: 10_000_000 * made, 200, 200, 4),
        (lambda made: 10_000_000 * made, 99, 99, None),
        # the second env loads 0.5 GB that all share
        (lambda made: 500_000_000 * (made > 1) + 1000 * made, 400_000, 400_000, None),
        (lambda made: 500_000_000 * (made > 2) + 1000 * made, 400_000, 400_000, None),
    ],
)
def test_the_growth_of_two_doublings_decides_whether_envs_fit(
    used: Callable[[int], int],
    here: int,
    total: int,
    refused: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert forecast(monkeypatch, used, here, total) == refused


def test_a_batch_beyond_what_is_left_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pufferlib.system.available_memory", lambda: 1e6)
    with pufferlib.make("cartpole", num_envs=8, num_workers=1) as env:
        # 4 floats of observation, an action of 4 or 8 bytes and 20 bytes: 40 to 44 a step
        PuffeRL(env, batch_size=16_000, device="cpu", dashboard="off")
        with pytest.raises(UsageError, match=r"the steps of a batch must fit into memory"):
            PuffeRL(env, batch_size=32_000, device="cpu", dashboard="off")


@pytest.mark.parametrize("recurrent", ["none", "lstm", "gru", "mingru", "transformer"])
def test_the_size_of_a_large_policy_is_reported_by_small_ones(recurrent: str) -> None:
    with pufferlib.make("squared", num_envs=1, num_workers=1) as env:

        def count_bytes(hidden_size: int) -> int:
            policy = make_policy(env, hidden_size=hidden_size, recurrent=recurrent)
            return sum(part.nbytes for part in policy.parameters())

        size = count_bytes(512)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(system, "available_memory", lambda: float(size))
            check_policy(count_bytes, 512, copies=1)
            patch.setattr(system, "available_memory", lambda: float(size - 1))
            with pytest.raises(UsageError, match="must fit into memory"):
                check_policy(count_bytes, 512, copies=1)


# ---- Home, display, folder -----------------------------------------------------------------------


def test_neither_a_home_nor_a_display_nor_a_folder_is_needed(tmp_path: Path) -> None:
    script = """
import os, sys
sys.path.insert(0, {tests!r})
folder = os.path.join({tmp!r}, "gone")
os.mkdir(folder)
os.chdir(folder)
os.rmdir(folder)
import pufferlib
from faulty import Faulty
from pufferlib.vectorization import Multiprocessing
for method in ("forkserver", "fork"):
    with Multiprocessing(Faulty, 2, 2, start_method=method) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(0)
with pufferlib.make("breakout", num_envs=2, num_workers=1) as vecenv:
    vecenv.reset(seed=0)
    print(vecenv.render(0).shape[2])
"""
    clean = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "HOME")}
    done = subprocess.run(
        [sys.executable, "-c", script.format(tests=str(RIGS), tmp=str(tmp_path))],
        env={**clean, "HOME": "/proc/1/nowhere"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3\n"
