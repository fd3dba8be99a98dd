"""Running statistics: right whatever the pieces, the same in rollout, training and play."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from scripted import Scripted, TenTimes, learn
from torch import Tensor
from torch.testing import assert_close

import pufferlib
from pufferlib import PuffeRL
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.policies.acting import policy_sequence
from pufferlib.policies.normalisation import (
    CLIP,
    RETURN_FLOOR,
    Moments,
    ObservationNorm,
    RewardNorm,
)
from pufferlib.pytorch import unflatten_observations
from pufferlib.runs.evaluation import evaluate_policy
from pufferlib.spaces import observation_layout
from pufferlib.vectorization import Serial

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"device": "cpu", "dashboard": "off", "n_epochs": 1}


def test_moments_are_those_of_all_rows_whatever_the_pieces() -> None:
    rows = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) * 5 + 1e3
    moments = Moments(3, CPU)
    for piece in rows.split([1, 499, 3, 497]):
        moments.update(piece)

    assert moments.count == 1000
    assert_close(moments.mean, rows.double().mean(0))
    assert_close(moments.var, rows.double().var(0, correction=0))


def test_masked_rows_are_left_out() -> None:
    rows = torch.tensor([[1.0], [np.nan], [3.0], [np.inf]])
    masks = torch.tensor([True, False, True, False])
    moments = Moments(1, CPU)
    moments.update(rows[:2], masks[:2])
    moments.update(rows[2:], masks[2:])
    moments.update(rows[3:], masks[3:])  # none at all

    # 1 and 3: mean 2, variance 1
    assert (moments.count, moments.mean, moments.var) == (2, 2, 1)


def test_what_is_not_finite_spoils_nothing() -> None:
    moments = Moments(2, CPU)
    moments.update(torch.tensor([[1.0, 1.0], [3.0, 3.0]]))
    moments.update(torch.tensor([[np.nan, 5.0]]))

    assert moments.mean.tolist() == [2, 3]  # (1 + 3 + 5) / 3
    assert moments.var[0] == 1


def test_observations_get_mean_0_and_deviation_1_and_are_clipped() -> None:
    norm = ObservationNorm(observation_layout(Box(-np.inf, np.inf, (2,), np.float32)))
    rows = torch.tensor([[0.0, 7.0], [2.0, 7.0], [4.0, 7.0], [6.0, 7.0]])
    assert_close(norm(rows), rows)  # nothing is known yet
    assert norm(torch.full((1, 2), 1e9)).tolist() == [[CLIP, CLIP]]
    learn(norm, rows)

    # mean 3, variance 5; the second component never moves
    expected = torch.tensor([-3.0, -1.0, 1.0, 3.0]) / 5**0.5
    assert_close(norm(rows)[:, 0], expected)
    assert_close(norm(rows)[:, 1], torch.zeros(4))
    assert norm(torch.tensor([[3.0, 1e9]])).tolist() == [[0, CLIP]]
    assert rows[0, 1] == 7  # the env's own rows stay


@pytest.mark.parametrize("others", [{}, {"image": Box(0, 255, (2, 2, 3), np.uint8)}])
def test_only_boxes_of_floats_are_touched(others: dict[str, Any]) -> None:
    # float32 alone or among bytes: the row is of floats or of bytes
    space = Dict(speed=Box(-9, 9, (3,), np.float32), height=Box(0, 9, (), np.float32), **others)
    layout = observation_layout(space)
    norm = ObservationNorm(layout)
    rng = np.random.default_rng(0)
    rows = torch.zeros(50, *layout.shape, dtype=torch.uint8 if others else torch.float32)
    parts = unflatten_observations(rows, layout)
    parts["speed"][:] = torch.from_numpy(rng.normal(2, 3, (50, 3)))
    parts["height"][:] = torch.from_numpy(rng.uniform(0, 9, 50))
    if others:
        parts["image"][:] = torch.from_numpy(rng.integers(0, 255, (50, 2, 2, 3)))
    before = rows.clone()
    learn(norm, rows)
    seen = unflatten_observations(norm(rows), layout)

    for name in ("speed", "height"):
        assert_close(seen[name].mean(0), torch.zeros(seen[name].shape[1:]), atol=1e-6, rtol=0)
        assert_close(seen[name].var(0, correction=0), torch.ones(seen[name].shape[1:]))
    if others:
        assert torch.equal(seen["image"], parts["image"])
    assert torch.equal(rows, before)


def test_without_floats_there_is_nothing_to_normalise() -> None:
    with pytest.raises(UsageError, match=r"`norm_obs` needs a Box of floats.*Discrete\(3\)"):
        ObservationNorm(observation_layout(Discrete(3)))


def test_rewards_are_divided_by_the_deviation_of_discounted_returns() -> None:
    norm = RewardNorm(1, 0.5, CPU)
    ends = torch.tensor([[False, False, True, False]])
    # returns: 1, 0.5*1 + 2 = 2.5, 0.5*2.5 + 3 = 4.25, then from zero: 4. Mean 2.9375
    rewards = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    norm.update(rewards, ends)
    spread = np.std([1, 2.5, 4.25, 4])
    assert_close(norm(rewards), rewards / spread, atol=1e-6, rtol=1e-6)

    norm.update(torch.tensor([[1.0]]), ends[:, :1])  # goes on: 0.5*4 + 1 = 3
    spread = np.std([1, 2.5, 4.25, 4, 3])
    assert_close(norm(rewards), rewards / spread, atol=1e-6, rtol=1e-6)


def test_rewards_of_absent_agents_do_not_count() -> None:
    rewards, ends = torch.tensor([[1.0, np.nan, 3.0]]), torch.zeros(1, 3, dtype=torch.bool)
    norm, bare = RewardNorm(1, 1.0, CPU), RewardNorm(1, 1.0, CPU)
    norm.update(rewards, ends, torch.tensor([[True, False, True]]))
    bare.update(rewards[:, ::2], ends[:, ::2])

    assert_close(norm.moments.var, bare.moments.var)
    assert norm.returns.tolist() == [4]


# ---- In a run ------------------------------------------------------------------------------------


def cartpole(num_envs: int = 8, **settings: Any) -> Any:
    return pufferlib.make("cartpole", num_envs=num_envs, num_workers=1, **settings)


def iterate(trainer: PuffeRL, iterations: int) -> None:
    for _ in range(iterations):
        trainer.evaluate()
        trainer.train()


def test_what_was_seen_in_the_rollout_is_what_is_trained_on() -> None:
    trainer = PuffeRL(cartpole(), batch_size=512, num_steps=16, norm_obs=True, **SMALL)
    iterate(trainer, 2)
    with torch.no_grad():  # heads begin near zero: make what is seen visible
        for parameter in trainer.policy.parameters():
            parameter.mul_(3)
    trainer.evaluate()
    rollout = trainer.rollout
    with torch.no_grad():
        output = policy_sequence(
            trainer.policy, rollout.observations, None, rollout.resets, trainer.spaces
        )

    assert_close(output.value.view(32, 16), rollout.values, atol=1e-5, rtol=1e-5)
    assert 0.5 < rollout.observations.std() < 1.5  # cartpole's own is below 0.5
    assert trainer.train()["updates"] == 8


def test_statistics_are_those_of_all_rollouts_before() -> None:
    # the observations of Scripted count steps: 0 to 5, 6 to 11
    vecenv = Serial(Scripted, 1)
    trainer = PuffeRL(vecenv, TenTimes(), batch_size=6, norm_obs=True, **SMALL)
    trainer.evaluate()
    trainer.evaluate()
    expected = (torch.arange(6.0, 12.0) - 2.5) / (35 / 12) ** 0.5
    assert_close(trainer.rollout.observations.flatten(), expected)
    # the bootstrap too: observation 12, valued at ten times itself
    assert_close(trainer.rollout.bootstrap[0], 10 * (12 - torch.tensor(2.5)) / (35 / 12) ** 0.5)


def test_the_first_rollout_is_normalised_as_it_goes() -> None:
    # the observations of two envs, 3 apart: 0 and 3, 1 and 4, 2 and 5, ...
    starts = iter((0, 3))
    vecenv = Serial(lambda: Scripted(first=next(starts)), 2)
    trainer = PuffeRL(vecenv, TenTimes(), batch_size=8, norm_obs=True, **SMALL)
    trainer.evaluate()
    seen = trainer.rollout.observations.view(2, 4)
    assert seen[:, 0].tolist() == [0, 3]  # nothing is known yet
    for t in range(1, 4):
        before = np.array([[t, t + 3] for t in range(t)])
        expected = (np.array([t, t + 3]) - before.mean()) / before.std()
        assert_close(seen[:, t], torch.from_numpy(expected).float())
    assert_close(trainer.rollout.values.view(2, 4), 10 * seen)


def test_the_first_reward_after_a_long_time_is_not_blown_up() -> None:
    norm = RewardNorm(4, 0.99, CPU)
    ends = torch.zeros(4, 256, dtype=torch.bool)
    for _ in range(50):
        norm.update(torch.zeros(4, 256), ends)
    rewards = torch.zeros(4, 256)
    rewards[0, 200] = 1
    norm.update(rewards, ends)
    assert norm(rewards).max() == CLIP
    assert_close(norm(torch.tensor([1e-3])), torch.tensor([1e-3 / norm.moments.var.sqrt().item()]))

    # where all that is ever earned is tiny, it grows a hundredfold and no more
    norm = RewardNorm(4, 0.99, CPU)
    norm.update(1e-6 * rewards, ends)
    assert_close(norm(torch.tensor([1e-6])), torch.tensor([1e-6 / RETURN_FLOOR]))


def test_final_observations_are_normalised_too() -> None:
    vecenv = Serial(lambda: Scripted(truncations=[9]), 1)
    trainer = PuffeRL(vecenv, TenTimes(), batch_size=6, norm_obs=True, **SMALL)
    trainer.evaluate()
    trainer.evaluate()
    # 109, beyond ten deviations
    assert trainer.rollout.final_values[0, 3] == 10 * CLIP


def test_rewards_are_scaled_then_normalised_then_clipped() -> None:
    def rewards(**settings: Any) -> Tensor:
        vecenv = Serial(lambda: Scripted(terminals=[3]), 1)
        trainer = PuffeRL(vecenv, TenTimes(), batch_size=6, gamma=0.5, **settings, **SMALL)
        trainer.evaluate()
        return trainer.rollout.rewards.flatten()

    plain = torch.arange(1.0, 7.0)
    bare: dict[str, Any] = {"norm_reward": False}
    assert_close(rewards(**bare), plain)
    assert rewards(reward_scale=0.5, reward_clip=2.0, **bare).tolist() == [0.5, 1, 1.5, 2, 2, 2]
    # returns: 1, 2.5, 4.25, 6.125, then from zero 5, 8.5
    spread = float(np.std([1, 2.5, 4.25, 6.125, 5, 8.5]))
    assert_close(rewards(), plain / spread)
    assert_close(rewards(norm_reward=True, reward_scale=100.0), plain / spread)
    assert_close(rewards(norm_reward=True, reward_clip=1.0), (plain / spread).clamp(max=1))


@pytest.mark.parametrize("num_steps", [2, 4, 16])
def test_returns_go_on_across_stretches(num_steps: int) -> None:
    def normed(num_steps: int) -> Any:
        vecenv = cartpole(4)
        trainer = PuffeRL(
            vecenv, batch_size=64, num_steps=num_steps, norm_reward=True, seed=3, **SMALL
        )
        trainer.evaluate()
        return trainer.reward_norm

    assert_close(normed(num_steps).moments.var, normed(16).moments.var)


def test_predict_and_play_see_what_the_policy_was_trained_on() -> None:
    trainer = PuffeRL(cartpole(), batch_size=512, norm_obs=True, **SMALL)
    iterate(trainer, 2)
    assert trainer.observation_norm is not None
    seen: list[Tensor] = []
    trainer.policy.register_forward_hook(lambda module, inputs, _: seen.append(inputs[0]))
    rows = trainer.env.observations.copy()
    trainer.predict(rows)
    assert_close(seen[-1], trainer.observation_norm(torch.from_numpy(rows)))

    with cartpole() as vecenv:
        evaluate_policy(vecenv, trainer.policy, 8, normalise=trainer.observation_norm, seed=1)
        first = seen[1]
        assert_close(first, trainer.observation_norm(torch.from_numpy(vecenv.reset(seed=1))))


@pytest.mark.parametrize("settings", [{"norm_obs": True}, {"norm_reward": True}])
def test_a_resumed_run_knows_what_it_has_seen(settings: dict[str, Any], tmp_path: Path) -> None:
    def trainer(**changes: Any) -> PuffeRL:
        return PuffeRL(cartpole(), batch_size=512, **{"seed": 1, **settings, **changes}, **SMALL)

    whole, first, second = trainer(), trainer(), trainer(seed=2)
    iterate(whole, 4)
    iterate(first, 2)
    first.save_checkpoint(tmp_path / "half")
    second.load_checkpoint(tmp_path / "half")
    iterate(second, 2)
    for one, other in zip(whole.policy.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(one, other)

    bare = PuffeRL(cartpole(), batch_size=512, norm_reward=False, **SMALL)
    bare.save_checkpoint(tmp_path / "bare")
    with pytest.raises(CheckpointError, match="must be false to resume from this checkpoint"):
        second.load_checkpoint(tmp_path / "bare")


class Far(gymnasium.Env[Any, Any]):
    """Asks for the sign of its first number, which is tiny and far from zero."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        return self.look(), {}

    def look(self) -> Any:
        self.right = int(self.np_random.integers(2))
        self.tick = getattr(self, "tick", 0) + 1
        return np.array([300 + 0.01 * self.right, 1000 * self.np_random.normal()], np.float32)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = 100.0 * float(action == self.right)
        return self.look(), reward, self.tick % 4 == 0, False, {}


@pytest.mark.parametrize(("normalised", "learns"), [(True, True), (False, False)])
def test_normalising_makes_badly_scaled_tasks_learnable(normalised: bool, learns: bool) -> None:
    # three steps an episode: chance is 150 of 300
    with pufferlib.emulate(Far, num_envs=16, seed=1) as vecenv:
        trainer = PuffeRL(
            vecenv,
            batch_size=256,
            num_iterations=12,
            learning_rate=0.01,
            gamma=0.5,
            norm_obs=normalised,
            norm_reward=normalised,
            **{**SMALL, "n_epochs": 4},
        )
        iterate(trainer, 11)
        reached = trainer.evaluate()["mean_reward"]
    assert (reached > 280) == learns
