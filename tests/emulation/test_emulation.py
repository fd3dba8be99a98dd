"""Emulation: exact numbers from any env."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from parity import assert_gymnasium_parity
from playback import VECTOR, Dicts, Gym
from space_trees import FLOATS, INTEGERS, assert_bit_equal, trees

import pufferlib
from pufferlib import PufferEnv
from pufferlib.emulation import Emulated, adapt, env_seed
from pufferlib.errors import EnvError, UnknownNameError, UsageError
from pufferlib.spaces import (
    action_layout,
    action_reader,
    action_values,
    flatten_action,
    observation_layout,
    observation_writer,
    unflatten_action,
    unflatten_observation,
)
from pufferlib.vectorization import Serial

# ---- Exactness -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least_episodes"),
    [
        ("CartPole-v1", 300),
        ("Acrobot-v1", 10),
        ("Taxi-v4", 40),
        ("Blackjack-v1", 5000),
        ("FrozenLake-v1", 1000),
        ("Pendulum-v1", 50),
    ],
)
def test_ten_thousand_steps_equal_the_original(name: str, least_episodes: int) -> None:
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error:
        name = name.replace("v4", "v3")  # Taxi before Gymnasium 1.3
    assert assert_gymnasium_parity(lambda: gymnasium.make(name), 10_000) >= least_episodes


def test_every_env_of_a_vector_equals_the_original_with_its_seed() -> None:
    vecenv = pufferlib.emulate(gymnasium.make("CartPole-v1"), num_envs=4)
    vecenv.reset(seed=5)
    originals = [gymnasium.make("CartPole-v1") for _ in range(4)]
    for index, env in enumerate(originals):
        observation, _ = env.reset(seed=env_seed(5, index))
        assert (vecenv.observations[index] == observation).all()
    for _ in range(6):  # too few for a pole to fall
        vecenv.step([0, 1, 0, 1])
        for index, env in enumerate(originals):
            assert (vecenv.observations[index] == env.step(index % 2)[0]).all()


def test_seeds_are_distinct_fit_32_bits_and_start_with_the_given_one() -> None:
    for seed in (0, 1, 42, 2**31, 2**40):
        seeds = [env_seed(seed, index) for index in range(5000)]
        assert seeds[0] == seed
        assert len(set(seeds)) == 5000
        assert max(seeds[1:]) < 2**32
    assert not set(seeds[1:]) & {env_seed(1, index) for index in range(1, 100)}


def test_only_the_first_reset_is_seeded() -> None:
    env = Gym(action_space=Box(-1, 1, (1,), np.float32), length=2)
    vecenv = pufferlib.emulate(env)
    vecenv.reset(seed=3)
    for _ in range(4):
        vecenv.step(np.zeros((1, 1)))
    assert env.seeds == [3, None, None]


def test_probing_for_masks_keeps_the_global_generators() -> None:
    class Global(Gym):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.random.rand(2).astype(np.float32), {}

    np.random.seed(0)
    expected = np.random.rand(2).astype(np.float32)
    np.random.seed(0)
    vecenv = pufferlib.emulate(Global)
    assert (vecenv.reset(seed=1)[0] == expected).all()


# ---- Spaces --------------------------------------------------------------------------------------

TREES = trees(["bool", *INTEGERS, *FLOATS])
ACTIONS = trees(["bool", "int8", "uint8", "int16", "float16", "float32"])


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(TREES, ACTIONS, st.integers(0, 2**32 - 1))
@example(MultiBinary(3), Box(0, 1, (0,), np.float16), 0)
def test_values_of_any_space_pass_through_bit_equal(space: Any, actions: Any, seed: int) -> None:
    space.seed(seed)
    actions.seed(seed)
    env = Gym(space, actions, length=1000, first=space.sample())
    vecenv = pufferlib.emulate(env)
    vecenv.reset(seed=0)
    layout, action = observation_layout(space), action_layout(actions)
    assert_bit_equal(unflatten_observation(layout, vecenv.observations[0]), env.said["first"])
    for turn in range(6):
        env.said["observation"] = space.sample()
        chosen = actions.sample()
        row = np.zeros((1, *action.shape), action.dtype)
        flatten_action(action, chosen, row[0, ...])
        out = create_empty_array(actions, 1)
        forms = [chosen], action_values(action, row), concatenate(actions, [chosen], out)
        vecenv.step(forms[turn % 3])
        assert_bit_equal(env.actions[-1], chosen)
        seen = unflatten_observation(layout, vecenv.observations[0])
        assert_bit_equal(seen, env.said["observation"])


def written_slowly(layout: Any, value: Any, row: Any) -> None:
    """Write an observation leaf by leaf, found by its path: the obvious way."""
    for leaf in layout.leaves:
        part = functools.reduce(lambda node, key: node[key], leaf.path, value)
        layout.view(row, leaf)[...] = np.asarray(part)


def read_slowly(layout: Any, row: Any) -> list[Any]:
    """Return the leaves of an action: indices plus their start, reals as the space stores them."""
    indices, reals = (part.tolist() for part in layout.split(row[np.newaxis]))
    values = dict(zip(["discrete", "box"], [list(indices[0]), list(reals[0])], strict=True))
    parts = []
    for leaf in layout.leaves:
        source = values["box" if leaf.kind == "box" else "discrete"]
        numbers = np.array([source.pop(0) for _ in range(leaf.size)]).reshape(leaf.shape)
        parts.append((numbers if leaf.kind == "box" else numbers + leaf.lowest).tolist())
    return parts


def leaves_of(value: Any) -> list[Any]:
    if isinstance(value, dict | tuple):
        children = value.values() if isinstance(value, dict) else value
        return [leaf for child in children for leaf in leaves_of(child)]
    return [np.asarray(value).tolist()]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(TREES, ACTIONS, st.integers(0, 2**32 - 1))
def test_writers_and_readers_of_rows_equal_a_slow_obvious_twin(
    space: Any, actions: Any, seed: int
) -> None:
    space.seed(seed)
    actions.seed(seed)
    layout, action = observation_layout(space), action_layout(actions)
    fast, slow = (np.zeros(layout.shape, layout.dtype) for _ in range(2))
    write = observation_writer(layout, fast[...])
    row = np.zeros(action.shape, action.dtype)
    read = action_reader(action, row[...])
    for _ in range(50):
        value = space.sample()
        write(value)
        written_slowly(layout, value, slow[...])
        assert fast.tobytes() == slow.tobytes()
        chosen = actions.sample()
        flatten_action(action, chosen, row[...])
        assert_bit_equal(read(), chosen)
        assert_bit_equal(unflatten_action(action, row), chosen)
        assert leaves_of(chosen) == read_slowly(action, row)


def test_the_env_gets_actions_in_the_form_of_its_space() -> None:
    space = Dict(
        go=Discrete(3, start=-1),
        many=MultiDiscrete([2, 5]),
        on=MultiBinary(2),
        push=Box(-1, 1, (2,), np.float64),
    )
    env = Gym(action_space=space)
    vecenv = pufferlib.emulate(env, num_envs=1)
    vecenv.reset(seed=0)
    vecenv.step([[-1, 1, 4, 1, 0, 0.5, -0.25]])  # go, many, on, then push
    action = env.actions[0]
    assert type(action["go"]) is int
    assert action["go"] == -1
    assert action["many"].tolist() == [1, 4]
    assert action["on"].tolist() == [1, 0]
    assert action["push"].dtype == np.float64
    assert action["push"].tolist() == [0.5, -0.25]
    assert space.contains(action)


def test_one_sampled_action_is_used_for_all_envs() -> None:
    for space in (
        Discrete(3),
        Box(-1, 1, (2,), np.float32),
        MultiDiscrete([2, 3]),
        Dict(a=Discrete(2), b=Box(-1, 1, (1,), np.float32)),
        Tuple([Discrete(2), Discrete(3)]),
    ):
        envs = []

        def creator(space: Any = space, envs: list[Any] = envs) -> Gym:
            envs.append(Gym(action_space=space))
            return envs[-1]

        vecenv = pufferlib.emulate(creator, num_envs=2)
        vecenv.reset(seed=0)
        action = vecenv.action_space.sample()
        vecenv.step(action)
        for env in envs:
            assert_bit_equal(env.actions[0], action)


@pytest.mark.parametrize("action", [-1, 2, 2**31])
def test_an_invalid_index_raises(action: int) -> None:
    vecenv = pufferlib.emulate(Gym)
    vecenv.reset(seed=0)
    with pytest.raises(UsageError, match=r"`actions` must be in 0\.\.1 for Discrete"):
        vecenv.step([action])


# ---- Episodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_terminals_and_truncations_are_separate_and_have_final_observations(flag: str) -> None:
    class Ending(Gym):
        def observation(self) -> Any:
            return np.full(2, self.tick / 10, np.float32)

    vecenv = pufferlib.emulate(lambda: Ending(**{"terminated": False, flag: True}))
    vecenv.reset(seed=0)
    observations, _, dones, _ = vecenv.step(0)
    assert dones.tolist() == [True]
    assert vecenv.terminals.tolist() == [flag == "terminated"]
    assert vecenv.truncations.tolist() == [flag == "truncated"]
    assert vecenv.final_observations[0].tolist() == [np.float32(0.1)] * 2
    assert observations[0].tolist() == [0, 0]


def test_a_terminal_wins_over_a_truncation() -> None:
    vecenv = pufferlib.emulate(lambda: Gym(terminated=True, truncated=True))
    vecenv.reset(seed=0)
    vecenv.step(0)
    assert (vecenv.terminals[0], vecenv.truncations[0]) == (True, False)


def test_numbers_in_the_last_info_are_averaged() -> None:
    lengths = iter([2, 4])
    vecenv = pufferlib.emulate(lambda: Gym(length=next(lengths)), num_envs=2)
    vecenv.reset(seed=0)
    for _ in range(4):
        *_, infos = vecenv.step(0)
    assert infos[0]["episode"]["r"] == infos[0]["episode"]["l"] == 2
    assert infos[1]["episode"]["l"] == 4
    assert infos[1]["episode"]["t"] >= 0
    # env 0 ended twice with score 2, env 1 once with score 4; names are no numbers
    assert vecenv.drain_metrics() == {
        "episodes": 3,
        "mean_reward": 8 / 3,
        "min_reward": 2,
        "max_reward": 4,
        "episode_length": 8 / 3,
        "score": 8 / 3,
    }
    assert vecenv.drain_metrics() == {"episodes": 0}


def test_an_envs_own_episode_statistics_are_kept() -> None:
    env = gymnasium.wrappers.RecordEpisodeStatistics(Gym())
    vecenv = pufferlib.emulate(env)
    vecenv.reset(seed=0)
    for _ in range(3):
        *_, infos = vecenv.step(0)
    assert float(infos[0]["episode"]["r"]) == 3


class Legacy:
    """Gym before 0.26: a seed method, observations alone, four parts."""

    observation_space = VECTOR
    action_space = Discrete(2)

    def __init__(self, **info: Any) -> None:
        self.info = info

    def seed(self, seed: int) -> None:
        self.rng = np.random.RandomState(seed)

    def reset(self) -> Any:
        return self.rng.rand(2).astype(np.float32)

    def step(self, action: int) -> Any:
        return self.rng.rand(2).astype(np.float32), 1, True, self.info


def test_a_legacy_env_is_seeded_and_returns_four_parts() -> None:
    vecenv = pufferlib.emulate(Legacy)
    rng = np.random.RandomState(4)
    assert (vecenv.reset(seed=4)[0] == rng.rand(2).astype(np.float32)).all()
    vecenv.step(0)
    assert (vecenv.final_observations[0] == rng.rand(2).astype(np.float32)).all()
    assert (vecenv.observations[0] == rng.rand(2).astype(np.float32)).all()
    assert vecenv.terminals.tolist() == [True]


def test_a_time_limit_in_the_info_is_a_truncation() -> None:
    vecenv = pufferlib.emulate(Legacy, **{"TimeLimit.truncated": True})
    vecenv.reset(seed=4)
    vecenv.step(0)
    assert (vecenv.terminals[0], vecenv.truncations[0]) == (False, True)


# ---- Agents that come and go ---------------------------------------------------------------------

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


# ---- Action masks --------------------------------------------------------------------------------


class Masked(Gym):
    """Allows only action `tick`, declared in one of three ways."""

    def __init__(self, way: str) -> None:
        mask = Box(0, 1, (3,), np.int8)
        super().__init__(Dict(action_mask=mask, seen=VECTOR) if way == "observation" else VECTOR)
        self.action_space, self.way = Discrete(3), way
        if way == "method":
            self.action_masks = self.mask

    def mask(self) -> Any:
        return np.arange(3) == self.tick

    def observation(self) -> Any:
        seen = np.zeros(2, np.float32)
        if self.way == "observation":
            return {"action_mask": self.mask().astype(np.int8), "seen": seen}
        return seen

    def info(self) -> Any:
        return {"action_mask": self.mask()} if self.way == "info" else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.tick = 0
        return self.observation(), self.info()

    def step(self, action: int) -> Any:
        assert action == self.tick
        self.tick += 1
        return self.observation(), 1.0, self.tick == 3, False, self.info()


@pytest.mark.parametrize("way", ["observation", "info", "method"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_action_masks_come_from_observation_info_or_method(way: str, wrapped: bool) -> None:
    def creator() -> Any:
        env = Masked(way)
        return gymnasium.wrappers.TimeLimit(env, 50) if wrapped else env

    vecenv = pufferlib.emulate(creator, num_envs=2)
    vecenv.reset(seed=0)
    assert vecenv.action_masks is not None
    for step in range(6):
        assert (vecenv.action_masks.argmax(1) == step % 3).all()
        assert (vecenv.action_masks.sum(1) == 1).all()
        vecenv.step(vecenv.action_masks.argmax(1))
    assert vecenv.drain_metrics()["episodes"] == 4


def test_an_env_without_masks_has_none() -> None:
    assert pufferlib.emulate(Gym).action_masks is None
    assert pufferlib.emulate(lambda: Gym(action_space=Box(-1, 1, (1,)))).action_masks is None


# ---- Copies --------------------------------------------------------------------------------------


def test_an_instance_is_used_itself_and_copied_by_its_spec() -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=7)
    vecenv = pufferlib.emulate(env, num_envs=3)
    assert vecenv.name == "CartPoleEnv"
    assert vecenv.envs[0].env is env
    assert len({id(each.env.unwrapped) for each in vecenv.envs}) == 3
    assert vecenv.envs[2].env.spec.max_episode_steps == 7


def test_an_instance_without_a_spec_is_deep_copied() -> None:
    env = Gym(length=2)
    vecenv = pufferlib.emulate(env, num_envs=2)
    vecenv.reset(seed=0)
    vecenv.step([0, 1])
    assert env.actions == [0]
    assert vecenv.envs[1].env.actions == [1]


def test_an_env_that_cannot_be_copied_raises_and_suggests_a_factory() -> None:
    import threading

    env = Gym()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"Try a factory: `emulate\(lambda: Gym\(\.\.\.\)\)`"):
        pufferlib.emulate(env, num_envs=2)
    assert pufferlib.emulate(env).num_envs == 1


def test_classes_and_factories_take_params() -> None:
    vecenv = pufferlib.emulate(Gym, num_envs=2, length=1)
    vecenv.reset(seed=0)
    assert vecenv.step(0)[2].all()
    with pytest.raises(UsageError, match="env params must go to a class or factory"):
        pufferlib.emulate(Gym(), length=1)


def test_emulate_takes_the_sizes_and_seed_of_make() -> None:
    assert pufferlib.emulate(Gym).num_envs == 1
    assert pufferlib.emulate(Gym, num_workers=2, envs_per_worker=3).num_envs == 6
    with pytest.raises(UsageError, match="`num_envs` must be a multiple of `envs_per_worker`"):
        pufferlib.emulate(Gym, num_envs=5, envs_per_worker=2)
    vecenv = pufferlib.emulate(Gym, seed=8)
    vecenv.reset()
    assert vecenv.envs[0].seeds[-1] == 8


def test_make_emulates_registered_envs_of_any_api() -> None:
    pufferlib.register("a-gym-env", Gym, {"length": 2})
    pufferlib.register("a-legacy-env", Legacy)
    for name in ("a-gym-env", "a-legacy-env"):
        with pufferlib.make(name, num_envs=2) as vecenv:
            vecenv.reset(seed=0)
            vecenv.step(0)
            assert vecenv.name == name


@pytest.mark.parametrize(
    ("x", "said"),
    [
        ("CartPole-v1", r"`emulate` must get an env, but got the name .* Try `make\('CartPole"),
        (3, "`emulate` must get an env, or the class or factory of one, but got 3"),
        (math, "`math` must have `parallel_env` or `env`"),
        (lambda: Gym, r"`env` must be an environment, but got Gym. Try `Gym\(\)`"),
        (lambda: object(), "object must define `reset`, but has none"),
    ],
)
def test_an_object_that_is_not_an_env_raises(x: Any, said: str) -> None:
    with pytest.raises((UsageError, EnvError), match=said):
        pufferlib.emulate(x)


# ---- One env in rows, pictures, the end ----------------------------------------------------------


def test_an_adapted_env_works_outside_of_a_vector() -> None:
    env = adapt(gymnasium.make("CartPole-v1"))
    assert isinstance(env, Emulated)
    assert adapt(env) is env
    env.reset(seed=3)
    original = gymnasium.make("CartPole-v1")
    assert (env.observations[0] == original.reset(seed=3)[0]).all()
    env.step(np.array([1]))
    assert (env.observations[0] == original.step(1)[0]).all()
    assert env.observation_space == original.observation_space
    assert env.spec.id == "CartPole-v1"  # type: ignore[attr-defined]


def test_render_and_close_call_the_env() -> None:
    closed = []

    class Drawn(Gym):
        render_mode = "rgb_array"

        def render(self) -> Any:
            return np.zeros((4, 5, 3), np.uint8)

        def close(self) -> None:
            closed.append(self)

    with pufferlib.emulate(Drawn, num_envs=2, backend="serial") as vecenv:
        vecenv.reset(seed=0)
        picture = vecenv.render(1)
        assert picture is not None
        assert picture.shape == (4, 5, 3)
    assert len(closed) == 2
    silent = pufferlib.emulate(Gym)
    silent.reset(seed=0)
    assert silent.render() is None


def test_an_env_without_its_render_mode_is_not_asked_to_draw() -> None:
    class Warns:  # as PettingZoo's envs do: they belong to no class of Gymnasium
        observation_space = gymnasium.spaces.Box(0, 1, (1,))
        action_space = gymnasium.spaces.Discrete(2)
        metadata: Any = {"render_modes": ["rgb_array"]}  # noqa: RUF012
        render_mode = None

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), 0.0, False, False, {}

        def render(self) -> Any:
            raise AssertionError("no mode")

    env = pufferlib.emulate(Warns)
    env.reset(seed=0)
    assert env.render() is None


# ---- Learning ------------------------------------------------------------------------------------


class Echo(PufferEnv):
    """Two agents are each shown a number of 0..3 and earn 1 for naming it; 8 rounds to a game."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.num_agents = 2
        self.single_observation_space = self.make_space({"number": self.make_discrete(4)})
        self.single_action_space = self.make_discrete(4)

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.tick = 0
        return self.show()

    def show(self) -> Any:
        self.numbers = {id: int(self.rng.integers(4)) for id in ("left", "right")}
        return {id: {"number": number} for id, number in self.numbers.items()}

    def step(self, actions: dict[str, int]) -> Any:
        self.tick += 1
        rewards = {id: float(self.numbers[id] == action) for id, action in actions.items()}
        return self.show(), rewards, {"__all__": self.tick == 8}, {}


