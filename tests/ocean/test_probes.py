"""The probes do what they are there for: a trainer that is right solves them, and only such a one.

Runs use the settings that `puffer train NAME` has, and stop as soon as the mark is reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pufferlib
from pufferlib import PuffeRL, config
from pufferlib.models import make_policy
from pufferlib.policies.acting import policy_step
from pufferlib.policies.observations import policy_spaces
from pufferlib.runs.evaluation import evaluate_policy


@contextmanager
def training(
    name: str, policy: dict[str, Any] | None = None, seed: int = 1, **settings: Any
) -> Iterator[PuffeRL]:
    """Yield a trainer as the command line makes it, with some of its settings changed."""
    wanted = config.load(name).to_dict()
    envs = wanted["vec"]["num_envs"]
    with pufferlib.make(name, num_envs=envs, num_workers=1, **wanted["env"]) as vecenv:
        torch.manual_seed(seed)
        net = make_policy(vecenv, **{**wanted["policy"], **(policy or {})})
        train = {**wanted["train"], "device": "cpu", "dashboard": "off", **settings}
        with PuffeRL(vecenv, net, **{**train, "seed": seed}) as trainer:
            yield trainer


def train_until(trainer: PuffeRL, perf: float) -> dict[str, float]:
    """Train until a rollout's mean perf is there or the budget is spent; return that rollout's."""
    while True:
        episodes = trainer.evaluate()
        if episodes.get("perf", 0.0) >= perf or trainer.done:
            return episodes
        trainer.train()


# steps are twice what the slowest of three seeds took
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("bandit", 240_000),
        ("password", 160_000),
        ("chain", 200_000),
        ("multiagent", 180_000),
    ],
)
def test_a_probe_is_solved_with_its_own_settings(name: str, steps: int) -> None:
    with training(name) as trainer:
        assert train_until(trainer, 0.9)["perf"] >= 0.9
        assert trainer.steps <= steps


@pytest.mark.slow
def test_both_parts_of_a_hybrid_action_are_learned() -> None:
    with training("hybrid") as trainer:
        first = trainer.evaluate()
        learned = train_until(trainer, 0.95)
    # chance: one lane of three; an aim of deviation 1 is within 0.2 of its target one time in eight
    assert first["lane"] < 0.4
    assert first["aim"] < 0.25
    assert learned["lane"] >= 0.95
    assert learned["aim"] >= 0.95
    assert learned["perf"] >= 0.95


@pytest.mark.slow
def test_the_odds_of_stochastic_are_learned_and_certainty_fails() -> None:
    # 100 choices with odds 0.75: the best memoryless policy has (0.75 - 0.005) / 0.99 = 0.7525, and
    # a mean perf of 1 - 0.1875 / 100 / 0.0625 = 0.97
    with training("stochastic", num_iterations=12) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
        vecenv = trainer.env
        output = policy_step(trainer.policy, torch.ones(1, 1), None, policy_spaces(vecenv))
        assert output.logits is not None
        chosen = float(output.logits.softmax(-1)[0, 1].detach())
        sampled = evaluate_policy(vecenv, trainer.policy, 256)
        greedy = evaluate_policy(vecenv, trainer.policy, 64, deterministic=True)
    assert chosen == pytest.approx(0.7525, abs=0.04)
    assert sampled["perf"] > 0.94
    assert greedy["perf"] == pytest.approx(0, abs=1e-6)


# ---- Masks ---------------------------------------------------------------------------------------


class Stubborn(nn.Module):
    """Wants nothing but what the mask forbids: the more an action is worth, the more it insists."""

    def __init__(self, vecenv: Any, strength: float) -> None:
        super().__init__()
        self.vecenv = vecenv
        self.strength = nn.Parameter(torch.tensor(strength))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        masks = torch.from_numpy(self.vecenv.action_masks)
        forbidden = 1.0 - masks.float() if len(masks) == len(observations) else observations
        return self.strength * (forbidden + observations), observations.sum(1) * self.strength * 0


def sampled_illegal(trainer: PuffeRL) -> int:
    """Count the actions of the last rollout that its masks forbid."""
    masks = trainer.rollout.action_masks
    assert masks is not None
    legal = masks.gather(-1, trainer.rollout.actions.long().unsqueeze(-1))
    return int((~legal).sum())


@pytest.mark.parametrize("strength", [1e-3, 30.0, 1e4, 1e30])
def test_an_illegal_action_is_never_sampled_however_much_it_is_wanted(strength: float) -> None:
    with pufferlib.make("masked", num_envs=512, num_workers=1, num_actions=16) as vecenv:
        policy = Stubborn(vecenv, strength)
        with PuffeRL(
            vecenv, policy, batch_size=32768, seed=1, device="cpu", dashboard="off"
        ) as trainer:
            for _ in range(4):  # 131,072 actions, 13 of 16 illegal in each step
                assert trainer.evaluate()["illegal"] == 0
                assert sampled_illegal(trainer) == 0


@pytest.mark.slow
def test_masked_is_learned_without_one_illegal_action() -> None:
    with training("masked") as trainer:
        perf = 0.0
        while perf < 0.9 and trainer.steps < 200_000:
            rollout = trainer.evaluate()
            perf = rollout["perf"]
            assert rollout["illegal"] == 0
            assert sampled_illegal(trainer) == 0
            trainer.train()
    assert perf >= 0.9


# ---- Memory --------------------------------------------------------------------------------------

every_memory = pytest.mark.parametrize("recurrent", ["lstm", "gru", "mingru"])

# Two histories of each env that end with the same observation, where the right actions differ.
TWINS: dict[str, tuple[list[list[float]], list[list[float]]]] = {
    "tmaze": (
        [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],  # turn left
        [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],  # turn right
    ),
    "memory": (
        [[1], [-1], [0], [0], [0.25]],  # say 1
        [[-1], [-1], [0], [0], [0.25]],  # say 0
    ),
}


def logits_at_the_end(policy: nn.Module, vecenv: Any, name: str) -> Tensor:
    """Return what the policy says after each of the two histories, [2, actions]."""
    spaces = policy_spaces(vecenv)
    rows = np.asarray(TWINS[name], dtype=vecenv.observation_space.dtype)
    state: Any = None
    with torch.no_grad():
        for step in range(rows.shape[1]):
            output = policy_step(policy, torch.from_numpy(rows[:, step]), state, spaces)
            state = output.state
    assert output.logits is not None
    return output.logits


@pytest.mark.parametrize("name", TWINS)
def test_the_histories_are_those_of_the_env_and_ask_for_different_actions(name: str) -> None:
    settings = {"length": 1} if name == "tmaze" else {}
    rights = {"tmaze": ([0, 0, 1], [0, 0, 2]), "memory": ([0, 0, 0, 0, 1], [0, 0, 0, 0, 0])}[name]
    with pufferlib.make(name, num_envs=64, num_workers=1, **settings) as vecenv:
        for history, actions in zip(TWINS[name], rights, strict=True):
            vecenv.reset(seed=3)
            alike = np.ones(64, dtype=bool)
            for row, action in zip(history, actions, strict=True):
                alike &= (vecenv.observations == np.asarray(row, np.float32)).all(1)
                vecenv.step(np.full(64, action))
            assert alike.sum() > 5  # both signs, all strings of two bits are among 64 envs
            assert (vecenv.rewards[alike] == (1 if name == "tmaze" else 0.5)).all()


@pytest.mark.parametrize("name", TWINS)
def test_a_policy_without_memory_cannot_tell_the_histories_apart(name: str) -> None:
    with pufferlib.make(name, num_envs=1, num_workers=1) as vecenv:
        for seed in range(20):
            torch.manual_seed(seed)
            one, other = logits_at_the_end(make_policy(vecenv), vecenv, name)
            assert torch.equal(one, other)


@every_memory
@pytest.mark.parametrize("name", TWINS)
def test_a_policy_with_memory_can(name: str, recurrent: Any) -> None:
    with pufferlib.make(name, num_envs=1, num_workers=1) as vecenv:
        torch.manual_seed(0)
        one, other = logits_at_the_end(make_policy(vecenv, recurrent=recurrent), vecenv, name)
        assert not torch.allclose(one, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "chance", "steps"), [("tmaze", 0.5, 160_000), ("memory", 0.25, 100_000)]
)
def test_training_without_memory_stays_at_chance(name: str, chance: float, steps: int) -> None:
    # The last answer is drawn from the same odds for either history, and each is right in half of
    # all episodes: whatever the odds are, half the turns are right, and a quarter of all two bits.
    # (In tmaze fewer: an agent cut before the junction is never right.) An LSTM is at 0.9 by then.
    with training(name, policy={"recurrent": "none"}) as trainer:
        right = episodes = 0.0
        while trainer.steps < steps:
            rollout = trainer.evaluate()
            right += rollout["perf"] * rollout["episodes"]
            episodes += rollout["episodes"]
            trainer.train()
    deviation = (chance * (1 - chance) / episodes) ** 0.5
    assert right / episodes < chance + 5 * deviation
    assert right / episodes > 0.8 * chance
    assert deviation < 0.01


@pytest.mark.slow
@every_memory
@pytest.mark.parametrize(
    ("name", "settings"), [("tmaze", {"length": 2}), ("memory", {"length": 1, "delay": 2})]
)
def test_a_short_memory_is_learned(name: str, settings: dict[str, Any], recurrent: Any) -> None:
    # the full length takes longer: benchmarks/learning.py
    with pufferlib.make(name, num_envs=64, num_workers=1, **settings) as vecenv:
        torch.manual_seed(1)
        policy = make_policy(vecenv, hidden_size=32, num_layers=1, recurrent=recurrent)
        with PuffeRL(
            vecenv,
            policy,
            seed=1,
            batch_size=2048,
            num_iterations=40,
            learning_rate=1e-2,
            gamma=0.95,
            norm_adv=False,
            device="cpu",
            dashboard="off",
        ) as trainer:
            assert train_until(trainer, 0.95)["perf"] >= 0.95
