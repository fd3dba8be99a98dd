"""`restart`: a lost worker is replaced, its envs start new episodes, the others continue (R3)."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from faulty import (
    AT_RESET,
    BAD_SEED,
    NOTHING,
    NOW,
    Faulty,
    FaultyStart,
    kill,
    leave,
    nothing_left,
    sleep_forever,
    stop_the_process,
)
from train_through_kills import BATCH, train
from waiting import slowness, wait_until, watchdog

from pufferlib.errors import EnvError, WorkerError
from pufferlib.native import NativeEnv
from pufferlib.vectorization import Multiprocessing, Serial

FORK: Any = {"start_method": "fork"}

pytestmark = pytest.mark.filterwarnings("ignore:worker .* Replaced")


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


def lose(vecenv: Multiprocessing, worker: int) -> None:
    """Kill a worker between two calls."""
    pid = vecenv.worker_pids[worker]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize("moment", ["in a step", "between two calls"])
def test_envs_of_a_lost_worker_are_cut_and_start_new_episodes(moment: str) -> None:
    with (
        Multiprocessing(lambda: Faulty(kill), 4, 2, restart=1, **FORK) as vecenv,
        Serial(Faulty, 4) as serial,
    ):
        vecenv.reset(seed=5)
        serial.reset(seed=5)
        for _ in range(3):
            vecenv.step(NOTHING)
            serial.step(NOTHING)
        seeds = vecenv.observations[:, 1].copy()
        if moment == "between two calls":
            lose(vecenv, 1)
        with pytest.warns(UserWarning, match=r"worker 1 \(envs 2 to 3\) died.*0 restarts left"):
            observations, rewards, dones, infos = vecenv.step(
                [NOTHING, NOTHING, NOTHING, NOW if moment == "in a step" else NOTHING]
            )
        serial.step(NOTHING)
        assert (observations[:2] == serial.observations[:2]).all()  # others notice nothing
        assert rewards.tolist() == [1, 1, 0, 0]
        assert dones.tolist() == [False, False, True, True]
        assert vecenv.truncations.tolist() == [False, False, True, True]
        assert not vecenv.terminals.any()
        # the value goes on from what the policy saw last, and the next episode has another seed
        assert vecenv.final_observations[2:].tolist() == [[3, seeds[2]], [3, seeds[3]]]
        assert observations[2:, 0].tolist() == [0, 0]
        assert (observations[2:, 1] != seeds[2:]).all()
        assert list(infos) == [{}, {}, {}, {}]  # how that episode ended is unknown
        vecenv.step(NOTHING)
        serial.step(NOTHING)
        assert (vecenv.observations[:2] == serial.observations[:2]).all()
        assert vecenv.observations[2:, 0].tolist() == [1, 1]
        assert vecenv.restarts == 1
        assert vecenv.drain_metrics() == {"episodes": 0.0, "restarts": 1.0}


def test_a_reset_replaces_whom_it_finds_dead_and_gives_the_same_seeds() -> None:
    with Multiprocessing(lambda: Faulty(kill), 6, 3, restart=3, **FORK) as vecenv:
        first = vecenv.reset(seed=5).copy()
        for dead in ([0], [2], [0, 1]):  # the first, the last, and two at once
            pids = vecenv.worker_pids
            for worker in dead:
                os.kill(pids[worker], signal.SIGKILL)
            if len(dead) == 1:
                assert (vecenv.reset(seed=5) == first).all()
                assert vecenv.step(NOTHING)[0][:, 0].tolist() == [1] * 6
        with pytest.raises(WorkerError, match=r"worker [01] "):
            vecenv.reset(seed=5)  # that would be the fourth


def test_two_that_die_at_once_are_both_replaced() -> None:
    with Multiprocessing(lambda: Faulty(kill), 6, 3, restart=4, **FORK) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(2):
            vecenv.step([NOW, NOTHING, NOTHING, NOW, NOTHING, NOTHING])
            assert vecenv.truncations.tolist() == [True, True, True, True, False, False]
        vecenv.step(NOTHING)
        assert vecenv.observations[:, 0].tolist() == [1, 1, 1, 1, 3, 3]
        assert vecenv.restarts == 4


def test_a_death_while_another_is_replaced_is_not_missed(tmp_path: Path) -> None:
    class Slow(Faulty):
        """Makes the other worker die while this one is created again."""

        def __init__(self) -> None:
            super().__init__(kill)
            if (tmp_path / "first").exists() and not (tmp_path / "second").exists():
                (tmp_path / "second").touch()
                other = wait_until((tmp_path / "pid").read_text)
                wait_until(lambda: not psutil.pid_exists(int(other)))

        def step(self, action: Any) -> Any:
            if action == NOW:
                wait_until((tmp_path / "pid").exists)
                (tmp_path / "first").touch()
            if action == 2:
                (tmp_path / "pid").write_text(str(os.getpid()))
                wait_until((tmp_path / "second").exists)
                kill()
            return super().step(action)

    with Multiprocessing(Slow, 2, 2, restart=2, timeout=120, **FORK) as vecenv:
        vecenv.reset(seed=0)
        with pytest.warns(UserWarning, match="died of SIGKILL") as caught:  # by no timeout
            vecenv.step([NOW, 2])
        assert len(caught) == 2
        assert vecenv.truncations.all()
        vecenv.step(NOTHING)


@pytest.mark.parametrize("call", ["snapshot", "render"])
def test_a_call_that_finds_a_worker_dead_is_answered_by_the_new_one(call: str) -> None:
    with Multiprocessing(lambda: NativeEnv("cartpole"), 4, 2, restart=1, **FORK) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(3):
            vecenv.step(0)
        lose(vecenv, 1)
        answer = vecenv.snapshot() if call == "snapshot" else vecenv.render(2)
        assert answer is not None
        vecenv.step(0)
        assert vecenv.truncations.tolist() == [False, False, True, True]
        vecenv.step(0)
        assert not vecenv.truncations.any()


def test_slots_under_way_are_replaced_too() -> None:
    with Multiprocessing(
        lambda: Faulty(kill), 2, 2, mode="async", surplus_envs=2, restart=3, timeout=120, **FORK
    ) as vecenv:
        vecenv.reset(seed=0)
        counts = np.zeros(4, int)
        cuts = 0
        seen = np.zeros(4, bool)
        for step in itertools.count():  # while two are alive, the dead are found after a while
            if step >= 60 and cuts >= 3:
                break
            batch = vecenv.recv()
            slots = np.arange(4)[batch.slots]
            for row, slot in enumerate(slots):
                cuts += int(batch.truncations[row])
                counts[slot] = 0 if batch.truncations[row] else counts[slot] + seen[slot]
                assert batch.observations[row, 0] == counts[slot]
            seen[slots] = True
            vecenv.send([NOW if step in (7, 20, 21) else NOTHING, NOTHING])
            time.sleep(0.005)  # so that thousands of steps are not played until then
        assert cuts == vecenv.restarts == 3


def test_an_asynchronous_reset_is_made_again_by_the_new_worker(tmp_path: Path) -> None:
    def creator() -> Any:
        return FaultyStart(kill, tmp_path / "taken")

    with Multiprocessing(
        creator, 1, 1, mode="async", surplus_envs=1, restart=1, timeout=120, **FORK
    ) as vecenv:
        with Serial(Faulty, 2) as serial:
            expected = serial.reset(seed=3).copy()
        seen: set[int] = set()

        def play() -> None:
            vecenv.reset(seed=3)
            while len(seen) < 2:
                batch = vecenv.recv()
                slot = batch.slots.start
                assert not batch.truncations.any()
                if slot not in seen:
                    assert (batch.observations == expected[slot]).all()
                seen.add(slot)
                vecenv.send(NOTHING)

        with pytest.warns(UserWarning, match="during `reset`. Replaced; 0 restarts left."):
            play()
        assert vecenv.restarts == 1


@pytest.mark.parametrize("fault", [sleep_forever, stop_the_process])
def test_a_worker_that_hangs_is_replaced(fault: Any) -> None:
    timeout = 0.5 * slowness()
    with Multiprocessing(lambda: Faulty(fault), 4, 2, restart=1, timeout=timeout, **FORK) as vecenv:
        vecenv.reset(seed=0)
        with pytest.warns(UserWarning, match=rf"did not finish `step` of env 1 within {timeout:g}"):
            vecenv.step([NOTHING, NOW, NOTHING, NOTHING])
        assert vecenv.truncations.tolist() == [True, True, False, False]
        vecenv.step(NOTHING)


def test_restarts_are_counted_down_to_an_error() -> None:
    vecenv = Multiprocessing(lambda: Faulty(leave), 2, 1, restart=2, **FORK)
    vecenv.reset(seed=0)
    for _ in range(2):
        vecenv.step(NOW)
    with pytest.raises(WorkerError, match=r"worker 0 \(envs 0 to 1\) exited with code 7"):
        vecenv.step(NOW)


def test_an_env_that_dies_again_and_again_when_made_or_reset_ends_it(tmp_path: Path) -> None:
    class Mortal(Faulty):
        def __init__(self) -> None:
            super().__init__(kill)
            if (tmp_path / "seen").exists():
                leave()

        def step(self, action: Any) -> Any:
            (tmp_path / "seen").touch()
            return super().step(action)

    vecenv = Multiprocessing(Mortal, 2, 2, restart=3, **FORK)
    vecenv.reset(seed=0)
    with pytest.raises(WorkerError, match=r"exited with code 7 during `__init__`"):
        vecenv.step([NOW, NOTHING])
    assert vecenv.restarts == 3
    vecenv = Multiprocessing(lambda: Faulty(kill), 2, 2, restart=2, **FORK)
    with pytest.raises(WorkerError, match=r"worker 0 \(env 0\) died of SIGKILL .* during `reset`"):
        vecenv.reset(seed=BAD_SEED)
    assert vecenv.restarts == 2


def test_an_error_of_an_env_is_no_reason_for_a_restart() -> None:
    def fault() -> None:
        raise ValueError("no")

    with Multiprocessing(lambda: Faulty(fault), 2, 2, restart=5, **FORK) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(EnvError, match="raised ValueError: no"):
            vecenv.step([NOW, NOTHING])
        assert vecenv.restarts == 0


def test_an_end_by_death_in_the_reset_after_an_episode_counts_once() -> None:
    with Multiprocessing(lambda: Faulty(kill), 2, 2, restart=1, **FORK) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(NOTHING)
        vecenv.step([AT_RESET, NOTHING])
        assert vecenv.truncations.tolist() == [True, False]
        assert vecenv.drain_metrics()["episodes"] == 0
        vecenv.step(NOTHING)
        assert vecenv.observations[:, 0].tolist() == [1, 3]


def test_closing_with_restarts_left_only_warns_of_a_dead_worker() -> None:
    vecenv = Multiprocessing(Faulty, 2, 2, restart=1, **FORK)
    vecenv.reset(seed=0)
    lose(vecenv, 0)
    with pytest.warns(UserWarning, match="worker 0 .* died of SIGKILL"):
        vecenv.close()


def test_training_goes_on_to_the_same_step_and_logs_its_restarts() -> None:
    result = train(2, 3, n_epochs=1)
    assert result.steps == 3 * BATCH
    assert result.kills == result.restarts == result.logged_restarts == 2


def nested(tmp_path: Path, restart: int) -> Multiprocessing:
    """Return two workers of two each; an env that dies does so for the first time only."""

    def die_once() -> None:
        if not (tmp_path / "dead").exists():
            (tmp_path / "dead").touch()
            kill()

    return Multiprocessing(
        lambda: Multiprocessing(lambda: Faulty(die_once), 2, 2, **FORK),
        2,
        2,
        restart=restart,
        **FORK,
    )


LOST = r"worker 0 \(envs 0 to 1\) lost a worker of its own.*died of SIGKILL"


def test_a_dead_worker_of_an_inner_vector_is_covered_in_a_step(tmp_path: Path) -> None:
    with nested(tmp_path, restart=1) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step(NOTHING)
        with pytest.warns(UserWarning, match=LOST):
            vecenv.step([NOTHING, NOW, NOTHING, NOTHING])
        assert vecenv.truncations.tolist() == [True, True, False, False]
        assert vecenv.observations[:, 0].tolist() == [0, 0, 2, 2]
        vecenv.step(NOTHING)
        assert vecenv.observations[:, 0].tolist() == [1, 1, 3, 3]
        assert vecenv.restarts == 1


def test_a_dead_worker_of_an_inner_vector_is_covered_in_a_reset(tmp_path: Path) -> None:
    with nested(tmp_path, restart=1) as vecenv:
        with pytest.warns(UserWarning, match=LOST):
            vecenv.reset(seed=BAD_SEED)
        assert vecenv.observations[0].tolist() == [0, BAD_SEED]
        assert vecenv.step(NOTHING)[0][:, 0].tolist() == [1, 1, 1, 1]


def test_a_dead_worker_of_an_inner_vector_ends_all_without_a_restart(tmp_path: Path) -> None:
    vecenv = nested(tmp_path, restart=0)
    vecenv.reset(seed=0)
    with pytest.raises(WorkerError, match=LOST) as caught:
        vecenv.step([NOTHING, NOW, NOTHING, NOTHING])
    assert caught.value.worker == 0
    assert "worker 1 (env 1) died" in str(caught.value)
    vecenv.close()
