"""What a policy may return for its actions; each form samples, judges and squashes exactly."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Independent,
    Laplace,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)
from torch.distributions.transforms import TanhTransform
from torch.testing import assert_close

from pufferlib.distributed.world import SlotGenerator, World
from pufferlib.errors import UsageError
from pufferlib.policies.distributions import (
    PolicyOutput,
    env_actions,
    evaluate_actions,
    mode,
    policy_output,
    sample,
)
from pufferlib.policies.squash import Squash, middle_and_reach
from pufferlib.spaces import ActionLayout, action_layout, rows_from_values, unflatten_action


def likeliest_taken(
    output: PolicyOutput, layout: ActionLayout, masks: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the most likely actions as the env takes them."""
    return env_actions(output, layout, mode(output, layout, masks))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def output_of(result: Any, action_space: Any, batch: int = 4) -> PolicyOutput:
    return policy_output(result, batch, action_layout(action_space))


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

    drawn = sample(random_output(space, 50), layout, None, rng())[0]
    likeliest = likeliest_taken(random_output(space, 50), layout)
    taken = env_actions(random_output(space, 50), layout, drawn)

    assert drawn.numpy().dtype == layout.dtype
    for rows in (
        drawn.numpy(),
        rows_from_values(layout, likeliest.numpy()),
        rows_from_values(layout, taken.numpy()),
    ):
        assert rows.shape == (50, *layout.shape)
        assert rows.dtype == layout.dtype
        for row in rows:
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


def test_gaussian_samples_have_the_given_mean_and_deviation() -> None:
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
    again, entropy = evaluate_actions(output, layout, actions.detach(), masks)
    (again.sum() + entropy.sum()).backward()

    for chosen in (actions, likeliest_taken(output, layout, masks)):
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

    actions = likeliest_taken(output, layout)
    legal = likeliest_taken(output, layout, torch.tensor([[True, False, True]]))

    assert actions.tolist() == [[1, 0.25, 1.0]]  # as `step` takes them: 4 lies beyond its bound
    assert legal.tolist() == [[2, 0.25, 1.0]]


def test_uncommon_distributions_use_their_own_methods() -> None:
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
    assert_close(likeliest_taken(output, layout), torch.zeros(4, 2))
    counts = output_of((Binomial(4, torch.full((4,), 0.5)), VALUE), Discrete(5))
    with pytest.raises(UsageError, match="Binomial"):
        sample(counts, action_layout(Discrete(5)), torch.ones(4, 5, dtype=torch.bool))


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


# --- Box actions inside their bounds --------------------------------------------------------------

LOW, HIGH = np.array([-2.0, 0.0, -np.inf], np.float32), np.array([2.0, 10.0, 3.0], np.float32)
BOUNDED = Box(LOW, HIGH)


def squashed(mean: Tensor, std: Tensor) -> PolicyOutput:
    squash = Squash(*middle_and_reach(torch.from_numpy(LOW), torch.from_numpy(HIGH)))
    distribution = TransformedDistribution(Normal(mean, std), [squash])
    return output_of((distribution, torch.zeros(len(mean))), BOUNDED, len(mean))


def test_a_gaussian_is_stored_as_drawn_and_cut_for_the_env() -> None:
    layout = action_layout(BOUNDED)
    mean = torch.tensor([[9.0, -9.0, 9.0], [0.5, 5.0, -70.0]])
    output = PolicyOutput(torch.zeros(2), None, mean, torch.full((2, 3), 0.01))

    actions, logprobs = sample(output, layout, None, rng())
    sent = env_actions(output, layout, actions)

    assert_close(actions, mean, atol=0.1, rtol=0)
    assert_close(sent[0], torch.tensor([2.0, 0.0, 3.0]))
    assert torch.equal(sent[1], actions[1])
    assert_close(logprobs, Normal(mean, 0.01).log_prob(actions).sum(1), atol=1e-3, rtol=0)


