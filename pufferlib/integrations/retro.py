"""The family `retro-`: console games through Stable-Retro; all but one need the user's own ROM."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from pufferlib.errors import MissingExtraError
from pufferlib.integrations.chosen import ChosenFamily
from pufferlib.integrations.packages import extra
from pufferlib.integrations.pictures import EveryNthPixel


def make(game: str, stride: int = 2, **params: Any) -> Any:
    """Return a game; `stride` keeps every n-th pixel of its screen, `params` are `RetroEnv`'s.

    An emulator fills its process: give every env a worker (`num_workers` = `num_envs`).
    """
    import stable_retro

    try:
        env = stable_retro.make(f"{game}-v0", **{"render_mode": "rgb_array", **params})
    except FileNotFoundError as error:
        raise MissingExtraError(
            f"`retro-{game.lower()}` needs its ROM, which is not imported: "
            "python -m stable_retro.import FOLDER-WITH-YOUR-ROMS"
        ) from error
    return env if stride == 1 else EveryNthPixel(env, stride)


def _games() -> list[str]:
    """Return the games that Stable-Retro knows, found without importing it."""
    spec = importlib.util.find_spec("stable_retro")
    places = (spec.submodule_search_locations or ()) if spec else ()
    folders = [Path(place, "data", "stable") for place in places]
    found = sorted(path.name for folder in folders for path in folder.glob("*-v0"))
    return [name.removesuffix("-v0") for name in found]


_family = ChosenFamily("retro", "stable_retro", extra("retro"), _games, make)
find = _family.find
names = _family.names
