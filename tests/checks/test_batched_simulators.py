"""check_env plays one env of a simulator that steps whole batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from walks import WalkPool, make_walks, walks

import pufferlib
from pufferlib import check_env, registry
from pufferlib.vectorization.batched import SimulatorCreator, Sizes


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def test_a_sound_simulator_passes() -> None:
    pufferlib.register("walks", walks())
    assert check_env("walks", steps=100).findings == ()


def test_a_simulator_that_ignores_seeds_is_reported() -> None:
    def make(sizes: Sizes) -> Any:
        simulator = make_walks(sizes)
        rng = np.random.default_rng()
        simulator._make_pool = lambda seeds: WalkPool(rng.integers(9**9, size=len(seeds)), 1)
        return simulator

    pufferlib.register("walks", SimulatorCreator(make))
    report = check_env("walks", steps=100)
    assert any("same seed" in finding.text for finding in report.findings), report
