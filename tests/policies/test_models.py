"""The packaged networks: which one fits which space, how they begin, what they share."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import Tensor, nn
from torch.testing import assert_close

from pufferlib.errors import UsageError
from pufferlib.models import (
    CNN,
    MLP,
    ActorCritic,
    CategoryEncoder,
    MultiInput,
    make_policy,
)
from pufferlib.policies.acting import policy_sequence, policy_step
from pufferlib.policies.distributions import env_actions, evaluate_actions, mode, sample
from pufferlib.policies.observations import policy_spaces, torch_dtype
from pufferlib.pytorch import RecurrentWrapper
from pufferlib.spaces import flatten_observation, observation_layout


def env_of(observation_space: Any, action_space: Any) -> Any:
    return SimpleNamespace(observation_space=observation_space, action_space=action_space)


def observations_of(space: Any, count: int) -> Tensor:
    layout = observation_layout(space)
    space.seed(1)
    rows = np.zeros((count, *layout.shape), layout.dtype)
    for slot in range(count):
        flatten_observation(layout, space.sample(), rows[slot, ...])
    return torch.from_numpy(rows)


OBSERVATION_SPACES = {
    "vector": (Box(-1, 1, (4,)), MLP),
    "scalar": (Box(-1, 1, ()), MLP),
    "matrix": (Box(-1, 1, (11, 11)), MLP),
    "bytes": (Box(0, 255, (6,), np.uint8), MLP),
    "doubles": (Box(-1, 1, (4,), np.float64), MLP),
    "discrete": (Discrete(500), MLP),
    "shifted discrete": (Discrete(3, start=-7), MLP),
    "multi-discrete": (MultiDiscrete([3, 100, 2]), MLP),
    "board": (MultiDiscrete(np.full((6, 7), 3)), MLP),
    "multi-binary": (MultiBinary(9), MLP),
    "grid": (Box(0, 1, (5, 5, 3)), CNN),
    "grid of bytes": (Box(0, 255, (7, 9, 2), np.uint8), CNN),
    "channels first": (Box(0, 1, (4, 11, 11)), CNN),
    "middle": (Box(0, 255, (16, 20, 3), np.uint8), CNN),
    "atari": (Box(0, 255, (84, 84, 4), np.uint8), CNN),
    "atari, channels first": (Box(0, 255, (4, 84, 84), np.uint8), CNN),
    "wide": (Box(0, 255, (40, 60, 3), np.uint8), CNN),
    "dict": (
        Dict(
            {
                "image": Box(0, 255, (12, 12, 3), np.uint8),
                "speed": Box(-1, 1, (3,)),
                "item": Discrete(7, start=2),
                "bag": Tuple((MultiDiscrete([3, 4]), MultiBinary(4))),
            }
        ),
        MultiInput,
    ),
    "tuple": (Tuple((Box(-1, 1, (2,)), Box(-1, 1, (3,)))), MultiInput),
}
ACTION_SPACES = {
    "discrete": Discrete(5),
    "multi-discrete": MultiDiscrete([2, 3]),
    "box": Box(-2, 2, (3,)),
    "mixed": Dict({"move": Discrete(4), "aim": Box(-1, 1, (2,))}),
}
every_observation_space = pytest.mark.parametrize("name", OBSERVATION_SPACES)
every_core = pytest.mark.parametrize("recurrent", ["lstm", "gru", "mingru", "transformer"])


@every_observation_space
def test_default_policy_fits_the_observation_space(name: str) -> None:
    space, wanted = OBSERVATION_SPACES[name]

    policy = make_policy(env_of(space, Discrete(3)))

    assert type(policy) is wanted


@every_observation_space
@pytest.mark.parametrize("action_name", ACTION_SPACES)
def test_default_policy_acts_and_learns_in_every_space(name: str, action_name: str) -> None:
    torch.manual_seed(0)
    space = OBSERVATION_SPACES[name][0]
    env = env_of(space, ACTION_SPACES[action_name])
    policy, spaces = make_policy(env, hidden_size=32), policy_spaces(env)
    observations = observations_of(space, 6)

    output = policy_step(policy, observations, None, spaces)
    actions, logprobs = sample(output, spaces.action)
    again, entropy = evaluate_actions(output, spaces.action, actions)
    (again.sum() + entropy.sum() + output.value.square().sum()).backward()

    assert_close(again, logprobs)
    assert output.value.isfinite().all()
    for parameter_name, parameter in policy.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


def test_first_actions_are_nearly_uniform_and_values_are_not_flat() -> None:
    torch.manual_seed(0)
    policy = MLP(Box(-1, 1, (4,)), Discrete(4))

    logits, value = policy(torch.randn(256, 4))

    # gains of 0.01 and 1
    assert logits.softmax(1).sub(0.25).abs().max() < 0.02
    assert value.std() > 10 * logits.std()


def test_joined_heads_equal_the_two_layers() -> None:
    policy = MLP(Box(-1, 1, (4,)), Discrete(3), separate=False)
    features = torch.randn(8, 64)

    logits, value = policy.decode(features)

    assert_close(logits, policy.actor(features))
    assert_close(value.unsqueeze(1), policy.critic(features))


def test_mlp_has_the_given_layers_only() -> None:
    # two encoders of 4*64+64 + 64*64+64, or one, and heads 64*3+3
    own = MLP(Box(-1, 1, (4,)), Discrete(2), hidden_size=64, num_layers=2)
    shared = MLP(Box(-1, 1, (4,)), Discrete(2), hidden_size=64, num_layers=2, separate=False)

    assert sum(p.numel() for p in own.parameters()) == 2 * (320 + 4160) + 195
    assert sum(p.numel() for p in shared.parameters()) == 320 + 4160 + 195


def test_separate_nets_of_tanh_are_those_of_the_published_mujoco_results() -> None:
    # 2 * (11*64+64 + 64*64+64), heads 64*3+3 and 64*1+1, three deviations
    env = env_of(Box(-np.inf, np.inf, (11,)), Box(-1, 1, (3,)))
    policy = make_policy(env, hidden_size=64, num_layers=2, activation="tanh", separate=True)
    observations = torch.randn(8, 11)

    mean, std, value = policy(observations)

    assert sum(p.numel() for p in policy.parameters()) == 2 * (768 + 4160) + 195 + 65 + 3
    assert isinstance(policy, MLP)
    linear = [layer for layer in policy.layers if isinstance(layer, nn.Linear)]  # type: ignore[union-attr]
    wanted = linear[1](linear[0](observations).tanh()).tanh()
    assert_close(mean, policy.actor(wanted))
    assert_close(std, torch.ones(8, 3))
    assert_close(value.unsqueeze(1), policy.critic(policy.critic_layers(observations)))


@every_observation_space
def test_separate_nets_share_no_gradient(name: str) -> None:
    space = OBSERVATION_SPACES[name][0]
    policy = make_policy(env_of(space, Discrete(3)), hidden_size=16, separate=True)
    spaces = policy_spaces(env_of(space, Discrete(3)))

    output = policy_step(policy, observations_of(space, 4), None, spaces)
    output.value.sum().backward()

    for parameter_name, p in policy.named_parameters():
        moved = p.grad is not None and bool(p.grad.any())
        assert moved == parameter_name.startswith("critic"), parameter_name


# a space, and what a policy of [0, 1] is given in place of its observations
SCALED: dict[str, tuple[Box, Any]] = {
    "image of bytes": (Box(0, 255, (5, 5, 3), np.uint8), lambda x: x * (1 / 255)),
    "small numbers": (Box(0, 10, (7, 7, 3), np.uint8), lambda x: x * (1 / 10)),
    "image of floats": (Box(0, 255, (5, 5, 3)), lambda x: x * (1 / 255)),
    "image around 0": (Box(-100, 100, (5, 5, 3)), lambda x: (x + 100) * (1 / 200)),
    "image that is fine": (Box(-1, 1, (5, 5, 3)), lambda x: x),
    "endless image": (Box(-np.inf, np.inf, (5, 5, 3)), lambda x: x),
    "vector of bytes": (Box(0, 255, (6,), np.uint8), lambda x: x * (1 / 255)),
    "plane of bytes": (Box(0, 255, (8, 8), np.uint8), lambda x: x * (1 / 255)),
    "frames of bytes": (Box(0, 255, (2, 6, 6, 1), np.uint8), lambda x: x * (1 / 255)),
    "vector of flags": (Box(0, 1, (6,), np.uint8), lambda x: x),
    "vector of int16": (Box(-50, 150, (6,), np.int16), lambda x: (x + 50) * (1 / 200)),
    "vector of any int32": (Box(-(2**31), 2**31 - 1, (6,), np.int32), lambda x: x),
    "vector of floats": (Box(0, 255, (6,)), lambda x: x),
    "bounds of its own for each": (
        Box(np.array([0, 10]), np.array([4, 10]), dtype=np.int32),
        lambda x: (x - torch.tensor([0.0, 10.0])) * torch.tensor([0.25, 1.0]),
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_images_and_integers_are_scaled_by_their_bounds(name: str) -> None:
    space, scaled = SCALED[name]
    kind = CNN if len(space.shape) == 3 else MLP
    policy = kind(space, Discrete(2))
    plain = kind(Box(-1, 1, space.shape), Discrete(2))
    plain.load_state_dict(policy.state_dict())
    observations = observations_of(space, 4)

    expected = plain.encode(scaled(observations.float()))
    assert torch.equal(policy.encode(observations), expected)  # to the last bit


def test_leaves_of_a_dict_are_scaled_too() -> None:
    parts = {"bytes": Box(0, 255, (6,), np.uint8), "image": Box(0, 10, (5, 5, 3), np.uint8)}
    policy = MultiInput(Dict(parts), Discrete(2))
    full = {name: torch.from_numpy(part.high)[None] for name, part in parts.items()}
    plain = MultiInput(
        Dict({name: Box(0, 1, part.shape) for name, part in parts.items()}), Discrete(2)
    )
    plain.load_state_dict(policy.state_dict())
    ones = {name: torch.ones(1, *part.shape) for name, part in parts.items()}

    assert_close(policy.encode(full), plain.encode(ones))


def test_channels_first_and_last_see_the_same_picture() -> None:
    last = CNN(Box(0, 1, (9, 7, 3)), Discrete(2))
    first = CNN(Box(0, 1, (3, 9, 7)), Discrete(2))
    first.load_state_dict(last.state_dict())
    images = torch.rand(4, 9, 7, 3)

    assert_close(last.encode(images), first.encode(images.permute(0, 3, 1, 2)))


def test_category_encoder_is_a_linear_layer_over_one_hot_rows() -> None:
    leaf = observation_layout(MultiDiscrete([2, 3], start=[5, -1])).leaves[0]
    encoder = CategoryEncoder(leaf, 4)
    observations = torch.tensor([[5, 1], [6, -1]])
    one_hot = torch.tensor([[1.0, 0, 0, 0, 1], [0, 1, 1, 0, 0]])

    assert_close(encoder(observations), one_hot @ encoder.table)


def test_rows_of_absent_agents_may_lie_outside_of_the_space() -> None:
    policy = MLP(Discrete(3, start=4), Discrete(2))

    assert_close(policy.encode(torch.tensor([0, 99])), policy.encode(torch.tensor([4, 6])))


def test_box_actions_begin_in_the_middle_of_their_bounds() -> None:
    low, high = np.array([0, -np.inf, -2], np.float32), np.array([100, 1, 2], np.float32)
    policy = MLP(Box(-1, 1, (4,)), Box(low, high))

    mean, std, _ = policy(torch.randn(64, 4))

    # half the distance where both bounds are finite, else 1
    assert_close(std[0], torch.tensor([50.0, 1.0, 2.0]))
    assert_close(mean.mean(0), torch.tensor([50.0, 0.0, 0.0]), atol=1.0, rtol=0)


@pytest.mark.parametrize(
    ("low", "high", "middle", "reach"),
    [
        (-1e3, 1e3, 0, 1e3),
        (-1e6, 1e6, 0, 1),
        (float(np.finfo(np.float32).min), float(np.finfo(np.float32).max), 0, 1),
        (0, np.inf, 0, 1),
        (100, np.inf, 100, 1),  # 0 would be cut off at 100 for ever
        (-np.inf, -5, -5, 1),
        (2e6, 9e6, 2e6, 2e3),  # 1 would be lost in the steps of float32 there
        (7, 7, 7, 1),
    ],
)
@pytest.mark.parametrize("squash", [False, True])
def test_bounds_that_say_nothing_do_not_set_the_deviation(
    low: float, high: float, middle: float, reach: float, squash: bool
) -> None:
    space = Box(low, high, (1,))
    policy = MLP(Box(-1, 1, (4,)), space, squash=squash)
    with torch.no_grad():
        policy.actor.weight.zero_()
    spaces = policy_spaces(env_of(Box(-1, 1, (4,)), space))
    output = policy_step(policy, torch.randn(512, 4), None, spaces)
    generator = torch.Generator().manual_seed(0)
    drawn, logprobs = sample(output, spaces.action, generator=generator)
    actions = env_actions(output, spaces.action, drawn)

    assert logprobs.isfinite().all()
    assert ((actions >= low) & (actions <= high)).all()  # of the space, as ever
    taken = env_actions(output, spaces.action, mode(output, spaces.action))
    assert taken[0].item() == middle
    if not squash:
        assert policy.log_std.exp().item() == pytest.approx(reach)
    logprob, entropy = evaluate_actions(output, spaces.action, drawn)
    assert_close(logprob, logprobs, rtol=1e-4, atol=1e-3)
    assert entropy.isfinite().all()


def test_log_std_alone_sets_the_standard_deviation() -> None:
    policy = MLP(Box(-1, 1, (4,)), Box(-2, 2, (1,)))
    with torch.no_grad():
        policy.log_std.fill_(-1)

    assert_close(policy(torch.randn(3, 4))[1], torch.full((3, 1), float(np.exp(-1))))


def test_constants_of_the_spaces_are_not_in_the_checkpoint() -> None:
    names = set(MLP(Discrete(4), Box(-2, 2, (1,))).state_dict())

    assert not names & {"center", "scale", "layers.0.offsets"}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MLP(Dict({"a": Box(0, 1, (2,))}), Discrete(2)), "Try MultiInput"),
        (lambda: CNN(Box(0, 1, (4,)), Discrete(2)), "Try MLP"),
        (lambda: CNN(Box(0, 1, (2, 2, 3)), Discrete(2)), "at least 3 by 3"),
        (lambda: MLP(Box(0, 1, (4,)), Discrete(2), num_layers=0), "num_layers=0"),
        (
            lambda: make_policy(env_of(Box(0, 1, (4,)), Discrete(2)), recurrent="lsmt"),  # type: ignore[arg-type]
            "Did you mean `lstm`",
        ),
        (
            lambda: make_policy(
                env_of(Box(0, 1, (4,)), Discrete(2)), recurrent="gru", separate=True
            ),
            "`separate` must be false for a recurrent policy",
        ),
        (
            lambda: MLP(Box(0, 1, (4,)), Discrete(2), activation="tahn"),  # type: ignore[arg-type]
            "Did you mean `tanh`",
        ),
    ],
)
def test_invalid_options_raise_with_a_hint(build: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build()


def test_recurrent_policies_take_dict_spaces() -> None:
    space = OBSERVATION_SPACES["dict"][0]
    env = env_of(space, Discrete(3))
    policy, spaces = make_policy(env, hidden_size=16, recurrent="mingru"), policy_spaces(env)
    observations = observations_of(space, 6).view(2, 3, -1)

    output = policy_sequence(policy, observations, None, torch.zeros(2, 3), spaces)

    assert isinstance(policy, RecurrentWrapper)
    assert output.value.shape == (6,)


def test_policies_survive_copy_and_every_parameter_is_a_leaf() -> None:
    policy = make_policy(env_of(Box(-1, 1, (4,)), Box(-1, 1, (2,))), recurrent="gru")

    twin = copy.deepcopy(policy)

    assert all(p.is_leaf for p in twin.parameters())
    assert_close(dict(twin.state_dict()), dict(policy.state_dict()))


def test_observations_of_any_dtype_are_taken_as_the_env_gives_them() -> None:
    for space, _ in OBSERVATION_SPACES.values():
        layout = observation_layout(space)
        assert observations_of(space, 2).dtype == torch_dtype(layout.dtype)


def test_a_subclass_needs_only_an_encoder() -> None:
    class Mine(ActorCritic):
        def __init__(self) -> None:
            super().__init__(Discrete(3), hidden_size=4)

        def encode(self, observations: Tensor) -> Tensor:
            return observations

    logits, value = Mine()(torch.zeros(5, 4))

    assert logits.shape == (5, 3)
    assert value.shape == (5,)
