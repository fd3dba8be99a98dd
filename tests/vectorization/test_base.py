"""What all vector envs have in common: order of calls, actions, seeds, and subclasses by users."""

from __future__ import annotations

import time
from typing import Any

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


def test_a_truncation_is_told_by_its_info() -> None:
    class Cut(Mine):
        def step(self, actions: Any) -> Any:
            observations, rewards, _, _ = super().step(actions)
            told = {"TimeLimit.truncated": True, "final_observation": np.array([7, 7])}
            return observations, rewards, [True, True], [told, {"TimeLimit.truncated": False}]

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
        (0, [[0.0, 1.0]], r"`observations` of Broken must be of shape \(2, 2\), but got \(1, 2\)"),
        (0, [[0.0], [1.0, 2.0]], r"`observations` of Broken must be one array of shape \(2, 2\)"),
        (0, [["a", "b"]] * 2, r"`observations` of Broken must be of dtype float32, but got <U1"),
        (1, [1.0], r"`rewards` of Broken must be of shape \(2,\), but got \(1,\)"),
        (1, 1.0, r"`rewards` of Broken must be of shape \(2,\), but got \(\)"),
        (2, [0.5, 1], "`dones` of Broken must be of dtype bool, but got float64"),
        (2, True, r"`dones` of Broken must be of shape \(2,\), but got \(\)"),
    ],
)
def test_rows_that_do_not_fit_are_told_in_one_line(field: int, value: Any, said: str) -> None:
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


def test_a_step_of_five_parts_is_told() -> None:
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
    with pytest.raises(UsageError, match=f"`{missing}` must be known, but Mine has none"):
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
def test_a_bad_seed_is_told_where_it_is_given(create: Any, seed: Any) -> None:
    with pytest.raises(UsageError, match="`seed` must be a whole number >= 0"):
        create().seed(seed)


def test_seeds_of_any_size_and_kind_are_taken() -> None:
    with Threads("cartpole", 2, 1) as vecenv:
        first = vecenv.reset(seed=np.int64(5)).copy()
        assert (vecenv.reset(seed=5) == first).all()
        assert (vecenv.reset(seed=5 + 2**63) == first).all()
        assert (vecenv.reset() != first).any()


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
    rows = received(Discrete(3), np.array([2**32 + 1, -(2**40), 1]))
    assert rows.tolist() == [2**31 - 1, -(2**31), 1]
    assert received(Discrete(3), np.array([2**63, 2, 1], np.uint64))[0] == 2**31 - 1


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
def test_actions_that_do_not_fit_are_told_in_one_line(space: Any, actions: Any, said: str) -> None:
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
