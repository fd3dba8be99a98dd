"""`atari-`: ale-py's games, frame by frame what ale-py itself gives."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import pufferlib
from pufferlib import registry
from pufferlib.errors import UnknownNameError, UsageError

ale_py = pytest.importorskip("ale_py", reason="pip install 'pufferlib[atari]'")
ale = pytest.importorskip("ale_py.vector_env", reason="pip install 'pufferlib[atari]'")


def test_all_games_of_the_package_are_listed() -> None:
    names = pufferlib.list_envs("atari")
    assert len(names) > 100
    assert {"atari-pong", "atari-ms-pacman", "atari-montezuma-revenge"} <= set(names)


@pytest.mark.parametrize("name", ["atari-ms-pacman", "Atari_MsPacman", "atari-ALE/MsPacman-v5"])
def test_a_game_has_many_spellings(name: str) -> None:
    assert registry.find(name).id == "atari-ms-pacman"


def test_an_unknown_game_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean `atari-breakout`"):
        pufferlib.make("atari-breakuot")


def test_rows_are_ale_pys_own_with_the_same_step_autoreset() -> None:
    """ale-py resets in the step after an end, so its env takes one more step there."""
    original = ale.AtariVectorEnv(
        "breakout", 1, max_num_frames_per_episode=160, reward_clipping=False
    )
    actions = np.random.default_rng(0).integers(4, size=150, dtype=np.int64)
    truncated = 0
    with pufferlib.make("atari-breakout", num_envs=1, seed=5, max_frames=160) as vecenv:
        assert (vecenv.backend, vecenv.observation_space.shape) == ("batched", (4, 84, 84))
        expected = original.reset(seed=np.array([5]))[0]
        assert (vecenv.reset() == expected).all()
        for action in actions:
            observations, rewards, _, _ = vecenv.step([action])
            expected, reward, terminal, truncation, _ = original.step(np.array([action]))
            assert rewards[0] == reward[0]
            assert (vecenv.terminals[0], vecenv.truncations[0]) == (terminal[0], truncation[0])
            if terminal[0] or truncation[0]:
                assert (vecenv.final_observations == expected).all()
                expected = original.step(np.array([0]))[0]  # resets
                truncated += int(truncation[0])
            assert (observations == expected).all()
    assert truncated >= 3  # an episode has at most 40 steps


def test_a_lost_life_is_a_terminal_and_the_game_goes_on() -> None:
    scores, ends, lives = [], 0, []
    with pufferlib.make("atari-breakout", num_envs=2, seed=0, episodic_life=True) as vecenv:
        vecenv.reset()
        rng = np.random.default_rng(0)
        while len(scores) < 1:
            *_, dones, infos = vecenv.step(rng.integers(4, size=2, dtype=np.int32))
            ends += int(dones.sum())
            lives += [info["lives"] for info, done in zip(infos, dones, strict=True) if done]
            scores += [info["score"] for info in infos if "score" in info]
        assert ends >= 5  # a game of Breakout has five lives
        assert {4, 3, 2, 1} <= set(lives)
        assert vecenv.drain_metrics()["score"] == np.mean(scores)


def test_params_shape_the_observation() -> None:
    options: dict[str, Any] = {"grayscale": False, "framestack": 2, "screen_size": 42}
    with pufferlib.make("atari-pong", num_envs=1, frameskip=2, seed=0, **options) as vecenv:
        assert vecenv.reset().shape == (1, 6, 42, 42)
        picture = vecenv.render()
        assert picture is not None
        assert (picture.shape, picture.dtype) == ((126, 126, 3), np.uint8)
        # channels of the newest picture are the last three of the row
        assert (picture[::3, ::3] == np.moveaxis(vecenv.observations[0, 3:], 0, -1)).all()


@pytest.mark.parametrize(
    ("param", "value"), [("framestack", 0), ("frameskip", 2.5), ("sticky_actions", 1.5)]
)
def test_a_param_out_of_range_is_one_line(param: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"`{param}` must be") as caught:
        pufferlib.make("atari-pong", num_envs=1, **{param: value})
    assert "\n" not in str(caught.value)


def test_async_batches_hold_the_first_that_are_ready() -> None:
    options = {"mode": "async", "surplus_envs": 2}
    # one thread: with two, one may wait for a core with its env, and batches go on without it
    with pufferlib.make("atari-pong", num_envs=2, num_workers=1, seed=0, vec=options) as vecenv:
        vecenv.reset()
        batch = vecenv.recv()
        seen = set(np.asarray(batch.slots).tolist())
        for _ in range(200):
            assert len(set(np.asarray(batch.slots).tolist())) == 2
            vecenv.send(np.zeros(2, dtype=np.int32))
            batch = vecenv.recv()
            seen |= set(np.asarray(batch.slots).tolist())
        assert seen == {0, 1, 2, 3}


def test_pong_trains() -> None:
    with pufferlib.make("atari-pong", num_envs=2, seed=0) as vecenv:
        trainer = pufferlib.PuffeRL(vecenv, device="cpu", batch_size=32, minibatch_size=32)
        trainer.evaluate()
        assert np.isfinite(trainer.train()["policy_loss"])
        trainer.close()


def test_gymnasiums_preprocessing_is_emulated_exactly() -> None:
    """It scales pictures with OpenCV, which the extra installs."""
    gymnasium.register_envs(ale_py)

    def preprocessed() -> gymnasium.Env[Any, Any]:
        game = gymnasium.make("ALE/Breakout-v5", frameskip=1)
        return gymnasium.wrappers.AtariPreprocessing(game)

    original = preprocessed()
    with pufferlib.emulate(preprocessed, num_envs=1, seed=3) as vecenv:
        assert (vecenv.reset()[0] == original.reset(seed=3)[0]).all()
        for action in np.random.default_rng(0).integers(4, size=40):
            expected, reward, *_ = original.step(action)
            observations, rewards, *_ = vecenv.step([action])
            assert (observations[0] == expected).all()
            assert rewards[0] == reward
