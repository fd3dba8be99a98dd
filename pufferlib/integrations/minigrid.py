"""The family `minigrid-`: MiniGrid, and BabyAI as `minigrid-babyai-...`."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.integrations.packages import extra
from pufferlib.integrations.registered import PICTURES, RegisteredFamily, named_after
from pufferlib.spaces import make_multi_discrete, make_space

# every word of the package's missions; 0 means no word, 1 a word that is not here
_VOCABULARY = """
a after and at avoid ball behind blue box door end fetch find from front get go goal green grey
hallway in key lava left matching must near next object of on open opening pick purple put reach red
right room rooms square the then to traverse unlock up use yellow you your
"""
WORDS = _VOCABULARY.split()
_INDEX = {word: index for index, word in enumerate(WORDS, start=2)}
_LONGEST = {"MiniGrid": 16, "BabyAI": 72}  # words of a mission: BabyAI joins up to four of 17


class MissionWords(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Replaces the text of the mission by the indices of its words, or drops it."""

    def __init__(self, env: gymnasium.Env[Any, Any], mission: bool = True) -> None:
        super().__init__(env)
        family = env.spec.id.partition("-")[0] if env.spec else ""
        self._length = _LONGEST.get(family, max(_LONGEST.values()))
        self._indices: dict[str, NDArray[np.int64]] = {}  # by text: few differ, many repeat
        self._is_kept = mission
        parts = dict(env.observation_space.spaces)  # type: ignore[attr-defined]
        del parts["mission"]
        if mission:
            parts["mission"] = make_multi_discrete([len(WORDS) + 2] * self._length)
        self.observation_space = make_space(parts)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        text = observation["mission"]
        seen = {key: part for key, part in observation.items() if key != "mission"}
        if self._is_kept:
            if text not in self._indices:
                self._indices[text] = self._read(text)
            seen["mission"] = self._indices[text]
        return seen

    def _read(self, text: str) -> NDArray[np.int64]:
        words = re.findall(r"\w+", text.lower())[: self._length]
        indices = np.zeros(self._length, np.int64)
        indices[: len(words)] = [_INDEX.get(word, 1) for word in words]
        return indices


_family = RegisteredFamily(
    "minigrid",
    "minigrid",
    named_after("MiniGrid-", whole=("BabyAI-",)),
    extra("minigrid"),
    wrap=MissionWords,
    defaults=PICTURES,
)
find = _family.find
names = _family.names
