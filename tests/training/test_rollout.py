"""A rollout holds what the envs gave and what the policy thought, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from scripted import Adding, Scripted, TenTimes
from torch import nn
from torch.testing import assert_close

import pufferlib
from pufferlib.config import BatchShape
from pufferlib.models import make_policy
from pufferlib.policies.acting import Actor, policy_sequence
from pufferlib.policies.distributions import evaluate_actions
from pufferlib.policies.observations import policy_spaces
from pufferlib.training.profiling import Profiler
from pufferlib.training.rollout import (
    Carry,
    Rollout,
    RolloutSizes,
    Targets,
    begin,
    collect,
    minibatches,
)
from pufferlib.vectorization import Serial, VectorEnv

CPU = torch.device("cpu")


class Collector:
    """An env, a policy and the rollout between them."""

    def __init__(
        self, vecenv: VectorEnv, policy: nn.Module, horizon: int, stretches: int = 1
    ) -> None:
        slots = vecenv.num_agents
        shape = BatchShape(slots * stretches, horizon, 1)
        self.vecenv, self.policy, self.spaces = vecenv, policy, policy_spaces(vecenv)
        has_masks = vecenv.action_masks is not None
        self.rollout = Rollout(RolloutSizes(shape, slots, self.spaces, CPU, has_masks))
        self.rng = torch.Generator().manual_seed(0)
        vecenv.reset(seed=0)
        self.carry: Carry = begin(vecenv, CPU)

    def __call__(self) -> Rollout:
        actor = Actor(self.policy, self.spaces, CPU, generator=self.rng)
        self.carry = collect(self.vecenv, actor, self.rollout, self.carry, Profiler())
        return self.rollout


def scripted(*creators: Callable[[], Scripted]) -> Serial:
    queue = iter(creators)
    return Serial(lambda: next(queue)(), len(creators))


def test_a_rollout_stores_what_the_env_gave() -> None:
    vecenv = scripted(lambda: Scripted(terminals=[1], truncations=[3]))
    rollout = Collector(vecenv, TenTimes(), horizon=6)()

    assert rollout.observations[0, :, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert rollout.rewards.tolist() == [[1, 2, 3, 4, 5, 6]]
    assert rollout.terminals.int().tolist() == [[0, 1, 0, 0, 0, 0]]
    assert rollout.truncations.int().tolist() == [[0, 0, 0, 1, 0, 0]]
    # an episode begins at the very first step and after each end
    assert rollout.resets.int().tolist() == [[1, 0, 1, 0, 1, 0]]
    assert rollout.masks.all()
    assert rollout.all_present
    assert set(rollout.actions.flatten().tolist()) <= {0, 1}
    assert_close(rollout.logprobs, torch.full((1, 6), 0.5).log())


def test_values_and_bootstraps_are_those_of_the_policy() -> None:
    vecenv = scripted(lambda: Scripted(terminals=[1], truncations=[3]))
    rollout = Collector(vecenv, TenTimes(), horizon=6)()

    assert rollout.values.tolist() == [[0, 10, 20, 30, 40, 50]]
    assert rollout.bootstrap.tolist() == [60]  # the observation after the last step is 6
    # a truncation goes on from its final observation, 103, not from the first of the next episode
    assert rollout.final_values[0, 3] == 1030


def test_stretches_of_one_slot_follow_one_another() -> None:
    vecenv = scripted(lambda: Scripted(terminals=[1]), lambda: Scripted(terminals=[2]))
    rollout = Collector(vecenv, TenTimes(), horizon=3, stretches=2)()

    # segment j * 2 + n is the j-th stretch of slot n
    assert rollout.observations[..., 0].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    assert rollout.terminals.int().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert rollout.resets.int().tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 0], [1, 0, 0]]
    # the value after a stretch is that of the first step of the next, then of what follows all
    assert rollout.bootstrap.tolist() == [30, 30, 60, 60]


def test_the_next_rollout_goes_on_where_the_last_one_stopped() -> None:
    vecenv = scripted(lambda: Scripted(terminals=[2]))
    collector = Collector(vecenv, TenTimes(), horizon=3)
    collector()
    rollout = collector()
    assert rollout.observations[0, :, 0].tolist() == [3, 4, 5]
    assert rollout.resets.int().tolist() == [[1, 0, 0]]
    rollout = collector()
    assert rollout.resets.int().tolist() == [[0, 0, 0]]


def test_absent_slots_are_masked_and_bootstrap_nothing() -> None:
    present, absent = Scripted, lambda: Scripted(absences=[1, 3, 6])
    rollout = Collector(scripted(present, absent), TenTimes(), horizon=3, stretches=2)()

    assert not rollout.all_present
    assert rollout.masks.int().tolist() == [[1, 1, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]]
    assert rollout.bootstrap.tolist() == [30, 0, 60, 0]


def test_a_truncated_memory_goes_into_the_final_value() -> None:
    # sums of observations: 0, 0+1, 0+1+2; cut at step 2: final 102 on top of 3, then again from 3
    vecenv = scripted(lambda: Scripted(truncations=[2]))
    rollout = Collector(vecenv, Adding(), horizon=5)()
    assert rollout.values.tolist() == [[0, 1, 3, 3, 7]]
    assert rollout.final_values[0, 2] == 105
    assert rollout.bootstrap.tolist() == [12]


def test_who_left_at_an_end_comes_back_without_a_memory() -> None:
    # the episode ends with step 1; the slot is empty before steps 2 and 3, yet its rows are seen.
    # In its new episode, from step 4 on, the sums are 4, 4+5, 4+5+6
    vecenv = scripted(lambda: Scripted(terminals=[1], absences=[2, 3]))
    rollout = Collector(vecenv, Adding(), horizon=3, stretches=2)()
    assert rollout.resets.int().tolist() == [[1, 0, 1], [1, 1, 0]]
    assert rollout.values[1, 1:].tolist() == [4, 9]
    assert rollout.bootstrap[1] == 15


def test_who_is_away_for_a_step_amid_an_episode_keeps_its_memory() -> None:
    # as agents do that wait for their turn: sums of all rows, 0, 0+1, 0+1+2, ...
    vecenv = scripted(lambda: Scripted(absences=[1, 2]))
    rollout = Collector(vecenv, Adding(), horizon=5)()
    assert rollout.resets.int().tolist() == [[1, 0, 0, 0, 0]]
    assert rollout.values.tolist() == [[0, 1, 3, 6, 10]]


def test_states_before_each_stretch_are_kept() -> None:
    vecenv = scripted(lambda: Scripted(terminals=[1]), Scripted)
    collector = Collector(vecenv, Adding(), horizon=2, stretches=2)
    rollout = collector()
    # none before the first stretch, which counts as zeros; slot 0 forgets after step 1, slot 1 has
    # seen 0 + 1
    assert rollout.initial_state().tolist() == [0, 0, 0, 1]
    rollout = collector()
    # slot 0: 2 + 3; slot 1: 0 + 1 + 2 + 3; then 4 + 5 more
    assert rollout.initial_state().tolist() == [5, 6, 14, 15]


@pytest.mark.parametrize("recurrent", ["lstm", "gru", "mingru"])
@pytest.mark.parametrize("name", ["cartpole", "squared", "connect4"])
def test_training_sees_the_states_of_the_rollout(recurrent: Any, name: str) -> None:
    settings = {} if name == "connect4" else {"max_steps": 5}
    with pufferlib.make(name, num_envs=6, num_workers=1, **settings) as vecenv:
        torch.manual_seed(0)
        policy = make_policy(vecenv, hidden_size=16, recurrent=recurrent)
        with torch.no_grad():  # heads begin near zero: make what the state says visible
            for parameter in policy.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        collector = Collector(vecenv, policy, horizon=4, stretches=5)
        collector()
        rollout = collector()  # the second begins with states
        assert rollout.resets[:, 1:].any()
        assert not rollout.resets[:, 0].all()

        def recomputed(resets: Any) -> tuple[torch.Tensor, torch.Tensor]:
            output = policy_sequence(
                policy, rollout.observations, rollout.initial_state(), resets, collector.spaces
            )
            masks = rollout.action_masks
            logprobs, _ = evaluate_actions(
                output,
                collector.spaces.action,
                rollout.actions.flatten(0, 1),
                None if masks is None else masks.flatten(0, 1),
            )
            return logprobs.view(30, 4), output.value.view(30, 4)

        logprobs, values = recomputed(rollout.resets)
        assert_close(logprobs, rollout.logprobs, atol=1e-5, rtol=1e-5)
        assert_close(values, rollout.values, atol=1e-5, rtol=1e-5)
        _, without_resets = recomputed(None)
        assert (without_resets - rollout.values).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("name", "recurrent"), [("cartpole", "lstm"), ("snake", None), ("connect4", "gru")]
)
def test_halves_that_step_in_turns_give_the_rollout_of_all_slots(name: str, recurrent: Any) -> None:
    def collector(double_buffer: bool) -> Collector:
        vecenv = pufferlib.make(name, num_envs=8, num_workers=1, double_buffer=double_buffer)
        torch.manual_seed(0)
        policy = make_policy(vecenv, hidden_size=8, recurrent=recurrent)
        return Collector(vecenv, policy, horizon=16, stretches=3)

    whole, halves = collector(False), collector(True)
    for _ in range(3):  # long enough that episodes end
        one, other = whole(), halves()
        assert len(halves.carry.batches) == 2
        for part in ("observations", "actions", "rewards", "terminals", "truncations", "resets"):
            assert getattr(one, part).equal(getattr(other, part)), part
        for part in ("values", "logprobs", "bootstrap", "final_values"):
            assert_close(getattr(one, part), getattr(other, part), rtol=1e-5, atol=1e-6)
        states = [rollout.initial_state() for rollout in (one, other)]
        assert (states[0] is None) == (recurrent is None)
        assert_close(*states, rtol=1e-5, atol=1e-6)
    for each in (whole, halves):
        each.vecenv.close()


def test_no_illegal_action_is_sampled() -> None:
    with pufferlib.make("connect4", num_envs=16, num_workers=1, opponent="self") as vecenv:
        collector = Collector(vecenv, make_policy(vecenv, hidden_size=16), horizon=32)
        for _ in range(3):
            rollout = collector()
            masks = rollout.action_masks
            assert masks is not None
            assert not masks.all()
            assert masks.gather(-1, rollout.actions.long().unsqueeze(-1)).all()


def test_minibatches_are_all_segments_in_random_order() -> None:
    vecenv = scripted(*[Scripted] * 4)
    rollout = Collector(vecenv, Adding(), horizon=2, stretches=3)()
    rollout.logprobs[:] = torch.arange(12).float().unsqueeze(1)  # the number of each segment
    advantages = rollout.logprobs + 100
    rng = torch.Generator().manual_seed(0)
    shape = BatchShape(segments=12, horizon=2, minibatches=3)
    targets = Targets(advantages, advantages + rollout.values)
    parts = list(minibatches(rollout, targets, shape, rng))

    assert [len(part.logprobs) for part in parts] == [4, 4, 4]
    order = torch.cat([part.logprobs[:, 0] for part in parts])
    assert sorted(order.tolist()) == list(range(12))
    assert order.tolist() != list(range(12))
    for part in parts:
        chosen = part.logprobs[:, 0].long()
        assert_close(part.advantages, part.logprobs + 100)
        assert_close(part.returns, part.advantages + part.values)
        assert_close(part.observations, rollout.observations[chosen])
        assert_close(part.state, rollout.initial_state()[chosen])
        assert part.masks is None
        assert part.action_masks is None
    again = list(minibatches(rollout, targets, shape, rng))
    assert torch.cat([part.logprobs[:, 0] for part in again]).tolist() != order.tolist()


@pytest.mark.parametrize("count", [1, 4, 5, 24])
def test_minibatches_of_steps_are_all_steps_once_in_parts_of_any_size(count: int) -> None:
    vecenv = scripted(*[Scripted] * 4)
    rollout = Collector(vecenv, make_policy(vecenv, hidden_size=4), horizon=2, stretches=3)()
    rollout.logprobs[:] = torch.arange(24.0).view(12, 2)  # the number of each step
    shape = BatchShape(segments=12, horizon=2, minibatches=count, by_step=True)
    rng = torch.Generator().manual_seed(0)
    targets = Targets(rollout.logprobs + 100, rollout.logprobs + 200)
    parts = list(minibatches(rollout, targets, shape, rng))

    sizes = [len(part.logprobs) for part in parts]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    order = torch.cat([part.logprobs for part in parts])
    assert order.shape == (24, 1)
    assert sorted(order.flatten().tolist()) == list(range(24))
    for part in parts:
        chosen = part.logprobs[:, 0].long()
        assert_close(part.advantages, part.logprobs + 100)
        assert_close(part.returns, part.logprobs + 200)
        assert_close(part.observations[:, 0], rollout.observations.flatten(0, 1)[chosen])
        assert torch.equal(part.agent_ids, rollout.agent_ids[chosen // 2])
