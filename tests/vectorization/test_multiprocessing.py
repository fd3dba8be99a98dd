"""Multiprocessing: the numbers of Serial, from processes. What they survive is in tests/faults."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import resource
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from faulty import BAD_SEED, NOTHING, NOW, Faulty, FaultyStart, children, nothing_left, wait_for_end
from gymnasium.spaces import Box, Discrete
from random_play import assert_same, play, rows, short_episodes, total_ends
from waiting import PATIENCE, is_within, wait_until, watchdog

import pufferlib
from pufferlib import PufferEnv
from pufferlib.errors import EnvError, UsageError
from pufferlib.native import NativeEnv
from pufferlib.vectorization import Multiprocessing, Serial, Threads, VectorEnv
from pufferlib.vectorization.processes.shared_memory import SharedRows
from pufferlib.vectorization.sizes import unit_ranges

NUM_ENVS = 5  # no multiple of 2 or 4 workers
STEPS = 110  # of which every Ocean env ends an episode
FORK: Any = {"start_method": "fork"}  # the cheapest here; all of them are tested below


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


class Walk(gymnasium.Env[Any, Any]):
    """Walks at random, by its own seed and its actions; ends by chance and is cut at 20 steps."""

    observation_space = Box(-np.inf, np.inf, (3,), np.float32)
    action_space = Discrete(3)
    render_mode = "rgb_array"

    def __init__(self, say: bool = True, seconds: tuple[float, float] = (0, 0)) -> None:
        self.say, self.seconds = say, seconds

    def _look(self) -> Any:
        return np.array([self.place, self.time, self.steps], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng, self.steps = np.random.default_rng(seed), 0
        self.place, self.time = self.rng.normal(), 0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        assert type(action) is int
        if self.seconds[1]:
            time.sleep(self.rng.uniform(*self.seconds))
        self.place += action - 1 + self.rng.normal()
        self.time += 1
        self.steps += 1
        info: dict[str, Any] = {}
        if self.say and self.steps % 3 == 0:
            info = {"place": self.place, "trace": self.rng.normal(size=3), "name": "walk"}
        cut = self.time >= 20
        return self._look(), self.place, not cut and self.rng.random() < 0.05, cut, info

    def render(self) -> Any:
        return np.full((4, 5, 3), self.steps, np.uint8)


def plain_infos(infos: Any) -> list[Any]:
    """Return infos without times, and with lists for arrays."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items() if key != "t"}
        return value.tolist() if isinstance(value, np.ndarray) else value

    return [plain(info) for info in infos]


def play_loudly(vecenv: VectorEnv, steps: int, seed: int = 3) -> list[dict[str, Any]]:
    """Step with random choices; return all that can be seen after each step, infos in full."""
    rng = np.random.default_rng(seed)
    vecenv.reset(seed=seed)
    story = [{**rows(vecenv), "infos": []}]
    for _ in range(steps):
        *_, infos = vecenv.step(rng.integers(0, vecenv.action_space.n, vecenv.num_agents))
        story.append({**rows(vecenv), "infos": plain_infos(infos)})
    return story


def assert_same_metrics(one: VectorEnv, other: VectorEnv) -> None:
    left, right = one.drain_metrics(), other.drain_metrics()
    assert left["episodes"] > 0
    assert right == pytest.approx(left, rel=1e-6)  # sums in another order


# ---- The same numbers ----------------------------------------------------------------------------


def slow(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    "name",
    [
        # one agent, several, action masks, both kinds of actions; the others are slow together
        name if name in ("breakout", "snake", "connect4", "hybrid") else slow(name)
        for name in pufferlib.list_envs("ocean")
    ],
)
def test_serial_and_processes_play_the_same_game(name: str) -> None:
    settings = short_episodes(name, 20)

    def creator() -> Any:
        return NativeEnv(name, **settings)

    with Serial(creator, NUM_ENVS) as serial:
        serial.reset(seed=5)
        first, story = rows(serial), play(serial, STEPS)
        metrics = serial.drain_metrics()
    assert total_ends(story) > 0
    for workers in (1, 2, 4):  # threads are compared in the contract
        with Multiprocessing(creator, NUM_ENVS, workers, **FORK) as vecenv:
            vecenv.reset(seed=5)
            assert_same([first], [rows(vecenv)])
            assert_same(story, play(vecenv, STEPS))
            assert vecenv.drain_metrics() == pytest.approx(metrics, rel=1e-6)
            assert vecenv.drain_metrics() == {"episodes": 0.0}


@pytest.mark.parametrize("creator", [lambda: gymnasium.make("CartPole-v1"), Walk])
def test_python_envs_play_the_same_game_in_any_number_of_workers(creator: Any) -> None:
    with Serial(creator, NUM_ENVS) as serial:
        story = play_loudly(serial, 70)
        assert total_ends(story) > 3
        for workers in (1, 2, 4):
            with Multiprocessing(creator, NUM_ENVS, workers, **FORK) as vecenv:
                assert_same(story, play_loudly(vecenv, 70))
                serial.reset(seed=3)  # forgets its statistics
                play_loudly(serial, 70)
                assert_same_metrics(serial, vecenv)


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_every_start_method_gives_the_same(method: Any) -> None:
    with Serial(Walk, 3) as serial, Multiprocessing(Walk, 3, 2, start_method=method) as vecenv:
        assert_same(play_loudly(serial, 25), play_loudly(vecenv, 25))


def test_seeds_are_those_of_serial_and_a_held_one_is_used_once() -> None:
    with Multiprocessing(Faulty, 4, 2, **FORK) as vecenv, Serial(Faulty, 4) as serial:
        for seed in (0, 7, 2**40):
            assert (vecenv.reset(seed=seed) == serial.reset(seed=seed)).all()
        vecenv.seed(7)
        held = vecenv.reset().copy()
        assert (held == serial.reset(seed=7)).all()
        assert (vecenv.reset() != held).any()


def test_halves_of_a_step_do_what_a_step_does() -> None:
    with (
        Multiprocessing(Walk, 4, 2, **FORK) as whole,
        Multiprocessing(Walk, 4, 2, **FORK) as halves,
    ):
        whole.reset(seed=1)
        halves.reset(seed=1)
        batch = halves.recv()
        assert batch.slots == slice(0, 4)
        assert not batch.rewards.any()
        for step in range(30):
            actions = np.arange(4) % 3
            observations, rewards, dones, infos = whole.step(actions)
            halves.send(actions)
            batch = halves.recv()
            assert (batch.observations == observations).all(), step
            assert (batch.rewards == rewards).all()
            assert ((batch.terminals | batch.truncations) == dones).all()
            assert plain_infos(batch.infos) == plain_infos(infos)


