"""What can be switched on in a run: each option does what it says, and nothing where it is off."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scripted import Scripted
from torch import Tensor, nn
from torch.testing import assert_close

import pufferlib
from pufferlib import PuffeRL
from pufferlib.config import BatchShape
from pufferlib.models import make_policy
from pufferlib.training.ppo import Steps, Targets, compute_advantages_torch
from pufferlib.training.rollout import Priority, minibatches
from pufferlib.vectorization import Serial, VectorEnv

SMALL: dict[str, Any] = {
    "device": "cpu",
    "dashboard": "off",
    "batch_size": 256,
    "num_steps": 16,
    "n_epochs": 2,
}


CLOSE: dict[str, float] = {"atol": 1e-5, "rtol": 1e-5}


def cartpole(num_envs: int = 8, **settings: Any) -> VectorEnv:
    return pufferlib.make("cartpole", num_envs=num_envs, num_workers=1, **settings)


def small(vecenv: VectorEnv, policy: nn.Module | None = None, **settings: Any) -> PuffeRL:
    return PuffeRL(vecenv, policy, **{**SMALL, **settings})


def iterate(trainer: PuffeRL, iterations: int = 1) -> dict[str, float]:
    for _ in range(iterations):
        trainer.evaluate()
        losses = trainer.train()
    return losses


def weights(trainer: PuffeRL) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in trainer.policy.parameters()]


def are_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def are_close(one: list[Tensor], other: list[Tensor], tolerance: float) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.allclose(left, right, atol=tolerance, rtol=tolerance) for left, right in pairs)


# ---- What is always on ---------------------------------------------------------------------------


@pytest.mark.parametrize("recurrent", [None, "lstm", "gru", "mingru"])
@pytest.mark.parametrize("name", ["cartpole", "squared", "connect4"])
def test_before_the_first_update_training_repeats_the_rollout(name: str, recurrent: Any) -> None:
    # episodes end inside of segments, and states come from the rollout before
    settings = {} if name == "connect4" else {"max_steps": 5}
    with pufferlib.make(name, num_envs=4, num_workers=1, **settings) as vecenv:
        torch.manual_seed(0)
        policy = make_policy(vecenv, hidden_size=16, recurrent=recurrent)
        slots = vecenv.num_agents
        trainer = small(vecenv, policy, batch_size=slots * 32, num_steps=8, learning_rate=0.01)
        iterate(trainer, 2)
        trainer.evaluate()
        assert trainer.rollout.resets[:, 1:].any()
        ratios = trainer.engine.ratios(trainer.rollout, trainer.shape)

    assert_close(ratios, torch.ones_like(ratios), atol=1e-5, rtol=0)


@pytest.mark.parametrize("num_steps", [1, 4, 8, 32])
def test_advantages_do_not_depend_on_how_the_steps_are_cut(num_steps: int) -> None:
    def advantages(num_steps: int) -> Tensor:
        trainer = small(cartpole(max_steps=11), num_steps=num_steps, seed=1)
        trainer.evaluate()
        return trainer.rollout.by_slot(trainer.engine.targets(trainer.rollout).advantages)

    whole = advantages(32)
    assert whole.shape == (8, 32)
    assert_close(advantages(num_steps), whole, atol=1e-5, rtol=1e-5)


def test_the_last_step_of_a_stretch_knows_what_follows() -> None:
    # rewards 1, 2, 3, 4; values 0: A_t = r_t + 0.5 * A_{t+1}, across stretches of 2
    vecenv = Serial(lambda: Scripted(terminals=[3]), 1)
    trainer = small(
        vecenv, Blind(), batch_size=4, num_steps=2, gamma=0.5, gae_lambda=1.0, norm_reward=False
    )
    trainer.evaluate()

    # 4, 3 + 2, 2 + 2.5, 1 + 2.25
    assert trainer.engine.targets(trainer.rollout).advantages.tolist() == [
        [3.25, 4.5],
        [5, 4],
    ]


class Blind(nn.Module):
    """Values everything at 0 and chooses by a coin."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.zeros(()))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        rows = len(observations)
        return torch.zeros(rows, 2) * self.factor, torch.zeros(rows) * self.factor


# ---- Schedules -----------------------------------------------------------------------------------


def test_coefficients_move_linearly_over_the_budget() -> None:
    trainer = small(
        cartpole(),
        num_iterations=4,
        clip_coef=0.2,
        clip_coef_final=0.1,
        ent_coef=0.0,
        ent_coef_final=0.04,
    )
    with pytest.warns(UserWarning, match="the budget of 1024 steps is spent"):
        logs = [iterate(trainer) for _ in range(5)]
    assert [log["clip_coef"] for log in logs] == pytest.approx([0.2, 0.175, 0.15, 0.125, 0.1])
    assert [log["ent_coef"] for log in logs] == pytest.approx([0, 0.01, 0.02, 0.03, 0.04])


