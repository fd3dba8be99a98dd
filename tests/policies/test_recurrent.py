"""Recurrent policies: rollout and training agree, resets cut, states are left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn
from torch.testing import assert_close

from pufferlib.errors import UsageError
from pufferlib.models import make_policy
from pufferlib.policies.acting import policy_sequence, policy_step
from pufferlib.policies.observations import policy_spaces
from pufferlib.policies.recurrent import (
    GRU,
    LSTM,
    Transformer,
    make_core,
    reset_state,
)
from pufferlib.policies.recurrent_ops import (
    gru_sequence,
    linear_scan,
    lstm_sequence,
)


def env_of(observation_space: Any, action_space: Any) -> Any:
    return SimpleNamespace(observation_space=observation_space, action_space=action_space)


every_core = pytest.mark.parametrize("recurrent", ["lstm", "gru", "mingru", "transformer"])


@every_core
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("stateful", [False, True])
def test_rollout_and_training_compute_the_same_states(
    recurrent: Any, share: float, stateful: bool
) -> None:
    torch.manual_seed(0)
    env = env_of(Box(-1, 1, (4,)), Discrete(3))
    policy, spaces = make_policy(env, hidden_size=16, recurrent=recurrent), policy_spaces(env)
    observations, resets = torch.randn(5, 11, 4), torch.rand(5, 11) < share
    state = None
    if stateful:
        state = policy_step(policy, torch.randn(5, 4), None, spaces).state

    last, steps = state, []
    for t in range(11):
        last = reset_state(last, resets[:, t])
        steps.append(policy_step(policy, observations[:, t], last, spaces))
        last = steps[-1].state
    output = policy_sequence(policy, observations, state, resets, spaces)

    logits = torch.stack([step.logits for step in steps if step.logits is not None], 1)
    values = torch.stack([step.value for step in steps], 1)
    assert_close(output.logits, logits.flatten(0, 1), atol=1e-5, rtol=1e-5)
    assert_close(output.value, values.flatten(), atol=1e-5, rtol=1e-5)
    assert_close(output.state, last, atol=1e-5, rtol=1e-5)


@every_core
def test_gradients_through_time_agree_with_a_plain_unroll(recurrent: Any) -> None:
    torch.manual_seed(0)
    env = env_of(Box(-1, 1, (4,)), Discrete(3))
    policy, spaces = make_policy(env, hidden_size=16, recurrent=recurrent), policy_spaces(env)
    observations, resets = torch.randn(5, 11, 4), torch.rand(5, 11) < 0.2

    class Plain(nn.Module):
        """The same policy without its forward_sequence: unrolled step by step."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = policy

        def forward(self, obs: Tensor, state: Any = None) -> Any:
            return self.inner(obs, state)

    def gradients(module: nn.Module) -> list[Tensor]:
        output = policy_sequence(module, observations, None, resets, spaces)
        loss = output.value.square().sum()
        return list(torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True))

    for fast, slow in zip(gradients(policy), gradients(Plain()), strict=True):
        assert (fast is None) == (slow is None)
        if fast is not None:
            assert_close(fast, slow, atol=1e-4, rtol=1e-4)


@every_core
def test_nothing_passes_from_one_episode_to_the_next(recurrent: Any) -> None:
    env = env_of(Box(-1, 1, (4,)), Discrete(3))
    policy, spaces = make_policy(env, hidden_size=16, recurrent=recurrent), policy_spaces(env)
    observations = torch.randn(1, 6, 4)
    other = observations.clone()
    other[:, :3] = 7
    resets = torch.tensor([[False, False, False, True, False, False]])

    first = policy_sequence(policy, observations, None, resets, spaces).value
    second = policy_sequence(policy, other, None, resets, spaces).value

    assert_close(first[3:], second[3:])
    assert not torch.allclose(first[:3], second[:3])


