"""Checkpoints: a run goes on bit for bit, a file is whole or refused, and never runs as code."""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import pickle
import re
import stat
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
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
from pufferlib import PuffeRL, list_envs
from pufferlib.errors import CheckpointError
from pufferlib.models import make_policy
from pufferlib.policies.recurrent import map_state
from pufferlib.runs import checkpoint
from pufferlib.training.saving import tensors_of, values_of
from pufferlib.vectorization import Serial, VectorEnv


def trainer_of(
    name: str,
    recurrent: Any = None,
    num_envs: int = 4,
    hidden_size: int = 8,
    stretches: int = 3,
    double_buffer: bool = False,
    **settings: Any,
) -> PuffeRL:
    vecenv = pufferlib.make(name, num_envs=num_envs, num_workers=1, double_buffer=double_buffer)
    torch.manual_seed(0)
    policy = make_policy(vecenv, hidden_size=hidden_size, recurrent=recurrent)
    return PuffeRL(
        vecenv,
        policy,
        **{
            "batch_size": vecenv.num_agents * 8 * stretches,
            "num_steps": 8,
            "n_epochs": 2,
            "num_iterations": 20,
            "device": "cpu",
            "dashboard": "off",
            **settings,
        },
    )


def zipped(data: bytes) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", data)
    return memory.getvalue()


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


def assert_resumes(name: str, path: Path, recurrent: Any = None, **settings: Any) -> None:
    """Check that four iterations are two, a save, a load in another trainer, and two more."""
    whole = trainer_of(name, recurrent, **settings)
    iterate(whole, 4)

    first = trainer_of(name, recurrent, **settings)
    iterate(first, 2)
    first.save_checkpoint(path)
    first.env.close()
    torch.manual_seed(999)  # another process has other random numbers
    second = trainer_of(name, recurrent, **{**settings, "seed": 999})
    iterate(second, 1)  # whatever it did before does not matter
    second.load_checkpoint(path)
    iterate(second, 2)

    assert_same_run(whole, second)


MEMORIES = itertools.cycle(["lstm", "gru", "mingru", "transformer"])


@pytest.mark.parametrize("name", list_envs("ocean"))
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(name: str, tmp_path: Path) -> None:
    assert_resumes(name, tmp_path / "a", stretches=1)


