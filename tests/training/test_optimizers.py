"""Adam is torch's Adam; Muon turns hidden matrices evenly; a veto leaves everything as it was."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from pufferlib.training import optimizers
from pufferlib.training.optimizers import Adam, Muon, hidden_matrices, orthogonalised


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Linear(32, 2))


def gradients(policy: nn.Module, seed: int, scale: float = 1.0) -> None:
    rng = torch.Generator().manual_seed(seed)
    for parameter in policy.parameters():
        grad = scale * torch.randn(parameter.shape, generator=rng)
        parameter.grad = grad.to(parameter.dtype)


def differences(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((left - right).detach().abs().max()) for left, right in pairs)


@pytest.fixture(params=["fused", "plain"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "plain":  # as on devices that have no such kernel
        monkeypatch.setattr(optimizers, "_FUSED", ())


@pytest.mark.usefixtures("kernel")
def test_adam_is_that_of_torch_with_gradients_clipped_before() -> None:
    ours, theirs = network(), network()
    adam = Adam(ours.parameters(), lr=0.01, betas=(0.8, 0.99), eps=1e-4)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, betas=(0.8, 0.99), eps=1e-4)
    for seed in range(20):
        gradients(ours, seed)
        gradients(theirs, seed)
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), 3.0)
        reference.step()
        adam.step(norm / 3.0, torch.zeros(()))

    assert differences(ours, network()) > 0.05
    assert differences(ours, theirs) < 2e-6


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.bfloat16, 0.02), (torch.float16, 0.02)]
)
def test_adam_takes_parameters_of_any_precision(dtype: torch.dtype, tolerance: float) -> None:
    ours, theirs = network().to(dtype), network().to(dtype)
    adam = Adam(ours.parameters(), lr=0.01)
    reference = torch.optim.Adam(theirs.parameters(), lr=0.01, eps=1e-5)
    for seed in range(10):
        for policy in (ours, theirs):
            gradients(policy, seed, 0.5 if policy is theirs else 1.0)
        reference.step()
        adam.step(torch.tensor(2.0), torch.zeros(()))

    assert all(parameter.dtype == dtype for parameter in ours.parameters())
    assert differences(ours, network().to(dtype)) > 0.03
    assert differences(ours, theirs) < tolerance


@pytest.mark.usefixtures("kernel")
def test_a_veto_on_the_very_first_update_leaves_everything() -> None:
    policy = network()
    gradients(policy, 0, math.nan)
    Adam(policy.parameters(), 0.1).step(torch.tensor(math.nan), torch.ones(()))
    assert differences(policy, network()) == 0


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "make", [lambda net: Adam(net.parameters(), 0.1), lambda net: Muon(net, 0.1)]
)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_veto_leaves_parameters_and_state_as_they_were(make: Any, bad: float) -> None:
    policy = network()
    optimizer = make(policy)
    gradients(policy, 0)
    optimizer.step()
    before, state = copy.deepcopy(policy), copy.deepcopy(optimizer.state_dict()["state"])
    gradients(policy, 1, bad)
    optimizer.step(torch.tensor(bad), torch.ones(()))

    assert differences(before, policy) == 0
    for index, parts in optimizer.state_dict()["state"].items():
        for name, part in parts.items():
            assert torch.equal(part, state[index][name]), name
    gradients(policy, 1)
    optimizer.step(torch.ones(()), torch.zeros(()))
    assert differences(before, policy) > 0


@pytest.mark.parametrize(
    "make", [lambda net: Adam(net.parameters(), 0.1), lambda net: Muon(net, 0.1)]
)
def test_a_loaded_state_goes_on_as_the_old_one(make: Callable[[nn.Module], Adam]) -> None:
    one, other = network(), network()
    first, second = make(one), make(other)
    for seed in range(3):
        gradients(one, seed)
        first.step()
    other.load_state_dict(one.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for policy, optimizer in ((one, first), (other, second)):
        for seed in range(3):
            gradients(policy, seed)
            optimizer.step()

    assert differences(one, other) == 0


def test_parameters_without_a_gradient_stay() -> None:
    policy = network()
    optimizer = Adam(policy.parameters(), lr=0.1)
    gradients(policy, 0)
    policy[0].weight.grad = None
    before = copy.deepcopy(policy)
    optimizer.step()

    assert torch.equal(before[0].weight, policy[0].weight)
    assert not torch.equal(before[0].bias, policy[0].bias)


def test_hidden_matrices_are_neither_inputs_nor_heads_nor_tables() -> None:
    policy = nn.ModuleDict(
        {
            "table": nn.Embedding(40, 32),
            "input": nn.Linear(4, 32),
            "hidden": nn.Linear(32, 64),
            "memory": nn.LSTM(64, 64),
            "picture": nn.Conv2d(16, 32, 3),
            "frozen": nn.Linear(64, 64).requires_grad_(False),
            "actor": nn.Linear(64, 6),
        }
    )
    memory: Any = policy["memory"]
    found = {id(matrix) for matrix in hidden_matrices(policy)}
    wanted = [policy["hidden"].weight, memory.weight_ih_l0, memory.weight_hh_l0]

    assert found == {id(matrix) for matrix in wanted}
    groups = Muon(policy, lr=0.1).param_groups
    assert {id(matrix) for matrix in groups[0]["params"]} == found
    trained = [p for p in policy.parameters() if p.requires_grad]
    assert len(groups[0]["params"]) + len(groups[1]["params"]) == len(trained)


@pytest.mark.parametrize("shape", [(32, 32), (128, 32), (32, 128)])
def test_an_orthogonalised_matrix_keeps_its_directions_and_loses_their_lengths(
    shape: tuple[int, int],
) -> None:
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    lengths = torch.logspace(0, -1.5, len(right))  # from 1 down to 0.03
    turned = orthogonalised(100 * left @ lengths.diag() @ right)
    inside = left.t() @ turned @ right.t()

    assert (inside.diag() > 0.5).all()
    assert (inside.diag() < 1.3).all()
    assert_close(inside, inside.diag().diag(), atol=1e-3, rtol=0)


def test_a_step_of_muon_is_as_long_as_one_of_adam() -> None:
    # of the size that Adam's have in practice, 0.2 to 0.4 of the rate (Liu et al. 2025)
    policy = nn.Linear(64, 256, bias=False)
    before = policy.weight.detach().clone()
    gradients(policy, 0, 1e-3)
    Muon(policy, lr=0.1).step()
    moved = (policy.weight.detach() - before).square().mean().sqrt()

    assert 0.1 * 0.1 < moved < 0.1 * 0.4


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_muon_is_that_of_torch_up_to_its_bfloat16() -> None:
    ours, theirs = nn.Linear(32, 64, bias=False), nn.Linear(32, 64, bias=False)
    theirs.load_state_dict(ours.state_dict())
    start = ours.weight.detach().clone()
    muon = Muon(ours, lr=0.1)
    reference = torch.optim.Muon(
        theirs.parameters(), lr=0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    )
    for seed in range(3):
        gradients(ours, seed)
        gradients(theirs, seed)
        muon.step()
        reference.step()
    one, other = (policy.weight.detach() - start for policy in (ours, theirs))

    assert torch.cosine_similarity(one.flatten(), other.flatten(), 0) > 0.999
    assert float(one.norm()) == pytest.approx(float(other.norm()), rel=0.01)


def test_muon_fits_a_matrix() -> None:
    torch.manual_seed(0)
    inputs, target = torch.randn(256, 32), torch.randn(32, 32) / 32**0.5
    policy = nn.Linear(32, 32, bias=False)
    optimizer = Muon(policy, 0.05)
    losses = []
    for update in range(100):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - update / 100)
        error: Tensor = policy(inputs) - inputs @ target
        losses.append(error.square().mean())
        policy.zero_grad()
        losses[-1].backward()
        optimizer.step()

    assert losses[-1] < 0.01 * losses[0]