@pytest.mark.parametrize("horizon", [1, 2, 7, 16])
def test_scan_equals_the_recurrence(horizon: int) -> None:
    keep = torch.rand(3, horizon, 4, dtype=torch.float64)
    keep[torch.rand(keep.shape) < 0.2] = 0
    add, start = torch.randn(3, horizon, 4).double(), torch.randn(3, 4).double()
    hidden, wanted = start, []
    for t in range(horizon):
        hidden = keep[:, t] * hidden + add[:, t]
        wanted.append(hidden)

    assert_close(linear_scan(keep, add, start), torch.stack(wanted, 1))


def test_gradient_of_the_scan_equals_finite_differences() -> None:
    torch.manual_seed(0)
    keep, add = torch.rand(2, 5, 3).double(), torch.randn(2, 5, 3).double()
    inputs = [part.requires_grad_() for part in (keep, add, torch.randn(2, 3).double())]

    assert torch.autograd.gradcheck(linear_scan, inputs)


@pytest.mark.parametrize("kept", [None, [[1.0, 1.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]])
def test_gradients_of_whole_segments_equal_finite_differences(kept: Any) -> None:
    # [T, S, H] = [4, 2, 3]; an LSTM has 4 gates, a GRU 3
    torch.manual_seed(0)
    mask = None if kept is None else torch.tensor(kept).double().unsqueeze(-1)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape).double().requires_grad_()

    lstm = [random(4, 2, 12), random(12, 3), random(2, 3), random(2, 3)]
    gru = [random(4, 2, 9), random(9, 3), random(9), random(2, 3)]

    assert torch.autograd.gradcheck(lambda *x: lstm_sequence(*x, mask), lstm)
    assert torch.autograd.gradcheck(lambda *x: gru_sequence(*x, mask), gru)


@pytest.mark.parametrize(("core_type", "name"), [(LSTM, "lstm"), (GRU, "gru")])
def test_without_resets_segments_are_those_of_torch(core_type: Any, name: str) -> None:
    torch.manual_seed(0)
    core = core_type(5, 8)
    features = torch.randn(3, 7, 5)
    state: Any = torch.randn(3, 8)
    layered: Any = state.unsqueeze(0)
    if name == "lstm":
        state, layered = (state, state * 0.5), (layered, layered * 0.5)

    outputs, last = core.sequence(features, state, None)
    wanted, wanted_last = getattr(core, name)(features, layered)

    assert_close(outputs, wanted)
    last, wanted_last = (
        (part if isinstance(part, tuple) else (part,)) for part in (last, wanted_last)
    )
    for part, other in zip(last, wanted_last, strict=True):
        assert_close(part, other[0])
    grads, wanted_grads = (
        torch.autograd.grad(part.square().sum(), list(core.parameters()))
        for part in (outputs, wanted)
    )
    assert_close(grads, wanted_grads, atol=1e-5, rtol=1e-4)


def test_an_lstm_begins_by_remembering() -> None:
    core = LSTM(4, 6)
    biases = core.lstm.bias_ih_l0 + core.lstm.bias_hh_l0

    assert biases.tolist() == 6 * [0.0] + 6 * [1.0] + 12 * [0.0]


def test_a_mingru_begins_with_time_scales_of_1_to_64_steps() -> None:
    core = make_core("mingru", 4, 8)
    with torch.no_grad():
        core.project.weight.zero_()  # type: ignore[union-attr]
    gates = core.project(torch.zeros(1, 4))[0, :8].sigmoid()  # type: ignore[operator]

    assert_close(gates[0], torch.tensor(0.5))
    assert_close(gates[-1], torch.tensor(1 / 65))


@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_transformer_sees_its_context_and_nothing_older(num_layers: int) -> None:
    # with n layers a step is reached from n * (context - 1) steps before it
    torch.manual_seed(0)
    core = Transformer(3, 8, context=3, num_layers=num_layers)
    features = torch.randn(1, 9, 3)
    reach = num_layers * 2

    outputs, _ = core.sequence(features, None, None)
    for changed in range(9):
        other = features.clone()
        other[:, changed] += 1
        moved = (core.sequence(other, None, None)[0] - outputs).abs().amax((0, 2)) > 1e-6
        assert moved.tolist() == [changed <= t <= changed + reach for t in range(9)]


