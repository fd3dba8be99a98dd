"""Trainers whose options differ between two processes of a torchrun: OUT.RANK gets their errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pufferlib
from pufferlib.distributed.world import join_world
from pufferlib.errors import UsageError
from pufferlib.models import make_policy

# what rank 0 and rank 1 have
CASES: dict[str, tuple[Any, Any]] = {
    "learning_rate": (1e-3, 2e-3),
    "gamma": (0.99, 0.9),
    "seed": (1, 2),
    "n_epochs": (1, 2),
    "norm_obs": (False, True),
    "batch_size": (512, 100),  # 100 is wrong for itself too
    "slots": (8, 4),
    "policy": (16, 32),
    "dashboard": ("off", "auto"),  # each process may choose that
}


def main(out: str) -> None:
    rank = join_world("cpu").rank
    reported: dict[str, str] = {}
    for name, values in CASES.items():
        value = values[rank]
        settings = {"batch_size": 512, "dashboard": "off"}
        with pufferlib.make("cartpole", value if name == "slots" else 8, 1) as env:
            policy = make_policy(env, hidden_size=value if name == "policy" else 16)
            if name not in ("slots", "policy"):
                settings[name] = value
            try:
                pufferlib.PuffeRL(env, policy, device="cpu", **settings)
                reported[name] = ""
            except UsageError as error:
                reported[name] = str(error)
    Path(f"{out}.{rank}").write_text(json.dumps(reported))


if __name__ == "__main__":
    main(sys.argv[1])
