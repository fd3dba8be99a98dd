"""Policies: what one may return, how it is called, how it samples, what it remembers."""

__all__ = [
    "calling",
    "distributions",
    "normalisation",
    "observations",
    "recurrent",
    "recurrent_wrapper",
]