@pytest.mark.parametrize(("name", "recurrent"), list(zip(list_envs("ocean"), MEMORIES)))
def test_a_recurrent_policy_resumes_bit_for_bit(name: str, recurrent: str, tmp_path: Path) -> None:
    assert_resumes(name, tmp_path / "a", recurrent, stretches=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"norm_obs": True, "norm_reward": True},
        {"optimizer": "muon", "hidden_size": 32},
        {"prio_alpha": 0.5, "vtrace": True},
        {"ent_coef_final": 0.0, "clip_coef_final": 0.1, "gradient_accumulation": 2},
    ],
    ids=str,
)
def test_every_option_with_a_state_resumes_bit_for_bit(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    assert_resumes("cartpole", tmp_path / "a", "lstm", **settings)


@pytest.mark.parametrize(("name", "recurrent"), [("connect4", None), ("cartpole", "lstm")])
def test_a_double_buffered_run_resumes_bit_for_bit(
    name: str, recurrent: str | None, tmp_path: Path
) -> None:
    assert_resumes(name, tmp_path / "a", recurrent, double_buffer=True)


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


def test_a_run_without_snapshots_resumes_with_fresh_envs(tmp_path: Path) -> None:
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


def test_metadata_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="`metadata` must be JSON values"):
        trainer_of("cartpole").save_checkpoint(tmp_path / "a", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_and_torch_come_back_as_plain_ones(tmp_path: Path) -> None:
    trainer = trainer_of("cartpole")
    scores = {"best": np.float32(1.5), "step": np.int64(3), "rows": np.arange(2), "all": (True,)}
    trainer.save_checkpoint(tmp_path / "a", {**scores, "loss": torch.tensor(0.5)})
    wanted = {"best": 1.5, "step": 3, "rows": [0, 1], "all": [True], "loss": 0.5}
    assert trainer.load_checkpoint(tmp_path / "a") == wanted


def test_a_path_without_a_name_is_refused() -> None:
    with pytest.raises(CheckpointError, match="`path` must name a file, but got"):
        trainer_of("cartpole").save_checkpoint("")


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
    assert (saved.values, saved.metadata) == ({"n": 1}, {"m": 2})


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


def test_the_umask_decides_the_permissions_of_a_file(tmp_path: Path) -> None:
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


def test_an_unwritable_path_raises_one_line(tmp_path: Path) -> None:
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


def refused(path: Path, message: str) -> None:
    for load in (checkpoint.load, trainer_of("cartpole").load_checkpoint):
        with pytest.raises(CheckpointError, match=message) as caught:
            load(path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


@pytest.fixture
def good(tmp_path: Path) -> Path:
    trainer = trainer_of("cartpole", num_envs=2, hidden_size=4)
    iterate(trainer, 1)
    trainer.save_checkpoint(tmp_path / "good")
    return tmp_path / "good"


def test_a_missing_file_raises(tmp_path: Path) -> None:
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


def test_a_recurrent_state_that_does_not_fit_the_policy_is_refused(tmp_path: Path) -> None:
    trainer = trainer_of("cartpole", "lstm", num_envs=2)
    iterate(trainer, 1)
    trainer.save_checkpoint(tmp_path / "a")
    saved = checkpoint.load(tmp_path / "a")
    hidden = saved.tensors["state/0"]
    before = everything(trainer)
    broken: list[tuple[Any, dict[str, Tensor]]] = [
        (saved.values["state"], {"state/0": torch.zeros(hidden.shape[0], 3)}),
        (saved.values["state"], {"state/0": torch.zeros(100, *hidden.shape[1:])}),
        (saved.values["state"], {"state/0": torch.tensor(1.0)}),
        (saved.values["state"], {"state/0": hidden.double()}),
        (saved.values["state"], {"state/0": hidden.long()}),
        ({"tuple": [0]}, {}),
        ({"list": [0, 1]}, {}),
        ({"tuple": [0, 0, 1]}, {}),
        ({"dict": {"h": 0, "c": 1}}, {}),
        ({"tuple": [0, 7]}, {}),
        ({}, {}),
        (0, {}),
    ]
    for outline, parts in broken:
        checkpoint.save(
            tmp_path / "b", {**saved.tensors, **parts}, {**saved.values, "state": outline}
        )
        with pytest.raises(CheckpointError) as caught:
            trainer.load_checkpoint(tmp_path / "b")
        assert "\n" not in str(caught.value), outline
        assert everything(trainer) == before, outline
    nested: Any = 0
    for _ in range(400):
        nested = {"tuple": [nested]}
    checkpoint.save(tmp_path / "b", saved.tensors, {**saved.values, "state": nested})
    with pytest.raises(CheckpointError):
        trainer.load_checkpoint(tmp_path / "b")


def everything(trainer: PuffeRL) -> dict[str, Any]:
    """Return all that a checkpoint holds, as bytes and numbers; times apart."""
    values = {key: value for key, value in values_of(trainer).items() if key != "uptime"}
    parts = {name: bytes(part.numpy().tobytes()) for name, part in tensors_of(trainer).items()}
    return {**parts, **values}


def forged_rng(state: Tensor, left: int, position: int) -> Tensor:
    """Return a generator's state with another place in its table."""
    raw = bytearray(state.numpy().tobytes())
    struct.pack_into("<iiQ", raw, 8, left, 1, position)
    return torch.frombuffer(raw, dtype=torch.uint8)


def test_a_sound_file_with_the_wrong_content_is_refused_whole(good: Path, tmp_path: Path) -> None:
    saved = checkpoint.load(good)

    def variant(**changes: Any) -> Path:
        values, tensors = dict(saved.values), dict(saved.tensors)
        for key, value in changes.items():
            target: dict[str, Any] = values if key in values else tensors
            target.pop(key)
            if value is not None:
                target[key] = value
        checkpoint.save(tmp_path / "variant", tensors, values)
        return tmp_path / "variant"

    trainer = trainer_of("cartpole", num_envs=2, hidden_size=4)
    weight = saved.tensors["policy/actor.weight"]
    mean = saved.tensors["optimizer/0/exp_avg"]
    rng = saved.tensors["rng/torch"]
    broken: list[dict[str, Any]] = [
        {"iteration": None},
        {"iteration": "many"},
        {"iteration": -1},
        {"iteration": 1.5},
        {"iteration": True},
        {"iteration": float("nan")},
        {"iteration": float("inf")},
        {"iteration": 10**30},
        {"steps": float("inf")},
        {"steps": []},
        {"uptime": "long"},
        {"uptime": float("inf")},
        {"uptime": 10**400},
        {"episodes": 3},
        {"episodes": {"mean_reward": 1}},
        {"episodes": [{"mean_reward": 1.0}]},
        {"episodes": [{"episodes": 1, "mean_reward": "high"}]},
        {"episodes": [{"episodes": float("nan")}]},
        {"episodes": [{"episodes": 0}]},
        {"episodes": [{"episodes": 1}] * 101},
        {"carry/has_ended": torch.zeros(7, dtype=torch.bool)},
        {"learning_rate": float("nan")},
        {"learning_rate": -1},
        {"policy/actor.weight": weight.double()},
        {"policy/actor.weight": weight.int()},
        {"policy/actor.weight": weight.flatten()},
        {"policy/actor.weight": torch.full_like(weight, torch.nan)},
        {"policy/actor.weight": None},
        {"optimizer/0/exp_avg": None},
        {"optimizer/0/exp_avg": mean.double()},
        {"optimizer/0/exp_avg": torch.tensor(1.0)},  # kernels would read and write beyond it
        {"optimizer/0/exp_avg": torch.full_like(mean, torch.inf)},
        {"optimizer/0/step": torch.tensor([1], dtype=torch.uint8)},
        {"optimizer/0/step": torch.tensor(-1.0)},
        {"optimizer/0/step": torch.tensor(torch.nan)},
        {"rng/torch": forged_rng(rng, left=624, position=624)},
        {"rng/torch": forged_rng(rng, left=0, position=1)},
        {"rng/torch": forged_rng(rng, left=-5, position=2**63)},
        {"rng/torch": torch.full_like(rng, 255)},
        {"rng/torch": rng.float()},
        {"rng/order": forged_rng(rng, left=600, position=100)},
        {"rng/order": None},
        {"rng/order": torch.zeros(3, dtype=torch.uint8)},
        {"rng/sample": torch.zeros(5)},
        {"carry/resets": torch.zeros(7, dtype=torch.bool)},
        {"carry/resets": None},
        {"carry/resets": torch.zeros(2)},
        {"env/state": torch.zeros(2, 3, dtype=torch.uint8)},
        {"env/state": torch.zeros(2, 3)},
        {"state": {"tuple": [5]}},
        {"state": "text"},
        {"optimizer/0/exp_avg": torch.zeros(3)},
    ]
    iterate(trainer, 2)
    before = everything(trainer)
    for changes in broken:
        with pytest.raises(CheckpointError) as caught:
            trainer.load_checkpoint(variant(**changes))
        assert "\n" not in str(caught.value), changes
        assert len(str(caught.value)) < 600, changes
        assert everything(trainer) == before, changes
    trainer.load_checkpoint(good)
    iterate(trainer, 1)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"hidden_size": 16},
            r"must fit the policy, but `actor.weight` is float32 of shape \(2, 8\) in the",
        ),
        (
            {"recurrent": "lstm"},
            r"must fit the policy, but `actor.bias` is .* missing in the policy",
        ),
        ({"norm_obs": True}, "`norm_obs` must be false to resume .*, but is true"),
        ({"norm_reward": False}, "`norm_reward` must be true to resume .*, but is false"),
        ({"optimizer": "muon"}, "`optimizer` must be `adam` to resume .*, but is `muon`"),
    ],
)
def test_another_architecture_raises_one_line_and_changes_nothing(
    other: dict[str, Any], message: str, tmp_path: Path
) -> None:
    one = trainer_of("cartpole")
    iterate(one, 1)
    one.save_checkpoint(tmp_path / "a")
    trainer = trainer_of("cartpole", **other)
    before = {name: part.clone() for name, part in trainer.policy.state_dict().items()}
    with pytest.raises(CheckpointError, match=message) as caught:
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


