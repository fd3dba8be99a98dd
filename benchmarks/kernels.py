"""The kernels of the native engine beside torch's matrix product, both on one core.

    python benchmarks/kernels.py

prints, for every set of kernels that this CPU runs, the arithmetic of a forward pass through eight
dense layers over that of torch.mm on [8192, width] x [width, width], in GFLOP/s. Calls take well
under a millisecond and the best of many counts, so a busy machine disturbs little.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

import numpy as np
import torch

from pufferlib import native

WIDTHS, LAYERS, ROWS = (64, 128, 256), 8, 192  # the engine keeps so few rows on one thread
CALLS = 2000
NO_ARRAYS = ("action_masks", "state", "next_state", "actions", "env_actions", "logprobs")


def best_seconds(call: Callable[[], object], calls: int = CALLS) -> float:
    """Return the time of the fastest call."""
    best = math.inf
    for _ in range(calls):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def kernel_gflops(name: str, width: int) -> float:
    """Return the rate of a set of kernels: products, biases and ReLUs of all layers."""
    os.environ["PUFFER_KERNELS"] = name
    none = np.zeros(0, np.float32)
    engine = native.make_engine(
        num_threads=1,
        obs_dtype="float32",
        obs_size=width,
        **dict.fromkeys(("low", "factor", "lowest", "highest", "offset")),
        table_rows=0,
        widths=[width] * LAYERS,
        activation="relu",
        separate=False,
        core="none",
        core_width=0,
        nvec=[2],
        squash=False,
        **dict.fromkeys(("center", "scale", "action_low", "action_high"), none),
        bounded=np.zeros(0, np.uint8),
    )
    shapes = [(width, width), (width,)] * LAYERS + [(2, width), (2,), (1, width), (1,)]
    rng = np.random.default_rng(0)
    params = [rng.normal(0, width**-0.5, shape).astype(np.float32) for shape in shapes]
    engine.bind_params(params, [], [], None)
    engine.pack()
    observations, values = np.ones((ROWS, width), np.float32), np.empty(ROWS, np.float32)

    def forward() -> None:
        engine.act(
            observations=observations,
            key=0,
            first_slot=0,
            counter=0,
            values=values,
            **dict.fromkeys(NO_ARRAYS),
        )

    return 2 * ROWS * LAYERS * width**2 / best_seconds(forward) * 1e-9


def torch_gflops(width: int) -> float:
    """Return the rate of torch's matrix product."""
    a, b, out = torch.ones(8192, width), torch.ones(width, width), torch.empty(8192, width)
    seconds = best_seconds(lambda: torch.mm(a, b, out=out), CALLS // 4)
    return 2 * 8192 * width**2 / seconds * 1e-9


def main() -> None:
    """Print a line for each width."""
    torch.set_num_threads(1)
    for width in WIDTHS:
        rates = {name: kernel_gflops(name, width) for name in native.kernel_sets()}
        product = torch_gflops(width)
        parts = [f"{name} {rate:.0f} ({rate / product:.2f})" for name, rate in rates.items()]
        print(f"{width:>4} wide: torch.mm {product:.0f} GFLOP/s, {', '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
