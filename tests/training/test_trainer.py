"""PuffeRL: its options, what it reports, that it learns, and that it repeats itself."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from scripted import Scripted, TenTimes
from torch import Tensor, nn
from torch.testing import assert_close

import pufferlib
from pufferlib import PuffeRL
from pufferlib.config import StepCost
from pufferlib.errors import NonFiniteError, UnknownNameError, UsageError
from pufferlib.models import make_policy
from pufferlib.policies.observations import policy_spaces
from pufferlib.training import profiling, sizing
from pufferlib.training import trainer as trainer_module
from pufferlib.training.trainer import RolloutDropped
from pufferlib.vectorization import Serial, VectorEnv

SMALL: dict[str, Any] = {
    "device": "cpu",
    "dashboard": "off",
    "batch_size": 256,
    "num_steps": 16,
    "n_epochs": 2,
}
LOG_KEYS = {
    "iteration",
    "steps",
    "total_steps",
    "sps",
    "uptime",
    "eta",
    "mean_reward",
    "min_reward",
    "max_reward",
    "episode_length",
    "episodes",
    "env/score",
    "env/perf",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "old_approx_kl",
    "clipfrac",
    "explained_variance",
    "grad_norm",
    "learning_rate",
    "updates",
    "native_engine",
    "time/env",
    "time/forward",
    "time/store",
    "time/advantage",
    "time/update",
    "time/other",
    "system/cpu",
    "system/memory",
}


def cartpole(num_envs: int = 8, **settings: Any) -> VectorEnv:
    return pufferlib.make("cartpole", num_envs=num_envs, num_workers=1, **settings)


def small(vecenv: VectorEnv, policy: nn.Module | None = None, **settings: Any) -> PuffeRL:
    return PuffeRL(vecenv, policy, **{**SMALL, **settings})


def iterate(trainer: PuffeRL, iterations: int = 1) -> dict[str, float]:
    for _ in range(iterations):
        trainer.evaluate()
        trainer.train()
        log = trainer.mean_and_log()
    return log


def weights(trainer: PuffeRL) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in trainer.policy.parameters()]


def are_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


# ---- What an iteration reports -------------------------------------------------------------------


def test_an_env_alone_will_do() -> None:
    trainer = PuffeRL(cartpole(), dashboard="off", n_epochs=1)
    assert trainer.config.batch_size == 2048
    assert trainer.device.type in ("cpu", "cuda")
    trainer.close()


def test_an_iteration_reports_all_its_numbers() -> None:
    trainer = small(cartpole(max_steps=5), num_iterations=4)
    collected = trainer.evaluate()
    # no pole falls within 5 steps: every episode reaches its limit, at one reward a step
    assert collected["mean_reward"] == collected["episode_length"] == 5
    assert collected["episodes"] == 8 * 6  # 32 steps of each of 8 slots
    assert collected["sps"] > 0
    losses = trainer.train()
    assert losses["updates"] == 2 * 4
    assert 0 < losses["entropy"] <= math.log(2) + 1e-6
    assert losses["approx_kl"] >= 0
    log = trainer.mean_and_log()
    assert log.keys() == LOG_KEYS
    assert log["iteration"] == 1
    assert (log["steps"], log["total_steps"]) == (256, 1024)
    assert log["env/score"] == 5
    spans = [value for key, value in log.items() if key.startswith("time/")]
    assert sum(spans) <= log["uptime"]
    assert all(isinstance(value, int | float) for value in log.values())


def test_statistics_stay_when_no_episode_ends_but_their_number_does_not() -> None:
    # episodes of 2 x 3 + 4 = 10 steps: they end in the third and the fifth rollout of 4 steps
    vecenv = pufferlib.make("memory", num_envs=8, num_workers=1, length=3, delay=4)
    trainer = small(vecenv, batch_size=32, num_steps=4)
    episodes, rewards = [], []
    for _ in range(4):
        collected = trainer.evaluate()
        trainer.train()
        log = trainer.mean_and_log()
        assert collected["episodes"] == log["episodes"]
        episodes.append(log["episodes"])
        rewards.append(log["mean_reward"])
    assert episodes == [0, 0, 8, 0]
    assert np.isnan(rewards[:2]).all()
    assert rewards[3] == rewards[2]


def test_statistics_are_over_the_last_hundred_episodes() -> None:
    # each rollout ends 2 episodes of the return that `max_steps` allows
    trainer = small(cartpole(max_steps=5, num_envs=2), batch_size=10, num_steps=5)
    window = [trainer.evaluate() for _ in range(3)]
    assert [log["episodes"] for log in window] == [2, 2, 2]
    trainer.state.episodes.rollouts[0] |= {"mean_reward": 35.0, "max_reward": 36.0, "score": 8.0}

    logs = [trainer.evaluate() for _ in range(48)]

    # 50 rollouts hold 100 episodes: one of 35 and 49 of 5, until the 51st pushes it out
    assert logs[-2]["mean_reward"] == pytest.approx(5 + 30 / 50)
    assert (logs[-2]["min_reward"], logs[-2]["max_reward"]) == (5, 36)
    assert logs[-2]["score"] == pytest.approx(5 + 3 / 50)
    assert (logs[-1]["mean_reward"], logs[-1]["max_reward"], logs[-1]["score"]) == (5, 5, 5)


def test_scores_settle_when_every_slot_has_ended_and_the_window_is_full() -> None:
    trainer = small(cartpole(max_steps=5, num_envs=2), batch_size=10, num_steps=5)
    settled = []
    for _ in range(51):
        trainer.evaluate()
        settled.append(trainer.is_settled)
    assert settled == [False] * 49 + [True] * 2
    trainer.env = cartpole(max_steps=5, num_envs=2)
    assert not trainer.is_settled


def test_a_resumed_run_goes_on_with_its_window(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"batch_size": 64, "num_steps": 8, "learning_rate": 0.01}
    trainer = small(cartpole(), **settings)
    iterate(trainer, 6)
    trainer.save_checkpoint(tmp_path / "half")
    resumed = small(cartpole(), **settings)
    resumed.load_checkpoint(tmp_path / "half")
    assert resumed.state.episodes.rollouts == trainer.state.episodes.rollouts != []
    assert (resumed.state.episodes.has_ended == trainer.state.episodes.has_ended).all()
    kept = ("mean_reward", "min_reward", "max_reward", "episode_length", "env/score", "episodes")
    for _ in range(40):
        went_on, after = iterate(trainer), iterate(resumed)
        assert {key: after[key] for key in kept} == {key: went_on[key] for key in kept}
        assert resumed.is_settled == trainer.is_settled
    assert trainer.is_settled


class Recorder:
    """A logger that keeps everything."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.closed = 0

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.rows.append((step, dict(metrics)))

    def close(self) -> None:
        self.closed += 1