def test_weights_only_leaves_all_else_alone(tmp_path: Path) -> None:
    one = trainer_of("cartpole", "lstm", norm_obs=True)
    iterate(one, 2)
    one.save_checkpoint(tmp_path / "a", {"note": 1})
    other = trainer_of("cartpole", "lstm", num_envs=6, norm_obs=True)  # other slots, so other envs
    iterate(other, 1)
    before = everything(other)
    assert other.load_checkpoint(tmp_path / "a", weights_only=True) == {"note": 1}
    after = everything(other)
    theirs = everything(one)
    taken = [name for name in after if name.startswith(("policy/", "observation_norm/"))]
    assert len(taken) > 4
    for name in after:
        assert after[name] == (theirs if name in taken else before)[name], name
    iterate(other, 1)


@pytest.mark.parametrize("weights_only", [True, False])
def test_weights_learnt_with_normalised_observations_need_them(
    weights_only: bool, tmp_path: Path
) -> None:
    trainers = {norm: trainer_of("cartpole", norm_obs=norm) for norm in (True, False)}
    for norm, trainer in trainers.items():
        iterate(trainer, 1)
        trainer.save_checkpoint(tmp_path / str(norm))
    with pytest.raises(CheckpointError, match="`norm_obs` must be true to resume"):
        trainers[False].load_checkpoint(tmp_path / "True", weights_only)
    with pytest.raises(CheckpointError, match="`norm_obs` must be false to resume"):
        trainers[True].load_checkpoint(tmp_path / "False", weights_only)


# ---- Another number of slots ---------------------------------------------------------------------


def saved_by(trainer: PuffeRL, path: Path) -> PuffeRL:
    iterate(trainer, 2)
    trainer.save_checkpoint(path)
    return trainer


