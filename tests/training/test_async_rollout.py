"""Rollouts of batches that come in any order: every segment is one slot's unbroken story."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

import pufferlib
from pufferlib.config import BatchShape
from pufferlib.policies.acting import Actor
from pufferlib.policies.observations import policy_spaces
from pufferlib.training.async_rollout import AsyncRollout, collect_async
from pufferlib.training.ppo import Steps, compute_advantages, without_rho
from pufferlib.training.profiling import Profiler
from pufferlib.training.rollout import RolloutSizes, begin
from pufferlib.vectorization import Batch, Serial, VectorEnv

NUM_ENVS, SURPLUS, LENGTH, GAP = 4, 6, 7, 1000


class Shuffled(VectorEnv):
    """Slot s observes GAP * s + its number of steps; episodes are cut after LENGTH of them.

    A batch is any NUM_ENVS of the slots that are ready, in an order of its own. The reward of a
    step is the number of steps before it, the final observation is a half more than usual.
    """

    num_envs, surplus_envs = NUM_ENVS, SURPLUS
    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Discrete(2)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.ticks = np.zeros(self.num_agents, dtype=np.int64)

    def reset(self, seed: int | None = None) -> Any:
        self.ticks[:] = 0
        self.waiting = list(range(self.num_agents))
        self.rewards = np.zeros(self.num_agents, dtype=np.float32)
        self.truncations = np.zeros(self.num_agents, dtype=np.bool_)
        self.final_observations = np.zeros((self.num_agents, 1), dtype=np.float32)
        return self._seen()

    def _seen(self) -> Any:
        within = self.ticks % LENGTH
        return (GAP * np.arange(self.num_agents) + within).astype(np.float32)[:, None]

    def recv(self) -> Batch:
        chosen = self.rng.permutation(len(self.waiting))[:NUM_ENVS]
        slots = np.array([self.waiting[i] for i in chosen])
        self.waiting = [slot for slot in self.waiting if slot not in slots]
        self.at_hand = slots
        none = np.zeros(NUM_ENVS, dtype=np.bool_)
        return Batch(
            slots,
            self._seen()[slots],
            self.rewards[slots],
            none,
            self.truncations[slots],
            ~none,
            [{}] * NUM_ENVS,
        )

    def send(self, actions: Any) -> None:
        assert len(actions) == NUM_ENVS
        for slot in self.at_hand:
            self.rewards[slot] = self.ticks[slot] % LENGTH
            self.ticks[slot] += 1
            self.truncations[slot] = self.ticks[slot] % LENGTH == 0
            self.final_observations[slot] = GAP * slot + LENGTH + 0.5
            self.waiting.append(int(slot))


class Recalling(nn.Module):
    """Values what it sees; remembers how many steps of this episode it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, obs: Tensor, state: Any = None) -> tuple[Tensor, Tensor, Any]:
        (count,) = (obs.new_zeros(len(obs), 1),) if state is None else state
        return torch.zeros(len(obs), 2) + self.weight, obs[:, 0], (count + 1,)


class Leaving(Shuffled):
    """After an end its slot is empty for two steps."""

    def recv(self) -> Batch:
        batch = super().recv()
        within = self.ticks[batch.slots] % LENGTH
        return batch._replace(masks=~((self.ticks[batch.slots] >= LENGTH) & (within < 2)))


def test_who_left_at_an_end_comes_back_without_a_memory() -> None:
    env, policy, cpu = Leaving(), Recalling(), torch.device("cpu")
    env.reset(seed=0)
    spaces = policy_spaces(env)
    shape = BatchShape(segments=40, horizon=2 * LENGTH + 3, minibatches=1)
    rollout = AsyncRollout(RolloutSizes(shape, env.num_agents, spaces, cpu, False))
    rng = torch.Generator().manual_seed(0)
    actor = Actor(policy, spaces, cpu, generator=rng)
    collect_async(env, actor, rollout, begin(env, cpu), Profiler())

    ticks = rollout.observations[..., 0] - GAP * rollout.slots[:, None]
    first = ticks[:, 0] == 0
    assert first.sum() >= env.num_agents
    begun = rollout.resets[first]
    # steps 7 and 8 are empty, and so are 14 and 15: a memory is empty before 7, 8, 9, 14, 15, 16
    wanted = [0, 7, 8, 9, 14, 15, 16]
    assert (begun == torch.tensor([t in wanted for t in range(2 * LENGTH + 3)])).all()


@pytest.fixture(scope="module")
def rollouts() -> list[dict[str, Any]]:
    """Return the parts of three rollouts in a row."""
    env, policy = Shuffled(), Recalling()
    env.reset(seed=0)
    spaces = policy_spaces(env)
    shape = BatchShape(segments=12, horizon=5, minibatches=1)
    cpu = torch.device("cpu")
    rollout = AsyncRollout(RolloutSizes(shape, env.num_agents, spaces, cpu, False))
    carry, kept = begin(env, cpu), []
    for _ in range(3):
        actor = Actor(policy, spaces, cpu, generator=torch.Generator().manual_seed(0))
        carry = collect_async(env, actor, rollout, carry, Profiler())
        names = ("observations", "rewards", "values", "truncations", "final_values", "resets")
        parts = {name: getattr(rollout, name).clone() for name in (*names, "bootstrap", "slots")}
        state: Any = rollout.initial_state()
        kept.append({**parts, "memory": state[0].clone()})
    return kept