def trained(vecenv: Any, iterations: int, **settings: Any) -> float:
    """Train with PuffeRL; return the mean episode return of the last rollout."""
    import torch

    torch.manual_seed(1)
    with pufferlib.PuffeRL(
        vecenv, device="cpu", dashboard="off", seed=1, anneal_lr=False, **settings
    ) as trainer:
        for _ in range(iterations):
            score: float = trainer.evaluate()["mean_reward"]
            trainer.train()
    return score


def test_puffer_learns_an_emulated_cartpole() -> None:
    # a random policy holds the pole for 22 steps; 25 x 2048 = 51,200 steps of training reach 500
    with pufferlib.emulate(gymnasium.make("CartPole-v1"), num_envs=32) as vecenv:
        score = trained(
            vecenv,
            25,
            batch_size=2048,
            num_steps=64,
            minibatch_size=512,
            learning_rate=3e-3,
            reward_scale=0.1,
        )
    assert score > 200


@pytest.mark.slow
def test_puffer_learns_with_agents_in_dicts() -> None:
    # guessing earns 8 / 4 = 2 a game, knowing 8
    with pufferlib.emulate(Echo, num_envs=16) as vecenv:
        score = trained(vecenv, 20, batch_size=1024, num_steps=32, learning_rate=1e-2)
    assert score > 7


