"""Options of a run that is over in no time, and where it is."""

from __future__ import annotations

from pathlib import Path

TINY = [
    "--train.num-iterations=3",
    "--train.batch-size=256",
    "--train.n-epochs=1",
    "--train.device=cpu",
    "--train.dashboard=off",
    "--vec.num-envs=8",
    "--vec.num-workers=1",
    "--policy.hidden-size=8",
]


def only_run(folder: str = "runs") -> Path:
    (run,) = Path(folder).iterdir()
    return run