class Failing(Recorder):
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        raise OSError("disk full")


def test_loggers_get_every_interval_and_are_closed_once() -> None:
    one, other = Recorder(), Recorder()
    with small(cartpole(), logger=[one, other], log_interval=2) as trainer:
        iterate(trainer, 5)
    trainer.close()
    assert [step for step, _ in one.rows] == [512, 1024]
    assert one.rows == other.rows
    assert (one.closed, other.closed) == (1, 1)


def test_a_logger_that_fails_does_not_stop_the_run() -> None:
    recorder = Recorder()
    trainer = small(cartpole(), logger=[Failing(), recorder])
    with pytest.warns(RuntimeWarning, match="Failing failed at step 256"):
        iterate(trainer, 2)
    assert len(recorder.rows) == 2


# ---- Settings ------------------------------------------------------------------------------------


def test_an_unknown_keyword_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"`learning_rat`.*`learning_rate`"):
        PuffeRL(cartpole(), learning_rat=1e-3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_rate": -1}, "`learning_rate` must be a number of at least 0, but got -1"),
        ({"gamma": 1.5}, "`gamma` must be a number between 0 and 1"),
        ({"device": "gpu7"}, "`device` must be auto, cpu, cuda, cuda:N or mps, but got `gpu7`"),
        ({"optimizer": "adm"}, r"must be one of adam, muon, but got `adm`.*`adam`"),
        (
            {"batch_size": 256, "minibatch_size": 64, "gradient_accumulation": 65},
            "`gradient_accumulation` must be at most the number of steps in a minibatch, 64, but",
        ),
    ],
)
def test_a_bad_setting_is_reported_in_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        PuffeRL(cartpole(), dashboard="off", **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_reported_in_one_line() -> None:
    with pytest.raises(UsageError) as caught:
        PuffeRL(cartpole(), device="cuda")
    assert str(caught.value) == "`device` must be available, but 'cuda' is not. Try device='cpu'."


def test_an_env_that_is_no_vector_is_answered_with_emulate() -> None:
    with pytest.raises(UsageError, match=r"but got .*Try `pufferlib.emulate\(env, num_envs=8\)`"):
        PuffeRL(gymnasium.make("CartPole-v1"))


@pytest.mark.parametrize("env", [None, 3, "cartpole", nn.Linear(1, 1)])
def test_what_is_no_vector_env_is_reported_in_one_line(env: Any) -> None:
    with pytest.raises(
        UsageError, match=r"`env` must be a VectorEnv, but got .*Try `pufferlib.make"
    ):
        PuffeRL(env)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (TenTimes, r"must be an nn.Module, but got a class. Try `TenTimes\(...\)`"),
        (lambda rows: rows, "must be an nn.Module, but got function"),
        (
            nn.Sequential(nn.Embedding(3, 4, sparse=True), TenTimes()),
            "must have dense gradients, but `0` has sparse ones. Try sparse=False",
        ),
    ],
)
def test_what_cannot_be_trained_is_reported_in_one_line(policy: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"`policy` {said}") as caught:
        small(cartpole(), policy)
    assert "\n" not in str(caught.value)


