"""Self-play: sides, opponents, ratings, and resuming."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from scripted import learn
from torch import Tensor, nn
from torch.testing import assert_close

import pufferlib
from pufferlib.cli import main
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.policies.acting import unwrapped
from pufferlib.policies.normalisation import ObservationNorm
from pufferlib.policies.observations import policy_spaces
from pufferlib.runs import checkpoint
from pufferlib.selfplay import SelfPlay
from pufferlib.selfplay.games import record
from pufferlib.selfplay.pool import RATING_STEP, START_RATING, Member, Pool
from pufferlib.training.saving import tensors_of, values_of
from pufferlib.vectorization import Serial


class HigherWins(pufferlib.PufferEnv):
    """Two agents say a number each; after LENGTH rounds the larger sum has won."""

    LENGTH = 3

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space = Box(-100, 100, (2,), np.float32)
        self.single_action_space = Discrete(5)
        self.num_agents = 2
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.sums = [0, 0]
        self.tick = 0
        self._see()
        return self.observations, []

    def _see(self) -> None:
        for side in (0, 1):
            self.observations[side] = side, self.tick

    def step(self, actions: Any) -> Any:
        self.tick += 1
        self.sums = [total + int(action) for total, action in zip(self.sums, actions, strict=True)]
        if self.tick == self.LENGTH:
            sign = np.sign(self.sums[0] - self.sums[1])
            self.rewards[:] = sign, -sign
            self.terminals[:] = True
            self.reset()
        self._see()
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Says(nn.Module):
    """Always says the same number; remembers how many rounds it has played if asked to."""

    def __init__(self, number: int, recalls: bool = False) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(5))
        with torch.no_grad():
            self.bias[number] = 50.0
        self.recalls = recalls
        self.seen: list[float] = []

    def forward(self, obs: Tensor, state: Any = None) -> Any:
        logits, value = self.bias.expand(len(obs), 5), obs[:, 0]
        if not self.recalls:
            return logits, value
        (count,) = (torch.zeros(len(obs), 1),) if state is None else state
        self.seen += (count[:, 0] - obs[:, 1]).tolist()
        return logits, value, (count + 1,)


def played(env: SelfPlay, action: int, steps: int) -> list[float]:
    env.reset(seed=0)
    rewards: list[float] = []
    for _ in range(steps):
        rewards += env.step(np.full(env.num_agents, action, dtype=np.int32))[1].tolist()
    return rewards


def test_the_learner_plays_the_first_side_of_even_envs_and_the_second_of_odd_ones() -> None:
    env = SelfPlay(Serial(HigherWins, 4))
    env.note_policy(Says(0), 0)
    assert (env.num_envs, env.num_agents, env.agents_per_env) == (4, 4, 1)
    assert env.reset(seed=0)[:, 0].tolist() == [0, 1, 0, 1]


def test_actions_reach_their_own_side() -> None:
    env = SelfPlay(Serial(HigherWins, 4), latest_share=1)
    env.note_policy(Says(2), 0)
    assert sum(played(env, action=3, steps=3)) == 4  # the learner says more in every env
    assert sum(played(env, action=1, steps=3)) == -4
    assert sum(played(env, action=2, steps=3)) == 0


def test_only_games_against_the_pool_are_rated() -> None:
    latest = SelfPlay(Serial(HigherWins, 4), latest_share=1)
    latest.note_policy(Says(2), 0)
    played(latest, action=3, steps=30)
    assert latest.drain_metrics()["elo"] == START_RATING

    past = SelfPlay(Serial(HigherWins, 4), latest_share=0)
    past.note_policy(Says(2), 0)
    played(past, action=3, steps=30)  # 10 games in each of 4 envs, all won
    metrics = past.drain_metrics()
    assert metrics["win_rate"] == 1
    assert metrics["elo"] > START_RATING + 40
    assert metrics["elo"] + past.pool.members[0].rating == pytest.approx(2 * START_RATING)
    assert metrics["mean_reward"] == 1
    assert "win_rate" not in past.drain_metrics()


def test_a_rating_changes_by_the_unexpected_part_of_a_result() -> None:
    # 400 points above the other, a win is expected with odds of 10 : 1
    pool = Pool(1)
    pool.rating = 1400.0
    other = Member(Says(0), 1000.0, 0)
    pool.rate(other, 0.0)
    assert pool.rating == pytest.approx(1400 - RATING_STEP * 10 / 11)
    assert other.rating == pytest.approx(1000 + RATING_STEP * 10 / 11)


def test_the_pool_keeps_its_oldest_and_the_recent_past() -> None:
    env = SelfPlay(Serial(HigherWins, 2), pool_size=3, interval=10)
    policy = Says(1)
    env.reset(seed=0)
    for iteration in range(60):
        env.note_policy(policy, iteration)
    assert [member.iteration for member in env.pool.members] == [0, 40, 50]
    assert all(
        not part.requires_grad for member in env.pool.members for part in member.policy.parameters()
    )
    with torch.no_grad():
        policy.bias += 1
    assert not torch.equal(
        env.pool.members[-1].policy.bias, policy.bias
    )  # a copy, not the thing itself


def test_the_recurrent_state_of_an_opponent_is_zeroed_before_each_game() -> None:
    env = SelfPlay(Serial(HigherWins, 3), latest_share=1)
    policy = Says(2, recalls=True)
    env.note_policy(policy, 0)
    played(env, action=1, steps=10)
    assert policy.seen
    assert not any(policy.seen)


def test_an_env_with_one_side_is_refused() -> None:
    with pytest.raises(UsageError, match=r"same number of agents.*has 1 agent"):
        SelfPlay(pufferlib.make("cartpole", 2))


def trained(recurrent: str, iterations: int) -> dict[str, float]:
    env = pufferlib.make("connect4", 32, 1, opponent="self")
    torch.manual_seed(0)
    policy = pufferlib.models.make_policy(env, hidden_size=64, recurrent=recurrent)
    settings: dict[str, Any] = {"batch_size": 1024, "num_iterations": iterations}
    settings |= {"learning_rate": 0.005, "self_play": True, "self_play_interval": 5}
    with env, pufferlib.PuffeRL(env, policy, dashboard="off", seed=1, **settings) as trainer:
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
    return log


@pytest.mark.slow
def test_a_policy_gets_stronger_than_its_past() -> None:
    log = trained("none", iterations=25)
    assert log["env/elo"] > START_RATING + 30
    assert log["env/pool_size"] == 5


def test_recurrent_policies_play_themselves_too() -> None:
    log = trained("lstm", iterations=6)
    assert log["env/pool_size"] == 2
    assert 0 < log["env/win_rate"] < 1


# ---- Ends of games -------------------------------------------------------------------------------


class Duel(pufferlib.PufferEnv):
    """Two pairs; agents leave one by one in the rounds that SCRIPT names, then all begin again.

    The sides get 1 each round for the larger first number. What an agent sees is its number, the
    round, and the number of the game.
    """

    SCRIPT: ClassVar = {2: [1], 4: [0, 2, 3]}
    CUT = False
    DEAF: ClassVar[list[int]] = []  # agents that may only say 0

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space = Box(-100, 100, (3,), np.float32)
        self.single_action_space = Discrete(5)
        self.num_agents, self.has_action_masks = 4, True
        self.game = -1
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.tick = 0
        self.game += 1
        self.masks[:] = True
        self._see()
        return self.observations, []

    def _see(self) -> None:
        assert self.action_masks is not None
        self.action_masks[:] = True
        for agent in range(4):
            self.observations[agent] = agent, self.tick, self.game
            if agent in self.DEAF:
                self.action_masks[agent, 1:] = False

    def step(self, actions: Any) -> Any:
        self.taken = [int(action) for action in actions]
        self.tick += 1
        sign = np.sign(self.taken[0] - self.taken[2])
        self.rewards[:] = np.where(self.masks, [sign, sign, -sign, -sign], 0)
        self.terminals[:] = self.truncations[:] = False
        gone = self.SCRIPT.get(self.tick, [])
        (self.truncations if self.CUT else self.terminals)[gone] = True
        self.final_observations[gone] = self.observations[gone]
        infos = [{"luck": float(agent)} if agent in gone else {} for agent in range(4)]
        self.masks[gone] = False
        if self.tick == max(self.SCRIPT):
            self.reset()
        else:
            self._see()
        return self.observations, self.rewards, self.terminals, self.truncations, infos


class CutDuel(Duel):
    CUT = True
    SCRIPT: ClassVar = {3: [0, 1, 2, 3]}


class DeafDuel(Duel):
    DEAF: ClassVar = [0, 1, 2, 3]


def test_a_game_is_over_when_the_last_remaining_agent_ends() -> None:
    # agent 1 leaves in round 2 and is back with the next game: rounds 4, 8, 12 end three games
    env = SelfPlay(Serial(Duel, 2), latest_share=0)
    policy = Says(1, recalls=True)
    env.note_policy(policy, 0)
    played(env, action=2, steps=12)
    assert env._games.records["number"].tolist() == [3, 3]
    metrics = env.drain_metrics()
    assert metrics["win_rate"] == 1
    assert metrics["episodes"] == 3 * 2 * 2
    assert metrics["elo"] > START_RATING
    # what it remembers begins with each game; agent 1, the last row, has nothing while it is gone
    seen = np.reshape(env.pool.members[0].policy.seen, (12, 4))
    assert not seen[:, :3].any()
    assert seen[:, 3].tolist() == [0, 0, -2, -3] * 3


class Absences(Duel):
    """Two pairs whose agents wait a round, leave, and come back, as PLAN says round by round."""

    PLAN: ClassVar = [  # agents that act, and those whose episode ends then
        ([0, 2], []),  # 1 and 3 have not come yet
        ([1, 3], [1]),
        ([0, 2], []),
        ([0], [0]),  # all others wait: the game is not over
        ([2, 3], []),
        ([1, 2, 3], []),  # 1 is back in the same game
        ([1, 2, 3], [1, 2, 3]),
    ]

    def _see(self) -> None:
        self.observations[:] = 0
        self.masks[:] = False
        self.masks[self.PLAN[self.tick][0]] = True

    def step(self, actions: Any) -> Any:
        self.terminals[self.PLAN[self.tick][1]] = True
        self.tick += 1
        if self.tick == len(self.PLAN):
            self.reset()
        self._see()
        return self.observations, self.rewards, self.terminals, self.truncations, []


def test_a_waiting_agent_keeps_its_recurrent_state_and_a_returning_one_begins_at_zeros() -> None:
    env = SelfPlay(Serial(Absences, 2), latest_share=1)
    policy = Says(1, recalls=True)
    env.note_policy(policy, 0)
    played(env, action=1, steps=14)
    assert env._games.records["number"].tolist() == [2, 2]
    # how many rounds each remembers: agents 2 and 3 in env 0, agents 0 and 1 in env 1
    seen = np.reshape(policy.seen, (14, 4)).T.astype(int).tolist()
    assert seen[0] == [0, 1, 2, 3, 4, 5, 6] * 2
    assert seen[1] == [0, 0, 1, 2, 3, 4, 5] * 2
    assert seen[2] == [0, 1, 2, 3, 0, 0, 0] * 2
    assert seen[3] == [0, 0, 0, 0, 0, 0, 1] * 2


class Vanishing(Absences):
    PLAN: ClassVar = [([0, 1, 2, 3], []), ([0, 2], []), ([0, 2], [0, 2])]


def test_an_agent_absent_at_the_end_of_a_game_begins_the_next_at_zeros() -> None:
    # agents 1 and 3 have no end of their own, but the game that they were in is over
    env = SelfPlay(Serial(Vanishing, 2), latest_share=1)
    policy = Says(1, recalls=True)
    env.note_policy(policy, 0)
    played(env, action=1, steps=6)
    assert env._games.records["number"].tolist() == [2, 2]
    assert np.reshape(policy.seen, (6, 4)).T.astype(int).tolist() == [[0, 1, 2] * 2] * 4


def test_rows_of_agents_that_left_stay_masked() -> None:
    env = SelfPlay(Serial(Duel, 2))
    env.note_policy(Says(1), 0)
    env.reset(seed=0)
    masks = []
    for _ in range(4):
        env.step(np.zeros(4, dtype=np.int32))
        masks.append(env.masks.tolist())
    # env 0: agents 0 and 1 are the learner's; env 1: agents 2 and 3
    assert masks[1:3] == [[True, False, True, True]] * 2
    assert masks[3] == [True] * 4


def test_a_truncated_game_counts_by_its_rewards_and_keeps_its_last_observations() -> None:
    env = SelfPlay(Serial(CutDuel, 2), latest_share=0)
    env.note_policy(Says(3), 0)
    played(env, action=2, steps=3)
    assert env.truncations.all()
    assert not env.terminals.any()
    assert env.final_observations[:, 0].tolist() == [0, 1, 2, 3]  # the learner's own rows
    assert (env.final_observations[:, 1] == 2).all()
    assert (env.observations[:, 1] == 0).all()
    assert env.drain_metrics()["win_rate"] == 0  # 3 is more than 2


def test_a_draw_is_half_a_win() -> None:
    env = SelfPlay(Serial(HigherWins, 3), latest_share=0)
    env.note_policy(Says(2), 0)
    played(env, action=2, steps=3)
    metrics = env.drain_metrics()
    assert metrics["win_rate"] == 0.5
    assert metrics["elo"] == START_RATING  # just what was expected of equals


def test_opponents_never_take_illegal_actions() -> None:
    env = SelfPlay(Serial(DeafDuel, 2), latest_share=0.5)
    env.note_policy(Says(4), 0)  # would say 4, may say 0 only
    env.reset(seed=0)
    for _ in range(8):
        env.step(np.zeros(4, dtype=np.int32))
        for inner in env._inner.envs:
            assert inner.taken == [0, 0, 0, 0]


def test_metrics_of_slots_are_the_learners_and_those_of_games_are_kept() -> None:
    # luck is the agent's number: 0 and 1 in env 0, 2 and 3 in env 1
    env = SelfPlay(Serial(Duel, 1))
    env.note_policy(Says(1), 0)
    played(env, action=1, steps=4)
    assert env.drain_metrics()["luck"] == 0.5
    assert "luck" not in env.drain_metrics()

    both = SelfPlay(Serial(Duel, 2))
    both.note_policy(Says(1), 0)
    played(both, action=1, steps=4)
    assert both.drain_metrics()["luck"] == 1.5

    with SelfPlay(pufferlib.make("connect4", 4, 1, opponent="self")) as game:
        game.note_policy(Columns(), 0)
        played(game, action=0, steps=60)
        metrics = game.drain_metrics()
    assert metrics["moves"] == pytest.approx(metrics["episode_length"], abs=1)
    assert {"score", "perf", "draw"} <= metrics.keys()


def test_infos_are_those_of_the_learners_slots() -> None:
    env = SelfPlay(Serial(Duel, 2))
    env.note_policy(Says(1), 0)
    env.reset(seed=0)
    for _ in range(4):
        *_, infos = env.step(np.zeros(4, dtype=np.int32))
    assert [info.get("luck") for info in infos] == [0, None, 2, 3]
    assert infos[3]["episode"]["l"] == 4


@pytest.mark.parametrize("num_envs", [1, 3])
def test_any_number_of_envs_does(num_envs: int) -> None:
    with SelfPlay(pufferlib.make("connect4", num_envs, 1, opponent="self")) as env:
        env.note_policy(Columns(), 0)
        assert len(played(env, action=3, steps=50)) == 50 * num_envs
        assert env.drain_metrics()["episodes"] > 0


def test_actions_of_another_shape_are_refused() -> None:
    env = SelfPlay(Serial(HigherWins, 2))
    with pytest.raises(UsageError, match="`reset` must be called before `step`"):
        env.step(np.zeros(2, dtype=np.int32))
    env.reset(seed=0)
    with pytest.raises(UsageError, match="`note_policy` must be called before the first step"):
        env.step(np.zeros(2, dtype=np.int32))
    env.note_policy(Says(1), 0)
    with pytest.raises(UsageError, match=r"a row for each of 2 slots, but got shape \(4,\)"):
        env.step(np.zeros(4, dtype=np.int32))


# ---- Policies of every form ----------------------------------------------------------------------


class Columns(nn.Module):
    """A small policy for connect4."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(42, 8)

    def forward(self, obs: Tensor) -> Any:
        out = self.layer(obs)
        return out[:, :7], out[:, 7]