def test_only_the_continuous_part_of_a_mixed_action_is_cut() -> None:
    space = Dict({"aim": Box(-1, 1, (2,)), "move": Discrete(4)})
    layout = action_layout(space)
    output = PolicyOutput(
        torch.zeros(1),
        torch.tensor([[0.0, 0.0, 99.0, 0.0]]),
        torch.tensor([[5.0, -5.0]]),
        torch.full((1, 2), 1e-3),
    )

    actions, _ = sample(output, layout, None, rng())

    assert env_actions(output, layout, actions).tolist() == [[2, 1.0, -1.0]]


@pytest.mark.parametrize(
    ("space", "indices", "values"),
    [
        (Discrete(3, start=-1), [0, 2], [-1, 1]),
        (MultiDiscrete([3, 5], start=[7, -1]), [[0, 4], [2, 0]], [[7, 3], [9, -1]]),
    ],
)
def test_an_index_becomes_the_value_it_stands_for(space: Any, indices: Any, values: Any) -> None:
    layout, output = action_layout(space), random_output(space, 2)
    actions = torch.tensor(indices, dtype=torch.int32)

    assert env_actions(output, layout, actions).tolist() == values


def test_choices_need_no_cutting() -> None:
    layout, output = action_layout(Discrete(5)), random_output(Discrete(5), 4)
    actions, _ = sample(output, layout)

    assert env_actions(output, layout, actions) is actions


def test_squashed_log_probability_is_the_change_of_variables() -> None:
    # the bounded components against torch's own tanh in float64, the third is a plain Gaussian
    torch.manual_seed(0)
    mean, std = torch.randn(500, 3), torch.rand(500, 3) + 0.1
    output, layout = squashed(mean, std), action_layout(BOUNDED)

    actions, logprobs = sample(output, layout, None, rng())
    again, _ = evaluate_actions(output, layout, actions)
    sent = env_actions(output, layout, actions)

    center, reach = torch.tensor([0.0, 5.0]).double(), torch.tensor([2.0, 5.0]).double()
    wanted = TransformedDistribution(
        Normal(mean[:, :2].double(), std[:, :2].double()),
        [TanhTransform(), AffineTransform(center, reach)],
    )
    inner = actions[:, :2].double()
    density = Normal(mean[:, 2], std[:, 2]).log_prob(actions[:, 2])
    outer = center + reach * inner.tanh()
    assert_close(sent[:, :2].double(), outer, atol=1e-5, rtol=1e-5)
    assert_close(sent[:, 2], actions[:, 2].clamp(max=3))
    assert_close(logprobs, wanted.log_prob(outer).sum(1).float() + density, atol=1e-3, rtol=1e-4)
    assert_close(again, logprobs, atol=1e-4, rtol=1e-4)


def test_squashed_density_adds_up_to_one() -> None:
    # over a grid of what is drawn: density times the width of what the env gets
    inner = torch.linspace(-9, 9, 20001).unsqueeze(1)
    space = Box(-3, 5, (1,))
    squash = Squash(*middle_and_reach(torch.tensor([-3.0]), torch.tensor([5.0])))
    for mean, std in ((0.0, 1.0), (1.5, 0.4), (-0.5, 2.0)):
        normal = Normal(torch.full_like(inner, mean), std)
        distribution = TransformedDistribution(normal, [squash])
        output = output_of((distribution, torch.zeros(20001)), space, 20001)
        logprobs, _ = evaluate_actions(output, action_layout(space), inner)
        sent = env_actions(output, action_layout(space), inner).double().squeeze(1)
        density = logprobs.double().exp()
        area = ((density[1:] + density[:-1]) / 2 * sent.diff()).sum()

        assert abs(area - 1) < 2e-3


@pytest.mark.parametrize("where", [0.0, 5.0, 12.0, 60.0, -1e4])
def test_squashed_actions_are_finite_at_the_borders(where: float) -> None:
    mean = torch.full((64, 3), where, requires_grad=True)
    log_std = torch.zeros(64, 3, requires_grad=True)
    output, layout = squashed(mean, log_std.exp()), action_layout(BOUNDED)

    actions, logprobs = sample(output, layout, None, rng())
    again, entropy = evaluate_actions(output, layout, actions)
    (again + entropy).sum().backward()

    sent = env_actions(output, layout, actions)
    assert ((sent >= torch.from_numpy(LOW)) & (sent <= torch.from_numpy(HIGH))).all()
    for part in (logprobs, again, entropy, mean.grad, log_std.grad):
        assert part is not None
        assert part.isfinite().all()
    assert torch.equal(likeliest_taken(output, layout), env_actions(output, layout, mean.detach()))