def test_a_coefficient_without_an_end_stays_and_is_not_logged() -> None:
    trainer = small(cartpole(), num_iterations=2)
    assert not {"clip_coef", "ent_coef", "skipped_updates"} & iterate(trainer).keys()
    now = trainer._schedule()
    assert (now.clip_coef, now.ent_coef) == (0.2, 0.01)


def test_the_schedule_is_what_the_loss_uses() -> None:
    def trained(**settings: Any) -> list[Tensor]:
        trainer = small(cartpole(), num_iterations=2, learning_rate=0.05, **settings)
        iterate(trainer, 2)
        return weights(trainer)

    assert are_equal(trained(ent_coef_final=0.01), trained())
    assert not are_equal(trained(ent_coef_final=1.0), trained())
    assert not are_equal(trained(clip_coef_final=0.0), trained())


# ---- How often a rollout is used -----------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "updates"), [(None, 8), (0.1, 1), (0.5, 2), (1, 4), (2.5, 10)])
def test_a_replay_ratio_takes_the_place_of_epochs(ratio: float | None, updates: int) -> None:
    # four minibatches to a pass
    assert iterate(small(cartpole(), replay_ratio=ratio))["updates"] == updates


def test_a_whole_replay_ratio_is_so_many_epochs() -> None:
    def trained(**settings: Any) -> list[Tensor]:
        trainer = small(cartpole(), **settings)
        iterate(trainer, 2)
        return weights(trainer)

    assert are_equal(trained(replay_ratio=3.0), trained(n_epochs=3))


# ---- Gradient accumulation -----------------------------------------------------------------------