def test_a_segment_is_one_slot_step_by_step(rollouts: list[dict[str, Any]]) -> None:
    for parts in rollouts:
        ticks = parts["observations"][..., 0] - GAP * parts["slots"][:, None]
        assert ((ticks >= 0) & (ticks < LENGTH)).all()
        assert torch.equal(ticks[:, 1:], (ticks[:, :-1] + 1) % LENGTH)


def test_no_step_of_a_slot_is_lost_or_seen_twice(rollouts: list[dict[str, Any]]) -> None:
    seen: dict[int, list[int]] = {}
    for parts in rollouts:
        for slot, row in zip(parts["slots"].tolist(), parts["observations"][..., 0], strict=True):
            seen.setdefault(slot, []).extend((row - GAP * slot).int().tolist())
    assert sum(map(len, seen.values())) == 3 * 12 * 5
    for ticks in seen.values():
        assert ticks == [t % LENGTH for t in range(len(ticks))]


def test_rewards_and_ends_belong_to_the_action_before_them(rollouts: list[dict[str, Any]]) -> None:
    for parts in rollouts:
        ticks = parts["observations"][..., 0] - GAP * parts["slots"][:, None]
        assert torch.equal(parts["rewards"], ticks)
        assert torch.equal(parts["truncations"], ticks == LENGTH - 1)
        assert torch.equal(parts["resets"], ticks == 0)


def test_values_after_a_segment_and_after_a_cut_are_those_of_what_followed(
    rollouts: list[dict[str, Any]],
) -> None:
    for parts in rollouts:
        base = GAP * parts["slots"].float()
        last = parts["observations"][:, -1, 0] - base
        assert torch.equal(parts["bootstrap"] - base, (last + 1) % LENGTH)
        finals = torch.where(parts["truncations"], base[:, None] + LENGTH + 0.5, 0.0)
        assert torch.equal(parts["final_values"], finals)


def test_memory_before_a_segment_is_that_of_its_slot(rollouts: list[dict[str, Any]]) -> None:
    for parts in rollouts:
        first = parts["observations"][:, 0, 0] - GAP * parts["slots"]
        assert torch.equal(parts["memory"][:, 0], first)


def test_waves_order_the_segments_of_each_slot_in_time(rollouts: list[dict[str, Any]]) -> None:
    shape = BatchShape(segments=5, horizon=2, minibatches=1)
    rollout = AsyncRollout(
        RolloutSizes(shape, 3, policy_spaces(Shuffled()), torch.device("cpu"), False)
    )
    rollout.slots[:] = torch.tensor([2, 0, 2, 2, 0])
    rollout.rewards[:] = torch.arange(5.0).unsqueeze(1)  # the number of the segment
    waves = [
        (steps.rewards[:, 0].tolist(), steps.slots.tolist())
        for steps in rollout.in_time()
        if steps.slots is not None
    ]
    assert waves == [([0, 1], [2, 0]), ([2, 4], [2, 0]), ([3], [2])]


@pytest.mark.parametrize("vtrace", [False, True])
def test_advantages_run_through_the_segments_of_a_slot(vtrace: bool) -> None:
    # two slots of 3 segments x 2 steps, mixed; their advantages are those of 6 steps in a row
    env = Serial(lambda: gymnasium.make("CartPole-v1"), 2)
    trainer = pufferlib.PuffeRL(env, batch_size=12, num_steps=2, vtrace=vtrace, dashboard="off")
    torch.manual_seed(0)
    shape = BatchShape(segments=6, horizon=2, minibatches=1)
    mixed = AsyncRollout(RolloutSizes(shape, 2, trainer.spaces, torch.device("cpu"), False))
    order = torch.tensor([1, 0, 0, 1, 1, 0])  # whose segment each is
    whole = {name: torch.randn(2, 6) for name in ("rewards", "values", "final_values")}
    whole["terminals"], whole["truncations"] = torch.rand(2, 6) < 0.15, torch.rand(2, 6) < 0.15
    ratios = torch.rand(2, 6) * 2 if vtrace else None
    last = torch.randn(2)
    following = torch.cat((whole["values"][:, 2::2], last[:, None]), 1)  # values after segments
    mixed.slots[:] = order
    seen = [0, 0]
    own_ratios = torch.zeros(6, 2)
    for segment, slot in enumerate(order.tolist()):
        number = seen[slot]
        seen[slot] += 1
        for name, part in whole.items():
            getattr(mixed, name)[segment] = part[slot, 2 * number : 2 * number + 2]
        mixed.bootstrap[segment] = following[slot, number]
        if ratios is not None:
            own_ratios[segment] = ratios[slot, 2 * number : 2 * number + 2]
    targets = trainer.engine.targets(mixed, own_ratios if vtrace else None)
    names = ("rewards", "values", "terminals", "truncations", "final_values")
    corrections = compute_advantages(
        Steps(*(whole[name] for name in names), ratios=ratios),
        last,
        gamma=trainer.config.gamma,
        gae_lambda=trainer.config.gae_lambda,
    )
    wanted = corrections
    if ratios is not None:
        wanted = without_rho(
            corrections,
            torch.zeros(2),
            ratios,
            whole["terminals"] | whole["truncations"],
            decay=trainer.config.gamma * trainer.config.gae_lambda,
            rho_clip=1.0,
            c_clip=1.0,
        )
    for slot in (0, 1):
        advantages, returns = (part[order == slot].flatten() for part in targets)
        close = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
        close(advantages, wanted[slot])
        close(returns, corrections[slot] + whole["values"][slot])
    env.close()
