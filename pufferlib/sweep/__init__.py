"""Sweeps: search for the options of a run by score and cost."""
