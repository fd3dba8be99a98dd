"""Serial: Python envs in a plain loop over shared rows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import pufferlib
from pufferlib.emulation import env_seed
from pufferlib.errors import EnvError, UsageError
from pufferlib.native import NativeEnv
from pufferlib.vectorization import Serial


class Pair(pufferlib.PufferEnv):
    """Two agents; rewards are what they chose; agent 0's episodes have 2 steps, agent 1's 3.

    It writes flags only where something ends, and rewards only where the action was 1.
    """

    def __init__(self, infos: Any = (), size: int = 2, agents: int = 2) -> None:
        self.single_observation_space = Box(-1, 1, (size,), np.float32)
        self.single_action_space = Discrete(2)
        self.num_agents = agents
        self.spoken = infos
        super().__init__()

    def reset(self, seed: int | None = None) -> Any:
        self.seed = seed
        self.ticks = 0
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions: Any) -> Any:
        self.ticks += 1
        self.seen = actions.copy()
        self.rewards[actions == 1] = 1
        if self.ticks % 2 == 0:
            self.terminals[0] = True
        if self.ticks % 3 == 0:
            self.truncations[1] = True
            self.final_observations[1] = self.ticks
        return self.observations, self.rewards, self.terminals, self.truncations, self.spoken


def test_every_env_gets_its_seed_and_its_rows() -> None:
    vecenv = Serial(Pair, 3)
    vecenv.reset(seed=9)
    assert [env.seed for env in vecenv.envs] == [9, env_seed(9, 1), env_seed(9, 2)]
    vecenv.step([0, 1, 1, 0, 1, 1])
    assert [env.seen.tolist() for env in vecenv.envs] == [[0, 1], [1, 0], [1, 1]]
    assert vecenv.rewards.tolist() == [0, 1, 1, 0, 1, 1]


def test_rewards_and_flags_of_the_last_step_are_cleared() -> None:
    vecenv = Serial(Pair, 1)
    vecenv.reset(seed=0)
    vecenv.step([1, 1])
    *_, dones, _ = vecenv.step([0, 0])
    assert vecenv.rewards.tolist() == [0, 0]
    assert dones.tolist() == [True, False]
    *_, dones, _ = vecenv.step([1, 0])
    assert vecenv.rewards.tolist() == [1, 0]
    assert dones.tolist() == [False, True]
    assert vecenv.terminals.tolist() == [False, False]


def test_finished_episodes_carry_return_and_length() -> None:
    vecenv = Serial(Pair, 2)
    vecenv.reset(seed=0)
    reported = []
    for _ in range(3):
        *_, infos = vecenv.step([1, 1, 0, 1])
        assert len(infos) == 4
        reported.append([(i["episode"]["r"], i["episode"]["l"]) if i else None for i in infos])
    assert reported == [
        [None, None, None, None],
        [(2.0, 2), None, (0.0, 2), None],
        [None, (3.0, 3), None, (3.0, 3)],
    ]
    # returns 2, 0, 3, 3
    assert vecenv.drain_metrics() == {
        "episodes": 4.0,
        "mean_reward": 2.0,
        "min_reward": 0.0,
        "max_reward": 3.0,
        "episode_length": 2.5,
    }
    assert vecenv.drain_metrics() == {"episodes": 0.0}


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ([{"a": 1}, {"b": 2}], [{"a": 1}, {"b": 2}]),
        ([{"a": 1}], [{"a": 1}, {}]),
        ({"a": 1}, [{"a": 1}, {}]),
        ([], [{}, {}]),
        (None, [{}, {}]),
    ],
)
def test_infos_stay_beside_their_slots(infos: Any, expected: list[dict[str, Any]]) -> None:
    vecenv = Serial(lambda: Pair(infos), 2)
    vecenv.reset(seed=0)
    *_, reported = vecenv.step(0)
    assert reported == expected * 2


def test_reset_forgets_statistics_like_the_c_core() -> None:
    for vecenv in (Serial(Pair, 1), pufferlib.make("cartpole", num_envs=1, max_steps=1)):
        vecenv.reset(seed=0)
        for _ in range(4):
            vecenv.step(0)
        vecenv.reset(seed=0)
        assert vecenv.drain_metrics() == {"episodes": 0.0}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (lambda: Pair(agents=3), "`num_agents` of every env must be that of env 0, 2, but env 1"),
        (lambda: Pair(size=5), "`single_observation_space` of every env must be that of env 0"),
        (lambda: object(), "object must define `reset`, but has none"),
    ],
)
def test_envs_must_be_alike(second: Any, said: str) -> None:
    creators = iter([Pair, second])
    with pytest.raises((UsageError, EnvError), match=said):
        Serial(lambda: next(creators)(), 2)


def test_at_least_one_env() -> None:
    with pytest.raises(UsageError, match="`num_envs` must be at least 1, but got 0"):
        Serial(Pair, 0)


def test_python_envs_have_no_snapshot() -> None:
    vecenv = Serial(Pair, 1)
    vecenv.reset(seed=0)
    assert vecenv.snapshot() is None
    with pytest.raises(UsageError, match="Serial cannot restore a snapshot"):
        vecenv.restore(np.zeros((1, 1), np.uint8))


def test_a_snapshot_moves_between_serial_and_threads() -> None:
    serial = Serial(lambda: NativeEnv("cartpole"), 3)
    with pufferlib.make("cartpole", num_envs=3, num_workers=2) as threads:
        serial.reset(seed=1)
        serial.step([0, 1, 0])
        state = serial.snapshot()
        assert state is not None
        threads.restore(state)
        assert (threads.observations == serial.observations).all()
        for _ in range(20):
            serial.step([0, 1, 1])
            threads.step([0, 1, 1])
        assert (threads.observations == serial.observations).all()


def test_after_a_step_that_broke_off_a_reset_is_due() -> None:
    class Odd(gymnasium.Env[Any, Any]):
        observation_space, action_space = Box(-9, 9, (1,), np.float32), Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            if action:
                raise ValueError("no")
            return np.ones(1, np.float32), 1.0, False, False, {}

    with Serial(Odd, 3) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(EnvError, match=r"Odd \(env 1\), `step`: raised ValueError: no"):
            vecenv.step([0, 1, 0])  # env 0 has taken it, env 2 has not
        with pytest.raises(UsageError, match="`reset` must be called before `step`"):
            vecenv.step(0)
        vecenv.reset(seed=0)
        assert vecenv.step(0)[0].tolist() == [[1], [1], [1]]


def test_close_reaches_every_env_once() -> None:
    closed = []

    class Closing(Pair):
        def close(self) -> None:
            closed.append(self)

    with Serial(Closing, 3) as vecenv:
        vecenv.reset(seed=0)
    vecenv.close()
    assert len(closed) == 3


def test_render_draws_the_env_asked_for() -> None:
    serial = Serial(lambda: NativeEnv("squared"), 2)
    serial.reset(seed=0)
    assert serial.render(1) is not None
    with pytest.raises(UsageError, match=r"`env` must be in 0..1, but got 2"):
        serial.render(2)
    python = Serial(Pair, 1)
    python.reset()
    assert python.render() is None