@pytest.mark.parametrize("accumulation", [2, 3, 4])
@pytest.mark.parametrize("recurrent", [None, "lstm"])
def test_a_minibatch_in_parts_gives_the_gradients_of_the_whole(
    accumulation: int, recurrent: Any
) -> None:
    with pufferlib.make("connect4", num_envs=8, num_workers=1) as vecenv:
        torch.manual_seed(0)
        policy = make_policy(vecenv, hidden_size=16, recurrent=recurrent)
        slots = vecenv.num_agents
        trainer = small(vecenv, policy, batch_size=slots * 32, num_steps=8)
        trainer.evaluate()
        trainer.rollout.masks[::3, 5:] = False  # parts that count different numbers of steps
        trainer.rollout.all_present = False
        rng = torch.Generator().manual_seed(0)
        minibatch = next(
            minibatches(
                trainer.rollout,
                trainer.engine.targets(trainer.rollout),
                BatchShape(4 * slots, 8, minibatches=4 * slots // 8),
                rng,
            )
        )
        now = trainer._schedule()

        def gradients(parts: int) -> tuple[list[Tensor], Tensor]:
            object.__setattr__(trainer.config, "gradient_accumulation", parts)
            losses = trainer.engine.gradients(minibatch, now)
            return [p.grad.clone() for p in policy.parameters() if p.grad is not None], losses

        whole, losses = gradients(1)
        parts, losses_of_parts = gradients(accumulation)

    assert are_close(parts, whole, 1e-6)
    assert any(part.abs().max() > 1e-3 for part in whole)
    assert_close(losses_of_parts, losses, atol=1e-6, rtol=1e-5)


def test_accumulation_leaves_the_number_of_updates_alone() -> None:
    one, other = small(cartpole()), small(cartpole(), gradient_accumulation=4)
    assert iterate(one)["updates"] == iterate(other)["updates"] == 8
    assert are_close(weights(one), weights(other), 1e-5)


# ---- V-trace -------------------------------------------------------------------------------------


def test_vtrace_changes_nothing_in_the_first_epoch() -> None:
    def trained(**settings: Any) -> list[Tensor]:
        trainer = small(cartpole(), learning_rate=0.01, **settings)
        iterate(trainer, 2)
        return weights(trainer)

    assert are_equal(trained(vtrace=True, n_epochs=1), trained(n_epochs=1))
    assert not are_equal(trained(vtrace=True), trained())


def test_vtrace_advantages_are_those_of_the_present_policy() -> None:
    trainer = small(cartpole(max_steps=7), learning_rate=0.05, vtrace_rho_clip=0.9)
    trainer.evaluate()
    rollout = trainer.rollout
    trainer.train()
    ratios = trainer.engine.ratios(trainer.rollout, trainer.shape)
    assert ratios.std() > 0.01
    by_slot = rollout.by_slot
    expected = compute_advantages_torch(
        Steps(
            by_slot(rollout.rewards),
            by_slot(rollout.values),
            by_slot(rollout.terminals),
            by_slot(rollout.truncations),
            by_slot(rollout.final_values),
            ratios=by_slot(ratios),
        ),
        rollout.bootstrap[-8:],
        gamma=0.99,
        gae_lambda=0.95,
        rho_clip=0.9,
        c_clip=1.0,
    )

    targets = trainer.engine.targets(rollout, ratios)
    assert_close(targets.returns - rollout.values, rollout.by_segment(expected), **CLOSE)
    # the policy's own: PPO's ratio weighs the step itself, so only later ones are weighed here.
    # one step back from the end of the rollout: delta + 0.99 * 0.95 * (what follows)
    values, rewards = by_slot(rollout.values), by_slot(rollout.rewards)
    goes_on = ~(by_slot(rollout.terminals) | by_slot(rollout.truncations))[:, -2]
    deltas = rewards[:, -2] + 0.99 * values[:, -1] - values[:, -2]
    wanted = deltas + 0.99 * 0.95 * expected[:, -1]
    assert goes_on.any()
    assert_close(by_slot(targets.advantages)[goes_on, -2], wanted[goes_on], **CLOSE)


# ---- Prioritised segments ------------------------------------------------------------------------


def test_segments_of_large_advantages_come_more_often_and_weigh_less() -> None:
    trainer = small(cartpole(4), batch_size=64, num_steps=16)
    trainer.evaluate()
    rollout = trainer.rollout
    rollout.logprobs[:] = torch.arange(4.0).unsqueeze(1)  # the number of each segment
    advantages = torch.tensor([1.0, -2.0, 3.0, 4.0]).unsqueeze(1).repeat(1, 16)
    shape = BatchShape(segments=4, horizon=16, minibatches=2)
    rng = torch.Generator().manual_seed(0)

    def drawn(alpha: float, beta: float) -> tuple[list[float], dict[int, float]]:
        counts, found = np.zeros(4), {}
        for _ in range(2500):
            targets, priority = Targets(advantages, advantages), Priority(alpha, beta)
            for part in minibatches(rollout, targets, shape, rng, priority=priority):
                assert part.weights is not None
                for number, weight in zip(part.logprobs[:, 0].int().tolist(), part.weights):
                    counts[number] += 1
                    found[number] = float(weight)
        return (counts / counts.sum()).tolist(), found

    shares, found = drawn(1.0, 0.0)
    assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.02)
    assert found == pytest.approx(dict.fromkeys(range(4), 1.0))
    shares, found = drawn(2.0, 1.0)
    # odds of 1, 4, 9, 16 in 30; weights 1 / (4 * odds)
    assert shares == pytest.approx([1 / 30, 4 / 30, 9 / 30, 16 / 30], abs=0.02)
    assert found == pytest.approx({0: 7.5, 1: 1.875, 2: 30 / 36, 3: 30 / 64}, rel=1e-4)
    # so that a weighted mean is that over the rollout: 0.1 * (0 + 1 + 2 + 3) = 0.6 of 4 segments
    mean = sum(share * found[number] * number for number, share in enumerate(shares))
    assert mean == pytest.approx(1.5, abs=0.05)


def test_priorities_of_zero_are_a_plain_pass() -> None:
    def trained(**settings: Any) -> list[Tensor]:
        trainer = small(cartpole(), **settings)
        iterate(trainer, 2)
        return weights(trainer)

    assert are_equal(trained(prio_alpha=0.0, prio_beta0=0.1), trained())
    assert not are_equal(trained(prio_alpha=0.8), trained())


def test_weights_of_priorities_make_up_fully_at_the_end_of_a_run() -> None:
    trainer = small(cartpole(), num_iterations=4, prio_alpha=0.5, prio_beta0=0.2)
    betas = []
    for _ in range(4):
        betas.append(trainer._schedule().prio_beta)
        assert iterate(trainer)["updates"] == 8
    betas.append(trainer._schedule().prio_beta)
    assert betas == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


# ---- Precision, compiling, optimizers ------------------------------------------------------------


