"""PufferEnv in its three forms, the spaces it makes, and Wrapper around one env or many."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import pufferlib
from pufferlib import PufferEnv, Wrapper
from pufferlib.emulation import adapt
from pufferlib.errors import EnvError, UsageError
from pufferlib.vectorization import Serial, VectorEnv


class Plain(PufferEnv):
    """Counts to 3; the reward is the action."""

    def __init__(self, buf: Any = None) -> None:
        super().__init__(buf)
        self.observation_space = self.make_space((4,))
        self.action_space = self.make_discrete(4)
        self.reset()

    def reset(self) -> Any:
        self.count = 0
        return np.zeros(4, dtype=np.float32)

    def step(self, action: int) -> Any:
        assert type(action) is int
        self.count += 1
        return np.full(4, self.count, np.float32), float(action), self.count == 3, {"score": 7}


class Pair(PufferEnv):
    """Two agents by id, as the guides write them: objects in `agents`, ids from the reset."""

    def __init__(self, num_agents: int = 2, buf: Any = None) -> None:
        super().__init__(buf)
        self.num_agents = num_agents
        self.single_observation_space = self.make_space({"position": (2,), "goal": (2,)})
        self.single_action_space = self.make_discrete(5)
        self.reset()

    def reset(self) -> Any:
        self.count = 0
        self.agents = {f"agent_{i}": [i, 0] for i in range(self.num_agents)}
        return {id: self.look(id) for id in self.agents}

    def look(self, id: str) -> Any:
        position = np.array(self.agents[id], np.float32)
        return {"position": position, "goal": np.array([self.count, 9], np.float32)}

    def step(self, actions: dict[str, int]) -> Any:
        self.count += 1
        for id, action in actions.items():
            self.agents[id][1] += action
        dones = dict.fromkeys(actions, self.count == 2)
        dones["__all__"] = all(dones.values())
        rewards = {id: float(action) for id, action in actions.items()}
        return {id: self.look(id) for id in actions}, rewards, dones, {id: {} for id in actions}


class InPlace(PufferEnv):
    """Episodes of two steps; rewards are the actions."""

    def __init__(self, buf: Any = None) -> None:
        self.single_observation_space = Box(-9, 9, (1,), np.float32)
        self.single_action_space = Discrete(3)
        self.num_agents = 2
        super().__init__(buf)

    def reset(self, seed: int | None = None) -> Any:
        self.count = 0
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions: Any) -> Any:
        self.count += 1
        self.rewards[:] = actions
        self.observations[:] = self.count
        if self.count == 2:
            self.terminals[:] = True
            self.final_observations[:] = self.observations
            self.reset()
        return self.observations, self.rewards, self.terminals, self.truncations, []


# ---- Spaces --------------------------------------------------------------------------------------


def test_shapes_become_spaces_as_documented() -> None:
    make_space = PufferEnv.make_space
    assert make_space((4,)) == Box(-np.inf, np.inf, (4,), np.float32)
    assert make_space(4) == make_space([4]) == make_space((4,))
    assert make_space((84, 84, 3)) == Box(0, 255, (84, 84, 3), np.uint8)
    assert make_space((84, 84, 1)).dtype == make_space((84, 84, 4)).dtype == np.uint8
    assert make_space((84, 84, 2)).dtype == make_space((84, 84)).dtype == np.float32
    assert make_space(()).shape == ()
    assert PufferEnv.make_discrete(5) == Discrete(5)
    assert PufferEnv.make_multi_discrete([3, 5]) == MultiDiscrete([3, 5])


def test_dtype_and_bounds_override() -> None:
    make_space = PufferEnv.make_space
    assert make_space((2,), low=0, high=1) == Box(0, 1, (2,), np.float32)
    assert make_space((2,), dtype=np.int8) == Box(-128, 127, (2,), np.int8)
    assert make_space((8, 8, 3), dtype=np.float32) == Box(-np.inf, np.inf, (8, 8, 3), np.float32)
    assert make_space((8, 8, 3), low=0.0, high=1.0) == Box(0, 1, (8, 8, 3), np.float32)
    assert make_space((8, 8, 3), low=0, high=9) == Box(0, 9, (8, 8, 3), np.uint8)


def test_spaces_nest() -> None:
    made = PufferEnv.make_space(
        {
            "image": (84, 84, 3),
            "inner": {"vector": (10,), "choice": PufferEnv.make_discrete(3)},
            "pair": ((2,), PufferEnv.make_multi_discrete([2, 2])),
        }
    )
    vector, pair = Box(-np.inf, np.inf, (10,), np.float32), Box(-np.inf, np.inf, (2,), np.float32)
    assert made == Dict(
        image=Box(0, 255, (84, 84, 3), np.uint8),
        inner=Dict(vector=vector, choice=Discrete(3)),
        pair=Tuple([pair, MultiDiscrete([2, 2])]),
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: PufferEnv.make_space("box"), "`make_space` must get a shape"),
        (lambda: PufferEnv.make_space((-1,)), "sizes of at least 0"),
        (lambda: PufferEnv.make_space((2,), dtype="text"), "`dtype` must be a number type"),
        (lambda: PufferEnv.make_space((2,), low=2, high=1), "`low` must be at most `high`"),
        (lambda: PufferEnv.make_discrete(0), "`make_discrete` must get a number of choices"),
        (lambda: PufferEnv.make_multi_discrete([3, 0]), "`make_multi_discrete` must get numbers"),
        (lambda: PufferEnv.make_multi_discrete([[1], [2, 3]]), "`make_multi_discrete` must get"),
    ],
)
def test_invalid_space_descriptions_raise(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


# ---- Forms ---------------------------------------------------------------------------------------


def test_outside_of_a_vector_an_env_returns_what_its_class_returns() -> None:
    observation, reward, done, info = Plain().step(2)
    assert observation.tolist() == [1, 1, 1, 1]
    assert (reward, done, info) == (2.0, False, {"score": 7})
    assert type(reward) is float
    assert type(done) is bool
    _, rewards, dones, _ = Pair().step({"agent_0": 1, "agent_1": 3})
    assert rewards == {"agent_0": 1.0, "agent_1": 3.0}
    assert dones == {"agent_0": False, "agent_1": False, "__all__": False}


def test_the_plain_form_has_its_spaces_under_both_names() -> None:
    env = Plain()
    assert env.single_observation_space == env.observation_space
    assert env.single_action_space == env.action_space
    assert InPlace().observation_space == InPlace().single_observation_space


def test_a_plain_env_in_a_vector() -> None:
    vecenv = pufferlib.emulate(Plain, num_envs=3)
    assert vecenv.reset(seed=1).tolist() == [[0] * 4] * 3
    observations, rewards, dones, _ = vecenv.step([0, 1, 2])
    assert observations.tolist() == [[1] * 4] * 3
    assert rewards.tolist() == [0, 1, 2]
    vecenv.step(1)
    observations, _, dones, infos = vecenv.step(1)
    assert dones.all()
    assert vecenv.terminals.all()
    assert observations.tolist() == [[0] * 4] * 3
    assert vecenv.final_observations.tolist() == [[3] * 4] * 3
    assert infos[1]["score"] == 7
    # 1 + 1 + 1 for the middle env, 0 + 1 + 1 and 2 + 1 + 1 beside it
    assert [info["episode"]["r"] for info in infos] == [2, 3, 4]
    assert [info["episode"]["l"] for info in infos] == [3, 3, 3]
    assert vecenv.drain_metrics() == {
        "episodes": 3,
        "mean_reward": 3,
        "min_reward": 2,
        "max_reward": 4,
        "episode_length": 3,
        "score": 7,
    }


def test_a_multi_agent_env_in_a_vector_uses_dicts() -> None:
    vecenv = pufferlib.emulate(Pair, num_envs=2)
    observations = vecenv.reset(seed=0)
    assert list(observations) == ["agent_0", "agent_1"]
    assert observations["agent_1"].shape == (2, 4)  # envs x (goal, position)
    assert np.shares_memory(observations["agent_1"], vecenv.observations)
    observations, rewards, dones, infos = vecenv.step({"agent_0": [1, 2], "agent_1": [3, 4]})
    # rows are goal (count, 9) then position (agent, sum of its actions): keys are sorted
    assert observations["agent_0"].tolist() == [[1, 9, 0, 1], [1, 9, 0, 2]]
    assert observations["agent_1"].tolist() == [[1, 9, 1, 3], [1, 9, 1, 4]]
    assert rewards["agent_1"].tolist() == [3, 4]
    assert vecenv.rewards.tolist() == [1, 3, 2, 4]
    assert not dones["agent_0"].any()
    *_, infos = vecenv.step({"agent_0": 0, "agent_1": 4})
    assert vecenv.terminals.all()
    assert vecenv.final_observations[1].tolist() == [2, 9, 1, 7]
    assert infos[1]["episode"]["r"] == 7


def test_a_multi_agent_env_may_set_its_spaces_before_super() -> None:
    class Early(Pair):
        def __init__(self) -> None:
            self.num_agents = 2
            self.single_observation_space = self.make_space({"position": (2,), "goal": (2,)})
            self.single_action_space = self.make_discrete(5)
            PufferEnv.__init__(self)

    late, early = pufferlib.emulate(Pair, num_envs=2), pufferlib.emulate(Early, num_envs=2)
    assert list(early.reset(seed=0)) == list(late.reset(seed=0))
    for actions in ([1, 2, 3, 4], [0, 0, 4, 1], [2, 2, 2, 2]):
        late.step(actions)
        early.step(actions)
        for name in ("observations", "rewards", "terminals", "final_observations", "masks"):
            assert (getattr(early, name) == getattr(late, name)).all()


def test_an_env_in_place_in_a_vector() -> None:
    vecenv = pufferlib.emulate(InPlace, num_envs=2)
    vecenv.reset(seed=0)
    vecenv.step([0, 1, 2, 0])
    assert vecenv.rewards.tolist() == [0, 1, 2, 0]
    vecenv.step(0)
    assert vecenv.terminals.all()
    assert vecenv.final_observations.ravel().tolist() == [2, 2, 2, 2]


def test_reading_rows_of_a_plain_env_explains_the_in_place_form() -> None:
    with pytest.raises(AttributeError, match="`rewards` exists in the in-place form only"):
        _ = Plain().rewards
    with pytest.raises(AttributeError, match="`observation_space` of PufferEnv must be set"):
        _ = PufferEnv().observation_space


def test_buf_must_be_rows() -> None:
    with pytest.raises(UsageError, match="`buf` must be rows of a vector env"):
        Plain(buf=Plain())


def test_an_env_must_define_reset_step_and_spaces() -> None:
    class NoStep(Plain):
        step = PufferEnv.step

    class NoSpace(PufferEnv):
        def reset(self) -> Any: ...
        def step(self, action: Any) -> Any: ...

    with pytest.raises(EnvError, match="NoStep must define `step`"):
        adapt(NoStep())
    with pytest.raises(EnvError, match="NoSpace must set `observation_space`"):
        adapt(NoSpace())


# ---- What the guides show ------------------------------------------------------------------------


def test_a_mix_in_may_shape_rewards_of_any_env() -> None:
    class RewardShapedEnv(PufferEnv):
        def step(self, actions: Any) -> Any:
            obs, rewards, dones, infos = super().step(actions)
            return obs, rewards + 0.5, dones, infos

    class Shaped(RewardShapedEnv, Plain):
        pass

    vecenv = pufferlib.emulate(Shaped)
    vecenv.reset(seed=0)
    assert vecenv.step(2)[1].tolist() == [2.5]


def test_an_env_may_hold_a_lock() -> None:
    class ThreadSafeEnv(PufferEnv):
        def __init__(self, buf: Any = None) -> None:
            super().__init__(buf)
            self.lock = threading.Lock()

        def step(self, action: Any) -> Any:
            with self.lock:
                return super().step(action)

    class Safe(ThreadSafeEnv, Plain):
        pass

    vecenv = Serial(lambda: Safe(), 2)
    vecenv.reset(seed=0)
    assert vecenv.step([1, 3])[1].tolist() == [1, 3]


def test_an_env_may_reuse_one_observation_buffer() -> None:
    class OptimizedEnv(PufferEnv):
        def __init__(self, buf: Any = None) -> None:
            super().__init__(buf)
            self.observation_space = self.make_space({"obs": (84, 84, 3)})
            self.action_space = self.make_discrete(2)
            self._obs_buffer = np.zeros((84, 84, 3), dtype=np.uint8)

        def reset(self) -> Any:
            self._obs_buffer[:] = 0
            return {"obs": self._obs_buffer}

        def step(self, action: int) -> Any:
            self._obs_buffer += 1
            return {"obs": self._obs_buffer}, 0.0, False, {}

    vecenv = pufferlib.emulate(OptimizedEnv, num_envs=2)
    vecenv.reset()
    vecenv.step(0)
    assert vecenv.observations.dtype == np.uint8
    assert vecenv.observations.shape == (2, 84 * 84 * 3)
    assert (vecenv.observations == 1).all()


def test_a_users_vector_env_over_plain_envs() -> None:
    class CustomVectorEnv(VectorEnv):
        def __init__(self, env_creator: Any, num_envs: int) -> None:
            super().__init__()
            self.envs = [env_creator() for _ in range(num_envs)]
            self.num_envs = num_envs

        def reset(self) -> Any:
            return np.stack([env.reset() for env in self.envs])

        def step(self, actions: Any) -> Any:
            results = [env.step(int(action)) for env, action in zip(self.envs, actions)]
            obs, rewards, dones, infos = zip(*results)
            return np.stack(obs), np.array(rewards), np.array(dones), list(infos)

    vecenv = CustomVectorEnv(Plain, 2)
    vecenv.reset()
    vecenv.recv()
    vecenv.send([1, 2])
    assert vecenv.recv().rewards.tolist() == [1, 2]


# ---- Wrapper -------------------------------------------------------------------------------------


class Doubled(Wrapper):
    """Twice the reward, whatever is inside."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward * 2, *rest


