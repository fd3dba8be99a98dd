"""Policies: calling them, their outputs, acting, recurrent states, normalisation."""

__all__ = [
    "acting",
    "calling",
    "distributions",
    "normalisation",
    "observations",
    "outputs",
    "recurrent",
    "recurrent_wrapper",
    "squash",
]
