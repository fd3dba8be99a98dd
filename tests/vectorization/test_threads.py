"""Threads: the C core behind a VectorEnv. Equal results for any number are in the contract."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from waiting import wait_until

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.native import NativeCreator
from pufferlib.spaces import action_layout
from pufferlib.system import usable_cores
from pufferlib.vectorization import Batch, Threads, no_action_check


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


@pytest.mark.parametrize("double_buffer", [False, True])
def test_a_fork_of_the_process_neither_steps_nor_hangs(double_buffer: bool) -> None:
    vecenv = Threads("breakout", 64, 2, double_buffer=double_buffer)
    vecenv.reset(seed=0)
    if double_buffer:
        vecenv.recv()
        vecenv.send(0)  # a half is under way
    pid = os.fork()  # threads do not come along
    if pid == 0:
        signal.alarm(120)  # ends it, if it hangs
        code = 1
        try:
            vecenv.reset()
        except UsageError as error:
            code = 0 if "in the process that made this Threads" in str(error) else 2
        vecenv.close()
        del vecenv
        gc.collect()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    vecenv.reset(seed=0)
    vecenv.step(0)
    vecenv.close()


def test_the_rows_are_the_same_memory_all_along() -> None:
    with Threads("breakout", 4, 1) as vecenv:
        first = vecenv.reset(seed=0)
        observations, rewards, _, _ = vecenv.step(0)
        assert observations is vecenv.observations
        assert np.asarray(first).ctypes.data == observations.ctypes.data
        assert (first.shape, first.dtype) == (observations.shape, observations.dtype)
        assert rewards is vecenv.rewards
        assert not vecenv.observations.flags.owndata


def test_actions_given_in_place_are_not_changed() -> None:
    with Threads("cartpole", 4, 1) as vecenv:
        vecenv.reset(seed=0)
        actions = np.array([5, -1, 1, 0], np.int32)
        actions.setflags(write=False)
        with no_action_check(vecenv):
            vecenv.step(actions)
        assert actions.tolist() == [5, -1, 1, 0]


def test_another_thread_runs_while_envs_step() -> None:
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(0.0005):
            ticks += 1

    with Threads("breakout", 131072, 1, frameskip=16) as vecenv:
        vecenv.reset(seed=0)
        actions = np.zeros(vecenv.num_agents, np.int32)
        other = threading.Thread(target=tick)
        other.start()
        most = 0
        for _ in range(200):
            before = ticks
            vecenv.step(actions)  # 10 ms or more
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


# ---- Double buffering ----------------------------------------------------------------------------


class Script:
    """Actions by step and slot, drawn once, so that any order of playing them gives one game."""

    def __init__(self, vecenv: Threads, steps: int) -> None:
        layout, rng = action_layout(vecenv.action_space), np.random.default_rng(0)
        words: list[NDArray[Any]] = [
            rng.integers(0, n, (steps, vecenv.num_agents)).astype(np.int32) for n in layout.nvec
        ]
        for low, high in zip(layout.low, layout.high, strict=True):
            drawn = rng.uniform(low, high, (steps, vecenv.num_agents))
            words.append(drawn.astype(np.float32))
        rows = np.stack([word.view(layout.dtype) for word in words], -1)
        self.rows = rows.reshape(steps, vecenv.num_agents, *layout.shape)


def reported(vecenv: Threads, batch: Batch) -> dict[str, Any]:
    """Copy what a batch says."""
    slots, cut = batch.slots, batch.truncations
    return {
        "observations": batch.observations.copy(),
        "rewards": batch.rewards.copy(),
        "terminals": batch.terminals.copy(),
        "truncations": cut.copy(),
        "masks": batch.masks.copy(),
        "action_masks": None if vecenv.action_masks is None else vecenv.action_masks[slots].copy(),
        "final_observations": vecenv.final_observations[slots][cut].copy(),
        "episodes": [(i["episode"]["r"], i["episode"]["l"]) if i else None for i in batch.infos],
    }


def play(vecenv: Threads, script: Script, carry: list[Batch] | None = None) -> tuple[Any, Any]:
    """Play the script as a trainer does; return [step][batch] -> results, and the last batches."""
    batches = carry or [vecenv.recv() for _ in range(vecenv.batches)]
    story: list[list[Any]] = []
    for t, rows in enumerate(script.rows):
        story.append([])
        for b in range(vecenv.batches):
            if t:
                batches[b] = vecenv.recv()
                story[t - 1].append(reported(vecenv, batches[b]))
            vecenv.send(rows[batches[b].slots])
    for b in range(vecenv.batches):  # what is still under way
        batches[b] = vecenv.recv()
        story[-1].append(reported(vecenv, batches[b]))
    return story, batches


def joined(step: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the batches of one step side by side."""
    whole: dict[str, Any] = {}
    for name, part in step[0].items():
        if isinstance(part, np.ndarray):
            whole[name] = np.concatenate([other[name] for other in step]).tobytes()
        elif part is not None:
            whole[name] = [each for other in step for each in other[name]]
    return whole


