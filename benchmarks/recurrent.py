"""Our recurrent layers beside torch's: a step of a rollout, and segments forwards and backwards.

    python benchmarks/recurrent.py                      LSTM, GRU, MinGRU and transformer of 128
    python benchmarks/recurrent.py --batches 1 64 1024 --threads 2 --json recurrent.json

All run alternately, and the best of `--rounds` counts; with one thread it is the CPU time, which
other programs disturb less. A step is that of a batch of slots without gradients, as in a
rollout. Segments hold 32 steps, and an episode ends in 3 % of them; torch's fused layers do
not support that, so they run without ends, as a reference.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pufferlib import native
from pufferlib.policies.recurrent import make_core, reset_state

HORIZON, SHARE = 32, 0.03
OURS = ("lstm", "gru", "mingru", "transformer")


def best_seconds(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Run all alternately; return the best time of each."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            call()
            best[name] = min(best[name], clock() - start)
    return best


def steps(batch: int, width: int) -> dict[str, Callable[[], Any]]:
    """Return one step of each, from an existing recurrent state."""
    features = torch.randn(batch, width)
    layers, cell = nn.LSTM(width, width), nn.LSTMCell(width, width)
    hidden = torch.zeros(batch, width)
    layered = (hidden.unsqueeze(0), hidden.unsqueeze(0))
    calls: dict[str, Callable[[], Any]] = {
        "nn.LSTM": lambda: layers(features.unsqueeze(0), layered),
        "nn.LSTMCell": lambda: cell(features, (hidden, hidden)),
    }
    for name in OURS:
        core = make_core(name, width, width)
        state = core.step(features, None)[1]
        calls[name] = lambda core=core, state=state: core.step(features, state)  # type: ignore[misc]
    return calls


def segments(count: int, width: int) -> dict[str, Callable[[], Any]]:
    """Return a pass forwards and backwards over segments."""
    features = torch.randn(count, HORIZON, width)
    resets = torch.rand(count, HORIZON) < SHARE
    layers = nn.LSTM(width, width, batch_first=True)
    cell = nn.LSTMCell(width, width)

    def unrolled() -> Tensor:
        state: Any = (torch.zeros(count, width), torch.zeros(count, width))
        outputs = []
        for t in range(HORIZON):
            state = cell(features[:, t], reset_state(state, resets[:, t]))
            outputs.append(state[0])
        return torch.stack(outputs, 1)

    def both(forward: Callable[[], Tensor]) -> Callable[[], None]:
        return lambda: forward().square().sum().backward()  # type: ignore[no-untyped-call]

    calls = {
        "nn.LSTM, no ends": both(lambda: layers(features)[0]),
        "nn.LSTMCell, unrolled": both(unrolled),
    }
    for name in OURS:
        core = make_core(name, width, width)
        calls[name] = both(lambda core=core: core.sequence(features, None, resets)[0])  # type: ignore[misc]
    return calls


def report(title: str, rows: int, best: dict[str, float], mark: str) -> dict[str, Any]:
    print(f"\n{title}")
    for name, seconds in best.items():
        rate, ratio = rows / seconds, best[mark] / seconds
        print(f"  {name:22} {1e6 * seconds:10.0f} us {rate:14,.0f} steps/s {ratio:6.2f}x")
    return {"what": title, "rows": rows, "seconds": best, "mark": mark}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 256, 1024])
    parser.add_argument("--segments", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    native.keep_memory()  # as a trainer does
    results = []
    with torch.no_grad():
        for batch in given.batches:
            best = best_seconds(steps(batch, given.width), given.rounds)
            results.append(report(f"one step of {batch} slots", batch, best, "nn.LSTM"))
    best = best_seconds(segments(given.segments, given.width), max(3, given.rounds // 5))
    title = f"{given.segments} segments of {HORIZON} steps, with gradients"
    results.append(report(title, given.segments * HORIZON, best, "nn.LSTMCell, unrolled"))
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
