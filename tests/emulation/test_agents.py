"""Agents of emulated envs that end, join, wait and take turns."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, Tuple
from playback import VECTOR, Dicts

import pufferlib
from pufferlib.errors import UnknownNameError, UsageError

NO_ENDS = {"a": False, "b": False, "__all__": False}


def test_an_agent_that_ends_leaves_its_slot_masked_until_the_reset() -> None:
    script = [
        ({"a": 3, "b": 4}, {"a": 1, "b": 2}, {"a": False, "b": True, "__all__": False}, {}),
        ({"a": 5}, {"a": 1}, {"a": False, "__all__": False}, {}),
        ({"a": 6}, {"a": 1}, {"a": True, "__all__": True}, {}),
    ]
    vecenv = pufferlib.emulate(lambda: Dicts(script))
    vecenv.reset(seed=0)
    vecenv.step([1, 1])
    assert vecenv.terminals.tolist() == [False, True]
    assert vecenv.masks.tolist() == [True, False]
    assert vecenv.observations.ravel().tolist() == [3, 0]
    assert vecenv.final_observations[1].tolist() == [4]
    *_, infos = vecenv.step([1, 1])
    assert vecenv.terminals.tolist() == [False, False]
    assert vecenv.masks.tolist() == [True, False]
    assert vecenv.rewards.tolist() == [1, 0]
    *_, infos = vecenv.step([1, 1])
    assert vecenv.masks.tolist() == [True, True]
    assert vecenv.observations.ravel().tolist() == [1, 2]
    assert infos[0]["episode"]["r"] == infos[0]["episode"]["l"] == 3
    assert infos[1] == {}
    assert vecenv.envs[0].given == [{"a": 1, "b": 1}, {"a": 1}, {"a": 1}]


def test_an_agent_may_return() -> None:
    script = [
        ({"a": 3}, {"a": 0, "b": 5}, {"b": True, "__all__": False}, {}),
        ({"a": 3, "b": 7}, {}, NO_ENDS, {}),
        ({"a": 3, "b": 8}, {"b": 1}, NO_ENDS, {}),
    ]
    vecenv = pufferlib.emulate(lambda: Dicts(script))
    vecenv.reset(seed=0)
    vecenv.step(0)
    assert vecenv.rewards.tolist() == [0, 5]
    assert vecenv.final_observations[1].tolist() == [2]  # no last look: the one before
    vecenv.step(0)
    assert vecenv.masks.tolist() == [True, True]
    assert vecenv.observations[1].tolist() == [7]
    vecenv.step(4)
    assert vecenv.envs[0].given[-1] == {"a": 4, "b": 4}


def test_an_agent_without_observation_waits_and_still_gets_rewards() -> None:
    script = [
        ({"b": 3}, {"a": 1}, NO_ENDS, {}),
        ({"a": 4}, {"a": 2}, NO_ENDS, {}),
    ]
    vecenv = pufferlib.emulate(lambda: Dicts(script))
    vecenv.reset(seed=0)
    vecenv.step(1)
    assert vecenv.masks.tolist() == [True, True]
    vecenv.step(2)
    assert vecenv.rewards.tolist() == [2, 0]
    assert vecenv.observations.ravel().tolist() == [4, 3]
    assert vecenv.envs[0].given == [{"a": 1, "b": 1}, {"b": 2}]


def test_all_ends_every_agent_and_infos_without_an_agent_are_kept() -> None:
    script = [({"a": 3, "b": 3}, {}, {"__all__": True}, {"score": 5, "a": {"own": 1}})]
    vecenv = pufferlib.emulate(lambda: Dicts(script))
    vecenv.reset(seed=0)
    *_, infos = vecenv.step(0)
    assert vecenv.terminals.all()
    assert infos[0]["score"] == 5
    assert infos[0]["own"] == 1
    metrics = vecenv.drain_metrics()
    assert metrics["episodes"] == 2
    assert metrics["score"] == 5
    assert metrics["own"] == 1


def test_dicts_are_truncated_by_five_parts_or_by_info() -> None:
    looks = {"a": 3, "b": 3}
    cut = {"TimeLimit.truncated": True}
    for script in (
        [(looks, {}, {"a": True, "__all__": False}, {"b": True, "__all__": True}, {})],
        [(looks, {}, {"a": True, "b": True, "__all__": True}, {"b": cut})],
    ):
        vecenv = pufferlib.emulate(lambda script=script: Dicts(script))
        vecenv.reset(seed=0)
        vecenv.step(0)
        assert vecenv.terminals.tolist() == [True, False]
        assert vecenv.truncations.tolist() == [False, True]


def test_agents_may_join_later() -> None:
    script = [({"a": 1, "late": 9}, {}, {"__all__": False}, {})] * 2
    vecenv = pufferlib.emulate(lambda: Dicts(script, first={"a": 1}))
    assert list(vecenv.reset(seed=0)) == ["a"]
    assert vecenv.masks.tolist() == [True, False]
    answer, *_ = vecenv.step({"a": 1})
    assert list(answer) == ["a", "late"]
    assert vecenv.masks.tolist() == [True, True]
    vecenv.step({"a": 1, "late": 2})
    assert vecenv.envs[0].given[-1] == {"a": 1, "late": 2}


def test_actions_by_agent_are_checked() -> None:
    vecenv = pufferlib.emulate(lambda: Dicts([({"a": 1, "b": 1}, {}, NO_ENDS, {})]), num_envs=2)
    vecenv.reset(seed=0)
    with pytest.raises(UnknownNameError, match="Unknown agent `c`"):
        vecenv.step({"a": [0, 0], "b": [0, 0], "c": [0, 0]})
    with pytest.raises(UsageError, match="must have rows for every agent, but lacks 'b'"):
        vecenv.step({"a": [0, 0]})
    with pytest.raises(UsageError, match=r"`actions` must have shape \(2,\)"):
        vecenv.step({"a": [0, 0, 0], "b": [0, 0]})


class Dying:
    """PettingZoo's parallel API without the package: agent i dies in step i + 1, the last wins."""

    possible_agents: ClassVar = ["x", "y", "z"]

    def observation_space(self, agent: str) -> Any:
        return VECTOR

    def action_space(self, agent: str) -> Any:
        return Discrete(4)

    def looks(self) -> Any:
        return {id: np.full(2, self.tick / 4, np.float32) for id in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.tick, self.agents = 0, list(self.possible_agents)
        return self.looks(), {id: {} for id in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert list(actions) == self.agents
        self.tick += 1
        observations = self.looks()
        rewards = {id: float(action) for id, action in actions.items()}
        died = dict.fromkeys(self.agents, False) | {self.agents[0]: True}
        cut = dict.fromkeys(self.agents, False)
        infos = {id: {"alive": self.tick} for id in self.agents}
        self.agents = self.agents[1:]
        return observations, rewards, died, cut, infos


def test_agents_of_a_parallel_env_end_one_by_one() -> None:
    vecenv = pufferlib.emulate(Dying, num_envs=2)
    assert list(vecenv.reset(seed=0)) == ["x", "y", "z"]
    seen = []
    for _ in range(3):
        _, rewards, _, infos = vecenv.step({"x": [1, 1], "y": [2, 2], "z": [3, 3]})
        seen.append((vecenv.masks[:3].tolist(), vecenv.terminals[:3].tolist(), rewards["y"][0]))
    assert seen == [
        ([False, True, True], [True, False, False], 2),
        ([False, False, True], [False, True, False], 2),
        ([True, True, True], [False, False, True], 0),
    ]
    assert infos[2]["episode"]["r"] == 9
    assert vecenv.final_observations[:3, 0].tolist() == [0.25, 0.5, 0.75]
    # lives of 1, 2 and 3 steps, in both envs, with returns 1, 4 and 9
    metrics = vecenv.drain_metrics()
    assert metrics["episodes"] == 6
    assert metrics["alive"] == metrics["episode_length"] == 2
    assert metrics["mean_reward"] == pytest.approx(14 / 3)


class Aiming:
    """PettingZoo's AEC API without the package: two agents aim by turns, for six turns."""

    possible_agents: ClassVar = ["x", "y"]
    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, action_space: Any) -> None:
        self.space = action_space

    def observation_space(self, agent: str) -> Any:
        return VECTOR

    def action_space(self, agent: str) -> Any:
        return self.space

    def agent_iter(self) -> Any: ...

    def observe(self, agent: str) -> Any:
        return np.full(2, self.tick / 6, np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.tick, self.agents = 0, list(self.possible_agents)
        self.agent_selection = "x"
        self.rewards, self.infos = dict.fromkeys("xy", 0.0), {"x": {}, "y": {}}
        self.terminations, self.truncations = (dict.fromkeys("xy", False) for _ in range(2))

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self.agents.remove(self.agent_selection)
            self.agent_selection = "y"
            return
        self.tick += 1
        self.rewards["x" if self.tick % 2 else "y"] = 1.0
        self.agent_selection = "y" if self.tick % 2 else "x"
        if self.tick == 6:
            self.terminations = dict.fromkeys("xy", True)


@pytest.mark.parametrize("space", [Box(-1, 1, (2,)), Tuple([Discrete(3), Box(-1, 1, (2,))])])
def test_box_actions_of_waiting_agents_are_not_learned_from(space: Any) -> None:
    with pufferlib.emulate(lambda: Aiming(space), num_envs=2) as vecenv:
        vecenv.reset(seed=0)
        assert vecenv.action_masks is not None
        assert vecenv.action_masks.all(1).tolist() == [True, False, True, False]
        assert not vecenv.action_masks[1].any()
        assert vecenv.masks.all()  # waiting agents are present: rewards reach them
        trainer = pufferlib.PuffeRL(vecenv, batch_size=48, num_steps=12, dashboard="off")
        trainer.evaluate()
        logprobs = trainer.rollout.logprobs  # x and y of both envs, by turns for 12 steps
        is_turn = (np.arange(12) % 2 == 0) == (np.arange(4) % 2 == 0)[:, None]
        assert ((logprobs != 0).numpy() == is_turn).all()
        assert trainer.train()["policy_loss"] < 1  # and all of it is finite
    assert pufferlib.check_env(Aiming(space)).ok
