"""Training on several processes: the world of a torchrun, and sums over its members."""

__all__ = ["world"]
