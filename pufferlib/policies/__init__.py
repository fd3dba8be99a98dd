"""Policies: calling them, their outputs, acting, recurrent states, normalisation."""

__all__ = [
    "acting",
    "distributions",
    "hooks",
    "normalisation",
    "observations",
    "recurrent",
    "recurrent_wrapper",
    "squash",
]
