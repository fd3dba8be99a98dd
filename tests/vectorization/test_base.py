"""What all vector envs have in common: order of calls, actions, seeds, and subclasses by users."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

import pufferlib
from pufferlib.errors import EnvError, UsageError
from pufferlib.native import NativeEnv
from pufferlib.vectorization import Multiprocessing, Serial, Threads, VectorEnv


class Mine(VectorEnv):
    """A user's vector env: only reset and step, and lists instead of arrays.

    Slot i observes (i, ticks) and ends after `3 + i` steps.
    """

    def __init__(self, num_envs: int = 2) -> None:
        self.num_envs = num_envs
        self.observation_space = Box(-10, 100, (2,), np.float32)
        self.action_space = Discrete(2)
        self.resets = 0

    def reset(self) -> Any:
        self.resets += 1
        self.ticks = [0] * self.num_envs
        return self.look()

    def look(self) -> list[list[float]]:
        return [[float(slot), float(ticks)] for slot, ticks in enumerate(self.ticks)]

    def step(self, actions: Any) -> Any:
        rewards, dones, infos = [], [], []
        for slot, action in enumerate(actions):
            self.ticks[slot] += 1
            ended = self.ticks[slot] >= 3 + slot
            rewards.append(float(action))
            dones.append(ended)
            infos.append({})
            if ended:
                self.ticks[slot] = 0
        return self.look(), rewards, dones, infos


class Seeded(Mine):
    """Remembers the seeds of its resets."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds: list[int | None] = []

    def reset(self, seed: int | None = None) -> Any:
        self.seeds.append(seed)
        return super().reset()


# ---- A user's subclass ---------------------------------------------------------------------------


def test_a_subclass_needs_only_reset_and_step() -> None:
    vecenv = Mine()
    vecenv.reset()
    batch = vecenv.recv()
    assert vecenv.resets == 1
    assert batch.observations.tolist() == [[0, 0], [1, 0]]
    assert batch.observations.dtype == np.float32
    assert batch.masks.all()
    assert not batch.rewards.any()
    assert list(batch.infos) == [{}, {}]

    ends = []
    for _ in range(6):
        vecenv.send([1, 0])
        batch = vecenv.recv()
        assert batch.rewards.tolist() == [1, 0]
        ends.append(batch.terminals.tolist())
    # slot 0 ends after 3 and 6 steps, slot 1 after 4
    assert ends == [
        [False, False],
        [False, False],
        [True, False],
        [False, True],
        [False, False],
        [True, False],
    ]
    assert vecenv.drain_metrics() == {
        "episodes": 3.0,
        "mean_reward": 2.0,  # 3, 0 and 3
        "min_reward": 0.0,
        "max_reward": 3.0,
        "episode_length": pytest.approx(10 / 3),
    }


def test_a_subclass_trains_and_can_be_trained_again() -> None:
    vecenv = Mine()
    for _ in range(2):
        trainer = pufferlib.PuffeRL(
            vecenv, batch_size=64, num_steps=8, n_epochs=1, device="cpu", dashboard="off"
        )
        for _ in range(2):
            log = trainer.evaluate()
            trainer.train()
            trainer.mean_and_log()
        assert log["episodes"] > 0
        assert log["episode_length"] == pytest.approx(3.4, abs=0.4)
        trainer.close()
    assert vecenv.resets == 2


def test_spaces_may_come_from_a_list_of_envs() -> None:
    class Listed(Mine):
        def __init__(self) -> None:
            self.envs = [NativeEnv("cartpole") for _ in range(2)]
            self.num_envs = 2

    assert Listed().observation_space == NativeEnv("cartpole").single_observation_space
    assert Listed().single_action_space == Discrete(2)


def test_a_truncation_is_read_from_its_info() -> None:
    class Cut(Mine):
        def step(self, actions: Any) -> Any:
            observations, rewards, _, _ = super().step(actions)
            reported = {"TimeLimit.truncated": True, "final_observation": np.array([7, 7])}
            return observations, rewards, [True, True], [reported, {"TimeLimit.truncated": False}]

    vecenv = Cut()
    vecenv.reset()
    vecenv.send([0, 0])
    batch = vecenv.recv()
    assert batch.truncations.tolist() == [True, False]
    assert batch.terminals.tolist() == [False, True]
    assert vecenv.final_observations.tolist() == [[7, 7], [1, 1]]
    assert batch.observations.tolist() == [[0, 1], [1, 1]]


