"""Recurrent states of policies, and the recurrent cores that read and write them.

A *recurrent state* is a tensor or a nested tuple, list or dict of tensors, each with the batch as
its first dimension. At the beginning of an episode it is None or all zeros. A core takes one step
in rollouts and whole segments in training; both agree to float tolerance, wherever an episode ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pufferlib.errors import UsageError, unknown_choice
from pufferlib.policies.hooks import is_plain
from pufferlib.policies.recurrent_ops import (
    gru_sequence,
    gru_step,
    lstm_sequence,
    lstm_step,
    mingru_sequence,
)

# A tensor [B, ...], nested tuples, lists or dicts of such, or None. Any: users choose the form.
RecurrentState: TypeAlias = Any
LayerT = TypeVar("LayerT", bound=nn.RNNBase)


# --- states ---------------------------------------------------------------------------------------


def map_state(function: Callable[[Tensor], Tensor], state: RecurrentState) -> RecurrentState:
    """Apply `function` to every tensor of a state or observation and keep the form of the whole."""
    if isinstance(state, Tensor):
        return function(state)
    if state is None:
        return None
    if isinstance(state, Mapping):
        return {key: map_state(function, part) for key, part in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):  # a NamedTuple of the user's
        return type(state)(*(map_state(function, part) for part in state))
    if isinstance(state, tuple | list):
        return type(state)(map_state(function, part) for part in state)
    raise UsageError(
        f"A state or observation must be made of tensors, tuples, lists and dicts, but got "
        f"{type(state).__name__}."
    )


def tensors_of(state: RecurrentState) -> list[Tensor]:
    """Return the tensors of a state or observation, in order."""
    found: list[Tensor] = []

    def keep(part: Tensor) -> Tensor:
        found.append(part)
        return part

    map_state(keep, state)
    return found


def join_states(states: Sequence[RecurrentState]) -> RecurrentState:
    """Join recurrent states of equal form along the batch; None where there is none."""
    if len(states) == 1 or states[0] is None:
        return states[0]
    columns = zip(*map(tensors_of, states), strict=True)
    joined = iter([torch.cat(column) for column in columns])
    return map_state(lambda _: next(joined), states[0])


def reset_state(state: RecurrentState, resets: Tensor) -> RecurrentState:
    """Zero the rows of a state where `resets` `[B]` is true: there a new episode begins."""
    resets = resets.bool()

    def zeroed(part: Tensor) -> Tensor:
        return part.masked_fill(resets.view(-1, *(1,) * (part.dim() - 1)), 0)

    return map_state(zeroed, state)


def reset_columns(resets: Tensor | None, horizon: int) -> list[Tensor | None]:
    """Return the columns of `resets` `[S, T]`, with None for those known to hold no reset."""
    if resets is None:
        return [None] * horizon
    columns: list[Tensor | None] = list(resets.bool().unbind(1))
    if resets.device.type != "cpu":
        return columns  # reading the values would wait for the device
    found = resets.any(0).tolist()
    return [column if any_ else None for column, any_ in zip(columns, found, strict=True)]


# --- cores ----------------------------------------------------------------------------------------


class RecurrentCore(nn.Module):
    """A recurrent network between encoder and heads: `step` in rollouts, `sequence` in training.

    Both must agree to float tolerance. A subclass sets `hidden_size` (the width of its outputs) and
    implements `step` and `sequence`; `resets` is as in `policy_sequence`. A core never writes into
    a state that it was given: a rollout keeps those between segments.
    """

    hidden_size: int

    def forward(
        self, features: Tensor, state: RecurrentState, resets: Tensor | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """Take a step for features `[B, F]`, or go through a sequence for `[S, T, F]`."""
        if features.dim() == 2:
            return self.step(features, state)
        return self.sequence(features, state, resets)

    def step(self, features: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return outputs `[B, hidden_size]` for features `[B, F]`, and the next state."""
        raise NotImplementedError

    def sequence(
        self, features: Tensor, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Tensor, RecurrentState]:
        """Return outputs `[S, T, hidden_size]` for features `[S, T, F]`, and the last state."""
        raise NotImplementedError


def make_core(name: str, input_size: int, hidden_size: int, context: int = 32) -> RecurrentCore:
    """Build the core that `policy.recurrent` names; `context` is for the transformer only."""
    if name == "transformer":
        return Transformer(input_size, hidden_size, context)
    if name not in _CORES:
        raise unknown_choice("`recurrent`", name, ["none", *_CORES, "transformer"])
    return _CORES[name](input_size, hidden_size)


