"""Smaller pictures: wrappers for envs whose screens are larger than a policy needs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.spaces import make_space


class EveryNthPixel(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Keeps every `stride`-th row and column of a picture, or of part `key` of a Dict."""

    def __init__(self, env: gymnasium.Env[Any, Any], stride: int, key: str | None = None) -> None:
        super().__init__(env)
        self.stride, self.key = stride, key
        space: Any = env.observation_space
        height, width, channels = (space if key is None else space[key]).shape
        shape = (-(-height // stride), -(-width // stride), channels)
        picture = make_space(shape, dtype=np.uint8)
        self.observation_space = (
            picture if key is None else make_space({**space.spaces, key: picture})
        )

    def observation(self, observation: Any) -> Any:
        if self.key is None:
            return self._smaller(observation)
        return {**observation, self.key: self._smaller(observation[self.key])}

    def _smaller(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.ascontiguousarray(picture[:: self.stride, :: self.stride])
