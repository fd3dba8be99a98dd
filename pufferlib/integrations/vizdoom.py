"""The family `vizdoom-`: scenarios of ViZDoom, such as `vizdoom-basic`."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import gymnasium

from pufferlib.integrations.packages import extra
from pufferlib.integrations.pictures import EveryNthPixel
from pufferlib.integrations.registered import PICTURES, RegisteredFamily, named_after

_FOLDER = "_vizdoom"  # an empty one, which each game makes in the working folder

# A game without sound connects to a sound server all the same, where libpulse is installed: that
# leaves a folder `pulse-...` among the temporary files. Its engine reads this in every process.
os.environ.setdefault("ALSOFT_DRIVERS", "null")


class Smaller(EveryNthPixel):
    """Keeps every n-th pixel of the screen, 60 x 80 of 240 x 320, and deletes the game's folder."""

    def __init__(self, env: gymnasium.Env[Any, Any], stride: int = 4) -> None:
        super().__init__(env, stride, "screen")

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError):  # not there, or not empty: then it is the user's
            os.rmdir(_FOLDER)


_family = RegisteredFamily(
    "vizdoom",
    "vizdoom",
    named_after("Vizdoom"),
    extra("vizdoom"),
    module="vizdoom.gymnasium_wrapper",
    wrap=Smaller,
    # without a path for its settings, each game would write _vizdoom.ini into the working folder
    defaults={"frame_skip": 4, "doom_config_path": os.devnull, **PICTURES},
)
find = _family.find
names = _family.names