class KnowsWho(nn.Module):
    """Records pairs of agent ids and observations; agents see their own number."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Parameter(torch.zeros(4, 6))
        self.pairs: set[tuple[int, int]] = set()

    def forward(self, obs: Tensor, agent_ids: Tensor) -> Any:
        self.pairs |= set(zip(agent_ids.tolist(), obs[:, 0].int().tolist(), strict=True))
        out = self.heads[agent_ids]
        return out[:, :5], out[:, 5]


@pytest.mark.parametrize("num_envs", [1, 2, 3])
def test_both_sides_get_the_agent_ids_of_the_whole_env(num_envs: int) -> None:
    policy = KnowsWho()
    settings: dict[str, Any] = {"batch_size": 16 * 2 * num_envs, "num_steps": 8, "n_epochs": 1}
    env = Serial(CutDuel, num_envs)  # truncations ask for values of final observations as well
    with pufferlib.PuffeRL(env, policy, self_play=True, dashboard="off", **settings) as trainer:
        for _ in range(2):
            trainer.evaluate()
            trainer.train()
    assert policy.pairs == {(agent, agent) for agent in range(4)}
    (member,) = trainer.env.pool.members  # type: ignore[attr-defined]
    assert member.policy.pairs <= policy.pairs
    if num_envs > 1:
        assert policy.heads.abs().sum(1).gt(0).all()  # the parameters of all four have learnt


class Whatever(nn.Module):
    """Acts by a distribution that is no common one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, obs: Tensor) -> Any:
        rate = self.layer(obs).squeeze(1).sigmoid() * 4
        return torch.distributions.Binomial(4, probs=rate / 4), rate