def test_a_held_seed_reaches_a_subclass_that_takes_one() -> None:
    vecenv = Seeded()
    vecenv.seed(7)
    vecenv.reset()
    vecenv.reset()
    vecenv.reset(seed=9)
    vecenv.reset(11)
    vecenv.seed(5)
    vecenv.reset(seed=None)
    assert vecenv.seeds == [7, None, 9, 11, 5]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (
            0,
            [[0.0, 1.0]],
            r"`observations` of Broken must be of shape \(2, 2\), but got shape \(1, 2\)",
        ),
        (0, [[0.0], [1.0, 2.0]], r"`observations` of Broken must be an array of shape \(2, 2\)"),
        (0, [["a", "b"]] * 2, r"`observations` of Broken must be of dtype float32, but got <U1"),
        (1, [1.0], r"`rewards` of Broken must be of shape \(2,\), but got shape \(1,\)"),
        (1, 1.0, r"`rewards` of Broken must be of shape \(2,\), but got shape \(\)"),
        (2, [0.5, 1], "`dones` of Broken must be within the range of bool, but got array"),
        (2, True, r"`dones` of Broken must be of shape \(2,\), but got shape \(\)"),
    ],
)
def test_rows_that_do_not_fit_are_reported_in_one_line(field: int, value: Any, said: str) -> None:
    class Broken(Mine):
        def step(self, actions: Any) -> Any:
            result = list(super().step(actions))
            result[field] = value
            return tuple(result)

    vecenv = Broken()
    vecenv.reset()
    with pytest.raises(EnvError, match=said) as caught:
        vecenv.send([0, 0])
    assert "\n" not in str(caught.value)


def test_a_step_of_five_parts_is_reported() -> None:
    class Five(Mine):
        def step(self, actions: Any) -> Any:
            return (*super().step(actions), {})

    vecenv = Five()
    vecenv.reset()
    with pytest.raises(EnvError, match=r"`step` of Five must return 4 parts.*but got 5"):
        vecenv.send([0, 0])


def test_first_observations_are_checked_too() -> None:
    class Broken(Mine):
        def reset(self) -> Any:
            return [[0.0]]

    with pytest.raises(EnvError, match=r"`observations` of Broken must be of shape \(2, 2\)"):
        Broken().reset()


@pytest.mark.parametrize("missing", ["num_envs", "observation_space"])
def test_what_a_subclass_forgot_is_named(missing: str) -> None:
    vecenv = Mine()
    vars(vecenv).pop(missing, None)
    vars(vecenv).pop(f"_{missing}", None)
    with pytest.raises(UsageError, match=f"`{missing}` must be set, but Mine has none"):
        pufferlib.PuffeRL(vecenv, dashboard="off")


def test_a_base_without_methods_names_them() -> None:
    with pytest.raises(NotImplementedError, match="VectorEnv must define `reset`"):
        VectorEnv().reset()
    with pytest.raises(NotImplementedError, match="VectorEnv must define `step`"):
        VectorEnv().step(0)


# ---- A mix-in over a backend ---------------------------------------------------------------------