def test_a_policy_that_lets_no_gradient_through_is_reported() -> None:
    class Detached(TenTimes):
        def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
            logits, values = super().forward(observations)
            return logits.detach(), values.detach()

    trainer = small(cartpole(), Detached())
    trainer.evaluate()
    with pytest.raises(UsageError, match=r"no gradient reaches them. Try `forward` without"):
        trainer.train()


@pytest.mark.parametrize("logger", ["wandb", pufferlib.NoLogger, [None], 3])
def test_what_is_no_logger_is_reported_before_the_run(logger: Any) -> None:
    with pytest.raises(UsageError, match="`logger` must have `log"):
        small(cartpole(), logger=logger)


def test_a_device_may_be_torchs_own() -> None:
    assert small(cartpole(), device=torch.device("cpu")).device.type == "cpu"


def test_a_device_that_torch_has_no_part_for_is_reported() -> None:
    if torch.backends.mps.is_available():
        pytest.skip("it has")
    with pytest.raises(UsageError, match="`device` must be available, but 'mps' is not"):
        small(cartpole(), device="mps")


class Moody(TenTimes):
    """Has layers that are others in training, and records the mode it was asked in."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(0.5))
        self.actor = nn.Linear(16, 2)
        self.modes: list[bool] = []

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        self.modes.append(self.training)
        features = self.body(observations)
        return self.actor(features), features[:, 0] * self.factor


@pytest.mark.parametrize("num_envs", [8, 1])
def test_a_policy_plays_in_eval_mode_and_learns_in_train_mode(num_envs: int) -> None:
    policy, vecenv = Moody(), cartpole(num_envs)
    trainer = small(vecenv, policy)
    trainer.evaluate()
    assert set(policy.modes) == {False}
    assert policy.body[1].num_batches_tracked == 0
    policy.modes.clear()
    trainer.train()
    assert set(policy.modes) == {True}
    seen = policy.body[1].num_batches_tracked.item()
    assert seen > 0
    first, second = (trainer.predict(vecenv.observations)[0] for _ in range(2))
    assert (first == second).all()
    assert policy.body[1].num_batches_tracked == seen
    assert policy.training


def test_a_policy_without_parameters_is_reported() -> None:
    with pytest.raises(UsageError, match="`policy` must have parameters that require gradients"):
        PuffeRL(cartpole(), nn.Identity(), dashboard="off")


@pytest.mark.parametrize(
    ("slots", "settings", "batch_size"),
    [
        (7, {}, 2051),  # 293 steps each
        (1000, {}, 33000),
        (1000, {"num_steps": 64}, 64000),
        (7, {"num_steps": 100}, 2100),  # 3 stretches of 100 steps
    ],
)
def test_an_unset_batch_size_is_adjusted_to_the_slots(
    slots: int, settings: dict[str, Any], batch_size: int
) -> None:
    trainer = PuffeRL(cartpole(slots), dashboard="off", **settings)
    assert trainer.config.batch_size == batch_size
    assert trainer.shape.segments * trainer.shape.horizon == batch_size


def test_help_shows_every_option() -> None:
    parameters = inspect.signature(PuffeRL).parameters
    assert list(parameters)[:2] == ["env", "policy"]
    assert parameters["learning_rate"].default == 3e-4
    assert {"gamma", "num_steps", "target_kl", "logger"} <= parameters.keys()


def test_the_budget_ends_a_run() -> None:
    assert small(cartpole(), total_timesteps=1024).num_iterations == 4
    assert small(cartpole(), total_timesteps=1000).num_iterations == 4
    assert small(cartpole(), total_timesteps=1025).num_iterations == 5
    assert small(cartpole(), total_timesteps=1).num_iterations == 1
    trainer = small(cartpole(), total_timesteps=1_000_000, num_iterations=2)
    assert not trainer.done
    iterate(trainer, 2)
    assert trainer.done
    assert (trainer.iteration, trainer.steps) == (2, 512)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"total_timesteps": 1000}, "total_timesteps 1,000 is rounded up to 1,024: 4 iterations"),
        ({"total_timesteps": 1024}, None),
        ({"total_timesteps": 1000, "num_iterations": 2}, None),
    ],
)
def test_a_budget_that_is_rounded_is_said_so_once(
    budget: dict[str, int], said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = small(cartpole(), dashboard="auto", **budget)
    log = iterate(trainer, trainer.num_iterations)
    assert log["steps"] == log["total_steps"] == trainer.num_iterations * 256
    assert capsys.readouterr().out.count("rounded") == (said is not None)
    assert trainer.config.rounded_budget.startswith(said or "")
    assert bool(trainer.config.rounded_budget) == (said is not None)


def test_the_learning_rate_falls_linearly_over_the_budget() -> None:
    trainer = small(cartpole(), num_iterations=4, learning_rate=0.01)
    with pytest.warns(UserWarning, match="the budget of 1024 steps is spent"):
        rates = [iterate(trainer)["learning_rate"] for _ in range(5)]
    assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025, 0])


@pytest.mark.parametrize("settings", [{}, {"num_iterations": 4, "anneal_lr": False}])
def test_without_a_budget_or_annealing_the_learning_rate_stays(settings: dict[str, Any]) -> None:
    vecenv = cartpole()
    vecenv.is_from_make = False  # its ini has a budget
    trainer = small(vecenv, learning_rate=0.01, **settings)
    assert [iterate(trainer)["learning_rate"] for _ in range(5)] == [0.01] * 5


def test_a_learning_rate_set_by_hand_counts_from_the_next_update() -> None:
    trainer = small(cartpole(), learning_rate=0.01, anneal_lr=False)
    before = weights(trainer)
    trainer.learning_rate = 0
    assert iterate(trainer)["learning_rate"] == 0
    assert are_equal(before, weights(trainer))
    trainer.learning_rate = 0.02
    assert iterate(trainer)["learning_rate"] == 0.02
    assert not are_equal(before, weights(trainer))
    for bad in (-1, math.nan, math.inf):
        with pytest.raises(UsageError, match="`learning_rate` must be a number of at least 0"):
            trainer.learning_rate = bad


def test_rewards_are_scaled_and_clipped_in_training_only() -> None:
    trainer = small(cartpole(max_steps=5), reward_scale=0.5, reward_clip=0.3, norm_reward=False)
    assert trainer.evaluate()["mean_reward"] == 5
    assert trainer.rollout.rewards.unique().tolist() == [pytest.approx(0.3)]


def test_epochs_stop_beyond_the_target_kl() -> None:
    settings: dict[str, Any] = {"n_epochs": 10, "learning_rate": 0.01}
    assert iterate(small(cartpole(), **settings))["updates"] == 40
    assert iterate(small(cartpole(), target_kl=1e9, **settings))["updates"] == 40
    # the first update changes the policy, so that the last of the first epoch sees a divergence
    assert iterate(small(cartpole(), target_kl=0.0, **settings))["updates"] == 4


def test_the_seed_is_given_to_the_env_unless_one_is_held() -> None:
    first = small(cartpole(), seed=5).env.observations.copy()
    assert (cartpole().reset(seed=5) == first).all()
    held = pufferlib.make("cartpole", num_envs=8, num_workers=1, seed=6)
    assert (small(held, seed=5).env.observations == cartpole().reset(seed=6)).all()


# ---- Faults --------------------------------------------------------------------------------------


def test_training_needs_a_rollout() -> None:
    with pytest.raises(UsageError, match="`evaluate` must be called before `train`"):
        small(cartpole()).train()


class Faulty(VectorEnv):
    """A vector env of a user's own, which is not checked: one number of its second env is wrong."""

    num_envs = 3
    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self, name: str, value: float, step: int) -> None:
        self.fault = name, value, step

    def reset(self) -> Any:
        self.now = 0
        return np.zeros((3, 1), np.float32)

    def step(self, actions: Any) -> Any:
        name, value, step = self.fault
        rows = {
            "observations": np.full((3, 1), (self.now + 1) % 7, np.float32),
            "rewards": np.array(actions == self.now % 2, np.float32),
        }
        if self.now == step:
            rows[name][1] = value
        self.now += 1
        return rows["observations"], rows["rewards"], np.full(3, self.now % 4 == 0), [{}] * 3