@pytest.mark.parametrize("name", pufferlib.list_envs())
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_two_halves_play_the_game_of_the_whole(name: str, workers: int) -> None:
    stories, drained, states = [], [], []
    for double_buffer in (False, True):
        with Threads(name, 6, workers, double_buffer) as vecenv:
            vecenv.reset(seed=3)
            first, batches = play(vecenv, Script(vecenv, 60))
            state = vecenv.snapshot()
            second, _ = play(vecenv, Script(vecenv, 20), batches)
            stories.append([joined(step) for step in first + second])
            drained.append(vecenv.drain_metrics())
            states.append(state)
    assert stories[0] == stories[1]
    assert drained[0] == drained[1]
    assert (states[0] == states[1]).all()


def test_a_batch_is_one_half_and_they_take_turns() -> None:
    with Threads("snake", 4, 2, double_buffer=True) as vecenv:
        middle = 2 * vecenv.agents_per_env
        assert vecenv.batches == 2
        assert vecenv.batch_slots == middle
        assert vecenv.num_agents == 2 * middle
        first = vecenv.reset(seed=0).copy()
        for turn in range(5):
            batch = vecenv.recv()
            assert batch.slots == slice(turn % 2 * middle, (turn % 2 + 1) * middle)
            assert len(batch.infos) == len(batch.rewards) == middle
            if turn < 2:
                assert (batch.observations == first[batch.slots]).all()
                assert not batch.rewards.any()
            assert np.shares_memory(batch.observations, vecenv.observations)
            vecenv.send(np.zeros(middle, np.int32))


def test_calls_out_of_turn_say_which_is_due() -> None:
    with Threads("cartpole", 4, 1, double_buffer=True) as vecenv:
        with pytest.raises(UsageError, match="`reset` must be called before `recv`"):
            vecenv.recv()
        vecenv.reset(seed=0)
        with pytest.raises(UsageError, match="`recv` must be called before the next `send`"):
            vecenv.send(0)
        vecenv.recv()
        with pytest.raises(UsageError, match=r"must have shape \(2,\) .* but got \(4,\)"):
            vecenv.send(np.zeros(4, np.int32))
        vecenv.send(0)
        with pytest.raises(UsageError, match="`recv` must be called before the next `send`"):
            vecenv.send(0)
        with pytest.raises(UsageError, match="`recv` must be called before `step`: a half"):
            vecenv.step(0)
        vecenv.recv()
        vecenv.recv()
        with pytest.raises(UsageError, match="`send` must be called before the next `recv`"):
            vecenv.recv()
        vecenv.step(np.zeros(4, np.int32))
        with pytest.raises(UsageError, match="`send` must be called before the next `recv`"):
            vecenv.recv()
        vecenv.send(0)
        vecenv.send(0)
        assert vecenv.recv().slots == slice(0, 2)


def test_whole_steps_work_between_halves() -> None:
    plain = Threads("cartpole", 4, 2)
    double = Threads("cartpole", 4, 2, double_buffer=True)
    with plain, double:
        for vecenv in (plain, double):
            vecenv.reset(seed=1)
            vecenv.step([0, 1, 0, 1])
            play(
                vecenv, Script(vecenv, 5), [vecenv_batch(vecenv, b) for b in range(vecenv.batches)]
            )
            vecenv.step([1, 1, 0, 0])
        assert plain.observations.tobytes() == double.observations.tobytes()
        assert plain.drain_metrics() == double.drain_metrics()


def vecenv_batch(vecenv: Threads, index: int) -> Batch:
    """Return the rows of a batch as `recv` would, for a loop that begins after a `step`."""
    size = vecenv.batch_slots
    slots = slice(index * size, (index + 1) * size)
    rows = (vecenv.observations, vecenv.rewards, vecenv.terminals, vecenv.truncations)
    return Batch(slots, *(row[slots] for row in rows), vecenv.masks[slots], [])