def test_policies_that_return_distributions_play_themselves() -> None:
    env = SelfPlay(Serial(HigherWins, 6), latest_share=0.5)
    for iteration in range(3):
        env.note_policy(Whatever(), 20 * iteration)
    assert len(played(env, action=2, steps=9)) == 9 * 6
    assert len(np.unique(env._games.records["opponent"])) > 1


class Wide(pufferlib.PufferEnv):
    """Two agents name a number between -1 and 1; the larger wins."""

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space = Box(-1, 1, (2,), np.float32)
        self.single_action_space = Box(-1, 1, (1,), np.float32)
        self.num_agents = 2
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions: Any) -> Any:
        assert (np.abs(actions) <= 1).all()
        sign = np.sign(actions[0, 0] - actions[1, 0])
        self.rewards[:] = sign, -sign
        self.terminals[:] = True
        return self.observations, self.rewards, self.terminals, self.truncations, []


@pytest.mark.parametrize("squash", [True, False])
def test_numbers_are_drawn_within_their_bounds(squash: bool) -> None:
    env = Serial(Wide, 6)
    policy = pufferlib.models.make_policy(env, hidden_size=8, squash=squash)
    settings: dict[str, Any] = {"batch_size": 96, "self_play_interval": 1}
    with pufferlib.PuffeRL(env, policy, self_play=True, dashboard="off", **settings) as trainer:
        for _ in range(3):
            log = trainer.evaluate()
            trainer.train()
    assert 0 < log["win_rate"] < 1


