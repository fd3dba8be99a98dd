"""Checkpoints: tensors and JSON in one safetensors file, written whole or not at all.

A file is data, never code: loading cannot run anything from an untrusted file. A file has a schema
version and a checksum over everything, so damage is found before anything is used.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import os
import struct
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import psutil
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from pufferlib.config import TrainConfig
from pufferlib.errors import CheckpointError, one_line, quoted
from pufferlib.files import open_regular, write_atomically
from pufferlib.policies.recurrent import RecurrentState

T = TypeVar("T")

SCHEMA = 1
MAX_HEADER = 16 << 20  # bytes: JSON may take twenty times as much memory as it has characters
_KEY = "pufferlib"  # of the JSON in the file's header
_VALUES = "facts"  # of the values in that JSON; the first name, which files of all versions have
# raised for unexpected JSON
MALFORMED = (AttributeError, LookupError, TypeError, ValueError, OverflowError, RecursionError)
_MAX_OUTLINE = 4096  # parts of a recurrent state: a short outline must not expand without limit
_DTYPES = {  # as a file spells them
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8},
    **{"BOOL": torch.bool, "C64": torch.complex64},
    **{"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2},
}


class Form(NamedTuple):
    """Shape and dtype of a tensor, from the header of a file."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Checkpoint(NamedTuple):
    """The verified content of a file."""

    tensors: dict[str, Tensor]  # on the CPU
    values: dict[str, Any]  # the JSON part: counters, settings, forms of recurrent states
    metadata: Any  # the caller's own


def save(
    path: str | Path, tensors: Mapping[str, Tensor], values: Mapping[str, Any], metadata: Any = None
) -> None:
    """Write a checkpoint to `path`; an older file there is replaced only by a complete new one.

    `metadata` is stored as JSON: tuples become lists, keys strings, NumPy's numbers plain ones.
    """
    path = Path(path)
    if not path.name:
        raise CheckpointError(f"`path` must name a file, but got {quoted(path)}.")
    own = {name: part.detach().cpu().contiguous().clone() for name, part in tensors.items()}
    try:
        body = json.dumps({_VALUES: dict(values), "metadata": metadata}, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"`metadata` must be JSON values, but got: {one_line(error)}."
        ) from None
    header = json.dumps({"schema": SCHEMA, "checksum": _checksum(own, body), "body": body})
    data = safetensors.torch.save(own, {_KEY: header})
    if _header_size(data) > MAX_HEADER:
        raise CheckpointError(
            f"`metadata` must fit into {MAX_HEADER >> 20} MB of JSON, but has {len(body):,} bytes."
        )
    try:
        write_atomically(path, data)
    except OSError as error:
        raise CheckpointError(
            f"cannot write {one_line(path)}: {error.strerror or error}"
        ) from error


def load(
    path: str | Path,
    max_bytes: int | None = None,
    check: Callable[[Mapping[str, Form], Mapping[str, Any]], None] | None = None,
) -> Checkpoint:
    """Read and verify a checkpoint; a CheckpointError describes what is wrong with the file.

    A file larger than `max_bytes` (default: a third of the free memory) is refused before it is
    read. `check` gets the shapes and dtypes of the header, and the values, before the data is read,
    and may raise.
    """
    path = Path(path)
    limit = psutil.virtual_memory().available // 3 if max_bytes is None else max_bytes
    try:
        with open_regular(path, limit) as file:
            size = _header_size(file.read(8))
            if size > MAX_HEADER:
                raise ValueError(f"its header must have at most {MAX_HEADER >> 20} MB")
            head = file.read(size)
            table = json.loads(head)
            header = table.pop("__metadata__", {}).get(_KEY)
            if header is None:
                raise CheckpointError(f"{one_line(path)} is not a checkpoint: it has tensors only.")
            content = json.loads(header)
            schema, checksum, body = content["schema"], content["checksum"], str(content["body"])
            if schema != SCHEMA:
                raise CheckpointError(
                    f"{one_line(path)} must have schema {SCHEMA}, but has {quoted(schema)}."
                )
            parts = json.loads(body)
            values, metadata = dict(parts[_VALUES]), parts["metadata"]
            claimed = max((entry["data_offsets"][1] for entry in table.values()), default=0)
            if os.fstat(file.fileno()).st_size != 8 + size + claimed:
                raise ValueError("its size is not what its header says")
            if check is not None:
                check(
                    {
                        name: Form(tuple(entry["shape"]), _DTYPES[entry["dtype"]])
                        for name, entry in table.items()
                    },
                    values,
                )
            del table
            file.seek(0)
            data = file.read(limit)
        if data[8 : 8 + size] != head:
            raise ValueError("it changes while it is read")
        tensors = safetensors.torch.load(data)  # checks sizes and offsets
    except FileNotFoundError:
        raise CheckpointError(f"{one_line(path)} must exist, but does not.") from None
    except (OSError, safetensors.SafetensorError, *MALFORMED) as error:
        reason = one_line(error) or type(error).__name__
        raise CheckpointError(f"{one_line(path)} is not a checkpoint: {reason}") from error
    del data
    if checksum != _checksum(tensors, body):
        raise CheckpointError(f"{one_line(path)} is damaged: its checksum does not match.")
    return Checkpoint(tensors, values, metadata)


