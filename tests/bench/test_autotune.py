"""Autotune: which layouts are tried for the cost of an env, which is chosen, what is written."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from pufferlib import config as configs
from pufferlib import make
from pufferlib.bench.autotune import (
    Report,
    autotune,
    choose,
    explain,
    format_bytes,
    format_seconds,
    write_settings,
)
from pufferlib.bench.layouts import Layout, native_layouts, python_layouts
from pufferlib.bench.trials import Trial, TrialSetup, _try
from pufferlib.cli import main
from pufferlib.errors import EnvError, UnknownNameError, UsageError
from pufferlib.vectorization.measuring import EnvCost, Memory

MANY = 10**6
SMALL = configs.TrainConfig(batch_size=64)
TINY = configs.PolicyConfig(hidden_size=8)


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


def test_one_step_of_a_worker_lasts_milliseconds() -> None:
    layouts = python_layouts(cost(1e-4), cores=2, limit=MANY)
    per_worker = [each.num_envs // 2 for each in layouts if each.backend == "multiprocessing"]

    # 0.6, 2.5 and 10 ms of 0.1 ms each, as powers of two
    assert per_worker == [8, 32, 128]
    assert [each.num_envs for each in layouts if each.backend == "serial"] == [8, 256]
    assert all(each.num_workers == 2 for each in layouts if each.backend == "multiprocessing")


def test_uneven_steps_get_async_layouts() -> None:
    even = python_layouts(cost(5e-3, spread=1e-4), cores=2, limit=MANY)
    uneven = python_layouts(cost(5e-3, spread=2.5e-3), cores=2, limit=MANY)

    assert not any(each.surplus_envs for each in even)
    assert any(each.surplus_envs for each in uneven)
    for each in uneven:  # whole workers, see `Multiprocessing`
        assert each.num_envs % each.num_workers == 0
        assert each.surplus_envs % (each.num_envs // each.num_workers) == 0


def test_short_uneven_steps_even_out_over_the_envs_of_a_worker() -> None:
    # 64 steps per worker: a deviation of half a step is a sixteenth of their sum
    layouts = python_layouts(cost(1e-5, spread=5e-6), cores=2, limit=MANY)
    assert not any(each.surplus_envs for each in layouts)


def test_envs_that_wait_get_more_workers_than_cores() -> None:
    busy = python_layouts(cost(2e-3), cores=2, limit=MANY)
    waiting = python_layouts(cost(2e-3, wait_share=0.9), cores=2, limit=MANY)

    assert max(each.total_workers for each in busy) == 2
    assert max(each.total_workers for each in waiting) == 16


def test_one_core_gets_no_workers() -> None:
    assert {each.backend for each in python_layouts(cost(1e-3), 1, MANY)} == {"serial"}
    assert {each.num_workers for each in native_layouts(cost(1e-7), 1, MANY)} == {1}


def test_layouts_stay_within_the_limit_of_envs() -> None:
    assert max(each.total_envs for each in python_layouts(cost(1e-5), 2, limit=16)) <= 16
    assert max(each.total_envs for each in native_layouts(cost(1e-7), 2, limit=512)) <= 512


def test_a_given_number_of_envs_is_kept() -> None:
    uneven = cost(5e-3, spread=2.5e-3)
    for layouts in (python_layouts(uneven, 2, 4, 12), native_layouts(cost(1e-7), 2, 4, 12)):
        assert len(layouts) > 2
        assert {each.total_envs for each in layouts} == {12}
    assert [each.backend for each in python_layouts(cost(1e-3), 2, MANY, 1)] == ["serial"]


def test_agents_count_as_slots_of_native_envs() -> None:
    alone, crowd = (native_layouts(cost(1e-7, num_agents=n), 2, MANY) for n in (1, 16))
    assert max(each.num_envs for each in alone) == 16 * max(each.num_envs for each in crowd)
    assert {each.num_workers for each in native_layouts(cost(1e-7), 6, MANY)} == {1, 2, 4, 6}


# ---- What a run would train on -------------------------------------------------------------------


def refuse(layout: Layout) -> Any:
    raise UsageError("`x` must be y.\nmore")


def setup_with(config: configs.Config, of_env: EnvCost) -> TrialSetup:
    return TrialSetup(config, refuse, of_env, Memory(10, 2), cores=2)


def setup_of(agents: int = 1, **train: Any) -> TrialSetup:
    config = configs.Config(name="x", train=configs.TrainConfig(**train))
    return setup_with(config, cost(1e-7, num_agents=agents))


def test_layouts_with_more_envs_keep_batch_and_horizon_of_the_config() -> None:
    # 16384 / 256 envs = 64 steps each: with twice as many they would be 32
    assert setup_of(batch_size=16384).most_envs(256, MANY) == 256
    # segments of 32, four of them in a row for each env: up to 1024 envs have one each
    assert setup_of(batch_size=32768, num_steps=32).most_envs(256, MANY) == 1024
    assert setup_of(batch_size=32768, num_steps=32).most_envs(256, 600) == 512
    assert setup_of(16, batch_size=32768, num_steps=32).most_envs(16, MANY) == 64
    # segments of 1024 are longer than they need be: 128 do
    assert setup_of(batch_size=8192).most_envs(8, MANY) == 64
    assert setup_of(2, batch_size=8192, self_play=True).most_envs(8, MANY) == 64
    # what does not fit is left alone
    assert setup_of(batch_size=500).most_envs(250, MANY) == 250
    assert setup_of(batch_size=16384).most_envs(256, 100) == 100


def test_iterations_of_slow_envs_are_shortened() -> None:
    config = configs.Config(name="x", train=configs.TrainConfig(batch_size=4096), policy=TINY)
    with make("cartpole", 8) as vecenv:
        whole, *about = setup_with(config, cost(1e-6)).trainer(vecenv, 1.0)
        assert (whole.config.batch_size, whole.shape.horizon, about) == (4096, 512, [4096, 512])
        # 8 slots of 10 ms on two cores: 0.1 s are 20 steps, so segments as short as they get
        short, *about = setup_with(config, cost(1e-2)).trainer(vecenv, 0.1)
        assert (short.config.batch_size, short.shape.horizon, about) == (64, 8, [4096, 512])


@pytest.mark.slow
def test_the_proposal_for_cartpole_keeps_the_horizon_and_learns(tmp_path: Path) -> None:
    config = configs.load("cartpole")
    with make("cartpole", config.vec.num_envs) as vecenv:
        horizon = configs.complete_options(
            config.chosen_train(), vecenv.num_agents, False
        ).shape.horizon
    report = autotune("cartpole", seconds=5)
    assert {each.layout.backend for each in report.trials} >= {"threads", "serial"}
    for each in report.trials:
        assert each.horizon >= min(horizon, 128), each
    path = tmp_path / "tuned.ini"
    write_settings(path, report)

    # 800,000 steps took seeds 1 and 2 to a perf of 1.0; on 16384 envs, horizon 2, it was 0.03
    words = ["train", "cartpole", "--config", str(path), "--train.total-timesteps", "800_000"]
    words += ["--train.run-dir", str(tmp_path), "--train.dashboard", "off", "--train.seed", "1"]
    assert main(words) == 0
    (log,) = tmp_path.glob("*/metrics.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])["env/perf"] > 0.8


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


def test_the_reason_follows_from_the_measurement() -> None:
    slow = cost(1e-3, spread=5e-4, wait_share=0.8)
    serial, workers = trial("serial", 8, 100), trial("multiprocessing", 16, 190, 2)
    ready = trial("multiprocessing", 4, 400, 4, surplus=12)
    many = trial("multiprocessing", 32, 390, 16)

    assert explain(workers, [serial, workers], slow, 2) == (
        "a step takes 1 ms, so 8 ms of work per batch pay for a worker on each core "
        "(1.9 times Serial)"
    )
    assert "vary by 50%" in explain(ready, [serial, ready], slow, 2)
    assert explain(many, [serial, many], slow, 2).startswith("envs wait for 80% of a step")
    worse = workers._replace(sps=50)
    assert "reach only 50% of this rate" in explain(serial, [serial, worse], slow, 2)
    assert "one core" in explain(serial, [serial], slow, 1)
    assert "no time for other trials" in explain(serial, [serial], slow, 2)
    assert "C env steps in 1 ms" in explain(trial("threads", 8, 9), [serial], slow, 2)


def test_amounts_have_a_fitting_unit() -> None:
    assert [format_seconds(n) for n in (2.5e-7, 12.34e-6, 4.5e-3, 2)] == [
        "0.25 us",
        "12.3 us",
        "4.5 ms",
        "2 s",
    ]
    assert [format_bytes(n) for n in (320, 44_800, 12e6, 999_900_000)] == [
        "320 B",
        "44.8 kB",
        "12 MB",
        "1 GB",
    ]


# ---- The whole -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_python_env_is_tuned() -> None:
    lines: list[str] = []
    vec, params = configs.VecConfig(num_envs=8), {"busy": 1e-3}
    config = configs.Config(name="x", vec=vec, env=params, train=SMALL, policy=TINY)
    report = autotune(f"{__name__}:Env", config=config, seconds=1, on_progress=lines.append)

    assert report.best in report.trials
    assert report.best.is_finalist
    assert {each.layout.backend for each in report.trials} >= {"serial"}
    for each in report.trials:
        assert each.sps > 0, each.failure
        # two cores cannot do more than 2000 steps of a millisecond, three in a lucky round
        assert each.sps < 1e3 * (report.cores + 1)
        assert each.iteration_seconds == pytest.approx(64 / each.sps)
        assert each.horizon * each.layout.total_envs == 64
    assert lines[0] == "one env"
    assert lines[-1].startswith("the best ")
    assert len(lines) == len(report.trials) + 2
    assert json.loads(json.dumps(report.to_dict()))["best"]["layout"]["backend"]


def test_a_failed_layout_is_reported_and_an_env_that_always_fails_raises() -> None:
    with pytest.raises(EnvError, match="ZeroDivisionError: the world ended"):
        autotune(f"{__name__}:Broken", seconds=0.3)

    setup = setup_with(configs.load("cartpole"), cost(1e-4))
    failed = _try(setup, Layout("serial", 4), 0.1)
    assert (failed.sps, failed.failure, failed.memory) == (0, "`x` must be y.", 8)


def test_mistakes_are_reported_before_any_trial() -> None:
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


def test_a_new_file_has_the_settings_and_their_source(tmp_path: Path) -> None:
    path = tmp_path / "tuned.ini"
    write_settings(path, report_of(Layout("threads", 1024, 2)))

    assert path.read_text() == (
        "[vec]\n"
        "; puffer autotune cartpole: 1,234 SPS on 2 cores\n"
        "backend = threads\n"
        "num_envs = 1024\n"
        "num_workers = 2\n"
    )
    vec = configs.load("cartpole", files=[path]).vec
    assert (vec.backend, vec.num_envs, vec.num_workers, vec.arguments()["vec"]) == (
        "threads",
        1024,
        2,
        {},
    )


OLD = """\
; mine
[train]
learning_rate = 0.01 ; by hand

