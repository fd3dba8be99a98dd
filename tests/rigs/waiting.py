"""Tests wait for events. A deadline ends what would never come, and is no claim about speed."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Found = TypeVar("Found")

PATIENCE = 240.0  # seconds; a busy machine can take long to start a program


def wait_until(
    happened: Callable[[], Found],
    process: subprocess.Popen[Any] | None = None,
    patience: float = PATIENCE,
) -> Found:
    """Return the first true answer of `happened`.

    Without one after `patience` seconds the test fails; so it does when `process`, which is to make
    it happen, ends before.
    """
    deadline = time.monotonic() + patience
    while True:
        is_over = process is not None and process.poll() is not None
        if answer := happened():
            return answer
        if is_over:
            assert process is not None
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()}")
        assert time.monotonic() < deadline, f"not within {patience:g} s"
        time.sleep(0.005)


def slowness() -> float:
    """Return how many times longer work takes now than on an idle machine, at least 1."""
    start, worked = time.monotonic(), time.thread_time()
    while time.thread_time() - worked < 0.02:
        pass
    share = (time.monotonic() - start) / 0.02
    return max(1.0, share, os.getloadavg()[0] / (os.cpu_count() or 1))


def is_within(seconds: float, limit: float) -> bool:
    """Return whether something took less than `limit`, or would have, had the machine been idle."""
    return seconds < limit or seconds < limit * slowness()


@contextmanager
def watchdog(seconds: float = 300.0) -> Iterator[None]:
    """End the process, and show all stacks, if the block hangs: a run must not be endless."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
