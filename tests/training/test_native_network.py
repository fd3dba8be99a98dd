"""Which policies C takes for what they are, and which it leaves to torch, now and later in a run.

A policy that is not what C takes it for would act and train with other numbers, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
import torch
from engines import SMALL, box, emulated, go_on
from torch import Tensor, nn

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.models import MLP, make_policy
from pufferlib.training.trainer import PuffeRL

Change = Callable[[Any], object]


class Doubled(nn.Linear):
    """A dense layer with a forward of its own."""

    def forward(self, features: Tensor) -> Tensor:
        return 2 * super().forward(features)


def replace_forward(policy: MLP) -> None:
    own = policy.forward
    policy.forward = lambda rows: (own(rows)[0], own(rows)[1] + 9)  # type: ignore[method-assign]


def replace_head(policy: Any) -> None:
    head = Doubled(policy.actor.in_features, policy.actor.out_features)
    head.weight, head.bias = policy.actor.weight, policy.actor.bias
    policy.actor = head


def replace_critic_activations(policy: Any) -> None:
    policy.critic_layers[1], policy.critic_layers[3] = nn.ReLU(), nn.ReLU()


def hook_gradient(policy: Any) -> None:
    policy.actor.weight.register_hook(lambda gradient: gradient)


def hook_after_gradient(policy: Any) -> None:
    policy.actor.weight.register_post_accumulate_grad_hook(lambda parameter: None)


UNSUPPORTED: dict[str, Change] = {
    "hooks of the policy": lambda p: p.actor.register_forward_hook(lambda *_: None),
    "hooks of parameters": hook_gradient,
    "hooks of parameters, afterwards": hook_after_gradient,
    "a decode that was replaced": lambda p: setattr(p, "decode", p.decode),
    "frozen parameters": lambda p: p.actor.weight.requires_grad_(False),
    "a forward that was replaced": replace_forward,
    "heads other than dense ones": replace_head,
    "a critic of other layers": replace_critic_activations,
    "layers other than dense ones": lambda p: p.layers.append(nn.Dropout(0.9)),
}
REASONS = {name: name.partition(",")[0] for name in UNSUPPORTED}


def run_of(env: Any, before: Change | None = None, engine: str = "auto", **policy: Any) -> PuffeRL:
    torch.manual_seed(4)
    sizes = {"separate": True, "activation": "tanh", "hidden_size": 24, **policy}
    module = make_policy(env, **sizes)
    if before is not None:
        before(module)
    return PuffeRL(env, module, **SMALL, engine=engine)


def assert_acts_as_the_module_says(run: PuffeRL) -> None:
    """Check the values of the last rollout beside those of a call of the module."""
    rollout = run.rollout
    with torch.no_grad():
        *_, values = run.policy(rollout.observations.flatten(0, 1))
    torch.testing.assert_close(rollout.values.flatten(), values.flatten(), rtol=1e-4, atol=1e-5)


# ---- Before a run --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_torch_takes_a_policy_that_c_does_not_know(name: str) -> None:
    with pufferlib.make("cartpole", 32) as env:
        with pytest.raises(UsageError, match=f"native: {REASONS[name]}"):
            run_of(env, UNSUPPORTED[name], "native")
        with run_of(env, UNSUPPORTED[name]) as run:
            assert run.engine.name == "torch"
            assert run.engine.fallback.startswith(f"native: {REASONS[name]}")
            run.evaluate()
            assert_acts_as_the_module_says(run)
            run.train()
            assert run.mean_and_log()["native_engine"] == 0


@pytest.mark.parametrize(
    ("policy", "action", "reason"),
    [
        ({"num_layers": 31}, gymnasium.spaces.Discrete(2), "more than 30 layers"),
        ({"hidden_size": 65537}, gymnasium.spaces.Discrete(2), "layers of more than 65536 units"),
        ({}, gymnasium.spaces.Discrete(2**16 + 1), "more than 65536 choices"),
        ({}, gymnasium.spaces.MultiBinary(65), "actions of more than 64 components"),
    ],
)
def test_sizes_beyond_those_of_c_are_left_to_torch(
    policy: dict[str, Any], action: Any, reason: str
) -> None:
    with emulated(box(1), action) as env, run_of(env, **{"num_layers": 1, **policy}) as run:
        assert (run.engine.name, run.engine.fallback) == ("torch", f"native: {reason}")


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        ({"num_layers": 30}, gymnasium.spaces.Discrete(2)),
        ({"hidden_size": 65536}, gymnasium.spaces.Discrete(2)),
        ({}, gymnasium.spaces.Discrete(2**16)),
        ({}, gymnasium.spaces.MultiBinary(64)),
    ],
)
def test_c_takes_the_largest_sizes(policy: dict[str, Any], action: Any) -> None:
    sizes = {"num_layers": 1, "hidden_size": 4, "separate": False, **policy}
    with emulated(box(1), action) as env, run_of(env, **sizes) as run:
        assert run.engine.name == "native"


@pytest.mark.parametrize(
    ("observation", "reason"),
    [
        (gymnasium.spaces.Box(0, 9, (3,), "float16"), "observations of float16"),
        (gymnasium.spaces.Dict({"a": box(2), "b": box(3)}), "policy MultiInput"),
        (gymnasium.spaces.Box(0, 255, (36, 36, 3), "uint8"), "policy CNN"),
    ],
)
def test_other_observations_are_left_to_torch(observation: Any, reason: str) -> None:
    env = emulated(observation, gymnasium.spaces.Discrete(2))
    with env, PuffeRL(env, **SMALL) as run:
        assert (run.engine.name, run.engine.fallback) == ("torch", f"native: {reason}")


def test_plain_lines_say_why_an_engine_was_not_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    env = emulated(gymnasium.spaces.Box(0, 9, (3,), "float16"), gymnasium.spaces.Discrete(2))
    with env, PuffeRL(env, **{**SMALL, "dashboard": "auto"}) as run:
        go_on(run, 1)
        run.mean_and_log()
    assert "engine torch (native: observations of float16)" in capsys.readouterr().out


# ---- Within a run --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_torch_takes_over_from_the_moment_a_policy_changes(name: str) -> None:
    with pufferlib.make("cartpole", 32) as env, run_of(env) as run:
        go_on(run, 1)
        assert run.mean_and_log()["native_engine"] == 1
        UNSUPPORTED[name](run.policy)
        with pytest.warns(UserWarning, match=f"does not support {REASONS[name]}"):
            run.evaluate()
        assert_acts_as_the_module_says(run)
        run.train()
        assert run.mean_and_log()["native_engine"] == 0


def assert_goes_on_natively(run: PuffeRL) -> None:
    """Check that C acts as the policy is now, and trains the memory that the policy has now."""
    run.evaluate()
    assert_acts_as_the_module_says(run)
    before = [p.detach().clone() for p in run.policy.parameters()]
    run.train()
    assert run.mean_and_log()["native_engine"] == 1
    pairs = zip(before, run.policy.parameters(), strict=True)
    assert not any(torch.equal(old, new) for old, new in pairs)
    run.evaluate()
    assert_acts_as_the_module_says(run)


def move_weights(policy: MLP) -> None:
    for parameter in policy.parameters():
        parameter.data = parameter.data.clone() * 0.5


def convert_and_back(policy: MLP) -> None:
    policy.double().float()


def transpose_in_place(policy: Any) -> None:
    weight = policy.layers[2].weight
    weight.data = weight.data.T.contiguous()


def other_activation(policy: Any) -> None:
    for layers in (policy.layers, policy.critic_layers):
        layers[1], layers[3] = nn.ReLU(), nn.ReLU()


@pytest.mark.parametrize(
    "change", [move_weights, convert_and_back, transpose_in_place, other_activation]
)
def test_c_follows_what_it_supports(change: Change) -> None:
    with pufferlib.make("cartpole", 32) as env, run_of(env) as run:
        go_on(run, 1)
        change(run.policy)
        assert_goes_on_natively(run)


def test_c_takes_over_again_when_a_hook_is_gone() -> None:
    with pufferlib.make("cartpole", 32) as env, run_of(env) as run:
        go_on(run, 1)
        hook = run.policy.actor.register_forward_hook(lambda *_: None)
        with pytest.warns(UserWarning, match="torch takes over"):
            go_on(run, 1)
        hook.remove()
        assert_goes_on_natively(run)


def test_weights_in_another_order_of_memory_are_left_to_torch() -> None:
    with pufferlib.make("cartpole", 32) as env, run_of(env) as run:
        go_on(run, 1)
        weight = run.policy.layers[2].weight
        weight.data = weight.data.T  # the same memory, read by columns
        with pytest.warns(UserWarning, match="other than contiguous float32"):
            run.evaluate()
        assert_acts_as_the_module_says(run)
        before = weight.detach().clone()
        run.train()
        assert not torch.equal(before, weight)


def assign_state(policy: nn.Module) -> None:
    policy.load_state_dict({k: v.clone() for k, v in policy.state_dict().items()}, assign=True)


def add_layer(policy: Any) -> None:
    policy.critic = nn.Sequential(policy.critic, nn.Linear(1, 1))


@pytest.mark.parametrize("engine", ["native", "torch"])
@pytest.mark.parametrize("change", [assign_state, add_layer])
def test_parameters_that_the_optimizer_does_not_have_are_refused(
    change: Change, engine: str
) -> None:
    with pufferlib.make("cartpole", 32) as env, run_of(env, engine=engine) as run:
        go_on(run, 1)
        run.evaluate()
        change(run.policy)
        with pytest.raises(UsageError, match="`policy` must keep the parameters"):
            run.train()
        with pytest.raises(UsageError, match="`policy` must keep the parameters"):
            run.evaluate()
