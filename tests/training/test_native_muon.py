"""Muon in the native engine: the steps of torch, made in C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from engines import ENVS, SMALL, assert_resumes, assert_trains_alike, go_on, pair

import pufferlib
from pufferlib import native
from pufferlib.models import make_policy
from pufferlib.training.native_engine import NativeEngine
from pufferlib.training.trainer import PuffeRL

POLICIES: dict[str, dict[str, Any]] = {
    "shared": {"separate": False, "activation": "relu", "hidden_size": 64},
    "separate": {"separate": True, "activation": "tanh", "hidden_size": 33, "num_layers": 3},
    "odd": {"separate": False, "activation": "tanh", "hidden_size": 37, "num_layers": 4},
    "no hidden matrix": {"separate": True, "activation": "relu", "hidden_size": 15},
    "lstm": {"recurrent": "lstm", "hidden_size": 37},
    "gru": {"recurrent": "gru", "hidden_size": 20},
    "mingru": {"recurrent": "mingru", "hidden_size": 48, "num_layers": 2},
}
every_policy = pytest.mark.parametrize("policy", POLICIES)


def muon_pair(env: str, policy: str, **options: Any) -> tuple[PuffeRL, PuffeRL]:
    return pair(ENVS[env], POLICIES[policy], optimizer="muon", **options)


def native_run(policy: str, **options: Any) -> PuffeRL:
    env = pufferlib.make("cartpole", 32)
    torch.manual_seed(5)
    module = make_policy(env, **POLICIES[policy])
    return PuffeRL(env, module, **{**SMALL, "optimizer": "muon", **options}, engine="native")


# The first layer of `snake` reads 121 numbers: a matrix that is wide.
@every_policy
@pytest.mark.parametrize("env", ["cartpole", "uint8"])
@pytest.mark.parametrize("max_grad_norm", [None, 0.01])
def test_one_update_equals_that_of_torch(
    env: str, policy: str, max_grad_norm: float | None
) -> None:
    sizes = {"minibatch_size": SMALL["batch_size"], "n_epochs": 1}
    runs = muon_pair(env, policy, max_grad_norm=max_grad_norm, **sizes)
    assert_trains_alike(runs)


@every_policy
def test_several_updates_equal_those_of_torch(policy: str) -> None:
    runs = muon_pair("cartpole", policy, muon_momentum=0.8, minibatch_size=256)
    assert_trains_alike(runs)


@pytest.mark.parametrize("kernels", native.kernel_sets())
@pytest.mark.parametrize("policy", ["odd", "lstm"])
def test_every_set_of_kernels_steps_as_torch(
    policy: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUFFER_KERNELS", kernels)
    assert_trains_alike(muon_pair("both kinds", policy))


@every_policy
def test_steps_are_made_in_c(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("torch made a step")

    with native_run(policy) as run:
        monkeypatch.setattr(NativeEngine, "_torch_steps", refuse)
        monkeypatch.setattr(run.optimizer, "step", refuse)
        before = [p.detach().clone() for p in run.policy.parameters()]
        go_on(run, 1)
        pairs = zip(before, run.policy.parameters(), strict=True)
        assert all(not torch.equal(a, b) for a, b in pairs)
        run.env.close()


def test_the_state_has_the_names_that_torch_gives_it() -> None:
    runs = muon_pair("cartpole", "lstm")
    for run in runs:
        run.train()
    theirs, ours = (run.optimizer.state_dict()["state"] for run in runs)
    assert theirs.keys() == ours.keys()
    for index, state in theirs.items():
        assert state.keys() == ours[index].keys()
        for name, part in state.items():
            error = (part - ours[index][name]).abs().max()
            assert error <= 1e-4 * part.abs().max(), name
    for run in runs:
        run.close()
        run.env.close()


def test_a_new_state_of_the_optimizer_is_used() -> None:
    with native_run("shared") as run:
        for _ in range(2):
            go_on(run, 1)
            states = list(run.optimizer.state.values())
            assert len(states) == len(list(run.policy.parameters()))
            assert sum("momentum_buffer" in state for state in states) == 1
            assert all(part.any() for state in states for part in state.values())
            run.optimizer.state.clear()  # moments start again
        run.env.close()


@pytest.mark.parametrize("policy", ["separate", "gru"])
def test_results_do_not_depend_on_threads(policy: str) -> None:
    torch.set_num_threads(1)  # the start of the weights depends on torch's threads
    results = []
    for threads in (1, 1, 2, 3):
        with native_run(policy, torch_threads=threads) as run:
            go_on(run, 3)
            results.append([p.detach().clone() for p in run.policy.parameters()])
            run.env.close()
    first, *rest = results
    for other in rest:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("policy", ["shared", "lstm"])
@pytest.mark.parametrize("other", ["native", "torch"])
def test_a_run_goes_on_bit_for_bit_after_another_engine_saved_it(
    tmp_path: Path, other: str, policy: str
) -> None:
    assert_resumes(POLICIES[policy], other, tmp_path / "run.pt", optimizer="muon")


def test_a_nan_leaves_weights_and_momentum_as_they_were() -> None:
    with native_run("shared", on_nan="skip", n_epochs=1, minibatch_size=1024) as run:
        go_on(run, 1)
        states = run.optimizer.state.values()

        def everything() -> list[torch.Tensor]:
            parts = [part for state in states for part in state.values()]
            return [part.detach().clone() for part in (*run.policy.parameters(), *parts)]

        before = everything()
        run.evaluate()
        run.engine.rollout.observations[3, 1, 0] = torch.nan
        with pytest.warns(RuntimeWarning, match="finite"):
            assert run.train()["skipped_updates"] == 1
        assert all(torch.equal(a, b) for a, b in zip(before, everything(), strict=True))
        run.env.close()