def faulty(name: str, value: float, step: int, **settings: Any) -> PuffeRL:
    """A run of three envs whose second gives `value` in `step`."""
    vecenv = Faulty(name, value, step)
    torch.manual_seed(0)
    policy = make_policy(vecenv, hidden_size=8)
    sizes: dict[str, Any] = {"batch_size": 3 * 16, "num_steps": 4, "minibatch_size": 12}
    return small(vecenv, policy, shuffle="segments", **sizes, **settings)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("name", "told_step"),
    # steps 21 and 5 of the second rollout; what step 21 shows is looked at in step 22
    [("rewards", 5), ("observations", 6)],
)
def test_what_an_env_gives_that_is_not_finite_stops_the_run(
    name: str, value: float, told_step: int
) -> None:
    trainer = faulty(name, value, step=21)
    iterate(trainer)
    before = weights(trainer)
    with pytest.raises(NonFiniteError) as caught:
        trainer.evaluate()

    said = str(caught.value)
    assert said.startswith(
        f"`{name}` must be finite, but {value} came from slot 1 (env 1) in step {told_step} of the "
        "rollout, iteration 2."
    )
    assert "\n" not in said
    assert are_equal(before, weights(trainer))
    with pytest.raises(UsageError, match="`evaluate` must be called before `train`"):
        trainer.train()