def _plain(value: Any) -> Any:
    """Return numbers of NumPy and torch, which scores often are, as JSON values."""
    if isinstance(value, np.generic | np.ndarray | Tensor):
        return value.tolist()
    raise TypeError(type(value).__name__)


def _header_size(data: bytes) -> int:
    return int.from_bytes(data[:8], "little")


def _checksum(tensors: Mapping[str, Tensor], body: str) -> str:
    digest = hashlib.sha256(body.encode(errors="surrogatepass"))
    for name in sorted(tensors):
        part = tensors[name]
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode(errors="surrogatepass"))
        digest.update(part.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# ---- Values --------------------------------------------------------------------------------------


def counter(values: Mapping[str, Any], name: str) -> int:
    """Return a value that must be a whole number >= 0."""
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise CheckpointError(f"`{name}` must be a whole number >= 0, but is {quoted(value)}.")
    return value


def number(values: Mapping[str, Any], name: str) -> float:
    """Return a value that must be a finite number."""
    value = values[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) <= sys.float_info.max:  # an int may be too large for a float
        raise CheckpointError(f"`{name}` must be a finite number, but is {quoted(value)}.")
    return float(value)


def spent(values: Mapping[str, Any], config: TrainConfig) -> int:
    """Return how many iterations of the budget of `config` a run has spent.

    A budget in steps has another number of iterations where the batch size is another.
    """
    count = counter(values, "spent" if "spent" in values else "iteration")  # of older versions
    size = counter(values["train"], "batch_size")
    if not size:
        raise CheckpointError("`batch_size` must be at least 1, but is 0.")
    if config.num_iterations is not None or size == config.batch_size:
        return count
    left = max(0, config.total_timesteps - count * size)
    return config.iterations - math.ceil(left / config.batch_size)


# ---- Modules, optimizers and recurrent states ----------------------------------------------------


def check_form(module: nn.Module, forms: Mapping[str, Form | Tensor], prefix: str) -> None:
    """Raise unless all under `prefix` have the names, shapes and dtypes of `module`."""
    own, found = module.state_dict(), under(forms, prefix)
    noun = prefix.rstrip("/").replace("_", " ")
    for name in sorted({*own, *found}):
        _check_alike(noun, name, found.get(name), own.get(name))


def _check_alike(noun: str, name: str, given: Form | Tensor | None, wanted: Tensor | None) -> None:
    if (
        given is None
        or wanted is None
        or (given.shape, given.dtype) != (wanted.shape, wanted.dtype)
    ):
        raise CheckpointError(
            f"the checkpoint must fit the {noun}, but {quoted(name)} is {_described(given)} in the "
            f"file and {_described(wanted)} in the {noun}."
        )


def finite_names(module: nn.Module) -> set[str]:
    """Return the names in a module's state that must be finite.

    A buffer of a policy may hold infinities; a module without parameters holds statistics.
    """
    own = module.state_dict()
    return {name for name, _ in module.named_parameters() if name in own} or set(own)


def restore_module(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str) -> None:
    """Load the tensors under `prefix` into `module`; raise unless they fit and are valid."""
    check_form(module, tensors, prefix)
    found, is_statistics = under(tensors, prefix), not list(module.parameters())
    for name in sorted(finite_names(module)):
        if not found[name].isfinite().all():
            raise CheckpointError(f"{quoted(name)} must be finite, but is not in the file.")
        if is_statistics and name.endswith(("count", "var")) and (found[name] < 0).any():
            raise CheckpointError(f"{quoted(name)} must be >= 0, but is not in the file.")
    module.load_state_dict(found)


def under(tensors: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Return the tensors whose names begin with `prefix`, by the rest of their names."""
    return {name[len(prefix) :]: part for name, part in tensors.items() if name.startswith(prefix)}


def _described(part: Tensor | Form | None) -> str:
    if part is None:
        return "missing"
    return f"{str(part.dtype).removeprefix('torch.')} of shape {quoted(tuple(part.shape))}"


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimizer's state by parameter number and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer/{index}/{name}": torch.as_tensor(part)
        for index, parts in state.items()
        for name, part in parts.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the tensors of `optimizer_tensors`; settings such as step sizes stay as they are.

    Kernels do not check their state, so it must have the form that the optimizer itself makes.
    """
    template = _optimizer_template(optimizer)
    state: dict[int, dict[str, Tensor]] = {}
    for key, part in under(tensors, "optimizer/").items():
        number, _, name = key.partition("/")
        index = int(number) if number.isdecimal() and len(number) < 10 else -1
        _check_alike("optimizer", key, part, template.get(index, {}).get(name))
        if not part.isfinite().all():
            raise CheckpointError(f"{quoted(key)} of the optimizer must be finite, but is not.")
        if name in ("step", "exp_avg_sq") and part.min() < 0:
            raise CheckpointError(f"{quoted(key)} of the optimizer must be >= 0, but is not.")
        state.setdefault(index, {})[name] = part
    for index, parts in state.items():
        missing = template[index].keys() - parts.keys()
        if missing and parts.keys() != {"step"}:  # only a count: the parameter had no gradient
            raise CheckpointError(
                f"the checkpoint must fit the optimizer, but has no `{index}/{min(missing)}`."
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
    """Raise unless this is a valid state of a CPU generator.

    Torch checks less: with a position beyond its table it reads out of bounds.
    """
    raw = state.numpy().tobytes()
    if state.dtype != torch.uint8 or len(raw) != torch.Generator().get_state().numel():
        raise CheckpointError(
            f"invalid random state: expected that of a CPU generator, but got {_described(state)}."
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
        raise CheckpointError("invalid random state: position or table out of range.")


def restore_rng(generator: torch.Generator, state: Tensor) -> None:
    """Restore a generator; one of another kind of device has no such state, and continues."""
    own = generator.get_state()
    if generator.device.type == "cpu" and not _is_of_device(state):
        check_rng(state)
    if state.dtype == own.dtype and state.shape == own.shape:
        generator.set_state(state)


def _is_of_device(state: Tensor) -> bool:
    """Return whether this is the state of a generator on a GPU: a seed and a few counters."""
    return state.dtype == torch.uint8 and state.dim() == 1 and 16 <= len(state) <= 64


def pack(state: RecurrentState, prefix: str) -> tuple[Any, dict[str, Tensor]]:
    """Split a recurrent state into a JSON outline, whose leaves are numbers, and its tensors."""
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


def unpack(outline: Any, tensors: Mapping[str, Tensor], prefix: str) -> RecurrentState:
    """Undo `pack`; a CheckpointError if the outline is not one of its results."""
    leaves, nodes = itertools.count(), itertools.count()

    def join(part: Any) -> RecurrentState:
        if next(nodes) >= _MAX_OUTLINE:
            raise CheckpointError(
                f"a recurrent state must have at most {_MAX_OUTLINE} parts, but has more."
            )
        if part is None:
            return None
        if isinstance(part, int):
            if part != next(leaves):  # a short outline must not repeat a large tensor many times
                raise CheckpointError("invalid recurrent state: its tensors are not in order.")
            return tensors[f"{prefix}{part}"]
        (kind, inner), *_ = part.items()
        if kind == "dict":
            return {key: join(value) for key, value in inner.items()}
        joined = [join(value) for value in inner]
        return joined if kind == "list" else tuple(joined)

    return join(outline)


def is_alike(one: RecurrentState, other: RecurrentState) -> bool:
    """Return whether two recurrent states have the same form, batch and dtypes."""
    (outline, parts), (other_outline, other_parts) = pack(one, ""), pack(other, "")
    kinds, other_kinds = (
        [(part.dtype, part.shape[:1], part.dim()) for part in tree.values()]
        for tree in (parts, other_parts)
    )
    return bool(outline == other_outline and kinds == other_kinds)