class LSTM(RecurrentCore):
    """One layer of LSTM whose state is `(hidden, cell)`, each `[B, hidden_size]`."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.lstm = _initialised(nn.LSTM(input_size, hidden_size, batch_first=True))
        with torch.no_grad():  # forget little at first (Jozefowicz et al. 2015); gates: i, f, g, o
            self.lstm.all_weights[0][2][hidden_size : 2 * hidden_size] = 1

    def step(self, features: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden, cell = (
            _started(part, features, self.hidden_size) for part in state or (None, None)
        )
        if not _is_usual(self.lstm, nn.LSTM):
            return _called(self.lstm, features, (hidden, cell))
        weights = self.lstm.all_weights[0]
        if torch.is_grad_enabled():
            hidden, cell = torch.lstm_cell(features, (hidden, cell), *weights)
        else:
            projected = torch.addmm(weights[2] + weights[3], features, weights[0].t())
            hidden, cell = lstm_step(projected, weights[1], hidden, cell)
        return hidden, (hidden, cell)

    def sequence(
        self, features: Tensor, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Tensor, RecurrentState]:
        if not _is_usual(self.lstm, nn.LSTM):
            return _step_by_step(self, features, state, resets)
        input_weight, hidden_weight, input_bias, hidden_bias = self.lstm.all_weights[0]
        hidden, cell = (
            _started(part, features, self.hidden_size) for part in state or (None, None)
        )
        by_time = features.transpose(0, 1)
        projected = F.linear(by_time, input_weight, input_bias + hidden_bias)  # once for all steps
        kept = _kept(resets, features.dtype)
        outputs, last_cell = lstm_sequence(projected, hidden_weight, hidden, cell, kept)
        return outputs.transpose(0, 1), (outputs[-1], last_cell)


class GRU(RecurrentCore):
    """One layer of GRU whose state is `[B, hidden_size]`."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.gru = _initialised(nn.GRU(input_size, hidden_size, batch_first=True))

    def step(self, features: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden = _started(state, features, self.hidden_size)
        if not _is_usual(self.gru, nn.GRU):
            return _called(self.gru, features, hidden)
        weights = self.gru.all_weights[0]
        if torch.is_grad_enabled():
            hidden = torch.gru_cell(features, hidden, *weights)
        else:
            projected = torch.addmm(weights[2], features, weights[0].t())
            hidden = gru_step(projected, weights[1], weights[3], hidden)
        return hidden, hidden

    def sequence(
        self, features: Tensor, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Tensor, RecurrentState]:
        if not _is_usual(self.gru, nn.GRU):
            return _step_by_step(self, features, state, resets)
        input_weight, hidden_weight, input_bias, hidden_bias = self.gru.all_weights[0]
        hidden = _started(state, features, self.hidden_size)
        projected = F.linear(features.transpose(0, 1), input_weight, input_bias)
        kept = _kept(resets, features.dtype)
        outputs = gru_sequence(projected, hidden_weight, hidden_bias, hidden, kept)
        return outputs.transpose(0, 1), outputs[-1]


class MinGRU(RecurrentCore):
    """The minimal GRU of Feng et al. 2024: `h_t = (1 - z_t) * h_{t-1} + z_t * candidate_t`.

    Gate z and candidate depend on the input alone, so a segment takes one matrix product and a
    linear scan, where LSTM and GRU need a product per step. h is only a weighted sum of inputs, so
    a ReLU layer with a skip connection reads it. Gates begin with time scales from 1 to 64 steps,
    evenly on a log scale (after Tallec and Ollivier 2018). The state is h, `[B, H]`.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.project = _orthogonal(nn.Linear(input_size, 2 * hidden_size), 1.0)
        self.read = _orthogonal(nn.Linear(hidden_size, hidden_size), math.sqrt(2))
        self.skip: nn.Module = nn.Identity()
        if input_size != hidden_size:
            self.skip = _orthogonal(nn.Linear(input_size, hidden_size), 1.0)
        with torch.no_grad():
            self.project.bias[:hidden_size] = -torch.linspace(0, math.log(64), hidden_size)

    def step(self, features: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        gate, candidate = self.project(features).chunk(2, -1)
        hidden = torch.lerp(_started(state, features, self.hidden_size), candidate, gate.sigmoid())
        return self._readout(features, hidden), hidden

    def sequence(
        self, features: Tensor, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Tensor, RecurrentState]:
        start = _started(state, features, self.hidden_size)
        hidden = mingru_sequence(self.project(features), start, resets)
        return self._readout(features, hidden), hidden[:, -1]

    def _readout(self, features: Tensor, hidden: Tensor) -> Tensor:
        read: Tensor = self.read(hidden)
        if not is_plain(self.read):  # a hook may have kept it
            return F.relu(read + self.skip(features))
        return read.add_(self.skip(features)).relu_()


class Transformer(RecurrentCore):
    """Attention over the last `context` steps of the episode, the current one included.

    Pre-norm blocks of attention and a dense layer. Each head adds a learned bias for each distance
    in time to its scores. The state holds keys and values `[B, layers, heads, context - 1,
    hidden_size / heads]` and how many of them are from this episode `[B]`: attention never crosses
    the beginning of an episode, and the steps before a segment get no gradient.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        context: int = 32,
        num_layers: int = 1,
        num_heads: int = 4,
    ) -> None:
        super().__init__()
        if context < 1 or num_layers < 1:
            raise UsageError(
                f"`context` and `num_layers` must be at least 1, but got {context=}, {num_layers=}."
            )
        self.hidden_size = hidden_size
        self.past = context - 1
        self.num_heads = math.gcd(num_heads, hidden_size)
        self.embed = _orthogonal(nn.Linear(input_size, hidden_size), 1.0)
        self.blocks = nn.ModuleList(
            _Block(hidden_size, self.num_heads, context) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(hidden_size)

    def step(self, features: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        keys, values, filled = self._started(state, features)
        distance = torch.arange(self.past, -1, -1, device=features.device)
        visible = (distance <= filled.unsqueeze(1)).unsqueeze(1)  # [B, 1, past + 1]
        filled = (filled + 1).clamp(max=self.past)
        x, keys, values = self._through(features.unsqueeze(1), keys, values, visible, distance)
        return x.squeeze(1), (keys, values, filled)

    def sequence(
        self, features: Tensor, state: RecurrentState, resets: Tensor | None
    ) -> tuple[Tensor, RecurrentState]:
        segments, horizon = features.shape[:2]
        keys, values, filled = self._started(state, features)
        now = torch.arange(self.past, self.past + horizon, device=features.device).unsqueeze(1)
        distance = now - torch.arange(self.past + horizon, device=features.device)
        visible, filled = self._visible(filled, resets, segments, horizon)
        visible &= (distance >= 0) & (distance <= self.past)
        distance = distance.clamp(0, self.past)
        x, keys, values = self._through(features, keys, values, visible, distance)
        if resets is not None:  # zeros for steps of earlier episodes, as `step` leaves them
            age = torch.arange(self.past, 0, -1, device=features.device)
            is_filled = (age <= filled.unsqueeze(1)).view(segments, 1, 1, self.past, 1)
            keys, values = keys * is_filled, values * is_filled
        return x, (keys, values, filled)

    def _through(
        self, features: Tensor, keys: Tensor, values: Tensor, visible: Tensor, distance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs, and the keys and values of the past for the next step."""
        x, last = self.embed(features), []
        for layer, block in enumerate(self.blocks):
            x, *past = block(x, keys[:, layer], values[:, layer], visible, distance)
            last.append(past)
        keys, values = (
            torch.stack(parts, 1) if len(parts) > 1 else parts[0].unsqueeze(1)
            for parts in zip(*last, strict=True)
        )
        return self.norm(x), keys, values

    def _started(self, state: RecurrentState, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if state is not None:
            keys, values, filled = state
            return keys, values, filled
        batch = features.shape[0]
        head = self.hidden_size // self.num_heads
        empty = features.new_zeros(batch, len(self.blocks), self.num_heads, self.past, head)
        return empty, empty, torch.zeros(batch, dtype=torch.int64, device=features.device)

    def _visible(
        self, filled: Tensor, resets: Tensor | None, segments: int, horizon: int
    ) -> tuple[Tensor, Tensor]:
        """Return which steps `[S, T, past + T]` are of the same episode, and how many are filled.

        Steps on the last axis are the `past` ones of the state, oldest first, then the segment's.
        """
        past, device = self.past, filled.device
        episode = torch.zeros(segments, horizon, dtype=torch.int64, device=device)
        if resets is not None:
            episode = resets.long().cumsum(1)
        of_past = torch.arange(past, 0, -1, device=device) <= filled.unsqueeze(1)  # [S, past]
        before = of_past.unsqueeze(1) & (episode == 0).unsqueeze(2)
        within = episode.unsqueeze(2) == episode.unsqueeze(1)
        # the state keeps the last steps of the segment that belong to its last episode
        length = (episode == episode[:, -1:]).sum(1)
        carried = torch.where(episode[:, -1] == 0, filled, 0)
        return torch.cat((before, within), 2), (length + carried).clamp(max=past)


class _Block(nn.Module):
    """Attention over the past, then a dense layer, both with skip connections."""

    def __init__(self, width: int, num_heads: int, context: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = _orthogonal(nn.Linear(width, 3 * width), 1.0)
        self.attended = _orthogonal(nn.Linear(width, width), 1.0)
        self.up = _orthogonal(nn.Linear(width, 2 * width), math.sqrt(2))
        self.down = _orthogonal(nn.Linear(2 * width, width), 1.0)
        self.by_distance = nn.Parameter(torch.zeros(num_heads, context))

    def forward(
        self, x: Tensor, past_keys: Tensor, past_values: Tensor, visible: Tensor, distance: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Take `x` `[S, T, H]` and the past `[S, heads, past, d]`; return `x` and the next past.

        `visible` `[S, T, past + T]` masks the attention; `distance` `[T, past + T]` is in steps.
        """
        segments, horizon, width = x.shape
        projected = self.project(self.first_norm(x)).view(segments, horizon, 3, self.num_heads, -1)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # [S, heads, T, d]
        keys, values = torch.cat((past_keys, key), 2), torch.cat((past_values, value), 2)
        scores = query @ keys.transpose(-1, -2) / math.sqrt(width // self.num_heads)
        scores = scores + self.by_distance[:, distance.view(horizon, -1)]
        scores = scores.masked_fill(visible.logical_not().unsqueeze(1), -torch.inf)
        mixed = scores.softmax(-1) @ values  # every step sees itself: no row is all -inf
        x = x + self.attended(mixed.transpose(1, 2).reshape(segments, horizon, width))
        x = x + self.down(F.relu(self.up(self.second_norm(x))))
        return x, keys[:, :, horizon:], values[:, :, horizon:]


_CORES: dict[str, Callable[[int, int], RecurrentCore]] = {
    "lstm": LSTM,
    "gru": GRU,
    "mingru": MinGRU,
}


def orthogonal_(weight: Tensor, gain: float = 1.0) -> None:
    """Fill a tensor as `nn.init.orthogonal_` does on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the last bits of its QR decomposition depend on it
    try:
        nn.init.orthogonal_(weight, gain)
    finally:
        torch.set_num_threads(threads)


def _initialised(layer: LayerT) -> LayerT:
    """Give a recurrent layer orthogonal weights and zero biases; return it."""
    for name, part in layer.named_parameters():
        (orthogonal_ if name.startswith("weight") else nn.init.zeros_)(part)
    return layer


def _orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def _is_usual(layer: nn.RNNBase, kind: type[nn.RNNBase]) -> bool:
    """Return whether the weights of a core's layer may be used without calling it."""
    if layer.num_layers != 1 or layer.bidirectional or layer.proj_size:
        raise UsageError(
            f"the layer of a recurrent core must be one {kind.__name__} in one direction, without "
            f"a projection, but got {layer}."
        )
    return type(layer) is kind and layer.bias and is_plain(layer)


def _called(
    layer: nn.RNNBase, features: Tensor, state: RecurrentState
) -> tuple[Tensor, RecurrentState]:
    """Call a layer, which may have hooks or computed weights, for one step."""
    by_layer = map_state(lambda part: part.unsqueeze(0), state)
    outputs, last = layer(features.unsqueeze(1 if layer.batch_first else 0), by_layer)
    return outputs.flatten(0, 1), map_state(lambda part: part.squeeze(0), last)


def _step_by_step(
    core: RecurrentCore, features: Tensor, state: RecurrentState, resets: Tensor | None
) -> tuple[Tensor, RecurrentState]:
    """Go through a sequence by the core's `step`."""
    outputs = []
    for t, reset in enumerate(reset_columns(resets, features.shape[1])):
        state = state if reset is None else reset_state(state, reset)
        output, state = core.step(features[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, 1), state


def _started(state: RecurrentState, features: Tensor, width: int) -> Tensor:
    if state is None:
        return features.new_zeros(features.shape[0], width)
    hidden: Tensor = state
    return hidden


def _kept(resets: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return `[T, S, 1]`, 0 where an episode begins and 1 elsewhere; None if none does."""
    if resets is None or (resets.device.type == "cpu" and not resets.any()):
        return None
    return resets.logical_not().t().contiguous().to(dtype).unsqueeze(-1)