@pytest.mark.parametrize("mean", [0.0, 0.7, -2.0])
@pytest.mark.parametrize("std", [0.1, 0.5, 1.0, 1.5])
def test_squashed_entropy_is_close_to_the_mean_surprise(mean: float, std: float) -> None:
    # 200,000 draws: the standard error of the mean surprise is below 0.006
    count = 200_000
    output = squashed(torch.full((count, 3), mean), torch.full((count, 3), std))
    actions, logprobs = sample(output, action_layout(BOUNDED), None, rng())

    _, entropy = evaluate_actions(output, action_layout(BOUNDED), actions)

    assert abs(entropy[0] + logprobs.mean()) < 0.04
    assert torch.equal(entropy, entropy[:1].expand(count))  # no noise in it


def test_squash_keeps_the_ratio_of_two_policies() -> None:
    # what both policies are stretched by is the same: it must cancel, or PPO would learn it
    mean, std = torch.randn(50, 3), torch.rand(50, 3) + 0.5
    layout = action_layout(BOUNDED)
    old, new = squashed(mean, std), squashed(mean + 0.1, std * 1.1)
    actions, before = sample(old, layout, None, rng())
    after, _ = evaluate_actions(new, layout, actions)

    plain = [Normal(mean + shift, std * scale) for shift, scale in ((0, 1), (0.1, 1.1))]
    wanted = (plain[1].log_prob(actions) - plain[0].log_prob(actions)).sum(1)
    assert_close(after - before, wanted, atol=1e-4, rtol=1e-4)


def test_squash_inverts_and_compares() -> None:
    squash = Squash(*middle_and_reach(torch.from_numpy(LOW), torch.from_numpy(HIGH)))
    other = Squash(*middle_and_reach(torch.from_numpy(LOW), torch.from_numpy(HIGH) + 1))
    x = torch.randn(100, 3)

    assert_close(squash.inv(squash(x)), x, atol=1e-3, rtol=1e-3)
    assert squash == Squash(squash.center, squash.scale, squash.bounded)
    assert squash != other


def test_a_transform_of_an_uncommon_base_is_not_inverted() -> None:
    covariance = torch.tensor([[1.0, 0.5], [0.5, 2.0]])
    base = MultivariateNormal(torch.full((4, 2), 30.0), covariance)  # tanh is 1 there, in float32
    distribution = TransformedDistribution(base, [TanhTransform()])
    space, layout = Box(-1, 1, (2,)), action_layout(Box(-1, 1, (2,)))

    output = output_of((distribution, VALUE), space)
    actions, logprobs = sample(output, layout, None, rng())
    again, entropy = evaluate_actions(output, layout, actions)

    assert (env_actions(output, layout, actions) == 1).all()
    assert (likeliest_taken(output, layout) == 1).all()
    assert logprobs.isfinite().all()
    assert entropy.isfinite().all()
    assert_close(again, logprobs)


def test_a_generator_lent_to_a_distribution_leaves_the_global_one_alone() -> None:
    distribution = Beta(torch.full((4, 2), 2.0), torch.full((4, 2), 3.0))
    output = output_of((distribution, VALUE), Box(0, 1, (2,)))
    layout, generator = action_layout(Box(0, 1, (2,))), rng(3)
    torch.manual_seed(7)
    wanted = torch.rand(3)

    torch.manual_seed(7)
    first, _ = sample(output, layout, None, generator)
    second, _ = sample(output, layout, None, generator)

    assert torch.equal(torch.rand(3), wanted)
    assert not torch.equal(first, second)


