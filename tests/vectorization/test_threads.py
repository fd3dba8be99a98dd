"""Threads: the C core behind a VectorEnv. Equal results for any number are in the contract."""

from __future__ import annotations

import gc
import threading

import numpy as np
import psutil
import pytest

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.native import NativeCreator
from pufferlib.vectorization import Threads
from pufferlib.vectorization.threads import usable_cores


def num_threads() -> int:
    return psutil.Process().num_threads()


def test_a_name_or_a_creator_will_do() -> None:
    for creator in ("cartpole", NativeCreator("cartpole")):
        with Threads(creator, 4, 2, max_steps=9) as vecenv:
            assert (vecenv.num_envs, vecenv.num_workers, vecenv.envs_per_worker) == (4, 2, 2)


def test_there_are_no_more_threads_than_envs_unless_asked_for() -> None:
    with Threads("cartpole", 1) as vecenv:
        assert vecenv.num_workers == 1
    with Threads("cartpole", 1000) as vecenv:
        assert vecenv.num_workers == usable_cores()


@pytest.mark.parametrize("end", ["close", "delete"])
def test_no_thread_outlives_its_vector(end: str) -> None:
    gc.collect()
    before = num_threads()
    for _ in range(3):
        vecenv = Threads("cartpole", 64, 3)
        vecenv.reset(seed=0)
        vecenv.step(0)
        assert num_threads() == before + 2  # the caller is the third
        if end == "close":
            vecenv.close()
        del vecenv
        assert num_threads() == before


def test_the_rows_are_the_same_memory_all_along() -> None:
    with Threads("breakout", 4, 1) as vecenv:
        first = vecenv.reset(seed=0)
        observations, rewards, _, _ = vecenv.step(0)
        assert first is observations is vecenv.observations
        assert rewards is vecenv.rewards
        assert not vecenv.observations.flags.owndata


def test_actions_given_in_place_are_not_changed() -> None:
    with Threads("cartpole", 4, 1) as vecenv:
        vecenv.reset(seed=0)
        actions = np.array([5, -1, 1, 0], np.int32)
        actions.setflags(write=False)
        vecenv.step(actions)
        assert actions.tolist() == [5, -1, 1, 0]


def test_another_thread_runs_while_envs_step() -> None:
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.0005):
            ticks += 1

    with Threads("breakout", 32768, 1, frameskip=16) as vecenv:
        vecenv.reset(seed=0)
        actions = np.zeros(vecenv.num_agents, np.int32)
        other = threading.Thread(target=tick)
        other.start()
        most = 0
        for _ in range(200):
            before = ticks
            vecenv.step(actions)  # about 10 ms
            most = max(most, ticks - before)
            if most >= 3:
                break
        stop.set()
        other.join()
    assert most >= 3  # a call that kept the interpreter's lock would let through one at most


def test_a_wrong_state_is_refused_and_changes_nothing() -> None:
    with Threads("cartpole", 3, 1) as vecenv:
        vecenv.reset(seed=0)
        state, before = vecenv.snapshot(), vecenv.observations.copy()
        vecenv.step(0)
        for bad in (state[:2], state.astype(np.float32), state[:, :-1], np.vstack([state, state])):
            with pytest.raises(UsageError) as caught:
                vecenv.restore(bad)
            assert "\n" not in str(caught.value)
        with pytest.raises(UsageError, match=r"`env` must be in 0..2, but got 3"):
            vecenv.restore(state[0], env=3)
        assert (vecenv.observations != before).any()
        vecenv.restore(state)
        assert (vecenv.observations == before).all()


def test_a_closed_vector_says_so() -> None:
    vecenv = Threads("cartpole", 2, 1)
    vecenv.reset(seed=0)
    state = vecenv.snapshot()
    vecenv.close()
    vecenv.close()
    for call in ("reset", "step", "send", "recv", "snapshot", "restore", "render"):
        given = {"step": (0,), "send": (0,), "restore": (state,)}.get(call, ())
        with pytest.raises(UsageError, match=f"`{call}` must not be called on a closed Threads"):
            getattr(vecenv, call)(*given)


def test_many_vectors_can_be_made_and_closed() -> None:
    memory = []
    for i in range(300):
        with pufferlib.make("snake", num_envs=4, num_workers=2) as vecenv:
            vecenv.reset(seed=i)
            vecenv.step(0)
        if i in (99, 299):
            memory.append(psutil.Process().memory_info().rss)
    assert memory[1] - memory[0] < 2e6
