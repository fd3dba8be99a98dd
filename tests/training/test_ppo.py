"""The losses of PPO, number by number."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from pufferlib.training.ppo import (
    approx_kl,
    clipfrac,
    explained_variance,
    normalise_advantages,
    policy_loss,
    ppo_loss,
    value_loss,
)


def batch(size: int = 64, seed: int = 0) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(size, generator=rng)

    return {
        "logprobs": (normal() * 0.3 - 1).requires_grad_(),
        "entropy": normal().requires_grad_(),
        "values": normal().requires_grad_(),
        "old_logprobs": normal() * 0.3 - 1,
        "old_values": normal(),
        "advantages": normal(),
        "returns": normal(),
        "clip_coef": 0.2,
        "vf_coef": 0.5,
        "ent_coef": 0.01,
    }


def test_policy_loss_takes_the_worse_of_plain_and_clipped() -> None:
    # r=1.5, A=1: min(1.5, 1.2) = 1.2; r=0.5, A=-1: min(-0.5, -0.8) = -0.8
    # r=1.5, A=-1: min(-1.5, -1.2) = -1.5; r=1.1, A=2: 2.2. Mean 1.1 / 4 = 0.275, negated
    ratio = torch.tensor([1.5, 0.5, 1.5, 1.1])
    advantages = torch.tensor([1.0, -1.0, -1.0, 2.0])

    assert_close(policy_loss(ratio, advantages, 0.2), torch.tensor(-0.275))


def test_a_clipped_step_has_no_gradient() -> None:
    ratio = torch.tensor([1.5, 1.5], requires_grad=True)

    policy_loss(ratio, torch.tensor([1.0, -1.0]), 0.2).backward()

    assert_close(ratio.grad, torch.tensor([0.0, 0.5]))


def test_value_loss_is_half_the_mean_squared_error() -> None:
    # (1 + 9) / 2 / 2 = 2.5
    loss = value_loss(torch.tensor([1.0, 3.0]), torch.zeros(2), torch.zeros(2))

    assert_close(loss, torch.tensor(2.5))


def test_clipped_value_loss_ignores_moves_beyond_the_clip() -> None:
    # v=3 from old 0 with clip 0.5 and return 4: max(1, 3.5**2) = 12.25, half of it
    values = torch.tensor([3.0], requires_grad=True)

    loss = value_loss(values, torch.tensor([4.0]), torch.tensor([0.0]), vf_clip_coef=0.5)
    loss.backward()

    assert_close(loss, torch.tensor(6.125))
    assert_close(values.grad, torch.tensor([0.0]))


def test_approx_kl_is_zero_for_equal_policies_and_positive_otherwise() -> None:
    logratio = torch.tensor([math.log(2.0), math.log(0.5)])

    # (2 - 1 - log 2 + 0.5 - 1 + log 2) / 2 = 0.25
    assert_close(approx_kl(logratio.exp(), logratio), torch.tensor(0.25))
    assert approx_kl(torch.ones(3), torch.zeros(3)) == 0


def test_clipfrac_counts_both_sides() -> None:
    assert clipfrac(torch.tensor([1.3, 0.7, 1.1, 1.0]), 0.2) == 0.5


def test_normalised_advantages_have_mean_0_and_deviation_1() -> None:
    # mean 2, population deviation sqrt(2/3)
    normalised = normalise_advantages(torch.tensor([1.0, 2.0, 3.0]))

    assert_close(normalised, torch.tensor([-1.0, 0.0, 1.0]) * math.sqrt(1.5))


def test_a_single_advantage_normalises_to_zero() -> None:
    assert normalise_advantages(torch.tensor([5.0])) == 0


def test_explained_variance_is_1_when_perfect_0_when_constant_nan_without_spread() -> None:
    returns = torch.tensor([1.0, 2.0, 3.0])

    assert explained_variance(returns, returns) == 1
    assert explained_variance(torch.zeros(3), returns) == 0
    assert explained_variance(torch.zeros(3), torch.ones(3)).isnan()


def test_loss_is_the_weighted_sum_of_its_parts() -> None:
    losses = ppo_loss(**batch())

    expected = losses.policy_loss + 0.5 * losses.value_loss - 0.01 * losses.entropy
    assert_close(losses.loss, expected)
    assert losses.loss.requires_grad
    assert not any(part.requires_grad for part in losses[1:])


def test_old_approx_kl_is_the_mean_of_old_minus_new() -> None:
    given = batch()

    losses = ppo_loss(**given)

    expected = (given["old_logprobs"] - given["logprobs"]).mean().detach()
    assert_close(losses.old_approx_kl, expected)


@pytest.mark.parametrize("vf_clip_coef", [None, 0.2])
def test_masked_steps_change_neither_loss_nor_gradient(vf_clip_coef: float | None) -> None:
    given, masks = batch(), torch.arange(64) % 3 != 0
    kept = {
        name: part.detach()[masks].requires_grad_(part.requires_grad)
        if isinstance(part, Tensor)
        else part
        for name, part in given.items()
    }
    with torch.no_grad():  # what is masked may be anything
        for name in ("old_logprobs", "advantages", "returns", "old_values"):
            given[name][~masks] = 1e20 if name == "advantages" else -1e4

    masked = ppo_loss(**given, masks=masks, vf_clip_coef=vf_clip_coef)
    plain = ppo_loss(**kept, vf_clip_coef=vf_clip_coef)
    masked.loss.backward()
    plain.loss.backward()

    for got, wanted in zip(masked, plain, strict=True):
        assert_close(got, wanted, rtol=1e-4, atol=1e-6)
    for name in ("logprobs", "entropy", "values"):
        assert_close(given[name].grad[masks], kept[name].grad, rtol=1e-4, atol=1e-6)
        assert (given[name].grad[~masks] == 0).all()


def test_masked_advantages_do_not_count_in_the_normalisation() -> None:
    advantages, masks = torch.tensor([1.0, 1e20, 2.0, 3.0]), torch.tensor([1, 0, 1, 1]).bool()

    normalised = normalise_advantages(advantages, masks)

    assert_close(normalised, torch.tensor([-1.0, 0.0, 0.0, 1.0]) * math.sqrt(1.5))


@pytest.mark.parametrize("vf_clip_coef", [None, 0.2])
def test_a_weight_counts_a_step_so_many_times(vf_clip_coef: float | None) -> None:
    # weight 2 on the first half, 0 on the second: the mean over 64 is that over the first 32
    given = batch()
    half = {
        name: part.detach()[:32].requires_grad_(part.requires_grad)
        if isinstance(part, Tensor)
        else part
        for name, part in given.items()
    }
    weights = torch.tensor([2.0, 0.0]).repeat_interleave(32)

    weighted = ppo_loss(**given, weights=weights, vf_clip_coef=vf_clip_coef)
    plain = ppo_loss(**half, vf_clip_coef=vf_clip_coef)
    weighted.loss.backward()
    plain.loss.backward()

    assert_close(weighted.loss, plain.loss)
    for name in ("logprobs", "entropy", "values"):
        assert_close(given[name].grad[:32], half[name].grad)
        assert (given[name].grad[32:] == 0).all()


def test_weighted_advantages_have_a_weighted_mean_of_0_and_deviation_of_1() -> None:
    # mean (3 * 0 + 1 * 4) / 4 = 1, variance (3 * 1 + 1 * 9) / 4 = 3; the last step is masked
    advantages, weights = torch.tensor([0.0, 4.0, 9.0]), torch.tensor([3.0, 1.0, 5.0])
    masks = torch.tensor([True, True, False])
    normalised = normalise_advantages(advantages, masks, weights)

    assert_close(normalised, torch.tensor([-1.0, 3.0, 0.0]) / 3**0.5)


def test_a_minibatch_of_masked_steps_alone_has_zero_loss() -> None:
    losses = ppo_loss(**batch(), masks=torch.zeros(64, dtype=torch.bool))

    assert all(part == 0 for part in losses)


def test_masked_explained_variance_reads_only_what_counts() -> None:
    values = torch.tensor([1.0, 2.0, 100.0])
    returns = torch.tensor([1.0, 2.0, -7.0])

    explained = explained_variance(values, returns, torch.tensor([True, True, False]))

    assert explained == 1


def test_segments_and_flat_steps_give_the_same_loss() -> None:
    given = batch()
    shaped = {
        name: part.view(8, 8) if isinstance(part, Tensor) else part for name, part in given.items()
    }

    assert_close(ppo_loss(**shaped).loss, ppo_loss(**given).loss)
