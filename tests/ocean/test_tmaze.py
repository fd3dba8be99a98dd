"""tmaze against a walk in Python."""

from __future__ import annotations

import numpy as np
import pytest
from splitmix import Rng

import pufferlib

FORWARD, LEFT, RIGHT = 0, 1, 2


class Twin:
    """One maze, with the signs that the env draws."""

    def __init__(self, rng: Rng, length: int, max_steps: int) -> None:
        self.rng, self.length = rng, length
        self.max_steps = max_steps or 4 * length + 8
        self.reset()

    def reset(self) -> None:
        self.sign = RIGHT if self.rng.below(2) else LEFT
        self.place = self.tick = 0

    def row(self) -> list[int]:
        """Return what is seen: sign left, sign right, corridor, junction."""
        start, junction = self.place == 0, self.place == self.length + 1
        return [
            start and self.sign == LEFT,
            start and self.sign == RIGHT,
            not start and not junction,
            junction,
        ]

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Move; return reward, terminal, truncation."""
        self.tick += 1
        if self.place == self.length + 1:
            if action != FORWARD:
                return float(action == self.sign), True, False
        elif action == FORWARD:
            self.place += 1
        return 0.0, False, self.tick >= self.max_steps


@pytest.mark.parametrize(("length", "max_steps"), [(6, 0), (0, 0), (1, 40), (3, 5)])
def test_random_play_follows_the_rules(length: int, max_steps: int) -> None:
    rng = np.random.default_rng(5)
    num_envs, ends = 8, {"right": 0, "wrong": 0, "cut": 0}
    with pufferlib.make(
        "tmaze", num_envs=num_envs, num_workers=1, length=length, max_steps=max_steps
    ) as vecenv:
        vecenv.reset(seed=21)
        twins = [Twin(Rng(21, index), length, max_steps) for index in range(num_envs)]
        for _ in range(500):
            np.testing.assert_array_equal(vecenv.observations, [twin.row() for twin in twins])
            actions = rng.choice(3, size=num_envs, p=[0.6, 0.2, 0.2])
            vecenv.step(actions)
            for i, twin in enumerate(twins):
                reward, terminal, truncation = twin.step(int(actions[i]))
                assert vecenv.rewards[i] == reward
                assert (vecenv.terminals[i], vecenv.truncations[i]) == (terminal, truncation)
                if truncation:
                    np.testing.assert_array_equal(vecenv.final_observations[i], twin.row())
                if terminal or truncation:
                    ends["cut" if truncation else "right" if reward else "wrong"] += 1
                    twin.reset()
        metrics = vecenv.drain_metrics()
    total = sum(ends.values())
    assert metrics["episodes"] == total
    assert metrics["perf"] == metrics["score"] == pytest.approx(ends["right"] / total)
    assert metrics["turned"] == pytest.approx(1 - ends["cut"] / total)
    assert ends["right"] > 0
    assert ends["wrong"] > 0
