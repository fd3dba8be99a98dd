"""A policy in plain torch: what it is given, what it may return, what is said if it misfits."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import Tensor, nn
from torch.distributions import Beta
from torch.testing import assert_close

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.policies.acting import (
    in_eval_mode,
    policy_sequence,
    policy_step,
    prepare_policy,
    takes_state,
)
from pufferlib.policies.distributions import PolicyOutput, evaluate_actions
from pufferlib.policies.observations import PolicySpaces, observation_rows, policy_spaces
from pufferlib.policies.recurrent import make_core, reset_state
from pufferlib.pytorch import LSTMWrapper, layer_init, unflatten_observations
from pufferlib.spaces import (
    action_layout,
    flatten_observation,
    observation_layout,
)

OBS = Box(-1, 1, (3,))


def spaces_of(action_space: Any, observation_space: Any = OBS) -> PolicySpaces:
    return PolicySpaces(observation_layout(observation_space), action_layout(action_space))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Returns(nn.Module):
    """A policy whose forward returns a fixed result."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, observations: Any) -> Any:
        return self.result


def output_of(result: Any, action_space: Any, batch: int = 4) -> PolicyOutput:
    return policy_step(Returns(result), torch.zeros(batch, 3), None, spaces_of(action_space))


# --- layer_init -----------------------------------------------------------------------------------


def test_layer_init_gives_orthogonal_rows_of_the_given_gain() -> None:
    layer = layer_init(nn.Linear(8, 4), std=3.0, bias=0.5)

    assert_close(layer.weight @ layer.weight.t(), 9 * torch.eye(4), atol=1e-5, rtol=0)
    assert (layer.bias == 0.5).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: layer_init(nn.Linear(64, 64)),
        lambda: make_core("lstm", 64, 64, 8),
        lambda: make_core("transformer", 64, 64, 8),
    ],
)
def test_initial_weights_are_the_same_bits_with_any_number_of_threads(
    make: Callable[[], nn.Module],
) -> None:
    before, made = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            made.append(torch.cat([part.detach().flatten() for part in make().parameters()]))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)

    assert torch.equal(made[0], made[1])
    assert torch.equal(made[0], made[2])


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


@pytest.mark.parametrize("space", STRUCTURED, ids=str)
def test_numpy_rows_are_unflattened_into_views(space: Any) -> None:
    rows, values = flat_rows(space, 3)
    array = rows.numpy()

    parts = unflatten_observations(array, space)
    leaf = parts
    while not isinstance(leaf, np.ndarray):
        leaf = next(iter(leaf.values() if isinstance(leaf, dict) else leaf))

    def third(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: third(part) for key, part in tree.items()}
        if isinstance(tree, tuple):
            return tuple(map(third, tree))
        return torch.from_numpy(tree)[2]

    assert np.shares_memory(leaf, array)
    assert_same(third(parts), values[2])
    assert unflatten_observations(array, Box(0, 1, (4,))) is array


