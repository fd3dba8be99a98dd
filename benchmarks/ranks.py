"""The gain of more processes: torchrun beside one process, and ways to sum gradients.

    python benchmarks/ranks.py                              cartpole, 1 and 2 processes
    python benchmarks/ranks.py --env breakout --processes 4 --rounds 5

Training is `scripts/train_template.py` with the same global batch, alternately; the median
iteration of the best round counts. The sums are one backward pass and its exchange of gradients, by
one flat tensor as in `pufferlib.distributed` and by torch's DistributedDataParallel. All processes
run on this machine over gloo, so they only pay if each has cores of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bars import cpu_model, say

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = 3  # first iterations, which are not timed
SIZES = {"64 x 64": (64, 256), "256 x 256": (256, 1024)}  # hidden units, steps of a minibatch


def torchrun(processes: int, *words: str) -> list[str]:
    """Return a command that runs `words` in `processes` processes."""
    prefix = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return (
        [*prefix, f"--nproc_per_node={processes}", *words]
        if processes > 1
        else [sys.executable, *words]
    )


def run(command: list[str], threads: int) -> str:
    """Run to the end and return the output."""
    environ = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def training_rate(env: str, processes: int, iterations: int) -> float:
    """Return the steps per second of the median iteration of one training."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(ROOT / "scripts" / "train_template.py"), "--env-name", env, "--device", "cpu"]
        words += ["--num-iterations", str(iterations), "--checkpoint-dir", folder]
        words += ["--num-workers", "1"]
        run(torchrun(processes, *words), threads=1)
        log = Path(folder) / env / "metrics.jsonl"
        rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    rates: list[float] = [row["sps"] for row in rows if "sps" in row]
    return statistics.median(rates[SKIPPED:])


def exchange(rounds: int) -> None:
    """Time both ways of summing gradients; rank 0 prints the best of each, in seconds."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from pufferlib.distributed.world import join_world, leave_world

    world = join_world("cpu")
    torch.set_num_threads(1)
    best: dict[str, dict[str, float]] = {}
    for name, (width, batch) in SIZES.items():
        torch.manual_seed(0)
        nets = [
            nn.Sequential(
                nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                nn.Linear(width, 4),
            )
            for _ in range(2)
        ]  # fmt: skip
        rows = torch.randn(batch, 64)
        bucketed = DistributedDataParallel(nets[1])

        def flat(net: nn.Module = nets[0], rows: Any = rows) -> None:
            net.zero_grad()
            net(rows).square().mean().backward()
            world.sum_gradients(net.parameters())

        def ddp(net: nn.Module = bucketed, rows: Any = rows) -> None:
            net.zero_grad()
            net(rows).square().mean().backward()

        calls: dict[str, Callable[[], None]] = {"flat": flat, "DDP": ddp}
        best[name] = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for way, call in calls.items():
                start = time.perf_counter()
                for _ in range(20):
                    call()
                best[name][way] = min(best[name][way], (time.perf_counter() - start) / 20)
    if world.is_first:
        print(json.dumps(best))
    leave_world()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="compare torchrun with one process")
    parser.add_argument("--env", default="cartpole", metavar="NAME")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--iterations", type=int, default=30, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--exchange", type=int, metavar="ROUNDS", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.exchange:
        exchange(options.exchange)
        return 0
    rates = {1: 0.0, options.processes: 0.0}
    for _ in range(options.rounds):
        for processes in rates:
            rate = training_rate(options.env, processes, options.iterations)
            rates[processes] = max(rates[processes], rate)
            say(f"  {options.env}, {processes} process(es): {rate:,.0f} steps/s")
    output = run(torchrun(options.processes, __file__, "--exchange", "20"), threads=1)
    sums = json.loads(output.splitlines()[-1])
    ratio = rates[options.processes] / rates[1]
    if options.json:
        facts = {"rates": rates, "ratio": ratio, "sums": sums, "load": os.getloadavg()[0]}
        print(json.dumps({"env": options.env, "cpu": cpu_model(), **facts}))
        return 0
    say(f"\n{options.env}: {options.processes} processes are {ratio:.2f} times as fast as one")
    for name, ways in sums.items():
        shown = ", ".join(f"{way} {seconds * 1e6:.0f} us" for way, seconds in ways.items())
        say(f"backward and sum of gradients, {name}: {shown}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
