"""Fixtures of the tests that need a clock they can turn."""

import time

import pytest
from boards import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock
