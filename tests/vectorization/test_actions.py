"""Actions in the forms that spaces give and people type: what reaches the envs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space, iterate

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.vectorization import Multiprocessing, Serial

NUM_ENVS = 3
MIXED = Tuple((Discrete(4), Box(-1, 1, (1,), np.float32)))
SPACES = {
    "discrete": Discrete(4),
    "discrete from 2": Discrete(4, start=2),
    "discrete below 0": Discrete(5, start=-2),
    "multi discrete": MultiDiscrete([3, 5]),
    "multi discrete from 7": MultiDiscrete([3, 5], start=[7, -1]),
    "multi discrete of two axes": MultiDiscrete([[2, 3], [4, 5]]),
    "multi binary": MultiBinary((2, 2)),
    "box": Box(-1, 1, (2, 3), np.float32),
    "box of float64": Box(-1, 1, (2,), np.float64),
    "dict of indices": Dict(a=Discrete(3, start=1), b=MultiBinary(2)),
    "dict of reals": Dict(a=Box(-1, 1, (2,), np.float32), b=Box(0, 1, (), np.float32)),
    "tuple": Tuple((Discrete(3), MultiDiscrete([2, 4]))),
    "mixed": Dict(
        turn=Discrete(9, start=-4),
        inner=Tuple((Box(-1, 1, (2,), np.float32), MultiDiscrete([2, 2, 2]))),
    ),
    "mixed tuple": MIXED,
}
every_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)


class Keeper(gymnasium.Env[Any, Any]):
    """Keeps the last action it got."""

    observation_space = Box(0, 1, (1,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space
        self.got: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.got = action
        return np.zeros(1, np.float32), 0.0, False, False, {}


def got_by_envs(space: Any, actions: Any, num_envs: int = NUM_ENVS) -> list[Any]:
    """Return what each env gets when a vector env is stepped with `actions`."""
    vecenv = Serial(lambda: Keeper(space), num_envs)
    vecenv.reset(seed=0)
    vecenv.step(actions)
    return [env.env.got for env in vecenv.envs]


def assert_equal(one: Any, other: Any) -> None:
    """Compare two actions, part by part; reals travel as float32."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for part, twin in zip(one, other, strict=True):
            assert_equal(part, twin)
    else:
        np.testing.assert_array_equal(np.float32(one), np.float32(other))


def assert_all_equal(got: list[Any], wanted: list[Any]) -> None:
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert_equal(one, other)


@every_space
def test_a_list_of_samples_reaches_the_envs(space: Any) -> None:
    space.seed(1)
    samples = [space.sample() for _ in range(NUM_ENVS)]
    assert_all_equal(got_by_envs(space, samples), samples)


@every_space
def test_an_array_of_samples_reaches_the_envs(space: Any) -> None:
    space.seed(1)
    samples = [space.sample() for _ in range(NUM_ENVS)]
    array = np.empty(NUM_ENVS, dtype=object)
    array[:] = samples
    assert_all_equal(got_by_envs(space, array), samples)


@every_space
def test_a_sample_of_the_batched_space_reaches_the_envs(space: Any) -> None:
    batched = batch_space(space, NUM_ENVS)
    batched.seed(2)
    sample = batched.sample()
    assert_all_equal(got_by_envs(space, sample), list(iterate(batched, sample)))


@every_space
def test_one_sample_serves_all_envs(space: Any) -> None:
    space.seed(3)
    sample = space.sample()
    assert_all_equal(got_by_envs(space, sample), [sample] * NUM_ENVS)


@every_space
def test_samples_reach_vectors_inside_of_vectors(space: Any) -> None:
    batched = batch_space(space, 4)
    batched.seed(4)
    sample = batched.sample()
    nested = Serial(lambda: Serial(lambda: Shown(space), 2), 2)
    with nested, Serial(lambda: Shown(space), 4) as flat:
        nested.reset(seed=0)
        flat.reset(seed=0)
        assert nested.step(sample)[1].tolist() == flat.step(sample)[1].tolist()


class Shown(Keeper):
    """Turns the action into a reward."""

    def step(self, action: Any) -> Any:
        flat = gymnasium.spaces.flatten(self.action_space, action)
        return np.zeros(1, np.float32), float(flat @ np.arange(1, len(flat) + 1)), False, False, {}


def test_samples_reach_worker_processes() -> None:
    space = SPACES["mixed"]
    samples = [space.sample() for _ in range(2)]
    with (
        Multiprocessing(lambda: Shown(space), 2, num_workers=2) as workers,
        Serial(lambda: Shown(space), 2) as serial,
    ):
        workers.reset(seed=0)
        serial.reset(seed=0)
        assert workers.step(samples)[1].tolist() == serial.step(samples)[1].tolist()


# ---- Numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        [[2.0, 0.37], [0, -1], [3, 1]],
        np.array([[2.0, 0.37], [0, -1], [3, 1]]),
        np.array([[2.0, 0.37], [0, -1], [3, 1]], np.float32),
        torch.tensor([[2.0, 0.37], [0, -1], [3, 1]]),
    ],
)
def test_a_float_row_of_a_mixed_space_holds_a_choice_and_a_real(rows: Any) -> None:
    got = got_by_envs(MIXED, rows)
    assert [choice for choice, _ in got] == [2, 0, 3]
    np.testing.assert_array_equal([real[0] for _, real in got], np.float32([0.37, -1, 1]))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_integers_of_a_mixed_space_are_never_read_as_the_bits_of_a_float(dtype: Any) -> None:
    got = got_by_envs(MIXED, np.array([[2, 1], [0, 0], [3, 1]], dtype))
    assert [(choice, real.tolist()) for choice, real in got] == [(2, [1]), (0, [0]), (3, [1])]


def test_a_row_of_a_mixed_space_serves_all() -> None:
    got = got_by_envs(MIXED, [2.0, 0.5])
    assert [(choice, real.tolist()) for choice, real in got] == [(2, [0.5])] * NUM_ENVS
    typed = got_by_envs(MIXED, [(1, 0.5), (2, 0.25), (0, -1)])
    assert [(choice, real.tolist()) for choice, real in typed] == [
        (1, [0.5]),
        (2, [0.25]),
        (0, [-1]),
    ]


@pytest.mark.parametrize("row", [[1.5, 0.0], [np.nan, 0.0], [np.inf, 0.0]])
def test_a_choice_that_is_no_whole_number_is_refused(row: Any) -> None:
    with pytest.raises(UsageError, match=r"(whole numbers in the first 1 columns|be in 0..3)"):
        got_by_envs(MIXED, [row] * NUM_ENVS)


def test_a_value_below_the_start_is_refused_and_does_not_wrap_around() -> None:
    space = Discrete(4, start=2)
    for bad in ([1, 2, 3], np.array([2**40, 2, 3]), np.array([2**63, 2, 3], np.uint64)):
        with pytest.raises(
            UsageError,
            match=r"must be in 2..5 for Discrete\(4, start=2\), but slot 0 got (1|\d{5,})\.",
        ):
            got_by_envs(space, bad)
    with pytest.raises(UsageError, match=r"must be in 1\.\.4"):
        got_by_envs(Discrete(4, start=1), np.array([-(2**63), 2, 3]))