def slots_of(trainer: PuffeRL) -> list[str]:
    """Return the names of a checkpoint's parts that belong to slots."""
    parts = ("env/", "carry/", "state", "reward_norm/returns", "train", "episodes")
    return [name for name in everything(trainer) if name.startswith(parts)]


OTHER_SLOTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # before, now
    "fewer": ({"num_envs": 64}, {"num_envs": 4}),
    "more": ({"num_envs": 4}, {"num_envs": 64}),
    "recurrent": ({"recurrent": "lstm"}, {"recurrent": "lstm", "num_envs": 6}),
    "normalised": ({"norm_obs": True}, {"norm_obs": True, "num_envs": 6}),
    "muon": ({"optimizer": "muon"}, {"optimizer": "muon", "num_envs": 6}),
    "another horizon": ({}, {"num_envs": 6, "num_steps": 12}),
    "another batch": ({}, {"num_envs": 6, "stretches": 5}),
    "double-buffered": ({}, {"num_envs": 6, "double_buffer": True}),
    "torch": ({}, {"num_envs": 6, "engine": "torch"}),
    "several agents": ({"name": "snake", "num_envs": 2}, {"name": "snake", "num_envs": 1}),
}


@pytest.mark.parametrize("case", OTHER_SLOTS)
def test_another_number_of_slots_gets_all_but_the_episodes(case: str, tmp_path: Path) -> None:
    before, now = ({"name": "cartpole", **settings} for settings in OTHER_SLOTS[case])
    one, other = saved_by(trainer_of(**before), tmp_path / "a"), trainer_of(**now)
    iterate(other, 1)
    said = rf"^the checkpoint has {one.env.num_agents} slots, but this run has "
    with pytest.warns(RuntimeWarning, match=rf"{said}{other.env.num_agents}: new epi") as caught:
        other.load_checkpoint(tmp_path / "a")
    assert len(caught) == 1
    theirs, own = everything(one), everything(other)
    for name in sorted(own.keys() - set(slots_of(other))):
        assert own[name] == theirs[name], name
    assert other.state.carry.state is None
    assert other.state.carry.resets.all()
    assert other.reward_norm is not None
    assert not other.reward_norm.returns.any()
    assert not other.state.episodes.has_ended.any()
    assert other.state.episodes.means() == one.state.episodes.means()

    # from here on the run is like any other
    iterate(other, 1)
    assert other.iteration == 3
    other.save_checkpoint(tmp_path / "b")
    twin = trainer_of(**now)
    twin.load_checkpoint(tmp_path / "b")
    for trainer in (other, twin):
        iterate(trainer, 1)
    assert_same_run(other, twin)


def test_a_budget_in_steps_stays_one_where_the_batch_is_another(tmp_path: Path) -> None:
    budget = {"num_iterations": None, "total_timesteps": 960}
    one = saved_by(trainer_of("cartpole", **budget), tmp_path / "a")  # 2 of 10 iterations of 96
    assert (one.iteration, one.steps, one.num_iterations) == (2, 192, 10)
    other = trainer_of("cartpole", num_envs=6, stretches=1, **budget)  # batches of 48
    with pytest.warns(RuntimeWarning, match="new episodes begin"):
        other.load_checkpoint(tmp_path / "a")
    assert (other.iteration, other.steps, other.num_iterations) == (2, 192, 20)
    while not other.done:
        iterate(other, 1)
    assert (other.iteration, other.steps) == (18, 960)
    other.save_checkpoint(tmp_path / "b")
    back = trainer_of("cartpole", num_envs=6, stretches=1, **budget)
    back.load_checkpoint(tmp_path / "b")
    assert back.done


@pytest.mark.parametrize("num_envs", [4, 6])
def test_snapshots_that_envs_cannot_restore_are_left_out(num_envs: int, tmp_path: Path) -> None:
    one = saved_by(trainer_of("cartpole"), tmp_path / "a")
    vecenv = pufferlib.make("gym-CartPole-v1", num_envs=num_envs, backend="serial")
    other = PuffeRL(vecenv, make_policy(vecenv, hidden_size=8), device="cpu", dashboard="off")
    with pytest.warns(RuntimeWarning, match="snapshots, which Serial cannot restore: new episodes"):
        other.load_checkpoint(tmp_path / "a")
    assert_close(dict(other.policy.state_dict()), dict(one.policy.state_dict()))
    assert other.iteration == 2


def test_envs_in_python_may_be_more_or_fewer(tmp_path: Path) -> None:
    def scripted(num_envs: int) -> PuffeRL:
        vecenv = Serial(Scripted, num_envs)
        return PuffeRL(vecenv, TenTimes(), batch_size=24, n_epochs=1, device="cpu", dashboard="off")

    one = saved_by(scripted(2), tmp_path / "a")
    other = scripted(3)
    other.load_checkpoint(tmp_path / "a")
    assert_close(one.policy.factor, other.policy.factor)
    assert_close(other.reward_norm.moments.state_dict(), one.reward_norm.moments.state_dict())  # type: ignore[union-attr]
    iterate(other, 1)
    assert other.iteration == 3


