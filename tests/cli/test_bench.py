"""`puffer bench`: the JSON object it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pufferlib.cli import main
from pufferlib.native import infos

BENCH_KEYS = [
    "env",
    "mode",
    "sps",
    "steps",
    "seconds",
    "num_envs",
    "threads",
    "engine",
    "sgemm_gflops",
    "efficiency",
]


def test_bench_prints_one_object_as_its_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "cartpole", "--num-envs", "16", "--threads", "1", "--seconds", "0.1"]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(result) == BENCH_KEYS
    assert (result["env"], result["mode"], result["engine"]) == ("cartpole", "sim", "native")
    assert (result["num_envs"], result["threads"]) == (16, 1)
    assert result["steps"] % 16 == 0
    assert result["sps"] == pytest.approx(result["steps"] / result["seconds"])

    assert main(words) == 0
    assert "sps" in capsys.readouterr().out


def test_bench_train_runs_whole_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "cartpole", "--mode", "train", "--engine", "torch", "--threads", "1"]
    words += ["--num-envs", "16", "--seconds", "0.2", "--train.batch-size", "512", "--json"]
    assert main(words) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(result) == BENCH_KEYS
    assert (result["mode"], result["engine"], result["num_envs"]) == ("train", "torch", 16)
    assert result["steps"] % 512 == 0
    assert not Path("runs").exists()


@pytest.mark.slow
def test_bench_train_compares_engines_in_one_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "cartpole", "--mode", "train", "--engine", "native,torch", "--threads", "1"]
    words += ["--num-envs", "16", "--seconds", "0.2", "--train.batch-size", "512", "--json"]
    assert main(words) == 0
    native, torch = map(json.loads, capsys.readouterr().out.splitlines()[-2:])
    assert (native["engine"], torch["engine"]) == ("native", "torch")
    assert native["sgemm_gflops"] == torch["sgemm_gflops"] > 0
    # the arithmetic of a step is the same: efficiencies differ as rates do
    assert native["efficiency"] / torch["efficiency"] == pytest.approx(native["sps"] / torch["sps"])

    assert main(["bench", "cartpole", "--mode", "train", "--engine", "nativ"]) == 2
    assert "Did you mean `native`?" in capsys.readouterr().err


@pytest.mark.slow
def test_bench_ocean_measures_every_env(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ocean", "--seconds", "0.01", "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [result["env"] for result in results] == list(infos())
    assert all(result["sps"] > 0 and result["threads"] == 1 for result in results)
