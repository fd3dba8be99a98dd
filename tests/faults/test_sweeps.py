"""Sweeps whose driver and trials are killed: `kill_sweeps.py` in short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")


@pytest.mark.slow
def test_no_result_is_lost_or_doubled_when_drivers_and_trials_are_killed() -> None:
    script = Path(__file__).parent / "kill_sweeps.py"
    command = [sys.executable, str(script), "--kills", "6", "--trials", "6", "--seed", "3"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=600)

    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 faults" in done.stdout