@pytest.mark.filterwarnings("ignore:.* workers share")
@pytest.mark.parametrize(("surplus", "num_envs"), [(2, 4), (0, 8)])
def test_async_envs_may_be_more_or_fewer(surplus: int, num_envs: int, tmp_path: Path) -> None:
    one = saved_by(trainer_of("cartpole"), tmp_path / "a")
    vec = {"mode": "async", "surplus_envs": surplus}
    with pufferlib.make("cartpole", num_envs, 2, backend="multiprocessing", vec=vec) as vecenv:
        policy = make_policy(vecenv, hidden_size=8)
        size = {"batch_size": 8 * (num_envs + surplus), "num_steps": 8}
        other = PuffeRL(vecenv, policy, device="cpu", dashboard="off", **size)
        iterate(other, 1)
        with pytest.warns(RuntimeWarning, match=f"but this run has {num_envs + surplus}: new ep"):
            other.load_checkpoint(tmp_path / "a")
        assert_close(dict(other.policy.state_dict()), dict(one.policy.state_dict()))
        iterate(other, 1)
        other.save_checkpoint(tmp_path / "b")
    back = trainer_of("cartpole")
    with pytest.warns(RuntimeWarning, match=f"has {num_envs + surplus} slots, but this run has 4"):
        back.load_checkpoint(tmp_path / "b")
    iterate(back, 1)


@pytest.mark.parametrize("num_envs", [4, 6])
def test_other_params_are_refused_with_any_number_of_slots(num_envs: int, tmp_path: Path) -> None:
    saved_by(trainer_of("cartpole"), tmp_path / "a")
    vecenv = pufferlib.make("cartpole", num_envs, 1, gravity=3.0)
    policy = make_policy(vecenv, hidden_size=8)
    other = PuffeRL(vecenv, policy, batch_size=96, num_steps=8, device="cpu", dashboard="off")
    iterate(other, 1)
    before = everything(other)
    with pytest.raises(CheckpointError, match="with a different `gravity`"):
        other.load_checkpoint(tmp_path / "a")
    assert everything(other) == before


def test_a_refusal_with_other_slots_changes_nothing(tmp_path: Path) -> None:
    """Whatever is wrong besides, neither the trainer nor the episodes of its envs change."""
    saved_by(trainer_of("cartpole"), tmp_path / "a")
    saved = checkpoint.load(tmp_path / "a")
    mean, slots = saved.tensors["optimizer/0/exp_avg"], len(saved.tensors["carry/resets"])
    wide = saved.tensors["env/state"].shape[1]
    bytes_of = lambda *shape: torch.zeros(shape, dtype=torch.uint8)  # noqa: E731
    trainer = trainer_of("cartpole", num_envs=slots + 1)
    iterate(trainer, 2)
    before = everything(trainer)
    for changes in (
        {"optimizer/0/exp_avg": torch.full_like(mean, torch.inf)},
        {"rng/torch": torch.zeros(5)},
        {"carry/resets": torch.zeros(slots + 7, dtype=torch.bool)},
        {"carry/resets": torch.zeros(slots)},
        {"carry/resets": torch.zeros(0, dtype=torch.bool), "env/state": bytes_of(0, wide)},
        {"carry/resets": torch.tensor(True)},
        {"env/state": bytes_of(slots, wide)},  # no state of the env
        {"env/state": bytes_of(slots, wide - 1)},
        {"env/state": bytes_of(slots + 1, wide)},
        {"env/state": torch.zeros(slots, wide)},
        {"env/state": bytes_of(slots)},
    ):
        checkpoint.save(tmp_path / "b", {**saved.tensors, **changes}, saved.values)
        with pytest.raises(CheckpointError) as caught:
            trainer.load_checkpoint(tmp_path / "b")
        assert "\n" not in str(caught.value)
        assert everything(trainer) == before, changes
    for size in (0, -1, 1.5, "96", None):
        train = {**saved.values["train"], "batch_size": size}
        checkpoint.save(tmp_path / "b", saved.tensors, {**saved.values, "train": train})
        with pytest.raises(CheckpointError):
            trainer.load_checkpoint(tmp_path / "b")
        assert everything(trainer) == before, size
    with pytest.warns(RuntimeWarning, match="new episodes begin"):
        trainer.load_checkpoint(tmp_path / "a")


