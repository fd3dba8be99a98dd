"""Seeds: one for each env of a vector, and a look at an env that leaves no trace in generators."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def env_seed(seed: int, index: int) -> int:
    """Return the seed of Python env `index`; env 0 gets `seed` itself.

    The others get numbers below 2**32, which old generators take too, all different.
    """
    if index == 0:
        return seed
    state = np.random.SeedSequence(seed).generate_state(1)[0]
    derived = (int(state) + index * 0x9E3779B1) % 2**32  # odd: no two indices collide
    return int(state) if derived == seed else derived


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put the global generators back: a look at an env must not change what it does next."""
    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