def test_processes_draw_apart_from_an_uncommon_distribution() -> None:
    distribution = Beta(torch.full((4, 2), 2.0), torch.full((4, 2), 3.0))
    output = output_of((distribution, VALUE), Box(0, 1, (2,)))
    layout = action_layout(Box(0, 1, (2,)))
    drawn = []
    for rank in (0, 1):
        generator = SlotGenerator(torch.device("cpu"), World(rank, size=2))
        generator.manual_seed(3)
        drawn.append(sample(output, layout, None, generator)[0])
        drawn.append(generator.get_state())

    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(drawn[1], drawn[3])  # both continue from the same state


def test_masks_are_for_the_choices_of_a_mixed_action() -> None:
    space = Tuple((Discrete(3), Box(0, 1, (2,))))
    layout = action_layout(space)
    beta = Beta(torch.full((200, 2), 2.0), torch.full((200, 2), 3.0))
    output = output_of((torch.zeros(200, 3), beta, torch.zeros(200)), space, 200)
    masks = torch.tensor([True, False, True]).expand(200, 3)

    actions, logprobs = sample(output, layout, masks, rng())
    again, entropy = evaluate_actions(output, layout, actions.detach(), masks)

    indices, reals = (torch.from_numpy(part.copy()) for part in layout.split(actions.numpy()))
    assert set(indices.flatten().tolist()) == {0, 2}
    assert_close(logprobs, -math.log(2) + beta.log_prob(reals).sum(1))
    assert_close(again, logprobs)
    assert_close(entropy, math.log(2) + beta.entropy().sum(1))


@pytest.mark.parametrize(
    "result",
    [
        (Categorical(logits=LOGITS[:, :3]), Normal(MEAN, STD), VALUE),
        ([Categorical(logits=LOGITS[:, :3]), Normal(MEAN, STD)], VALUE),
        (LOGITS[:, :3], (MEAN, STD), VALUE),
        ([LOGITS[:, :3]], MEAN, STD, VALUE),
    ],
)
def test_both_kinds_may_come_in_any_usual_form(result: Any) -> None:
    output = output_of(result, Tuple((Discrete(3), Box(-1, 1, (2,)))))

    assert_close(output.logits.softmax(1), LOGITS[:, :3].softmax(1))  # type: ignore[union-attr]
    assert_close(output.mean, MEAN)
    assert_close(output.std, STD)


def test_no_rows_are_rows_too() -> None:
    output = output_of((torch.zeros(0, 5), torch.zeros(0, 1)), Discrete(5), batch=0)
    actions, logprobs = sample(output, action_layout(Discrete(5)))

    assert actions.shape == logprobs.shape == (0,)


# --- agents that wait for their turn --------------------------------------------------------------

BOX = Box(-2, 2, (2,))
WAITING = {
    "box": (BOX, torch.tensor([[True], [False]])),
    "box and choices": (
        Tuple([Discrete(3), BOX]),
        torch.tensor([[True, False, True], [False, False, False]]),
    ),
}


@pytest.mark.parametrize("form", ["gaussian", "squashed", "uncommon"])
@pytest.mark.parametrize("name", WAITING)
def test_an_agent_that_waits_learns_nothing_from_what_it_drew(name: str, form: str) -> None:
    space, masks = WAITING[name]
    layout = action_layout(space)
    mean, std = torch.randn(2, 2, requires_grad=True), torch.rand(2, 2) + 0.5
    std.requires_grad_()
    logits = torch.randn(2, 3, requires_grad=True)
    continuous: Any = (mean, std)
    if form == "squashed":
        squash = Squash(*middle_and_reach(torch.from_numpy(BOX.low), torch.from_numpy(BOX.high)))
        continuous = (TransformedDistribution(Normal(mean, std), [squash]),)
    elif form == "uncommon":
        continuous = (Laplace(mean, std),)
    head = (logits,) if layout.nvec else ()
    output = policy_output((*head, *continuous, torch.zeros(2)), 2, layout)

    actions, logprobs = sample(output, layout, masks)
    again, entropy = evaluate_actions(output, layout, actions.detach(), masks)
    (again.sum() + entropy.sum()).backward()

    assert_close(again, logprobs)
    assert logprobs[0] != 0
    assert (logprobs[1], again[1], entropy[1]) == (0, 0, 0)
    for part in (mean, std, *head):
        assert part.grad is not None
        assert part.grad[0].any()
        assert not part.grad[1].any()
