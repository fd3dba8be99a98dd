"""A worker of `Multiprocessing`: one shard of envs, stepped whenever the parent gives it the turn.

Turns and rows go through shared memory; everything else (creating, reset, snapshots, pictures, and
what envs say in infos) goes through a channel. The worker ends when the channel does.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import cloudpickle

from pufferlib.episodes import metrics_of
from pufferlib.errors import EnvError, UsageError, WorkerError
from pufferlib.vectorization.processes.channel import Channel, pickled
from pufferlib.vectorization.processes.shared_memory import SharedRows
from pufferlib.vectorization.shard import Facts, Shard

# bits of what is said of a turn: there is a message, there is an error, an episode ended
SPOKE, RAISED, ENDED = 1, 2, 4
# results of a wait, as in csrc/flags.h
TURN, NEWS, TIMEOUT, INTERRUPTED = range(4)

STACK_SIGNAL = signal.SIGUSR1  # makes a worker write its Python stack to stderr


class Setup(NamedTuple):
    """What a worker must know to create its envs."""

    number: int  # of the call that it answers
    worker: int
    first_unit: int
    num_units: int
    creator: bytes | None  # None: it came by fork
    path: list[str]
    folder: str | None
    num_threads: int


class Binding(NamedTuple):
    """What a worker must know to map the shared memory; its descriptor comes along."""

    number: int  # of the call that it answers
    facts: Facts
    num_slots: int
    num_workers: int
    first_slot: int
    spin_us: int


class Failure(NamedTuple):
    """An exception on its way to the parent."""

    kind: str  # a name of `errors`, or of another exception
    message: str
    traceback: str

    @property
    def is_lost_worker(self) -> bool:
        """Whether the envs of a worker are a vector themselves, and it has lost a worker."""
        return self.kind == WorkerError.__name__


def main(fd: str) -> None:
    """Run a worker in an interpreter of its own."""
    run_and_leave(run_worker, Channel.of_fd(int(fd)))


def run_and_leave(run: Callable[[Channel], None], channel: Channel) -> NoReturn:
    """End this process with `run`: neither threads of envs nor exit handlers may hold it up."""
    code = 1
    try:
        run(channel)
        code = 0
    except SystemExit as leaving:
        given = leaving.code
        code = given if isinstance(given, int) else int(given is not None)
        if isinstance(given, str):
            sys.stderr.write(given + "\n")
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def run_worker(channel: Channel, creator: Callable[[], Any] | None = None) -> None:
    """Create envs as told by the first message, then serve until the parent is gone."""
    try:
        setup: Setup = channel.receive()
        _prepare(setup)
        shard = _created(channel, setup, creator)
        if shard is None:
            channel.receive()  # nothing can come: the parent reads the error and lets go
            return
        try:
            _Service(channel, shard, setup.worker).run()
        except EOFError:
            shard.close()
    except EOFError:
        pass


def _prepare(setup: Setup) -> None:
    signal.signal(signal.SIGINT, _ignore)  # Ctrl-C reaches every process; the parent decides
    sys.path[:] = setup.path
    if setup.folder is not None:
        os.chdir(setup.folder)
    faulthandler.enable(file=2)  # a crash says where
    faulthandler.register(STACK_SIGNAL, file=2, all_threads=True, chain=False)
    if "torch" in sys.modules:  # by fork: its threads are not there any more
        sys.modules["torch"].set_num_threads(setup.num_threads)


def _ignore(number: int, frame: Any) -> None:
    pass


def _created(channel: Channel, setup: Setup, creator: Callable[[], Any] | None) -> Shard | None:
    """Create the envs and tell the parent; None where that failed."""
    try:
        if creator is None:
            assert setup.creator is not None
            try:
                creator = cloudpickle.loads(setup.creator)
            except Exception as error:
                raise EnvError(
                    f"`env_creator` must be something a worker can import, but {one_line(error)}"
                ) from error

        def tell(count: int) -> None:
            channel.send((setup.number, "created", count))

        tell(0)  # from here on time counts
        shard = Shard(creator, setup.num_units, setup.first_unit, tell)
    except Exception as error:
        channel.send((setup.number, "error", failure(error)))
        return None
    channel.send((setup.number, "ok", shard.facts))
    return shard


def one_line(error: BaseException) -> str:
    """Return an exception as its name and message."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def failure(error: BaseException) -> Failure:
    """Describe an exception for another process."""
    kind = type(error).__name__
    return Failure(kind, str(error), "".join(traceback.format_exception(error)))