def test_what_reset_returns_is_unflattened() -> None:
    space = Dict({"image": Box(0, 255, (2, 2), np.uint8), "count": Discrete(4)})

    class Seen(pufferlib.PufferEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space, self.action_space = space, self.make_discrete(2)

        def reset(self) -> Any:
            return {"image": np.full((2, 2), 7, np.uint8), "count": 3}

        def step(self, action: Any) -> Any:
            return self.reset(), 0.0, False, {}

    with pufferlib.emulate(Seen, num_envs=2) as env:
        parts = unflatten_observations(env.reset(), env.observation_space)
    assert parts["image"].tolist() == [[[7, 7], [7, 7]]] * 2
    assert parts["count"].tolist() == [3, 3]


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


# --- calling a policy -----------------------------------------------------------------------------

LOGITS = torch.arange(20.0).view(4, 5)
VALUE = torch.arange(4.0)


class Remembers(Returns):
    """The same, with a recurrent state."""

    def forward(self, observations: Any, state: Any = None) -> Any:
        return self.result


def test_a_state_without_the_batch_is_refused() -> None:
    policy = Remembers((LOGITS, VALUE, torch.zeros(1, 5, 8)))
    with pytest.raises(UsageError, match=r"batch size 4.*shape \(1, 5, 8\)"):
        policy_step(policy, torch.zeros(4, 3), None, spaces_of(Discrete(5)))


def test_a_state_that_the_policy_would_never_get_back_is_refused() -> None:
    class Forgets(Returns):
        def forward(self, observations: Any, hidden: Any = None) -> Any:
            return self.result

    policy = Forgets((LOGITS, VALUE, torch.zeros(4, 8)))
    with pytest.raises(UsageError, match=r"must take `state`.*forward\(self, observations, hidden"):
        policy_step(policy, torch.zeros(4, 3), None, spaces_of(Discrete(5)))


def test_lazy_layers_get_their_sizes_before_an_optimizer_asks_for_them() -> None:
    policy = nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), Heads())
    prepare_policy(policy, spaces_of(Discrete(5)))
    assert policy[0].weight.shape == (16, 3)
    assert [part.training for part in policy] == [True] * 3
    assert policy[1].num_batches_tracked == 0


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.LazyLinear(5), nn.LazyLinear(1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(features), self.critic(features)


def test_eval_mode_is_left_as_it_was_found() -> None:
    policy = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(2).eval())
    with in_eval_mode(policy):
        assert not any(part.training for part in policy.modules())
    assert [part.training for part in policy.modules()] == [True, True, False]


# --- observations of people -----------------------------------------------------------------------

SEEN = Dict({"image": Box(0, 255, (2, 2), np.uint8), "place": Tuple((OBS, Discrete(9, start=4)))})


def seen(batch: tuple[int, ...]) -> dict[str, Any]:
    image = np.arange(4 * int(np.prod(batch))).reshape(*batch, 2, 2)  # int64 holds bytes as well
    return {"image": image, "place": (np.full((*batch, 3), 0.5), np.full(batch, 7))}


@pytest.mark.parametrize("batch", [(), (1,), (5,)])
def test_values_of_a_structured_space_become_its_rows(batch: tuple[int, ...]) -> None:
    layout, value = observation_layout(SEEN), seen(batch)
    rows = observation_rows(value, layout)
    assert rows.shape == (*batch, *layout.shape)
    parts = unflatten_observations(torch.from_numpy(rows), SEEN)
    assert_close(parts["image"], torch.from_numpy(value["image"]).to(torch.uint8))
    assert (parts["place"][0] == 0.5).all()
    assert (parts["place"][1] == 7).all()
    assert (observation_rows(torch.from_numpy(rows), layout) == rows).all()  # and rows stay rows


