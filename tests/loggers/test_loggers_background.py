"""A backend that blocks, fails or is slow can lose its own entries, but never slows the run."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from waiting import PATIENCE, is_within, wait_until

from pufferlib.errors import MissingExtraError
from pufferlib.loggers import BackgroundLogger, Logger, SafeLogger
from pufferlib.loggers.background import load


class Backend(BackgroundLogger):
    """Keeps what it is caught, and where. `gate` closed: the backend blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.calls: list[str] = []
        self.threads: set[int] = set()

    def _open(self) -> None:
        self.calls.append("open")
        self.threads.add(threading.get_ident())

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        self.threads.add(threading.get_ident())
        self.gate.wait(PATIENCE)
        self.rows.append((step, dict(metrics)))

    def _finish(self) -> None:
        self.calls.append("finish")
        self.threads.add(threading.get_ident())


def steps(backend: Backend) -> list[int]:
    return [step for step, _ in backend.rows]


def test_one_other_thread_writes_the_entries_in_order() -> None:
    backend = Backend()
    for step in range(100):
        backend.log({"sps": step / 2}, step)
    backend.close()

    assert backend.rows == [(step, {"sps": step / 2}) for step in range(100)]
    assert backend.calls == ["open", "finish"]
    assert len(backend.threads) == 1
    assert threading.get_ident() not in backend.threads
    assert isinstance(backend, Logger)


def test_an_entry_is_a_copy_of_plain_numbers() -> None:
    backend = Backend()
    backend.gate.clear()
    metrics = {"a": np.float32(0.5), "b": 3}
    backend.log(metrics, np.int64(7))  # type: ignore[arg-type]
    metrics["b"] = 4  # the caller's again
    backend.gate.set()
    backend.close()

    ((step, row),) = backend.rows
    assert (step, row) == (7, {"a": 0.5, "b": 3})
    assert [type(value) for value in (step, *row.values())] == [int, float, int]


def test_a_logger_without_entries_opens_nothing() -> None:
    before = threading.active_count()
    with Backend() as backend:
        assert threading.active_count() == before

    assert backend.calls == []


def test_no_thread_is_left_after_closing() -> None:
    before = threading.active_count()
    for step in range(20):
        with Backend() as backend:
            backend.log({}, step)

    assert threading.active_count() == before


def test_log_never_waits_for_a_backend_that_blocks() -> None:
    backend = Backend()
    backend.gate.clear()
    for step in range(backend.backlog):
        backend.log({f"metric/{i}": 1.0 for i in range(40)}, step)
    assert backend.rows == []  # the gate is still closed: no `log` waited for a written row
    backend.gate.set()
    backend.close()

    assert steps(backend) == list(range(backend.backlog))
    assert backend.dropped == 0


def test_a_full_backlog_drops_the_oldest_entries_with_one_warning() -> None:
    backend = Backend()
    backend.backlog = 3
    backend.gate.clear()
    backend.log({}, 0)
    wait_until(lambda: not backend._entries)  # the backend hangs in entry 0
    for step in range(1, 4):
        backend.log({}, step)
    with pytest.warns(RuntimeWarning, match="Backend cannot keep up: over 3 entries wait"):
        backend.log({}, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(5, 9):
            backend.log({}, step)
    backend.gate.set()
    backend.close()

    assert steps(backend) == [0, 6, 7, 8]
    assert backend.dropped == 5


def test_close_gives_up_after_its_patience_and_counts_the_missing_entries() -> None:
    backend = Backend()
    backend.patience = 0.1
    backend.gate.clear()
    for step in range(3):
        backend.log({}, step)
    wait_until(lambda: len(backend._entries) == 2)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"2 entries wait after 0\.1 s"):
        backend.close()
    assert time.monotonic() - start >= 0.1
    assert not backend.gate.is_set()  # it did not wait for the backend
    backend.close()  # a second call does nothing

    backend.gate.set()  # the thread goes on: what the backend takes late is not lost
    wait_until(lambda: backend.calls == ["open", "finish"])
    assert steps(backend) == [0, 1, 2]


def test_several_hanging_backends_are_closed_at_the_same_time() -> None:
    backends = [Backend() for _ in range(4)]
    for backend in backends:
        backend.patience = 2.0
        backend.gate.clear()
        backend.log({}, 0)
    logger = SafeLogger(backends)
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match="Backend failed to close.*TimeoutError") as caught:
        logger.close()
    elapsed = time.monotonic() - start
    for backend in backends:
        backend.gate.set()

    assert len(caught) == 4
    assert elapsed >= 2
    assert is_within(elapsed, 6)  # one after the other would be 8


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SystemExit(1)])
def test_a_failing_backend_costs_one_warning_and_the_others_continue(
    error: BaseException,
) -> None:
    class Broken(Backend):
        def _write(self, metrics: Mapping[str, float], step: int) -> None:
            raise error

    broken, working = Broken(), Backend()
    logger = SafeLogger([broken, working])
    logger.log({}, 1)
    wait_until(lambda: broken._failure is not None)
    with pytest.warns(RuntimeWarning, match="Broken failed at step 2 and is skipped") as caught:
        logger.log({}, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.log({}, 3)
        logger.close()

    assert len(caught) == 1
    assert broken.calls == ["open", "finish"]  # it was closed, as far as it could be
    assert steps(working) == [1, 2, 3]


def test_a_backend_that_cannot_be_opened_fails_like_one_that_cannot_write() -> None:
    class Unreachable(Backend):
        def _open(self) -> None:
            raise ConnectionError("no network")

    backend = Unreachable()
    backend.log({}, 1)
    with pytest.raises(ConnectionError, match="no network"):
        backend.close()

    assert backend.calls == []  # what was never opened is not finished


def test_logging_after_close_raises() -> None:
    backend = Backend()
    backend.close()
    with pytest.raises(RuntimeError, match="Backend is closed"):
        backend.log({}, 1)


def test_a_script_that_never_closes_keeps_its_last_entries(tmp_path: Path) -> None:
    script = """
import sys, threading, time
from pufferlib.loggers import BackgroundLogger

begun = threading.Event()
class Slow(BackgroundLogger):
    def _open(self): self.file = open(sys.argv[1], "w")
    def _write(self, metrics, step):
        begun.set()
        time.sleep(0.02)
        self.file.write(f"{step}\\n")
    def _finish(self): self.file.close()

logger = Slow()
for step in range(10):
    logger.log({}, step)
begun.wait()
"""
    path = tmp_path / "rows.txt"
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=PATIENCE)

    assert path.read_text().split() == [str(step) for step in range(10)]


def test_a_missing_package_is_one_line_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it could not be found
    with pytest.raises(MissingExtraError) as caught:
        load("wandb", "WandbLogger")

    assert str(caught.value) == "`WandbLogger` needs wandb: pip install 'pufferlib[wandb]'"


def test_a_folder_of_runs_is_not_taken_for_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_such_package" / "offline-run-1").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)  # as the folder of the user's script is

    with pytest.raises(MissingExtraError, match="needs no_such_package"):
        load("no_such_package", "WandbLogger")
