"""cartpole is Gymnasium's CartPole-v1, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray

import pufferlib
from pufferlib.errors import UsageError

NUM_ENVS = 16
NUM_STEPS = 400


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_step_is_that_of_gymnasium(seed: int) -> None:
    """Gymnasium steps from our state with our action; next state, reward and end must agree."""
    rng = np.random.default_rng(seed)
    reference = CartPoleEnv()  # CartPole-v1 without its time limit
    reference.reset()
    ends = 0
    with pufferlib.make("cartpole", num_envs=NUM_ENVS) as vecenv:
        before = vecenv.reset(seed=seed).copy()
        for _ in range(NUM_STEPS):
            actions = rng.integers(2, size=NUM_ENVS)
            vecenv.step(actions)
            ended = vecenv.terminals | vecenv.truncations
            after = np.where(ended[:, None], vecenv.final_observations, vecenv.observations)
            for i in range(NUM_ENVS):
                reference.state = before[i].astype(np.float64)
                reference.steps_beyond_terminated = None
                expected, reward, terminated, _, _ = reference.step(int(actions[i]))
                # float32 here, float64 there: a few roundings of numbers up to about 4.
                np.testing.assert_allclose(after[i], expected, rtol=1e-6, atol=1e-6)
                assert vecenv.rewards[i] == reward == 1.0
                assert vecenv.terminals[i] == terminated
            ends += int(vecenv.terminals.sum())
            before = vecenv.observations.copy()
    # A random player lasts about 22 steps.
    assert ends > NUM_ENVS * NUM_STEPS / 50


def _balance(observations: NDArray[np.float32]) -> NDArray[np.int64]:
    """Push where the pole leans and falls, and a little back to the centre: never falls."""
    x, x_dot, theta, theta_dot = observations.T
    leaning = 3 * theta + theta_dot + 0.1 * x + 0.3 * x_dot > 0
    return np.asarray(leaning, dtype=np.int64)


def test_500_balanced_steps_are_a_truncation_with_perf_1() -> None:
    with pufferlib.make("cartpole", num_envs=8) as vecenv:
        vecenv.reset(seed=3)
        for step in range(1, 501):
            last = vecenv.observations.copy()
            vecenv.step(_balance(vecenv.observations))
            assert not vecenv.terminals.any()
            assert vecenv.truncations.all() == vecenv.truncations.any() == (step == 500)
        # The final row follows the last one: x moves by tau x_dot. Then a new episode starts.
        moved = last[:, 0] + 0.02 * last[:, 1]
        np.testing.assert_allclose(vecenv.final_observations[:, 0], moved, atol=1e-6)
        assert (np.abs(vecenv.observations) <= 0.05).all()
        metrics = vecenv.drain_metrics()
    assert metrics["episodes"] == 8
    assert metrics["mean_reward"] == metrics["episode_length"] == metrics["score"] == 500
    assert metrics["perf"] == 1


def test_max_steps_sets_the_step_of_the_truncation() -> None:
    with pufferlib.make("cartpole", num_envs=4, max_steps=3) as vecenv:
        vecenv.reset(seed=0)
        cut = []
        for _ in range(6):
            vecenv.step(_balance(vecenv.observations))
            cut.append(bool(vecenv.truncations.all()))
        assert cut == [False, False, True, False, False, True]


def test_a_fall_at_the_last_step_is_a_terminal() -> None:
    # With the limit at 0.01 rad nearly every start within 0.05 rad has fallen after one step.
    with pufferlib.make("cartpole", num_envs=64, max_steps=1, theta_limit=0.01) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(np.zeros(64, dtype=np.int64))
        fallen = np.abs(vecenv.final_observations[:, 2]) > 0.01
        assert 0 < fallen.sum() < 64
        np.testing.assert_array_equal(vecenv.terminals, fallen)
        np.testing.assert_array_equal(vecenv.truncations, ~fallen)


def test_starts_are_uniform_within_a_twentieth() -> None:
    with pufferlib.make("cartpole", num_envs=4096) as vecenv:
        starts = vecenv.reset(seed=0)
    assert (np.abs(starts) <= 0.05).all()
    # Deviation of a uniform number in +-0.05 is 0.0289, of the mean of 4096 such 0.00045.
    assert (np.abs(starts.mean(axis=0)) < 5 * 0.00045).all()
    np.testing.assert_allclose(starts.std(axis=0), 0.0289, rtol=0.05)


# ---- States from a file --------------------------------------------------------------------------

STATE = slice(16, 32)  # of a snapshot: x, x_dot, theta, theta_dot
UNREACHABLE = [
    (0, 3e38, 0, 3e38),
    (2.5, 0, 0, 0),  # beyond the track
    (0, 0, 0.22, 0),  # has fallen
    (0, 130, 0, 0),  # the step before was at -2.6
    (0, 0, 0, 12),  # the pole was at -0.24 before
    (0, 4, 0, 0),  # one step cannot bring that about, whatever is within the limits
]


@pytest.mark.parametrize("state", UNREACHABLE)
def test_a_state_that_play_never_reaches_is_refused(state: tuple[float, ...]) -> None:
    with pufferlib.make("cartpole", num_envs=1) as vecenv:
        vecenv.reset(seed=1)
        vecenv.step(np.zeros(1, np.int32))
        forged = vecenv.snapshot()
        kept = forged.copy()
        assert (forged[0, STATE].view(np.float32) == vecenv.observations[0]).all()
        forged[0, STATE].view(np.float32)[:] = state
        with pytest.raises(UsageError, match="state that play cannot reach"):
            vecenv.restore(forged)
        vecenv.restore(kept)


EXTREMES: list[dict[str, float]] = [
    {},
    {"max_steps": 1000000},
    {"force": 1000, "cart_mass": 0.01, "pole_mass": 0.001, "x_limit": 100, "theta_limit": 1.5},
    {"force": 1000, "half_length": 0.05, "tau": 0.001, "theta_limit": 1.5, "gravity": 100},
    {"force": 0, "gravity": 0, "theta_limit": 0.01, "x_limit": 0.1, "tau": 0.1},
    {"pole_mass": 100, "cart_mass": 0.01, "half_length": 10, "theta_limit": 1.5, "x_limit": 100},
    {"pole_mass": 100, "cart_mass": 0.01, "half_length": 0.05, "theta_limit": 1.5, "tau": 0.1},
    {"cart_mass": 100, "force": 1000, "x_limit": 100, "half_length": 10, "theta_limit": 1.5},
]


@pytest.mark.parametrize("params", EXTREMES, ids=str)
def test_no_state_of_play_is_refused(params: dict[str, float]) -> None:
    rng = np.random.default_rng(0)
    with pufferlib.make("cartpole", num_envs=32, **params) as vecenv:
        vecenv.reset(seed=0)
        fixed = np.arange(32) % 2  # a quarter pushes to one side until it falls, another balances
        for _ in range(1500):
            actions = rng.integers(2, size=32)
            actions[:8] = fixed[:8]
            actions[8:16] = _balance(vecenv.observations)[8:16]
            vecenv.step(actions)
            vecenv.restore(vecenv.snapshot())