# ---- Final observations of envs that work in place -----------------------------------------------


class Cut(PufferEnv):
    """Counts up in place, cut (or ended) after three steps; writes its final observation or not."""

    def __init__(self, writes: bool, terminal: bool = False) -> None:
        self.single_observation_space = self.make_space((2,))
        self.single_action_space = self.make_discrete(2)
        self.num_agents = 2
        super().__init__()
        self.writes, self.terminal = writes, terminal

    def reset(self, seed: int | None = None) -> Any:
        self.observations[:] = [[0, 0], [10, 10]]
        return self.observations, []

    def step(self, actions: Any) -> Any:
        self.observations += 1
        if self.observations[0, 0] == 3:
            if self.writes:
                self.final_observations[:] = self.observations
            (self.terminals if self.terminal else self.truncations)[:] = True
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, []


def finals(creator: Any, num_steps: int) -> list[Any]:
    with Serial(creator, 2) as vecenv:
        vecenv.reset(seed=0)
        seen = []
        for _ in range(num_steps):
            *_, dones, _ = vecenv.step(np.zeros(4, np.int32))
            seen += vecenv.final_observations[dones, 0].tolist()
    return seen


def test_a_truncation_without_final_observation_warns_once() -> None:
    with pytest.warns(UserWarning, match="`final_observations` must be written where") as caught:
        seen = finals(lambda: Cut(writes=False), 6)
    assert seen == [2, 12, 2, 12] * 2  # what was seen before the step that cut it
    assert len(caught) == 1
    assert str(caught[0].message).startswith("Cut (env 0), `step`: ")


@pytest.mark.filterwarnings("error")
def test_written_final_observations_are_kept() -> None:
    assert finals(lambda: Cut(writes=True), 6) == [3, 13, 3, 13] * 2


@pytest.mark.filterwarnings("error")
def test_a_terminal_needs_no_final_observation() -> None:
    assert finals(lambda: Cut(writes=False, terminal=True), 3) == [2, 12, 2, 12]


# ---- Turns with a Box ----------------------------------------------------------------------------


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


def test_a_vector_env_of_gymnasium_is_not_taken_for_one_env() -> None:
    vector = gymnasium.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(UsageError, match="must be a single environment, but got the vector env"):
        pufferlib.emulate(vector)
