"""Minigrid: the text of a mission becomes the indices of its words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

import pufferlib
from pufferlib.integrations.minigrid import WORDS, MissionWords


class View(gymnasium.Env[Any, Any]):
    """Has the observations of Minigrid, with a mission that changes at every reset."""

    observation_space = gymnasium.spaces.Dict(
        {
            "direction": gymnasium.spaces.Discrete(4),
            "image": gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8),
            "mission": gymnasium.spaces.Text(99),
        }
    )
    action_space = gymnasium.spaces.Discrete(7)
    missions = ("go to the red ball", "pick up a frobnicator, then open the door")

    def __init__(self) -> None:
        self.resets = 0

    def _observed(self) -> dict[str, Any]:
        image = np.full((7, 7, 3), self.resets, np.uint8)
        return {"direction": 2, "image": image, "mission": self.missions[self.resets % 2]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += 1
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        return self._observed(), 0.0, True, False, {}


def indices(*words: str) -> list[int]:
    return [WORDS.index(word) + 2 if word in WORDS else 1 for word in words]


def test_missions_are_words_by_index() -> None:
    env = MissionWords(View())
    first = env.reset()[0]["mission"].tolist()
    second = env.reset()[0]["mission"].tolist()
    assert first[:8] == indices("pick", "up", "a", "frobnicator", "then", "open", "the", "door")
    assert second[:5] == indices("go", "to", "the", "red", "ball")
    assert set(second[5:]) == {0}
    assert env.observation_space.contains(env.reset()[0])


def test_missions_can_be_dropped() -> None:
    env = MissionWords(View(), mission=False)
    assert list(env.observation_space.spaces) == ["direction", "image"]  # type: ignore[attr-defined]
    assert "mission" not in env.reset()[0]


def test_babyai_has_room_for_four_clauses() -> None:
    view = View()
    view.spec = SimpleNamespace(id="BabyAI-BossLevel-v0")  # type: ignore[assignment]
    assert MissionWords(view).observation_space["mission"].shape == (72,)  # type: ignore[index]


def test_rows_train_with_the_symbolic_network() -> None:
    from pufferlib.models import make_policy

    with pufferlib.emulate(lambda: MissionWords(View()), num_envs=2) as vecenv:
        policy = make_policy(vecenv, network="symbolic")
        with pufferlib.PuffeRL(
            vecenv, policy, batch_size=32, num_iterations=1, dashboard="off"
        ) as trainer:
            trainer.evaluate()
            assert np.isfinite(trainer.train()["policy_loss"])


def test_the_vocabulary_covers_the_package() -> None:
    pytest.importorskip("minigrid", reason="minigrid is not installed")
    names = [name for name in pufferlib.list_envs("minigrid") if "wfc" not in name]
    assert len(names) > 150
    for name in names[::12]:
        with pufferlib.make(name, num_envs=1, backend="serial", seed=0) as vecenv:
            env = vecenv.envs[0].env  # type: ignore[attr-defined]
            for seed in range(3):
                mission = env.reset(seed=seed)[0]["mission"]
                assert 1 not in mission, f"{name}: {env.unwrapped.mission}"
                assert len(env.unwrapped.mission.split()) <= len(mission)
