"""Emulation: any environment as one that works in place.

A vector env steps rows: it hands an env its rows once (`bind`), then calls `reset` and `step`, and
finds observations, rewards, flags and masks where they belong. `as_rows` gives any env that form:
Gymnasium, PettingZoo (parallel and turn-based), legacy gym, and PufferEnvs of every kind. The
numbers are the env's own: same seed and same actions give the same rows. What an env returns is
checked in every step; a breach is an EnvError of one line, with the env's own traceback chained.
"""

from pufferlib.emulation.agents import ALL_AGENTS, AgentDicts, Parallel
from pufferlib.emulation.base import MASK_KEY, Emulated
from pufferlib.emulation.copies import creator_of
from pufferlib.emulation.finite import FiniteCheck
from pufferlib.emulation.inplace import InPlace
from pufferlib.emulation.kinds import as_rows, call_creator, create
from pufferlib.emulation.padding import PadAgents
from pufferlib.emulation.seeds import env_seed, undisturbed
from pufferlib.emulation.single import Gymnasium, SingleAgent
from pufferlib.emulation.turns import TurnBased

__all__ = [
    "ALL_AGENTS",
    "MASK_KEY",
    "AgentDicts",
    "Emulated",
    "FiniteCheck",
    "Gymnasium",
    "InPlace",
    "PadAgents",
    "Parallel",
    "SingleAgent",
    "TurnBased",
    "as_rows",
    "call_creator",
    "create",
    "creator_of",
    "env_seed",
    "undisturbed",
]