@pytest.mark.parametrize("settings", [{}, {"norm_obs": True, "norm_reward": True}])
@pytest.mark.parametrize("name", ["rewards", "observations"])
def test_a_run_may_skip_what_is_not_finite(name: str, settings: dict[str, Any]) -> None:
    trainer = faulty(name, math.nan, step=21, on_nan="skip", n_epochs=1, **settings)
    iterate(trainer)
    before = weights(trainer)
    with pytest.warns(RuntimeWarning, match=f"`{name}` must be finite.*iteration 2. The updates"):
        trainer.evaluate()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        losses = trainer.train()
        assert losses["updates"] == 4
        assert 0 < losses["skipped_updates"] < 4  # one slot of three, 3 segments a minibatch
        assert math.isnan(losses.pop("explained_variance"))  # it looks at the whole rollout
        assert all(map(math.isfinite, losses.values()))
        assert all(part.isfinite().all() for part in weights(trainer))
        assert not are_equal(before, weights(trainer))  # the sound minibatches count
        log = iterate(trainer)  # and nothing of it stays
    assert log["skipped_updates"] == 0
    assert math.isfinite(log["policy_loss"])


def test_a_loss_that_is_not_finite_stops_the_run_in_one_line() -> None:
    trainer = small(cartpole(), n_epochs=1, minibatch_size=256)
    iterate(trainer, 2)
    trainer.evaluate()
    before = weights(trainer)
    trainer.rollout.rewards[3, 5] = math.nan
    with pytest.raises(
        NonFiniteError,
        match=r"^`policy_loss` must be finite, but is nan in update 0, iteration 3\.",
    ) as caught:
        trainer.train()
    assert "\n" not in str(caught.value)
    assert are_equal(before, weights(trainer))
    assert trainer.iteration == 2


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@pytest.mark.parametrize("on_nan", ["stop", "skip"])
def test_a_gradient_that_is_not_finite_moves_nothing(optimizer: str, on_nan: str) -> None:
    vecenv = cartpole()
    policy = make_policy(vecenv, hidden_size=16)
    trainer = small(vecenv, policy, n_epochs=1, optimizer=optimizer, on_nan=on_nan)
    iterate(trainer)
    handle = next(policy.parameters()).register_hook(lambda grad: grad * math.nan)
    before, state = weights(trainer), copy.deepcopy(trainer.optimizer.state_dict()["state"])
    with pytest.warns(UserWarning, match="does not support hooks of parameters"):
        trainer.evaluate()
    if on_nan == "stop":
        with pytest.raises(NonFiniteError, match="`grad_norm` must be finite, but is nan in up"):
            trainer.train()
    else:
        with pytest.warns(RuntimeWarning, match="`grad_norm` must be finite"):
            losses = trainer.train()
        assert losses["skipped_updates"] == losses["updates"] == 4
    assert are_equal(before, weights(trainer))
    now = trainer.optimizer.state_dict()["state"]
    for index, parts in state.items():
        for name, part in parts.items():
            assert torch.equal(part, now[index][name])
    handle.remove()
    iterate(trainer)
    assert not are_equal(before, weights(trainer))


