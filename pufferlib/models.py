"""The default policies: plain modules, built from the spaces of one agent.

Every policy is `encode(obs) -> features [B, hidden_size]` followed by `decode(features)`, which
returns `(logits, value)`, `(mean, std, value)` or, for mixed actions, `(logits, mean, std, value)`;
with `squash`, a distribution replaces mean and std. `make_policy` picks a class by the observation
space and can put a recurrent core in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, TransformedDistribution

from pufferlib.config import NETWORKS, load_choice
from pufferlib.errors import UsageError, unknown_choice, unknown_name
from pufferlib.policies.hooks import is_plain
from pufferlib.policies.observations import (
    Observations,
    leaf_of,
    policy_spaces,
    unflatten_observations,
)
from pufferlib.policies.recurrent import make_core
from pufferlib.policies.recurrent_wrapper import RecurrentWrapper, feature_size
from pufferlib.policies.squash import Squash, middle_and_reach
from pufferlib.pytorch import layer_init
from pufferlib.spaces import Leaf, ObservationLayout, Space, action_layout, observation_layout

Recurrent: TypeAlias = Literal["none", "lstm", "gru", "mingru", "transformer"]
Activation: TypeAlias = Literal["relu", "tanh"]


def make_policy(
    env: Any,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    recurrent: Recurrent | None = None,
    context: int = 32,
    activation: Activation | None = None,
    separate: bool | None = None,
    squash: bool = False,
    network: str = "auto",
) -> nn.Module:
    """Build the default policy for `env`: MultiInput for Dict and Tuple, CNN for images, else MLP.

    `network` selects another class, by its name in `config.NETWORKS`. None means the default of
    the class. `recurrent` puts a recurrent core of `hidden_size` units
    between encoder and heads; a transformer sees `context` steps. `separate` gives the critic its
    own encoder, the default of an MLP; a recurrent policy shares one. `squash` maps Box actions
    into their bounds by tanh; else they are clipped.
    """
    made_with = {name: option for name, option in locals().items() if name != "env"}
    is_recurrent = recurrent not in (None, "none")
    if is_recurrent and separate is None:
        separate = False
    if separate and is_recurrent:
        raise UsageError(
            f"`separate` must be false for a recurrent policy, but got {recurrent=}. "
            "Try recurrent='none'."
        )
    observation, action, _ = policy_spaces(env)
    if network == "auto":
        image = "cnn" if observation.leaves[0].is_image else "mlp"
        network = "multi_input" if observation.structured else image
    if network not in NETWORKS:
        raise unknown_name("network", network, ["auto", *NETWORKS])
    policy_type: type[EncodedActorCritic] = load_choice(NETWORKS[network])
    policy: nn.Module = policy_type(
        observation.space, action.space, hidden_size, num_layers, activation, separate, squash
    )
    if is_recurrent:
        width = feature_size(policy, observation)
        policy = RecurrentWrapper(policy, make_core(str(recurrent), width, width, context))
    policy.made_with = made_with  # type: ignore[assignment]  # for checkpoints
    return policy


# --- heads ----------------------------------------------------------------------------------------


class ActorCritic(nn.Module):
    """The heads that all default policies share; a subclass implements `encode`.

    With `separate`, the critic has its own features: `encode` returns those of the actor and those
    of the critic side by side.

    Box actions are Gaussian; the standard deviation is a parameter that does not depend on the
    observation. Where a component has finite bounds, the mean begins in their middle and the
    standard deviation at half their distance. With `squash`, a Gaussian that begins with deviation
    1 is mapped into the bounds by tanh.
    """

    center: Tensor
    scale: Tensor
    bounded: Tensor

    def __init__(
        self, action_space: Space, hidden_size: int, separate: bool = False, squash: bool = False
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.separate = separate
        self.squash = squash
        layout = action_layout(action_space)
        self.num_logits = sum(layout.nvec)
        self.num_continuous = layout.num_continuous
        self.actor = layer_init(
            nn.Linear(hidden_size, self.num_logits + self.num_continuous), std=0.01
        )
        self.critic = layer_init(nn.Linear(hidden_size, 1), std=1.0)
        if self.num_continuous:
            low, high = torch.from_numpy(layout.low), torch.from_numpy(layout.high)
            center, scale, bounded = middle_and_reach(low, high)
            self.log_std = nn.Parameter(torch.zeros_like(scale) if squash else scale.log())
            self.register_buffer("center", center, persistent=False)
            self.register_buffer("scale", scale, persistent=False)
            self.register_buffer("bounded", bounded, persistent=False)

    def encode(self, observations: Observations) -> Tensor:
        """Return features `[B, hidden_size]`, or `[B, 2 * hidden_size]` with `separate`."""
        raise NotImplementedError

    def decode(self, features: Tensor) -> tuple[Any, ...]:
        """Return action parameters and values `[B]` for the features of `encode`."""
        if self.separate:
            of_actor, of_critic = features.chunk(2, 1)
            outputs, value = self.actor(of_actor), self.critic(of_critic)[:, 0]
        elif not (_is_dense(self.actor) and _is_dense(self.critic)):
            outputs, value = self.actor(features), self.critic(features)[:, 0]
        else:
            # one product for both heads: features are read once, and their gradients need no sum
            weight = torch.cat((self.actor.weight, self.critic.weight))
            bias = torch.cat((self.actor.bias, self.critic.bias))
            joined = F.linear(features, weight, bias)
            outputs, value = joined[:, :-1], joined[:, -1]
        if not self.num_continuous:
            return outputs, value
        logits, mean = outputs[:, : self.num_logits], outputs[:, self.num_logits :]
        continuous: tuple[Any, ...]
        if self.squash:
            std = self.log_std.exp().expand_as(mean)
            inner = Normal(mean, std, validate_args=False)
            squashed = Squash(self.center, self.scale, self.bounded)
            continuous = (TransformedDistribution(inner, [squashed], validate_args=False),)
        else:
            mean = torch.addcmul(self.center, mean, self.scale)
            continuous = (mean, self.log_std.exp().expand_as(mean))
        return (*continuous, value) if not self.num_logits else (logits, *continuous, value)

    def forward(self, observations: Observations) -> tuple[Any, ...]:
        return self.decode(self.encode(observations))


def _is_dense(head: nn.Module) -> bool:
    """Return whether a head is no more than its weight and its bias."""
    return type(head) is nn.Linear and head.bias is not None and is_plain(head)


# --- encoders -------------------------------------------------------------------------------------


class Encoder(nn.Module):
    """Maps observations, or one leaf of them, to `[B, out_features]`."""

    out_features: int


class EncodedActorCritic(ActorCritic):
    """Heads over an encoder and `num_layers` dense layers; a subclass makes the encoder.

    None means the default of the class. With `separate`, the critic has layers of its own.
    """

    usual_size: int = 256
    usual_layers: int = 1
    usual_activation: Activation = "relu"
    usually_separate: bool = False

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: int | None = None,
        num_layers: int | None = None,
        activation: Activation | None = None,
        separate: bool | None = None,
        squash: bool = False,
    ) -> None:
        hidden_size = self.usual_size if hidden_size is None else hidden_size
        num_layers = self.usual_layers if num_layers is None else num_layers
        if hidden_size < 1 or num_layers < 1:
            raise UsageError(
                "`hidden_size` and `num_layers` must be at least 1, but got "
                f"{hidden_size=}, {num_layers=}."
            )
        separate = self.usually_separate if separate is None else separate
        super().__init__(action_space, hidden_size, separate, squash)
        activation = self.usual_activation if activation is None else activation
        layout = observation_layout(observation_space)
        self.layers = self.make_layers(layout, num_layers, activation)
        if separate:
            self.critic_layers = self.make_layers(layout, num_layers, activation)

    def make_layers(
        self, layout: ObservationLayout, num_layers: int, activation: Activation
    ) -> nn.Module:
        """Return the encoder and the dense layers after it."""
        encoder = self.make_encoder(layout, activation)
        layers = dense_layers(encoder.out_features, self.hidden_size, num_layers, activation)
        return nn.Sequential(encoder, *layers)

    def make_encoder(self, layout: ObservationLayout, activation: Activation) -> Encoder:
        """Return a module that maps observations of `layout` to `[B, out_features]`."""
        raise NotImplementedError

    def encode(self, observations: Observations) -> Tensor:
        features: Tensor = self.layers(observations)
        if self.separate:
            return torch.cat((features, self.critic_layers(observations)), 1)
        return features


class MLP(EncodedActorCritic):
    """Layers of equal width: for vectors, and for discrete observations."""

    usual_size, usual_layers, usual_activation, usually_separate = 64, 2, "tanh", True

    def make_layers(
        self, layout: ObservationLayout, num_layers: int, activation: Activation
    ) -> nn.Module:
        if layout.structured:
            raise UsageError(
                f"`observation_space` of an MLP must not be a Dict or Tuple, but got "
                f"{layout.space}. Try MultiInput."
            )
        return nn.Sequential(
            vector_encoder(layout.leaves[0], self.hidden_size),
            activation_module(activation),
            *dense_layers(self.hidden_size, self.hidden_size, num_layers - 1, activation),
        )


class CNN(EncodedActorCritic):
    """Convolutions for images `(H, W, C)` or `(C, H, W)`, then `num_layers` dense layers.

    The smaller of first and last axis holds the channels. From 36 pixels on this is the network of
    Mnih et al. 2015; smaller images, down to 3 by 3, get smaller kernels. Pixels are scaled from
    the bounds of the space to [0, 1].
    """

    def make_encoder(self, layout: ObservationLayout, activation: Activation) -> Encoder:
        leaf = layout.leaves[0]
        if leaf.kind != "box" or len(leaf.shape) != 3:
            raise UsageError(
                "`observation_space` of a CNN must be a Box of shape (H, W, C) or (C, H, W), but "
                f"got {layout.space}. Try MLP."
            )
        return ImageEncoder(leaf, activation)


class MultiInput(EncodedActorCritic):
    """One encoder for each leaf of a Dict or Tuple space, joined by `num_layers` dense layers.

    Images go through convolutions; vectors and discrete leaves become `hidden_size` features each.
    """

    usual_size = 128

    def make_encoder(self, layout: ObservationLayout, activation: Activation) -> Encoder:
        return LeafEncoders(layout, self.hidden_size, activation)


class LeafEncoders(Encoder):
    """The leaves of a space, each through its own encoder, side by side.

    Pictures go through an encoder of type `picture_type`; others become `width` features.
    """

    def __init__(
        self,
        layout: ObservationLayout,
        width: int,
        activation: Activation,
        picture_type: Callable[[Leaf, Activation], Encoder] | None = None,
    ) -> None:
        super().__init__()
        self.layout = layout
        self.encoders = nn.ModuleList()
        self.out_features = 0
        for leaf in layout.leaves:
            picture = (picture_type or ImageEncoder)(leaf, activation) if leaf.is_image else None
            self.encoders.append(vector_encoder(leaf, width) if picture is None else picture)
            self.out_features += width if picture is None else picture.out_features
        self.activation = activation_module(activation)

    def forward(self, observations: Observations) -> Tensor:
        tree = unflatten_observations(observations, self.layout)
        pairs = zip(self.layout.leaves, self.encoders, strict=True)
        parts = [encoder(leaf_of(tree, leaf)) for leaf, encoder in pairs]
        features: Tensor = self.activation(torch.cat(parts, 1))
        return features


class UnitScale(nn.Module):
    """Scales a leaf from its bounds to [0, 1] where it has a `Leaf.unit_range`."""

    low: Tensor
    factor: Tensor

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.is_needed = leaf.unit_range is not None
        low, span = leaf.unit_range or (np.zeros(1), np.ones(1))
        if (low == low.flat[0]).all() and (span == span.flat[0]).all():
            low, span = low.flat[:1], span.flat[:1]  # one number for all: smaller buffers
        self.is_shifted = bool(low.any())
        for name, part in (("low", low), ("factor", 1 / span)):
            self.register_buffer(name, torch.tensor(part, dtype=torch.float32), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return floats `[B, *shape]`, scaled; the shape is the leaf's."""
        if self.is_shifted:
            numbers = numbers - self.low
        return numbers * self.factor if self.is_needed else numbers


