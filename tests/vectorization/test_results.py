"""What `reset` returns, and what happens where it is unpacked like Gymnasium's pair."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.vectorization import Multiprocessing, Serial, VectorEnv


class Pair(pufferlib.PufferEnv):
    """Two agents, by their ids."""

    num_agents = 2

    def __init__(self) -> None:
        super().__init__()
        self.single_observation_space = self.make_space((2,))
        self.single_action_space = self.make_discrete(2)

    def reset(self) -> Any:
        return {id: np.array([1, 2], np.float32) for id in ("a", "b")}

    def step(self, actions: Any) -> Any:
        return (
            self.reset(),
            dict.fromkeys("ab", 0.0),
            {"a": False, "b": False, "__all__": False},
            {},
        )


class Own(VectorEnv):
    """A user's own."""

    def __init__(self, num_envs: int) -> None:
        super().__init__()
        self.num_envs = num_envs
        self.observation_space = pufferlib.PufferEnv.make_space((2,))
        self.action_space = pufferlib.PufferEnv.make_discrete(2)

    def reset(self) -> Any:
        return np.zeros((self.num_envs, 2), np.float32)


VECTORS = {
    "threads of 1": lambda: pufferlib.make("cartpole", num_envs=1),
    "threads of 2": lambda: pufferlib.make("cartpole", num_envs=2),
    "threads of 5": lambda: pufferlib.make("cartpole", num_envs=5),
    "serial of 2": lambda: pufferlib.make("cartpole", num_envs=2, backend="serial"),
    "workers of 2": lambda: Multiprocessing(Pair, 2, 1, start_method="fork"),
    "agents of 1": lambda: Serial(Pair, 1),
    "agents of 2": lambda: Serial(Pair, 2),
    "a wrapper": lambda: pufferlib.Wrapper(pufferlib.make("cartpole", num_envs=2)),
    "a user's own": lambda: Own(2),
}
every_vector = pytest.mark.parametrize("create", VECTORS.values(), ids=VECTORS)


@every_vector
def test_unpacking_into_two_names_says_what_reset_returns(create: Any) -> None:
    env = create()
    with pytest.raises(UsageError, match=r"`env.reset\(\)` must be assigned to one name") as caught:
        _observations, _info = env.reset()
    assert "\n" not in str(caught.value)
    assert "Try `observations = env.reset()`" in str(caught.value)
    for _ in range(100):  # what the interpreter has specialised by now is refused too
        with pytest.raises(UsageError, match="one name"):
            (_observations, _info) = env.reset()
    env.close()


@every_vector
def test_all_other_uses_are_those_of_a_plain_value(create: Any) -> None:
    env = create()
    observations = env.reset()
    rows = list(observations)
    assert len(rows) == len(observations)
    for row, (number, other) in zip(observations, enumerate(observations), strict=True):
        assert isinstance(row, str | np.ndarray)
        assert number < len(rows)
        assert type(other) is type(row)
    if isinstance(observations, dict):
        assert dict(observations).keys() == {*observations} == {"a", "b"}
        assert {**observations}.keys() == {"a", "b"}
        observations = observations["a"]
    x, y, *_ = observations[0]  # the numbers of one row
    assert (x, y) == tuple(observations[0][:2])
    assert type(np.asarray(observations)) is np.ndarray
    assert torch.from_numpy(observations).shape == observations.shape
    assert np.shares_memory(torch.from_numpy(observations).numpy(), observations)
    env.close()


def test_rows_of_two_can_be_unpacked_once_they_are_a_list_or_a_copy() -> None:
    with pufferlib.make("cartpole", num_envs=2) as env:
        one, other = list(env.reset(seed=0))
        assert (one != other).any()
        one, other = env.reset(seed=0) * 2
        assert (one != other).any()
        first, second = env.reset(seed=0)[0][:2]
        assert first != second


def test_copies_and_files_are_plain() -> None:
    with pufferlib.make("cartpole", num_envs=2) as env:
        observations = env.reset(seed=0)
        one, other = copy.deepcopy(observations)
        assert (one != other).any()
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            twin = pickle.loads(pickle.dumps(observations, protocol))
            assert type(twin) is np.ndarray
            assert (twin == env.observations).all()
        assert repr(observations) == repr(env.observations)
    with Serial(Pair, 1) as agents:
        by_agent = agents.reset()
        assert type(pickle.loads(pickle.dumps(by_agent))) is dict
        assert type(by_agent["a"]) is np.ndarray


def test_steps_return_plain_arrays() -> None:
    with pufferlib.make("cartpole", num_envs=2) as env:
        env.reset(seed=0)
        assert type(env.recv().observations) is np.ndarray
        assert type(env.step([0, 1])[0]) is np.ndarray