def test_garbage_in_absent_rows_is_no_fault() -> None:
    envs = iter([Scripted(absences=[2]), Scripted()])
    trainer = small(Serial(lambda: next(envs), 2), TenTimes(), batch_size=16, num_steps=8)
    trainer.evaluate()
    trainer.rollout.rewards[0, 2] = math.nan
    assert trainer.rollout.non_finite(trainer.spaces.observation) is None
    trainer.rollout.rewards[0, 3] = math.nan
    reported = trainer.rollout.non_finite(trainer.spaces.observation)
    assert reported is not None
    assert "slot 0 (env 0) in step 3" in reported


def test_a_sum_that_overflows_is_no_fault() -> None:
    trainer = small(Serial(Scripted, 2), TenTimes(), batch_size=16, num_steps=8)
    trainer.evaluate()
    trainer.rollout.rewards[:] = 3e38
    assert trainer.rollout.non_finite(trainer.spaces.observation) is None


def test_masked_steps_carry_no_loss() -> None:
    def trained(garbage: float | None) -> list[Tensor]:
        absences = [set(range(3, 9)), set(), {0, 20, 21}]
        envs = iter(absences)
        vecenv = Serial(lambda: Scripted(absences=next(envs), terminals=[10, 25]), 3)
        torch.manual_seed(0)
        policy = make_policy(vecenv, hidden_size=8)
        trainer = PuffeRL(
            vecenv,
            policy,
            batch_size=96,
            num_steps=8,
            n_epochs=2,
            device="cpu",
            dashboard="off",
        )
        trainer.evaluate()
        if garbage is not None:
            absent = ~trainer.rollout.masks
            assert absent.sum() == 6 + 3
            for name in ("rewards", "values", "logprobs", "observations", "final_values"):
                getattr(trainer.rollout, name)[absent] = garbage
            trainer.rollout.terminals[absent] = True
            trainer.rollout.actions[absent] = 1
        trainer.train()
        return weights(trainer)

    for one, other in zip(trained(None), trained(1e4), strict=True):
        assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_parameters_that_need_no_gradient_stay() -> None:
    vecenv = cartpole()
    policy = make_policy(vecenv, hidden_size=8)
    frozen = next(policy.parameters())
    frozen.requires_grad_(False)
    before = frozen.clone()
    trainer = small(vecenv, policy)
    iterate(trainer)
    assert torch.equal(before, frozen)
    assert trainer.num_parameters == sum(p.numel() for p in policy.parameters()) - frozen.numel()


# ---- Acting --------------------------------------------------------------------------------------


def test_predict_gives_actions_and_the_next_state() -> None:
    vecenv = cartpole()
    trainer = small(vecenv, make_policy(vecenv, hidden_size=8, recurrent="lstm"))
    actions, state = trainer.predict(vecenv.observations)
    assert actions.shape == (8,)
    assert actions.dtype == np.int32
    assert [part.shape for part in state] == [(8, 8), (8, 8)]
    again, _ = trainer.predict(vecenv.observations)
    assert (actions == again).all()
    vecenv.send(trainer.predict(vecenv.observations, state, deterministic=False)[0])


def test_predict_takes_one_observation_as_well_as_many() -> None:
    vecenv = cartpole()
    trainer = small(vecenv)
    actions, _ = trainer.predict(vecenv.observations)
    one, _ = trainer.predict(vecenv.observations[3])
    assert one.shape == ()
    assert one == actions[3]
    masks = np.array([False, True])
    assert trainer.predict(vecenv.observations, action_masks=masks)[0].tolist() == [1] * 8
    with pytest.raises(UsageError, match=r"`action_masks` must have shape \(8, 2\), but got \(3,"):
        trainer.predict(vecenv.observations, action_masks=np.ones((3, 2)))


class Talking(pufferlib.PufferEnv):
    """Two agents that are spoken to by name, and see a dict."""

    def __init__(self, buf: Any = None) -> None:
        self.num_agents, self.agents = 2, ["left", "right"]
        self.single_observation_space = self.make_space({"place": (2,), "picture": (4, 4, 3)})
        self.single_action_space = Discrete(3)
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.rng = np.random.default_rng(seed)
        return {id: self.single_observation_space.sample() for id in self.agents}

    def step(self, actions: Any) -> Any:
        dones = {**dict.fromkeys(self.agents, False), "__all__": False}
        return self.reset(1), dict.fromkeys(self.agents, 0.0), dones, {}