class _Service:
    """The loop of a worker, over a shard that has been created."""

    def __init__(self, channel: Channel, shard: Shard, worker: int) -> None:
        self._channel, self._shard, self._worker = channel, shard, worker
        self._agent_ids: tuple[Any, ...] | None = None
        self._num_turns = 0  # so far; the parent counts them too

    def run(self) -> None:
        binding, (memory_fd,) = self._channel.receive_with_fds()
        self._bind(binding, memory_fd)
        self._channel.send((binding.number, "ok", None))
        flags, worker, channel = self._shared.flags, self._worker, self._channel
        while True:
            waited = flags.wait_turn(worker, channel.fileno(), -1)
            if waited == TURN:
                self._step()
            elif waited == NEWS:
                self._answer(channel.receive())

    def _bind(self, binding: Binding, memory_fd: int) -> None:
        sizes = (binding.num_slots, binding.num_workers, binding.spin_us)
        self._shared = SharedRows(binding.facts, *sizes, memory_fd)
        os.close(memory_fd)  # it stays mapped
        shard = self._shard
        first, last = binding.first_slot, binding.first_slot + shard.num_slots
        shard.bind(
            self._shared.buffers.slots(first, last), self._shared.flags.progress_word(self._worker)
        )
        self._returns = self._shared.returns[first:last]
        self._lengths = self._shared.lengths[first:last]
        self._resets = self._shared.resets[self._worker]

    def _step(self) -> None:
        flags, worker = self._shared.flags, self._worker
        self._num_turns += 1
        finished: dict[int, dict[str, Any]] = {}
        try:
            if self._resets[0]:
                message = self._reset()
            else:
                infos, finished = self._shard.step()
                message = None if self._shard.is_silent else self._message(infos, finished)
        except Exception as error:
            flags.finish(worker, RAISED)
            self._channel.send((self._num_turns, "raised", failure(error)))
            return
        said = (SPOKE if message is not None else 0) | (ENDED if finished else 0)
        flags.finish(worker, said)
        if message is not None:
            # the parent reads as soon as it has the turn: a long message cannot block both
            self._channel.send_bytes(message)

    def _reset(self) -> bytes | None:
        """Reset the envs in place of a step; return the agents' ids, pickled as `_message` does."""
        _, seed, before = self._resets.tolist()
        self._resets[0] = 0
        self._shard.reset(seed, before)
        self._agent_ids = self._shard.agent_ids
        return pickled((self._num_turns, "said", ({}, None, self._agent_ids)))

    def _message(
        self, infos: list[dict[str, Any]], finished: dict[int, dict[str, Any]]
    ) -> bytes | None:
        """Return what has to be said of a step, pickled, or None."""
        shard = self._shard
        for slot, info in finished.items():
            own = infos[slot].get("episode") if not shard.facts.is_python else None
            episode = info["episode"] if own is None else own
            self._returns[slot], self._lengths[slot] = episode["r"], episode["l"]
        if shard.facts.is_python:
            spoken = {slot: info for slot, info in enumerate(infos) if info}
        else:  # what C envs say is in the rows already, all but their metrics
            spoken = {slot: metrics_of(infos[slot]) for slot in finished}
        stats = None
        if finished:
            stats = shard.drain({slot // shard.slots_per_unit for slot in finished})
            if not stats.episodes and not stats.samples:
                stats = None
        ids = None if shard.agent_ids == self._agent_ids else shard.agent_ids
        if not spoken and stats is None and ids is None:
            return None
        self._agent_ids = shard.agent_ids
        try:
            return pickled((self._num_turns, "said", (spoken, stats, ids)))
        except Exception as error:
            slot = next((slot for slot, info in spoken.items() if not _can_leave(info)), 0)
            raise shard.broken(
                "step",
                f"`info` must be able to leave its worker, but cannot be pickled: "
                f"{one_line(error)}",
                slot,
            ) from error

    def _answer(self, message: tuple[Any, ...]) -> None:
        number, call, *arguments = message
        shard = self._shard
        value: Any = None
        try:
            if call == "reset":
                shard.reset(*arguments)
                self._agent_ids = value = shard.agent_ids
            elif call == "snapshot":
                value = shard.snapshot()
            elif call == "restore":
                if not shard.can_restore:
                    raise UsageError(
                        "Multiprocessing cannot restore a state: its envs cannot give one."
                    )
                shard.restore(*arguments)
            elif call == "render":
                value = shard.render(*arguments)
            else:
                assert call == "close"
                shard.close()
            reply = (number, "ok", value)
        except Exception as error:
            reply = (number, "error", failure(error))
        self._channel.send(reply)
        if call == "close":
            raise SystemExit(0)


def _can_leave(info: Any) -> bool:
    try:
        pickled(info)
    except Exception:
        return False
    return True
