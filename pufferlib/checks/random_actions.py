"""Random actions for checks: within the space, and allowed by the action masks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pufferlib.env import PufferEnv
from pufferlib.spaces import action_layout


class RandomActions:
    """Writes actions into an env's rows: the lowest in step 0, the highest in step 1, then random.

    Choices that a mask forbids are replaced by allowed ones.
    """

    def __init__(self, env: PufferEnv, seed: int) -> None:
        layout = action_layout(env.single_action_space)
        self._env, self._rng = env, np.random.default_rng(seed)
        self._indices, self._reals = layout.split(env.actions)
        self._numbers = np.array(layout.nvec, dtype=np.int64)
        self._low = np.where(np.isfinite(layout.low), layout.low, -1).astype(np.float64)
        self._high = np.where(np.isfinite(layout.high), layout.high, 1).astype(np.float64)

    def write(self, step: int) -> None:
        """Write the actions of one step."""
        num_discrete = len(self._numbers)
        drawn = self._rng.random((self._env.num_agents, num_discrete + len(self._low)))
        if step < 2:
            drawn[:] = step
        shares, mixes = drawn[:, :num_discrete], drawn[:, num_discrete:]
        self._indices[...] = np.minimum((shares * self._numbers).astype(int), self._numbers - 1)
        self._reals[...] = np.clip(
            self._low + mixes * (self._high - self._low), self._low, self._high
        )
        if self._env.action_masks is not None:
            for slot, mask in enumerate(self._env.action_masks):
                self._obey(self._indices[slot], mask)

    def _obey(self, indices: NDArray[np.int32], mask: NDArray[np.bool_]) -> None:
        first = 0
        for component, n in enumerate(self._numbers):
            allowed = np.flatnonzero(mask[first : first + n])
            if len(allowed) and indices[component] not in allowed:
                indices[component] = self._rng.choice(allowed)
            first += n
