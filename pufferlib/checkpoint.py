"""Checkpoints: tensors and JSON in one safetensors file, written whole or not at all.

A file is data, never code: nothing on the load path can run what a stranger put into it. It carries
a schema version and a checksum over everything, so damage is found before anything is used.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from pufferlib.errors import CheckpointError
from pufferlib.files import read_regular, write_atomically
from pufferlib.pytorch import State

SCHEMA = 1
MAX_HEADER = 16 << 20  # bytes: JSON may take twenty times as much memory as it has characters
_KEY = "pufferlib"  # of the JSON in the file's header
_MALFORMED = (KeyError, TypeError, ValueError, OverflowError, RecursionError)  # odd JSON's work


class Checkpoint(NamedTuple):
    """What a file held, verified."""

    tensors: dict[str, Tensor]  # on the CPU
    facts: dict[str, Any]  # counters, settings, shapes of trees
    metadata: Any  # the caller's own


def save(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    metadata: Any = None,
) -> None:
    """Write a checkpoint to `path`; an older file there stays whole until the new one is.

    Of `metadata` JSON keeps the values: tuples become lists, keys text, NumPy's numbers plain ones.
    """
    path = Path(path)
    if not path.name:
        raise CheckpointError(f"`path` must name a file, but got {str(path)!r}.")
    own = {name: part.detach().cpu().contiguous().clone() for name, part in tensors.items()}
    try:
        body = json.dumps({"facts": dict(facts), "metadata": metadata}, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"`metadata` must be JSON values, but {error}.") from None
    header = json.dumps({"schema": SCHEMA, "checksum": _checksum(own, body), "body": body})
    data = safetensors.torch.save(own, {_KEY: header})
    if _header_size(data) > MAX_HEADER:
        raise CheckpointError(
            f"`metadata` must fit into {MAX_HEADER >> 20} MB of JSON, but has {len(body):,} bytes."
        )
    try:
        write_atomically(path, data)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror or error}") from error


def load(path: str | Path, max_bytes: int | None = None) -> Checkpoint:
    """Read and verify a checkpoint; a CheckpointError says what is wrong with the file.

    A file of more than `max_bytes` (the memory that is free) is refused before it is read.
    """
    path = Path(path)
    limit = psutil.virtual_memory().available // 3 if max_bytes is None else max_bytes
    try:
        data = read_regular(path, limit)
        if MAX_HEADER < _header_size(data) < len(data):
            raise ValueError(f"its header must have at most {MAX_HEADER >> 20} MB")
        tensors = safetensors.torch.load(data)  # checks sizes and offsets
        header = json.loads(data[8 : 8 + _header_size(data)]).get("__metadata__", {}).get(_KEY)
        del data
        if header is None:
            raise CheckpointError(f"{path} is not a checkpoint: it has tensors only.")
        content = json.loads(header)
        schema, checksum, body = content["schema"], content["checksum"], str(content["body"])
    except FileNotFoundError:
        raise CheckpointError(f"{path} must exist, but does not.") from None
    except (OSError, AttributeError, safetensors.SafetensorError, *_MALFORMED) as error:
        raise CheckpointError(f"{path} is not a checkpoint: {_one_line(error)}") from error
    if schema != SCHEMA:
        raise CheckpointError(f"{path} must have schema {SCHEMA}, but has {schema!r:.50}.")
    if checksum != _checksum(tensors, body):
        raise CheckpointError(f"{path} is damaged: its checksum does not match.")
    try:
        parts = json.loads(body)
        return Checkpoint(tensors, dict(parts["facts"]), parts["metadata"])
    except _MALFORMED as error:
        raise CheckpointError(f"{path} is not a checkpoint: {_one_line(error)}") from error


def _plain(value: Any) -> Any:
    """Return numbers of NumPy and torch, which scores often are, as JSON can hold them."""
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]} ..."


def _checksum(tensors: Mapping[str, Tensor], body: str) -> str:
    digest = hashlib.sha256(body.encode(errors="surrogatepass"))
    for name in sorted(tensors):
        part = tensors[name]
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode(errors="surrogatepass"))
        digest.update(part.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# ---- Facts ---------------------------------------------------------------------------------------


def counter(facts: Mapping[str, Any], name: str) -> int:
    """Return a fact that counts something."""
    value = facts[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise CheckpointError(f"`{name}` must be a whole number >= 0, but is {value!r:.50}.")
    return value


def number(facts: Mapping[str, Any], name: str) -> float:
    """Return a fact that is a finite number."""
    value = facts[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise CheckpointError(f"`{name}` must be a finite number, but is {value!r:.50}.")
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


# ---- Modules, optimizers and trees of tensors ----------------------------------------------------


def check_module(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Raise unless the tensors under `prefix` are those of `module`, name by name."""
    own, found = module.state_dict(), under(tensors, prefix)
    parameters = dict(module.named_parameters())  # a buffer may well hold infinities
    for name in sorted({*own, *found}):
        wanted, given = own.get(name), found.get(name)
        if (
            wanted is None
            or given is None
            or (wanted.shape, wanted.dtype) != (given.shape, given.dtype)
        ):
            noun = prefix.rstrip("/").replace("_", " ")
            raise CheckpointError(
                f"the checkpoint must fit the {noun}, but `{name}` is {_described(given)} in the "
                f"file and {_described(wanted)} in the {noun}."
            )
        if name in parameters and not given.isfinite().all():
            raise CheckpointError(f"`{name}` must be finite, but is not in the file.")


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Load the tensors under `prefix` into `module`; all must be there and fit."""
    check_module(module, tensors, prefix)
    module.load_state_dict(under(tensors, prefix))


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, by the rest of their names."""
    return {name[len(prefix) :]: part for name, part in tensors.items() if name.startswith(prefix)}


