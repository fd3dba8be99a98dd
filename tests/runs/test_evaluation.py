"""Playing a policy: every slot counts alike, and only what was asked for counts."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.models import make_policy
from pufferlib.runs.evaluation import evaluate_policy
from pufferlib.vectorization import Serial


class Clock(pufferlib.PufferEnv):
    """An episode of `length` steps earns `reward` a step; perf is the reward."""

    def __init__(self, length: int, reward: float, absent: bool = False, pause: int = 0) -> None:
        self.single_observation_space = Box(0, 100, (1,), np.float32)
        self.single_action_space = Discrete(2)
        self.length, self.reward, self.absent = length, reward, absent
        self.pause, self.waits = pause, 0  # steps that its slot is empty after an end
        super().__init__()

    def reset(self, seed: int | None = None) -> Any:
        self.ticks = 0
        self.observations[:] = 0
        self.masks[:] = not self.absent
        return self.observations, []

    def step(self, actions: Any) -> Any:
        if self.waits:
            self.waits -= 1
            self.masks[:] = not self.waits
            return self.observations, self.rewards, self.terminals, self.truncations, []
        if not self.absent:
            self.ticks += 1
            self.rewards[:] = self.reward
        infos = []
        if self.ticks == self.length:
            self.terminals[:] = True
            infos = [{"perf": self.reward}]
            self.ticks, self.waits = 0, self.pause
            self.masks[:] = not self.waits
        self.observations[:] = self.ticks
        return self.observations, self.rewards, self.terminals, self.truncations, infos


class Coin(nn.Module):
    """Chooses by a coin and records what mode it was asked in."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))
        self.modes: set[bool] = set()

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        self.modes.add(self.training)
        return torch.zeros(len(observations), 2), self.value.expand(len(observations))


def clocks(*envs: tuple[Any, ...]) -> Serial:
    queue = iter(envs)
    return Serial(lambda: Clock(*next(queue)), len(envs))


def test_every_slot_plays_as_many_episodes() -> None:
    # the slow env ends once in 12 steps, in which the fast one ends four times
    vecenv = clocks((3, 1.0), (12, 0.25))
    scores = evaluate_policy(vecenv, Coin(), episodes=2)
    assert scores == {
        "episodes": 2.0,
        "mean_reward": 3.0,  # 3 x 1 and 12 x 0.25
        "min_reward": 3.0,
        "max_reward": 3.0,
        "std_reward": 0.0,
        "ci95_reward": 0.0,
        "episode_length": 7.5,
        "perf": 0.625,  # 1 and 0.25, though an uncounted 1 falls into the step of the slow one's
    }


def test_metrics_of_episodes_beyond_the_quota_do_not_count() -> None:
    # lengths 3 and 10 have no end in common: 2 episodes each, although the fast one plays 6
    vecenv = clocks((3, 1.0), (10, 0.0))
    scores = evaluate_policy(vecenv, Coin(), episodes=4)
    assert scores["episodes"] == 4
    assert scores["perf"] == 0.5
    assert scores["episode_length"] == 6.5
    assert scores["mean_reward"] == 1.5
    assert scores["std_reward"] == 1.5
    # sample deviation sqrt(n / (n - 1)) * 1.5, divided by sqrt(n): 1.5 / sqrt(n - 1)
    assert scores["ci95_reward"] == pytest.approx(1.96 * 1.5 / (scores["episodes"] - 1) ** 0.5)


@pytest.mark.parametrize(
    ("episodes", "lengths"),
    [(1, [9]), (2, [9, 4]), (3, [9, 4, 5]), (4, [9, 4, 5, 9]), (8, [9, 9, 9, 4, 4, 4, 5, 5])],
)
def test_the_first_slots_play_the_remaining_episodes(episodes: int, lengths: list[int]) -> None:
    vecenv = clocks((9, 1.0), (4, 1.0), (5, 1.0))  # the slowest is the first
    scores = evaluate_policy(vecenv, Coin(), episodes=episodes)
    assert scores["episodes"] == episodes == len(lengths)
    assert scores["episode_length"] == pytest.approx(np.mean(lengths))
    assert scores["mean_reward"] == pytest.approx(np.mean(lengths))
    assert scores["perf"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 64, 512])
def test_env_metrics_are_those_of_the_episodes_that_count(num_envs: int) -> None:
    # a step of cartpole earns 1 and its score is the number of steps: both are one number
    with pufferlib.make("cartpole", num_envs=num_envs, num_workers=1) as vecenv:
        torch.manual_seed(0)
        scores = evaluate_policy(vecenv, make_policy(vecenv, hidden_size=8), episodes=512)
    assert scores["episodes"] == 512
    assert scores["score"] == scores["mean_reward"] == scores["episode_length"]


@pytest.mark.parametrize("backend", ["serial", "multiprocessing", "threads"])
def test_metrics_of_c_envs_come_through_every_backend(backend: str) -> None:
    settings: dict[str, Any] = {"num_envs": 4, "num_workers": 2, "backend": backend}
    with pufferlib.make("snake", **settings, num_agents=2, max_steps=40) as vecenv:
        torch.manual_seed(0)
        scores = evaluate_policy(vecenv, make_policy(vecenv, hidden_size=8), episodes=24)
    with pufferlib.make("snake", num_envs=4, num_workers=1, num_agents=2, max_steps=40) as vecenv:
        torch.manual_seed(0)
        assert evaluate_policy(vecenv, make_policy(vecenv, hidden_size=8), episodes=24) == scores
    assert {"score", "perf"} <= scores.keys()