def test_a_wrapper_forwards_everything() -> None:
    env = Wrapper(Plain())
    assert env.count == 0
    assert env.observation_space == Plain().observation_space
    assert env.step(1)[1] == 1.0
    assert isinstance(env.unwrapped, Plain)
    assert isinstance(Wrapper(env).unwrapped, Plain)
    with pytest.raises(UsageError, match="`env` must be an environment, but int has no `reset`"):
        Wrapper(3)


@pytest.mark.parametrize("creator", [Plain, InPlace])
def test_a_wrapped_env_is_emulated_through_its_wrapper(creator: Any) -> None:
    vecenv = pufferlib.emulate(lambda: Doubled(Doubled(creator())), num_envs=2)
    vecenv.reset(seed=0)
    vecenv.step(2)
    assert (vecenv.rewards == 8).all()


def test_a_wrapper_may_change_the_space() -> None:
    class Short(Wrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = PufferEnv.make_space((2,))

        def reset(self) -> Any:
            return super().reset()[:2]

        def step(self, action: Any) -> Any:
            observation, *rest = super().step(action)
            return observation[:2], *rest

    vecenv = pufferlib.emulate(lambda: Short(Plain()), num_envs=2)
    assert vecenv.observation_space.shape == (2,)
    assert vecenv.reset(seed=0).shape == (2, 2)
    assert vecenv.step(0)[0].shape == (2, 2)


def test_send_and_recv_of_a_wrapped_vector_call_the_wrappers_step() -> None:
    plain, doubled = (pufferlib.make("cartpole", num_envs=4, seed=3) for _ in range(2))
    wrapper = Doubled(doubled)
    plain.reset()
    wrapper.reset()
    assert (wrapper.recv().observations == plain.recv().observations).all()
    for step in range(200):
        actions = np.arange(4) * step % 2
        plain.send(actions)
        wrapper.send(actions)
        batch, twice = plain.recv(), wrapper.recv()
        assert (twice.observations == batch.observations).all()
        assert (twice.rewards == 2 * batch.rewards).all()
        assert (twice.terminals == batch.terminals).all()
        assert (twice.truncations == batch.truncations).all()
    counted, counted_twice = plain.drain_metrics(), wrapper.drain_metrics()
    assert counted_twice["episodes"] == counted["episodes"] > 10
    assert counted_twice["mean_reward"] == 2 * counted["mean_reward"]
    assert counted_twice["episode_length"] == counted["episode_length"]
    assert counted_twice.keys() == counted.keys()


@pytest.mark.parametrize("alias", ["observation_space", "single_observation_space"])
def test_a_wrappers_own_space_has_both_names(alias: str) -> None:
    class Narrow(Wrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            setattr(self, alias, Box(-1, 1, (2,), np.float32))

        def reset(self, *args: Any, **kwargs: Any) -> Any:
            return super().reset(*args, **kwargs)[:, :2]

        def step(self, action: Any) -> Any:
            observation, *rest = super().step(action)
            return observation[:, :2], *rest

    vecenv = Narrow(pufferlib.make("cartpole", num_envs=4, num_workers=1))
    assert vecenv.observation_space.shape == vecenv.single_observation_space.shape == (2,)
    assert vecenv.single_action_space == vecenv.env.action_space
    trainer = pufferlib.PuffeRL(vecenv, batch_size=32, device="cpu", dashboard="off")
    trainer.evaluate()
    assert trainer.rollout.observations.shape == (4, 8, 2)
    assert trainer.train()["updates"] == trainer.config.n_epochs  # one minibatch to a pass


class Counting(VectorEnv):
    """Written with `reset` and `step` alone; episodes of three steps, every other one cut short."""

    def __init__(self) -> None:
        self.num_envs = 2
        self.observation_space, self.action_space = Box(0, 9, (1,), np.float32), Discrete(2)

    def reset(self) -> Any:
        self.ticks = 0
        return np.zeros((2, 1))

    def step(self, actions: Any) -> Any:
        self.ticks += 1
        ends = np.full(2, self.ticks % 3 == 0)
        info = {"TimeLimit.truncated": self.ticks % 6 == 0, "final_observation": [9.0]}
        return np.full((2, 1), self.ticks % 3), np.ones(2), ends, [info, info]


def test_send_and_recv_of_a_wrapped_user_vector_call_the_wrappers_step() -> None:
    vecenv = Doubled(Counting())
    vecenv.reset()
    vecenv.recv()
    ends = []
    for _ in range(6):
        vecenv.send(np.zeros(2))
        batch = vecenv.recv()
        ends.append((bool(batch.terminals.all()), bool(batch.truncations.all())))
    assert ends == [(False, False)] * 2 + [(True, False)] + [(False, False)] * 2 + [(False, True)]
    assert (vecenv.final_observations == 9).all()
    assert vecenv.drain_metrics()["mean_reward"] == 6


def test_a_user_vector_has_one_info_per_slot() -> None:
    class Joined(Counting):
        def step(self, actions: Any) -> Any:
            return *super().step(actions)[:3], {"score": np.ones(2)}

    vecenv = Joined()
    vecenv.reset()
    vecenv.recv()
    with pytest.raises(EnvError, match="`infos` of Joined must be a list with a dict for each"):
        vecenv.send(np.zeros(2))


def test_final_observations_pass_a_wrapper_that_keeps_observations() -> None:
    vecenv = Doubled(pufferlib.make("cartpole", num_envs=2, max_steps=5))
    vecenv.reset(seed=0)
    vecenv.recv()
    for _ in range(5):
        vecenv.send(0)
        vecenv.recv()
    assert vecenv.truncations.all()
    assert (vecenv.final_observations == vecenv.env.final_observations).all()


def test_a_wrapper_that_changes_observations_has_its_last_one_as_final() -> None:
    class Shifted(Wrapper):
        def reset(self, *args: Any, **kwargs: Any) -> Any:
            return super().reset(*args, **kwargs) + 1

        def step(self, action: Any) -> Any:
            observation, *rest = super().step(action)
            return observation + 1, *rest

    vecenv = Shifted(pufferlib.make("cartpole", num_envs=2, max_steps=3))
    vecenv.reset(seed=0)
    vecenv.recv()
    for _ in range(2):
        vecenv.send(0)
        shown = vecenv.recv().observations
    vecenv.send(0)
    vecenv.recv()
    assert vecenv.truncations.all()
    assert (vecenv.final_observations == shown).all()
