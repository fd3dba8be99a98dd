"""Recurrent cores between the encoder and the heads of a policy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.policies.acting import explaining_mismatch
from pufferlib.policies.distributions import described
from pufferlib.policies.hooks import hooks_of
from pufferlib.policies.observations import (
    Observations,
    policy_spaces,
    torch_dtype,
    unflatten_observations,
)
from pufferlib.policies.recurrent import LSTM, RecurrentCore, RecurrentState, map_state, tensors_of
from pufferlib.policies.two_part import is_two_part
from pufferlib.spaces import ObservationLayout


class RecurrentWrapper(nn.Module):
    """Put a recurrent core between the `encode` and the `decode` of a policy.

    `policy.encode(obs)` returns features `[B, F]`. `policy.decode(features)` gets the outputs of
    the core, `[B, core.hidden_size]`, and returns what `forward` would without a state.
    `encode_observations(obs)` and `decode_actions(features)` are other names for the two. `forward`
    serves rollouts, `forward_sequence` training. The core computes in the precision of its
    parameters, under autocast too.
    """

    def __init__(self, policy: nn.Module, core: RecurrentCore) -> None:
        super().__init__()
        self._parts = _parts_of(policy)  # names: a deepcopy needs its own methods
        self.policy = policy
        self.core = core

    def _encode(self, observations: Observations) -> Tensor:
        if any(hooks_of(self.policy)):
            warnings.warn(
                f"hooks of `policy.policy` never run: its `{self._parts[0]}` and "
                f"`{self._parts[1]}` are called. Try hooks of its layers, or of the whole policy.",
                stacklevel=2,
            )
        features: Tensor = getattr(self.policy, self._parts[0])(observations)
        return features

    def _decode(self, features: Tensor) -> tuple[Any, ...]:
        outputs: tuple[Any, ...] = getattr(self.policy, self._parts[1])(features)
        return outputs

    def _call_core(
        self, features: Tensor, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Tensor, RecurrentState]:
        core: Any = self.core
        if getattr(type(core), "forward", None) is RecurrentCore.forward:  # with its hooks
            result: tuple[Tensor, RecurrentState] = core(features, state, resets)
            return result
        if features.dim() == 2:
            return self.core.step(features, state)
        return self.core.sequence(features, state, resets)

    def forward(self, observations: Observations, state: RecurrentState = None) -> tuple[Any, ...]:
        features = self._encode(observations)
        with _full_precision(features) as features:
            outputs, state = self._call_core(features, state, None)
        return (*self._decode(outputs), state)

    def forward_sequence(
        self, observations: Observations, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Any, ...]:
        """Take observations `[S, T, ...]`; return outputs `[S*T, ...]` and a state `[S, ...]`."""
        segments, horizon = tensors_of(observations)[0].shape[:2]
        rows = map_state(lambda x: x.flatten(0, 1), observations)
        features = self._encode(rows)
        with _full_precision(features.reshape(segments, horizon, -1)) as features:
            outputs, state = self._call_core(features, state, resets)
        return (*self._decode(outputs.flatten(0, 1)), state)


@contextmanager
def _full_precision(features: Tensor) -> Iterator[Tensor]:
    """Leave autocast, if it is on; yield the features in float32 then."""
    device = features.device.type
    if not torch.is_autocast_enabled(device):
        yield features
        return
    with torch.autocast(device, enabled=False):
        yield features.float()


class LSTMWrapper(RecurrentWrapper):
    """Put an LSTM between the `encode` and the `decode` of a policy.

    The cell of rollouts and the fused LSTM of training share their parameters. `input_size` is the
    width of the features that `policy.encode` returns; it is optional, and checked. `hidden_size`
    is the width that `policy.decode` takes, by default that of the features.
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
                f"{type(policy).__name__}, but got {input_size}. Try input_size={width}."
            )
        super().__init__(policy, LSTM(width, width if hidden_size is None else hidden_size))


def feature_size(policy: Any, layout: ObservationLayout) -> int:
    """Return the width of the features of `policy.encode`, from a call with two rows of zeros."""
    encode, _ = _parts_of(policy)
    parameter = next(policy.parameters(), None)
    device = None if parameter is None else parameter.device
    rows = torch.zeros(2, *layout.shape, dtype=torch_dtype(layout.dtype), device=device)
    inputs = unflatten_observations(rows, layout)
    with torch.no_grad(), explaining_mismatch(encode, inputs):
        features = getattr(policy, encode)(inputs)
    if not isinstance(features, Tensor) or features.dim() != 2 or features.shape[0] != 2:
        raise UsageError(
            f"`{encode}` must return features of shape (2, width) for two rows, but got "
            f"{described(features)}."
        )
    return features.shape[1]


def _parts_of(policy: nn.Module) -> tuple[str, str]:
    """Return the names of the methods before and after a core; UsageError if one is missing."""
    missing = [name for name in ("encode", "decode") if not hasattr(policy, name)]
    others = "encode_observations", "decode_actions"
    if missing and all(hasattr(policy, name) for name in others) and not is_two_part(type(policy)):
        return others
    if missing:
        raise UsageError(
            f"`policy` must have `encode(obs)` and `decode(features)`, but {type(policy).__name__} "
            f"has no `{missing[0]}`. Try splitting its `forward` in two where the LSTM belongs."
        )
    return "encode", "decode"
