"""The random numbers of the C core, so that a twin of an env can draw the same ones."""

from __future__ import annotations

BITS = (1 << 64) - 1


def mix(x: int) -> int:
    """Return the finaliser of splitmix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & BITS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & BITS
    return x ^ (x >> 31)


class Rng:
    """The stream of env `index` after `reset(seed)`."""

    def __init__(self, seed: int, index: int) -> None:
        if index:
            seed = mix(mix(seed + 0x9E3779B97F4A7C15 & BITS) + index * 0xD1B54A32D192ED03 & BITS)
        self.state = mix((seed & BITS >> 1) + 1)

    def bits(self) -> int:
        """Return the next 64 bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & BITS
        return mix(self.state)

    def below(self, n: int) -> int:
        """Return a number in 0..n-1, as puf_rand_int does."""
        return (self.bits() >> 32) * n >> 32

    def uniform(self) -> float:
        """Return a number in [0, 1), as puf_rand does."""
        return (self.bits() >> 40) / (1 << 24)