def test_reset_restore_drain_and_close_wait_for_what_is_under_way() -> None:
    vecenv = Threads("breakout", 512, 2, double_buffer=True, frameskip=16)
    vecenv.reset(seed=0)
    state = vecenv.snapshot()
    for end in ("reset", "restore", "restore one", "drain_metrics", "render", "snapshot"):
        vecenv.reset(seed=0)
        first = vecenv.observations.copy()
        for _ in range(2):
            vecenv.recv()
            vecenv.send(0)
        if end == "restore":
            vecenv.restore(state)
        elif end == "restore one":
            vecenv.restore(state[7], env=7)
            assert not vecenv.rewards.any()
        else:
            getattr(vecenv, end)(**({"seed": 0} if end == "reset" else {}))
        moved = (vecenv.observations != first).any(1)
        assert moved[8:].all() == (end not in ("reset", "restore"))
        assert vecenv.recv().slots == slice(0, 256)
    vecenv.reset(seed=0)
    vecenv.recv()
    vecenv.send(0)
    vecenv.close()
    vecenv.close()


def test_infos_of_a_half_outlive_its_next_step() -> None:
    with Threads("cartpole", 4, 1, double_buffer=True, max_steps=3) as vecenv:
        vecenv.reset(seed=0)
        held = []
        for _ in range(2 * 3):
            vecenv.recv()
            vecenv.send(0)
        for _ in range(2):
            held.append(vecenv.recv().infos)
            vecenv.send(0)
        for _ in range(4):
            vecenv.recv()
            vecenv.send(0)
        lengths = [info["episode"]["l"] for infos in held for info in infos]
        assert lengths == [3, 3, 3, 3]


def test_envs_step_while_the_caller_does_something_else() -> None:
    with Threads("breakout", 64, 1, double_buffer=True) as vecenv:
        before = vecenv.reset(seed=0).copy()
        _, upper = vecenv.recv(), vecenv.recv()
        vecenv.send(0)
        # the last env of the half, and no call that could step it
        wait_until(lambda: (vecenv.observations[31] != before[31]).any())
        assert (upper.observations == before[32:]).all()


@pytest.mark.parametrize("end", ["close", "delete"])
def test_no_thread_outlives_a_vector_whose_halves_are_under_way(end: str) -> None:
    gc.collect()
    before = num_threads()
    for _ in range(3):
        vecenv = Threads("cartpole", 64, 3, double_buffer=True)
        vecenv.reset(seed=0)
        for _ in range(2):
            vecenv.recv()
            vecenv.send(0)
        assert num_threads() == before + 3  # the caller is not one of them
        if end == "close":
            vecenv.close()
        del vecenv
        assert num_threads() == before


def test_a_name_can_be_double_buffered_and_trains() -> None:
    vecenv = pufferlib.make("cartpole", num_envs=8, num_workers=2, double_buffer=True, seed=1)
    trainer = pufferlib.PuffeRL(
        vecenv, batch_size=256, num_steps=16, n_epochs=1, device="cpu", dashboard="off"
    )
    with vecenv, trainer:
        for _ in range(2):
            log = trainer.evaluate()
            trainer.train()
        assert log["episodes"] > 0
    with pytest.raises(UsageError, match="option of backend serial `double_buffer`"):
        pufferlib.make("cartpole", backend="serial", double_buffer=True)


def test_the_command_line_trains_double_buffered_and_plays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pufferlib.cli import main

    monkeypatch.chdir(tmp_path)
    words = (
        "train cartpole --vec.double-buffer --vec.num-envs 8 --train.num-iterations 1 "
        "--train.batch-size 128 --train.minibatch-size none --train.n-epochs 1 --train.device cpu"
    )
    assert main(words.split()) == 0
    assert main(["eval", "cartpole", "--episodes", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] >= 3


def test_a_wrapper_steps_both_halves_at_once() -> None:
    class Doubled(pufferlib.Wrapper):
        def step(self, actions: Any) -> Any:
            observations, rewards, dones, infos = self.env.step(actions)
            return observations, 2 * rewards, dones, infos

    with Doubled(Threads("cartpole", 4, 1, double_buffer=True)) as vecenv:
        vecenv.reset(seed=0)
        assert vecenv.batches == 1
        assert vecenv.batch_slots == 4
        assert vecenv.recv().slots == slice(0, 4)
        vecenv.send([0, 1, 0, 1])
        assert vecenv.recv().rewards.tolist() == [2, 2, 2, 2]


def test_halves_must_be_equal() -> None:
    with pytest.raises(UsageError, match=r"`num_envs` must be even .* but got 5\. Try 6"):
        Threads("cartpole", 5, double_buffer=True)
