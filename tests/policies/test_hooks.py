"""Hooks and computed weights anywhere in a default policy run as in any other module."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import prune

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.models import VectorEncoder, make_policy
from pufferlib.policies.recurrent import GRU, LSTM, MinGRU, RecurrentCore
from pufferlib.policies.recurrent_wrapper import RecurrentWrapper
from pufferlib.pytorch import LSTMWrapper
from pufferlib.spaces import observation_layout
from pufferlib.training.trainer import PuffeRL

SMALL: Any = {"batch_size": 128, "num_steps": 8, "minibatch_size": 64, "device": "cpu"}
SMALL |= {"num_iterations": 9, "dashboard": "off", "n_epochs": 1}

pytestmark = [
    pytest.mark.filterwarnings("ignore:torch takes over"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*batch_size"),
]


@pytest.fixture
def env() -> Iterator[Any]:
    with pufferlib.make("cartpole", 16) as env:
        yield env


def policy_of(env: Any, **options: Any) -> Any:
    torch.manual_seed(3)
    return make_policy(env, hidden_size=16, separate=False, **options)


def iterate(trainer: PuffeRL) -> None:
    trainer.evaluate()
    trainer.train()


class Calls:
    """Counts the calls of a hook, in rollouts and in training."""

    def __init__(self) -> None:
        self.acting = self.training = 0

    def __call__(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self.training += 1
        else:
            self.acting += 1


REGISTER: dict[str, Callable[[nn.Module, Any], Any]] = {
    "forward": lambda module, hook: module.register_forward_hook(hook),
    "forward_pre": lambda module, hook: module.register_forward_pre_hook(hook),
    "full_backward": lambda module, hook: module.register_full_backward_hook(hook),
    "full_backward_pre": lambda module, hook: module.register_full_backward_pre_hook(hook),
}
IN_TRAINING = ("full_backward", "full_backward_pre")


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("head", ["actor", "critic"])
@pytest.mark.parametrize("kind", REGISTER)
def test_a_hook_of_a_head_runs(env: Any, kind: str, head: str, engine: str) -> None:
    policy, calls = policy_of(env), Calls()
    REGISTER[kind](getattr(policy, head), calls)
    with PuffeRL(env, policy, engine=engine, **SMALL) as trainer:
        iterate(trainer)
    if kind in IN_TRAINING:
        assert calls.acting >= 2  # no gradient is recorded where gradients are computed
    else:
        assert calls.acting >= 8
        assert calls.training >= 2


def test_a_hook_that_is_added_later_runs_too(env: Any) -> None:
    policy, calls = policy_of(env), Calls()
    with PuffeRL(env, policy, engine="native", **SMALL) as trainer:
        iterate(trainer)
        assert trainer.engine.is_native
        policy.critic.register_forward_hook(calls)
        iterate(trainer)
        assert not trainer.engine.is_native
    assert calls.acting >= 8
    assert calls.training >= 2


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_a_hook_of_all_modules_sees_the_heads_and_the_core(env: Any, core: str) -> None:
    seen: set[nn.Module] = set()

    def note(module: nn.Module, *_: Any) -> None:
        seen.add(module)

    policy = policy_of(env, recurrent=core)
    with PuffeRL(env, policy, engine="native", **SMALL) as trainer:
        iterate(trainer)
        handle = torch_module.register_module_forward_hook(note)
        try:
            with pytest.warns(UserWarning, match="torch takes over .* hooks of all modules"):
                iterate(trainer)
        finally:
            handle.remove()
        iterate(trainer)
        assert trainer.engine.is_native
    called = {module for module in policy.modules() if not list(module.children())}
    called = {m for m in called if type(m).__name__ not in ("UnitScale", "Identity")}
    assert called - seen == set()


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("head", ["actor", "critic"])
@pytest.mark.parametrize(
    "change",
    [
        nn.utils.spectral_norm,
        nn.utils.weight_norm,
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.weight_norm,
        lambda head: prune.l1_unstructured(head, "weight", 0.5),
    ],
    ids=["spectral_norm", "weight_norm", "new spectral_norm", "new weight_norm", "prune"],
)
def test_a_head_of_computed_weights_learns(env: Any, change: Any, head: str, engine: str) -> None:
    policy = policy_of(env)
    change(getattr(policy, head))
    before = {name: part.clone() for name, part in policy.named_parameters()}
    with PuffeRL(env, policy, engine=engine, **SMALL) as trainer:
        iterate(trainer)
        iterate(trainer)
    same = [name for name, part in policy.named_parameters() if torch.equal(part, before[name])]
    assert same == []
    if change is nn.utils.spectral_norm:
        with torch.no_grad():
            module = getattr(policy, head).train()
            for _ in range(50):
                module(torch.zeros(1, 16))
        assert float(torch.linalg.matrix_norm(module.weight, 2)) == pytest.approx(1, abs=1e-3)


def test_a_pruned_weight_stays_zero_in_what_the_policy_computes(env: Any) -> None:
    policy = policy_of(env)
    prune.l1_unstructured(policy.actor, "weight", 0.5)
    with PuffeRL(env, policy, **SMALL) as trainer:
        iterate(trainer)
    features = torch.randn(5, 16)
    pruned = policy.actor.weight_orig * policy.actor.weight_mask
    assert int((pruned == 0).sum()) == pruned.numel() // 2
    wanted = features @ pruned.t() + policy.actor.bias
    torch.testing.assert_close(policy.decode(features)[0], wanted)


def test_a_hook_that_changes_an_output_changes_the_values(env: Any) -> None:
    policy = policy_of(env)
    policy.critic.register_forward_hook(lambda module, inputs, output: output * 0 + 7)
    with PuffeRL(env, policy, **SMALL) as trainer:
        trainer.evaluate()
        assert (trainer.rollout.values == 7).all()


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_head_without_a_bias_trains(env: Any, engine: str) -> None:
    policy = policy_of(env)
    policy.critic = nn.Linear(16, 1, bias=False)
    with PuffeRL(env, policy, engine=engine, **SMALL) as trainer:
        iterate(trainer)
    assert len(policy.decode(torch.zeros(3, 16))[1]) == 3


def test_a_method_that_an_object_replaces_counts(env: Any) -> None:
    policy = policy_of(env)
    decode = policy.decode
    with PuffeRL(env, policy, engine="native", **SMALL) as trainer:
        trainer.evaluate()
        policy.decode = lambda features: (decode(features)[0], features[:, 0] * 0 + 5)
        with pytest.warns(UserWarning, match="a decode that was replaced"):
            trainer.evaluate()
        assert (trainer.rollout.values == 5).all()


# ---- Recurrent policies --------------------------------------------------------------------------


LAYERS = {"lstm": "lstm", "gru": "gru", "mingru": "project"}


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("place", ["layer", "core", "policy"])
@pytest.mark.parametrize("core", ["lstm", "gru", "mingru"])
def test_a_hook_of_a_core_runs_in_rollouts_and_training(
    env: Any, core: str, place: str, engine: str
) -> None:
    policy, calls = policy_of(env, recurrent=core), Calls()
    target = {"layer": getattr(policy.core, LAYERS[core]), "core": policy.core, "policy": policy}[
        place
    ]
    target.register_forward_hook(calls)
    with PuffeRL(env, policy, engine=engine, **SMALL) as trainer:
        iterate(trainer)
    assert calls.acting >= 8
    assert calls.training >= 2


@pytest.mark.parametrize("core", ["lstm", "gru", "mingru"])
def test_a_harmless_hook_changes_no_number(core: str) -> None:
    torch.manual_seed(11)
    made: RecurrentCore = {"lstm": LSTM, "gru": GRU, "mingru": MinGRU}[core](6, 6)
    features = torch.randn(3, 5, 6)
    resets = torch.tensor([[0, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.bool)

    def outputs() -> tuple[Tensor, Tensor]:
        made.zero_grad()
        result, _ = made(features, None, resets)
        result.square().sum().backward()
        return result.detach(), torch.cat([p.grad.flatten() for p in made.parameters()])

    before = outputs()
    for module in made.modules():
        module.register_forward_hook(lambda *_: None)
    for got, wanted in zip(outputs(), before, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


def test_spectral_norm_of_an_lstm_is_applied(env: Any) -> None:
    torch.manual_seed(0)
    policy: Any = LSTMWrapper(env, make_policy(env, hidden_size=16, separate=False))
    nn.utils.spectral_norm(policy.core.lstm, "weight_hh_l0")
    before = policy.core.lstm.weight_hh_l0_orig.detach().clone()
    with PuffeRL(env, policy, **SMALL) as trainer:
        iterate(trainer)
    assert not torch.equal(before, policy.core.lstm.weight_hh_l0_orig)


def test_a_full_backward_hook_of_a_readout_runs(env: Any) -> None:
    policy, calls = policy_of(env, recurrent="mingru"), Calls()
    policy.core.read.register_full_backward_hook(calls)
    with PuffeRL(env, policy, **SMALL) as trainer:
        iterate(trainer)
    assert calls.acting >= 1


def test_a_layer_of_a_core_that_cannot_be_used_is_named(env: Any) -> None:
    policy = policy_of(env, recurrent="lstm")
    policy.core.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True)
    with (
        pytest.raises(UsageError, match="must be one LSTM in one direction"),
        PuffeRL(env, policy, **SMALL) as trainer,
    ):
        trainer.evaluate()


def test_a_core_with_a_forward_of_its_own_is_called_by_its_parts(env: Any) -> None:
    class Own(RecurrentCore):
        hidden_size = 16

        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return x

        def step(self, features: Tensor, state: Any) -> Any:
            return self.forward(features), features

        def sequence(self, features: Tensor, state: Any, resets: Any) -> Any:
            return self.forward(features), features[:, -1]

    policy = RecurrentWrapper(policy_of(env), Own())
    with PuffeRL(env, policy, **SMALL) as trainer:
        iterate(trainer)


def test_a_hook_that_cannot_run_is_named(env: Any) -> None:
    policy = policy_of(env, recurrent="lstm")
    policy.policy.register_forward_hook(lambda *_: None)
    with (
        PuffeRL(env, policy, **SMALL) as trainer,
        pytest.warns(UserWarning, match=r"hooks of `policy\.policy` never run"),
    ):
        trainer.evaluate()


# ---- Odd sizes -----------------------------------------------------------------------------------


def test_a_head_of_the_wrong_size_gets_the_error_of_torch(env: Any) -> None:
    policy = policy_of(env, num_layers=2)
    policy.actor = nn.Linear(16, 5)
    with (
        pytest.raises(UsageError, match="must return"),
        PuffeRL(env, policy, **SMALL) as trainer,
    ):
        trainer.evaluate()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_of_no_units_is_left_to_torch(env: Any) -> None:
    policy = policy_of(env, num_layers=2)
    policy.layers[0] = VectorEncoder(observation_layout(env.observation_space).leaves[0], 0)
    policy.layers[2] = nn.Linear(0, 16)
    with PuffeRL(env, policy, **SMALL) as trainer:
        assert trainer.engine.name == "torch"
        assert "parameters of unusual sizes" in trainer.engine.fallback
        iterate(trainer)


def test_one_log_std_for_all_actions_is_left_to_torch() -> None:
    with pufferlib.make("continuous", 16) as env:
        policy = policy_of(env)
        assert policy.log_std.numel() > 1
        policy.log_std = nn.Parameter(torch.zeros(1))
        with PuffeRL(env, policy, **SMALL) as trainer:
            assert trainer.engine.name == "torch"
            iterate(trainer)
        with pytest.raises(UsageError, match="parameters of unusual sizes"):
            PuffeRL(env, policy, engine="native", **SMALL)


def test_weights_that_are_cut_in_place_are_noticed(env: Any) -> None:
    policy = policy_of(env)
    with PuffeRL(env, policy, engine="native", **SMALL) as trainer:
        iterate(trainer)
        policy.critic.weight.data = policy.critic.weight.data[:, :1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises((UsageError, RuntimeError)):
                trainer.evaluate()