def test_predict_takes_what_an_env_of_agents_with_names_answers() -> None:
    vecenv = pufferlib.emulate(Talking, num_envs=3, backend="serial")
    trainer = small(vecenv, batch_size=96)
    named = vecenv.reset(seed=1)
    assert named.keys() == {"left", "right"}
    rows, _ = trainer.predict(vecenv.observations)
    by_name, _ = trainer.predict(named)
    assert (rows == by_name).all()
    one = vecenv.observation_space.sample()
    assert trainer.predict(one)[0].shape == ()


# ---- Repeating -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "recurrent"), [("cartpole", None), ("connect4", None), ("snake", "lstm")]
)
def test_equal_seeds_give_equal_weights_whatever_the_threads(name: str, recurrent: Any) -> None:
    def trained(seed: int, workers: int) -> list[Tensor]:
        with pufferlib.make(name, num_envs=4, num_workers=workers) as vecenv:
            torch.manual_seed(seed)
            policy = make_policy(vecenv, hidden_size=8, recurrent=recurrent)
            batch_size = vecenv.num_agents * 32
            trainer = small(vecenv, policy, seed=seed, batch_size=batch_size)
            iterate(trainer, 3)
            return weights(trainer)

    reference = trained(1, workers=1)
    assert are_equal(reference, trained(1, workers=1))
    assert are_equal(reference, trained(1, workers=2))
    assert not are_equal(reference, trained(2, workers=1))


def test_the_default_policy_depends_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = small(cartpole(), seed=3)
    torch.manual_seed(2)
    noise = torch.rand(1)
    other = small(cartpole(), seed=3)
    assert are_equal(weights(one), weights(other))
    torch.manual_seed(2)
    assert torch.equal(noise, torch.rand(1))  # and leaves the user's random numbers alone
    assert not are_equal(weights(one), weights(small(cartpole(), seed=4)))


# ---- Learning ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_cartpole_is_balanced_within_60_thousand_steps(seed: int) -> None:
    # seeds 1 to 3 reach 430 or more at step 40,000 and 500 at the end
    with cartpole(32) as vecenv:
        trainer = PuffeRL(
            vecenv,
            seed=seed,
            batch_size=2048,
            num_iterations=30,
            learning_rate=3e-3,
            anneal_lr=False,
            reward_scale=0.1,
            device="cpu",
            dashboard="off",
        )
        best = 0.0
        while not trainer.done and best < 300:
            best = max(best, trainer.evaluate()["mean_reward"])
            trainer.train()
        assert best >= 300


@pytest.mark.slow
def test_squared_is_solved_within_60_thousand_steps() -> None:
    # seeds 1 to 3 reach perf 0.98 at step 30,000; random play has 0.6
    with pufferlib.make("squared", num_envs=64, num_workers=1, distance=1, num_targets=2) as vecenv:
        trainer = PuffeRL(
            vecenv,
            seed=1,
            batch_size=2048,
            num_steps=16,
            num_iterations=30,
            n_epochs=8,
            learning_rate=5e-3,
            device="cpu",
            dashboard="off",
        )
        best = 0.0
        while not trainer.done and best < 0.95:
            best = max(best, trainer.evaluate().get("perf", 0.0))
            trainer.train()
        assert best >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("recurrent", "learns"), [(None, False), ("lstm", True)])
def test_only_a_policy_with_memory_repeats_bits(recurrent: Any, learns: bool) -> None:
    # two bits: guessing gets both right in a quarter of the episodes
    with pufferlib.make("memory", num_envs=64, num_workers=1, length=2, delay=1) as vecenv:
        torch.manual_seed(1)
        trainer = PuffeRL(
            vecenv,
            make_policy(vecenv, hidden_size=32, recurrent=recurrent),
            seed=1,
            batch_size=2048,
            num_steps=16,
            num_iterations=25,
            learning_rate=1e-2,
            gamma=0.9,
            device="cpu",
            dashboard="off",
        )
        best = 0.0
        while not trainer.done and best < 0.9:
            best = max(best, trainer.evaluate()["perf"])
            trainer.train()
        assert (best >= 0.9) == learns
        assert learns or best < 0.4


# ---- Slow iterations -----------------------------------------------------------------------------


