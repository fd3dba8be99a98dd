"""Checkpoints: a run goes on bit for bit, a file is whole or refused, and never runs as code."""

from __future__ import annotations

import json
import os
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from scripted import Scripted, TenTimes
from torch import Tensor, nn
from torch.testing import assert_close

import pufferlib
from pufferlib import PuffeRL, checkpoint
from pufferlib.errors import CheckpointError
from pufferlib.models import make_policy
from pufferlib.pytorch import map_state
from pufferlib.vectorization import Serial, VectorEnv


def trainer_of(
    name: str, recurrent: Any = None, num_envs: int = 4, hidden_size: int = 8, **settings: Any
) -> PuffeRL:
    vecenv = pufferlib.make(name, num_envs=num_envs, num_workers=1)
    torch.manual_seed(0)
    policy = make_policy(vecenv, hidden_size=hidden_size, recurrent=recurrent)
    return PuffeRL(
        vecenv,
        policy,
        **{
            "batch_size": vecenv.num_agents * 24,
            "num_steps": 8,
            "n_epochs": 2,
            "num_iterations": 20,
            "device": "cpu",
            "dashboard": "off",
            **settings,
        },
    )


def iterate(trainer: PuffeRL, iterations: int) -> None:
    for _ in range(iterations):
        trainer.evaluate()
        trainer.train()


def assert_same_run(one: PuffeRL, other: PuffeRL) -> None:
    for name, part in one.policy.state_dict().items():
        assert torch.equal(part, other.policy.state_dict()[name]), name
    left, right = one.optimizer.state_dict(), other.optimizer.state_dict()
    assert left["param_groups"] == right["param_groups"]
    for index, parts in left["state"].items():
        for name, part in parts.items():
            assert torch.equal(part, right["state"][index][name]), f"{index}/{name}"
    assert (one.iteration, one.steps) == (other.iteration, other.steps)
    assert one.learning_rate == other.learning_rate
    assert (one.env.observations == other.env.observations).all()
    states = [trainer.env.snapshot() for trainer in (one, other)]
    assert (states[0] == states[1]).all()


# ---- Going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "recurrent"),
    [
        ("cartpole", None),
        ("cartpole", "lstm"),
        ("memory", "gru"),
        ("snake", "mingru"),
        ("connect4", None),
        ("continuous", None),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    name: str, recurrent: Any, tmp_path: Path
) -> None:
    whole = trainer_of(name, recurrent)
    iterate(whole, 6)

    first = trainer_of(name, recurrent)
    iterate(first, 3)
    first.save_checkpoint(tmp_path / "run.safetensors")
    first.env.close()
    torch.manual_seed(999)  # another process has other random numbers
    second = trainer_of(name, recurrent, seed=999)
    iterate(second, 1)  # whatever it did before does not matter
    second.load_checkpoint(tmp_path / "run.safetensors")
    iterate(second, 3)

    assert_same_run(whole, second)


def test_saving_changes_nothing(tmp_path: Path) -> None:
    one, other = trainer_of("cartpole", "lstm"), trainer_of("cartpole", "lstm")
    for _ in range(3):
        iterate(one, 1)
        iterate(other, 1)
        other.save_checkpoint(tmp_path / "a")
    assert_same_run(one, other)


def test_counters_and_the_last_statistics_come_back(tmp_path: Path) -> None:
    one = trainer_of("cartpole")
    iterate(one, 5)
    one.learning_rate = 0.125
    before = one.mean_and_log()
    one.save_checkpoint(tmp_path / "a")
    other = trainer_of("cartpole")
    other.load_checkpoint(tmp_path / "a")
    assert (other.iteration, other.steps, other.learning_rate) == (5, one.steps, 0.125)
    after = other.mean_and_log()
    assert after["mean_reward"] == before["mean_reward"]
    assert after["uptime"] >= before["uptime"]
    assert not other.done


