"""Every form that a policy may have, each trained until it has learnt something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import Tensor, nn
from torch.distributions import (
    AffineTransform,
    Beta,
    Categorical,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.models import make_policy
from pufferlib.policies.acting import policy_sequence, policy_step, takes_state
from pufferlib.policies.observations import policy_spaces
from pufferlib.policies.squash import Squash, middle_and_reach
from pufferlib.pytorch import LSTMWrapper, layer_init
from pufferlib.spaces import action_layout, flatten_observation, observation_layout
from pufferlib.vectorization import Serial, VectorEnv

CUES = 4


class Cues(pufferlib.PufferEnv):
    """Shows each agent one of four cues and pays at once for what it does: no episode goes on.

    A choice is right if it equals the cue, modulo its number of choices; a number should lie at
    cue / 3 of the way from its lower bound to its upper. All components count alike, the best
    answer earns 1 in all.
    """

    def __init__(self, observation_space: Any, action_space: Any, cues: list[Any]) -> None:
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.num_agents = 64
        super().__init__()
        self.layout = action_layout(action_space)
        seen = observation_layout(observation_space)
        self.rows = np.zeros((CUES, *seen.shape), seen.dtype)
        for cue, value in enumerate(cues):
            flatten_observation(seen, value, self.rows[cue, ...])

    def reset(self, seed: int | None = None) -> Any:
        self.rng = np.random.default_rng(seed)
        self.look()
        return self.observations, []

    def look(self) -> None:
        self.cues = self.rng.integers(CUES, size=self.num_agents)
        self.observations[:] = self.rows[self.cues]

    def step(self, actions: Any) -> Any:
        indices, reals = self.layout.split(self.actions)
        low, high = self.layout.low, self.layout.high
        assert ((reals >= low) & (reals <= high)).all()
        right = indices == self.cues[:, None] % np.array(self.layout.nvec, int).reshape(1, -1)
        aims = low + (high - low) * self.cues[:, None] / (CUES - 1)
        near = 1 - np.abs(reals - aims) / (high - low)
        self.rewards[:] = np.concatenate((right, near), 1).mean(1)
        self.terminals[:] = True
        self.look()
        return self.observations, self.rewards, self.terminals, self.truncations, []


ONE_HOT = Box(0, 1, (CUES,), np.float32)


def cues(action_space: Any, observation_space: Any = ONE_HOT, values: Any = None) -> VectorEnv:
    shown = list(np.eye(CUES, dtype=np.float32)) if values is None else values
    return Serial(lambda: Cues(observation_space, action_space, shown), 1)


def best_of(
    vecenv: VectorEnv,
    policy: nn.Module | None,
    wanted: float,
    key: str = "mean_reward",
    iterations: int = 40,
    **settings: Any,
) -> float:
    """Train until `key` reaches `wanted`; return the best it got to."""
    defaults: dict[str, Any] = {"learning_rate": 3e-3, "ent_coef": 0.001}
    best = -np.inf
    with (
        vecenv,
        pufferlib.PuffeRL(
            vecenv, policy, seed=1, device="cpu", dashboard="off", **(defaults | settings)
        ) as trainer,
    ):
        for _ in range(iterations):
            best = max(best, trainer.evaluate().get(key, -np.inf))
            if best >= wanted:
                break
            trainer.train()
    return best


def learnt(vecenv: VectorEnv, policy: nn.Module | None = None, wanted: float = 0.9) -> bool:
    return best_of(vecenv, policy, wanted, batch_size=1024) >= wanted


class Body(nn.Module):
    """Two layers of tanh, and values that come as `[B, 1]`."""

    def __init__(self, num_inputs: int, num_outputs: int, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.encoder = nn.Sequential(
            layer_init(nn.Linear(num_inputs, width)),
            nn.Tanh(),
            layer_init(nn.Linear(width, width)),
            nn.Tanh(),
        )
        self.actor = layer_init(nn.Linear(width, num_outputs), std=0.01)
        self.critic = layer_init(nn.Linear(width, 1), std=1.0)

    def forward(self, observations: Tensor) -> Any:
        features = self.encoder(observations)
        return self.actor(features), self.critic(features)


# --- one step at a time ---------------------------------------------------------------------------


def cartpole(**settings: Any) -> VectorEnv:
    return pufferlib.make("cartpole", num_envs=32, num_workers=1, **settings)


def balances(policy: nn.Module, wanted: float = 60.0, **settings: Any) -> bool:
    """Random play lasts for 22 steps; a mean of 60 is more than luck can do."""
    given = {"batch_size": 2048, "learning_rate": 5e-3, "reward_scale": 0.1} | settings
    return best_of(cartpole(), policy, wanted, **given) >= wanted


def test_logits_and_a_value_of_two_dimensions() -> None:
    assert balances(Body(4, 2))


def test_values_without_the_last_dimension() -> None:
    class Flat(Body):
        def forward(self, observations: Tensor) -> Any:
            logits, value = super().forward(observations)
            return logits, value.squeeze(1)

    assert balances(Flat(4, 2))


class Parted(nn.Module):
    """A `forward` of two parts, which LSTMWrapper may call one by one; its `state` is unused."""

    def __init__(self, num_inputs: int, num_outputs: int, width: int = 32) -> None:
        super().__init__()
        self.body = Body(num_inputs, num_outputs, width)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        hidden = self.encode_observations(observations, state=state)
        return self.decode_actions(hidden)

    def encode_observations(self, observations: Tensor, state: Any = None) -> Tensor:
        features: Tensor = self.body.encoder(observations)
        return features

    def decode_actions(self, hidden: Tensor) -> Any:
        return self.body.actor(hidden), self.body.critic(hidden)


def test_forward_is_called_where_decode_actions_takes_features() -> None:
    assert balances(Parted(4, 2))


def test_forward_that_returns_no_state_gets_all_steps_at_once() -> None:
    policy, env = Parted(4, 2), cartpole()
    with env, pufferlib.PuffeRL(env, policy, batch_size=256, num_iterations=1) as trainer:
        trainer.evaluate()
        assert not takes_state(policy)
        trainer.train()


def test_an_lstm_stands_between_the_two_parts() -> None:
    env = cartpole()
    policy = LSTMWrapper(env, Parted(4, 2, width=16), input_size=16, hidden_size=16)
    assert takes_state(policy)
    observations = torch.randn(3, 5, 4)
    spaces = policy_spaces(env)
    whole = policy_sequence(policy, observations, None, None, spaces)
    state, steps = None, []
    for t in range(5):
        output = policy_step(policy, observations[:, t], state, spaces)
        state = output.state
        steps.append(output.value)
    torch.testing.assert_close(whole.value.view(3, 5), torch.stack(steps, 1))
    with env, pufferlib.PuffeRL(env, policy, batch_size=256, num_iterations=1) as trainer:
        trainer.evaluate()
        assert np.isfinite(trainer.train()["policy_loss"])


def test_an_input_size_that_is_not_that_of_the_features_is_refused() -> None:
    with cartpole() as env, pytest.raises(UsageError, match=r"`input_size` must be 32.*but got 64"):
        LSTMWrapper(env, Parted(4, 2), input_size=64, hidden_size=32)


@pytest.mark.slow
def test_a_compiled_policy() -> None:
    policy = torch.compile(Body(4, 2), backend="eager")

    assert balances(policy)  # type: ignore[arg-type]


def test_statistics_that_need_no_gradient() -> None:
    class Normalised(Body):
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)
            self.std = nn.Parameter(torch.full((4,), 0.5), requires_grad=False)

        def forward(self, observations: Tensor) -> Any:
            return super().forward((observations - self.mean) / self.std)

    policy = Normalised()

    assert balances(policy)
    assert_all_equal(policy.std, 0.5)


def assert_all_equal(tensor: Tensor, number: float) -> None:
    assert (tensor == number).all()


@pytest.mark.slow
@pytest.mark.parametrize("apart", [False, True])
def test_several_choices_at_once(apart: bool) -> None:
    class Several(Body):
        def forward(self, observations: Tensor) -> Any:
            logits, value = super().forward(observations)
            return (list(logits.split([4, 3, 2], 1)) if apart else logits), value

    assert learnt(cues(MultiDiscrete([4, 3, 2])), Several(CUES, 9))


@pytest.mark.slow
def test_a_mean_and_one_deviation_for_all_states() -> None:
    class Gaussian(Body):
        def __init__(self) -> None:
            super().__init__(CUES, 2)
            self.log_std = nn.Parameter(torch.zeros(1, 2))

        def forward(self, observations: Tensor) -> Any:
            mean, value = super().forward(observations)
            return mean, self.log_std.exp(), value

    assert learnt(cues(Box(-1, 1, (2,))), Gaussian())


class Squashed(Body):
    """Returns a distribution of Box actions in [-3, 5]."""

    def __init__(self, kind: str) -> None:
        super().__init__(CUES, 4)
        self.kind = kind

    def forward(self, observations: Tensor) -> Any:
        outputs, value = super().forward(observations)
        mean, log_std = outputs.chunk(2, 1)
        normal = Normal(mean, log_std.exp())
        if self.kind == "normal":
            return normal, value
        if self.kind == "independent":
            return Independent(normal, 1), value
        if self.kind == "tanh":
            to_bounds = [TanhTransform(), AffineTransform(1.0, 4.0)]
            return TransformedDistribution(normal, to_bounds), value
        if self.kind == "tanh, cached":
            to_bounds = [TanhTransform(cache_size=1), AffineTransform(1.0, 4.0, cache_size=1)]
            return TransformedDistribution(Independent(normal, 1), to_bounds), value
        if self.kind == "squash":
            bounds = middle_and_reach(torch.full((2,), -3.0), torch.full((2,), 5.0))
            return TransformedDistribution(normal, [Squash(*bounds)]), value
        first, second = (nn.functional.softplus(part) + 1 for part in (mean, log_std))
        beta = Beta(first, second)
        return TransformedDistribution(beta, [AffineTransform(-3.0, 8.0)]), value


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["normal", "independent", "tanh", "tanh, cached", "squash", "beta"]
)
def test_box_actions_by_a_distribution(kind: str) -> None:
    assert learnt(cues(Box(-3, 5, (2,))), Squashed(kind), wanted=0.85)


def test_choices_by_a_distribution() -> None:
    class Chooses(Body):
        def forward(self, observations: Tensor) -> Any:
            logits, value = super().forward(observations)
            return Categorical(logits=logits), value

    assert balances(Chooses(4, 2))


def test_a_categorical_is_masked_like_logits() -> None:
    class Chooses(Body):
        def forward(self, observations: Tensor) -> Any:
            logits, value = super().forward(observations)
            return Categorical(logits=logits), value

    with pufferlib.make("masked", num_envs=64, num_workers=1) as vecenv:
        space: Any = vecenv.single_observation_space
        policy = Chooses(space.shape[0], vecenv.single_action_space.n)  # type: ignore[attr-defined]
        trainer = pufferlib.PuffeRL(
            vecenv,
            policy,
            batch_size=2048,
            num_steps=16,
            learning_rate=1e-2,
            gamma=0.0,
            device="cpu",
            dashboard="off",
        )
        best = 0.0
        for _ in range(20):
            best = max(best, trainer.evaluate().get("perf", 0.0))
            if best > 0.9:
                break
            rollout = trainer.rollout
            assert rollout.action_masks is not None
            legal = rollout.action_masks.gather(-1, rollout.actions.long().unsqueeze(-1))
            assert legal.all()
            assert not rollout.action_masks.all()
            trainer.train()
    assert best > 0.9


@pytest.mark.parametrize(
    "action_space",
    [
        MultiBinary(3),
        Dict({"move": Discrete(4), "aim": Box(-2, 2, (2,))}),
        Tuple((MultiDiscrete([2, 3]), Box(0, 1, ()), Discrete(2))),
    ],
    ids=["multi-binary", "dict", "tuple"],
)
@pytest.mark.parametrize("squash", [False, True])
def test_default_policy_learns_every_kind_of_action(action_space: Any, squash: bool) -> None:
    torch.manual_seed(1)
    vecenv = cues(action_space)

    assert learnt(vecenv, make_policy(vecenv, squash=squash))


def test_both_kinds_of_actions_from_a_policy_of_ones_own() -> None:
    class Both(Body):
        def __init__(self) -> None:
            super().__init__(4, 4)
            self.log_std = nn.Parameter(torch.tensor([-0.7]))

        def forward(self, observations: Tensor) -> Any:
            outputs, value = super().forward(observations)
            logits, mean = outputs[:, :3], outputs[:, 3:]
            return Categorical(logits=logits), Normal(mean, self.log_std.exp()), value

    vecenv = pufferlib.make("hybrid", num_envs=64, num_workers=1)
    best = best_of(vecenv, Both(), 0.6, "perf", batch_size=2048, num_steps=16, gamma=0.0)

    assert best >= 0.6  # a third of the lanes and a fifth of the aims are right by chance


IMAGES = np.zeros((CUES, 9, 7, 3), np.uint8)
for corner in range(CUES):
    IMAGES[corner, 5 * (corner // 2) :, 4 * (corner % 2) :, corner % 3] = 255


@pytest.mark.slow
@pytest.mark.parametrize(
    ("observation_space", "values"),
    [
        (Discrete(CUES, start=3), [np.int64(3 + cue) for cue in range(CUES)]),
        (Discrete(5000), [np.int64(1000 * cue) for cue in range(CUES)]),
        (MultiDiscrete([2, 2]), [np.array([cue // 2, cue % 2]) for cue in range(CUES)]),
        (MultiBinary(2), [np.array([cue // 2, cue % 2], np.int8) for cue in range(CUES)]),
        (Box(0, 255, (9, 7, 3), np.uint8), list(IMAGES)),
        (Box(0, 255, (3, 9, 7), np.uint8), list(IMAGES.transpose(0, 3, 1, 2).copy())),
        (
            Dict({"image": Box(0, 255, (9, 7, 3), np.uint8), "half": Discrete(2)}),
            [{"image": IMAGES[cue // 2], "half": np.int64(cue % 2)} for cue in range(CUES)],
        ),
        (
            Tuple((Box(-1, 1, (1,)), Dict({"half": MultiBinary(1)}))),
            [
                (np.array([cue // 2], np.float32), {"half": np.array([cue % 2], np.int8)})
                for cue in range(CUES)
            ],
        ),
    ],
    ids=[
        "discrete",
        "large discrete",
        "multi-discrete",
        "multi-binary",
        "image",
        "channels first",
        "dict",
        "tuple",
    ],
)
def test_default_policy_learns_every_kind_of_observation(
    observation_space: Any, values: list[Any]
) -> None:
    torch.manual_seed(1)
    vecenv = cues(Discrete(CUES), observation_space, values)

    assert learnt(vecenv, make_policy(vecenv, hidden_size=32))


def test_a_dict_of_tensors_for_a_policy_of_ones_own() -> None:
    space = Dict({"image": Box(0, 255, (9, 7, 3), np.uint8), "half": Box(0, 1, (1,))})
    values = [
        {"image": IMAGES[cue // 2], "half": np.array([cue % 2], np.float32)} for cue in range(CUES)
    ]

    class Joins(Body):
        def forward(self, observations: Any) -> Any:
            pixels = observations["image"].float().flatten(1) / 255
            return super().forward(torch.cat((pixels, observations["half"]), 1))

    assert learnt(cues(Discrete(CUES), space, values), Joins(9 * 7 * 3 + 1, CUES))


class PerAgent(nn.Module):
    """A net for each agent; all that it sees of its light is whether it is on."""

    def __init__(self, aware: bool) -> None:
        super().__init__()
        self.nets = nn.ModuleList(Body(1, 2) for _ in range(2))
        self.aware = aware

    def forward(self, observations: Tensor, agent_ids: Tensor) -> Any:
        answers = [net(observations.sign()) for net in self.nets]
        logits, values = (torch.stack(parts, 1) for parts in zip(*answers, strict=True))
        rows = torch.arange(len(observations))
        ids = agent_ids if self.aware else torch.zeros_like(agent_ids)
        return logits[rows, ids], values[rows, ids]


@pytest.mark.parametrize("aware", [True, False])
def test_parameters_for_each_agent(aware: bool) -> None:
    # the agents' rules are opposite, so one rule for both is right for one of them at a time
    vecenv = pufferlib.make("multiagent", num_envs=32, num_workers=1)
    iterations = 15 if aware else 5
    best = best_of(vecenv, PerAgent(aware), 0.9, "perf", iterations, batch_size=2048, num_steps=8)

    assert (best >= 0.9) is aware
    assert best < 0.4 or aware


# --- recurrent policies ---------------------------------------------------------------------------


class ShowsOnce(nn.Module):
    """Common parts of recurrent policies of users: an encoder and heads."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.width = width
        self.encoder = nn.Sequential(layer_init(nn.Linear(1, width)), nn.ReLU())
        self.actor = layer_init(nn.Linear(width, 2), std=0.01)
        self.critic = layer_init(nn.Linear(width, 1), std=1.0)