def test_a_slot_that_is_always_absent_is_not_waited_for() -> None:
    for episodes in (1, 2):
        vecenv = clocks((4, 1.0, True), (3, 1.0))
        scores = evaluate_policy(vecenv, Coin(), episodes=episodes)
        assert scores["episodes"] == 1
        assert scores["episode_length"] == 3


def test_the_policy_is_asked_in_eval_mode_and_left_as_it_was() -> None:
    for training in (True, False):
        policy = Coin().train(training)
        evaluate_policy(clocks((3, 1.0)), policy, episodes=1)
        assert policy.modes == {False}
        assert policy.training == training


def test_a_part_that_was_in_eval_mode_stays_in_it() -> None:
    policy = Coin()
    policy.add_module("frozen", nn.BatchNorm1d(3).eval())
    evaluate_policy(clocks((3, 1.0)), policy, episodes=1)
    assert policy.training
    assert not policy.get_submodule("frozen").training


def test_at_least_one_episode() -> None:
    with pytest.raises(UsageError, match="`episodes` must be at least 1, but got 0"):
        evaluate_policy(clocks((3, 1.0)), Coin(), episodes=0)


@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_equal_seeds_give_equal_scores(recurrent: Any) -> None:
    def scores(seed: int) -> dict[str, float]:
        with pufferlib.make("cartpole", num_envs=5, num_workers=1) as vecenv:
            torch.manual_seed(0)
            policy = make_policy(vecenv, hidden_size=8, recurrent=recurrent)
            vecenv.reset(seed=77)  # what the env did before does not matter
            vecenv.step(0)
            return evaluate_policy(vecenv, policy, episodes=10, seed=seed)

    assert scores(1) == scores(1)
    assert scores(1) != scores(2)
    assert scores(1)["episodes"] == 10
    assert (
        scores(1)["mean_reward"] == scores(1)["episode_length"] == pytest.approx(scores(1)["score"])
    )


def test_deterministic_play_takes_the_likeliest_legal_action() -> None:
    class First(nn.Module):
        """Prefers column 0, then 1, and so on."""

        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.zeros(()))

        def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
            batch = len(observations)
            return -torch.arange(7.0).expand(batch, 7), self.value.expand(batch)

    taken: list[tuple[Any, Any]] = []
    with pufferlib.make("connect4", num_envs=4, num_workers=1) as vecenv:
        send = vecenv.send

        def watched(actions: Any) -> None:
            assert vecenv.action_masks is not None
            taken.append((actions.copy(), vecenv.action_masks.copy()))
            send(actions)

        vecenv.send = watched  # type: ignore[method-assign]
        evaluate_policy(vecenv, First(), episodes=8, deterministic=True)
    for actions, masks in taken:
        assert (actions == masks.argmax(1)).all()  # the first column that is open


@pytest.mark.parametrize(("pause", "steps"), [(0, [1, 2, 3, 1, 2, 3]), (2, [1, 2, 3, 1, 1, 1, 2])])
def test_the_recurrent_state_is_zeroed_between_episodes(pause: int, steps: list[int]) -> None:
    seen: list[float] = []

    class Counting(nn.Module):
        """Its state is the number of steps since the episode began."""

        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.zeros(()))

        def forward(self, observations: Tensor, state: Any = None) -> Any:
            count = torch.ones(len(observations)) if state is None else state + 1
            seen.append(float(count[0]))
            return torch.zeros(len(observations), 2), count * self.value, count

    evaluate_policy(clocks((3, 1.0, False, pause)), Counting(), episodes=2)
    assert seen[: len(steps)] == steps  # a slot that is empty remembers nothing


def test_frames_and_progress_are_handed_over() -> None:
    frames: list[Any] = []
    progress: list[int] = []
    with pufferlib.make("cartpole", num_envs=2, num_workers=1, max_steps=4) as vecenv:
        policy = make_policy(vecenv, hidden_size=8)
        evaluate_policy(vecenv, policy, 4, on_frame=frames.append, on_progress=progress.append)
    assert len(frames) == 8
    assert frames[0].ndim == 3
    assert progress == [0, 0, 0, 2, 2, 2, 2, 4]


def test_a_single_env_is_refused_with_the_way_to_many() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(UsageError, match=r"must be a VectorEnv, but got .*Try `pufferlib.emulate"):
        evaluate_policy(env, Coin(), 1)  # type: ignore[arg-type]


def test_an_env_that_hands_over_a_part_of_its_slots_is_refused() -> None:
    said = "must hand over all 4 slots at once, but hands over 2"
    halves = pufferlib.make("cartpole", num_envs=4, double_buffer=True)
    with halves as vecenv, pytest.raises(UsageError, match=said):
        evaluate_policy(vecenv, Coin(), 4)


def test_scores_are_plain_numbers() -> None:
    scores = evaluate_policy(clocks((2, 1.0), (3, 0.5)), Coin(), 4)
    assert {type(score) for score in scores.values()} == {float}


def test_a_policy_without_parameters_plays() -> None:
    class Uniform(nn.Module):
        def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
            return torch.zeros(len(observations), 2), torch.zeros(len(observations))

    with Serial(lambda: Clock(length=3, reward=1.0), num_envs=2) as env:
        assert evaluate_policy(env, Uniform(), 4)["mean_reward"] == 3.0
