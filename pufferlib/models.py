"""The default policies: plain modules, built from the spaces of one agent.

Every policy is `encode(obs) -> features [B, hidden_size]` followed by `decode(features)`, which
gives `(logits, value)`, `(mean, std, value)` or, where actions are of both kinds, `(logits, mean,
std, value)`; with `squash`, a distribution stands for mean and std. `make_policy` picks one by the
observation space and can put a memory in between.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, ParamSpec, TypeAlias, TypedDict, Unpack

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Normal, TransformedDistribution

from pufferlib.errors import UsageError, did_you_mean
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
from pufferlib.spaces import (
    Leaf,
    ObservationLayout,
    Space,
    action_layout,
    observation_layout,
)

Recurrent: TypeAlias = Literal["none", "lstm", "gru", "mingru", "transformer"]
Activation: TypeAlias = Literal["relu", "tanh"]
P = ParamSpec("P")


class HeadOptions(TypedDict, total=False):
    """What all default policies can be told about their heads."""

    separate: bool  # the critic has an encoder of its own
    squash: bool  # Box actions go through tanh into their bounds


def _noting_options(make: Callable[P, nn.Module]) -> Callable[P, nn.Module]:
    """Let a policy keep the options it is made with in `made_with`, for its checkpoints."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def noted(*args: P.args, **kwargs: P.kwargs) -> nn.Module:
        policy = make(*args, **kwargs)
        given = signature.bind(*args, **kwargs).arguments
        given.pop("env")
        policy.made_with = given  # type: ignore[assignment]
        return policy

    return noted


@_noting_options
def make_policy(
    env: Any,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    recurrent: Recurrent | None = None,
    context: int = 32,
    activation: Activation | None = None,
    separate: bool | None = None,
    squash: bool = False,
) -> nn.Module:
    """Build the default policy for `env`: MultiInput for Dict and Tuple, CNN for images, else MLP.

    None leaves an option at the default of the class that is picked. `recurrent` puts a memory of
    `hidden_size` units between encoder and heads; a transformer sees `context` steps. `separate`
    gives the values an encoder of their own, as an MLP has by default; a memory is shared, so it
    cannot go with one. `squash` takes Box actions through tanh into their bounds, where they are
    cut off at them otherwise.
    """
    has_memory = recurrent not in (None, "none")
    if has_memory and separate is None:
        separate = False
    if separate and has_memory:
        raise UsageError(
            f"`separate` must be false with a memory, which is shared, but got {recurrent=}. "
            "Try recurrent='none'."
        )
    observation, action, _ = policy_spaces(env)
    policy_type: type[MLP] | type[CNN] | type[MultiInput] = MLP
    if observation.structured:
        policy_type = MultiInput
    elif observation.leaves[0].is_image:
        policy_type = CNN
    options: dict[str, Any] = {
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "activation": activation,
        "separate": separate,
        "squash": squash,
    }
    given = {name: option for name, option in options.items() if option is not None}
    policy = policy_type(observation.space, action.space, **given)
    if not has_memory:
        return policy
    width = feature_size(policy, observation)
    return RecurrentWrapper(policy, make_core(str(recurrent), width, width, context))


# --- heads ----------------------------------------------------------------------------------------