def test_a_run_without_env_state_goes_on_with_fresh_envs(tmp_path: Path) -> None:
    def scripted() -> PuffeRL:
        vecenv = Serial(Scripted, 2)
        return PuffeRL(vecenv, TenTimes(), batch_size=16, n_epochs=1, device="cpu", dashboard="off")

    one = scripted()
    iterate(one, 2)
    one.save_checkpoint(tmp_path / "a")
    other = scripted()
    other.load_checkpoint(tmp_path / "a")
    assert_close(one.policy.factor, other.policy.factor)
    iterate(other, 1)
    assert other.iteration == 3


def test_training_after_a_load_needs_a_new_rollout(tmp_path: Path) -> None:
    trainer = trainer_of("cartpole")
    iterate(trainer, 1)
    trainer.save_checkpoint(tmp_path / "a")
    trainer.load_checkpoint(tmp_path / "a")
    with pytest.raises(pufferlib.errors.UsageError, match="`evaluate` must be called"):
        trainer.train()


# ---- The file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata", [None, {"note": "ü", "scores": [1, 2.5, None]}, [1], "text", 3]
)
def test_metadata_comes_back(metadata: Any, tmp_path: Path) -> None:
    trainer = trainer_of("cartpole")
    trainer.save_checkpoint(tmp_path / "a", metadata)
    assert trainer.load_checkpoint(tmp_path / "a") == metadata


