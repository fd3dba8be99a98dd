"""`envpool-`: EnvPool's tasks, step by step what EnvPool itself gives."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import pufferlib
from pufferlib import registry
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.integrations.envpool import DirectCalls

envpool = pytest.importorskip("envpool", reason="pip install 'pufferlib[envpool]'")


def test_the_whole_catalogue_is_listed() -> None:
    names = pufferlib.list_envs("envpool")
    assert len(names) > 1000
    assert registry.find("envpool-cartpole").id == "envpool-CartPole-v1"
    with pytest.raises(UnknownNameError, match="Did you mean `envpool-CartPole-v"):
        pufferlib.make("envpool-cartpol-v1")


def test_rows_are_envpools_own_with_the_same_step_autoreset() -> None:
    """EnvPool resets in the step after an end, so its env takes one more step there."""
    original = envpool.make_gymnasium("CartPole-v1", num_envs=1, seed=9, max_episode_steps=20)
    actions = np.random.default_rng(0).integers(2, size=300, dtype=np.int32)
    ends = truncated = 0
    params = {"num_envs": 3, "seed": 9, "max_episode_steps": 20}
    with pufferlib.make("envpool-CartPole-v1", **params) as vecenv:
        expected = original.reset()[0]
        assert (vecenv.reset()[0] == expected[0]).all()
        for action in actions:
            observations, rewards, _, _ = vecenv.step([action, 0, 1])
            expected, reward, terminal, truncation, _ = original.step(np.array([action]))
            assert rewards[0] == reward[0]
            assert (vecenv.terminals[0], vecenv.truncations[0]) == (terminal[0], truncation[0])
            if terminal[0] or truncation[0]:
                assert (vecenv.final_observations[0] == expected[0]).all()
                expected = original.step(np.array([0]))[0]  # resets
                ends, truncated = ends + 1, truncated + int(truncation[0])
            assert (observations[0] == expected[0]).all()
    assert ends > truncated > 0


@pytest.mark.parametrize(
    ("name", "is_masked"),
    [("envpool-MiniGrid-Empty-5x5-v0", False), ("envpool-Knapsack-v1", True)],
)
def test_structured_observations_come_back_in_parts(name: str, is_masked: bool) -> None:
    with pufferlib.make(name, num_envs=2, seed=0) as vecenv:
        vecenv.reset()
        assert (vecenv.action_masks is not None) == is_masked
        if vecenv.action_masks is not None:
            actions = vecenv.action_masks.argmax(axis=1).astype(np.int32)
        else:
            actions = np.zeros(2, dtype=np.int32)
        vecenv.step(actions)
        assert vecenv.observations.ndim == 2  # flat rows


def test_bounds_of_another_precision_are_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pufferlib.make("envpool-CartPole-v1", num_envs=2, seed=0) as vecenv:
            vecenv.reset()
            vecenv.step(np.zeros(2, dtype=np.int32))


def test_continuous_actions_are_clipped_to_the_bounds() -> None:
    with pufferlib.make("envpool-Pendulum-v1", num_envs=2, seed=0) as vecenv:
        vecenv.reset()
        far, _, _, _ = vecenv.step(np.full((2, 1), 100, dtype=np.float32))
        far = far.copy()
        vecenv.reset(seed=0)
        vecenv.reset(seed=0)
    with pufferlib.make("envpool-Pendulum-v1", num_envs=2, seed=0) as vecenv:
        vecenv.reset()
        near, _, _, _ = vecenv.step(np.full((2, 1), 2, dtype=np.float32))
        assert (near == far).all()


def test_async_batches_never_carry_the_step_of_a_reset() -> None:
    options = {"mode": "async", "surplus_envs": 4}
    with pufferlib.make("envpool-CartPole-v1", num_envs=4, seed=0, vec=options) as vecenv:
        vecenv.reset()
        batch, was_present = vecenv.recv(), np.ones(8, dtype=np.bool_)
        resets = 0
        for _ in range(300):
            ended = batch.terminals | batch.truncations
            assert (batch.masks == ~ended).all()
            returned = ~was_present[batch.slots]  # their episode had ended: these are first steps
            assert (batch.rewards[returned] == 0).all()
            assert (np.abs(batch.observations[returned]) <= 0.05).all()  # CartPole's start
            was_present[batch.slots] = batch.masks
            resets += int(returned.sum())
            vecenv.send(np.ones(4, dtype=np.int32))
            batch = vecenv.recv()
        assert resets > 20  # a pole that is always pushed to the right falls in some 10 steps


def test_a_task_of_several_players_is_refused() -> None:
    with pytest.raises(UsageError, match="several players"):
        pufferlib.make("envpool-Go9x9-v1", num_envs=2)


def test_cartpole_trains() -> None:
    with pufferlib.make("envpool-CartPole-v1", num_envs=8, seed=0) as vecenv:
        trainer: Any = pufferlib.PuffeRL(vecenv, device="cpu", batch_size=256)
        for _ in range(2):
            metrics = trainer.evaluate()
            assert np.isfinite(trainer.train()["policy_loss"])
        assert 8 <= metrics["episode_length"] <= 100
        trainer.close()


@pytest.mark.parametrize("task", ["CartPole-v1", "Ant-v4", "FrozenLake-v1"])
def test_direct_calls_answer_as_envpools_own(task: str) -> None:
    """Two pools of one seed: one is stepped by EnvPool's `send` and `recv`, one by ours."""
    public, other = (envpool.make_gymnasium(task, num_envs=3, seed=5) for _ in range(2))
    direct = DirectCalls.of(other)
    assert direct is not None
    for pool in (public, other):
        pool.reset()
        pool.action_space.seed(1)
    for _ in range(60):
        actions = np.stack([public.action_space.sample() for _ in range(3)])
        public.send(actions)
        direct.send(actions, None)
        *expected, info = public.recv()
        *given, own = direct.recv()
        for wanted, got in zip(expected, given, strict=True):
            np.testing.assert_array_equal(got, wanted)
        for name, values in own.items():
            np.testing.assert_array_equal(values, info[name])


def test_pools_of_several_arrays_are_stepped_by_envpools_own_calls() -> None:
    assert DirectCalls.of(envpool.make_gymnasium("PointMassEasy-v1", num_envs=1)) is None