@pytest.mark.parametrize(
    ("space", "actions", "said"),
    [
        (MIXED, [(1, [0.5])] * 2, r"must be a list of 3 \(an action for each slot\), but got 2"),
        (SPACES["mixed"], {"turn": np.zeros(2, int)}, "must be of dtype|must have"),
        (SPACES["dict of indices"], {"a": np.ones(2, int), "b": np.zeros((2, 2), int)}, "3 rows"),
        (MIXED, [(1, [0.5]), (9, [0.5]), (1, [0.5])], r"`action\[0\]` must be a value of Discrete"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(space: Any, actions: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        got_by_envs(space, actions)
    assert "\n" not in str(caught.value)


# ---- Several agents ------------------------------------------------------------------------------


class Pair(pufferlib.PufferEnv):
    """Two agents that are rewarded with what they do; `b` leaves after its first step."""

    num_agents = 2
    agents = possible_agents = ("a", "b")

    def __init__(self, action_space: Any = None, leaves: bool = False) -> None:
        super().__init__()
        self.single_observation_space = self.make_space((1,))
        self.single_action_space = self.make_discrete(9) if action_space is None else action_space
        self._leaves = leaves

    def reset(self) -> Any:
        self.there = ["a", "b"]
        return {id: np.zeros(1, np.float32) for id in self.there}

    def step(self, actions: Any) -> Any:
        observations = {id: np.zeros(1, np.float32) for id in self.there}
        rewards = {id: _total(actions[id]) for id in self.there}
        dones = {id: self._leaves and id == "b" for id in self.there}
        self.there = [id for id in self.there if not dones[id]]
        return observations, rewards, {**dones, "__all__": False}, {}


def _total(action: Any) -> float:
    parts = action.values() if isinstance(action, dict) else [action]
    return float(sum(np.sum(part) for part in parts))


@pytest.mark.parametrize(
    "actions",
    [
        [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}],
        [{"b": 2, "a": 1}, {"b": 4, "a": 3}, {"b": 6, "a": 5}],
        {"a": [1, 3, 5], "b": np.array([2, 4, 6])},
        [[1, 2], [3, 4], [5, 6]],
        np.array([[1, 2], [3, 4], [5, 6]]),
        np.array([[1, 2], [3, 4], [5, 6]], np.int32),
        np.array([1, 2, 3, 4, 5, 6]),
    ],
)
def test_actions_of_several_agents_come_in_many_forms(actions: Any) -> None:
    vecenv = Serial(Pair, 3)
    vecenv.reset()
    rewards = vecenv.step(actions)[1]
    assert rewards["a"].tolist() == [1, 3, 5]
    assert rewards["b"].tolist() == [2, 4, 6]


def test_structured_actions_of_several_agents_come_in_many_forms() -> None:
    space = Dict(a=Discrete(9, start=1), x=Box(0, 9, (1,), np.float32))
    both = {"a": {"a": 3, "x": [0.5]}, "b": {"a": 2, "x": [1.0]}}
    batched = {"a": np.array([[3, 2], [3, 2]]), "x": np.array([[[0.5], [1]], [[0.5], [1]]])}
    listed = [[both["a"], both["b"]], [both["a"], both["b"]]]
    for actions in ([both, both], both, batched, listed, listed[0] * 2):
        vecenv = Serial(lambda: Pair(space), 2)
        vecenv.reset()
        rewards = vecenv.step(actions)[1]
        assert rewards["a"].tolist() == [3.5, 3.5]
        assert rewards["b"].tolist() == [3, 3]


def test_an_agent_that_has_left_may_be_missing_and_one_that_is_there_may_not() -> None:
    vecenv = Serial(lambda: Pair(leaves=True), 2)
    vecenv.reset()
    with pytest.raises(UsageError, match=r"`actions\[1\]` must have every agent, but lacks 'b'"):
        vecenv.step([{"a": 1, "b": 2}, {"a": 1}])
    with pytest.raises(UsageError, match="Unknown agent `c`"):
        vecenv.step([{"a": 1, "b": 2}, {"a": 1, "c": 2}])
    with pytest.raises(UsageError, match=r"a list of 2 \(a dict for each env\), but got 1"):
        vecenv.step([{"a": 1, "b": 2}])
    vecenv.step([{"a": 1, "b": 2}] * 2)
    assert vecenv.masks.tolist() == [True, False] * 2
    assert vecenv.step([{"a": 4}, {"a": 5}])[1]["a"].tolist() == [4, 5]


# ---- The trainer's side --------------------------------------------------------------------------


@every_space
def test_what_a_trainer_predicts_is_what_step_takes(space: Any) -> None:
    vecenv = Serial(lambda: Keeper(space), 4)
    with pufferlib.PuffeRL(vecenv, batch_size=64, num_steps=4, num_iterations=1) as trainer:
        trainer.evaluate()
        observations = vecenv.reset(seed=0)
        actions, _ = trainer.predict(observations, deterministic=False)
        vecenv.step(actions)
        for env, action in zip(vecenv.envs, actions, strict=True):
            assert env.env.got in space
            if not isinstance(space, Dict | Tuple):
                np.testing.assert_allclose(np.ravel(env.env.got), np.ravel(action))
