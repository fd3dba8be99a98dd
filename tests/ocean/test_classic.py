"""Acrobot, both mountain cars and pendulum are Gymnasium's, step by step and episode by episode.

The state is read from snapshots, where it is in double precision; `cartpole` has its own test.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

import pufferlib
from pufferlib.vectorization import VectorEnv

NUM_STEPS = 10_000
TOLERANCE = 1e-5


class Case(NamedTuple):
    """An env of ours and the one that it copies."""

    name: str
    gym_id: str
    state_size: int
    max_steps: int


CASES = [
    Case("acrobot", "Acrobot-v1", 4, 500),
    Case("mountaincar", "MountainCar-v0", 2, 200),
    Case("mountaincar_continuous", "MountainCarContinuous-v0", 2, 999),
    Case("pendulum", "Pendulum-v1", 2, 200),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def states_of(vecenv: VectorEnv, case: Case) -> NDArray[np.float64]:
    """Return the state of each env: it follows the 16 bytes of rng and tick."""
    size = 8 * case.state_size
    snapshot = vecenv.snapshot()
    assert snapshot is not None
    return np.ascontiguousarray(snapshot[:, 16 : 16 + size]).view(np.float64)


def actions_for(case: Case, vecenv: VectorEnv, rng: np.random.Generator) -> NDArray[Any]:
    """Return random actions, half of the time those that pump energy in, so that goals occur."""
    count, seen = vecenv.num_agents, vecenv.observations
    speed = seen[:, 4] if case.name == "acrobot" else seen[:, -1]
    pump = np.where(speed < 0, -1.0, 1.0) * (-1.0 if case.name == "acrobot" else 1.0)
    if isinstance(vecenv.action_space, gymnasium.spaces.Discrete):
        chosen = np.where(rng.random(count) < 0.5, rng.integers(3, size=count), 1 + pump)
        return chosen.astype(np.int32)
    assert isinstance(vecenv.action_space, gymnasium.spaces.Box)
    high = vecenv.action_space.high
    noise = rng.uniform(-high, high, (count, 1))
    return np.where(rng.random((count, 1)) < 0.5, noise, pump[:, None] * high).astype(np.float32)


@every_case
def test_every_episode_is_that_of_gymnasium(case: Case) -> None:
    """Gymnasium plays whole episodes from our starts with our actions, never corrected."""
    rng = np.random.default_rng(0)
    wrapped = gymnasium.make(case.gym_id, disable_env_checker=True)
    reference: Any = wrapped.unwrapped
    ends = cut = 0
    with pufferlib.make(case.name, num_envs=1) as vecenv:
        vecenv.reset(seed=1)
        wrapped.reset()
        reference.state = states_of(vecenv, case)[0]
        for _ in range(NUM_STEPS):
            action = actions_for(case, vecenv, rng)
            vecenv.step(action)
            discrete = isinstance(vecenv.action_space, gymnasium.spaces.Discrete)
            expected, reward, terminated, truncated, _ = wrapped.step(
                int(action[0]) if discrete else action[0]
            )
            ended = bool(vecenv.terminals[0] or vecenv.truncations[0])
            rows = vecenv.final_observations if ended else vecenv.observations
            np.testing.assert_allclose(rows[0], expected, rtol=0, atol=TOLERANCE)
            assert vecenv.rewards[0] == pytest.approx(reward, rel=1e-6, abs=TOLERANCE)
            assert vecenv.terminals[0] == terminated
            assert vecenv.truncations[0] == (truncated and not terminated)
            if ended:
                ends += int(terminated)
                cut += int(truncated)
                wrapped.reset()
                reference.state = states_of(vecenv, case)[0]
    assert cut if case.name == "pendulum" else ends > 10


@every_case
def test_every_step_is_that_of_gymnasium_from_any_state(case: Case) -> None:
    """States along random play of many envs, one step each."""
    rng = np.random.default_rng(1)
    reference: Any = gymnasium.make(case.gym_id).unwrapped
    reference.reset()
    num_envs = 64
    with pufferlib.make(case.name, num_envs=num_envs, max_steps=1000) as vecenv:
        vecenv.reset(seed=2)
        for step in range(600):
            before = states_of(vecenv, case)
            actions = actions_for(case, vecenv, rng)
            vecenv.step(actions)
            i = step % num_envs
            ended = bool(vecenv.terminals[i] or vecenv.truncations[i])
            rows = vecenv.final_observations if ended else vecenv.observations
            reference.state = before[i]
            discrete = isinstance(vecenv.action_space, gymnasium.spaces.Discrete)
            expected, reward, terminated, _, _ = reference.step(
                int(actions[i]) if discrete else actions[i]
            )
            np.testing.assert_allclose(rows[i], expected, rtol=1e-6, atol=1e-6)
            assert vecenv.rewards[i] == pytest.approx(reward, rel=1e-6)
            assert vecenv.terminals[i] == terminated


@every_case
def test_spaces_and_limits_are_those_of_gymnasium(case: Case) -> None:
    spec = gymnasium.spec(case.gym_id)
    reference = gymnasium.make(case.gym_id)
    with pufferlib.make(case.name, num_envs=1) as vecenv:
        assert vecenv.action_space == reference.action_space
        assert vecenv.observation_space.shape == reference.observation_space.shape
        assert vecenv.observation_space.dtype == reference.observation_space.dtype
        assert spec.max_episode_steps == case.max_steps
        vecenv.reset(seed=0)
        still = (
            np.ones(1, np.int32) if case.name in ("acrobot", "mountaincar") else np.zeros((1, 1))
        )
        for step in range(1, case.max_steps + 1):
            vecenv.step(still)
            assert vecenv.truncations[0] == (step == case.max_steps)


@every_case
def test_starts_are_spread_like_those_of_gymnasium(case: Case) -> None:
    ranges = {
        "acrobot": [(-0.1, 0.1)] * 4,
        "mountaincar": [(-0.6, -0.4), (0, 0)],
        "mountaincar_continuous": [(-0.6, -0.4), (0, 0)],
        "pendulum": [(-math.pi, math.pi), (-1, 1)],
    }[case.name]
    with pufferlib.make(case.name, num_envs=4096) as vecenv:
        vecenv.reset(seed=0)
        starts = states_of(vecenv, case)
    for column, (low, high) in zip(starts.T, ranges, strict=True):
        assert ((column >= low - 1e-7) & (column <= high + 1e-7)).all()
        spread = (high - low) / math.sqrt(12)  # of a uniform number; of the mean of 4096: / 64
        assert abs(column.mean() - (low + high) / 2) <= 5 * spread / 64
        assert column.std() == pytest.approx(spread, rel=0.05)


# ---- Scores --------------------------------------------------------------------------------------


def test_a_pumping_car_reaches_the_flag_and_is_scored_by_its_steps() -> None:
    with pufferlib.make("mountaincar", num_envs=64) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(400):
            vecenv.step(np.where(vecenv.observations[:, 1] < 0, 0, 2))
        metrics = vecenv.drain_metrics()
    assert metrics["score"] == -metrics["episode_length"] == metrics["mean_reward"]
    assert -125 < metrics["score"] < -100
    # (1 - 119 / 200) / 0.45 = 0.9: the mean is near, and no episode counts more than 1
    assert 0.8 < metrics["perf"] <= 1


def test_idle_play_has_perf_0() -> None:
    for name, score in (("acrobot", -500), ("mountaincar", -200), ("mountaincar_continuous", 0)):
        with pufferlib.make(name, num_envs=4) as vecenv:
            vecenv.reset(seed=0)
            shape = (4, 1) if name == "mountaincar_continuous" else (4,)
            for _ in range(1000):
                vecenv.step(np.full(shape, 0 if len(shape) == 2 else 1))
            metrics = vecenv.drain_metrics()
        assert metrics["score"] == score
        assert metrics["perf"] == 0


def test_the_score_of_the_continuous_car_is_its_return() -> None:
    with pufferlib.make("mountaincar_continuous", num_envs=16) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(1000):
            vecenv.step(np.where(vecenv.observations[:, 1:] < 0, -1.0, 1.0).astype(np.float32))
        metrics = vecenv.drain_metrics()
    assert metrics["score"] == pytest.approx(metrics["mean_reward"], abs=1e-3)
    # full throttle costs 0.1 a step: 100 - 0.1 x steps
    assert metrics["score"] == pytest.approx(100 - 0.1 * metrics["episode_length"], abs=1e-3)
    assert metrics["perf"] == pytest.approx(min(metrics["score"] / 90, 1), abs=0.02)


def test_pendulum_scores_its_mean_cost() -> None:
    with pufferlib.make("pendulum", num_envs=256) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(200):
            vecenv.step(np.zeros((256, 1), np.float32))
        metrics = vecenv.drain_metrics()
    assert metrics["score"] == pytest.approx(metrics["mean_reward"], rel=1e-5)
    assert -1500 < metrics["score"] < -1000
    assert metrics["perf"] < 0.3


@pytest.mark.parametrize("name", ["mountaincar", "mountaincar_continuous"])
def test_shaping_adds_the_energy_gained_and_leaves_the_score(name: str) -> None:
    """Energy is (1 + sin 3x) / 2 + 0.75 v^2 / 0.0025: 0 at the bottom, 1 on top."""

    def energy(row: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(0.5 + 0.5 * np.sin(3 * row[:, 0]) + 300 * row[:, 1] ** 2)

    with (
        pufferlib.make(name, num_envs=8, shaping=10) as shaped,
        pufferlib.make(name, num_envs=8) as plain,
    ):
        shaped.reset(seed=0)
        plain.reset(seed=0)
        for _ in range(60):
            before = shaped.observations.astype(np.float64)
            pump = np.where(before[:, 1] < 0, -1, 1)
            actions = pump + 1 if name == "mountaincar" else pump[:, None].astype(np.float32)
            shaped.step(actions)
            plain.step(actions)
            gain = energy(shaped.observations.astype(np.float64)) - energy(before)
            np.testing.assert_allclose(shaped.rewards - plain.rewards, 10 * gain, atol=1e-4)
            np.testing.assert_array_equal(shaped.observations, plain.observations)


# ---- States from a file --------------------------------------------------------------------------

UNREACHABLE: dict[str, list[tuple[float, ...]]] = {
    "acrobot": [(3.2, 0, 0, 0), (0, -3.2, 0, 0), (0, 0, 13, 0), (0, 0, 0, 29), (math.nan, 0, 0, 0)],
    "mountaincar": [(-1.3, 0), (0.61, 0), (0, 0.08), (0, math.nan)],
    "mountaincar_continuous": [(-1.3, 0), (0.61, 0), (0, -0.08), (math.inf, 0)],
    "pendulum": [(3.2, 0), (0, 8.1), (math.nan, 0)],
}


@every_case
def test_a_state_that_play_never_reaches_is_refused(case: Case) -> None:
    with pufferlib.make(case.name, num_envs=1) as vecenv:
        vecenv.reset(seed=1)
        kept = vecenv.snapshot()
        assert kept is not None
        for state in UNREACHABLE[case.name]:
            forged = kept.copy()
            forged[0, 16 : 16 + 8 * case.state_size] = np.frombuffer(
                np.array(state, np.float64).tobytes(), np.uint8
            )
            with pytest.raises(pufferlib.errors.UsageError, match="state that play cannot reach"):
                vecenv.restore(forged)
        vecenv.restore(kept)
