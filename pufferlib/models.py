"""The default policies: plain modules, built from the spaces of one agent.

Every policy is `encode(obs) -> features [B, hidden_size]` followed by `decode(features)`, which
gives `(logits, value)`, `(mean, std, value)` or, where actions are of both kinds, `(logits, mean,
std, value)`. `make_policy` picks one by the observation space and can put a memory in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pufferlib.errors import UsageError, did_you_mean
from pufferlib.pytorch import (
    LSTM,
    Observations,
    RecurrentCore,
    RecurrentWrapper,
    State,
    feature_size,
    layer_init,
    policy_spaces,
    reset_columns,
    reset_state,
    unflatten_observations,
)
from pufferlib.spaces import (
    ActionLayout,
    Leaf,
    ObservationLayout,
    Space,
    action_layout,
    observation_layout,
)

Recurrent: TypeAlias = Literal["none", "lstm", "gru", "mingru"]
Activation: TypeAlias = Literal["relu", "tanh"]


def make_policy(
    env: Any,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    recurrent: Recurrent | None = None,
    activation: Activation = "relu",
    separate: bool = False,
) -> nn.Module:
    """Build the default policy for `env`: MultiInput for Dict and Tuple, CNN for images, else MLP.

    None leaves a size at the default of the class that is picked. `recurrent` puts a memory of
    `hidden_size` units between encoder and heads; `separate` gives the values an encoder of their
    own. A memory is always shared, so there is no separate one.
    """
    if recurrent not in (None, "none", *_CORES):
        raise UsageError(
            f"`recurrent` must be one of none, {', '.join(_CORES)}, but got {recurrent!r}."
            f"{did_you_mean(str(recurrent), _CORES)}"
        )
    if separate and recurrent not in (None, "none"):
        raise UsageError(
            f"`separate` must be false with a memory, which is shared, but got {recurrent=}. "
            "Try recurrent='none'."
        )
    observation, action = policy_spaces(env)
    policy_type: type[MLP] | type[CNN] | type[MultiInput] = MLP
    if observation.structured:
        policy_type = MultiInput
    elif is_image(observation.leaves[0]):
        policy_type = CNN
    sizes = {"hidden_size": hidden_size, "num_layers": num_layers}
    given = {name: size for name, size in sizes.items() if size is not None}
    policy = policy_type(
        observation.space, action.space, activation=activation, separate=separate, **given
    )
    if recurrent in (None, "none"):
        return policy
    width = feature_size(policy, observation)
    return RecurrentWrapper(policy, _CORES[recurrent](width, width))


# --- heads ----------------------------------------------------------------------------------------


class ActorCritic(nn.Module):
    """The heads that all default policies share; a subclass gives `encode`.

    With `separate`, values come from features of their own: those of the critic follow those of the
    actor, and `encode` returns both side by side.

    Box actions come from a Gaussian whose standard deviation is a parameter, the same in all
    states. Where a component has finite bounds, the mean begins in their middle and the standard
    deviation at half their distance, whatever the scale of the env.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, action_space: Space, hidden_size: int, separate: bool = False) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.separate = separate
        layout = action_layout(action_space)
        self.num_logits = sum(layout.nvec)
        self.num_continuous = layout.num_continuous
        self.actor = layer_init(
            nn.Linear(hidden_size, self.num_logits + self.num_continuous), std=0.01
        )
        self.critic = layer_init(nn.Linear(hidden_size, 1), std=1.0)
        if self.num_continuous:
            center, scale = _center_and_scale(layout)
            self.log_std = nn.Parameter(scale.log())
            self.register_buffer("center", center, persistent=False)
            self.register_buffer("scale", scale, persistent=False)

    def encode(self, observations: Observations) -> Tensor:
        """Return features `[B, hidden_size]`, or `[B, 2 * hidden_size]` with `separate`."""
        raise NotImplementedError

    def decode(self, features: Tensor) -> tuple[Tensor, ...]:
        """Return action parameters and values `[B]` for features as `encode` gives them."""
        if self.separate:
            of_actor, of_critic = features.chunk(2, 1)
            outputs, value = self.actor(of_actor), self.critic(of_critic)[:, 0]
        else:
            # One product for both heads: features are read once, and their gradients need no sum.
            weight = torch.cat((self.actor.weight, self.critic.weight))
            bias = torch.cat((self.actor.bias, self.critic.bias))
            joined = F.linear(features, weight, bias)
            outputs, value = joined[:, :-1], joined[:, -1]
        if not self.num_continuous:
            return outputs, value
        mean = torch.addcmul(self.center, outputs[:, self.num_logits :], self.scale)
        std = self.log_std.exp().expand_as(mean)
        if not self.num_logits:
            return mean, std, value
        return outputs[:, : self.num_logits], mean, std, value

    def forward(self, observations: Observations) -> tuple[Tensor, ...]:
        return self.decode(self.encode(observations))


