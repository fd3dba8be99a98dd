"""World: the processes of one run, started by torchrun, and their communication.

Slots are numbered over all processes, rank by rank, so a run of two processes equals the run of one
process with the slots of both. With one process, everything here does nothing, at no cost.
"""

from __future__ import annotations

import atexit
import importlib
import os
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pufferlib import native
from pufferlib.distributed.shared_sums import SharedSums
from pufferlib.errors import PufferError, UsageError

T = TypeVar("T")
_TIMEOUT = timedelta(minutes=10)  # of one exchange; a dead rank is found long before
_JOIN_SECONDS = 300.0  # for all processes to join
_PARENT = os.getppid()
_num_joins = 0  # of this process; each uses its own names in the store
_shared: SharedSums | None = None  # one per process: its barrier counts over all runs


class World:
    """The processes of a run, seen from `rank` of `size`; `local_rank` is that on this machine."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.shared: SharedSums | None = None  # for fast sums on one machine

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes logs, dashboard and checkpoints."""
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes; return it."""
        if self.shared is not None and self.shared.fits(tensor):
            self.shared.sum_(tensor)
        elif self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace gradients by their sums over all processes, in one exchange of a flat tensor.

        A missing gradient counts as zero; all processes must have the same parameters in order.
        """
        if self.size == 1:
            return
        with torch.no_grad():
            owners = list(parameters)
            for owner in owners:
                if owner.grad is None:
                    owner.grad = torch.zeros_like(owner)
            grads = [owner.grad for owner in owners if owner.grad is not None]
            flat = torch.cat([grad.reshape(-1) for grad in grads])
            self.sum_(flat)
            parts = torch.split(flat, [grad.numel() for grad in grads])
            torch._foreach_copy_(
                grads, [part.view_as(grad) for part, grad in zip(parts, grads, strict=True)]
            )

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Copy the tensors of rank 0 into those of every process."""
        if self.size > 1:
            with torch.no_grad():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in order of rank; values must be picklable."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def agree(self, options: Mapping[str, object]) -> None:
        """Raise in all processes, naming the option, unless all have the same options."""
        spelled = {name: repr(value) for name, value in options.items()}
        first, *others = self.gather(spelled)
        for rank, other in enumerate(others, 1):
            for name in {**first, **other}:
                own, theirs = first.get(name, "nothing"), other.get(name, "nothing")
                if own != theirs:
                    raise UsageError(
                        f"all processes must have the same `{name}`, but rank 0 has {own} and "
                        f"rank {rank} has {theirs}. Try the same options for all of them."
                    )

    def most(self, value: int) -> int:
        """Return the largest value of all processes."""
        return max(self.gather(value))

    def from_first(self, value: T) -> T:
        """Return the value of rank 0."""
        if self.size == 1:
            return value
        values: list[Any] = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[no-any-return]

    def join_rows(self, rows: Tensor) -> Tensor:
        """Return the rows of all processes, in order of rank."""
        if self.size == 1:
            return rows
        return torch.cat([part.to(rows.device) for part in self.gather(rows.cpu())])

    def own_rows(self, rows: Tensor) -> Tensor:
        """Return this process's part of the rows of all processes."""
        share = len(rows) // self.size
        return rows[self.rank * share : (self.rank + 1) * share]


ALONE = World()


class SlotGenerator(torch.Generator):
    """A generator for the slots of all processes: each uses its share of the numbers drawn."""

    rank: int
    size: int

    def __new__(cls, device: torch.device, world: World) -> SlotGenerator:
        generator = super().__new__(cls, device)  # type: ignore[call-arg]
        generator.rank, generator.size = world.rank, world.size
        return generator


def join_world(device: str, environ: Mapping[str, str] = os.environ) -> World:
    """Return the world that torchrun started this process in, or a world of one process.

    The first call connects the processes: over gloo for CPUs, over nccl for GPUs. Processes on one
    machine sum through shared memory if possible. From then on a process dies with its torchrun.
    The error after a timeout names the processes that did not join.
    """
    if "WORLD_SIZE" not in environ or int(environ["WORLD_SIZE"]) == 1:
        return ALONE
    if not dist.is_available():
        raise UsageError(
            "WORLD_SIZE must be 1, because this build of torch has no torch.distributed."
        )
    local_rank = int(environ.get("LOCAL_RANK", "0"))
    if not dist.is_initialized():
        if "TORCHELASTIC_RUN_ID" in environ:
            _die_with_torchrun()
        on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        if on_gpu:
            torch.cuda.set_device(local_rank)
        _connect("nccl" if on_gpu else "gloo", environ)
    world = World(dist.get_rank(), dist.get_world_size(), local_rank)
    if dist.get_backend() == "gloo" and int(environ.get("LOCAL_WORLD_SIZE", "0")) == world.size:
        global _shared
        if _shared is None:
            seconds = _TIMEOUT.total_seconds()
            _shared = SharedSums(world.rank, world.size, seconds, world.from_first, world.gather)
        world.shared = _shared
    return world


def _die_with_torchrun() -> None:
    """Let the kernel end this process when torchrun dies, even by kill -9."""
    native.die_with_parent()
    if os.getppid() != _PARENT:
        raise PufferError("torchrun died, so its processes cannot continue.")


def _connect(backend: str, environ: Mapping[str, str]) -> None:
    """Wait for all processes, up to a timeout, and form a process group."""
    global _num_joins
    unset = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if unset:
        raise UsageError(f"{unset[0]} must be set if WORLD_SIZE is, but is not. Try torchrun.")
    rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    host, port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    has_server = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    # torchrun's store survives restarts; agents of several machines count those differently
    is_one_machine = environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"]
    attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "0") if is_one_machine else "0"
    _num_joins += 1
    try:
        store = dist.PrefixStore(  # type: ignore[attr-defined]
            f"pufferlib/{attempt}/{_num_joins}",
            dist.TCPStore(  # type: ignore[attr-defined]
                host,
                port,
                size,
                is_master=rank == 0 and not has_server,
                timeout=timedelta(seconds=_JOIN_SECONDS),
                wait_for_workers=False,
                multi_tenant=True,
            ),
        )
        backends = _backends(store, backend, rank, size)
    except RuntimeError as error:  # of torch: refused, timed out or closed
        reason = str(error).partition("\n")[0]
        raise PufferError(
            f"rank {rank} must reach the store at {host}:{port}, but cannot: {reason}"
        ) from error
    if len(set(backends)) > 1:
        raise UsageError(
            "`device` must be a CPU in all processes or a GPU in all, but got the backends "
            f"{', '.join(backends)}."
        )
    # The group's threads must end before the interpreter does: one that then releases a tensor
    # aborts the process. They end with the last reference to the group, and this module, which
    # torch loads in training, keeps the group that exists at its import, as default arguments.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    atexit.unregister(leave_world)
    atexit.register(leave_world)


def _backends(store: Any, backend: str, rank: int, size: int) -> list[str]:
    """Write our backend into the store; wait for those of all ranks and return them."""
    names = [f"backend/{each}" for each in range(size)]
    store.set(names[rank], backend)
    deadline, missing = time.monotonic() + _JOIN_SECONDS, list(range(size))
    while missing := [each for each in missing if not store.check([names[each]])]:
        if time.monotonic() > deadline:
            raise PufferError(
                f"all {size} ranks must join within {_JOIN_SECONDS:g} s, but "
                f"{', '.join(map(str, missing))} did not. See their output for the cause."
            )
        time.sleep(0.02)
    return [store.get(name).decode() for name in names]


def leave_world() -> None:
    """Leave the process group at the end of a run; safe to call at any time."""
    global _shared
    _shared = None
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