class Layers(ShowsOnce):
    """Returns the state as nn.LSTM does: layers first."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(self.width, self.width, num_layers=2)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        outputs, state = self.lstm(self.encoder(observations).unsqueeze(0), state)
        return self.actor(outputs[0]), self.critic(outputs[0]), state


class Nested(ShowsOnce):
    """Has a state of dicts, lists and tuples, the batch first."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(self.width, self.width)

    def forward(self, observations: Tensor, state: Any = None) -> Any:
        hidden = None if state is None else state["memory"][0][0]
        hidden = self.cell(self.encoder(observations), hidden)
        state = {"memory": [(hidden,)], "count": torch.ones(len(observations))}
        return Categorical(logits=self.actor(hidden)), self.critic(hidden), state


class TwoPart(ShowsOnce):
    """Steps by a cell and trains by layers, as two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm_cell = nn.LSTMCell(self.width, self.width)
        self.lstm = nn.LSTM(self.width, self.width)

    def encode_observations(self, observations: Tensor, state: Any) -> Any:
        hidden, cell = self.lstm_cell(self.encoder(observations), state)
        return self.actor(hidden), self.critic(hidden), (hidden, cell)

    def decode_actions(self, observations: Tensor, actions: Tensor, state: Any) -> Any:
        length, batch = observations.shape[:2]
        assert actions.shape == (length, batch)
        features = self.encoder(observations.reshape(length * batch, -1)).view(length, batch, -1)
        outputs, state = self.lstm(features, state)
        outputs = outputs.reshape(length * batch, -1)
        return self.actor(outputs), self.critic(outputs), state


def remembers(policy: nn.Module, **settings: Any) -> float:
    """Show a bit, then ask for it: guessing is right half the time."""
    vecenv = pufferlib.make("memory", num_envs=64, num_workers=1, length=1, delay=1)
    given = {"batch_size": 1024, "num_steps": 16, "gamma": 0.9, "ent_coef": 0.01} | settings
    return best_of(vecenv, policy, 0.95, "perf", **given)


@pytest.mark.slow
@pytest.mark.parametrize("policy_type", [Layers, Nested, TwoPart])
def test_recurrent_policies_of_ones_own(policy_type: Any) -> None:
    assert remembers(policy_type(), learning_rate=2e-2) >= 0.95


@pytest.mark.parametrize("recurrent", ["lstm", "gru", "mingru", "transformer"])
def test_default_recurrent_policies_use_earlier_observations(recurrent: Any) -> None:
    with pufferlib.make("memory", num_envs=2, num_workers=1) as vecenv:
        torch.manual_seed(1)
        policy = make_policy(vecenv, 24, 1, recurrent, context=6)

    assert remembers(policy) >= 0.95


def test_a_policy_without_state_ignores_earlier_observations() -> None:
    with pufferlib.make("memory", num_envs=2, num_workers=1) as vecenv:
        policy = make_policy(vecenv, 24, 1)

    assert remembers(policy, iterations=12) < 0.65


def test_what_trains_is_what_played() -> None:
    # one update over all: before it, the ratio of new and old policy is 1 everywhere
    for policy in (Layers(), Nested(), TwoPart()):
        with pufferlib.make("memory", num_envs=16, num_workers=1, length=1, delay=1) as vecenv:
            trainer = pufferlib.PuffeRL(
                vecenv,
                policy,
                batch_size=512,
                minibatch_size=512,
                num_steps=8,
                n_epochs=1,
                device="cpu",
                dashboard="off",
            )
            for _ in range(2):  # the second rollout begins in the middle of episodes
                trainer.evaluate()
                losses = trainer.train()
                assert losses["approx_kl"] < 1e-7, type(policy)
                assert losses["clipfrac"] == 0
            trainer.close()