def _center_and_scale(layout: ActionLayout) -> tuple[Tensor, Tensor]:
    low, high = torch.from_numpy(layout.low).double(), torch.from_numpy(layout.high).double()
    center, scale = (low + high) / 2, (high - low) / 2
    bounded = center.isfinite() & (scale > 0)
    return center.where(bounded, 0.0).float(), scale.where(bounded, 1.0).float()


# --- encoders -------------------------------------------------------------------------------------


class EncodedActorCritic(ActorCritic):
    """Heads over `layers`, and over `critic_layers` where the critic has its own."""

    def __init__(
        self,
        action_space: Space,
        hidden_size: int,
        separate: bool,
        make_layers: Callable[[], nn.Module],
    ) -> None:
        super().__init__(action_space, hidden_size, separate)
        self.layers = make_layers()
        if separate:
            self.critic_layers = make_layers()

    def encode(self, observations: Observations) -> Tensor:
        features: Tensor = self.layers(observations)
        if self.separate:
            return torch.cat((features, self.critic_layers(observations)), 1)
        return features


class MLP(EncodedActorCritic):
    """Layers of equal width: for vectors, and for discrete observations."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: int = 64,
        num_layers: int = 2,
        activation: Activation = "relu",
        separate: bool = False,
    ) -> None:
        _check_sizes(hidden_size, num_layers)
        layout = observation_layout(observation_space)
        if layout.structured:
            raise UsageError(
                f"`observation_space` of an MLP must be no Dict or Tuple, but got "
                f"{observation_space}. Try MultiInput."
            )

        def make_layers() -> nn.Module:
            return nn.Sequential(
                _vector_encoder(layout.leaves[0], hidden_size),
                _activation(activation),
                *_dense(hidden_size, hidden_size, num_layers - 1, activation),
            )

        super().__init__(action_space, hidden_size, separate, make_layers)


class CNN(EncodedActorCritic):
    """Convolutions for images `(H, W, C)` or `(C, H, W)`, then `num_layers` dense layers.

    The smaller of first and last axis holds the channels. From 36 pixels on it is the network of
    Mnih et al. 2015; smaller images, down to 3 by 3, get smaller kernels. Bytes become [0, 1].
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: int = 256,
        num_layers: int = 1,
        activation: Activation = "relu",
        separate: bool = False,
    ) -> None:
        _check_sizes(hidden_size, num_layers)
        leaf = observation_layout(observation_space).leaves[0]
        if leaf.kind != "box" or len(leaf.shape) != 3:
            raise UsageError(
                "`observation_space` of a CNN must be a Box of shape (H, W, C) or (C, H, W), but "
                f"got {observation_space}. Try MLP."
            )

        def make_layers() -> nn.Module:
            image = ImageEncoder(leaf, activation)
            return nn.Sequential(
                image, *_dense(image.out_features, hidden_size, num_layers, activation)
            )

        super().__init__(action_space, hidden_size, separate, make_layers)