class VectorEncoder(nn.Linear):
    """A linear layer over all numbers of a row, of any shape and dtype.

    An integer Box is scaled by its bounds.
    """

    def __init__(self, leaf: Leaf, width: int) -> None:
        super().__init__(leaf.size, width)
        layer_init(self)
        self.shape, self.scale = leaf.shape, UnitScale(leaf)

    def forward(self, observations: Tensor) -> Tensor:
        numbers = observations.to(self.weight.dtype)
        if self.scale.is_needed or not is_plain(self.scale):
            numbers = self.scale(numbers.reshape(-1, *self.shape))
        return super().forward(numbers.reshape(-1, self.in_features))


class CategoryEncoder(nn.Module):
    """A linear layer over one-hot rows, as a table: large spaces cost no more than small ones.

    Takes Discrete `[B]` and MultiDiscrete `[B, *shape]` of any integer dtype. Every component has
    its own part of the table; the vectors of all components are summed. Absent agents may have a
    value outside of the space: the nearest inside replaces it.
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


class ImageEncoder(Encoder):
    """Scales the pixels of an image, then convolutions: by default those of a CNN."""

    def __init__(
        self,
        leaf: Leaf,
        activation: Activation = "relu",
        make_convolutions: Callable[[int, int, int, Activation], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.channels_last = leaf.shape[2] <= leaf.shape[0]
        height, width = leaf.shape[:2] if self.channels_last else leaf.shape[1:]
        channels = leaf.shape[2] if self.channels_last else leaf.shape[0]
        make = make_convolutions or Convolutions
        convolutions: Any = make(channels, height, width, activation)
        self.convolutions, self.out_features = convolutions, convolutions.out_features
        self.scale = UnitScale(leaf)

    def forward(self, observations: Tensor) -> Tensor:
        images = self.scale(observations.to(next(self.parameters()).dtype))
        if self.channels_last:
            images = images.permute(0, 3, 1, 2)
        else:  # CPUs convolve 1.5 to 1.8 times faster with channels last in memory
            images = images.contiguous(memory_format=torch.channels_last)
        features: Tensor = self.convolutions(images)
        return features


class Convolutions(nn.Sequential):
    """Convolutions that fit a picture: from `[B, channels, height, width]` to `[B, out_features]`.

    From 36 pixels on they are those of Mnih et al. 2015.
    """

    def __init__(
        self, channels: int, height: int, width: int, activation: Activation = "relu"
    ) -> None:
        smallest = min(height, width)
        if smallest >= 36:
            kernels = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)]
        elif smallest >= 12:
            kernels = [(32, 4, 2, 0), (64, 3, 2, 0)]
        elif smallest >= 3:
            kernels = [(32, 3, 1, 1), (64, 3, 1, 0)]
        else:
            raise UsageError(
                f"an image must be at least 3 by 3, but got {height} by {width}. Try MLP."
            )
        layers: list[nn.Module] = []
        for features, size, stride, padding in kernels:
            layers += [
                layer_init(nn.Conv2d(channels, features, size, stride, padding)),
                activation_module(activation),
            ]
            height, width = (
                (length + 2 * padding - size) // stride + 1 for length in (height, width)
            )
            channels = features
        super().__init__(*layers, nn.Flatten())
        self.out_features = channels * height * width


def vector_encoder(leaf: Leaf, width: int) -> nn.Module:
    if leaf.kind in ("discrete", "multi_discrete"):
        return CategoryEncoder(leaf, width)
    return VectorEncoder(leaf, width)


def activation_module(name: Activation) -> nn.Module:
    if name not in _ACTIVATIONS:
        raise unknown_choice("`activation`", name, _ACTIVATIONS)
    return _ACTIVATIONS[name]()


def dense_layers(
    input_size: int, hidden_size: int, num_layers: int, activation: Activation
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for _ in range(num_layers):
        layers += [layer_init(nn.Linear(input_size, hidden_size)), activation_module(activation)]
        input_size = hidden_size
    return layers


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": partial(nn.ReLU, inplace=True),
    "tanh": nn.Tanh,
}
