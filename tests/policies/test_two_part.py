"""Policies of two parts, `encode_observations` and `decode_actions`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn
from torch.distributions import Beta
from torch.testing import assert_close

from pufferlib.errors import UsageError
from pufferlib.policies.acting import policy_sequence, policy_step, prepare_policy, takes_state
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.recurrent import reset_state
from pufferlib.policies.two_part import _cut
from pufferlib.spaces import action_layout, observation_layout

SPACES = PolicySpaces(observation_layout(Box(-1, 1, (3,))), action_layout(Discrete(4)))


class TwoPart(nn.Module):
    """A cell and layers with the same weights; `layered` takes states as `[1, B, H]`."""

    def __init__(self, cell: Any, layers: Any, layered: bool = True, apart: bool = False) -> None:
        super().__init__()
        self.encoder, self.actor, self.critic = nn.Linear(3, 5), nn.Linear(6, 4), nn.Linear(6, 1)
        self.memory_cell, self.memory = cell, layers
        self.layered, self.apart = layered, apart

    def encode_observations(self, observations: Tensor, state: Any) -> Any:
        state = self.memory_cell(self.encoder(observations), state)
        hidden = state[0] if isinstance(state, tuple) else state
        return self.actor(hidden), self.critic(hidden), state

    def decode_actions(self, observations: Tensor, actions: Tensor, state: Any) -> Any:
        assert actions.dtype == torch.int64
        if state is not None and not self.layered:
            state = tuple(part.unsqueeze(0) for part in state)
        outputs, state = self.memory(self.encoder(observations), state)
        values = self.critic(outputs)
        if self.apart:
            return self.actor(outputs), values, state
        return self.actor(outputs).flatten(0, 1), values.flatten(0, 1), state


def lstm(**settings: Any) -> TwoPart:
    return TwoPart(nn.LSTMCell(5, 6), nn.LSTM(5, 6), **settings)


def gru() -> TwoPart:
    return TwoPart(nn.GRUCell(5, 6), nn.GRU(5, 6))


def unrolled(policy: nn.Module, observations: Tensor, state: Any, resets: Tensor) -> Any:
    logits, values = [], []
    for t in range(observations.shape[1]):
        state = reset_state(state, resets[:, t])
        output = policy_step(policy, observations[:, t], state, SPACES)
        logits.append(output.logits)
        values.append(output.value)
        state = output.state
    return torch.stack(logits, 1).flatten(0, 1), torch.stack(values, 1).flatten()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize(
    "policy",
    [lstm(), lstm(layered=False), lstm(apart=True), gru()],
    ids=["lstm", "own layers", "not flattened", "gru"],
)
def test_both_parts_agree_wherever_episodes_begin(
    policy: TwoPart, stateful: bool, share: float
) -> None:
    torch.manual_seed(0)
    prepare_policy(policy)
    observations, resets = torch.randn(6, 13, 3), torch.rand(6, 13) < share
    actions = torch.randint(0, 4, (6, 13), dtype=torch.int32)
    state = None
    if stateful:
        state = policy_step(policy, torch.randn(6, 3), None, SPACES).state
        state = tuple(x.detach() for x in state) if isinstance(state, tuple) else state.detach()

    logits, values = unrolled(policy, observations, state, resets)
    output = policy_sequence(policy, observations, state, resets, SPACES, actions=actions)

    assert takes_state(policy)
    assert_close(output.logits, logits, atol=1e-5, rtol=1e-4)
    assert_close(output.value, values, atol=1e-5, rtol=1e-4)
    grads, wanted = (
        torch.autograd.grad(part.square().sum(), list(policy.parameters()), allow_unused=True)
        for part in (output.value, values)
    )
    assert_close(grads[:2], wanted[:2], atol=1e-4, rtol=1e-3)


def test_pieces_hold_every_step_once_and_no_episode_begins_inside() -> None:
    torch.manual_seed(0)
    for share in (0.0, 0.05, 0.3, 1.0):
        resets = torch.rand(7, 40) < share
        rows: list[int] = []
        padded = 0
        for cells, lengths, go_on in _cut(7, 40, resets, torch.device("cpu")):
            padded += cells.numel()
            for piece, length, goes_on in zip(cells.t(), lengths.tolist(), go_on.tolist()):
                steps = piece[:length]
                rows += steps.tolist()
                assert (steps.diff() == 1).all()
                assert len(set((steps // 40).tolist())) == 1
                begins = resets.flatten()[steps]
                assert not begins[1:].any()
                assert goes_on == (not begins[0])
                assert begins[0] or steps[0] % 40 == 0
        assert sorted(rows) == list(range(280))
        assert padded <= 2 * 280


def test_the_layers_get_the_weights_of_the_cell() -> None:
    policy = lstm()
    before = policy.memory_cell.weight_hh.detach().clone()

    prepare_policy(torch.compile(policy, backend="eager"))  # type: ignore[arg-type]

    assert policy.memory.weight_hh_l0 is policy.memory_cell.weight_hh
    assert policy.memory.bias_ih_l0 is policy.memory_cell.bias_ih
    assert torch.equal(policy.memory.weight_hh_l0, before)
    # 5*4*6 + 6*4*6 + 2*4*6 once, the encoder 3*5+5, the heads 6*4+4 + 6+1
    assert sum(p.numel() for p in policy.parameters()) == 312 + 20 + 35


@pytest.mark.parametrize(
    "layers",
    [nn.LSTM(5, 6, num_layers=2), nn.LSTM(5, 6, bias=False), nn.LSTM(6, 6)],
    ids=["two layers", "no bias", "other input"],
)
def test_a_cell_and_layers_of_other_sizes_are_refused(layers: nn.LSTM) -> None:
    with pytest.raises(UsageError, match=r"`memory_cell` and `memory` must have the same sizes"):
        prepare_policy(TwoPart(nn.LSTMCell(5, 6), layers))


def test_policies_of_one_half_are_left_alone() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm_cell, self.lstm = nn.LSTMCell(5, 6), nn.LSTM(5, 6)

        def forward(self, observations: Tensor, state: Any = None) -> Any:
            raise NotImplementedError

    policy = Both()
    prepare_policy(policy)

    assert policy.lstm.weight_hh_l0 is not policy.lstm_cell.weight_hh


def test_errors_in_decode_actions_are_raised_unchanged() -> None:
    class Faulty(TwoPart):
        def decode_actions(self, observations: Tensor, actions: Tensor, state: Any) -> Any:
            raise ValueError("mine")

    policy = Faulty(nn.LSTMCell(5, 6), nn.LSTM(5, 6))
    state = (torch.zeros(2, 6), torch.zeros(2, 6))

    with pytest.raises(ValueError, match="mine"):
        policy_sequence(
            policy, torch.zeros(2, 4, 3), state, None, SPACES, actions=torch.zeros(2, 4)
        )


def test_an_uncommon_distribution_is_refused_in_the_second_half() -> None:
    class Uncommon(TwoPart):
        def decode_actions(self, observations: Tensor, actions: Tensor, state: Any) -> Any:
            ones = torch.ones(*observations.shape[:2], 2)
            return Beta(ones, ones), ones[..., 0], state

    spaces = PolicySpaces(SPACES.observation, action_layout(Box(0, 1, (2,))))
    policy = Uncommon(nn.LSTMCell(5, 6), nn.LSTM(5, 6))

    with pytest.raises(UsageError, match="Beta"):
        policy_sequence(
            policy, torch.zeros(2, 4, 3), None, None, spaces, actions=torch.zeros(2, 4, 2)
        )
