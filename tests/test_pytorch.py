from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Independent,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)
from torch.distributions.transforms import TanhTransform
from torch.testing import assert_close

from pufferlib.errors import UsageError
from pufferlib.pytorch import (
    LSTMWrapper,
    PolicyOutput,
    PolicySpaces,
    evaluate_actions,
    layer_init,
    mode,
    policy_sequence,
    policy_spaces,
    policy_step,
    reset_state,
    sample,
    takes_state,
    unflatten_observations,
)
from pufferlib.spaces import (
    action_layout,
    flatten_observation,
    observation_layout,
    unflatten_action,
)

OBS = Box(-1, 1, (3,))


def spaces_of(action_space: Any, observation_space: Any = OBS) -> PolicySpaces:
    return PolicySpaces(observation_layout(observation_space), action_layout(action_space))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Returns(nn.Module):
    """A policy whose forward returns what it was told to."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, observations: Any) -> Any:
        return self.result


def output_of(result: Any, action_space: Any, batch: int = 4) -> PolicyOutput:
    return policy_step(Returns(result), torch.zeros(batch, 3), None, spaces_of(action_space))


# --- layer_init -----------------------------------------------------------------------------------


def test_layer_init_gives_orthogonal_rows_of_the_asked_gain() -> None:
    layer = layer_init(nn.Linear(8, 4), std=3.0, bias=0.5)

    assert_close(layer.weight @ layer.weight.t(), 9 * torch.eye(4), atol=1e-5, rtol=0)
    assert (layer.bias == 0.5).all()


def test_layer_init_takes_layers_without_bias_and_refuses_those_without_weight() -> None:
    layer_init(nn.Conv2d(3, 4, 3, bias=False))
    with pytest.raises(UsageError, match="must have a weight"):
        layer_init(nn.ReLU())


# --- observations ---------------------------------------------------------------------------------

STRUCTURED = [
    Dict({"a": Box(-1, 1, (2, 3)), "b": Box(-1, 1, ())}),
    Dict({"image": Box(0, 255, (5, 5, 3), np.uint8), "speed": Box(-1, 1, (3,)), "n": Discrete(7)}),
    Tuple(
        (Box(0, 1, (2,), np.float64), Dict({"flags": MultiBinary(5), "k": MultiDiscrete([3, 4])}))
    ),
    Tuple((Box(0, 255, (3,), np.uint8), Box(0, 255, (4,), np.uint8))),
]


def flat_rows(space: Any, count: int) -> tuple[Tensor, list[Any]]:
    layout = observation_layout(space)
    space.seed(3)
    values = [space.sample() for _ in range(count)]
    rows = np.zeros((count, *layout.shape), layout.dtype)
    for row, value in zip(rows, values, strict=True):
        flatten_observation(layout, value, row)
    return torch.from_numpy(rows), values


def assert_same(part: Any, value: Any) -> None:
    if isinstance(value, dict):
        assert list(part) == list(value)
        for key in value:
            assert_same(part[key], value[key])
    elif isinstance(value, tuple):
        assert isinstance(part, tuple)
        for one, other in zip(part, value, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(part.numpy(), value)


@pytest.mark.parametrize("space", STRUCTURED, ids=str)
def test_unflattened_parts_equal_what_was_flattened(space: Any) -> None:
    rows, values = flat_rows(space, 6)

    parts = unflatten_observations(rows, space)
    grid = unflatten_observations(rows.view(2, 3, -1), observation_layout(space))

    def row(tree: Any, *index: int) -> Any:
        if isinstance(tree, dict):
            return {key: row(part, *index) for key, part in tree.items()}
        return tuple(row(p, *index) for p in tree) if isinstance(tree, tuple) else tree[index]

    for i, value in enumerate(values):
        assert_same(row(parts, i), value)
        assert_same(row(grid, i // 3, i % 3), value)


def test_unflattened_parts_are_views() -> None:
    rows, _ = flat_rows(STRUCTURED[1], 4)

    unflatten_observations(rows, STRUCTURED[1])["image"].fill_(9)

    assert (rows == 9).sum() >= 4 * 75


def test_plain_tensors_and_dicts_pass_through() -> None:
    flat, tree = torch.zeros(4, 3), {"a": torch.zeros(4, 3)}

    assert unflatten_observations(flat, OBS) is flat
    assert unflatten_observations(tree, STRUCTURED[0]) is tree


def test_spaces_of_one_agent_win_over_those_of_a_batch() -> None:
    env = gymnasium.make_vec("CartPole-v1", num_envs=3)

    assert policy_spaces(env).observation.shape == (4,)
    assert policy_spaces(env).action.nvec == (2,)
    env.close()
    with pytest.raises(UsageError, match="observation_space"):
        policy_spaces(object())


# --- what forward may return ----------------------------------------------------------------------

LOGITS = torch.arange(20.0).view(4, 5)
VALUE = torch.arange(4.0)
MEAN, STD = torch.arange(8.0).view(4, 2), torch.full((4, 2), 0.5)


@pytest.mark.parametrize("value", [VALUE, VALUE.unsqueeze(1)])
def test_values_come_flat(value: Tensor) -> None:
    assert_close(output_of((LOGITS, value), Discrete(5)).value, VALUE)


@pytest.mark.parametrize(
    "logits",
    [
        LOGITS,
        [LOGITS[:, :2], LOGITS[:, 2:]],
        (Categorical(logits=LOGITS[:, :2]), Categorical(logits=LOGITS[:, 2:])),
    ],
    ids=["concatenated", "list", "distributions"],
)
def test_logits_of_several_components_may_come_joined_or_apart(logits: Any) -> None:
    action_space = MultiDiscrete([2, 3])
    actions = torch.tensor([[0, 0], [1, 2], [0, 1], [1, 0]], dtype=torch.int32)

    output = output_of((logits, VALUE), action_space)
    logprobs, _ = evaluate_actions(output, action_layout(action_space), actions)

    first, second = Categorical(logits=LOGITS[:, :2]), Categorical(logits=LOGITS[:, 2:])
    assert_close(logprobs, first.log_prob(actions[:, 0]) + second.log_prob(actions[:, 1]))


@pytest.mark.parametrize(
    "result",
    [
        (MEAN, STD, VALUE),
        ((MEAN, STD), VALUE),
        (MEAN, torch.tensor([0.5, 0.5]), VALUE),
        (MEAN, torch.tensor(0.5), VALUE),
        (Normal(MEAN, STD), VALUE),
        (Independent(Normal(MEAN, STD), 1), VALUE),
    ],
)
def test_gaussians_may_come_in_any_usual_form(result: Any) -> None:
    output = output_of(result, Box(-1, 1, (2,)))

    assert_close(output.mean, MEAN)
    assert_close(output.std, STD)
    assert_close(output.value, VALUE)


def test_bernoulli_is_a_component_of_two_choices() -> None:
    logits = torch.randn(4, 3, generator=rng())
    actions = torch.randint(0, 2, (4, 3), generator=rng(), dtype=torch.int32)
    layout = action_layout(MultiBinary(3))

    output = output_of((Bernoulli(logits=logits), VALUE), MultiBinary(3))
    logprobs, entropy = evaluate_actions(output, layout, actions)

    wanted = Bernoulli(logits=logits)
    assert_close(logprobs, wanted.log_prob(actions.float()).sum(1))
    assert_close(entropy, wanted.entropy().sum(1))


class Memory(NamedTuple):
    count: Tensor


@pytest.mark.parametrize(
    ("result", "action_space"),
    [
        ((LOGITS, VALUE), Discrete(5)),
        ((MEAN, STD, VALUE), Box(-1, 1, (2,))),
        ((Normal(MEAN, STD), VALUE), Box(-1, 1, (2,))),
        ((LOGITS, MEAN, STD, VALUE), Tuple((Discrete(5), Box(-1, 1, (2,))))),
    ],
)
def test_a_state_may_follow_any_form(result: Any, action_space: Any) -> None:
    state = (torch.ones(4, 2), [Memory(torch.ones(4))], {"k": torch.ones(4, 1)})

    assert output_of((*result, state), action_space).state is state


@pytest.mark.parametrize(
    ("result", "action_space", "got"),
    [
        (LOGITS, Discrete(5), r"a tensor of shape \(4, 5\)"),
        ((LOGITS,), Discrete(5), r"\(a tensor of shape \(4, 5\)\)"),
        ((LOGITS, VALUE), Discrete(6), r"\(a tensor of shape \(4, 5\), a tensor of shape \(4,\)\)"),
        ((LOGITS, torch.zeros(4, 2)), Discrete(5), r"shape \(4, 2\)"),
        ((LOGITS, "value"), Discrete(5), "str"),
        ((LOGITS, VALUE, None, None), Discrete(5), "NoneType, NoneType"),
        ((MEAN, VALUE), Box(-1, 1, (2,)), r"mean, std, value"),
        ((MEAN, torch.zeros(3), VALUE), Box(-1, 1, (2,)), r"shape \(3,\)"),
        ((MEAN, STD, VALUE), Box(-1, 1, (3,)), r"with 3 means"),
        ((Normal(MEAN, STD), VALUE), Discrete(5), "Normal"),
        ((LOGITS, VALUE), Tuple((Discrete(5), Box(-1, 1, (2,)))), "logits, mean, std, value"),
    ],
)
def test_anything_else_is_named_in_the_error(result: Any, action_space: Any, got: str) -> None:
    with pytest.raises(UsageError, match=got):
        output_of(result, action_space)


def test_a_state_without_the_batch_is_refused() -> None:
    with pytest.raises(UsageError, match=r"batch of 4.*shape \(1, 5, 8\)"):
        output_of((LOGITS, VALUE, torch.zeros(1, 5, 8)), Discrete(5))


def test_dict_observations_reach_the_policy_as_a_dict() -> None:
    rows, values = flat_rows(STRUCTURED[1], 4)

    class Reads(nn.Module):
        def forward(self, obs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            assert obs["image"].shape[-3:] == (5, 5, 3)
            return obs["speed"], obs["n"].float()

    spaces = spaces_of(Discrete(3), STRUCTURED[1])
    step = policy_step(Reads(), rows, None, spaces)
    sequence = policy_sequence(Reads(), rows.view(2, 2, -1), None, None, spaces)

    np.testing.assert_array_equal(step.logits, [value["speed"] for value in values])
    assert_close(sequence.logits, step.logits)
    assert_close(sequence.value, step.value)


def test_compiled_policies_are_seen_through() -> None:
    class Counts(nn.Module):
        def forward(self, obs: Tensor, state: Any = None) -> Any:
            return obs, obs[:, 0], obs

    policy = torch.compile(Counts(), backend="eager")

    assert takes_state(policy)
    assert not takes_state(torch.compile(Returns(None), backend="eager"))
    assert policy_step(policy, torch.ones(4, 3), None, spaces_of(Discrete(3))).state.shape == (4, 3)


# --- actions --------------------------------------------------------------------------------------

ACTION_SPACES = [
    Discrete(5),
    Discrete(3, start=4),
    MultiDiscrete([3, 3]),
    MultiDiscrete([2, 5, 3]),
    MultiDiscrete([4]),
    MultiBinary(3),
    Box(-2, 2, (3,)),
    Box(-2, 2, (2, 2)),
    Box(-2, 2, ()),
    Dict({"move": Discrete(4), "aim": Box(-1, 1, (2,)), "tools": MultiDiscrete([2, 3])}),
    Tuple((Box(-1, 1, (1,)), Box(-1, 1, (2,)))),
]


def random_output(space: Any, batch: int, seed: int = 0) -> PolicyOutput:
    layout, random = action_layout(space), rng(seed)
    discrete, continuous = sum(layout.nvec), layout.num_continuous
    return PolicyOutput(
        value=torch.zeros(batch),
        logits=torch.randn(batch, discrete, generator=random) if discrete else None,
        mean=torch.randn(batch, continuous, generator=random) if continuous else None,
        std=torch.rand(batch, continuous, generator=random) + 0.1 if continuous else None,
    )


@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_sampled_actions_are_rows_that_the_env_takes(space: Any) -> None:
    layout = action_layout(space)

    for actions in (
        sample(random_output(space, 50), layout, None, rng())[0],
        mode(random_output(space, 50), layout),
    ):
        assert actions.shape == (50, *layout.shape)
        assert actions.numpy().dtype == layout.dtype
        for row in actions.numpy():
            action = unflatten_action(layout, row)
            if not layout.num_continuous:  # reals are not clipped here
                assert space.contains(action)


@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_log_probability_at_sampling_equals_that_at_evaluation(space: Any) -> None:
    layout, output = action_layout(space), random_output(space, 100)

    actions, logprobs = sample(output, layout, None, rng())
    again, entropy = evaluate_actions(output, layout, actions)

    assert_close(again, logprobs)
    assert logprobs.shape == entropy.shape == (100,)


@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_log_probability_and_entropy_equal_torch_distributions(space: Any) -> None:
    layout, output = action_layout(space), random_output(space, 30)
    actions, _ = sample(output, layout, None, rng())
    indices, reals = (torch.from_numpy(part.copy()) for part in layout.split(actions.numpy()))

    parts: list[tuple[Any, Tensor]] = []
    if output.logits is not None:
        split = output.logits.split(list(layout.nvec), 1)
        parts += [(Categorical(logits=x), indices[:, i]) for i, x in enumerate(split)]
    if output.mean is not None:
        parts += [(Independent(Normal(output.mean, output.std), 1), reals)]

    logprobs, entropy = evaluate_actions(output, layout, actions)
    assert_close(logprobs, sum(part.log_prob(action) for part, action in parts))
    assert_close(entropy, sum(part.entropy() for part, _ in parts))


def test_sampled_frequencies_follow_the_probabilities() -> None:
    # 200,000 draws: the standard error of a share is below 0.0012; allow four
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    output = PolicyOutput(torch.zeros(200_000), probabilities.log().expand(200_000, 4))

    actions, _ = sample(output, action_layout(Discrete(4)), None, rng())

    shares = torch.bincount(actions.long(), minlength=4) / 200_000
    assert_close(shares, probabilities, atol=0.0045, rtol=0)


def test_gaussian_samples_have_the_asked_mean_and_deviation() -> None:
    # 100,000 draws of deviation 0.5: the standard error of the mean is 0.0016
    count = 100_000
    output = PolicyOutput(
        torch.zeros(count), None, torch.full((count, 1), 3.0), torch.full((count, 1), 0.5)
    )

    actions, _ = sample(output, action_layout(Box(-1, 1, (1,))), None, rng())

    assert abs(actions.mean() - 3) < 0.007  # beyond the bound of 1: the env clips, not the policy
    assert abs(actions.std() - 0.5) < 0.005


@pytest.mark.parametrize("space", ACTION_SPACES, ids=str)
def test_the_generator_alone_decides_what_is_sampled(space: Any) -> None:
    layout, output = action_layout(space), random_output(space, 64)

    first, _ = sample(output, layout, None, rng(1))
    torch.rand(3)
    second, _ = sample(output, layout, None, rng(1))
    third, _ = sample(output, layout, None, rng(2))

    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@settings(max_examples=60, deadline=None)
@given(
    nvec=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    seed=st.integers(0, 2**31),
    spread=st.sampled_from([0.0, 1.0, 50.0]),
)
def test_illegal_actions_are_never_sampled_and_gradients_stay_finite(
    nvec: list[int], seed: int, spread: float
) -> None:
    space = Discrete(nvec[0]) if len(nvec) == 1 else MultiDiscrete(nvec)
    layout, random = action_layout(space), rng(seed)
    masks = torch.rand(64, sum(nvec), generator=random) < 0.4
    starts = np.cumsum([0, *nvec[:-1]])
    for start, n in zip(starts, nvec, strict=True):  # at least one choice is legal
        masks[torch.arange(64), start + torch.randint(0, n, (64,), generator=random)] = True
    logits = (spread * torch.randn(64, sum(nvec), generator=random)).requires_grad_()
    output = PolicyOutput(torch.zeros(64), logits)

    actions, logprobs = sample(output, layout, masks, random)
    again, entropy = evaluate_actions(output, layout, actions, masks)
    (again.sum() + entropy.sum()).backward()

    for chosen in (actions, mode(output, layout, masks)):
        columns = chosen.view(64, -1) + torch.from_numpy(starts)
        assert masks.gather(1, columns).all()
    assert_close(again, logprobs)
    assert entropy.isfinite().all()
    assert (entropy >= -1e-5).all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert (logits.grad[~masks] == 0).all()


def test_masked_entropy_is_that_of_the_legal_choices() -> None:
    output = PolicyOutput(torch.zeros(1), torch.zeros(1, 4))
    masks = torch.tensor([[True, False, True, False]])

    logprobs, entropy = evaluate_actions(
        output, action_layout(Discrete(4)), torch.tensor([2]), masks
    )

    assert_close(logprobs, torch.tensor([-math.log(2)]))
    assert_close(entropy, torch.tensor([math.log(2)]))


def test_a_row_without_legal_choice_gives_valid_actions_and_no_nan() -> None:
    layout = action_layout(MultiDiscrete([2, 3]))
    logits = torch.zeros(500, 5, requires_grad=True)
    output = PolicyOutput(torch.zeros(500), logits)

    actions, _ = sample(output, layout, torch.zeros(500, 5, dtype=torch.bool), rng())
    logprobs, entropy = evaluate_actions(
        output, layout, actions, torch.zeros(500, 5, dtype=torch.bool)
    )
    (logprobs + entropy).sum().backward()

    assert (actions < torch.tensor([2, 3])).all()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_a_policy_that_masks_with_minus_infinity_gets_finite_entropy_and_gradients() -> None:
    scores = torch.zeros(8, 3, requires_grad=True)
    masked = scores.masked_fill(torch.tensor([False, True, False]), -torch.inf)
    output = PolicyOutput(torch.zeros(8), masked)
    layout = action_layout(Discrete(3))

    actions, _ = sample(output, layout, None, rng())
    logprobs, entropy = evaluate_actions(output, layout, actions)
    (logprobs.sum() + entropy.sum()).backward()

    assert (actions != 1).all()
    assert_close(entropy, torch.full((8,), math.log(2)))
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_mode_takes_the_likeliest_legal_choice_and_the_mean() -> None:
    space = Tuple((Discrete(3), Box(-1, 1, (2,))))
    layout = action_layout(space)
    output = PolicyOutput(
        torch.zeros(1),
        torch.tensor([[1.0, 3.0, 2.0]]),
        torch.tensor([[0.25, 4.0]]),
        torch.ones(1, 2),
    )

    indices, reals = layout.split(mode(output, layout).numpy())
    legal, _ = layout.split(mode(output, layout, torch.tensor([[True, False, True]])).numpy())

    assert indices.tolist() == [[1]]
    assert reals.tolist() == [[0.25, 1.0]]  # as the env takes them: 4 lies beyond its bound
    assert legal.tolist() == [[2]]


def test_uncommon_distributions_are_asked_themselves() -> None:
    space, layout = Box(-1, 1, (2,)), action_layout(Box(-1, 1, (2,)))
    covariance = torch.tensor([[1.0, 0.5], [0.5, 2.0]])
    distribution = MultivariateNormal(torch.zeros(4, 2), covariance)

    output = output_of((distribution, VALUE), space)
    actions, logprobs = sample(output, layout, None, rng(5))
    again, _ = sample(output, layout, None, rng(5))
    evaluated, entropy = evaluate_actions(output, layout, actions)

    assert torch.equal(actions, again)
    assert_close(logprobs, distribution.log_prob(actions))
    assert_close(evaluated, logprobs)
    assert_close(entropy, distribution.entropy())
    assert_close(mode(output, layout), torch.zeros(4, 2))
    with pytest.raises(UsageError, match="MultivariateNormal"):
        sample(output, layout, torch.ones(4, 2, dtype=torch.bool))


def test_independent_components_of_an_uncommon_distribution_are_summed() -> None:
    distribution = Beta(torch.full((4, 2), 2.0), torch.full((4, 2), 3.0))
    layout = action_layout(Box(0, 1, (2,)))

    output = output_of((distribution, VALUE), Box(0, 1, (2,)))
    actions, logprobs = sample(output, layout, None, rng())

    assert_close(logprobs, distribution.log_prob(actions).sum(1))


def test_a_distribution_without_closed_entropy_is_estimated() -> None:
    mean = torch.zeros(4000, 1, requires_grad=True)
    squashed = TransformedDistribution(Normal(mean, 0.1), TanhTransform())
    layout = action_layout(Box(-1, 1, (1,)))

    output = output_of((squashed, torch.zeros(4000)), Box(-1, 1, (1,)), batch=4000)
    actions, _ = sample(output, layout, None, rng())
    _, entropy = evaluate_actions(output, layout, actions.clamp(-0.99, 0.99))

    # Near 0, tanh is almost the identity: close to the entropy of the Gaussian, and a bit below
    assert abs(entropy.mean() - Normal(0.0, 0.1).entropy()) < 0.05
    assert entropy.requires_grad


# --- memory ---------------------------------------------------------------------------------------

SPACES = spaces_of(Discrete(3))
ENV = SimpleNamespace(observation_space=OBS, action_space=Discrete(3))


class Sums(nn.Module):
    """Remembers the sum of what it saw, in a nested state."""

    def forward(self, obs: Tensor, state: Any = None) -> Any:
        total = obs if state is None else state["total"][0] + obs
        return total, total[:, :1], {"total": (total,)}


class Halves(nn.Module):
    """A policy of a user: encode and decode."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.actor, self.critic = (
            nn.Linear(3, 8),
            nn.Linear(width, 3),
            nn.Linear(width, 1),
        )

    def encode(self, obs: Tensor) -> Tensor:
        return self.first(obs).relu()

    def decode(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(features), self.critic(features)


def step_by_step(
    policy: nn.Module, observations: Tensor, state: Any, resets: Tensor
) -> tuple[Tensor, Tensor, Any]:
    """What a rollout does: a step at a time, the state zeroed where an episode begins."""
    logits, values = [], []
    for t in range(observations.shape[1]):
        state = reset_state(state, resets[:, t])
        output = policy_step(policy, observations[:, t], state, SPACES)
        logits.append(output.logits)
        values.append(output.value)
        state = output.state
    return torch.stack(logits, 1), torch.stack(values, 1), state


def test_any_recurrent_policy_is_unrolled_with_zeroed_states() -> None:
    observations = torch.ones(1, 4, 3)
    resets = torch.tensor([[False, False, True, False]])

    output = policy_sequence(
        Sums(), observations, {"total": (torch.full((1, 3), 5.0),)}, resets, SPACES
    )

    assert output.value.tolist() == [6, 7, 1, 2]
    assert output.logits is not None
    assert output.logits.shape == (4, 3)
    assert output.state["total"][0].tolist() == [[2, 2, 2]]


def test_outputs_of_a_sequence_are_segment_by_segment() -> None:
    observations = torch.arange(2 * 3 * 3.0).view(2, 3, 3)

    recurrent = policy_sequence(
        Sums(), observations, None, torch.ones(2, 3, dtype=torch.bool), SPACES
    )

    assert_close(recurrent.logits, observations.view(6, 3))


@pytest.mark.parametrize("share", [0.0, 0.3])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("stateful", [False, True])
def test_lstm_gives_the_same_in_rollout_and_training(
    share: float, first: bool, stateful: bool
) -> None:
    torch.manual_seed(0)
    policy = LSTMWrapper(ENV, Halves())
    observations = torch.randn(5, 9, 3)
    resets = torch.rand(5, 9) < share
    resets[:, 0] = first
    state = (torch.randn(5, 8), torch.randn(5, 8)) if stateful else None

    logits, values, last = step_by_step(policy, observations, state, resets)
    output = policy_sequence(policy, observations, state, resets, SPACES)

    assert_close(output.logits, logits.flatten(0, 1), atol=1e-6, rtol=1e-5)
    assert_close(output.value, values.flatten(), atol=1e-6, rtol=1e-5)
    assert_close(output.state, last, atol=1e-6, rtol=1e-5)


def test_lstm_gradients_agree_on_both_paths() -> None:
    torch.manual_seed(0)
    policy = LSTMWrapper(ENV, Halves())
    observations, resets = torch.randn(5, 9, 3), torch.rand(5, 9) < 0.3

    def gradients(loss: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(loss, list(policy.parameters())))

    logits, values, _ = step_by_step(policy, observations, None, resets)
    output = policy_sequence(policy, observations, None, resets, SPACES)
    assert output.logits is not None

    stepped = gradients(logits.square().sum() + values.square().sum())
    at_once = gradients(output.logits.square().sum() + output.value.square().sum())

    assert_close(at_once, stepped, atol=1e-5, rtol=1e-4)


def test_lstm_has_one_set_of_weights() -> None:
    # 4 gates of 8: input 8, hidden 8 and two biases each; the encoder and heads have their own
    policy, halves = LSTMWrapper(ENV, Halves()), Halves()

    extra = sum(p.numel() for p in policy.parameters()) - sum(
        p.numel() for p in halves.parameters()
    )

    assert extra == 4 * 8 * (8 + 8 + 2)


def test_lstm_may_be_wider_than_the_features() -> None:
    policy = LSTMWrapper(ENV, Halves(width=16), hidden_size=16)

    output = policy_step(policy, torch.zeros(4, 3), None, SPACES)

    assert output.state[0].shape == (4, 16)


def test_a_policy_without_the_two_halves_cannot_be_wrapped() -> None:
    with pytest.raises(UsageError, match="has no `encode`"):
        LSTMWrapper(ENV, Returns(None))


def test_reset_forgets_even_nan() -> None:
    state = (torch.full((2, 3), torch.nan), torch.ones(2))

    zeroed = reset_state(state, torch.tensor([True, False]))

    assert (zeroed[0][0] == 0).all()
    assert zeroed[1].tolist() == [0, 1]
    assert reset_state(None, torch.tensor([True])) is None
