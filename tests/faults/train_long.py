"""Trains for thousands of iterations: memory, files and threads must stay flat.

python tests/faults/train_long.py [ITERATIONS=10000] [CASE=mlp]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rigs"))

from make_and_close import Use

import pufferlib
from pufferlib.models import make_policy

NUM_ENVS, HORIZON = 8, 8


# Envs and policy in C, or one call in C for each step; with a recurrent state, or without.
CASES = {
    "mlp": {"recurrent": "none", "double_buffer": False},
    "lstm": {"recurrent": "lstm", "double_buffer": False},
    "stepwise": {"recurrent": "lstm", "double_buffer": True},
}


def run(iterations: int, folder: Path, case: str, every: int = 0) -> tuple[Use, Use]:
    """Return what is held after a tenth of the iterations, and after all; saves every hundred."""
    first: Use | None = None
    with (
        pufferlib.make(
            "cartpole",
            num_envs=NUM_ENVS,
            num_workers=1,
            vec={"double_buffer": CASES[case]["double_buffer"]},
        ) as vecenv,
        pufferlib.PuffeRL(
            vecenv,
            make_policy(vecenv, hidden_size=16, recurrent=CASES[case]["recurrent"]),
            logger=[pufferlib.JsonlLogger(folder / "metrics.jsonl")],
            batch_size=NUM_ENVS * HORIZON,
            num_steps=HORIZON,
            n_epochs=1,
            num_iterations=iterations,
            norm_obs=True,
            norm_reward=True,
            device="cpu",
            dashboard="off",
            engine="native",
        ) as trainer,
    ):
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            trainer.mean_and_log()
            if trainer.iteration % 100 == 0:
                trainer.save_checkpoint(folder / "latest.safetensors")
            if first is None and trainer.iteration >= iterations // 10:
                first = Use.now()
            if every and trainer.iteration % every == 0:
                print(trainer.iteration, Use.now(), flush=True)
        assert first is not None
        return first, Use.now()


def main(iterations: int = 10_000, case: str = "mlp") -> None:
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        first, last = run(iterations, Path(folder), case, every=max(1, iterations // 10))
    print(f"{case}: {iterations} iterations in {time.monotonic() - start:.0f} s")
    print(f"after {iterations // 10}: {first}\nafter {iterations}: {last}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    flat = last[:4] == first[:4] and last.megabytes < first.megabytes + 8
    print("flat" if flat else "NOT flat")
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main(*(int(word) if word.isdigit() else word for word in sys.argv[1:]))  # type: ignore[arg-type]