def _described(part: Tensor | None) -> str:
    if part is None:
        return "missing"
    return f"{str(part.dtype).removeprefix('torch.')} of shape {tuple(part.shape)}"


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer/{index}/{name}": torch.as_tensor(part)
        for index, parts in state.items()
        for name, part in parts.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; settings such as step sizes stay what they are.

    Kernels trust their state, so it must be just what the optimizer itself would make.
    """
    template = _optimizer_template(optimizer)
    state: dict[int, dict[str, Tensor]] = {}
    for key, part in under(tensors, "optimizer/").items():
        number, _, name = key.partition("/")
        index = int(number) if number.isdecimal() and len(number) < 10 else -1
        wanted = template.get(index, {}).get(name)
        if wanted is None or (wanted.shape, wanted.dtype) != (part.shape, part.dtype):
            raise CheckpointError(
                f"the checkpoint must fit the optimizer, but `{key}` is {_described(part)} in the "
                f"file and {_described(wanted)} in the optimizer."
            )
        if not part.isfinite().all() or (name == "step" and part.min() < 0):
            raise CheckpointError(f"`{key}` of the optimizer must be finite, but is not.")
        state.setdefault(index, {})[name] = part
    for index, parts in state.items():
        missing = template[index].keys() - parts.keys()
        if missing and parts.keys() != {"step"}:  # a count alone: the parameter had no gradient
            raise CheckpointError(
                f"the checkpoint must fit the optimizer, but lacks `{index}/{min(missing)}`."
            )
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _optimizer_template(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """Return the state that a copy of the optimizer has after a step, by parameter number."""
    twin = copy.deepcopy(optimizer)
    for group in twin.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    twin.step()
    state: dict[int, dict[str, Tensor]] = twin.state_dict()["state"]
    return state


_MERSENNE = struct.Struct("<QiiQ624QdddiifB3x")  # the state of torch's generator on the CPU


def check_rng(state: Tensor) -> None:
    """Raise unless the state of a CPU generator is one that it can be in.

    Torch looks at less: with a position beyond its table it reads what lies behind.
    """
    raw = state.numpy().tobytes()
    if state.dtype != torch.uint8 or len(raw) != torch.Generator().get_state().numel():
        raise CheckpointError(
            f"a random state must be a CPU generator's, but is {_described(state)}."
        )
    if len(raw) != _MERSENNE.size:
        return  # of a newer torch
    _, left, seeded, position, *rest = _MERSENNE.unpack(raw)
    table, (_, _, _, has_normal, _, _, has_float) = rest[:624], rest[624:]
    if (
        not (1 <= left <= 624 and position + left <= 625 and seeded == 1)
        or max(table) >= 2**32
        or not {has_normal, has_float} <= {0, 1}
    ):
        raise CheckpointError("a random state must be one of a generator, but is not.")


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


def is_alike(one: State, other: State) -> bool:
    """Return whether two trees have the same form, with tensors of the same kind and rows."""
    (outline, parts), (other_outline, other_parts) = pack(one, ""), pack(other, "")
    kinds, other_kinds = (
        [(part.dtype, part.shape[:1], part.dim()) for part in tree.values()]
        for tree in (parts, other_parts)
    )
    return bool(outline == other_outline and kinds == other_kinds)
