"""The family `openspiel-`: games of OpenSpiel, one player after the other, through shimmy."""

from __future__ import annotations

from typing import Any

from pufferlib.integrations.chosen import ChosenFamily
from pufferlib.integrations.packages import extra, imported


def make(game: str, **params: Any) -> Any:
    """Return a game; `params` are OpenSpiel's own, such as `board_size` of `hex`."""
    shimmy = imported(f"openspiel-{game}", "shimmy.openspiel_compatibility", extra("openspiel"))
    env = shimmy.OpenSpielCompatibilityV0(game_name=game, config=params or None)
    # it would make the same spaces again in each step, which takes longer than the game
    env._update_observation_spaces = env._update_action_spaces = _nothing
    return env


def _nothing() -> None:
    pass


def _games() -> list[str]:
    """Return the games that need no params and give players numbers to observe."""
    import pyspiel

    kinds = pyspiel.GameType
    return [
        game.short_name
        for game in pyspiel.registered_games()
        if game.default_loadable
        and game.dynamics == kinds.Dynamics.SEQUENTIAL
        and (game.provides_observation_tensor or game.provides_information_state_tensor)
    ]


_family = ChosenFamily("openspiel", "pyspiel", extra("openspiel"), _games, make)
find = _family.find
names = _family.names