class MultiInput(EncodedActorCritic):
    """One encoder for each leaf of a Dict or Tuple space, joined by `num_layers` dense layers.

    Images go through convolutions; vectors and discrete leaves become `hidden_size` features each.
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: int = 128,
        num_layers: int = 1,
        activation: Activation = "relu",
        separate: bool = False,
    ) -> None:
        _check_sizes(hidden_size, num_layers)
        layout = observation_layout(observation_space)

        def make_layers() -> nn.Module:
            leaves = LeafEncoders(layout, hidden_size, activation)
            return nn.Sequential(
                leaves, *_dense(leaves.out_features, hidden_size, num_layers, activation)
            )

        super().__init__(action_space, hidden_size, separate, make_layers)


class LeafEncoders(nn.Module):
    """The leaves of a Dict or Tuple space, each through its own encoder, side by side."""

    def __init__(self, layout: ObservationLayout, width: int, activation: Activation) -> None:
        super().__init__()
        self.layout = layout
        self.encoders = nn.ModuleList()
        self.out_features = 0
        for leaf in layout.leaves:
            image = ImageEncoder(leaf, activation) if is_image(leaf) else None
            self.encoders.append(_vector_encoder(leaf, width) if image is None else image)
            self.out_features += width if image is None else image.out_features
        self.activation = _activation(activation)

    def forward(self, observations: Observations) -> Tensor:
        tree = unflatten_observations(observations, self.layout)
        parts = []
        for leaf, encoder in zip(self.layout.leaves, self.encoders, strict=True):
            part = tree
            for key in leaf.path:
                part = part[key]
            parts.append(encoder(part))
        features: Tensor = self.activation(torch.cat(parts, 1))
        return features


class VectorEncoder(nn.Linear):
    """A linear layer over all numbers of a row, whatever their shape and dtype."""

    def __init__(self, leaf: Leaf, width: int) -> None:
        super().__init__(leaf.size, width)
        layer_init(self)

    def forward(self, observations: Tensor) -> Tensor:
        return super().forward(observations.reshape(-1, self.in_features).to(self.weight.dtype))


class CategoryEncoder(nn.Module):
    """A linear layer over one-hot rows, as a look-up: large spaces cost no more than small ones.

    Takes Discrete `[B]` and MultiDiscrete `[B, *shape]` of any integer dtype. Every component has
    its own rows of the table; they are summed. Rows of absent agents may hold a value outside of
    the space: it counts as the nearest inside.
    """

    lowest: Tensor
    highest: Tensor
    offsets: Tensor

    def __init__(self, leaf: Leaf, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(sum(leaf.nvec), width))
        nn.init.normal_(self.table, std=1 / math.sqrt(leaf.size))
        counts, starts = torch.tensor(leaf.nvec), torch.tensor(leaf.starts)
        self.register_buffer("lowest", starts, persistent=False)
        self.register_buffer("highest", starts + counts - 1, persistent=False)
        self.register_buffer("offsets", counts.cumsum(0) - counts - starts, persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        choices = observations.reshape(observations.shape[0], -1).long()
        rows = choices.clamp(self.lowest, self.highest) + self.offsets
        return F.embedding_bag(rows, self.table, mode="sum")


class ImageEncoder(nn.Module):
    """The convolutions of a CNN: images as the env gives them in, `[B, out_features]` out."""

    def __init__(self, leaf: Leaf, activation: Activation = "relu") -> None:
        super().__init__()
        self.channels_last = leaf.shape[2] <= leaf.shape[0]
        height, width = leaf.shape[:2] if self.channels_last else leaf.shape[1:]
        channels = leaf.shape[2] if self.channels_last else leaf.shape[0]
        smallest = min(height, width)
        if smallest >= 36:
            kernels = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)]
        elif smallest >= 12:
            kernels = [(32, 4, 2, 0), (64, 3, 2, 0)]
        elif smallest >= 3:
            kernels = [(32, 3, 1, 1), (64, 3, 1, 0)]
        else:
            raise UsageError(
                f"An image must be at least 3 by 3, but got shape {leaf.shape}. Try MLP."
            )
        layers: list[nn.Module] = []
        for features, size, stride, padding in kernels:
            layers += [
                layer_init(nn.Conv2d(channels, features, size, stride, padding)),
                _activation(activation),
            ]
            height, width = (
                (length + 2 * padding - size) // stride + 1 for length in (height, width)
            )
            channels = features
        self.convolutions = nn.Sequential(*layers)
        self.out_features = channels * height * width
        self.factor = 1 / 255 if leaf.dtype == "uint8" else 1.0

    def forward(self, observations: Tensor) -> Tensor:
        images = observations.permute(0, 3, 1, 2) if self.channels_last else observations
        dtype = next(self.parameters()).dtype
        images = images.to(dtype) if self.factor == 1 else images.to(dtype) * self.factor
        features: Tensor = self.convolutions(images)
        return features.flatten(1)


def is_image(leaf: Leaf) -> bool:
    """Say whether a leaf has three axes of which two are at least 5 long, as pictures do."""
    return leaf.kind == "box" and len(leaf.shape) == 3 and sorted(leaf.shape)[1] >= 5


def _vector_encoder(leaf: Leaf, width: int) -> nn.Module:
    if leaf.kind in ("discrete", "multi_discrete"):
        return CategoryEncoder(leaf, width)
    return VectorEncoder(leaf, width)


def _activation(name: Activation) -> nn.Module:
    if name not in _ACTIVATIONS:
        raise UsageError(
            f"`activation` must be one of {', '.join(_ACTIVATIONS)}, but got {name!r}."
            f"{did_you_mean(str(name), _ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]()


def _dense(
    input_size: int, hidden_size: int, num_layers: int, activation: Activation
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for _ in range(num_layers):
        layers += [layer_init(nn.Linear(input_size, hidden_size)), _activation(activation)]
        input_size = hidden_size
    return layers


def _check_sizes(hidden_size: int, num_layers: int) -> None:
    if hidden_size < 1 or num_layers < 1:
        raise UsageError(
            "`hidden_size` and `num_layers` must be at least 1, but got "
            f"{hidden_size=}, {num_layers=}."
        )


# --- memory ---------------------------------------------------------------------------------------


class GRU(RecurrentCore):
    """One layer of GRU whose state is `[B, hidden_size]`."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.gru = nn.GRU(input_size, hidden_size, batch_first=True)
        input_weight, hidden_weight, input_bias, hidden_bias = self.gru.all_weights[0]
        nn.init.orthogonal_(input_weight)
        nn.init.orthogonal_(hidden_weight)
        nn.init.zeros_(input_bias)
        nn.init.zeros_(hidden_bias)

    def step(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        hidden = torch.gru_cell(features, self._started(state, features), *self.gru.all_weights[0])
        return hidden, hidden

    def sequence(
        self, features: Tensor, state: State, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        columns = reset_columns(resets, features.shape[1])
        hidden = self._started(state, features)
        if all(column is None for column in columns[1:]):  # nothing ends inside: the fused kernel
            if columns[0] is not None:
                hidden = reset_state(hidden, columns[0])
            outputs, last = self.gru(features, hidden.unsqueeze(0))
            return outputs, last.squeeze(0)

        input_weight, hidden_weight, input_bias, hidden_bias = self.gru.all_weights[0]
        projected = F.linear(features, input_weight, input_bias)  # one product for all steps
        recurrent, size = hidden_weight.t(), self.hidden_size
        steps = []
        for column, from_input in zip(columns, projected.unbind(1), strict=True):
            if column is not None:
                hidden = reset_state(hidden, column)
            from_hidden = torch.addmm(hidden_bias, hidden, recurrent)
            gates = (from_input[:, : 2 * size] + from_hidden[:, : 2 * size]).sigmoid()
            read, keep = gates.chunk(2, 1)
            candidate = torch.addcmul(
                from_input[:, 2 * size :], read, from_hidden[:, 2 * size :]
            ).tanh()
            hidden = torch.lerp(candidate, hidden, keep)
            steps.append(hidden)
        return torch.stack(steps, 1), hidden

    def _started(self, state: State, features: Tensor) -> Tensor:
        if state is None:
            return features.new_zeros(features.shape[0], self.hidden_size)
        hidden: Tensor = state
        return hidden


class MinGRU(RecurrentCore):
    """The minimal GRU of Feng et al. 2024: `h_t = (1 - z_t) * h_{t-1} + z_t * candidate_t`.

    Gate z and candidate depend on the input alone, so that a segment is one matrix product and a
    linear scan, where LSTM and GRU need a product a step. The state is h, `[B, hidden_size]`.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.project = layer_init(nn.Linear(input_size, 2 * hidden_size), std=1.0)

    def step(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        gate, candidate = self.project(features).chunk(2, -1)
        if state is None:
            state = torch.zeros_like(candidate)
        hidden = torch.lerp(state, candidate, gate.sigmoid())
        return hidden, hidden

    def sequence(
        self, features: Tensor, state: State, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        gate, candidate = self.project(features).chunk(2, -1)
        gate = gate.sigmoid()
        keep = 1 - gate
        if resets is not None:
            keep = keep.masked_fill(resets.bool().unsqueeze(-1), 0)
        if state is None:
            state = torch.zeros_like(candidate[:, 0])
        hidden = linear_scan(keep, gate * candidate, state)
        return hidden, hidden[:, -1]


def linear_scan(keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
    """Return `h_t = keep_t * h_{t-1} + add_t` for `[S, T, H]`, where h_{-1} is `start` `[S, H]`."""
    scanned: Tensor = _LinearScan.apply(keep, add, start)  # type: ignore[no-untyped-call]
    return scanned


class _LinearScan(torch.autograd.Function):
    """The scan and its gradient, which is the same scan run backwards in time."""

    @staticmethod
    def forward(ctx: Any, keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
        hidden = _scan(keep, add, start)
        ctx.save_for_backward(keep, hidden, start)
        return hidden

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keep, hidden, start = ctx.saved_tensors
        # dL/dh_t = grad_t + keep_{t+1} * dL/dh_{t+1}; nothing comes from beyond the last step
        following = torch.cat((keep[:, 1:], torch.zeros_like(keep[:, :1])), 1)
        grad_add = _scan(following, grads[0], torch.zeros_like(start), backwards=True)
        previous = torch.cat((start.unsqueeze(1), hidden[:, :-1]), 1)
        return grad_add * previous, grad_add, grad_add[:, 0] * keep[:, 0]


def _scan(keep: Tensor, add: Tensor, start: Tensor, backwards: bool = False) -> Tensor:
    if keep.device.type == "cpu":
        return _scan_by_step(keep, add, start, backwards)
    if backwards:
        return _scan_by_doubling(keep.flip(1), add.flip(1), start).flip(1)
    return _scan_by_doubling(keep, add, start)


def _scan_by_step(keep: Tensor, add: Tensor, start: Tensor, backwards: bool = False) -> Tensor:
    """Go through time once: the least work, one kernel a step."""
    hidden = torch.empty(add.shape, dtype=add.dtype, device=add.device)
    views = list(zip(add.unbind(1), keep.unbind(1), hidden.unbind(1), strict=True))
    for added, kept, out in reversed(views) if backwards else views:
        start = torch.addcmul(added, kept, start, out=out)
    return hidden


def _scan_by_doubling(keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
    """Join spans of 1, 2, 4, ... steps: log2(T) rounds, where launching a kernel is dear."""
    hidden = add.clone()
    hidden[:, 0] += keep[:, 0] * start
    span = 1
    while span < add.shape[1]:
        # over two spans: h of the later one + its keep * h of the earlier one
        joined = torch.addcmul(hidden[:, span:], keep[:, span:], hidden[:, :-span])
        hidden = torch.cat((hidden[:, :span], joined), 1)
        keep = torch.cat((keep[:, :span], keep[:, span:] * keep[:, :-span]), 1)
        span *= 2
    return hidden


_CORES: dict[str, Callable[[int, int], RecurrentCore]] = {
    "lstm": LSTM,
    "gru": GRU,
    "mingru": MinGRU,
}

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": partial(nn.ReLU, inplace=True),
    "tanh": nn.Tanh,
}