class Timed(VectorEnv):
    """Measures `super().step`, whatever stands behind it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.times: list[float] = []
        self.num_resets = 0

    def reset(self, seed: int | None = None) -> Any:
        self.num_resets += 1
        return super().reset()  # on purpose without the seed: a held one must not get lost

    def step(self, actions: Any) -> Any:
        start = time.perf_counter()
        result = super().step(actions)
        self.times.append(time.perf_counter() - start)
        return result


class TimedSerial(Timed, Serial):
    pass


class TimedThreads(Timed, Threads):
    pass


class TimedMultiprocessing(Timed, Multiprocessing):
    pass


@pytest.mark.parametrize(
    "create",
    [
        pytest.param(lambda: TimedSerial(lambda: NativeEnv("cartpole"), 4), id="serial"),
        pytest.param(lambda: TimedThreads("cartpole", 4, 1), id="threads"),
        pytest.param(
            lambda: TimedMultiprocessing(lambda: NativeEnv("cartpole"), 4, 2, start_method="fork"),
            id="processes",
        ),
    ],
)
def test_a_mix_in_that_times_steps_trains(create: Any) -> None:
    vecenv = create()
    trainer = pufferlib.PuffeRL(
        vecenv, batch_size=64, n_epochs=1, seed=3, device="cpu", dashboard="off"
    )
    first = vecenv.observations.copy()
    assert "mean_reward" in trainer.evaluate()
    trainer.train()
    assert len(vecenv.times) == 16
    assert vecenv.num_resets == 1
    with pufferlib.make("cartpole", num_envs=4) as plain:
        assert (plain.reset(seed=3) == first).all()
    vecenv.close()


# ---- Order of calls ------------------------------------------------------------------------------


def backends() -> list[Any]:
    return [
        pytest.param(Mine, id="subclass"),
        pytest.param(lambda: Serial(lambda: NativeEnv("cartpole"), 2), id="serial"),
        pytest.param(lambda: Threads("cartpole", 2, 1), id="threads"),
    ]


every_backend = pytest.mark.parametrize("create", backends())


@every_backend
def test_calls_out_of_order_name_the_call_that_is_due(create: Any) -> None:
    vecenv = create()
    for call in ("send", "recv"):
        with pytest.raises(UsageError, match=f"`reset` must be called before `{call}`"):
            getattr(vecenv, call)(*([[0, 0]] if call == "send" else []))
    vecenv.reset()
    vecenv.recv()
    with pytest.raises(UsageError, match="`send` must be called before the next `recv`"):
        vecenv.recv()
    vecenv.send([0, 1])
    with pytest.raises(UsageError, match="`recv` must be called before the next `send`"):
        vecenv.send([0, 1])
    vecenv.recv()
    vecenv.send([0, 1])
    vecenv.reset()  # always allowed: what was sent is forgotten
    batch = vecenv.recv()
    assert not batch.rewards.any()


@pytest.mark.parametrize("create", backends()[1:])
def test_step_has_its_place_between_the_halves(create: Any) -> None:
    vecenv = create()
    with pytest.raises(UsageError, match="`reset` must be called before `step`"):
        vecenv.step([0, 0])
    vecenv.reset()
    vecenv.step([0, 0])
    with pytest.raises(UsageError, match="`send` must be called before the next `recv`"):
        vecenv.recv()
    vecenv.send([0, 0])
    with pytest.raises(UsageError, match="`recv` must be called before the next `step`"):
        vecenv.step([0, 0])


@every_backend
def test_send_and_recv_do_what_step_does(create: Any) -> None:
    halves, whole = create(), create()
    for vecenv in (halves, whole):
        vecenv.seed(3)
        vecenv.reset()
    halves.recv()
    for _ in range(10):
        halves.send([0, 1])
        batch = halves.recv()
        observations, rewards, dones, _ = whole.step([0, 1])
        assert batch.slots == slice(0, 2)
        assert (batch.observations == observations).all()
        assert (batch.rewards == rewards).all()
        assert ((batch.terminals | batch.truncations) == dones).all()


@pytest.mark.parametrize("create", backends()[1:])
def test_a_failed_send_can_be_repeated(create: Any) -> None:
    vecenv = create()
    vecenv.reset()
    vecenv.recv()
    with pytest.raises(UsageError):
        vecenv.send([0, 1, 1])
    vecenv.send([0, 1])
    vecenv.recv()


@every_backend
@pytest.mark.parametrize("seed", [-1, 1.5, "3", True])
def test_a_bad_seed_is_reported_where_it_is_given(create: Any, seed: Any) -> None:
    with pytest.raises(UsageError, match="`seed` must be a whole number >= 0"):
        create().seed(seed)


def test_seeds_of_any_size_and_kind_are_taken() -> None:
    with Threads("cartpole", 2, 1) as vecenv:
        first = vecenv.reset(seed=np.int64(5)).copy()
        assert (vecenv.reset(seed=5) == first).all()
        assert (vecenv.reset(seed=5 + 2**63) == first).all()
        assert (vecenv.reset() != first).any()


# ---- VectorEnv itself ----------------------------------------------------------------------------


class MonitoredVectorEnv(VectorEnv):
    """Vector environment with performance monitoring."""

    def __init__(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        super().__init__(*args, **kwargs)

        self.step_times = []
        self.step_count = 0

    def step(self, actions):  # type: ignore[no-untyped-def]
        start = time.perf_counter()

        result = super().step(actions)

        elapsed = time.perf_counter() - start
        self.step_times.append(elapsed)
        self.step_count += 1

        return result


@pytest.mark.parametrize("kind", [VectorEnv, MonitoredVectorEnv])
def test_a_vector_env_itself_runs_envs_in_a_plain_loop(kind: Any) -> None:
    def creator() -> Any:
        return gymnasium.make("CartPole-v1", max_episode_steps=12)

    with kind(creator, num_envs=3) as one, Serial(creator, 3) as other:
        assert (one.num_envs, one.num_agents, len(one.envs)) == (3, 3, 3)
        assert one.action_space == other.action_space
        assert (one.reset(seed=7) == other.reset(seed=7)).all()
        rng = np.random.default_rng(0)
        for _ in range(60):
            actions = rng.integers(0, 2, 3)
            for ours, theirs in zip(one.step(actions), other.step(actions), strict=True):
                if isinstance(theirs, np.ndarray):
                    assert (ours == theirs).all()
            assert (one.truncations == other.truncations).all()
            assert (one.final_observations == other.final_observations).all()
        ours, theirs = one.drain_metrics(), other.drain_metrics()
        assert theirs["episodes"] > 0
        assert ours == theirs


def test_halves_of_its_steps_say_what_those_of_serial_say() -> None:
    def creator() -> Any:
        return gymnasium.make("CartPole-v1", max_episode_steps=12)

    with MonitoredVectorEnv(creator, 3) as one, Serial(creator, 3) as other:  # type: ignore[no-untyped-call]
        one.seed(3)
        other.seed(3)
        one.reset()
        other.reset()
        rng, num_cuts = np.random.default_rng(0), 0
        for _ in range(60):
            ours, theirs = one.recv(), other.recv()
            for field in ("observations", "rewards", "terminals", "truncations", "masks"):
                assert (getattr(ours, field) == getattr(theirs, field)).all(), field
            cut = theirs.truncations
            assert (one.final_observations[cut] == other.final_observations[cut]).all()
            num_cuts += int(cut.sum())
            actions = rng.integers(0, 2, 3)
            one.send(actions)
            other.send(actions)
        assert num_cuts
        assert one.step_count == 60
        assert one.drain_metrics() == other.drain_metrics()


def test_a_vector_env_that_times_its_steps_trains_as_printed() -> None:
    env = MonitoredVectorEnv(lambda: gymnasium.make("CartPole-v1"), num_envs=4)  # type: ignore[no-untyped-call]
    with env, pufferlib.PuffeRL(env, batch_size=128, num_iterations=1) as trainer:
        trainer.evaluate()
        trainer.train()
    assert env.step_count == len(env.step_times) == 32


def test_a_subclass_may_change_what_its_steps_return() -> None:
    class Shaped(VectorEnv):
        def step(self, actions: Any) -> Any:
            observations, rewards, dones, infos = super().step(actions)
            return observations, rewards * 3, dones, infos

    with Shaped(lambda: gymnasium.make("CartPole-v1"), 2) as env:
        env.reset(seed=0)
        assert env.step([0, 1])[1].tolist() == [3, 3]
        env.recv()
        env.send([0, 1])
        assert env.recv().rewards.tolist() == [3, 3]
        for _ in range(60):
            env.send([0, 0])
            env.recv()
        metrics = env.drain_metrics()
        assert metrics["mean_reward"] == pytest.approx(3 * metrics["episode_length"])


def test_a_vector_env_with_agents_speaks_dicts_as_its_envs_do() -> None:
    with VectorEnv(Talkers, 3) as env:
        assert env.agents_per_env == 2
        observations = env.reset()
        assert {id: rows.shape for id, rows in observations.items()} == {"a": (3, 1), "b": (3, 1)}
        rewards = env.step([{"a": 1, "b": 2}] * 3)[1]
        assert rewards["b"].tolist() == [2, 2, 2]
        env.send({"a": [1, 1, 1], "b": 0})
        assert env.recv().rewards.tolist() == [1, 0] * 3


def test_the_number_of_envs_must_be_given_with_a_creator() -> None:
    with pytest.raises(UsageError, match="`num_envs` must be given with `env_creator`"):
        VectorEnv(Talkers)


# ---- Dicts by agent ------------------------------------------------------------------------------


class Talkers(pufferlib.PufferEnv):
    """Two agents that are rewarded with what they do; cut after three steps."""

    num_agents = 2

    def __init__(self) -> None:
        super().__init__()
        self.single_observation_space = self.make_space((1,))
        self.single_action_space = self.make_discrete(3)

    def reset(self) -> Any:
        self.ticks = 0
        return {id: np.zeros(1, np.float32) for id in ("a", "b")}

    def step(self, actions: Any) -> Any:
        self.ticks += 1
        observations = {id: np.full(1, self.ticks, np.float32) for id in ("a", "b")}
        done = self.ticks == 3
        rewards = {id: float(action) for id, action in actions.items()}
        return observations, rewards, {"a": done, "b": done, "__all__": done}, {}


class MultiAgentVectorEnv(VectorEnv):
    """Takes and gives dicts of {agent_id: rows}, as the documented one does."""

    def __init__(self, num_envs: int) -> None:
        super().__init__()
        self.envs = [Talkers() for _ in range(num_envs)]
        self.num_envs = num_envs
        self.got: list[Any] = []

    def reset(self) -> Any:
        return self._stacked([env.reset() for env in self.envs])

    def step(self, actions: Any) -> Any:
        self.got.append(actions)
        per_env = [{id: rows[n] for id, rows in actions.items()} for n in range(self.num_envs)]
        results = [env.step(own) for env, own in zip(self.envs, per_env, strict=True)]
        observations, rewards, dones, infos = zip(*results, strict=True)
        first = [
            env.reset() if done["__all__"] else seen
            for env, done, seen in zip(self.envs, dones, observations, strict=True)
        ]
        infos = [{"TimeLimit.truncated": done["__all__"]} for done in dones]
        return self._stacked(first), self._stacked(rewards), self._stacked(dones), infos

    def _stacked(self, values: Any) -> Any:
        return {id: np.stack([value[id] for value in values]) for id in ("a", "b")}


def test_a_subclass_may_answer_with_dicts_by_agent() -> None:
    env = MultiAgentVectorEnv(2)
    assert (env.num_agents, env.agents_per_env) == (4, 2)
    env.reset()
    assert env.agent_ids == ("a", "b")
    assert env.recv().observations.tolist() == [[0]] * 4
    env.send(np.array([1, 2, 0, 1]))
    batch = env.recv()
    assert {id: rows.tolist() for id, rows in env.got[0].items()} == {"a": [1, 0], "b": [2, 1]}
    assert batch.rewards.tolist() == [1, 2, 0, 1]
    assert batch.observations.tolist() == [[1]] * 4
    for _ in range(2):
        env.send(np.array([1, 2, 0, 1]))
        batch = env.recv()
    assert batch.truncations.all()
    assert not batch.terminals.any()
    assert env.drain_metrics()["mean_reward"] == pytest.approx(3 * (1 + 2 + 0 + 1) / 4)


def test_the_number_of_slots_follows_from_envs_and_agents() -> None:
    class Counted(MultiAgentVectorEnv):
        def __init__(self) -> None:
            super().__init__(2)
            self.num_agents = 4

    with pytest.raises(UsageError, match=r"Try `self\.agents_per_env = \.\.\.`\.$"):
        Counted()


@pytest.mark.parametrize("by", ["slot", "env", "env and agent", "agent"])
def test_infos_of_several_agents_come_in_many_forms(by: str) -> None:
    class Informed(MultiAgentVectorEnv):
        def step(self, actions: Any) -> Any:
            *rest, _ = super().step(actions)
            reported = [[{"at": f"{n}{id}"} for id in "ab"] for n in range(2)]
            infos: Any = {
                "slot": reported[0] + reported[1],
                "env": [{"at": f"{n}a"} for n in range(2)],
                "env and agent": [dict(zip("ab", own, strict=True)) for own in reported],
                "agent": {"a": [own[0] for own in reported], "b": [own[1] for own in reported]},
            }[by]
            return (*rest, infos)

    env = Informed(2)
    env.reset()
    env.send(np.zeros(4, np.int64))
    seen = [info["at"] for info in env.recv().infos]
    assert seen == (["0a", "0a", "1a", "1a"] if by == "env" else ["0a", "0b", "1a", "1b"])


def test_a_subclass_that_answers_with_dicts_trains() -> None:
    env = MultiAgentVectorEnv(4)
    with pufferlib.PuffeRL(env, batch_size=128, num_iterations=1) as trainer:
        assert trainer.evaluate()["episodes"] > 0
        trainer.train()
    assert set(env.got[0]) == {"a", "b"}


def test_agents_that_were_not_counted_are_named() -> None:
    class Fewer(MultiAgentVectorEnv):
        def step(self, actions: Any) -> Any:
            observations, rewards, dones, infos = super().step(actions)
            return observations, {"a": rewards["a"]}, dones, infos

    few = MultiAgentVectorEnv(2)
    few.agents_per_env = 1
    with pytest.raises(
        UsageError, match=r"must be 2, because it returns rows for \['a', 'b'\], but is 1"
    ):
        few.reset()
    fewer = Fewer(2)
    fewer.reset()
    with pytest.raises(
        EnvError, match=r"`rewards` of Fewer must be for \['a', 'b'\], but got a dict"
    ):
        fewer.send(np.zeros(4, int))


# ---- repr ----------------------------------------------------------------------------------------


def test_a_vector_env_shows_its_name_envs_backend_and_spaces() -> None:
    with pufferlib.make("breakout", num_envs=8, num_workers=2) as env:
        shown = repr(env)
        assert shown.startswith("Threads('breakout', num_envs=8, num_workers=2, ")
        assert f"observation_space={env.observation_space}" in shown
        assert shown.endswith("action_space=Discrete(3))")
    with Serial(Talkers, 2) as agents:
        assert repr(agents).startswith(
            "Serial(num_envs=2, agents_per_env=2, observation_space=Box("
        )
        assert repr(pufferlib.Wrapper(agents)) == f"Wrapper({agents!r})"
    assert repr(VectorEnv()).startswith("VectorEnv(num_envs=None")


# ---- Actions -------------------------------------------------------------------------------------


class Echo(pufferlib.PufferEnv):
    """Keeps the actions it is given."""

    def __init__(self, action_space: Any) -> None:
        self.single_observation_space = Box(0, 1, (1,), np.float32)
        self.single_action_space = action_space
        super().__init__()

    def reset(self, seed: int | None = None) -> Any:
        return self.observations, []

    def step(self, actions: Any) -> Any:
        return self.observations, self.rewards, self.terminals, self.truncations, []


class Unreadable:
    """Refuses like a tensor that needs a gradient, or lies on a GPU."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a gradient\nis in the way.")


