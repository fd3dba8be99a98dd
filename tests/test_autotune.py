"""Autotune: which layouts are tried for what an env costs, which is chosen, what is written."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from pufferlib import config as configs
from pufferlib import make
from pufferlib.autotune import (
    Layout,
    Report,
    Trial,
    _runner,
    _try,
    autotune,
    choose,
    explain,
    native_layouts,
    python_layouts,
    spell_bytes,
    spell_seconds,
    write_settings,
)
from pufferlib.cli import main
from pufferlib.errors import EnvError, UnknownNameError, UsageError
from pufferlib.vectorization import VectorEnv
from pufferlib.vectorization.measuring import EnvCost, Memory

MANY = 10**6


class Env(gymnasium.Env[Any, Any]):
    """Episodes of 5 steps, each of which computes for `busy` seconds."""

    def __init__(self, busy: float = 0) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (3,), np.float32), Discrete(2)
        self.busy, self.tick = busy, 0
        self.seen = np.zeros(3, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.tick = 0
        return self.seen, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.tick += 1
        start = time.thread_time()
        while time.thread_time() - start < self.busy:
            pass
        return self.seen, 1.0, self.tick >= 5, False, {}


class Broken(Env):
    def step(self, action: int) -> Any:
        raise ZeroDivisionError("the world ended")


def cost(step: float, **changes: Any) -> EnvCost:
    plain = EnvCost(1e-3, 0, step, step, 0, 0, 0, 100, 1)
    return plain._replace(**changes)


# ---- Which layouts are tried ---------------------------------------------------------------------


def test_a_turn_of_a_worker_is_neither_short_nor_long() -> None:
    layouts = python_layouts(cost(1e-4), cores=2, limit=MANY)
    per_worker = [each.num_envs // 2 for each in layouts if each.backend == "multiprocessing"]

    # 0.6, 2.5 and 10 ms of 0.1 ms each, as powers of two
    assert per_worker == [8, 32, 128]
    assert [each.num_envs for each in layouts if each.backend == "serial"] == [8, 256]
    assert all(each.num_workers == 2 for each in layouts if each.backend == "multiprocessing")


def test_steps_that_differ_call_for_batches_of_those_that_are_ready() -> None:
    even = python_layouts(cost(5e-3, spread=1e-4), cores=2, limit=MANY)
    uneven = python_layouts(cost(5e-3, spread=2.5e-3), cores=2, limit=MANY)

    assert not any(each.surplus_envs for each in even)
    assert any(each.surplus_envs for each in uneven)
    for each in uneven:  # whole workers, see `Multiprocessing`
        assert each.num_envs % each.num_workers == 0
        assert each.surplus_envs % (each.num_envs // each.num_workers) == 0


def test_differences_between_short_steps_even_out_within_a_turn() -> None:
    # 64 steps a turn: a deviation of half a step is a sixteenth of the turn's
    layouts = python_layouts(cost(1e-5, spread=5e-6), cores=2, limit=MANY)
    assert not any(each.surplus_envs for each in layouts)


def test_envs_that_wait_get_more_workers_than_cores() -> None:
    busy = python_layouts(cost(2e-3), cores=2, limit=MANY)
    waiting = python_layouts(cost(2e-3, wait_share=0.9), cores=2, limit=MANY)

    assert max(each.total_workers for each in busy) == 2
    assert max(each.total_workers for each in waiting) == 16


def test_one_core_has_no_use_for_workers() -> None:
    assert {each.backend for each in python_layouts(cost(1e-3), 1, MANY)} == {"serial"}
    assert {each.num_workers for each in native_layouts(cost(1e-7), 1, MANY)} == {1}


def test_no_more_envs_are_tried_than_there_is_room_for() -> None:
    assert max(each.total_envs for each in python_layouts(cost(1e-5), 2, limit=16)) <= 16
    assert max(each.total_envs for each in native_layouts(cost(1e-7), 2, limit=512)) <= 512


def test_a_number_of_envs_is_kept() -> None:
    uneven = cost(5e-3, spread=2.5e-3)
    for layouts in (python_layouts(uneven, 2, 4, 12), native_layouts(cost(1e-7), 2, 4, 12)):
        assert len(layouts) > 2
        assert {each.total_envs for each in layouts} == {12}
    assert [each.backend for each in python_layouts(cost(1e-3), 2, MANY, 1)] == ["serial"]


def test_agents_count_as_slots_of_native_envs() -> None:
    alone, crowd = (native_layouts(cost(1e-7, num_agents=n), 2, MANY) for n in (1, 16))
    assert max(each.num_envs for each in alone) == 16 * max(each.num_envs for each in crowd)
    assert {each.num_workers for each in native_layouts(cost(1e-7), 6, MANY)} == {1, 2, 4, 6}


# ---- Which is chosen -----------------------------------------------------------------------------


def trial(backend: str, envs: int, sps: float, workers: int = 1, **changes: Any) -> Trial:
    surplus = changes.pop("surplus", 0)
    return Trial(Layout(backend, envs, workers, surplus), sps, 1e-3, 1e6, True)._replace(**changes)


def test_the_fewest_envs_of_the_fastest_are_chosen() -> None:
    trials = [
        trial("multiprocessing", 512, 1000, 2),
        trial("multiprocessing", 64, 980, 2),  # within 3 %
        trial("multiprocessing", 16, 900, 2),
        trial("serial", 8, 2000, is_finalist=False),  # of another moment
    ]
    assert choose(trials) is trials[1]


def test_the_reason_is_what_was_measured() -> None:
    slow = cost(1e-3, spread=5e-4, wait_share=0.8)
    serial, workers = trial("serial", 8, 100), trial("multiprocessing", 16, 190, 2)
    ready = trial("multiprocessing", 4, 400, 4, surplus=12)
    many = trial("multiprocessing", 32, 390, 16)

    assert explain(workers, [serial, workers], slow, 2) == (
        "a step takes 1 ms, so a turn of 8 ms is worth a worker on each core (1.9 times Serial)"
    )
    assert "vary by 50%" in explain(ready, [serial, ready], slow, 2)
    assert explain(many, [serial, many], slow, 2).startswith("envs wait for 80% of a step")
    worse = workers._replace(sps=50)
    assert "reach 50% of this rate" in explain(serial, [serial, worse], slow, 2)
    assert "one core" in explain(serial, [serial], slow, 1)
    assert "no time for more" in explain(serial, [serial], slow, 2)
    assert "C env steps in 1 ms" in explain(trial("threads", 8, 9), [serial], slow, 2)


def test_amounts_are_spelled_in_their_unit() -> None:
    assert [spell_seconds(n) for n in (2.5e-7, 12.34e-6, 4.5e-3, 2)] == [
        "0.25 us",
        "12.3 us",
        "4.5 ms",
        "2 s",
    ]
    assert [spell_bytes(n) for n in (320, 44_800, 12e6, 999_900_000)] == [
        "320 B",
        "44.8 kB",
        "12 MB",
        "1 GB",
    ]


# ---- The whole -----------------------------------------------------------------------------------


def test_a_python_env_is_tuned() -> None:
    told: list[str] = []
    params = {"busy": 1e-3}
    report = autotune(f"{__name__}:Env", params=params, seconds=1, on_progress=told.append)

    assert report.best in report.trials
    assert report.best.is_finalist
    assert {each.layout.backend for each in report.trials} >= {"serial"}
    for each in report.trials:
        assert each.sps > 0, each.failure
        # two cores cannot do more than 2000 steps of a millisecond, three in a lucky round
        assert each.sps < 1e3 * (report.cores + 1)
        assert each.batch_seconds == pytest.approx(each.layout.num_envs / each.sps)
    assert told[0] == "one env"
    assert told[-1].startswith("the best ")
    assert len(told) == len(report.trials) + 2
    assert json.loads(json.dumps(report.to_dict()))["best"]["layout"]["backend"]


class Storing(VectorEnv):
    """Three of four envs got ready while nobody looked; from then on each takes 5 ms."""

    num_envs, surplus_envs = 1, 3
    observation_space, action_space = Box(-1, 1, (1,), np.float32), Discrete(2)

    def reset(self, seed: int | None = None) -> Any:
        return np.zeros((4, 1), np.float32)

    def send(self, actions: Any) -> None:
        assert actions.shape == (1,)

    def recv(self) -> Any:
        if self.in_store:
            self.in_store -= 1
        else:
            time.sleep(5e-3)


def test_surplus_envs_are_not_credited_with_what_they_had_in_store() -> None:
    vecenv = Storing()
    vecenv.in_store = 0
    run = _runner(vecenv)
    for _ in range(2):
        vecenv.in_store = 3
        assert 0 < run(0.01) <= 200


def test_a_layout_that_fails_is_a_row_and_all_that_fail_are_an_error() -> None:
    with pytest.raises(EnvError, match="ZeroDivisionError: the world ended"):
        autotune(f"{__name__}:Broken", seconds=0.3)

    def refuse(layout: Layout) -> Any:
        raise UsageError("`x` must be y.\nmore")

    failed = _try(refuse, Layout("serial", 4), Memory(10, 2), 0.1)
    assert (failed.sps, failed.failure, failed.memory) == (0, "`x` must be y.", 8)


def test_mistakes_are_told_before_anything_runs() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean `cartpole`"):
        autotune("cartpol")
    with pytest.raises(UnknownNameError, match="Did you mean `busy`"):
        autotune(f"{__name__}:Env", params={"bussy": 1})
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="`seconds` must be above 0"):
            autotune("cartpole", seconds=bad)
    with pytest.raises(UsageError, match="`num_envs` must be at least 1"):
        autotune("cartpole", num_envs=0)


# ---- The file ------------------------------------------------------------------------------------


def report_of(layout: Layout) -> Report:
    best = Trial(layout, 1234.5, 1e-3, 1e6, True)
    return Report("cartpole", 2, cost(1e-4), Memory(1, 1), [best], best, "why")


def test_a_new_file_has_the_settings_and_where_they_come_from(tmp_path: Path) -> None:
    path = tmp_path / "tuned.ini"
    write_settings(path, report_of(Layout("threads", 1024, 2)))

    assert path.read_text() == (
        "[vec]\n"
        "; puffer autotune cartpole: 1,234 steps/s on 2 cores\n"
        "backend = threads\n"
        "num_envs = 1024\n"
        "num_workers = 2\n"
    )
    vec = configs.load("cartpole", files=[path]).vec
    assert (vec.backend, vec.num_envs, vec.num_workers, vec.options()) == ("threads", 1024, 2, {})


OLD = """\
; mine
[train]
learning_rate = 0.01 ; by hand

