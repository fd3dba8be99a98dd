"""Stable-Baselines3 and sb3-contrib: masks, absent agents, wrappers of vectors, a saved policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import pufferlib
import pufferlib.ocean

pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integration.md"
SMALL: dict[str, Any] = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "device": "cpu"}


def guide(text: str) -> str:
    """Return the example of the guide that has `text`."""
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if text in block]
    return block


def make_vec(name: str, num_envs: int = 4, **params: Any) -> Any:
    return pufferlib.to_sb3(pufferlib.make(name, num_envs=num_envs, num_workers=1, **params))


@pytest.mark.parametrize(
    "make",
    [lambda: gymnasium.make("ocean/Masked-v0"), lambda: make_vec("masked")],
    ids=["id", "vector"],
)
def test_maskable_ppo_takes_legal_actions_only(make: Any) -> None:
    model = MaskablePPO("MlpPolicy", make(), **SMALL)
    model.learn(256)
    env = make_vec("masked")
    observations = env.reset()
    for _ in range(50):
        masks = np.stack(env.env_method("action_masks"))
        actions, _ = model.predict(observations, action_masks=masks)
        assert masks[np.arange(4), actions].all()
        assert not masks.all()
        observations, *_ = env.step(actions)


@pytest.mark.parametrize(
    "make",
    [lambda: gymnasium.make("ocean/Cartpole-v0"), lambda: make_vec("cartpole")],
    ids=["id", "vector"],
)
def test_maskable_ppo_says_that_an_env_has_no_masks(make: Any) -> None:
    with pytest.raises(ValueError, match="does not support action masking"):
        MaskablePPO("MlpPolicy", make(), **SMALL).learn(64)


@pytest.mark.slow
def test_ppo_under_its_wrappers_learns_and_is_the_same_from_a_file(tmp_path: Path) -> None:
    env = VecNormalize(VecMonitor(make_vec("cartpole", 16)), norm_reward=False)
    settings = {**SMALL, "n_steps": 128, "batch_size": 256, "n_epochs": 4}
    model = PPO("MlpPolicy", env, learning_rate=2e-3, seed=1, **settings)
    before, _ = evaluate_policy(model, env, n_eval_episodes=20)
    model.learn(20_000)
    after, _ = evaluate_policy(model, env, n_eval_episodes=20)
    model.save(tmp_path / "model")
    again = PPO.load(tmp_path / "model", device="cpu")
    observations = env.reset()

    assert after > 3 * before
    assert np.array_equal(
        model.predict(observations, deterministic=True)[0],
        again.predict(observations, deterministic=True)[0],
    )
    env.close()


def test_the_replay_buffer_keeps_the_last_observations() -> None:
    env = make_vec("pendulum", 2, max_steps=20)
    model = SAC("MlpPolicy", env, learning_starts=60, batch_size=16, device="cpu", seed=1)
    model.learn(100)
    buffer = model.replay_buffer
    assert buffer is not None
    ends = buffer.dones[:49].astype(bool)
    differs = (buffer.next_observations[:49] != buffer.observations[1:50]).any(-1)

    assert ends.sum() == 4  # two envs, cut after 20 and 40 steps
    assert np.array_equal(differs, ends)
    assert np.array_equal(buffer.timeouts[:49].astype(bool), ends)


def test_the_guides_example_of_masks_runs() -> None:
    exec(re.sub(r"total_timesteps=[\d_]+", "total_timesteps=64", guide("MaskablePPO(")), {})


@pytest.mark.slow
def test_the_guides_buffer_trains_on_rows_of_present_agents_alone() -> None:
    names: dict[str, Any] = {}
    block = guide("class PresentRows")
    exec(re.sub(r"total_timesteps=[\d_]+", "total_timesteps=4096", block), names)
    buffer = names["model"].rollout_buffer
    kept = sum(len(rows.observations) for rows in buffer.get(100))

    assert kept == buffer.is_present.sum() < buffer.is_present.size
    # a row is absent where the observation before it said so: an agent that has died stays away
    assert (~buffer.is_present).any(axis=1).sum() > 10
