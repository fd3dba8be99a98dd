"""Emulation: any environment as one that works in place.

A vector env hands each env its rows of the batch once (`bind`), then calls `reset` and `step`, and
finds observations, rewards, flags and masks in those rows. `adapt` gives any env that form:
Gymnasium, PettingZoo (parallel and AEC), legacy gym, and PufferEnvs of every form. The numbers are
the env's own: the same seed and actions give the same rows. What an env returns is checked in
every step; a broken contract is an EnvError of one line, with the env's own traceback chained.
"""

from pufferlib.emulation.agent_dicts import ALL_AGENTS, Aec, AgentDicts, Parallel
from pufferlib.emulation.base import MASK_KEY, Emulated
from pufferlib.emulation.creation import adapt, call_creator, create, creator_of, env_seed
from pufferlib.emulation.in_place import InPlace
from pufferlib.emulation.inspection import name_of, undisturbed
from pufferlib.emulation.padding import PadAgents
from pufferlib.emulation.single_agent import Gymnasium, SingleAgent, env_loop

__all__ = [
    "ALL_AGENTS",
    "MASK_KEY",
    "Aec",
    "AgentDicts",
    "Emulated",
    "Gymnasium",
    "InPlace",
    "PadAgents",
    "Parallel",
    "SingleAgent",
    "adapt",
    "call_creator",
    "create",
    "creator_of",
    "env_loop",
    "env_seed",
    "name_of",
    "undisturbed",
]
