"""Emulation: exact numbers from any env."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from parity import assert_gymnasium_parity
from playback import Gym, Legacy
from space_trees import FLOATS, INTEGERS, assert_bit_equal, trees

import pufferlib
from pufferlib import PufferEnv
from pufferlib.emulation import Emulated, adapt, env_seed
from pufferlib.errors import UsageError
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