def test_a_step_after_a_quiet_one_takes_the_short_way_and_gives_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways: list[str] = []
    give, repeat = Multiprocessing._give, Multiprocessing._repeat

    def noted_give(self: Any, actions: Any) -> None:
        ways.append("long")
        give(self, actions)

    def noted_repeat(self: Any, actions: Any) -> bool:
        done = repeat(self, actions)
        ways.extend(["short"] * done)
        return done

    monkeypatch.setattr(Multiprocessing, "_give", noted_give)
    monkeypatch.setattr(Multiprocessing, "_repeat", noted_repeat)
    rng = np.random.default_rng(0)
    forms: Any = (np.int32, np.int32, np.int64, list, np.int32)  # the rows have the first
    with (
        Serial(lambda: Walk(say=False), 3) as serial,
        Multiprocessing(lambda: Walk(say=False), 3, 2, **FORK) as vecenv,
    ):
        serial.reset(seed=2)
        vecenv.reset(seed=2)
        was_quiet = False
        for step in range(60):
            form = forms[step % len(forms)]
            drawn = rng.integers(0, 3, 3)
            actions = drawn.tolist() if form is list else drawn.astype(form)
            *expected, infos = serial.step(actions)
            *given, own_infos = vecenv.step(actions)
            assert all(map(np.array_equal, given, expected)), step
            assert_same([rows(serial)], [rows(vecenv)])
            assert plain_infos(own_infos) == plain_infos(infos)
            assert ways.pop() == ("short" if was_quiet and form is np.int32 else "long"), step
            was_quiet = not expected[2].any()
        assert_same_metrics(serial, vecenv)


