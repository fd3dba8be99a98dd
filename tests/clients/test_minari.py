"""Minari: datasets recorded from our envs."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

import pufferlib.ocean

pytest.importorskip("minari", reason="Minari is not installed")
pytest.importorskip("jax", reason="minari[create] is not installed")
import minari

gymnasium.register_envs(pufferlib.ocean)


@pytest.mark.slow  # JAX
def test_a_dataset_holds_the_episodes_and_the_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(
        gymnasium.make("ocean/Connect4-v0", statistics=False), record_infos=True
    )
    played = []
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        shown, is_over = [observation], False
        while not is_over:
            action = env.action_space.sample(mask=info["action_mask"])
            observation, _, terminated, truncated, info = env.step(action)
            shown.append(observation)
            is_over = terminated or truncated
        played.append(np.array(shown))
    dataset = env.create_dataset("ocean/connect4-v0", algorithm_name="random")
    env.close()
    episodes = list(dataset.iterate_episodes())

    assert len(episodes) == 3
    for episode, shown in zip(episodes, played, strict=True):
        assert np.array_equal(episode.observations, shown)
        assert episode.infos["action_mask"].shape == (len(shown), 7)
    again = dataset.recover_environment()
    assert np.array_equal(again.reset(seed=0)[0], played[0][0])