def test_metadata_that_json_cannot_hold_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="`metadata` must be JSON values"):
        trainer_of("cartpole").save_checkpoint(tmp_path / "a", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_tensors_of_every_kind_come_back(tmp_path: Path) -> None:
    tensors = {
        "float": torch.randn(3, 4),
        "half": torch.randn(5).bfloat16(),
        "long": torch.arange(3),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "flags": torch.tensor([True, False]),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "strided": torch.arange(12.0).view(3, 4).t(),
    }
    checkpoint.save(tmp_path / "a", tensors, {"n": 1}, {"m": 2})
    saved = checkpoint.load(tmp_path / "a")
    assert saved.tensors.keys() == tensors.keys()
    for name, part in tensors.items():
        assert torch.equal(saved.tensors[name], part), name
        assert saved.tensors[name].dtype == part.dtype
    assert (saved.facts, saved.metadata) == ({"n": 1}, {"m": 2})


@pytest.mark.parametrize(
    "state",
    [
        None,
        torch.ones(2),
        (torch.ones(2), torch.zeros(3)),
        [torch.ones(1), (torch.zeros(1), None)],
        {"a": torch.ones(2), "b": (torch.zeros(1), [torch.ones(3)])},
        (),
    ],
)
def test_states_of_any_form_come_back(state: Any) -> None:
    outline, tensors = checkpoint.pack(state, "state/")
    back = checkpoint.unpack(json.loads(json.dumps(outline)), tensors, "state/")
    assert type(back) is type(state)
    kept: list[Tensor] = []
    map_state(lambda part: kept.append(part) or part, back)  # type: ignore[func-returns-value]
    assert [id(part) for part in kept] == [id(part) for part in tensors.values()]


def test_a_file_is_readable_by_others_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        checkpoint.save(tmp_path / "a", {}, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_missing_folders_are_made(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "a" / "b" / "c.ending", {}, {})
    assert checkpoint.load(str(tmp_path / "a" / "b" / "c.ending")).metadata is None


# ---- Failing writes ------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_the_old_file_survives_a_write_that_fails(
    call: str, fault: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    checkpoint.save(path, {"x": torch.ones(3)}, {})

    def fail(*_: Any) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(f"os.{call}", fail)
        wanted = CheckpointError if isinstance(fault, OSError) else KeyboardInterrupt
        with pytest.raises(wanted):
            checkpoint.save(path, {"x": torch.zeros(3)}, {})

    assert checkpoint.load(path).tensors["x"].tolist() == [1, 1, 1]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    places = [tmp_path / "file" / "a", tmp_path / "folder"]
    if os.geteuid() != 0:
        (tmp_path / "readonly").mkdir(mode=0o500)
        places.append(tmp_path / "readonly" / "a")
    for place in places:
        with pytest.raises(CheckpointError, match="cannot write") as caught:
            checkpoint.save(place, {}, {})
        assert "\n" not in str(caught.value)
    left = {str(entry.relative_to(tmp_path)) for entry in tmp_path.rglob("*")}
    assert left - {"readonly"} == {"file", "folder", "folder/inside"}


# ---- Damaged and hostile files -------------------------------------------------------------------


def refused(path: Path, said: str) -> None:
    for load in (checkpoint.load, trainer_of("cartpole").load_checkpoint):
        with pytest.raises(CheckpointError, match=said) as caught:
            load(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


@pytest.fixture
def good(tmp_path: Path) -> Path:
    trainer = trainer_of("cartpole", num_envs=2, hidden_size=4)
    iterate(trainer, 1)
    trainer.save_checkpoint(tmp_path / "good")
    return tmp_path / "good"


def test_a_file_that_does_not_exist_is_told(tmp_path: Path) -> None:
    refused(tmp_path / "none", "must exist, but does not")


def test_a_file_cut_short_anywhere_is_refused(good: Path) -> None:
    data = good.read_bytes()
    for size in [*range(0, 16), len(data) // 2, len(data) - 1]:
        good.write_bytes(data[:size])
        with pytest.raises(CheckpointError, match="is not a checkpoint") as caught:
            checkpoint.load(good)
        assert "\n" not in str(caught.value)
    refused(good, "is not a checkpoint")


def test_a_changed_byte_is_found(good: Path) -> None:
    data = bytearray(good.read_bytes())
    rng = np.random.default_rng(0)
    header = 8 + int.from_bytes(data[:8], "little")
    places = [header, len(data) - 1, *rng.integers(8, len(data), 200)]
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        good.write_bytes(damaged)
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(good)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"garbage" * 100, b"\xff" * 64, b"{}", b"PK\x03\x04" + bytes(99)]
)
def test_garbage_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(data)
    refused(tmp_path / "a", "is not a checkpoint")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "is not a checkpoint")


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("form", ["pickle", "torch", "legacy torch"])
def test_a_pickle_is_refused_and_not_run(form: str, tmp_path: Path) -> None:
    path, mark = tmp_path / "bomb", tmp_path / "it-ran"
    if form == "pickle":
        path.write_bytes(pickle.dumps(Bomb(mark)))
    else:
        torch.save({"x": Bomb(mark)}, path, _use_new_zipfile_serialization=form == "torch")
    refused(path, "is not a checkpoint")
    assert not mark.exists()


def write(path: Path, header: Any, tensors: dict[str, Tensor] | None = None) -> None:
    safetensors.torch.save_file(tensors or {"x": torch.ones(1)}, path, {"pufferlib": header})


def signed(body: Any, schema: int = 1, tensors: dict[str, Tensor] | None = None) -> str:
    """Return a header whose checksum is right, as a hostile writer would."""
    tensors = tensors or {"x": torch.ones(1)}
    text = body if isinstance(body, str) else json.dumps(body)
    checksum = checkpoint._checksum(tensors, text)
    return json.dumps({"schema": schema, "checksum": checksum, "body": text})


def test_a_file_of_another_program_is_refused(tmp_path: Path) -> None:
    safetensors.torch.save_file({"x": torch.ones(1)}, tmp_path / "a")
    refused(tmp_path / "a", "it has tensors only")


@pytest.mark.parametrize(
    "header",
    ["", "null", "3", "[]", "{}", '{"schema": 1}', "[" * 100_000, '{"schema": 1, "checksum": 2}'],
)
def test_a_strange_header_is_refused(header: str, tmp_path: Path) -> None:
    write(tmp_path / "a", header)
    refused(tmp_path / "a", "is not a checkpoint")


@pytest.mark.parametrize(
    "body",
    ["", "null", "[]", "{}", '{"facts": 3, "metadata": null}', "[" * 100_000, '{"facts": {}}'],
)
def test_a_strange_body_is_refused(body: str, tmp_path: Path) -> None:
    write(tmp_path / "a", signed(body))
    refused(tmp_path / "a", "is not a checkpoint")


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_another_schema_is_refused(schema: Any, tmp_path: Path) -> None:
    write(tmp_path / "a", signed({"facts": {}, "metadata": None}, schema=schema))
    refused(tmp_path / "a", "must have schema 1, but has")


def test_a_sound_file_with_the_wrong_content_is_refused_whole(good: Path, tmp_path: Path) -> None:
    saved = checkpoint.load(good)

    def variant(**changes: Any) -> Path:
        facts, tensors = dict(saved.facts), dict(saved.tensors)
        for key, value in changes.items():
            target: dict[str, Any] = facts if key in facts else tensors
            target.pop(key)
            if value is not None:
                target[key] = value
        checkpoint.save(tmp_path / "variant", tensors, facts)
        return tmp_path / "variant"

    trainer = trainer_of("cartpole", num_envs=2, hidden_size=4)
    broken: list[dict[str, Any]] = [
        {"iteration": None},
        {"iteration": "many"},
        {"episode_log": 3},
        {"learning_rate": float("nan")},
        {"rng/order": None},
        {"rng/order": torch.zeros(3, dtype=torch.uint8)},
        {"rng/sample": torch.zeros(5)},
        {"carry/resets": torch.zeros(7, dtype=torch.bool)},
        {"carry/resets": None},
        {"env/state": torch.zeros(2, 3, dtype=torch.uint8)},
        {"env/state": torch.zeros(2, 3)},
        {"state": {"tuple": [5]}},
        {"state": "text"},
        {"optimizer/0/exp_avg": torch.zeros(3)},
    ]
    for changes in broken:
        with pytest.raises(CheckpointError) as caught:
            trainer.load_checkpoint(variant(**changes))
        assert "\n" not in str(caught.value), changes
    trainer.load_checkpoint(good)
    iterate(trainer, 1)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"hidden_size": 16},
            r"must fit the policy, but `actor.weight` is float32 of shape \(2, 8\) in the",
        ),
        (
            {"recurrent": "lstm"},
            r"must fit the policy, but `actor.bias` is .* missing in the policy",
        ),
        ({"num_envs": 8}, "must be of 8 slots, but has 4. Try the number of envs"),
    ],
)
def test_another_architecture_is_told_in_one_line_and_changes_nothing(
    other: dict[str, Any], said: str, tmp_path: Path
) -> None:
    one = trainer_of("cartpole")
    iterate(one, 1)
    one.save_checkpoint(tmp_path / "a")
    trainer = trainer_of("cartpole", **other)
    before = {name: part.clone() for name, part in trainer.policy.state_dict().items()}
    with pytest.raises(CheckpointError, match=said) as caught:
        trainer.load_checkpoint(tmp_path / "a")
    assert "\n" not in str(caught.value)
    for name, part in trainer.policy.state_dict().items():
        assert torch.equal(before[name], part)
    assert trainer.iteration == 0


def test_weights_alone_can_be_taken_over(tmp_path: Path) -> None:
    one = trainer_of("cartpole")
    iterate(one, 1)
    one.save_checkpoint(tmp_path / "a")
    vecenv: VectorEnv = pufferlib.make("cartpole", num_envs=64)
    policy: nn.Module = make_policy(vecenv, hidden_size=8)
    checkpoint.restore_module(policy, checkpoint.load(tmp_path / "a").tensors, "policy/")
    for left, right in zip(one.policy.parameters(), policy.parameters(), strict=True):
        assert torch.equal(left, right)
