"""A worker of `Multiprocessing`: one shard of envs, stepped whenever the parent gives it the turn.

Turns and rows go through shared memory; everything else (creating, reset, snapshots, pictures, and
infos of envs) goes through a channel. The worker ends when the channel does.
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

from pufferlib.errors import FAULTS
from pufferlib.vectorization.creators import EnvCreator, unpickled
from pufferlib.vectorization.failures import failure_of
from pufferlib.vectorization.processes.channel import Channel
from pufferlib.vectorization.processes.shared_memory import SharedRows
from pufferlib.vectorization.shard import EnvDescription, Shard, ShardService, TurnReport

# bits that a worker sets at the end of a turn: a report follows, an error follows, an episode ended
REPORTED, RAISED, ENDED = 1, 2, 4
# results of a wait, as in csrc/sync/flags.h
TURN, NEWS, TIMEOUT, INTERRUPTED = range(4)
# results of `Flags.step`: no bit is set; the actions are no array like their rows
QUIET, UNLIKE = 0, -2

STACK_SIGNAL = signal.SIGUSR1  # makes a worker write its Python stack to stderr


class Setup(NamedTuple):
    """The first message to a worker: how to create its envs."""

    number: int  # of the call that it answers
    worker: int
    units: range
    total_units: int  # of all workers that start now
    creator: bytes | None  # None: it came by fork
    path: list[str]
    folder: str | None
    num_threads: int


class Binding(NamedTuple):
    """The second message: how to map the shared memory, whose descriptor comes with it."""

    number: int  # of the call that it answers
    description: EnvDescription
    sizes: tuple[int, int, int]  # slots, workers and microseconds to spin, see SharedRows
    first_slot: int


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


def run_worker(channel: Channel, creator: EnvCreator | None = None) -> None:
    """Create the envs that the first message asks for, then serve until the parent is gone."""
    with contextlib.suppress(EOFError):
        setup: Setup = channel.receive()
        _prepare(setup)
        shard = _created(channel, setup, creator)
        if shard is None:
            channel.receive()  # EOFError, once the parent has read the error and closed its end
            return
        try:
            _Loop(channel, shard, setup.worker).run()
        except EOFError:
            shard.close()


def _prepare(setup: Setup) -> None:
    # Ctrl-C reaches every process; the parent decides
    signal.signal(signal.SIGINT, lambda number, frame: None)
    sys.path[:] = setup.path
    if setup.folder is not None:
        os.chdir(setup.folder)
    faulthandler.enable(file=2)  # a crash shows its stack
    faulthandler.register(STACK_SIGNAL, file=2, all_threads=True, chain=False)
    if "torch" in sys.modules:  # by fork: its threads are not there any more
        sys.modules["torch"].set_num_threads(setup.num_threads)


def _created(channel: Channel, setup: Setup, creator: EnvCreator | None) -> Shard | None:
    """Create the envs and report to the parent; return None where that failed."""
    try:
        if creator is None:
            assert setup.creator is not None
            creator = unpickled(setup.creator)

        def report(count: int, is_adapting: bool) -> None:
            channel.send((setup.number, "created", (count, is_adapting)))

        report(0, False)  # the timeout counts from here
        units = setup.units
        shard = Shard(creator, len(units), units.start, report, setup.total_units)
    except FAULTS as error:
        channel.send((setup.number, "error", failure_of(error)))
        return None
    channel.send((setup.number, "ok", shard.description))
    return shard


class _Loop:
    """The loop of a worker over its shard: turns by flags, calls by the channel."""

    def __init__(self, channel: Channel, shard: Shard, worker: int) -> None:
        self._channel, self._shard, self._worker = channel, shard, worker
        self._num_turns = 0  # so far; the parent counts them too

    def run(self) -> None:
        binding, (memory_fd,) = self._channel.receive_with_fds()
        self._bind(binding, memory_fd)
        self._channel.send((binding.number, "ok", None))
        flags, worker, channel = self._shared.flags, self._worker, self._channel
        while True:
            waited = flags.wait_turn(worker, channel.fileno(), -1)
            if waited == TURN:
                self._turn()
            elif waited == NEWS:
                self._answer(channel.receive())

    def _bind(self, binding: Binding, memory_fd: int) -> None:
        self._shared = shared = SharedRows(binding.description, *binding.sizes, memory_fd)
        os.close(memory_fd)  # it stays mapped
        shard = self._shard
        first, last = binding.first_slot, binding.first_slot + shard.num_slots
        shard.bind(shared.buffers.slots(first, last), shared.flags.progress_word(self._worker))
        self._service = ShardService(shard, shared.returns[first:last], shared.lengths[first:last])
        self._resets = memoryview(shared.resets[self._worker])

    def _turn(self) -> None:
        """Step the envs, or reset them where the parent has asked for that."""
        flags, worker = self._shared.flags, self._worker
        self._num_turns += 1
        report: TurnReport | None
        try:
            if self._resets[0]:
                _, seed, before = self._resets.tolist()
                self._resets[0] = 0
                report, ended = self._service.reset(seed, before), False
            else:
                report, ended = self._service.step()
        except FAULTS as error:
            flags.finish(worker, RAISED)
            self._channel.send((self._num_turns, "raised", failure_of(error)))
            return
        flags.finish(worker, (REPORTED if report is not None else 0) | (ENDED if ended else 0))
        if report is not None:
            # the parent reads as soon as it has the turn: a long message cannot block both
            self._channel.send((self._num_turns, "report", report))

    def _answer(self, message: tuple[Any, ...]) -> None:
        number, call, *arguments = message
        try:
            reply = (number, "ok", self._service.call(call, *arguments))
        except FAULTS as error:
            reply = (number, "error", failure_of(error))
        self._channel.send(reply)
        if call == "close":
            raise SystemExit(0)
