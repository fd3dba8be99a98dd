"""The benchmarks measure what they claim; no test asserts a figure that depends on the machine."""

from __future__ import annotations

import importlib
import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pufferlib.bench import bench_emulation, bench_vec, loops, vec
from pufferlib.cli import main
from pufferlib.errors import UsageError


def test_a_busy_env_computes_for_its_seconds() -> None:
    env = loops.BusyEnv(2e-3)
    env.reset()
    start, worked = time.perf_counter(), time.thread_time()
    ends = [env.step(0)[2] for _ in range(20)]

    assert time.perf_counter() - start >= 20 * 2e-3
    assert time.thread_time() - worked > 0  # busy, not asleep
    assert not any(ends)
    idle = loops.BusyEnv(0)
    idle.reset()
    assert [idle.step(0)[2] for _ in range(200)].index(True) == 199


def test_step_times_of_uneven_envs_follow_from_the_seed() -> None:
    def drawn(seed: int) -> list[float]:
        env = loops.UnevenEnv()
        env.reset(seed=seed)
        return [float(env._rng.uniform(*loops.UNEVEN_SECONDS)) for _ in range(5)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert all(1e-3 <= seconds <= 10e-3 for seconds in drawn(3))


def test_loops_alternate_and_the_best_round_counts() -> None:
    order: list[str] = []

    def loop(name: str, rates: list[float]) -> Any:
        def run(calls: int) -> float:
            if calls == 2 and name not in order:  # the warm-up
                time.sleep(0.02)
                order.append(name)
                return 0
            order.append(name)
            return rates.pop(0)

        return run

    best = loops.best_of(3, [loop("a", [1, 5, 2]), loop("b", [9, 3, 4])], seconds=0.02)
    assert best == [5, 9]
    assert order == ["a", "b", *"ababab"]


@pytest.fixture
def vec_bars(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    return importlib.import_module("vec_bars")


def row(cost_us: int, share: float, ratio: float | None) -> vec.CostResult:
    return vec.CostResult(cost_us, 1.0, 0.5, share, 32, 1.0, 2, 0.5, share, ratio)


def turn(num_envs: int, cost_us: int, over_bare_us: float) -> vec.TurnResult:
    bare_us = 100.0
    return vec.TurnResult(
        num_envs, cost_us, 300.0, 200.0 - over_bare_us, 100.0 + over_bare_us, bare_us, over_bare_us
    )


def test_bars_report_which_are_met(vec_bars: ModuleType) -> None:
    costs = [row(0, 0.2, 4.9), row(10, 0.9, 3.0), row(100, 0.94, 2.0), row(1000, 0.96, None)]
    turns = [turn(2, 0, 39.0), turn(2, 10, 41.0), turn(16, 0, -5.0), turn(16, 10, 40.0)]
    uneven = vec.UnevenResult(16, 4, 100, 150, 1.5)
    result = vec.VecResult("vec", 2, 5, 0.5, costs, turns, uneven, idle_cpu=0.06)
    bars = vec_bars.bars_of(result.to_dict())

    met = {bar.what: bar.is_met for bar in bars}
    assert met == {
        "0 us, share of the ideal": True,
        "0 us, times AsyncVectorEnv": False,
        "10 us, share of the ideal": True,
        "10 us, times AsyncVectorEnv": True,
        "100 us, share of the ideal": False,
        "1000 us, share of the ideal": True,
        "2 envs, us of a turn over the bare hand-over, at most": False,
        "16 envs, us of a turn over the bare hand-over, at most": True,
        "async, times sync": True,
        "cpu of a waiting worker, at most": False,
    }


@pytest.mark.slow
def test_bench_vec_compares_with_gymnasium_in_one_run() -> None:
    reported: list[str] = []
    result = bench_vec(
        seconds=1, costs_us=(0,), turn_envs=(1, 4), turn_costs_us=(0,), on_progress=reported.append
    )

    (found,) = result.costs
    assert found.gymnasium_sps is not None
    assert found.ratio == pytest.approx(found.multiprocessing_sps / found.gymnasium_sps)
    assert found.multiprocessing_share == pytest.approx(found.multiprocessing_sps / found.ideal_sps)
    assert 0 < found.serial_sps < found.ideal_sps
    assert found.envs_per_worker in vec.ENVS_PER_WORKER
    (turns,) = result.turns  # two workers cannot share one env
    assert turns.num_envs == 4
    assert turns.turn_us > 0
    assert turns.turn_cost_us == pytest.approx(turns.turn_us - turns.work_us)
    assert turns.over_bare_us == pytest.approx(turns.turn_cost_us - turns.bare_us)
    assert result.uneven.ratio == pytest.approx(result.uneven.async_sps / result.uneven.sync_sps)
    # 16 envs of 1 to 10 ms, 5.5 on average, make at most 16 / 5.5 ms = 2909 steps a second
    assert result.uneven.async_sps < 1.3 * 2909
    assert 0 <= result.idle_cpu < 1
    assert reported[0] == "envs of 0 us a step"
    assert json.loads(json.dumps(result.to_dict()))["costs"][0]["cost_us"] == 0


def test_bench_emulation_measures_a_box_and_a_dict() -> None:
    result = bench_emulation(num_envs=4, seconds=0.1)

    assert result.dict_of_four_us > result.box_discrete_us  # four parts cost more than one
    assert (result.env, result.num_envs) == ("emulation", 4)
    with pytest.raises(UsageError, match="`seconds` must be above 0, but got 0"):
        bench_emulation(seconds=0)


def test_bench_vec_needs_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="`seconds` must be above 0"):
        bench_vec(seconds=0)
    assert main(["bench", "vec", "--seconds", "0"]) == 2
    assert "`--seconds` must be above 0, but got 0" in capsys.readouterr().err


def test_the_command_prints_tables_or_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], vec_bars: ModuleType
) -> None:
    costs = [row(100, 0.97, 3.0)]
    uneven = vec.UnevenResult(16, 4, 100, 160, 1.6)
    turns = [turn(16, 10, 12.0)]
    result = vec.VecResult("vec", 2, 5, 0.5, costs, turns, uneven, 0.0)
    monkeypatch.setattr("pufferlib.bench.bench_vec", lambda **options: result)

    assert main(["bench", "vec"]) == 0
    printed = capsys.readouterr().out
    assert "97.0%" in printed
    assert "bare futex" in printed
    assert main(["bench", "vec", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["uneven"]["ratio"] == 1.6
    assert [bar.is_met for bar in vec_bars.bars_of(found)] == [True, True, True, True]