class InParts(Columns):
    """Has a part that is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.compile(self.layer, backend="eager")  # type: ignore[assignment]


def test_compiled_policies_join_the_pool_as_written() -> None:
    for policy in (torch.compile(Columns(), backend="eager"), InParts()):
        with SelfPlay(pufferlib.make("connect4", 4, 1, opponent="self"), latest_share=0.5) as env:
            env.note_policy(policy, 0)  # type: ignore[arg-type]
            played(env, action=3, steps=10)
            (member,) = env.pool.members
            assert type(member.policy) in (Columns, InParts)
            own = dict(member.policy.named_parameters())
            for name, part in unwrapped(policy).named_parameters():  # type: ignore[arg-type]
                assert torch.equal(part, own[name])
                assert part is not own[name]


def test_a_member_holds_no_gradients() -> None:
    policy = Columns()
    policy(torch.ones(2, 42))[0].sum().backward()
    env = SelfPlay(Serial(HigherWins, 2))
    env.note_policy(policy, 0)
    assert policy.layer.weight.grad is not None
    assert all(part.grad is None for part in env.pool.members[0].policy.parameters())
    assert not env.pool.members[0].policy.training


class Locked(Says):
    def __init__(self) -> None:
        super().__init__(1)
        self.lock = threading.Lock()


def test_a_policy_that_cannot_be_copied_is_refused() -> None:
    env = SelfPlay(Serial(HigherWins, 2))
    with pytest.raises(UsageError, match=r"`policy` must support copy\.deepcopy"):
        env.note_policy(Locked(), 0)


def test_a_pool_of_one_holds_the_newest() -> None:
    env = SelfPlay(Serial(HigherWins, 8), pool_size=1, interval=5, latest_share=0)
    for iteration in range(12):
        env.note_policy(Says(iteration % 5), iteration)
        played(env, action=1, steps=4)
    assert [member.iteration for member in env.pool.members] == [10]


def test_games_continue_when_their_opponent_is_dropped_from_the_pool() -> None:
    env = SelfPlay(Serial(HigherWins, 16), pool_size=3, interval=1, latest_share=0)
    env.reset(seed=0)
    for iteration in range(3):
        env.note_policy(Says(iteration), iteration)
    env._games.records["opponent"] = np.arange(16) % 3
    env.note_policy(Says(3), 3)  # the second oldest leaves
    assert [member.iteration for member in env.pool.members] == [0, 2, 3]
    assert env._games.records["opponent"][:3].tolist() == [0, 1, 1]
    for _ in range(4):
        env.step(np.ones(16, dtype=np.int32))


def test_opponents_do_not_depend_on_the_number_of_processes() -> None:
    drawn = []
    for first, num_envs in ((0, 32), (0, 16), (16, 16)):
        env = SelfPlay(Serial(HigherWins, num_envs), interval=1, seed=3)
        for iteration in range(4):
            env.note_policy(Says(iteration), iteration)
        env.place(first)
        played(env, action=1, steps=4)
        drawn.append(env._games.records["opponent"].tolist())
    whole, one, other = drawn
    assert whole == one + other
    assert set(whole) == {-1, 0, 1, 2, 3}
    assert one != other


def test_ratings_far_apart_do_no_harm() -> None:
    pool = Pool(1)
    pool.rating = -1e300
    pool.rate(Member(Says(0), 1e300, 0), 1.0)
    assert np.isfinite(pool.rating)


# ---- Normalised observations ---------------------------------------------------------------------


class Sees(nn.Module):
    """Keeps the last observations it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(5))
        self.shown: Tensor | None = None

    def forward(self, obs: Tensor) -> Any:
        self.shown = obs.clone()
        return self.bias.expand(len(obs), 5), obs[:, 0]