@pytest.mark.parametrize("recurrent", [None, "lstm", "gru", "mingru"])
def test_bfloat16_is_for_products_only(recurrent: Any) -> None:
    vecenv = cartpole()
    torch.manual_seed(0)
    policy = make_policy(vecenv, hidden_size=16, recurrent=recurrent)
    seen: list[Tensor] = []
    hook = policy if recurrent is None else policy.policy
    hook.layers.register_forward_hook(lambda _, __, output: seen.append(output))
    trainer = small(vecenv, policy, precision="bfloat16")
    trainer.evaluate()
    assert {part.dtype for part in seen} == {torch.bfloat16}
    for name in ("logprobs", "values"):
        part = getattr(trainer.rollout, name)
        assert part.dtype == torch.float32
        assert (part != part.bfloat16().float()).any() or name == "values"
    # what the rollout said and what training says are rounded alike, up to the order of products
    ratios = trainer.engine.ratios(trainer.rollout, trainer.shape)
    assert_close(ratios, torch.ones_like(ratios), atol=0.02, rtol=0)
    losses = trainer.train()
    assert losses["updates"] == 8
    assert all(parameter.dtype == torch.float32 for parameter in policy.parameters())
    assert trainer.predict(vecenv.observations)[0].shape == (8,)


@pytest.mark.parametrize(("given", "kept"), [(True, "on"), (False, "off"), ("auto", "auto")])
def test_compile_takes_words_and_truth_values(given: Any, kept: str) -> None:
    trainer = small(cartpole(), compile=given)
    assert trainer.config.compile == kept
    assert (trainer.engine.runner is not trainer.policy) == (kept == "on")


@pytest.mark.slow
def test_a_compiled_policy_trains_to_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    # all of torch.compile but its code generator, which alone takes half a minute on a CPU
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))

    def trained(compile: bool) -> list[Tensor]:
        vecenv = cartpole()
        torch.manual_seed(0)
        policy = make_policy(vecenv, hidden_size=8)
        trainer = small(vecenv, policy, compile=compile, engine="torch")
        iterate(trainer)
        return weights(trainer)

    assert are_close(trained(True), trained(False), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_muon_balances_a_cartpole_within_60_thousand_steps(seed: int) -> None:
    # seeds 1 to 3 reach 300 after 35, 33 and 39 thousand steps, Adam after 29, 29 and 39
    with cartpole(32) as vecenv:
        trainer = PuffeRL(
            vecenv,
            seed=seed,
            batch_size=2048,
            num_iterations=30,
            learning_rate=3e-3,
            anneal_lr=False,
            reward_scale=0.1,
            optimizer="muon",
            device="cpu",
            dashboard="off",
        )
        groups = trainer.optimizer.param_groups
        assert [len(group["params"]) for group in groups] == [1, 7]
        best = 0.0
        while not trainer.done and best < 300:
            best = max(best, trainer.evaluate()["mean_reward"])
            trainer.train()
        assert best >= 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"vtrace": True},
        {"prio_alpha": 0.8, "prio_beta0": 0.2},
        {"vtrace": True, "prio_alpha": 0.8, "replay_ratio": 3.0, "optimizer": "muon"},
        {"precision": "bfloat16"},
        {"vf_clip_coef": 0.2, "clip_coef_final": 0.1, "ent_coef_final": 0.0},
    ],
)
def test_options_learn_too(settings: dict[str, Any]) -> None:
    with cartpole(32) as vecenv:
        trainer = PuffeRL(
            vecenv,
            seed=1,
            batch_size=2048,
            num_steps=32,
            num_iterations=30,
            learning_rate=3e-3,
            anneal_lr=False,
            reward_scale=0.1,
            device="cpu",
            dashboard="off",
            **settings,
        )
        best = 0.0
        while not trainer.done and best < 300:
            best = max(best, trainer.evaluate()["mean_reward"])
            trainer.train()
        assert best >= 300


# ---- Acting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("deterministic", [True, False])
def test_predict_never_chooses_what_is_masked(deterministic: bool) -> None:
    with pufferlib.make("connect4", num_envs=16, num_workers=1) as vecenv:
        trainer = small(vecenv, batch_size=vecenv.num_agents * 16)
        masks = np.zeros((vecenv.num_agents, 7), dtype=bool)
        masks[np.arange(len(masks)), np.arange(len(masks)) % 7] = True
        for _ in range(5):
            actions, _ = trainer.predict(
                vecenv.observations, deterministic=deterministic, action_masks=masks
            )
            assert (actions == np.arange(len(masks)) % 7).all()


def test_predict_is_deterministic_by_default() -> None:
    vecenv = cartpole(64)
    trainer = small(vecenv, batch_size=1024)
    first, _ = trainer.predict(vecenv.observations)
    assert (first == trainer.predict(vecenv.observations)[0]).all()
    drawn = [trainer.predict(vecenv.observations, deterministic=False)[0] for _ in range(4)]
    assert any((drawn[0] != other).any() for other in drawn[1:])
    assert math.isclose(np.mean(drawn), 0.5, abs_tol=0.15)
