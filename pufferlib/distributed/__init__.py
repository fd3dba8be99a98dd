"""Training on several processes: the processes of a torchrun, and sums over them."""

__all__ = ["world"]