class Quiet(gymnasium.Env[Any, Any]):
    """Never ends; keeps no state."""

    observation_space, action_space = Box(0, 255, (4, 4, 3), np.uint8), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((4, 4, 3), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros((4, 4, 3), np.uint8), 1.0, False, False, {}


@pytest.fixture
def all_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report progress at every chance."""
    monkeypatch.setattr(profiling, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(trainer_module, "_SLOW_SECONDS", -1.0)


@pytest.mark.usefixtures("all_is_slow")
def test_a_slow_iteration_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    with Serial(Quiet, 2) as vecenv, PuffeRL(vecenv, **{**SMALL, "engine": "torch"}) as trainer:
        shown: list[str] = []
        monkeypatch.setattr(trainer.dashboard, "progress", lambda text, uptime: shown.append(text))
        trainer.evaluate()
        trainer.train()
    assert shown[0] == "collecting 2 / 256 steps"
    updates = [text for text in shown if text.startswith("training")]
    assert updates[-1] == f"training {len(updates)} / {len(updates)} updates"


@pytest.mark.usefixtures("all_is_slow")
def test_a_run_that_stops_drops_a_slow_rollout(tmp_path: Path) -> None:
    with Serial(Quiet, 2) as vecenv, PuffeRL(vecenv, **SMALL) as trainer:
        trainer.evaluate()
        trainer.train()
        trainer.is_stopping = lambda: True
        with pytest.raises(RolloutDropped, match="2 of 256 steps"):
            trainer.evaluate()
        trainer.save_checkpoint(tmp_path / "x.safetensors")
        assert (trainer.iteration, trainer.steps) == (1, 256)
        with PuffeRL(vecenv, **SMALL) as other:
            other.load_checkpoint(tmp_path / "x.safetensors")
            assert (other.iteration, other.steps) == (1, 256)


@pytest.mark.usefixtures("all_is_slow")
def test_a_rollout_of_envs_with_snapshots_is_never_dropped() -> None:
    # a checkpoint holds the envs as they are after the iteration, for a resume to the bit
    with (
        pufferlib.make("cartpole", num_envs=2, num_workers=1, backend="serial") as vecenv,
        PuffeRL(vecenv, **{**SMALL, "engine": "torch"}) as trainer,
    ):
        trainer.is_stopping = lambda: True
        trainer.evaluate()
        assert trainer.steps == 256


def test_a_policy_that_sees_a_lot_is_timed_without_a_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Serial(Quiet, 2) as vecenv:
        policy, spaces = make_policy(vecenv), policy_spaces(vecenv)
        before = [part.clone() for part in policy.parameters()]
        torch.manual_seed(3)
        expected = torch.rand(1)
        torch.manual_seed(3)
        device = torch.device("cpu")
        small = sizing.step_cost(vecenv, policy, spaces, device, 256)
        assert (small.act, small.learn, small.row_bytes) == (0, 0, 48)
        monkeypatch.setattr(sizing, "_MOST_BYTES", 0)
        large = sizing.step_cost(vecenv, policy, spaces, device, 256)
    assert large.act > 0
    assert large.learn > 0
    assert torch.equal(torch.rand(1), expected)
    assert all(map(torch.equal, before, policy.parameters()))
    assert all(part.grad is None for part in policy.parameters())


def test_sizes_for_c_envs_depend_on_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def step_cost(*given: Any) -> StepCost:
        return StepCost(env=1.0, act=1.0, learn=1.0, row_bytes=10**9, free_bytes=1.0)

    monkeypatch.setattr(trainer_module, "step_cost", step_cost)
    with (
        pufferlib.make("cartpole", num_envs=8, num_workers=1) as native,
        PuffeRL(native, dashboard="off") as trainer,
    ):
        assert trainer.config.batch_size == 2048
    with Serial(Quiet, 8) as vecenv, PuffeRL(vecenv, dashboard="off") as trainer:
        assert trainer.config.batch_size == 8 * 16
    with Serial(Quiet, 8) as vecenv, PuffeRL(vecenv, **SMALL) as trainer:
        assert trainer.config.batch_size == SMALL["batch_size"]


def test_workers_share_the_time_of_a_step() -> None:
    with Serial(Quiet, 2) as vecenv:
        vecenv.step_seconds = 0.5
        cost = sizing.step_cost(
            vecenv, make_policy(vecenv), policy_spaces(vecenv), torch.device("cpu"), 256
        )
    assert cost.env == 0.5


def test_inference_mode_is_refused_in_one_line() -> None:
    with pufferlib.make("cartpole", 16) as env:
        with torch.inference_mode():
            with pytest.raises(UsageError, match=r"must be made outside of `torch.inference_mode`"):
                PuffeRL(env, **SMALL)
            policy = make_policy(env)
        with pytest.raises(UsageError, match=r"`policy` must not be made under"):
            PuffeRL(env, policy, **SMALL)