class ActorCritic(nn.Module):
    """The heads that all default policies share; a subclass gives `encode`.

    With `separate`, values come from features of their own: those of the critic follow those of the
    actor, and `encode` returns both side by side.

    Box actions come from a Gaussian whose standard deviation is a parameter, the same in all
    states. Where a component has finite bounds, the mean begins in their middle and the standard
    deviation at half their distance, whatever the scale of the env. With `squash`, it is a Gaussian
    of deviation 1 that goes through tanh into the bounds.
    """

    center: Tensor
    scale: Tensor
    bounded: Tensor

    def __init__(
        self,
        action_space: Space,
        hidden_size: int,
        separate: bool = False,
        squash: bool = False,
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


# --- encoders -------------------------------------------------------------------------------------


class EncodedActorCritic(ActorCritic):
    """Heads over `layers`, and over `critic_layers` where the critic has its own."""

    def __init__(
        self,
        action_space: Space,
        hidden_size: int,
        make_layers: Callable[[], nn.Module],
        **heads: Unpack[HeadOptions],
    ) -> None:
        super().__init__(action_space, hidden_size, **heads)
        self.layers = make_layers()
        if self.separate:
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
        activation: Activation = "tanh",
        separate: bool = True,
        squash: bool = False,
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

        super().__init__(action_space, hidden_size, make_layers, separate=separate, squash=squash)


class CNN(EncodedActorCritic):
    """Convolutions for images `(H, W, C)` or `(C, H, W)`, then `num_layers` dense layers.

    The smaller of first and last axis holds the channels. From 36 pixels on it is the network of
    Mnih et al. 2015; smaller images, down to 3 by 3, get smaller kernels. The bounds of the space
    become [0, 1].
    """

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        hidden_size: int = 256,
        num_layers: int = 1,
        activation: Activation = "relu",
        **heads: Unpack[HeadOptions],
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

        super().__init__(action_space, hidden_size, make_layers, **heads)


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
        **heads: Unpack[HeadOptions],
    ) -> None:
        _check_sizes(hidden_size, num_layers)
        layout = observation_layout(observation_space)

        def make_layers() -> nn.Module:
            leaves = LeafEncoders(layout, hidden_size, activation)
            return nn.Sequential(
                leaves, *_dense(leaves.out_features, hidden_size, num_layers, activation)
            )

        super().__init__(action_space, hidden_size, make_layers, **heads)


class LeafEncoders(nn.Module):
    """The leaves of a Dict or Tuple space, each through its own encoder, side by side."""

    def __init__(self, layout: ObservationLayout, width: int, activation: Activation) -> None:
        super().__init__()
        self.layout = layout
        self.encoders = nn.ModuleList()
        self.out_features = 0
        for leaf in layout.leaves:
            image = ImageEncoder(leaf, activation) if leaf.is_image else None
            self.encoders.append(_vector_encoder(leaf, width) if image is None else image)
            self.out_features += width if image is None else image.out_features
        self.activation = _activation(activation)

    def forward(self, observations: Observations) -> Tensor:
        tree = unflatten_observations(observations, self.layout)
        parts = []
        for leaf, encoder in zip(self.layout.leaves, self.encoders, strict=True):
            parts.append(encoder(leaf_of(tree, leaf)))
        features: Tensor = self.activation(torch.cat(parts, 1))
        return features


class UnitScale(nn.Module):
    """Brings the bounds of a leaf to [0, 1] where `Leaf.unit_range` asks for it."""

    low: Tensor
    factor: Tensor

    def __init__(self, leaf: Leaf) -> None:
        super().__init__()
        self.is_needed = leaf.unit_range is not None
        low, span = leaf.unit_range or (np.zeros(1), np.ones(1))
        if (low == low.flat[0]).all() and (span == span.flat[0]).all():
            low, span = low.flat[:1], span.flat[:1]  # one number for all: no rows to read
        self.is_shifted = bool(low.any())
        for name, part in (("low", low), ("factor", 1 / span)):
            self.register_buffer(name, torch.tensor(part, dtype=torch.float32), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return floats `[B, *shape]`, scaled; the shape is the leaf's."""
        if self.is_shifted:
            numbers = numbers - self.low
        return numbers * self.factor if self.is_needed else numbers


class VectorEncoder(nn.Linear):
    """A linear layer over all numbers of a row, whatever their shape and dtype.

    Those of an integer Box are scaled by its bounds.
    """

    def __init__(self, leaf: Leaf, width: int) -> None:
        super().__init__(leaf.size, width)
        layer_init(self)
        self.shape, self.scale = leaf.shape, UnitScale(leaf)

    def forward(self, observations: Tensor) -> Tensor:
        numbers = observations.to(self.weight.dtype)
        if self.scale.is_needed:
            numbers = self.scale(numbers.reshape(-1, *self.shape))
        return super().forward(numbers.reshape(-1, self.in_features))


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
        self.scale = UnitScale(leaf)

    def forward(self, observations: Tensor) -> Tensor:
        images = self.scale(observations.to(next(self.parameters()).dtype))
        images = images.permute(0, 3, 1, 2) if self.channels_last else images
        features: Tensor = self.convolutions(images)
        return features.flatten(1)


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


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": partial(nn.ReLU, inplace=True),
    "tanh": nn.Tanh,
}
