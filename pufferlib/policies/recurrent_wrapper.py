"""Recurrent cores between the encoder and the heads of a policy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.policies.calling import is_mismatch, mismatch
from pufferlib.policies.observations import (
    Observations,
    first_tensor,
    policy_spaces,
    torch_dtype,
    unflatten_observations,
)
from pufferlib.policies.outputs import described
from pufferlib.policies.recurrent import LSTM, RecurrentCore, RecurrentState, map_state
from pufferlib.policies.two_part import is_in_halves
from pufferlib.spaces import ObservationLayout


class RecurrentWrapper(nn.Module):
    """Put a memory between the `encode` and the `decode` of a policy.

    `policy.encode(obs)` gives features `[B, F]`; `policy.decode(features)` gives what `forward`
    would return without a state, and here gets the `[B, core.hidden_size]` outputs of the memory.
    `encode_observations(obs)` and `decode_actions(features)` are other names for them. The policies
    of `models` have both. `forward` serves rollouts, `forward_sequence` training. The memory
    computes in the precision of its parameters, under autocast too.
    """

    def __init__(self, policy: nn.Module, core: RecurrentCore) -> None:
        super().__init__()
        self._encode, self._decode = _parts_of(policy)  # names: methods would tie a copy to this
        self.policy: Any = policy
        self.core = core

    def forward(self, observations: Observations, state: RecurrentState = None) -> tuple[Any, ...]:
        features = getattr(self.policy, self._encode)(observations)
        if torch.is_autocast_enabled(features.device.type):
            with torch.autocast(features.device.type, enabled=False):
                outputs, state = self.core.step(features.float(), state)
        else:
            outputs, state = self.core.step(features, state)
        return (*getattr(self.policy, self._decode)(outputs), state)

    def forward_sequence(
        self, observations: Observations, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Any, ...]:
        """Take observations `[S, T, ...]`; return outputs `[S*T, ...]` and a state `[S, ...]`."""
        segments, horizon = first_tensor(observations).shape[:2]
        rows = map_state(lambda x: x.flatten(0, 1), observations)
        features = getattr(self.policy, self._encode)(rows)
        features = features.reshape(segments, horizon, -1)
        if torch.is_autocast_enabled(features.device.type):
            with torch.autocast(features.device.type, enabled=False):
                outputs, state = self.core.sequence(features.float(), state, resets)
        else:
            outputs, state = self.core.sequence(features, state, resets)
        return (*getattr(self.policy, self._decode)(outputs.flatten(0, 1)), state)


class LSTMWrapper(RecurrentWrapper):
    """Give a policy that has `encode` and `decode` an LSTM in between.

    The cell of rollouts and the fused LSTM of training are the same parameters. `input_size` is the
    width of the features that `policy.encode` gives, and need not be given. `hidden_size` is what
    `policy.decode` takes; by default as wide as the features.
    """

    def __init__(
        self,
        env: Any,
        policy: nn.Module,
        input_size: int | None = None,
        hidden_size: int | None = None,
    ) -> None:
        width = feature_size(policy, policy_spaces(env).observation)
        if input_size not in (None, width):
            raise UsageError(
                f"`input_size` must be {width}, the width of the features of "
                f"{type(policy).__name__}, but got {input_size}. Try hidden_size={input_size}."
            )
        super().__init__(policy, LSTM(width, width if hidden_size is None else hidden_size))


def feature_size(policy: Any, layout: ObservationLayout) -> int:
    """Return the width of what `policy.encode` gives, by asking it about two rows of zeros."""
    encode, _ = _parts_of(policy)
    parameter = next(policy.parameters(), None)
    device = None if parameter is None else parameter.device
    rows = torch.zeros(2, *layout.shape, dtype=torch_dtype(layout.dtype), device=device)
    inputs = unflatten_observations(rows, layout)
    try:
        with torch.no_grad():
            features = getattr(policy, encode)(inputs)
    except RuntimeError as error:
        if not is_mismatch(error):
            raise
        raise mismatch(error, encode, inputs) from error
    if not isinstance(features, Tensor) or features.dim() != 2 or features.shape[0] != 2:
        raise UsageError(
            f"`{encode}` must return features of shape (2, width) for two rows, but got "
            f"{described(features)}."
        )
    return features.shape[1]


def _parts_of(policy: nn.Module) -> tuple[str, str]:
    """Return the names of the methods before and after a memory; UsageError if one is missing."""
    missing = [name for name in ("encode", "decode") if not hasattr(policy, name)]
    others = "encode_observations", "decode_actions"
    if missing and all(hasattr(policy, name) for name in others) and not is_in_halves(type(policy)):
        return others
    if missing:
        raise UsageError(
            f"`policy` must have `encode(obs)` and `decode(features)`, but {type(policy).__name__} "
            f"has no `{missing[0]}`. Try splitting its `forward` in two where the memory belongs."
        )
    return "encode", "decode"