def received(space: Any, actions: Any, num_envs: int = 3) -> NDArray[Any]:
    vecenv = Serial(lambda: Echo(space), num_envs)
    vecenv.reset()
    vecenv.step(actions)
    rows: NDArray[Any] = vecenv._buffers.actions
    return rows


@pytest.mark.parametrize(
    "actions",
    [
        [0, 2, 1],
        (0, 2, 1),
        np.array([0, 2, 1]),
        np.array([0, 2, 1], np.int32),
        np.array([0, 2, 1], np.uint8),
        np.array([0, 2, 1], np.uint64),
        np.array([[0], [2], [1]]),
        np.array([0, 9, 2, 9, 1, 9])[::2],
    ],
)
def test_discrete_actions_come_in_many_forms(actions: Any) -> None:
    rows = received(Discrete(3), actions)
    assert rows.dtype == np.int32
    assert rows.tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    ("space", "action", "row"),
    [
        (Discrete(3), 2, 2),
        (Discrete(3), np.int64(2), 2),
        (Discrete(2), True, 1),
        (MultiDiscrete([3, 5]), [2, 4], [2, 4]),
        (MultiBinary(2), np.array([1, 0], np.int8), [1, 0]),
        (Box(-1, 1, (2,)), [0.5, -1], [0.5, -1]),
        (Box(-1, 1, (2, 2)), [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (Box(-1, 1, (1,)), 0.5, [0.5]),
        (MultiDiscrete([[3, 5], [2, 2]]), np.array([[2, 4], [1, 0]]), [2, 4, 1, 0]),
        (MultiBinary((2, 2)), np.array([[1, 0], [0, 1]], np.int8), [1, 0, 0, 1]),
    ],
)
def test_one_action_serves_all_slots(space: Any, action: Any, row: Any) -> None:
    assert received(space, action).tolist() == [row] * 3


def test_rows_of_a_box_may_be_flat_and_of_any_number_type() -> None:
    flat = np.arange(12.0).reshape(3, 4)
    rows = received(Box(-1, 100, (2, 2)), flat)
    assert rows.dtype == np.float32
    assert (rows.reshape(3, 4) == flat).all()
    assert received(Box(-9, 9, (1,)), [1, 2, 3]).tolist() == [[1], [2], [3]]


def test_an_action_beyond_32_bits_does_not_wrap_around_into_a_legal_one() -> None:
    for action, dtype in ((2**32 + 1, np.int64), (-(2**40), np.int64), (2**63, np.uint64)):
        with pytest.raises(UsageError, match=r"in 0\.\.2 for Discrete\(3\), but slot 1 got -?2147"):
            received(Discrete(3), np.array([0, action, 1], dtype))


@pytest.mark.parametrize(
    ("space", "actions", "said"),
    [
        (Discrete(3), [0, 1], r"must have shape \(3,\) \(a row for each slot\) or \(\)"),
        (Discrete(3), [[0, 1, 2]], r"\(one for all\), but got \(1, 3\)"),
        (Discrete(3), [0.0, 1.0, 2.0], r"of dtype int32 for Discrete\(3\), but got float64"),
        (Discrete(3), ["0", "1", "2"], "of dtype int32 for"),
        (Discrete(3), {"a": 1}, "of dtype int32 for Discrete.*but got dict"),
        (Discrete(3), None, "but got NoneType"),
        (Discrete(3), [[0], [1, 2], [3]], "`actions` must be one array"),
        (Discrete(3), Unreadable(), "`actions` must be one array, but a gradient is in the way."),
        (MultiDiscrete([3, 5]), np.zeros((2, 3), int), r"shape \(3, 2\).*but got \(2, 3\)"),
        (Box(-1, 1, (2,)), np.zeros((3, 2), complex), "of dtype float32 for Box"),
        (Box(-1, 1, (2,)), np.zeros((3, 3)), r"but got \(3, 3\)"),
    ],
)
def test_actions_that_do_not_fit_are_reported_in_one_line(
    space: Any, actions: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        received(space, actions)
    assert "\n" not in str(caught.value)


def test_unaligned_rows_are_copied() -> None:
    memory = np.zeros(13, np.uint8)
    unaligned = memory[1:].view(np.int32)
    unaligned[:] = [1, 0, 1]
    assert not unaligned.flags.aligned
    with Threads("cartpole", 3, 1) as one, Threads("cartpole", 3, 1) as other:
        one.reset(seed=0)
        other.reset(seed=0)
        assert (one.step(unaligned)[0] == other.step([1, 0, 1])[0]).all()


def test_structured_observations_are_flat_rows() -> None:
    class Structured(Echo):
        def __init__(self) -> None:
            self.single_observation_space = Dict(a=Box(0, 1, (3,)), b=Discrete(4))
            self.single_action_space = Discrete(2)
            pufferlib.PufferEnv.__init__(self)

    vecenv = Serial(Structured, 2)
    assert isinstance(vecenv.observation_space, Dict)
    # three float32 and one int32 as bytes, already a multiple of 8
    assert vecenv.reset().shape == (2, 16)