@pytest.mark.parametrize("change", ["optimizer/0/exp_avg", "carry/resets", "env/state"])
def test_a_refusal_leaves_envs_that_have_no_snapshots_in_their_episodes(
    change: str, tmp_path: Path
) -> None:
    saved_by(trainer_of("cartpole", num_envs=2), tmp_path / "a")
    saved = checkpoint.load(tmp_path / "a")
    broken = {**saved.tensors, change: saved.tensors[change].double() / 0}
    checkpoint.save(tmp_path / "b", broken, saved.values)
    vecenv = pufferlib.make("gym-CartPole-v1", num_envs=4, backend="serial")
    policy = make_policy(vecenv, hidden_size=8)
    trainer = PuffeRL(vecenv, policy, batch_size=64, device="cpu", dashboard="off")
    iterate(trainer, 1)
    before, seen = everything(trainer), vecenv.observations.copy()
    with pytest.raises(CheckpointError):
        trainer.load_checkpoint(tmp_path / "b")
    assert everything(trainer) == before
    assert (vecenv.observations == seen).all()
    assert not trainer.state.carry.resets.all()


def test_a_larger_file_is_read_only_if_it_has_more_slots(tmp_path: Path) -> None:
    large = trainer_of("snake", num_envs=64)
    large.save_checkpoint(tmp_path / "a")
    saved, small = checkpoint.load(tmp_path / "a"), trainer_of("snake", num_envs=1)
    own = sum(part.nbytes for part in tensors_of(small).values())
    size = (160 << 20) + 4 * own
    with pytest.warns(RuntimeWarning, match="new episodes begin"):
        small.load_checkpoint(tmp_path / "a")
    junk = {**tensors_of(small), "junk": torch.zeros(size, dtype=torch.uint8)}
    checkpoint.save(tmp_path / "b", junk, saved.values)
    with pytest.raises(CheckpointError, match=r"must have at most .* bytes, but has"):
        small.load_checkpoint(tmp_path / "b")


def test_a_checkpoint_of_another_kind_of_device_keeps_the_random_numbers(tmp_path: Path) -> None:
    """The generator of a GPU has a seed and an offset as its state: 16 bytes."""
    one = saved_by(trainer_of("cartpole"), tmp_path / "a")
    saved = checkpoint.load(tmp_path / "a")
    on_gpu = {**saved.tensors, "rng/sample": torch.arange(16, dtype=torch.uint8)}
    checkpoint.save(tmp_path / "b", on_gpu, saved.values)
    other = trainer_of("cartpole")
    before = other.state.sample_rng.get_state()
    other.load_checkpoint(tmp_path / "b")
    assert torch.equal(other.state.sample_rng.get_state(), before)
    theirs, own = everything(one), everything(other)
    assert {name for name in own if own[name] != theirs[name]} == {"rng/sample"}


# ---- States of environments ----------------------------------------------------------------------