def test_a_transformer_knows_how_long_ago_a_step_was() -> None:
    core = Transformer(3, 8, context=4)
    features = torch.randn(1, 1, 3).repeat(1, 4, 1)
    features[:, 1] += 1
    swapped = features[:, [1, 0, 2, 3]]
    with torch.no_grad():
        core.blocks[0].by_distance.normal_()  # type: ignore[union-attr, operator]

    first, second = (core.sequence(part, None, None)[0][:, -1] for part in (features, swapped))

    assert not torch.allclose(first, second, atol=1e-4)


@pytest.mark.parametrize("context", [1, 4, 20])
def test_a_transformer_steps_as_it_trains_over_many_segments(context: int) -> None:
    torch.manual_seed(0)
    core = Transformer(3, 8, context=context, num_layers=2, num_heads=3)
    features, resets = torch.randn(4, 24, 3), torch.rand(4, 24) < 0.15

    state, steps = None, []
    for t in range(24):
        state = reset_state(state, resets[:, t])
        output, state = core.step(features[:, t], state)
        steps.append(output)
    carried, segments = None, []
    for first in range(0, 24, 8):
        span = slice(first, first + 8)
        output, carried = core.sequence(features[:, span], carried, resets[:, span])
        segments.append(output)

    assert_close(torch.cat(segments, 1), torch.stack(steps, 1), atol=1e-5, rtol=1e-5)
    assert_close(carried, state, atol=1e-5, rtol=1e-5)


def test_a_core_leaves_the_state_it_is_given_alone() -> None:
    for name in ("lstm", "gru", "mingru", "transformer"):
        core = make_core(name, 4, 8, context=3)
        _, state = core.step(torch.randn(2, 4), None)
        parts = state if isinstance(state, tuple) else (state,)
        before = [part.detach().clone() for part in parts]
        with torch.no_grad():
            core.step(torch.randn(2, 4), state)
            core.sequence(torch.randn(2, 5, 4), state, torch.ones(2, 5, dtype=torch.bool))

        for part, old in zip(parts, before, strict=True):
            assert torch.equal(part, old), name


@every_core
def test_cores_compute_in_float32_under_autocast(recurrent: Any) -> None:
    env = env_of(Box(-1, 1, (4,)), Discrete(3))
    policy, spaces = make_policy(env, hidden_size=16, recurrent=recurrent), policy_spaces(env)
    observations = torch.randn(3, 5, 4)

    with torch.autocast("cpu", torch.bfloat16):
        step = policy_step(policy, observations[:, 0], None, spaces)
        again = policy_step(policy, observations[:, 1], step.state, spaces)
        output = policy_sequence(policy, observations, step.state, None, spaces)

    for state in (again.state, output.state):
        for part in state if isinstance(state, tuple) else (state,):
            assert part.dtype in (torch.float32, torch.int64)
    assert output.value.isfinite().all()


def test_an_unknown_core_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean `mingru`"):
        make_core("min-gru", 4, 8)
    with pytest.raises(UsageError, match="`context`"):
        make_core("transformer", 4, 8, context=0)


@every_core
def test_compiled_cores_give_the_same(recurrent: Any) -> None:
    env = env_of(Box(-1, 1, (4,)), Discrete(3))
    policy, spaces = make_policy(env, hidden_size=16, recurrent=recurrent), policy_spaces(env)
    compiled: Any = torch.compile(policy, backend="eager")
    rows = torch.randn(3, 4)

    with torch.no_grad():
        state = policy_step(policy, rows, None, spaces).state
        plain = policy_step(policy, rows, state, spaces)
        seen = policy_step(compiled, rows, state, spaces)

    assert_close(seen.logits, plain.logits, atol=1e-6, rtol=1e-5)
    assert_close(seen.state, plain.state, atol=1e-6, rtol=1e-5)
