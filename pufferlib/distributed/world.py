"""World: the processes of one run, started by torchrun, and their communication.

Slots are numbered over all processes, rank by rank, so a run of two processes equals the run of one
process with the slots of both. With one process, everything here does nothing, at no cost.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import socket
import stat
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from pufferlib import native
from pufferlib.distributed.shared_sums import SharedSums
from pufferlib.distributed.watch import Watch, find_ranks
from pufferlib.errors import PufferError, UsageError

T = TypeVar("T")
_PATIENCE = timedelta(minutes=30)  # of one exchange, for a rank that is alive but late
_TIMEOUT = 60.0  # until the options are known
_JOIN_SECONDS = 300.0  # for all processes to join
_PARENT = os.getppid()
_rendezvous: Rendezvous | None = None  # of this process with the others
_shared: SharedSums | None = None  # one per process: its barrier counts over all runs


class World:
    """The processes of a run, seen from `rank` of `size`; `local_rank` is that on this machine."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self.shared: SharedSums | None = None  # for fast sums on one machine
        self.rendezvous: Rendezvous | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes logs, dashboard and checkpoints."""
        return self.rank == 0

    @property
    def is_one_machine(self) -> bool:
        """Whether all processes run on this machine, so that they see the same files."""
        return self.rendezvous is None or self.rendezvous.is_one_machine

    def _exchange(self) -> AbstractContextManager[None]:
        return nullcontext() if self.rendezvous is None else self.rendezvous.watch.exchange()

    def sum_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes; return it."""
        if self.size > 1:
            with self._exchange():
                if self.shared is not None and self.shared.fits(tensor):
                    self.shared.sum_(tensor)
                else:
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
                    with self._exchange():
                        dist.broadcast(tensor, src=0)

    def send_from_first(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of rank 0 by name, on the CPU; sent one by one, to save memory."""
        forms = self.from_first({k: (part.shape, part.dtype) for k, part in tensors.items()})
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        received = {}
        for name, (shape, dtype) in forms.items():
            own = tensors[name] if self.is_first else torch.empty(shape, dtype=dtype)
            data = own.contiguous().view(-1).view(torch.uint8).to(device)  # gloo lacks some dtypes
            if own.numel():
                self.copy_from_first([data])
            received[name] = data.cpu().view(dtype).view(shape)
        return received

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in order of rank; values must be picklable."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self._exchange():
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
        with self._exchange():
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


class Rendezvous:
    """The processes of a run, connected to torch's store and to rank 0, before they form a group.

    Its keys in the store are new at each start: torchrun's store survives restarts, and holds the
    keys and addresses of processes that are dead.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        unset = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
        if unset:
            raise UsageError(f"{unset[0]} must be set if WORLD_SIZE is, but is not. Try torchrun.")
        if "TORCHELASTIC_RUN_ID" in environ:
            _die_with_torchrun()
        self.rank, self.size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        self.host, self.port = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
        self.is_one_machine = int(environ.get("LOCAL_WORLD_SIZE", "0")) == self.size
        self._num_values = 0
        has_server = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        try:
            store: Any = dist.TCPStore(  # type: ignore[attr-defined]
                self.host,
                self.port,
                self.size,
                is_master=self.rank == 0 and not has_server,
                timeout=timedelta(seconds=_JOIN_SECONDS),
                wait_for_workers=False,
                multi_tenant=True,
            )
            start = find_ranks(
                dist.PrefixStore("pufferlib", store),  # type: ignore[attr-defined]
                *(self.rank, self.size, self.host, self.is_one_machine, _JOIN_SECONDS),
            )
        except RuntimeError as error:  # of torch: refused, timed out or closed
            raise self._unreached(error) from error
        prefix = f"pufferlib/{start.id}"
        self.store: Any = dist.PrefixStore(prefix, store)  # type: ignore[attr-defined]
        self.watch = Watch(self.rank, start.members, start.links, _TIMEOUT)

    def _unreached(self, error: RuntimeError) -> PufferError:
        reason = str(error).partition("\n")[0]
        return PufferError(
            f"rank {self.rank} must reach the store at {self.host}:{self.port}, but cannot: "
            f"{reason}"
        )

    def gather(self, value: bytes) -> list[bytes]:
        """Return the values of all processes, in order of rank, through the store."""
        self._num_values += 1
        names = [f"{self._num_values}/{rank}" for rank in range(self.size)]
        with self.watch.exchange():
            self.store.set(names[self.rank], value)
            return [self._get(name) for name in names]

    def on_first(self, call: Callable[[], T]) -> T:
        """Return what `call` returns on rank 0; a PufferError is raised by all."""
        self._num_values += 1
        name, error = f"{self._num_values}/first", None
        result: T | PufferError | None = None
        if self.rank == 0:
            try:
                result = call()
            except PufferError as problem:
                result = error = problem
        with self.watch.exchange():
            if self.rank == 0:
                self.store.set(name, pickle.dumps(result))
            else:
                result = pickle.loads(self._get(name))
                self.store.set(f"{name}/read/{self.rank}", b"")
        if isinstance(result, PufferError):
            if self.rank == 0:  # the store may end with this process
                with contextlib.suppress(PufferError):  # one has read it, and has left
                    for rank in range(1, self.size):
                        self._get(f"{name}/read/{rank}")
            raise result from (error and error.__cause__)
        return result  # type: ignore[return-value]

    def _get(self, name: str) -> bytes:
        while not self.store.check([name]):
            time.sleep(0.02)
            self.watch.check(in_exchange=True)
        return self.store.get(name)  # type: ignore[no-any-return]


def _join_rendezvous(environ: Mapping[str, str] = os.environ) -> Rendezvous | None:
    """Return the rendezvous of this process with the others, None if it is alone."""
    global _rendezvous
    if int(environ.get("WORLD_SIZE") or 1) == 1:
        return None
    if not dist.is_available():
        raise UsageError(
            "WORLD_SIZE must be 1, because this build of torch has no torch.distributed."
        )
    if _rendezvous is None:
        _rendezvous = Rendezvous(environ)
        atexit.unregister(leave_world)
        atexit.register(leave_world)
    return _rendezvous


def on_first(call: Callable[[], T]) -> T:
    """Return what `call` returns on rank 0; a PufferError is raised by all processes.

    For files, which only the machine of rank 0 may have. All processes must call it, before or
    after they join the world.
    """
    rendezvous = _join_rendezvous()
    return call() if rendezvous is None else rendezvous.on_first(call)


def join_world(
    device: str, timeout: float = _TIMEOUT, environ: Mapping[str, str] = os.environ
) -> World:
    """Return the world that torchrun started this process in, or a world of one process.

    The first call connects the processes: over gloo for CPUs, over nccl for GPUs. Processes on one
    machine sum through shared memory if possible. From then on a process dies with its torchrun,
    and one that waits for a rank that is lost (`Watch`) raises a PufferError that names it.
    `timeout` is after how many seconds without an answer a rank is lost.
    """
    global _shared
    rendezvous = _join_rendezvous(environ)
    if rendezvous is None:
        _warn_of_srun(environ)
        return ALONE
    local_rank = int(environ.get("LOCAL_RANK", "0"))
    rendezvous.watch.timeout = timeout
    if not dist.is_initialized():
        on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        if on_gpu:
            torch.cuda.set_device(local_rank)
        _connect("nccl" if on_gpu else "gloo", rendezvous)
    world = World(rendezvous.rank, rendezvous.size, local_rank)
    world.rendezvous = rendezvous
    if dist.get_backend() == "gloo" and rendezvous.is_one_machine:
        if _shared is None:
            _shared = SharedSums(
                world.rank,
                world.size,
                _PATIENCE.total_seconds(),
                world.from_first,
                world.gather,
                lambda: rendezvous.watch.check(in_exchange=True),
            )
        world.shared = _shared
    return world


def _warn_of_srun(environ: Mapping[str, str]) -> None:
    """Warn, in the first task of several that SLURM starts, that they do not train together."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS", "")
    is_first = environ.get("SLURM_PROCID") == "0" and "RANK" not in environ
    if is_first and tasks.isdecimal() and int(tasks) > 1:
        warnings.warn(
            f"SLURM has {tasks} tasks, and this one has no rank: each that `srun` starts trains a "
            "run of its own. Try `srun --ntasks-per-node=1 torchrun ...` (docs/distributed.md).",
            UserWarning,
            stacklevel=3,
        )


def _die_with_torchrun() -> None:
    """Let the kernel end this process when torchrun dies, even by kill -9."""
    native.die_with_parent()
    if os.getppid() != _PARENT:
        raise PufferError("torchrun died, so its processes cannot continue.")


def _connect(backend: str, rendezvous: Rendezvous) -> None:
    """Form a process group of all processes, which ends when one of them is lost."""
    backends = [name.decode() for name in rendezvous.gather(backend.encode())]
    if len(set(backends)) > 1:
        raise UsageError(
            "`device` must be a CPU in all processes or a GPU in all, but got the backends "
            f"{', '.join(backends)}."
        )
    if not rendezvous.is_one_machine:
        _choose_interface(rendezvous.watch.members[rendezvous.rank].address)
    # The group's threads must end before the interpreter does: one that then releases a tensor
    # aborts the process. They end with the last reference to the group, and this module, which
    # torch loads in training, keeps the group that exists at its import, as default arguments.
    importlib.import_module("torch.distributed.nn.functional")
    before = _sockets()
    with rendezvous.watch.exchange():
        dist.init_process_group(
            backend,
            store=rendezvous.store,
            rank=rendezvous.rank,
            world_size=rendezvous.size,
            timeout=_PATIENCE,
        )
    own = {file: inode for file, inode in _sockets().items() if before.get(file) != inode}
    rendezvous.watch.on_lost = lambda: _disconnect(own)


def _choose_interface(address: str) -> None:
    """Let gloo use the interface that leads to the other machines, unless the user chose one.

    By itself it takes the one of the machine's host name, which may be loopback, or unknown.
    """
    for name, parts in psutil.net_if_addrs().items():
        if any(part.address == address for part in parts) and not address.startswith("127."):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _sockets() -> dict[int, int]:
    """Return the sockets of this process: file and inode."""
    found = {}
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            about = os.fstat(int(name))
            if stat.S_ISSOCK(about.st_mode):
                found[int(name)] = about.st_ino
    return found


def _disconnect(sockets: Mapping[int, int]) -> None:
    """End the connections of a process group: an exchange that waits on them fails at once.

    gloo has no call for that, and would wait until the timeout of the group.
    """
    for file, inode in sockets.items():
        with contextlib.suppress(OSError):
            if os.fstat(file).st_ino == inode:
                with socket.socket(fileno=os.dup(file)) as own:
                    if not own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        own.shutdown(socket.SHUT_RDWR)


def leave_world() -> None:
    """Leave the process group at the end of a run; safe to call at any time."""
    global _shared, _rendezvous
    _shared, rendezvous, _rendezvous = None, _rendezvous, None
    if rendezvous is not None:
        rendezvous.watch.close()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
