"""Functional envs in JAX: one compiled step for all, exact at every end of an episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pufferlib
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.integrations.jax_simulator import JaxEnv, JaxSimulator, Result, Seen
from pufferlib.spaces import make_discrete
from pufferlib.vectorization import Batched
from pufferlib.vectorization.batched import SimulatorCreator

jax = pytest.importorskip("jax", reason="pip install 'pufferlib[gymnax]'")
NUM_ENVS = 20  # more than one group of envs is reset at the start


class Walk(JaxEnv):
    """Observes (length, tick, sum of actions); is truncated after an even number of steps."""

    def __init__(self) -> None:
        self.action_space = make_discrete(3)

    def reset(self, key: Any) -> Any:
        state = jax.numpy.array([0.0, 0.0, 0.0]).at[0].set(jax.random.randint(key, (), 2, 7))
        return state, Seen(state)

    def step(self, key: Any, state: Any, action: Any) -> Any:
        state = state.at[1].add(1).at[2].add(action)
        ended, is_even = state[1] == state[0], state[0] % 2 == 0
        result = Result(Seen(state), action * 1.0, ended & ~is_even, ended & is_even)
        return state, result


class Weak(Walk):
    """Has a Python number in its state, whose type JAX calls weak."""

    compiled = 0

    def reset(self, key: Any) -> Any:
        state, seen = super().reset(key)
        return (state, 0.0), seen

    def step(self, key: Any, state: Any, action: Any) -> Any:
        Weak.compiled += 1
        state, result = super().step(key, state[0], action)
        return (state, jax.numpy.where(result.terminal, 1.0, 0.0)), result


def test_a_step_is_compiled_once() -> None:
    Weak.compiled = 0
    with Batched(SimulatorCreator(lambda sizes: JaxSimulator(Weak(), sizes)), NUM_ENVS) as vecenv:
        vecenv.reset(seed=1)
        for _ in range(10):  # episodes end and begin, too
            vecenv.step(np.zeros(NUM_ENVS, dtype=np.int32))
    assert Weak.compiled == 1


def walks() -> SimulatorCreator:
    return SimulatorCreator(lambda sizes: JaxSimulator(Walk(), sizes))


def test_every_step_follows_from_the_last() -> None:
    rng, ends, lengths = np.random.default_rng(0), 0, set()
    with Batched(walks(), NUM_ENVS) as vecenv:
        before = vecenv.reset(seed=1).copy()
        for _ in range(30):
            actions = rng.integers(3, size=NUM_ENVS, dtype=np.int32)
            observations, rewards, dones, _ = vecenv.step(actions)
            reached = before + np.stack([np.zeros(NUM_ENVS), np.ones(NUM_ENVS), actions], axis=1)
            is_over = reached[:, 1] == reached[:, 0]
            is_even = reached[:, 0] % 2 == 0
            assert (dones == is_over).all()
            assert (vecenv.truncations == (is_over & is_even)).all()
            assert (rewards == actions).all()
            assert (vecenv.final_observations[dones] == reached[dones]).all()
            assert (observations[~dones] == reached[~dones]).all()
            assert (observations[dones, 1:] == 0).all()  # a new episode
            before, ends = observations.copy(), ends + int(dones.sum())
            lengths |= set(observations[dones, 0].tolist())
        assert ends > 100  # 30 steps of 20 envs, some 4 for each episode
        assert lengths == {2, 3, 4, 5, 6}  # each reset draws another


def test_seeds_decide_the_episodes() -> None:
    with Batched(walks(), NUM_ENVS) as one, Batched(walks(), 3) as other:
        first = one.reset(seed=4).copy()
        assert len(set(first[:, 0].tolist())) > 1
        assert (other.reset(seed=4) == first[:3]).all()  # envs do not depend on their number
        assert (one.reset(seed=4) == first).all()
        assert not (one.reset() == first).all()


def test_async_batches_are_refused() -> None:
    with pytest.raises(UsageError, match="`mode` must be sync"):
        Batched(walks(), 4, mode="async", surplus_envs=4)


def test_a_time_limit_of_gymnax_is_a_truncation() -> None:
    pytest.importorskip("gymnax", reason="pip install 'pufferlib[gymnax]'")
    with pufferlib.make("gymnax-cartpole", num_envs=8, seed=0, max_steps_in_episode=5) as vecenv:
        vecenv.reset()
        for tick in range(1, 11):
            vecenv.step(np.full(8, tick % 2, dtype=np.int32))
            assert (vecenv.truncations == (tick % 5 == 0)).all()
            assert not vecenv.terminals.any()
        assert vecenv.drain_metrics()["episode_length"] == 5
    with pytest.raises(UnknownNameError, match="Did you mean `gymnax-CartPole-v1`"):
        pufferlib.make("gymnax-cartpol-v1")
    with pytest.raises(UnknownNameError, match="Did you mean `max_steps_in_episode`"):
        pufferlib.make("gymnax-cartpole", max_steps_in_epsode=5)


def test_players_of_pgx_take_turns() -> None:
    pytest.importorskip("pgx", reason="pip install 'pufferlib[pgx]'")
    rng, games = np.random.default_rng(0), 0
    with pufferlib.make("pgx-tic-tac-toe", num_envs=4, seed=0) as vecenv:
        assert (vecenv.agents_per_env, vecenv.num_agents) == (2, 8)
        vecenv.reset()
        for _ in range(40):
            masks = vecenv.action_masks
            assert masks is not None
            allowed = masks.sum(axis=1).reshape(4, 2)
            # 9 fields minus those taken for one player; the other may only wait
            assert (allowed.min(axis=1) == 1).all()
            actions = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
            _, rewards, dones, _ = vecenv.step(np.array(actions, dtype=np.int32))
            assert (rewards.reshape(4, 2).sum(axis=1) == 0).all()  # a win of one is a loss
            assert (dones.reshape(4, 2).all(axis=1) == dones.reshape(4, 2).any(axis=1)).all()
            games += int(dones.sum()) // 2
        assert games > 10  # a game has at most 9 moves


def test_a_policy_trains_on_compiled_steps() -> None:
    with Batched(walks(), 8) as vecenv:
        trainer = pufferlib.PuffeRL(vecenv, device="cpu", batch_size=128)
        metrics = trainer.evaluate()
        assert 2 <= metrics["episode_length"] <= 6
        assert np.isfinite(trainer.train()["policy_loss"])
        trainer.close()
