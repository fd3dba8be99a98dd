"""Policies: what one may return, how it is called, how it acts, what it remembers."""

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