def test_a_mistake_after_a_quiet_step_is_refused() -> None:
    actions = np.full(2, NOTHING, np.int32)
    with Multiprocessing(Faulty, 2, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(2):
            vecenv.step(actions)
        with pytest.raises(UsageError, match=r"`actions` must have shape \(2,\)"):
            vecenv.step(np.zeros(3, np.int32))
        with pytest.raises(UsageError, match="`send` must be called before the next `recv`"):
            vecenv.recv()
        vecenv.step(actions)
        vecenv.send(actions)
        with pytest.raises(UsageError, match="`recv` must be called before the next `step`"):
            vecenv.step(actions)
        vecenv.recv()
        vecenv.step(actions)
        with pytest.raises(UsageError, match=r"`actions` must be in 0\.\.3"):
            vecenv.step(np.full(2, 1000, np.int32))
    with pytest.raises(UsageError, match="closed"):
        vecenv.step(actions)


def test_rows_are_views_of_one_memory_that_envs_write_in_place() -> None:
    with Multiprocessing(Walk, 4, 2, **FORK) as vecenv:
        first = vecenv.reset(seed=0)
        observations, *_ = vecenv.step(1)
        assert np.shares_memory(first, observations)
        assert np.shares_memory(vecenv.observations, observations)
        vecenv.send(1)
        assert np.shares_memory(vecenv.recv().observations, first)


def test_infos_that_are_held_keep_their_step() -> None:
    with Multiprocessing(Walk, 4, 2, **FORK) as vecenv, Serial(Walk, 4) as serial:
        vecenv.reset(seed=2)
        held = [vecenv.step(1)[3] for _ in range(40)]  # built when looked at, long afterwards
        serial.reset(seed=2)
        for infos in held:
            assert plain_infos(infos) == plain_infos(serial.step(1)[3])


# ---- Envs of every kind --------------------------------------------------------------------------


class Team(PufferEnv):
    """Dicts per agent: `a` and `b` from the start, `b` leaves after 3 steps, all end after 6."""

    def __init__(self) -> None:
        super().__init__()
        self.num_agents = 2
        self.single_observation_space = self.make_space((2,))
        self.single_action_space = self.make_discrete(3)

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self.base = float(seed % 97)
        self.time = 0
        return {"a": np.float32([self.base, 0]), "b": np.float32([self.base, 10])}

    def step(self, actions: Any) -> Any:
        self.time += 1
        agents = ["a", "b"] if self.time <= 3 else ["a"]
        observations = {id: np.float32([self.base + actions[id], self.time]) for id in agents}
        rewards = {id: float(actions[id]) for id in agents}
        dones = {id: self.time == 3 and id == "b" for id in agents}
        infos = {id: {"agent": id, "time": self.time} for id in agents}
        return observations, rewards, {**dones, "__all__": self.time == 6}, infos


def test_envs_that_speak_dicts_answer_with_dicts_of_rows() -> None:
    with Serial(Team, 3) as serial, Multiprocessing(Team, 3, 2, **FORK) as vecenv:
        first = vecenv.reset(seed=4)
        assert vecenv.agent_ids == ("a", "b")
        assert list(first) == ["a", "b"]
        assert first["b"].shape == (3, 2)
        serial.reset(seed=4)
        for step in range(15):
            actions = {"a": np.full(3, step % 3), "b": np.full(3, (step + 1) % 3)}
            left, right = serial.step(actions), vecenv.step(actions)
            for part in range(3):
                for id in ("a", "b"):
                    assert (left[part][id] == right[part][id]).all(), (step, part, id)
            assert plain_infos(left[3]) == plain_infos(right[3])
            assert_same([rows(serial)], [rows(vecenv)])
        assert not vecenv.masks.all()
        assert_same_metrics(serial, vecenv)


class Choosy(PufferEnv):
    """In place, two agents, with action masks that change and episodes of 5 steps."""

    def __init__(self) -> None:
        self.single_observation_space = Box(0, 100, (2,), np.float32)
        self.single_action_space = Discrete(4)
        self.num_agents, self.has_action_masks = 2, True
        super().__init__()

    def _look(self) -> None:
        assert self.action_masks is not None
        self.observations[:] = [[self.time, self.base], [self.time, self.base + 1]]
        self.action_masks[:] = True
        self.action_masks[0, self.time % 4] = False

    def reset(self, seed: int | None = None) -> Any:
        if seed is not None:
            self.base = seed % 50
        self.time = 0
        self._look()
        return self.observations, []

    def step(self, actions: Any) -> Any:
        self.time += 1
        self.rewards[:] = actions
        cut = self.time == 5
        self.truncations[:] = cut
        self.final_observations[:] = self.time + 50
        if cut:
            self.time = 0
        self._look()
        return self.observations, self.rewards, self.terminals, self.truncations, []


def test_masks_and_final_observations_come_across() -> None:
    with Serial(Choosy, 3) as serial, Multiprocessing(Choosy, 3, 2, **FORK) as vecenv:
        assert vecenv.action_masks is not None
        assert vecenv.action_masks.shape == (6, 4)
        assert_same(play_loudly(serial, 12), play_loudly(vecenv, 12))


def test_actions_may_be_structured() -> None:
    name = "hybrid"
    with Serial(lambda: NativeEnv(name), 3) as serial:
        serial.reset(seed=0)
        with Multiprocessing(lambda: NativeEnv(name), 3, 2, **FORK) as vecenv:
            vecenv.reset(seed=0)
            serial.action_space.seed(1)
            for _ in range(10):
                action = serial.action_space.sample()
                serial.step(action)
                vecenv.step(action)
                assert_same([rows(serial)], [rows(vecenv)])


# ---- Vector envs inside --------------------------------------------------------------------------


class Doubling(VectorEnv):
    """A user's vector env: two slots that count, with lists instead of arrays."""

    num_envs = 2
    observation_space = Box(-100, 1e6, (1,), np.float32)  # type: ignore[assignment]
    action_space = Discrete(3)  # type: ignore[assignment]

    def reset(self, seed: int | None = None) -> Any:
        self.value, self.time = [float((seed or 0) % 7), 1.0], 0
        return [[value] for value in self.value]

    def step(self, actions: Any) -> Any:
        self.time += 1
        self.value = [value + float(action) for value, action in zip(self.value, actions)]
        ended = self.time % 4 == 0
        return [[v] for v in self.value], self.value, [ended, False], [{"time": self.time}, {}]


def test_eight_vectors_of_four_are_one_of_thirty_two() -> None:
    with (
        Serial(Walk, 32) as flat,
        Multiprocessing(lambda: Serial(Walk, 4), 8, 4, **FORK) as nested,
    ):
        assert (nested.num_envs, nested.num_agents, nested.envs_per_worker) == (32, 32, 8)
        assert_same(play_loudly(flat, 30), play_loudly(nested, 30))
        assert_same_metrics(flat, nested)


def test_threads_inside_of_processes() -> None:
    with (
        Serial(lambda: NativeEnv("breakout", max_steps=30), 8) as flat,
        Multiprocessing(lambda: Threads("breakout", 4, 2, max_steps=30), 2, 2) as nested,
    ):
        flat.reset(seed=3)
        nested.reset(seed=3)
        assert_same(play(flat, 60), play(nested, 60))
        assert_same_metrics(flat, nested)


def test_processes_inside_of_processes_leave_with_them() -> None:
    with (
        Serial(Walk, 4) as flat,
        Multiprocessing(lambda: Multiprocessing(Walk, 2, 2, **FORK), 2, 2, **FORK) as nested,
    ):
        assert_same(play_loudly(flat, 10), play_loudly(nested, 10))


def test_a_vector_env_of_the_user_may_be_inside() -> None:
    with Serial(Doubling, 3) as serial, Multiprocessing(Doubling, 3, 2, **FORK) as vecenv:
        assert vecenv.num_envs == 6
        assert_same(play_loudly(serial, 12), play_loudly(vecenv, 12))
        assert_same_metrics(serial, vecenv)


def test_a_vector_that_hands_over_parts_cannot_be_inside() -> None:
    with pytest.raises(UsageError, match="must hand over all its slots at once"):
        Multiprocessing(lambda: Threads("cartpole", 4, 1, double_buffer=True), 2, 2, **FORK)


# ---- Asynchronous --------------------------------------------------------------------------------


def choices(slots: Any, ticks: Any) -> Any:
    """Return what a slot does in its own step number `ticks`, whenever that comes."""
    return (3 * slots + ticks) % 3


def serial_paths(creator: Any, num_envs: int, steps: int) -> dict[int, list[Any]]:
    """Return the trajectory of every slot for `choices`, step by step."""
    paths: dict[int, list[Any]] = defaultdict(list)
    with Serial(creator, num_envs) as serial:
        serial.reset(seed=11)
        slots = np.arange(num_envs)
        for step in range(steps):
            _, _, _, infos = serial.step(choices(slots, step))
            infos = plain_infos(infos)
            for slot in slots:
                seen = rows(serial)
                paths[slot].append(
                    [
                        seen["observations"][slot].tolist(),
                        float(seen["rewards"][slot]),
                        bool(seen["terminals"][slot]),
                        bool(seen["truncations"][slot]),
                        infos[slot],
                    ]
                )
    return paths


def async_paths(
    vecenv: Multiprocessing, batches: int
) -> tuple[dict[int, list[Any]], list[list[int]], set[type]]:
    """Play `choices`; return the trajectories, the slots of each batch and the kinds of `slots`."""
    paths: dict[int, list[Any]] = defaultdict(list)
    ticks = np.zeros(vecenv.num_agents, int)
    seen = np.zeros(vecenv.num_agents, bool)
    turns, kinds = [], set()
    vecenv.reset(seed=11)
    for _ in range(batches):
        batch = vecenv.recv()
        slots = np.arange(vecenv.num_agents)[batch.slots]
        assert len(slots) == vecenv.batch_slots == len(batch.observations) == len(batch.infos)
        kinds.add(type(batch.slots))
        turns.append(slots.tolist())
        infos = plain_infos(batch.infos)
        for row, slot in enumerate(slots):
            step = [
                batch.observations[row].tolist(),
                float(batch.rewards[row]),
                bool(batch.terminals[row]),
                bool(batch.truncations[row]),
                infos[row],
            ]
            if seen[slot]:
                paths[slot].append(step)
            else:
                assert step[1:] == [0.0, False, False, {}]  # the first observation of all
            assert step[0] == vecenv.observations[slot].tolist()
        seen[slots] = True
        vecenv.send(choices(slots, ticks[slots]))
        ticks[slots] += 1
    vecenv.recv()
    return paths, turns, kinds


def test_slots_of_an_asynchronous_vector_play_their_own_game() -> None:
    def creator() -> Any:
        return Walk(seconds=(0.0, 0.004))

    with Multiprocessing(creator, 4, 4, mode="async", surplus_envs=4, **FORK) as vecenv:
        assert (vecenv.num_envs, vecenv.surplus_envs) == (4, 4)
        assert (vecenv.num_agents, vecenv.batch_slots) == (8, 4)
        paths, turns, kinds = async_paths(vecenv, 120)
    lengths = [len(path) for path in paths.values()]
    expected = serial_paths(creator, 8, max(lengths))
    for slot, path in paths.items():
        assert path == expected[slot][: len(path)]
    assert set(paths) == set(range(8))
    assert sum(map(len, turns)) == sum(lengths) + 8  # all that was handed over, and the first
    assert kinds == {slice, np.ndarray}  # views of neighbours, copies of others


def test_asynchronous_without_surplus_waits_for_all() -> None:
    with Multiprocessing(Walk, 6, 3, mode="async", **FORK) as vecenv:
        paths, turns, kinds = async_paths(vecenv, 25)
    assert turns == [[0, 1, 2, 3, 4, 5]] * 25
    assert kinds == {slice}
    expected = serial_paths(Walk, 6, 24)
    assert paths == expected


class Gated(Faulty):
    """Waits in a step until the gate that the action names is opened; gate 0 always is."""

    action_space = Discrete(9)

    def __init__(self, gates: Path) -> None:
        super().__init__()
        self.gates = gates

    def step(self, action: Any) -> Any:
        if action:
            wait_until((self.gates / str(action)).exists)
        return super().step(NOTHING)


def test_batches_come_in_the_order_in_which_workers_are_done(tmp_path: Path) -> None:
    with Multiprocessing(
        lambda: Gated(tmp_path), 1, 1, mode="async", surplus_envs=3, **FORK
    ) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(4):
            batch = vecenv.recv()
            assert batch.observations[0, 0] == 0
            vecenv.send(batch.slots.start + 1)
        for worker in (2, 0, 1, 3):  # one after the other
            (tmp_path / str(worker + 1)).touch()
            wait_until(lambda w=worker: vecenv._flags.ready(np.array([w], np.int32)))
        order = []
        for _ in range(4):
            batch = vecenv.recv()
            order.append(batch.slots.start)
            assert batch.observations[0, 0] == 1
            vecenv.send(0)
        assert order == [2, 0, 1, 3]


def test_nothing_waits_for_the_slowest(tmp_path: Path) -> None:
    with Multiprocessing(
        lambda: Gated(tmp_path), 2, 2, mode="async", surplus_envs=1, **FORK
    ) as vecenv:
        vecenv.reset(seed=0)
        held, other = np.arange(3)[vecenv.recv().slots].tolist()
        vecenv.send([1, 0])
        for turn in range(1, 7):
            batch = vecenv.recv()
            counts = dict(zip(np.arange(3)[batch.slots], batch.observations[:, 0], strict=True))
            assert counts == {other: turn, 3 - held - other: turn - 1}  # it began a turn later
            vecenv.send([0, 0])
        (tmp_path / "1").touch()


def test_steps_of_an_asynchronous_vector_are_for_the_slots_that_are_ready(tmp_path: Path) -> None:
    with Multiprocessing(
        lambda: Gated(tmp_path), 2, 2, mode="async", surplus_envs=1, **FORK
    ) as vecenv:
        assert len(vecenv.reset(seed=0)) == 2
        held, other = np.arange(3)[vecenv.slots].tolist()
        actions = [1, 0]
        for turn in range(1, 5):
            observations, rewards, dones, infos = vecenv.step(actions)
            assert (len(rewards), len(dones), len(infos)) == (2, 2, 2)
            counts = dict(zip(np.arange(3)[vecenv.slots], observations[:, 0], strict=True))
            assert counts == {other: turn, 3 - held - other: turn - 1}
            actions = [0, 0]
        (tmp_path / "1").touch()


def test_a_reset_does_not_wait_for_the_slowest_either(tmp_path: Path) -> None:
    def wait() -> None:
        wait_until((tmp_path / "gate").exists)

    def creator() -> Any:
        return FaultyStart(wait, tmp_path / "taken")

    with Multiprocessing(creator, 2, 2, mode="async", surplus_envs=1, **FORK) as vecenv:
        vecenv.reset(seed=5)
        ready = np.arange(3)[vecenv.slots].tolist()
        for turn in range(1, 4):
            assert vecenv.step([0, 0])[0][:, 0].tolist() == [turn, turn]
            assert np.arange(3)[vecenv.slots].tolist() == ready
        (tmp_path / "gate").touch()
        held = 3 - sum(ready)
        while held not in np.arange(3)[vecenv.slots]:
            observations, rewards, dones, _ = vecenv.step([0, 0])
        row = np.arange(3)[vecenv.slots].tolist().index(held)
        with Serial(Faulty, 3) as serial:
            assert (observations[row] == serial.reset(seed=5)[held]).all()
        assert (rewards[row], dones[row]) == (0, False)


def test_what_an_asynchronous_reset_hands_over_is_what_recv_does() -> None:
    with Multiprocessing(Walk, 2, 2, mode="async", surplus_envs=2, **FORK) as vecenv:
        first = np.array(vecenv.reset(seed=0))
        slots = np.arange(4)[vecenv.slots]
        batch = vecenv.recv()
        assert (np.arange(4)[batch.slots] == slots).all()
        assert (batch.observations == first).all()
        vecenv.reset(seed=0)
        vecenv.send([0, 0])  # for the slots that `reset` handed over
        assert len(vecenv.recv().rewards) == 2


def test_a_mix_in_sees_the_steps_of_an_asynchronous_vector() -> None:
    class Counting(Multiprocessing):
        count = 0

        def step(self, actions: Any) -> Any:
            self.count += 1
            return super().step(actions)

    with Counting(Walk, 2, 2, mode="async", surplus_envs=2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(5):
            batch = vecenv.recv()
            assert len(batch.rewards) == len(batch.observations) == 2
            assert (batch.observations == vecenv.observations[batch.slots]).all()
            vecenv.send([0, 0])
        assert vecenv.count == 5


def test_a_reset_starts_new_episodes_while_envs_step() -> None:
    with Multiprocessing(Walk, 2, 2, mode="async", surplus_envs=2, **FORK) as vecenv:
        first, _, _ = async_paths(vecenv, 10)
        again, _, _ = async_paths(vecenv, 10)
        for slot in range(4):
            common = min(len(first[slot]), len(again[slot]))
            assert first[slot][:common] == again[slot][:common]


# ---- Creators, and scripts -----------------------------------------------------------------------


SCRIPT = """
import json, os, threading, time
import gymnasium, numpy as np
import pufferlib
from pufferlib.vectorization import Multiprocessing, Serial

print("this script runs once")
scale = 3

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-100, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, factor=1):
        self.lock, self.factor = threading.Lock(), factor
    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}
    def step(self, action):
        with self.lock:
            self.at += scale * self.factor
        return np.float32([self.at]), 1.0, False, False, {"pid": os.getpid()}

def factory(factor):
    return lambda: Mine(factor)

vecenv = Multiprocessing(factory(2), 4, 2)
vecenv.reset(seed=0)
observations, _, _, infos = vecenv.step(0)
print(json.dumps([observations.ravel().tolist(), len({info["pid"] for info in infos})]))
other = pufferlib.emulate(Mine, num_envs=2, num_workers=2, factor=5)
other.reset()
print(json.dumps(other.step(0)[0].ravel().tolist()))
print(json.dumps([os.getpid(), time.time()]), flush=True)
"""


def test_a_script_needs_no_guard_and_no_close(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=tmp_path,
    )
    ended = time.time()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    once, first, second, last = done.stdout.splitlines()
    assert once == "this script runs once"
    assert json.loads(first) == [[6, 6, 6, 6], 2]
    assert json.loads(second) == [15, 15]
    assert is_within(ended - json.loads(last)[1], 3.0)  # the interpreter itself takes most of it


def test_creators_may_close_over_anything_that_can_be_pickled() -> None:
    table = {"scale": np.arange(100_000)}  # more than a socket holds

    def creator() -> Any:
        env = Walk()
        env.scale = float(table["scale"].sum())  # type: ignore[attr-defined]
        return env

    with Multiprocessing(creator, 2, 2) as vecenv:
        vecenv.reset(seed=0)


def test_a_creator_that_cannot_be_pickled_is_an_error() -> None:
    lock = threading.Lock()
    with pytest.raises(
        UsageError, match=r"`env_creator` must be picklable to reach another process, "
    ):
        Multiprocessing(lambda: (lock, Walk())[1], 2, 2)
    with Multiprocessing(lambda: (lock, Walk())[1], 2, 2, **FORK) as vecenv:  # as it advises
        vecenv.reset(seed=0)


def test_a_creator_that_cannot_be_imported_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shy:
        def __reduce__(self) -> Any:
            return (__import__, ("a_module_that_is_nowhere",))

    shy = Shy()
    with pytest.raises(
        EnvError, match=r"`env_creator` must be importable in a worker, but ModuleNotFound"
    ):
        Multiprocessing(lambda: (shy, Walk())[1], 2, 2)


def test_workers_find_the_modules_and_files_of_their_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_game.py").write_text(
        "from pathlib import Path\nTEXT = Path('level').read_text()"
    )
    (tmp_path / "level").write_text("12")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def creator() -> Any:
        import my_game  # type: ignore[import-not-found]

        return Faulty() if my_game.TEXT == "12" else None

    with Multiprocessing(creator, 2, 2, start_method="spawn") as vecenv:
        vecenv.reset(seed=0)


def test_the_garbage_collector_ends_the_workers() -> None:
    known = children()
    vecenv: Any = Multiprocessing(Faulty, 4, 2, **FORK)
    vecenv.reset(seed=0)
    vecenv.recv()
    vecenv.send([0, 0, 0, 0])
    processes = children() - known
    assert len(processes) == 3
    del vecenv
    gc.collect()
    assert wait_for_end(processes, 3.0) == set()


def test_close_may_be_called_twice_and_ends_the_use() -> None:
    vecenv = Multiprocessing(Faulty, 2, 2, **FORK)
    vecenv.reset(seed=0)
    vecenv.close()
    vecenv.close()
    for call in ("reset", "recv", "snapshot", "render"):
        with pytest.raises(UsageError, match=f"`{call}` must not be called on a closed"):
            getattr(vecenv, call)()


def test_envs_are_closed_in_their_workers(tmp_path: Path) -> None:
    class Noted(Faulty):
        def close(self) -> None:
            (tmp_path / f"{os.getpid()}-{id(self)}").touch()

    for end in ("close", "delete", "in a step"):
        vecenv: Any = Multiprocessing(Noted, 4, 2, **FORK)
        vecenv.reset(seed=0)
        if end == "in a step":
            vecenv.recv()
            vecenv.send(0)
        if end == "delete":
            del vecenv
            gc.collect()
        else:
            vecenv.close()
        assert len(list(tmp_path.iterdir())) == 4
        for file in tmp_path.iterdir():
            file.unlink()


def test_a_fork_of_the_parent_does_not_end_the_workers() -> None:
    with Multiprocessing(Faulty, 2, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        pid = os.fork()
        if pid == 0:
            del vecenv
            gc.collect()
            os._exit(0)
        os.waitpid(pid, 0)
        vecenv.step([0, 0])


@pytest.mark.parametrize("call", ["reset", "step", "recv", "close"])
def test_a_fork_of_the_parent_cannot_use_the_workers(call: str) -> None:
    calls: dict[str, Any] = {"step": lambda vecenv: vecenv.step([1, 1])}
    with Multiprocessing(Faulty, 2, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                calls.get(call, lambda vecenv: getattr(vecenv, call)())(vecenv)
                code = 0 if call == "close" else 2
            except UsageError as error:
                code = 0 if "in the process that made this Multiprocessing" in str(error) else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert vecenv.step([0, 0])[0][:, 0].tolist() == [1, 1]


def test_closing_does_not_wait_for_forks_of_the_parent() -> None:
    vecenv = Multiprocessing(Faulty, 2, 2, **FORK)
    vecenv.reset(seed=0)
    reading, writing = os.pipe()
    pid = os.fork()  # it holds copies of everything
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)  # until this process ends it
        os._exit(0)
    os.close(reading)
    vecenv.close()
    os.close(writing)
    assert os.waitpid(pid, 0)[1] == 0


# ---- Infos ---------------------------------------------------------------------------------------


class Speaking(Faulty):
    """Says `word` in every step whose action asks for it."""

    def __init__(self, word: Any) -> None:
        super().__init__()
        self.word = word

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(0)
        return *rest, {"word": self.word} if action == NOW else {}


def test_infos_of_a_megabyte_come_across() -> None:
    with Multiprocessing(lambda: Speaking(np.arange(131_072)), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        for speaking in ([1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1]):
            *_, infos = vecenv.step(speaking)
            for info, speaks in zip(infos, speaking, strict=True):
                assert list(info) == ["word"] * speaks
                if speaks:
                    assert (info["word"] == np.arange(131_072)).all()


def test_an_info_that_cannot_leave_names_its_env() -> None:
    with Multiprocessing(lambda: Speaking(iter([])), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step([1, 1, 1, 1])  # list iterators can be pickled

    def generator() -> Iterator[int]:
        yield 1

    with Multiprocessing(lambda: Speaking(generator()), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(EnvError) as caught:
            vecenv.step([0, 0, 0, 1])
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(
            "Speaking (env 3), `step`: `info` must be able to leave its worker, but cannot be "
            "pickled: TypeError: "
        )
        vecenv.reset(seed=0)  # the worker lives
        vecenv.step([0, 0, 0, 0])


class Unreadable:
    def __reduce__(self) -> Any:
        return (int, ("not a number",))


def test_an_info_that_cannot_be_read_names_its_worker_where_it_is_read() -> None:
    with Multiprocessing(lambda: Speaking(Unreadable()), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        *_, infos = vecenv.step([0, 0, 1, 0])
        vecenv.step([0, 0, 0, 0])  # a loop that reads no infos does not care
        said = (
            r"worker 1 \(envs 2 to 3\) returned an object that cannot be unpickled .*: ValueError"
        )
        with pytest.raises(EnvError, match=said):
            infos[2]


def test_infos_that_are_read_late_are_those_of_their_step() -> None:
    with Multiprocessing(lambda: Speaking(np.float32(0.1)), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        *_, infos = vecenv.step([0, 1, 0, 1])
        *_, later = vecenv.step([1, 0, 0, 0])
    assert [list(info) for info in infos] == [[], ["word"], [], ["word"]]
    assert [list(info) for info in later] == [["word"], [], [], []]
    word = infos[3]["word"]
    assert type(word) is np.float32
    assert word == np.float32(0.1)


# ---- State and pictures --------------------------------------------------------------------------


def test_snapshots_move_between_backends() -> None:
    def creator() -> Any:
        return NativeEnv("cartpole", max_steps=30)

    with (
        Multiprocessing(creator, 5, 2, **FORK) as vecenv,
        Serial(creator, 5) as serial,
        Threads("cartpole", 5, 2, max_steps=30) as threads,
    ):
        vecenv.reset(seed=1)
        play(vecenv, 20)
        state = vecenv.snapshot()
        assert state is not None
        story = play(vecenv, 40, seed=9)
        for other in (serial, threads, vecenv):
            other.restore(state)
            assert_same(story, play(other, 40, seed=9))
        serial.restore(state)
        vecenv.restore(state[3], env=1)
        assert (vecenv.observations[1] == serial.observations[3]).all()


def test_a_restored_vector_can_be_received_from() -> None:
    with Multiprocessing(lambda: NativeEnv("cartpole"), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=1)
        state = vecenv.snapshot()
        first = vecenv.observations.copy()
        vecenv.recv()
        vecenv.send(1)
        vecenv.restore(state)  # type: ignore[arg-type]
        batch = vecenv.recv()
        assert (batch.observations == first).all()
        assert not batch.rewards.any()


def test_surplus_envs_are_part_of_the_state() -> None:
    with Multiprocessing(
        lambda: NativeEnv("cartpole"), 2, 2, mode="async", surplus_envs=2, **FORK
    ) as vecenv:
        vecenv.reset(seed=1)
        state = vecenv.snapshot()
        assert state is not None
        assert len(state) == 4
        vecenv.restore(state)
        vecenv.recv()


def test_python_envs_have_no_state_to_give() -> None:
    with Multiprocessing(Walk, 2, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        assert vecenv.snapshot() is None
        with pytest.raises(UsageError, match="Multiprocessing cannot restore a snapshot"):
            vecenv.restore(np.zeros((2, 8), np.uint8))
        with pytest.raises(UsageError, match=r"`state` must be 2 rows of bytes from `snapshot`"):
            vecenv.restore(np.zeros((3, 8), np.uint8))


def test_a_snapshot_waits_for_envs_under_way_and_loses_nothing() -> None:
    with (
        Multiprocessing(lambda: NativeEnv("cartpole"), 4, 2, **FORK) as vecenv,
        Serial(lambda: NativeEnv("cartpole"), 4) as serial,
    ):
        for each in (vecenv, serial):
            each.reset(seed=1)
            each.recv()
            each.send(1)
        assert (vecenv.snapshot() == serial.snapshot()).all()
        one, other = vecenv.recv(), serial.recv()
        assert (one.observations == other.observations).all()
        assert (one.rewards == other.rewards).all()


def test_pictures_are_of_the_env_asked_for() -> None:
    with Multiprocessing(Walk, 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(3):
            vecenv.step(1)
        for env in range(4):
            picture = vecenv.render(env)
            assert picture is not None
            assert picture.shape == (4, 5, 3)
            assert (picture == 3).all()
        with pytest.raises(UsageError, match=r"`env` must be in 0..3, but got 4"):
            vecenv.render(4)
    with (
        Multiprocessing(lambda: NativeEnv("breakout"), 4, 2, **FORK) as vecenv,
        Serial(lambda: NativeEnv("breakout"), 4) as serial,
    ):
        vecenv.reset(seed=0)
        serial.reset(seed=0)
        assert (vecenv.render(3) == serial.render(3)).all()


# ---- Order of calls, sizes, options --------------------------------------------------------------


def test_calls_out_of_order_name_the_call_that_is_due() -> None:
    with Multiprocessing(Faulty, 2, 2, **FORK) as vecenv:
        for call in ("send", "step", "recv", "snapshot", "render"):
            with pytest.raises(UsageError, match=f"`reset` must be called before `{call}`"):
                getattr(vecenv, call)(*([[0, 0]] if call in ("send", "step") else []))
        vecenv.reset()
        vecenv.recv()
        with pytest.raises(UsageError, match="`send` must be called before the next `recv`"):
            vecenv.recv()
        vecenv.send([0, 1 - 1])
        for call in ("send", "step"):
            with pytest.raises(UsageError, match=f"`recv` must be called before the next `{call}`"):
                getattr(vecenv, call)([0, 0])
        vecenv.recv()
        with pytest.raises(UsageError, match=r"`actions` must have shape \(2,\)"):
            vecenv.send([0, 0, 0])
        vecenv.send([0, 0])  # a failed one can be repeated
        vecenv.reset(seed=0)  # always allowed: what was sent is forgotten
        assert not vecenv.recv().rewards.any()
        vecenv.step([0, 0])
        with pytest.raises(UsageError, match="`send` must be called before the next `recv`"):
            vecenv.recv()
        vecenv.reset(seed=0)
        vecenv.send([0, 0])  # for the slots that reset gave
        assert vecenv.recv().observations[:, 0].tolist() == [1, 1]


def test_an_env_that_raises_leaves_the_others_and_itself_usable() -> None:
    def fault() -> None:
        raise RuntimeError("no fuel")

    with Multiprocessing(lambda: Faulty(fault), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(
            EnvError, match=r"Faulty \(env 2\), `step`: raised RuntimeError: no fuel"
        ):
            vecenv.step([NOTHING, NOTHING, NOW, NOTHING])
        with pytest.raises(UsageError, match="`reset` must be called before `step`"):
            vecenv.step(0)
        with pytest.raises(EnvError, match=r"Faulty \(env 0\), `reset`: raised RuntimeError"):
            vecenv.reset(seed=BAD_SEED)
        with pytest.raises(UsageError, match="`reset` must be called before `step`"):
            vecenv.step(0)
        vecenv.reset(seed=0)
        assert vecenv.step(0)[0][:, 0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("sizes", "bounds"),
    [
        ((8, 2, None), [0, 4, 8]),
        ((5, 2, None), [0, 2, 5]),
        ((7, 3, None), [0, 2, 4, 7]),
        ((6, None, 3), [0, 3, 6]),
        ((9, None, None), [0, 2, 4, 6, 9]),  # four cores
        ((3, None, None), [0, 1, 2, 3]),
    ],
)
def test_every_worker_owns_a_contiguous_range(sizes: Any, bounds: list[int]) -> None:
    units, workers = unit_ranges(*sizes, 0, cores=4)
    assert [unit.start for unit in units] + [units[-1].stop] == bounds
    assert workers == len(units)


@pytest.mark.parametrize(
    ("sizes", "surplus", "workers", "total"),
    [
        ((8, 4, None), 2, 4, 5),  # 2 envs each
        ((8, 4, None), 4, 4, 6),
        ((4, None, None), 3, 4, 7),  # nothing but 1 env each fits 3 more
        ((64, None, None), 16, 4, 5),
        ((6, None, None), 2, 3, 4),
    ],
)
def test_surplus_envs_fill_whole_workers(
    sizes: Any, surplus: int, workers: int, total: int
) -> None:
    units, found = unit_ranges(*sizes, surplus, cores=4)
    assert (found, len(units)) == (workers, total)
    assert units[-1].stop == sizes[0] + surplus
    assert len({len(unit) for unit in units}) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_workers": 5}, r"`num_workers` must not exceed `num_envs`.*Try num_workers=4\."),
        ({"num_workers": 0}, r"`num_workers` must be at least 1, but got 0"),
        ({"num_workers": 2.0}, r"`num_workers` must be a whole number, but got 2\.0"),
        ({"envs_per_worker": 3}, r"`num_envs` must be a multiple of `envs_per_worker`.*num_envs=3"),
        (
            {"num_workers": 3, "envs_per_worker": 2},
            r"`num_envs` must be num_workers x envs_per_worker, but got 4 and 3 x 2\. Try .*=6",
        ),
        ({"mode": "asynchronous"}, r"`mode` must be sync or async, but got 'asynchronous'"),
        ({"surplus_envs": 2}, r"`surplus_envs` must be 0 in mode sync, but got 2"),
        ({"surplus_envs": -1, "mode": "async"}, r"`surplus_envs` must be at least 0, but got -1"),
        (
            {"surplus_envs": 3, "mode": "async", "num_workers": 2},
            r"`surplus_envs` must fill whole workers.*but got 4, 2 and 3\. Try num_workers=4\.",
        ),
        ({"timeout": 0}, r"`timeout` must be seconds above 0, or None, but got 0"),
        ({"timeout": float("inf")}, r"`timeout` must be seconds above 0, or None, but got inf"),
        ({"restart": -1}, r"`restart` must be at least 0, but got -1"),
        ({"worker_threads": 0}, r"`worker_threads` must be at least 1, but got 0"),
        ({"start_method": "thread"}, r"`start_method` must be one of forkserver, spawn, fork"),
    ],
)
def test_options_that_do_not_fit_are_reported_with_numbers_that_do(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        Multiprocessing(Faulty, 4, **options)
    assert "\n" not in str(caught.value)


def test_envs_must_be_alike_in_all_workers() -> None:
    def creator() -> Any:
        env = Faulty()
        env.observation_space = Box(0, os.getpid(), (2,), np.float32)
        return env

    said = "`single_observation_space` of every env must be that of env 0, .*, but env 2 has"
    with pytest.raises(UsageError, match=said):
        Multiprocessing(creator, 4, 2, **FORK)


def test_more_workers_than_cores_are_allowed_with_a_warning() -> None:
    workers = len(os.sched_getaffinity(0)) + 1
    with pytest.warns(UserWarning, match=f"{workers} workers share") as caught:
        vecenv = Multiprocessing(Faulty, workers, workers, **FORK)
    assert caught[0].filename == __file__  # it is about this line
    with vecenv:
        vecenv.reset(seed=0)
        vecenv.step(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Multiprocessing(Faulty, 2, 1, **FORK):
            pass


def wake_ups(pids: list[int]) -> list[int]:
    """Return how often this thread, and each of these processes, has slept so far."""
    own = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return [own, *(psutil.Process(pid).num_ctx_switches().voluntary for pid in pids)]


def test_a_turn_wakes_every_process_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pufferlib.vectorization.multiprocessing.usable_cores", lambda: 2)
    steps = 200
    with pytest.warns(UserWarning, match="3 workers share 2 cores"):
        vecenv = Multiprocessing(lambda: Walk(say=False), 6, 3, **FORK)
    with vecenv:
        vecenv.reset(seed=0)
        vecenv.step([0] * 6)
        start, before = time.perf_counter(), wake_ups(vecenv.worker_pids)
        for _ in range(steps):
            vecenv.step([0] * 6)
        looks = (time.perf_counter() - start) / 0.02  # at the launcher, during long waits
        after = wake_ups(vecenv.worker_pids)
    assert all(b - a <= 1.2 * steps + looks + 20 for a, b in zip(before, after))


@pytest.mark.parametrize(("cores", "may_spin"), [(1, False), (2, False), (3, True)])
def test_processes_spin_only_where_each_has_a_core(
    cores: int, may_spin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    class Rows(SharedRows):
        def __init__(self, facts: Any, slots: int, workers: int, spin_us: int) -> None:
            super().__init__(facts, slots, workers, spin_us)
            given.append(spin_us)

    module = "pufferlib.vectorization.multiprocessing"
    monkeypatch.setattr(f"{module}.usable_cores", lambda: cores)
    monkeypatch.setattr(f"{module}.SharedRows", Rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vecenv = Multiprocessing(Faulty, 2, 2, **FORK)
    with vecenv:
        vecenv.reset(seed=0)
        for _ in range(100):
            vecenv.step(NOTHING)
        assert vecenv._binding(0, 1)[0].sizes[2] == given[0]
    assert [us > 0 for us in given] == [may_spin]


def test_a_call_wakes_workers_that_wait_for_a_turn() -> None:
    with Multiprocessing(lambda: NativeEnv("bandit"), 4, 2, **FORK) as vecenv:
        vecenv.reset(seed=0)
        taken = []
        for _ in range(10):
            vecenv.step(0)
            start = time.perf_counter()
            vecenv.snapshot()
            taken.append(time.perf_counter() - start)
    assert min(taken) < 0.1  # workers look at their channels every 0.25 s by themselves


class Counting(Faulty):
    """Reports what a worker may use."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(0)
        info = {name: value for name, value in os.environ.items() if name.endswith("_THREADS")}
        if "torch" in sys.modules:  # a fork of this process has it
            info["torch"] = sys.modules["torch"].get_num_threads()
        return *rest, info


@pytest.mark.parametrize(("method", "threads"), [("forkserver", 2), ("fork", 3)])
def test_numeric_libraries_of_a_worker_keep_to_their_threads(
    method: Any, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")  # for the parent
    with Multiprocessing(Counting, 1, 1, start_method=method, worker_threads=threads) as vecenv:
        vecenv.reset(seed=0)
        info = vecenv.step(0)[3][0]
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            assert info[name] == str(threads)
        assert info.get("torch") == (threads if method == "fork" else None)


# ---- make, the command line, and training --------------------------------------------------------


def test_make_takes_the_backend_and_its_options() -> None:
    with pufferlib.make(
        "gym-CartPole-v1",
        num_envs=4,
        num_workers=2,
        backend="multiprocessing",
        seed=3,
        vec={"mode": "async", "surplus_envs": 2, "restart": 1, "timeout": 9.0, **FORK},
    ) as vecenv:
        assert isinstance(vecenv, Multiprocessing)
        assert (vecenv.mode, vecenv.surplus_envs, vecenv.num_workers) == ("async", 2, 2)
        vecenv.reset()
        vecenv.recv()
    with pufferlib.make(
        "breakout", num_envs=4, num_workers=2, backend="multiprocessing", vec=FORK, paddle_width=30
    ) as vecenv:
        assert isinstance(vecenv, Multiprocessing)
        vecenv.reset(seed=0)
    with pytest.raises(UsageError, match=r"option of backend multiprocessing `restrat`.*restart"):
        pufferlib.make("cartpole", backend="multiprocessing", vec={"restrat": 1})
    with pytest.raises(UsageError, match="option of backend serial `restart`"):
        pufferlib.make("cartpole", backend="serial", vec={"restart": 1})


def test_training_in_processes_equals_training_in_one() -> None:
    def losses(vecenv: VectorEnv) -> list[dict[str, float]]:
        logs = []
        with (
            vecenv,
            pufferlib.PuffeRL(
                vecenv, batch_size=256, n_epochs=1, seed=5, device="cpu", dashboard="off"
            ) as trainer,
        ):
            for _ in range(3):
                log = trainer.evaluate()
                logs.append({**trainer.train(), "mean_reward": log["mean_reward"]})
        return logs

    one = losses(Serial(Walk, 8))
    many = losses(Multiprocessing(Walk, 8, 2, **FORK))
    for left, right in zip(one, many, strict=True):
        assert left == pytest.approx(right, nan_ok=True)


def test_training_goes_on_with_the_first_that_are_ready() -> None:
    with (
        Multiprocessing(Walk, 4, 2, mode="async", surplus_envs=2, **FORK) as vecenv,
        pufferlib.PuffeRL(
            vecenv, batch_size=6 * 32, n_epochs=1, seed=5, device="cpu", dashboard="off"
        ) as trainer,
    ):
        for _ in range(3):
            log = trainer.evaluate()
            losses = trainer.train()
        assert trainer.steps == 3 * 6 * 32
        assert log["episodes"] > 0
        assert np.isfinite(losses["policy_loss"])


def test_the_command_line_runs_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pufferlib.cli import main

    monkeypatch.chdir(tmp_path)
    words = (
        "train gym-CartPole-v1 --vec.backend multiprocessing --vec.num-envs 4 "
        "--vec.num-workers 2 --vec.restart 2 --vec.timeout 30 --vec.start-method fork "
        "--train.num-iterations 2 --train.batch-size 128 --train.n-epochs 1 --train.device cpu "
        "--train.minibatch-size none --train.num-steps none"
    )
    assert main(words.split()) == 0
    assert main(["train", "gym-CartPole-v1", "--vec.restrt", "2"]) == 2
    assert "--vec.restrt" in capsys.readouterr().err


def test_a_module_that_was_loaded_from_a_path_goes_to_workers_by_value(tmp_path: Path) -> None:
    source = tmp_path / "loaded_by_path.py"
    source.write_text(
        "import gymnasium\n"
        "class Mine(gymnasium.Wrapper):\n"
        "    def __init__(self): super().__init__(gymnasium.make('CartPole-v1'))\n"
    )
    spec = importlib.util.spec_from_file_location("loaded_by_path", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loaded_by_path"] = module
    try:
        spec.loader.exec_module(module)
        with Multiprocessing(module.Mine, 2, 2) as vecenv:
            assert vecenv.reset(seed=0).shape == (2, 4)
    finally:
        del sys.modules["loaded_by_path"]
