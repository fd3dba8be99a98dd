"""Checkpoints: tensors and JSON in one safetensors file, written whole or not at all.

A file is data, never code: nothing on the load path can run what a stranger put into it. It carries
a schema version and a checksum over everything, so damage is found before anything is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from pufferlib.errors import CheckpointError
from pufferlib.pytorch import State

SCHEMA = 1
_KEY = "pufferlib"  # of the JSON in the file's header
_MALFORMED = (KeyError, TypeError, ValueError, RecursionError)  # what odd JSON can cause


class Checkpoint(NamedTuple):
    """What a file held, verified."""

    tensors: dict[str, Tensor]  # on the CPU
    facts: dict[str, Any]  # counters, settings, shapes of trees
    metadata: Any  # the caller's own


def save(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint to `path`; an older file there stays whole until the new one is."""
    path = Path(path)
    own = {name: part.detach().cpu().contiguous().clone() for name, part in tensors.items()}
    try:
        body = json.dumps({"facts": dict(facts), "metadata": metadata})
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"`metadata` must be JSON values, but {error}.") from None
    header = {"schema": SCHEMA, "checksum": _checksum(own, body), "body": body}
    data = safetensors.torch.save(own, {_KEY: json.dumps(header)})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, data)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error


def load(path: str | Path) -> Checkpoint:
    """Read and verify a checkpoint; a CheckpointError says what is wrong with the file."""
    path = Path(path)
    try:
        with safetensors.safe_open(str(path), framework="pt", device="cpu") as file:
            header = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header is None:
            raise CheckpointError(f"{path} is not a checkpoint: it has tensors only.")
        content = json.loads(header)
        schema, checksum, body = content["schema"], content["checksum"], str(content["body"])
    except FileNotFoundError:
        raise CheckpointError(f"{path} must exist, but does not.") from None
    except (OSError, safetensors.SafetensorError, *_MALFORMED) as error:
        raise CheckpointError(f"{path} is not a checkpoint: {_one_line(error)}") from error
    if schema != SCHEMA:
        raise CheckpointError(f"{path} must have schema {SCHEMA}, but has {schema!r}.")
    if checksum != _checksum(tensors, body):
        raise CheckpointError(f"{path} is damaged: its checksum does not match.")
    try:
        parts = json.loads(body)
        return Checkpoint(tensors, dict(parts["facts"]), parts["metadata"])
    except _MALFORMED as error:
        raise CheckpointError(f"{path} is not a checkpoint: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _checksum(tensors: Mapping[str, Tensor], body: str) -> str:
    digest = hashlib.sha256(body.encode())
    for name in sorted(tensors):
        part = tensors[name]
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode())
        digest.update(part.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _write_atomically(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with unfinished.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name must survive a crash too
    finally:
        os.close(folder)


# ---- Modules, optimizers and trees of tensors ----------------------------------------------------


def check_module(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Raise unless the tensors under `prefix` are those of `module`, name by name."""
    own, found = module.state_dict(), _under(tensors, prefix)
    for name in sorted({*own, *found}):
        wanted, given = own.get(name), found.get(name)
        if wanted is None or given is None or wanted.shape != given.shape:
            raise CheckpointError(
                f"the checkpoint must fit the policy, but `{name}` is {_described(given)} in the "
                f"file and {_described(wanted)} in the policy."
            )


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Load the tensors under `prefix` into `module`; all must be there and fit."""
    check_module(module, tensors, prefix)
    module.load_state_dict(_under(tensors, prefix))


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: part for name, part in tensors.items() if name.startswith(prefix)}


def _described(part: Tensor | None) -> str:
    return "missing" if part is None else f"of shape {tuple(part.shape)}"


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer/{index}/{name}": torch.as_tensor(part)
        for index, parts in state.items()
        for name, part in parts.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; settings such as step sizes stay what they are."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, part in _under(tensors, "optimizer/").items():
        number, _, name = key.partition("/")
        index = int(number) if number.isdecimal() else len(parameters)
        if index >= len(parameters) or part.shape not in (parameters[index].shape, ()):
            raise CheckpointError(
                f"the checkpoint must fit the optimizer, but `{key}` is {_described(part)}."
            )
        state.setdefault(index, {})[name] = part
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def pack(state: State, prefix: str) -> tuple[Any, dict[str, Tensor]]:
    """Part a tree of tensors into a JSON outline, whose leaves are numbers, and its tensors."""
    tensors: dict[str, Tensor] = {}

    def outline(tree: Any) -> Any:
        if tree is None:
            return None
        if isinstance(tree, Tensor):
            tensors[f"{prefix}{len(tensors)}"] = tree
            return len(tensors) - 1
        if isinstance(tree, dict):
            return {"dict": {key: outline(part) for key, part in tree.items()}}
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [outline(part) for part in tree]}

    return outline(state), tensors


def unpack(outline: Any, tensors: Mapping[str, Tensor], prefix: str) -> State:
    """Join again what `pack` parted."""
    if outline is None:
        return None
    if isinstance(outline, int):
        return tensors[f"{prefix}{outline}"]
    (kind, parts), *_ = outline.items()
    if kind == "dict":
        return {key: unpack(part, tensors, prefix) for key, part in parts.items()}
    joined = [unpack(part, tensors, prefix) for part in parts]
    return joined if kind == "list" else tuple(joined)
