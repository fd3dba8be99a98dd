"""Several processes train as one would: same slots, same noise, same minibatches, same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import differing_ranks
import distributed_run
import pytest
import torch

from pufferlib.distributed.world import ALONE, World
from pufferlib.training.rollout import own_units


def torchrun(*words: str, ranks: int = 2) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, f"--nproc_per_node={ranks}", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """Return what one and two processes make of the same runs."""
    folder = tmp_path_factory.mktemp("distributed")
    kinds = list(distributed_run.KINDS)
    threads = torch.get_num_threads()
    distributed_run.main(str(folder / "one"), *kinds)
    torch.set_num_threads(threads)
    torchrun(distributed_run.__file__, str(folder / "two"), *kinds)
    names = {1: "one", 2: "two"}
    loaded = {size: torch.load(folder / name, weights_only=False) for size, name in names.items()}
    return {**loaded, "folder": folder}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(distributed_run.KINDS))
def test_two_processes_make_the_weights_of_one(results: dict[Any, Any], kind: str) -> None:
    one, two = results[1][kind], results[2][kind]
    for own, other in zip(one["weights"], two["weights"], strict=True):
        torch.testing.assert_close(other, own, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(distributed_run.KINDS))
def test_their_log_is_that_of_one(results: dict[Any, Any], kind: str) -> None:
    one, two = results[1][kind]["log"], results[2][kind]["log"]
    names = ["steps", "episodes", "mean_reward", "min_reward", "max_reward", "episode_length"]
    names += ["policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac", "grad_norm"]
    if "self-play" in kind:
        names += ["env/elo", "env/win_rate", "env/pool_size"]
    for name in [*names, "explained_variance"]:
        assert two[name] == pytest.approx(one[name], rel=1e-4, abs=1e-5, nan_ok=True), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normalised", "memory", "self-play", "self-play memory"])
def test_one_process_resumes_from_the_checkpoint_of_two(results: dict[Any, Any], kind: str) -> None:
    weights = []
    for name in ("one", "two"):
        trainer = distributed_run.trainer_of(kind)
        trainer.load_checkpoint(results["folder"] / f"{name}.{kind}.safetensors")
        trainer.evaluate()
        trainer.train()
        weights.append([part.detach() for part in trainer.policy.parameters()])
        trainer.env.close()
    for own, other in zip(*weights, strict=True):
        torch.testing.assert_close(other, own, rtol=0, atol=1e-6)


# ---- Processes with different options -----------------------------------------------------------


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Return what each of two processes says where their options differ."""
    out = tmp_path_factory.mktemp("differing") / "out"
    torchrun(differing_ranks.__file__, str(out))
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learning_rate", "gamma", "seed", "n_epochs", "norm_obs"])
def test_options_that_differ_are_named_in_all_processes(
    complaints: list[dict[str, str]], name: str
) -> None:
    first, second = differing_ranks.CASES[name]
    for messages in complaints:
        assert messages[name] == (
            f"all processes must have the same `{name}`, but rank 0 has {first} and rank 1 has "
            f"{second}. Try the same options for all of them."
        )


@pytest.mark.slow
def test_processes_with_other_slots_or_policies_are_refused(
    complaints: list[dict[str, str]],
) -> None:
    for messages in complaints:
        assert "same `slots`, but rank 0 has 8 and rank 1 has 4." in messages["slots"]
        assert "same `batch_size`, but rank 0 has 512 and rank 1 has 96." in messages["batch_size"]
        assert "same `policy." in messages["policy"]
        assert "16" in messages["policy"]
        assert "32" in messages["policy"]
        assert messages["dashboard"] == ""


# ---- The parts -----------------------------------------------------------------------------------


def test_each_segment_of_all_processes_belongs_to_one_of_them() -> None:
    # 2 processes x 3 slots x 2 stretches: segments 0..5 are the first stretch of slots 0..5
    worlds = [World(rank, 2) for rank in range(2)]
    chosen = torch.tensor([0, 4, 6, 2, 11, 3])
    own = [own_units(chosen, 3, world).tolist() for world in worlds]
    assert own == [[0, 3, 2], [1, 5, 0]]
    assert own_units(chosen, 3, ALONE) is chosen
    # two steps to a segment: step 9 is the second of segment 4, which is slot 1 of process 1
    steps = torch.tensor([0, 9, 13])
    own = [own_units(steps, 3, world, per_segment=2).tolist() for world in worlds]
    assert own == [[0, 7], [3]]


def test_the_command_line_trains_on_two_processes(tmp_path: Path) -> None:
    words = ["--vec.num-envs=8", "--vec.num-workers=1", "--train.batch-size=512"]
    words += ["--train.num-iterations=3", "--train.minibatch-size=none", "--train.num-steps=none"]
    torchrun("-m", "pufferlib", "train", "cartpole", *words, f"--train.run-dir={tmp_path}")
    (folder,) = tmp_path.iterdir()
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3
    assert (folder / "latest.safetensors").exists()


@pytest.mark.slow
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    # one that releases a tensor while the interpreter ends aborts its process, now and then
    script = tmp_path / "script.py"
    script.write_text(
        "import atexit, os, pathlib, runpy, sys\n"
        "def note_threads():\n"
        "    tasks = pathlib.Path('/proc/self/task').iterdir()\n"
        "    names = [(task / 'comm').read_text().strip() for task in tasks]\n"
        f"    note = pathlib.Path({str(tmp_path)!r}) / ('threads' + os.environ['RANK'])\n"
        "    note.write_text(' '.join(names))\n"
        "atexit.register(note_threads)  # runs last\n"
        f"sys.argv = ['run', {str(tmp_path / 'out')!r}, 'torch', 'self-play']\n"
        f"runpy.run_path({distributed_run.__file__!r}, run_name='__main__')\n"
    )
    torchrun(str(script))
    for rank in range(2):
        assert "gloo" not in (tmp_path / f"threads{rank}").read_text()
