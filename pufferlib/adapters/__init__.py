"""Adapters out: our environments for code written for Gymnasium, Stable-Baselines3 or PettingZoo.

`to_gymnasium` and `to_sb3` take a vector env, with one row for each agent; `to_pettingzoo` and
`GymnasiumEnv` take a single env. The numbers are those of the vector env, step by step. Everything
an adapter returns is a copy and belongs to the caller. Closing an adapter closes its env.
"""

from pufferlib.adapters.gymnasium import (
    GymnasiumEnv,
    GymnasiumVectorEnv,
    make_gymnasium_vec,
    to_gymnasium,
)
from pufferlib.adapters.pettingzoo import to_pettingzoo
from pufferlib.adapters.sb3 import to_sb3

__all__ = [
    "GymnasiumEnv",
    "GymnasiumVectorEnv",
    "make_gymnasium_vec",
    "to_gymnasium",
    "to_pettingzoo",
    "to_sb3",
]
