"""Policies for particular kinds of observations, a file each.

`policy.network` selects one by its name in `config.NETWORKS`. A network has the arguments and heads
of the default policies in `pufferlib.models`.
"""