def test_a_past_policy_sees_through_the_statistics_of_its_time() -> None:
    env = SelfPlay(Serial(HigherWins, 4), latest_share=0, interval=1)
    norm = ObservationNorm(policy_spaces(env).observation)
    rows = torch.tensor([[0.0, 0.0], [4.0, 8.0]])
    learn(norm, rows)
    then = norm(rows)
    policy = Sees()
    env.note_policy(policy, 0, norm)
    learn(norm, 100 * rows)
    assert not torch.equal(norm(rows), then)

    env.reset(seed=0)
    env._games.records["opponent"] = [0, 0, -1, -1]
    env.note_policy(policy, 0, norm)
    env.step(np.zeros(4, dtype=np.int32))
    member = env.pool.members[0].policy
    # the others are on side 1 of env 0 and 2, on side 0 of env 1 and 3
    sides = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    old = ObservationNorm(policy_spaces(env).observation)
    learn(old, rows)
    assert_close(member.shown, old(sides))
    assert_close(policy.shown, norm(sides))


# ---- Checkpoints ---------------------------------------------------------------------------------


def trainer_of(
    recurrent: str = "none", seed: int = 1, num_envs: int = 5, **settings: Any
) -> pufferlib.PuffeRL:
    env = pufferlib.make("connect4", num_envs, 1, opponent="self")
    torch.manual_seed(0)
    policy = pufferlib.models.make_policy(env, hidden_size=16, recurrent=recurrent)
    given: dict[str, Any] = {"batch_size": 5 * 32, "num_steps": 16, "n_epochs": 2}
    given |= {"num_iterations": 40, "learning_rate": 0.01, "device": "cpu", "dashboard": "off"}
    given |= {"self_play": True, "self_play_pool": 3, "self_play_interval": 1}
    return pufferlib.PuffeRL(env, policy, seed=seed, **{**given, **settings})