@pytest.mark.parametrize(
    ("space", "given", "message"),
    [
        (OBS, np.zeros((4, 5)), r"must have shape \(3,\) or .* but got \(4, 5\)"),
        (OBS, [[0, 0, 0], [0]], "must form one array"),
        (OBS, "text", r"must have shape \(3,\)"),
        (OBS, ["a", "b", "c"], "must be of dtype float32, but got <U1"),
        (Box(0, 255, (3,), np.uint8), [0.5, 0, 0], "must be of dtype uint8, but got float64"),
        (SEEN, {"image": np.zeros((4, 2, 2))}, r"must have the key \['place', 0\]"),
        (
            SEEN,
            {**seen((4,)), "image": np.zeros((3, 2, 2))},
            r"`observations\['place'\]\[0\]` must",
        ),
        (SEEN, {**seen((4,)), "image": np.full((4, 2, 2), 300)}, r"\['image'\]` must be of dtype"),
    ],
)
def test_invalid_observations_raise_one_line(space: Any, given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        observation_rows(given, observation_layout(space))
    assert "\n" not in str(caught.value)


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


def test_agents_are_counted_within_each_env() -> None:
    spaces = spaces_of(Discrete(3))._replace(num_agents=3)

    class Ids(nn.Module):
        def forward(self, observations: Tensor, agent_ids: Tensor) -> Any:
            return observations, agent_ids.float()

    step = policy_step(Ids(), torch.zeros(6, 3), None, spaces)
    given = policy_step(Ids(), torch.zeros(2, 3), None, spaces, torch.tensor([2, 0]))
    sequence = policy_sequence(Ids(), torch.zeros(6, 2, 3), None, None, spaces)
    chosen = policy_sequence(Ids(), torch.zeros(2, 2, 3), None, None, spaces, torch.tensor([2, 0]))

    assert step.value.tolist() == [0, 1, 2, 0, 1, 2]
    assert given.value.tolist() == [2, 0]
    assert sequence.value.tolist() == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
    assert chosen.value.tolist() == [2, 2, 0, 0]


class Layered(nn.Module):
    """Sums what it sees, in a state with its layers first and one with the batch first."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        seen = observations.expand(self.layers, -1, -1)
        total = seen if state is None else state[0] + seen
        count = torch.ones(len(observations), 1) + (0 if state is None else state[1])
        return total[0], count, (total, count)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_states_with_layers_first_are_kept_with_the_batch_first(layers: int, batch: int) -> None:
    # where there are as many layers as rows, the shape alone does not show which is which
    policy, spaces = Layered(layers), spaces_of(Discrete(3))
    rows = torch.arange(batch * 3.0).view(batch, 3)

    first = policy_step(policy, rows, None, spaces)
    zeroed = reset_state(first.state, torch.arange(batch) == batch - 1)
    second = policy_step(policy, rows, zeroed, spaces)

    assert first.state[0].shape == (batch, layers, 3)
    assert first.state[1].shape == (batch, 1)
    wanted = 2 * rows
    wanted[-1] = rows[-1]
    assert_close(second.logits, wanted)
    assert second.value.tolist() == [2.0] * (batch - 1) + [1.0]


def test_a_segment_is_unrolled_with_layers_first_too() -> None:
    resets = torch.tensor([[False, False, True, False], [False] * 4])

    output = policy_sequence(Layered(2), torch.ones(2, 4, 3), None, resets, spaces_of(Discrete(3)))

    assert output.value.tolist() == [1, 2, 1, 2, 1, 2, 3, 4]
    assert output.logits is not None
    assert output.logits[:, 0].tolist() == [1, 2, 1, 2, 1, 2, 3, 4]


def test_uncommon_distributions_of_a_recurrent_policy_are_judged_step_by_step() -> None:
    class Sure(nn.Module):
        def forward(self, observations: Tensor, state: Any = None) -> Any:
            total = observations[:, :2] + (0 if state is None else state)
            return Beta(total + 1, total + 2), total[:, 0], total

    space = Box(0, 1, (2,))
    layout, observations = action_layout(space), torch.rand(3, 4, 3)
    output = policy_sequence(Sure(), observations, None, None, spaces_of(space))
    actions = torch.rand(12, 2)

    logprobs, entropy = evaluate_actions(output, layout, actions)

    totals = observations[:, :, :2].cumsum(1).flatten(0, 1)
    wanted = Beta(totals + 1, totals + 2)
    assert_close(output.value, totals[:, 0])
    assert_close(logprobs, wanted.log_prob(actions).sum(1))
    assert_close(entropy, wanted.entropy().sum(1))


# --- recurrent policies ---------------------------------------------------------------------------

SPACES = spaces_of(Discrete(3))
ENV = SimpleNamespace(observation_space=OBS, action_space=Discrete(3))


class Sums(nn.Module):
    """Remembers the sum of what it saw, in a nested state."""

    def forward(self, obs: Tensor, state: Any = None) -> Any:
        total = obs if state is None else state["total"][0] + obs
        return total, total[:, :1], {"total": (total,)}


class TwoParts(nn.Module):
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
    policy = LSTMWrapper(ENV, TwoParts())
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
    policy = LSTMWrapper(ENV, TwoParts())
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
    policy, parts = LSTMWrapper(ENV, TwoParts()), TwoParts()

    extra = sum(p.numel() for p in policy.parameters()) - sum(p.numel() for p in parts.parameters())

    assert extra == 4 * 8 * (8 + 8 + 2)


def test_lstm_may_be_wider_than_the_features() -> None:
    policy = LSTMWrapper(ENV, TwoParts(width=16), hidden_size=16)

    output = policy_step(policy, torch.zeros(4, 3), None, SPACES)

    assert output.state[0].shape == (4, 16)


def test_a_policy_without_encode_and_decode_cannot_be_wrapped() -> None:
    with pytest.raises(UsageError, match="has no `encode`"):
        LSTMWrapper(ENV, Returns(None))


def test_reset_forgets_even_nan() -> None:
    state = (torch.full((2, 3), torch.nan), torch.ones(2))

    zeroed = reset_state(state, torch.tensor([True, False]))

    assert (zeroed[0][0] == 0).all()
    assert zeroed[1].tolist() == [0, 1]
    assert reset_state(None, torch.tensor([True])) is None


# ---- What torch says of a policy that does not fit -----------------------------------------------


class Narrow(nn.Module):
    """A linear policy for rows of `width` floats."""

    def __init__(self, width: int, prepare: Callable[[Tensor], Tensor] = lambda rows: rows) -> None:
        super().__init__()
        self.prepare, self.first = prepare, nn.Linear(width, 8)
        self.actor, self.critic = nn.Linear(8, 5), nn.Linear(8, 1)

    def encode(self, observations: Tensor) -> Tensor:
        features: Tensor = self.first(self.prepare(observations))
        return features

    def decode(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(features), self.critic(features)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.decode(self.encode(observations))


@pytest.mark.parametrize(
    ("env", "policy", "said"),
    [
        (
            "squared",
            Narrow(49, lambda rows: rows.flatten(1)),
            "`forward` must take observations of shape (8, 7, 7) uint8, but raised: mat1 and mat2 "
            "must have the same dtype, but got Byte and Float. Try `.float()` before the first "
            "layer.",
        ),
        (
            "squared",
            Narrow(49, torch.Tensor.float),
            "`forward` must take observations of shape (8, 7, 7) uint8, but raised: mat1 and mat2 "
            "shapes cannot be multiplied (56x7 and 49x8). Try `.flatten(1)`, or layers of that "
            "shape.",
        ),
        (
            "cartpole",
            Narrow(5),
            "`forward` must take observations of shape (8, 4) float32, but raised: mat1 and mat2 "
            "shapes cannot be multiplied (8x4 and 5x8). Try a first layer of that width.",
        ),
    ],
)
def test_a_policy_that_does_not_fit_gets_the_observations_in_one_line(
    env: str, policy: nn.Module, said: str
) -> None:
    with pufferlib.make(env, num_envs=8) as vecenv:
        with pytest.raises(UsageError, match=f"^{re.escape(said)}$") as caught:
            pufferlib.PuffeRL(vecenv, policy, batch_size=64, dashboard="off").evaluate()
        assert isinstance(caught.value.__cause__, RuntimeError)  # the line of the policy is in it


def test_a_wrapper_around_a_policy_that_does_not_fit_says_so_too() -> None:
    with (
        pufferlib.make("cartpole", num_envs=8) as vecenv,
        pytest.raises(
            UsageError, match=r"^`encode` must take observations of shape \(2, 4\) float"
        ),
    ):
        LSTMWrapper(vecenv, Narrow(5))


def test_other_errors_of_a_policy_stay_as_they_are() -> None:
    def fail(rows: Tensor) -> Tensor:
        raise RuntimeError("out of luck")

    spaces = spaces_of(Discrete(5), Box(-1, 1, (4,)))
    with pytest.raises(RuntimeError, match=r"^out of luck$"):
        policy_step(Narrow(4, fail), torch.zeros(2, 4), None, spaces)
