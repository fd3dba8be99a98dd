"""Envs one by one: those that a step leaves alone, and a seed for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.vectorization import Serial, VectorEnv

pytestmark = pytest.mark.filterwarnings("ignore:.*workers share.*core")
SEEDS = [5, 9, 2, 7, 7, 1]


def pairs() -> VectorEnv:
    """A vector env of three units, each a vector env of two."""
    return Serial(lambda: pufferlib.make("cartpole", num_envs=2, num_workers=1), 3)


MAKERS: dict[str, Callable[[], VectorEnv]] = {
    "threads": lambda: pufferlib.make("cartpole", num_envs=6, num_workers=2),
    "serial": lambda: pufferlib.make("cartpole", num_envs=6, backend="serial"),
    "nested": pairs,
    "processes": lambda: pufferlib.make(
        "cartpole", num_envs=6, num_workers=2, backend="multiprocessing"
    ),
    "python": lambda: pufferlib.make("gym-CartPole-v1", num_envs=6, backend="serial"),
    "python processes": lambda: pufferlib.make(
        "gym-CartPole-v1", num_envs=6, num_workers=2, backend="multiprocessing"
    ),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_each_env_plays_the_episodes_of_its_seed_and_stands_still_while_held(kind: str) -> None:
    name = "gym-CartPole-v1" if "python" in kind else "cartpole"
    vecenv = MAKERS[kind]()
    alone = [pufferlib.make(name, num_envs=1, backend="serial") for _ in SEEDS]
    random = np.random.default_rng(0)
    vecenv.seed_each(SEEDS)
    before = vecenv.reset().copy()
    for env, seed, row in zip(alone, SEEDS, before, strict=True):
        assert np.array_equal(env.reset(seed=seed)[0], row)
    num_ends = 0
    for _ in range(200):
        actions = random.integers(0, 2, len(SEEDS))
        held = random.random(len(SEEDS)) < 0.3
        vecenv.hold(held)
        rows, rewards, dones, infos = vecenv.step(actions)
        for i, env in enumerate(alone):
            if held[i]:
                assert (rewards[i], dones[i], infos[i]) == (0, False, {})
                assert np.array_equal(rows[i], before[i])
                continue
            own_rows, own_rewards, own_dones, own_infos = env.step(actions[i : i + 1])
            assert np.array_equal(rows[i], own_rows[0])
            assert (rewards[i], dones[i]) == (own_rewards[0], own_dones[0])
            if dones[i]:
                num_ends += 1
                assert np.array_equal(vecenv.final_observations[i], env.final_observations[0])
                for key in ("r", "l"):  # no held step is counted
                    assert infos[i]["episode"][key] == own_infos[0]["episode"][key]
        before = rows.copy()
    assert num_ends > 20
    assert vecenv.drain_metrics()["episodes"] == num_ends
    vecenv.close()


def test_a_hold_lasts_one_step_and_ends_with_a_reset() -> None:
    vecenv = pufferlib.make("cartpole", num_envs=2, num_workers=1)
    actions = np.zeros(2, dtype=np.int64)
    first = vecenv.reset(seed=1).copy()
    vecenv.hold(np.array([True, False]))
    assert (vecenv.step(actions)[0] == first).all(axis=1).tolist() == [True, False]
    assert not (vecenv.step(actions)[0] == first).all(axis=1).any()
    vecenv.hold(np.array([True, True]))
    vecenv.reset(seed=1)
    assert not (vecenv.step(actions)[0] == first).all(axis=1).any()


def test_a_seed_of_reset_comes_before_seeds_for_each() -> None:
    vecenv = pufferlib.make("cartpole", num_envs=2, num_workers=1)
    wanted = vecenv.reset(seed=3).copy()
    vecenv.seed_each([8, 9])
    assert np.array_equal(vecenv.reset(seed=3), wanted)


def test_vector_envs_that_hide_their_envs_say_so() -> None:
    class Own(VectorEnv):
        num_envs = 2
        observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

        def reset(self, seed: int | None = None) -> Any:
            return np.zeros((2, 1), dtype=np.float32)

    double = pufferlib.make("cartpole", num_envs=2, double_buffer=True)
    for vecenv in (Own(), double):
        vecenv.reset()
        with pytest.raises(UsageError, match="`hold` must be able to reach each env"):
            vecenv.hold(np.array([True, False]))
        with pytest.raises(UsageError, match="`seed_each` must be able to reach each env"):
            vecenv.seed_each([1, 2])
    double.close()
    with pytest.raises(UsageError, match="must be one for each of 2 envs, but got 3"):
        pufferlib.make("cartpole", num_envs=2, num_workers=1).seed_each([1, 2, 3])