def iterate(trainer: pufferlib.PuffeRL, iterations: int) -> dict[str, float]:
    for _ in range(iterations):
        trainer.evaluate()
        trainer.train()
        log = trainer.mean_and_log()
    passing = ("time/", "system/", "sps", "uptime", "eta")
    return {name: value for name, value in log.items() if not name.startswith(passing)}


def pool_of(trainer: pufferlib.PuffeRL) -> SelfPlay:
    assert isinstance(trainer.env, SelfPlay)
    return trainer.env


@pytest.mark.parametrize(
    ("recurrent", "settings"),
    [
        ("none", {"norm_obs": True, "norm_reward": True, "self_play_interval": 2}),
        ("lstm", {}),
        ("transformer", {"norm_obs": True, "self_play_pool": 1}),
    ],
)
def test_a_resumed_run_of_self_play_equals_an_uninterrupted_one_bit_for_bit(
    recurrent: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    whole = trainer_of(recurrent, **settings)
    metrics = iterate(whole, 5)

    first = trainer_of(recurrent, **settings)
    iterate(first, 3)
    first.save_checkpoint(tmp_path / "a")
    torch.manual_seed(999)
    second = trainer_of(recurrent, seed=999, **settings)
    iterate(second, 1)
    second.load_checkpoint(tmp_path / "a")
    assert iterate(second, 2) == metrics

    for name, part in whole.policy.state_dict().items():
        assert torch.equal(part, second.policy.state_dict()[name]), name
    one, other = pool_of(whole), pool_of(second)
    assert one.pool.rating == other.pool.rating
    assert [m.iteration for m in one.pool.members] == [m.iteration for m in other.pool.members]
    assert [m.rating for m in one.pool.members] == [m.rating for m in other.pool.members]
    for member, twin in zip(one.pool.members, other.pool.members, strict=True):
        for part, copied in zip(member.policy.parameters(), twin.policy.parameters(), strict=True):
            assert torch.equal(part, copied)
    assert (one.snapshot() == other.snapshot()).all()  # type: ignore[union-attr, attr-defined]
    for trainer in (whole, first, second):
        trainer.env.close()


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_another_number_of_envs_keeps_the_pool(recurrent: str, tmp_path: Path) -> None:
    one = trainer_of(recurrent, self_play_interval=1)
    iterate(one, 3)
    one.save_checkpoint(tmp_path / "a")
    other = trainer_of(recurrent, num_envs=2, batch_size=64, self_play_interval=1)
    iterate(other, 1)
    with pytest.warns(RuntimeWarning, match="has 5 slots, but this run has 2: new episodes"):
        other.load_checkpoint(tmp_path / "a")
    theirs, own = pool_of(one), pool_of(other)
    assert [m.iteration for m in own.pool.members] == [m.iteration for m in theirs.pool.members]
    assert own.pool.rating == theirs.pool.rating
    assert own._opponents.state is None
    for member, twin in zip(theirs.pool.members, own.pool.members, strict=True):
        for part, copied in zip(member.policy.parameters(), twin.policy.parameters(), strict=True):
            assert torch.equal(part, copied)
    iterate(other, 2)
    assert other.iteration == 5
    for trainer in (one, other):
        trainer.env.close()


def test_saving_changes_nothing(tmp_path: Path) -> None:
    one, other = trainer_of("lstm"), trainer_of("lstm")
    for _ in range(4):
        iterate(one, 1)
        metrics = iterate(other, 1)
        other.save_checkpoint(tmp_path / "a")
    iterate(one, 1)
    assert iterate(other, 1)["env/elo"] == pool_of(one).pool.rating
    assert metrics["env/pool_size"] == 3


def test_one_env_can_be_put_back() -> None:
    env = SelfPlay(pufferlib.make("connect4", 3, 1, opponent="self"))
    env.note_policy(Columns(), 0)
    played(env, action=3, steps=3)
    state, seen = env.snapshot(), env.observations.copy()
    assert state is not None
    env.step(np.full(3, 2, dtype=np.int32))
    now = env.observations.copy()
    env.restore(state[1], env=1)
    assert (env.observations[1] == seen[1]).all()
    assert (env.observations[[0, 2]] == now[[0, 2]]).all()
    env.step(np.full(3, 2, dtype=np.int32))
    env.restore(state)
    assert (env.recv().observations == seen).all()
    env.close()


def test_a_checkpoint_without_a_pool_starts_a_new_one_with_a_warning(tmp_path: Path) -> None:
    old = trainer_of()
    iterate(old, 3)
    old.save_checkpoint(tmp_path / "a")
    saved = checkpoint.load(tmp_path / "a")
    values = {name: value for name, value in saved.values.items() if name != "self_play"}
    tensors = {name: part for name, part in saved.tensors.items() if "self_play" not in name}
    tensors.pop("env/state")
    checkpoint.save(tmp_path / "old", tensors, values)

    trainer = trainer_of()
    iterate(trainer, 2)
    with pytest.warns(RuntimeWarning, match="no pool of past policies: self-play starts a new one"):
        trainer.load_checkpoint(tmp_path / "old")
    assert pool_of(trainer).pool.members == []
    assert pool_of(trainer).pool.rating == START_RATING
    assert trainer.iteration == 3
    assert iterate(trainer, 1)["env/pool_size"] == 1


@pytest.mark.parametrize("opponent", ["scripted", "self"])
def test_a_run_may_switch_self_play_on(opponent: str, tmp_path: Path) -> None:
    env = pufferlib.make("connect4", 5, 1, opponent=opponent)
    torch.manual_seed(0)
    policy = pufferlib.models.make_policy(env, hidden_size=16)
    settings: dict[str, Any] = {"batch_size": 5 * 2 * 24, "num_steps": 8, "norm_reward": True}
    before = pufferlib.PuffeRL(env, policy, dashboard="off", device="cpu", **settings)
    iterate(before, 2)
    before.save_checkpoint(tmp_path / "a")

    trainer = trainer_of(norm_reward=True)
    with pytest.warns(RuntimeWarning, match="starts a new one"):
        trainer.load_checkpoint(tmp_path / "a")
    assert trainer.iteration == 2
    for name, part in policy.state_dict().items():
        assert torch.equal(part, trainer.policy.state_dict()[name])
    iterate(trainer, 1)


def test_a_full_pool_of_large_policies_fits_a_fresh_run(tmp_path: Path) -> None:
    env = Serial(HigherWins, 2)
    settings: dict[str, Any] = {"batch_size": 8, "self_play": True, "self_play_interval": 1}
    settings["self_play_pool"] = 30

    def make() -> pufferlib.PuffeRL:
        policy = pufferlib.models.make_policy(env, hidden_size=850)
        return pufferlib.PuffeRL(env, policy, dashboard="off", device="cpu", **settings)

    full = make()
    for iteration in range(30):
        pool_of(full).note_policy(full.policy, iteration)
    full.save_checkpoint(tmp_path / "a")
    size = (tmp_path / "a").stat().st_size
    one = sum(part.nbytes for part in full.policy.parameters())
    assert 4 * one + (64 << 20) < size < 31.1 * one  # more than fits without a pool; each once
    fresh = make()
    fresh.load_checkpoint(tmp_path / "a")
    assert len(pool_of(fresh).pool.members) == 30


def forged(field: str, value: Any) -> Callable[[Any, dict[str, Tensor]], None]:
    """Return what writes `value` into the record of the first game."""

    def change(own: Any, tensors: dict[str, Tensor]) -> None:
        rows, size = tensors["env/state"].clone().numpy(), record(1).itemsize
        games = rows[:, -size:].copy().view(record(1))[:, 0]
        games[field][0] = value
        rows[:, -size:] = games.view(np.uint8).reshape(len(rows), -1)
        tensors["env/state"] = torch.from_numpy(rows)

    return change


def weights_of(number: int, value: float) -> Callable[[Any, dict[str, Tensor]], None]:
    def change(own: Any, tensors: dict[str, Tensor]) -> None:
        for name in [name for name in tensors if name.startswith(f"self_play/pool/{number}/")]:
            tensors[name] = torch.full_like(tensors[name], value)

    return change


def put(name: str, part: Tensor) -> Callable[[Any, dict[str, Tensor]], None]:
    return lambda own, tensors: tensors.update({name: part})


FORGERIES: dict[str, tuple[Callable[[Any, dict[str, Tensor]], Any], str]] = {
    "no pool": (lambda own, _: own.pop("pool"), "does not fit this run: KeyError"),
    "a pool that is a number": (lambda own, _: own.update(pool=3), "does not fit this run"),
    "a member that is invalid": (
        lambda own, _: own["pool"].__setitem__(0, None),
        "does not fit this run: TypeError",
    ),
    "a member without weights": (
        lambda own, _: own["pool"].append({"rating": 1.0, "iteration": 9}),
        "`self_play_pool` must be at least 4, the number of policies in the checkpoint, but is 3",
    ),
    "an endless rating": (
        lambda own, _: own["pool"][0].update(rating=float("inf")),
        "`rating` must be a finite number, but is inf",
    ),
    "a rating of the learner": (
        lambda own, _: own.update(rating="high"),
        "`rating` must be a finite number, but is `high`",
    ),
    "a seed": (lambda own, _: own.update(seed=-1), "`seed` must be a whole number >= 0"),
    "an iteration": (
        lambda own, _: own["pool"][1].update(iteration=True),
        "`iteration` must be a whole number >= 0",
    ),
    "weights that are not finite": (weights_of(1, float("nan")), "must be finite, but is not"),
    "weights of another policy": (
        lambda _, tensors: tensors.pop(
            next(name for name in tensors if name.startswith("self_play/pool/2/policy/"))
        ),
        "the checkpoint must fit the pool/2/policy, but `.*` is missing in the file",
    ),
    "random numbers": (
        put("self_play/rng", torch.full((5056,), 255, dtype=torch.uint8)),
        "invalid random state",
    ),
    "an opponent beyond the pool": (forged("opponent", 3), "an opponent is not in the pool of 3"),
    "an opponent before it": (forged("opponent", -2), "an opponent is not in the pool of 3"),
    "a game before the first": (forged("number", -1), "number of games or steps is out of range"),
    "a length": (forged("own_lengths", 2**62), "number of games or steps is out of range"),
    "returns": (forged("returns", np.nan), "a return is not finite"),
    "returns of the learner": (forged("own_returns", np.inf), "a return is not finite"),
    "rows too short": (
        lambda _, tensors: tensors.update({"env/state": tensors["env/state"][:, :16].clone()}),
        "`state` must be 5 rows of bytes",
    ),
    "no memory": (lambda own, _: own.pop("memory"), "does not fit this run: KeyError"),
    "memory of another form": (
        lambda own, _: own.update(memory={"list": [0, 1]}),
        "recurrent state of the opponents|does not fit this run",
    ),
    "memory of fewer rows": (
        lambda _, tensors: tensors.update(
            {"self_play/memory/0": tensors["self_play/memory/0"][:3].clone()}
        ),
        "recurrent state of the opponents|does not fit this run",
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "a"
    trainer = trainer_of("lstm")
    iterate(trainer, 3)
    trainer.save_checkpoint(path)
    trainer.env.close()
    return path


@pytest.fixture(scope="module")
def running() -> Iterator[pufferlib.PuffeRL]:
    trainer = trainer_of("lstm", seed=2)
    iterate(trainer, 2)
    yield trainer
    trainer.env.close()


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_pool_is_one_line_and_changes_nothing(
    name: str, good: Path, running: pufferlib.PuffeRL, tmp_path: Path
) -> None:
    change, message = FORGERIES[name]
    saved = checkpoint.load(good)
    values, tensors = copy.deepcopy(saved.values), dict(saved.tensors)
    change(values["self_play"], tensors)
    checkpoint.save(tmp_path / "forged", tensors, values)

    before = tensors_of(running), values_of(running)
    with pytest.raises(CheckpointError, match=message) as caught:
        running.load_checkpoint(tmp_path / "forged")
    assert "\n" not in str(caught.value)
    after = tensors_of(running), values_of(running)
    assert before[0].keys() == after[0].keys()
    for key, part in before[0].items():
        assert torch.equal(part, after[0][key]), key
    assert before[1]["self_play"] == after[1]["self_play"]
    iterate(running, 1)


def test_another_env_keeps_the_pool() -> None:
    trainer = trainer_of()
    iterate(trainer, 3)
    old = pool_of(trainer)
    env = pufferlib.make("connect4", 2, 1, opponent="self")
    trainer.env = env  # two-sided again: the learner is one side
    assert (trainer.env.num_agents, trainer.env.agents_per_env) == (2, 1)
    assert [m.iteration for m in pool_of(trainer).pool.members] == [
        m.iteration for m in old.pool.members
    ]
    assert pool_of(trainer).pool.rating == old.pool.rating
    assert iterate(trainer, 1)["env/pool_size"] == 3


# ---- The command line ----------------------------------------------------------------------------

TINY = [
    *("--env.opponent=self", "--train.self-play=true", "--train.self-play-interval=1"),
    *("--vec.num-envs=4", "--vec.num-workers=1", "--train.batch-size=128", "--train.n-epochs=1"),
    *("--train.minibatch-size=none", "--train.num-steps=none", "--policy.hidden-size=8"),
    *("--train.device=cpu", "--train.checkpoint-interval=2", "--train.keep-checkpoints=5"),
]


def test_a_run_of_self_play_resumes_and_is_evaluated_against_its_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "connect4", *TINY, "--train.num-iterations=6"]) == 0
    (run,) = Path("runs").iterdir()
    assert main(["resume", str(run / "iteration-000004.safetensors")]) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6, 5, 6]
    for before, after in zip(rows[4:6], rows[6:8], strict=True):
        for name in ("policy_loss", "env/elo", "env/pool_size", "mean_reward"):
            assert before[name] == after[name], name

    capsys.readouterr()
    words = ["eval", "connect4", "--episodes=20", "--json"]
    assert main(words) == 0
    against_past = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert against_past["pool_size"] == 6
    assert against_past["elo"] == pytest.approx(rows[-1]["env/elo"])  # unmoved
    assert 0 < against_past["win_rate"] < 1
    assert main([*words, "--env.opponent=random"]) == 0
    assert "win_rate" not in json.loads(capsys.readouterr().out.splitlines()[-1])


def test_an_env_with_one_side_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "connect4", "--train.self-play=true", "--vec.num-envs=8"]) == 2
    err = capsys.readouterr().err
    assert "must have two sides with the same number of agents, but connect4 has 1 agent(s)" in err
    assert err.count("\n") == 1


def test_double_buffered_slots_are_refused() -> None:
    env = pufferlib.make("connect4", 4, 1, double_buffer=True, opponent="self")
    with (
        env,
        pytest.raises(UsageError, match="all slots in one batch, but connect4 returns 4 of 8"),
    ):
        SelfPlay(env)
