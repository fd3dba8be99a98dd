"""The family `magent-`: battles of MAgent2, with up to hundreds of agents."""

from __future__ import annotations

from typing import Any

from pufferlib.emulation import PadAgents
from pufferlib.integrations.packages import extra, is_installed, require
from pufferlib.integrations.pettingzoo import Creator, modules_in, newest_of
from pufferlib.registry import EnvSpec, plain

PREFIX = "magent-"
_SUITES = ("magent2.environments",)


class PaddedCreator(Creator):
    """Makes envs of one module; teams with different spaces are padded to the larger ones."""

    def __call__(self, num_agents: int | None = None, **params: Any) -> Any:
        env = super().__call__(num_agents, **params)
        ids = env.possible_agents
        spaces = {(str(env.observation_space(id)), str(env.action_space(id))) for id in ids}
        return env if len(spaces) == 1 else PadAgents(env)


def find(name: str) -> EnvSpec:
    """Return the env of a name, with a version (`battle-v4`) or without."""
    require(PREFIX + name, "magent2", extra("magent"))
    newest = newest_of(name, modules_in(_SUITES, PREFIX), names())
    return EnvSpec(newest.id, PaddedCreator(newest, extra("magent")), family="magent")


def names() -> list[str]:
    """Return the bare names of installed envs."""
    present = modules_in(_SUITES, PREFIX) if is_installed("magent2") else []
    return list(dict.fromkeys(PREFIX + plain(found.name) for found in present))