[vec] ; workers
num-envs = 8
mode = async
surplus_envs = 8
; puffer autotune cartpole: 5 steps/s on 1 cores
timeout = 5

[env]
width = 3
"""


def test_an_old_file_keeps_all_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "old.ini"
    path.write_text(OLD)
    write_settings(path, report_of(Layout("multiprocessing", 64, 2)))

    assert path.read_text() == OLD.replace(
        "num-envs = 8\nmode = async\nsurplus_envs = 8\n"
        "; puffer autotune cartpole: 5 steps/s on 1 cores\n",
        "; puffer autotune cartpole: 1,234 steps/s on 2 cores\n"
        "backend = multiprocessing\nnum_envs = 64\nnum_workers = 2\n",
    )
    first = path.read_text()
    write_settings(path, report_of(Layout("multiprocessing", 64, 2)))
    assert path.read_text() == first


def test_keys_of_workers_become_comments_where_there_are_none(tmp_path: Path) -> None:
    path = tmp_path / "old.ini"
    path.write_text("[vec]\ntimeout = 5\n")
    write_settings(path, report_of(Layout("serial", 4)))

    assert "\n; timeout = 5\n" in path.read_text()
    vec = configs.load("cartpole", files=[path]).vec
    with make("cartpole", vec.num_envs, backend=vec.backend, vec=vec.options()) as vecenv:
        assert vecenv.num_envs == 4


def test_async_settings_make_what_was_tried(tmp_path: Path) -> None:
    path = tmp_path / "tuned.ini"
    write_settings(path, report_of(Layout("multiprocessing", 2, 1, 2)))

    vec = configs.load("cartpole", files=[path]).vec
    sizes = (vec.num_envs, vec.num_workers, vec.envs_per_worker, vec.backend)
    with make("cartpole", *sizes, vec=vec.options()) as vecenv:
        assert (vecenv.num_envs, vecenv.surplus_envs, vecenv.num_workers) == (2, 2, 1)


def test_a_file_that_is_no_ini_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(UsageError, match=r"notes\.txt:1"):
        write_settings(path, report_of(Layout("serial", 4)))
    assert path.read_text() == "hello\n"
    with pytest.raises(UsageError, match="`--write` must be"):
        write_settings(tmp_path, report_of(Layout("serial", 4)))


# ---- The command ---------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_writes_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuned.ini"
    words = ["autotune", "cartpole", "--seconds", "1", "--num-envs", "64", "--write", str(path)]
    assert main(words) == 0

    out, progress = capsys.readouterr()
    assert "one env of cartpole" in out
    assert "\nbest: threads, 64 envs on " in out
    assert "[vec] of " in out
    assert progress.splitlines()[0] == "one env"
    assert configs.load("cartpole", files=[path]).vec.num_envs == 64


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["autotune", "cartpole", "--seconds", "0.5", "--num-envs", "8", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["env"] == "cartpole"
    assert found["best"]["layout"]["num_envs"] == 8
    assert found["cost"]["step"] > 0
    assert found["why"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cartpol"], "Did you mean `cartpole`"),
        (["cartpole", "--seconds", "0"], "`seconds` must be above 0"),
        (["cartpole", "--vec.num-envs", "3"], "only --env params can be set here"),
        (["no_such_module:Env"], "must name an importable object"),
    ],
)
def test_mistakes_exit_with_2_and_a_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["autotune", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) <= 3