[vec] ; workers
num-envs = 8
mode = async
surplus_envs = 8
; puffer autotune cartpole: 5 SPS on 1 cores
timeout = 5

[env]
width = 3
"""


def test_an_existing_file_keeps_its_other_settings(tmp_path: Path) -> None:
    path = tmp_path / "old.ini"
    path.write_text(OLD)
    write_settings(path, report_of(Layout("multiprocessing", 64, 2)))

    assert path.read_text() == OLD.replace(
        "num-envs = 8\nmode = async\nsurplus_envs = 8\n"
        "; puffer autotune cartpole: 5 SPS on 1 cores\n",
        "; puffer autotune cartpole: 1,234 SPS on 2 cores\n"
        "backend = multiprocessing\nnum_envs = 64\nnum_workers = 2\n",
    )
    first = path.read_text()
    write_settings(path, report_of(Layout("multiprocessing", 64, 2)))
    assert path.read_text() == first


def test_keys_of_workers_become_comments_without_workers(tmp_path: Path) -> None:
    path = tmp_path / "old.ini"
    path.write_text("[vec]\ntimeout = 5\n")
    write_settings(path, report_of(Layout("serial", 4)))

    assert "\n; timeout = 5\n" in path.read_text()
    vec = configs.load("cartpole", files=[path]).vec
    with make("cartpole", vec.num_envs, backend=vec.backend, vec=vec.arguments()["vec"]) as vecenv:
        assert vecenv.num_envs == 4


def test_async_settings_make_the_measured_layout(tmp_path: Path) -> None:
    path = tmp_path / "tuned.ini"
    write_settings(path, report_of(Layout("multiprocessing", 2, 1, 2)))

    vec = configs.load("cartpole", files=[path]).vec
    sizes = (vec.num_envs, vec.num_workers, vec.envs_per_worker, vec.backend)
    with make("cartpole", *sizes, vec=vec.arguments()["vec"]) as vecenv:
        assert (vecenv.num_envs, vecenv.surplus_envs, vecenv.num_workers) == (2, 2, 1)


def test_a_file_that_is_not_an_ini_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(UsageError, match=r"notes\.txt:1"):
        write_settings(path, report_of(Layout("serial", 4)))
    assert path.read_text() == "hello\n"
    with pytest.raises(UsageError, match="`--write` must be"):
        write_settings(tmp_path, report_of(Layout("serial", 4)))


# ---- The command ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_prints_a_table_and_writes_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuned.ini"
    words = ["autotune", "cartpole", "--seconds", "1", "--num-envs", "64", "--write", str(path)]
    assert main([*words, "--train.batch-size", "1024"]) == 0

    out, progress = capsys.readouterr()
    assert "one env of cartpole" in out
    assert re.search(r"\nbest: (serial, 64 envs|\w+, 64 envs on )", out)
    assert re.search(r"trains at [\d,]+ SPS with batches of 1024 steps, horizon 16\.", out)
    assert "[vec] of " in out
    assert progress.splitlines()[0] == "one env"
    assert configs.load("cartpole", files=[path]).vec.num_envs == 64


@pytest.mark.slow
def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["autotune", "cartpole", "--seconds", "0.5", "--num-envs", "8", "--json"]
    assert main([*words, "--train.batch-size", "256"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["env"] == "cartpole"
    assert found["best"]["layout"]["num_envs"] == 8
    assert found["cost"]["step"] > 0
    assert found["why"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cartpol"], "Did you mean `cartpole`"),
        (["cartpole", "--seconds", "0"], "`--seconds` must be above 0"),
        (["cartpole", "--vec.num-envs", "3"], "only --env, --train and --policy can be set here"),
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