def test_a_forged_state_of_an_env_is_refused_in_one_line(tmp_path: Path) -> None:
    trainer = trainer_of("snake", num_envs=2)
    iterate(trainer, 1)
    trainer.save_checkpoint(tmp_path / "a")
    saved = checkpoint.load(tmp_path / "a")
    before, messages = everything(trainer), list[str]()
    rng = np.random.default_rng(0)
    width = saved.tensors["env/state"].shape[1]
    for _ in range(40):
        forged = saved.tensors["env/state"].clone()
        place = int(rng.integers(width // 4)) * 4
        forged[1, place : place + 4] = torch.from_numpy(rng.integers(0, 256, 4, dtype=np.uint8))
        checkpoint.save(tmp_path / "b", {**saved.tensors, "env/state": forged}, saved.values)
        try:
            trainer.load_checkpoint(tmp_path / "b")
            trainer.load_checkpoint(tmp_path / "a")
        except CheckpointError as error:
            messages.append(str(error))
        assert everything(trainer) == before
    assert len(messages) > 10  # the board, the snakes and their cells
    for line in messages:
        assert re.search(r"fit this run: `snapshot` must be of the same env and params: ", line)
        assert "\n" not in line


@pytest.mark.parametrize("name", list_envs("ocean"))
def test_an_env_is_restored_to_true_states_only(name: str) -> None:
    with pufferlib.make(name, num_envs=3, num_workers=1, seed=1) as vecenv:
        vecenv.reset()
        state = vecenv.snapshot()
        assert state is not None
        vecenv.restore(state)
        noise = state.copy()
        noise[1, :] = np.random.default_rng(0).integers(0, 256, state.shape[1], dtype=np.uint8)
        with pytest.raises(pufferlib.errors.UsageError, match="must be of the same env and params"):
            vecenv.restore(noise)
        assert (vecenv.snapshot() == state).all()


# ---- Files that are no files, or too large -------------------------------------------------------


def test_links_lead_to_files_and_pipes_are_not_waited_for(good: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(good)
    assert checkpoint.load(tmp_path / "link").values["iteration"] == 1
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "nowhere").symlink_to(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("circle", "is not a checkpoint"),
        ("nowhere", "must exist, but does not"),
        ("pipe", "it is not a file"),
    ):
        with pytest.raises(CheckpointError, match=message):
            checkpoint.load(tmp_path / name)
    checkpoint.save(tmp_path / "link", {}, {})  # the name is replaced, not what it led to
    assert not (tmp_path / "link").is_symlink()
    assert checkpoint.load(good).values["iteration"] == 1


@contextmanager
def memory_limit(allowed: int) -> Iterator[None]:
    """Check that the process takes no more memory meanwhile than `allowed` bytes above the start.

    Linux lets a process forget its peak, so that earlier tests do not hide this one's.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("the peak of memory cannot be measured here")

    def peak() -> int:
        (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(line) << 10

    before = peak()
    yield
    assert peak() - before < allowed


def test_sizes_that_a_file_only_claims_cost_no_memory(tmp_path: Path) -> None:
    trainer = trainer_of("cartpole")
    huge = tmp_path / "huge"
    terabyte = 1 << 40
    entry = {"dtype": "U8", "shape": [terabyte], "data_offsets": [0, terabyte]}
    header = json.dumps({"x": entry, "__metadata__": {"pufferlib": "{}"}}).encode()
    with memory_limit(16 << 20):
        for size in (len(header), terabyte, 2**63, 2**64 - 1):
            huge.write_bytes(struct.pack("<Q", size) + header)  # the header's size is a claim too
            with pytest.raises(CheckpointError, match="is not a checkpoint"):
                checkpoint.load(huge)
        huge.write_bytes(struct.pack("<Q", len(header)) + header)
        with huge.open("rb+") as file:
            file.truncate(8 + len(header) + terabyte)  # a hole: it takes no room on the disk
        for load in (checkpoint.load, trainer.load_checkpoint):
            with pytest.raises(CheckpointError, match=r"more than the .* expected"):
                load(huge)


def test_json_that_would_fill_the_memory_is_not_parsed(tmp_path: Path) -> None:
    write(tmp_path / "a", signed("[" + "[]," * 6_000_000 + "[]]"))  # 18 MB, and 380 MB of lists
    with memory_limit(150 << 20), pytest.raises(CheckpointError, match="at most 16 MB"):
        checkpoint.load(tmp_path / "a")
    write(tmp_path / "a", signed("[" + "[]," * 1_000_000 + "[]]"))  # 3 MB are allowed
    with memory_limit(200 << 20), pytest.raises(CheckpointError, match="is not a checkpoint"):
        checkpoint.load(tmp_path / "a")


@pytest.mark.parametrize(
    "outline", [{"list": [0] * 500_000}, {"tuple": [{"list": []}] * 500_000}, {"list": [1]}]
)
def test_a_short_outline_makes_no_large_state(outline: Any, tmp_path: Path) -> None:
    trainer = trainer_of("cartpole", num_envs=4)
    iterate(trainer, 1)
    trainer.save_checkpoint(tmp_path / "a")
    saved, before = checkpoint.load(tmp_path / "a"), everything(trainer)
    tensors = {**saved.tensors, "state/0": torch.zeros(4, 10_000)}
    checkpoint.save(tmp_path / "a", tensors, {**saved.values, "state": outline})
    # half a million copies of it would take 80 GB, of their rows alone 2 GB
    with memory_limit(150 << 20), pytest.raises(CheckpointError, match="recurrent state"):
        trainer.load_checkpoint(tmp_path / "a")
    assert everything(trainer) == before


@pytest.mark.parametrize("weights_only", [True, False])
def test_the_header_is_compared_before_any_data_is_read(weights_only: bool, tmp_path: Path) -> None:
    trainer = trainer_of("cartpole")
    trainer.save_checkpoint(tmp_path / "a")
    data = (tmp_path / "a").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    size = 40 << 20  # less than any limit
    entry = header["policy/actor.weight"]
    entry["shape"] = [1, size // 4]
    entry["data_offsets"] = [len(data) - end, len(data) - end + size]
    forged = json.dumps(header).encode()
    with (tmp_path / "b").open("wb") as file:
        file.write(struct.pack("<Q", len(forged)) + forged)
        file.truncate(8 + len(forged) + len(data) - end + size)  # a hole, which reads as zeros
    with memory_limit(20 << 20), pytest.raises(CheckpointError, match="must fit the policy"):
        trainer.load_checkpoint(tmp_path / "b", weights_only)


def test_metadata_too_large_to_load_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="must fit into 16 MB of JSON"):
        checkpoint.save(tmp_path / "a", {}, {}, "x" * (17 << 20))
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(CheckpointError, match="`metadata` must be JSON values"):
        checkpoint.save(tmp_path / "a", {}, {}, nested)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress, zipped])
def test_compressed_files_are_not_unpacked(packed: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(packed(bytes(32 << 20)))
    with memory_limit(16 << 20), pytest.raises(CheckpointError, match="is not a checkpoint"):
        checkpoint.load(tmp_path / "a")


# ---- Curricula -----------------------------------------------------------------------------------


def test_another_env_takes_over_all_that_was_learnt() -> None:
    trainer = trainer_of("squared", num_envs=4, norm_reward=True, batch_size=96)
    iterate(trainer, 2)
    weights = {name: part.clone() for name, part in trainer.policy.state_dict().items()}
    optimizer = {
        name: part.clone() for name, part in checkpoint.optimizer_tensors(trainer.optimizer).items()
    }
    assert trainer.reward_norm is not None
    rewards_seen = float(trainer.reward_norm.moments.count)
    for num_envs, params in ((4, {"num_targets": 2}), (6, {"num_targets": 1, "max_steps": 9})):
        old = trainer.env
        trainer.env = pufferlib.make("squared", num_envs=num_envs, num_workers=1, **params)
        old.close()
        assert float(trainer.reward_norm.moments.count) == rewards_seen
        if num_envs == 4:
            for name, part in trainer.policy.state_dict().items():
                assert torch.equal(part, weights[name])
            for name, part in checkpoint.optimizer_tensors(trainer.optimizer).items():
                assert torch.equal(part, optimizer[name])
        with pytest.raises(pufferlib.errors.UsageError, match="`evaluate` must be called"):
            trainer.train()
        iterate(trainer, 1)
        rewards_seen = float(trainer.reward_norm.moments.count)
    assert (trainer.iteration, trainer.steps) == (4, 4 * 96)
    assert trainer.rollout.num_slots == 6


def test_a_curriculum_resumes_bit_for_bit(tmp_path: Path) -> None:
    def second_task() -> VectorEnv:
        return pufferlib.make("squared", num_envs=4, num_workers=1, num_targets=1, seed=3)

    whole = trainer_of("squared")
    iterate(whole, 2)
    whole.env = second_task()
    iterate(whole, 2)
    whole.save_checkpoint(tmp_path / "a")
    iterate(whole, 2)
    later = trainer_of("squared")
    later.env = second_task()
    later.load_checkpoint(tmp_path / "a")
    iterate(later, 2)
    assert_same_run(whole, later)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("squared", {"distance": 4}, r"must have the observation space .*\(7, 7\).*\(9, 9\)"),
        ("tmaze", {}, "must have the observation space of the env before"),
        ("squared", {"num_envs": 5}, r"`batch_size` must be a multiple of slots .* = 5 \*"),
    ],
)
def test_an_env_that_does_not_fit_is_refused_and_changes_nothing(
    name: str, params: dict[str, Any], message: str
) -> None:
    trainer = trainer_of("squared")
    iterate(trainer, 1)
    env, before = trainer.env, everything(trainer)
    with pytest.raises(pufferlib.errors.UsageError, match=message):
        trainer.env = pufferlib.make(name, **{"num_envs": 4, "num_workers": 1, **params})
    assert trainer.env is env
    assert everything(trainer) == before
    trainer.train()  # the last rollout is still there


def test_one_policy_goes_through_the_trainers_of_a_curriculum() -> None:
    # The other way to write one: a new trainer for each level, the same policy.
    torch.manual_seed(0)
    policy, seen = None, []
    for max_steps in (10, 20, 40):
        env = pufferlib.make("cartpole", num_envs=4, max_steps=max_steps)
        policy = make_policy(env, hidden_size=8) if policy is None else policy
        start = [part.clone() for part in policy.parameters()]
        trainer = PuffeRL(env, policy, batch_size=128, device="cpu", dashboard="off")
        assert trainer.policy is policy
        assert all(map(torch.equal, policy.parameters(), start))
        for _ in range(2):
            trainer.evaluate()
            trainer.train()
            trainer.mean_and_log()
        seen.append([part.clone() for part in policy.parameters()])
        env.close()
    assert not any(torch.equal(one[0], other[0]) for one, other in itertools.pairwise(seen))


def test_stages_have_learning_rates_of_their_own() -> None:
    trainer = trainer_of("cartpole", anneal_lr=False)
    used = []
    for stage in (
        {"learning_rate": 1e-3, "iterations": 2},
        {"learning_rate": 1e-4, "iterations": 1},
    ):
        trainer.learning_rate = stage["learning_rate"]
        for _ in range(int(stage["iterations"])):
            trainer.evaluate()
            used.append(trainer.train()["learning_rate"])
            trainer.mean_and_log()
    assert used == [1e-3, 1e-3, 1e-4]
