"""Watch: how the ranks of a run find each other, and notice that one of them is gone.

Every rank has a connection to rank 0, and a thread that sends a beat on it, so a rank that computes
for minutes still answers. The kernel closes the connection of a process that dies: rank 0 sees that
at once and names it to the others. A rank that is silent for `timeout` seconds counts as lost too:
its process is stopped, or its machine or the link to it is down.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pufferlib.errors import PufferError

_MOST_BYTES = 1 << 20  # of a line
_BEAT_SECONDS = 1.0  # at most, between two beats
_CAUSE_SECONDS = 3.0  # in which the cause of a failed exchange is found
_LAST_SECONDS = 10.0  # in which the main thread must notice that a rank is lost


class Member(NamedTuple):
    """A rank, and where it runs."""

    rank: int
    pid: int
    host: str
    address: str

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host}, {self.address})"


class Watch:
    """Watches the ranks that `find_ranks` connected; `on_lost` is called in a thread, once.

    An exchange of all ranks goes into a `with exchange()` block, in the same order in all of them.
    """

    def __init__(
        self, rank: int, members: list[Member], links: Mapping[int, socket.socket], timeout: float
    ) -> None:
        self.timeout, self.members = timeout, members
        self.on_lost: Callable[[], None] = lambda: None
        self._rank, self._links = rank, dict(links)
        self._count = 0  # exchanges begun and ended: odd inside of one
        self._counts = dict.fromkeys(links, 0)  # those of the others, as far as rank 0 knows
        self._silence = dict.fromkeys(links, 0.0)
        self._left: set[int] = set()
        self._lost: str | None = None
        self._known = threading.Event()  # that a rank is lost or has left
        self._ended = threading.Event()
        self._awaited = (0, 0.0)  # the last exchange that a rank began, and seconds since then
        for link in links.values():
            link.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="pufferlib-watch", daemon=True)
        self._thread.start()

    # ---- For the main thread -----------------------------------------------------------------

    def check(self, in_exchange: bool = False) -> None:
        """Raise PufferError if a rank is lost; in an exchange also if one has left the run."""
        if self._lost is not None:
            raise PufferError(self._lost)
        if in_exchange and self._left:
            names = _listed(self.members[rank] for rank in sorted(self._left))
            raise PufferError(f"{names} has left the run. Its own output says why.")

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """Enclose an exchange of all ranks; where torch fails, name the rank that is gone."""
        self.check()
        self._count += 1
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, PufferError):
                raise
            self._known.wait(_CAUSE_SECONDS)
            if self._lost is None and self._left:  # did it leave because another is lost?
                time.sleep(2 * self._tick)
            self.check(in_exchange=True)
            reason = str(error).partition("\n")[0]
            raise PufferError(f"rank {self._rank} cannot reach the others: {reason}") from error
        finally:
            self._count += 1

    def close(self) -> None:
        """Leave the run."""
        self._ended.set()
        self._send_all("left")
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for link in self._links.values():
            link.close()

    # ---- The thread --------------------------------------------------------------------------

    @property
    def _tick(self) -> float:
        return min(_BEAT_SECONDS, self.timeout / 5)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            buffers = {peer: bytearray() for peer in self._links}
            for peer, link in self._links.items():
                selector.register(link, selectors.EVENT_READ, peer)
            last = next_beat = time.monotonic()
            while not self._ended.is_set():
                ready = selector.select(self._tick)
                for key, _ in ready:
                    if not self._receive(key.data, buffers[key.data]):
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                # the time in which this process itself did not run does not count
                passed, last = min(now - last, 2 * self._tick), now
                if now >= next_beat:
                    self._send_all(str(self._count))
                    next_beat = now + self._tick
                self._judge(passed)

    def _receive(self, peer: int, buffer: bytearray) -> bool:
        """Read what a rank has sent; return whether more may come."""
        try:
            data = self._links[peer].recv(65536)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        buffer += data
        *lines, rest = bytes(buffer).split(b"\n")
        buffer[:] = rest
        self._silence[peer] = 0.0
        for line in lines:
            word, _, message = line.decode(errors="replace").partition(" ")
            if word == "left":
                self._left.add(peer)
                self._known.set()
                if self._rank == 0:
                    self._send_all(f"gone {peer}")
            elif word == "gone":
                self._left.add(int(message))
                self._known.set()
            elif word == "lost":
                self._lose(message)
            elif word.isdecimal():
                self._counts[peer] = int(word)
        if data and len(rest) < _MOST_BYTES:
            return True
        del self._silence[peer]
        if peer not in self._left and not self._ended.is_set():
            self._lose(f"{self.members[peer]} has died: it was killed, or crashed.")
        return False

    def _judge(self, passed: float) -> None:
        for peer in self._silence:
            self._silence[peer] += passed
        silent = [peer for peer, seconds in self._silence.items() if seconds > self.timeout]
        if silent and self._lost is None:
            # the others behind the same link follow within a beat or two
            late = self.timeout - 2 * self._tick
            peers = [peer for peer, seconds in self._silence.items() if seconds > late]
            names = _listed(self.members[peer] for peer in peers)
            self._lose(
                f"no answer within {self.timeout:g} s (`timeout`) from {names}: the process is "
                "stopped, or its machine or the link to it is down."
            )
        if self._rank == 0 and self._lost is None:
            self._note_late(passed)

    def _note_late(self, passed: float) -> None:
        """Say, once for each exchange, which ranks the others have waited for long."""
        counts = {0: self._count, **{peer: self._counts[peer] for peer in self._silence}}
        newest, seconds = max(counts.values()), self._awaited[1] + passed
        self._awaited = (newest, seconds if newest == self._awaited[0] else 0.0)
        late = [rank for rank, count in sorted(counts.items()) if count < newest]
        if newest % 2 and late and seconds > self.timeout >= seconds - passed:
            names = _listed(self.members[rank] for rank in late)
            _say(
                f"the other ranks have waited {self.timeout:g} s for {names}: alive, but late. "
                "They wait on."
            )

    def _lose(self, message: str) -> None:
        if self._lost is not None:
            return
        self._send_all(f"lost {message}")  # first: the main thread may end the process after this
        self._lost = message
        self._known.set()
        self.on_lost()
        threading.Thread(target=self._insist, args=(self._count,), daemon=True).start()

    def _insist(self, count: int) -> None:
        """End the process if its main thread is still in the exchange that cannot be completed."""
        if count % 2 and not self._ended.wait(_LAST_SECONDS) and self._count == count:
            _say(self._lost or "")
            os._exit(1)

    def _send_all(self, line: str) -> None:
        """Send a line where there is room; a peer that does not read is lost anyway."""
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.send(f"{line}\n".encode())


def _listed(members: Iterator[Member]) -> str:
    return ", ".join(map(str, members))


def _say(message: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"puffer: {message}\n".encode())  # from a thread: takes no lock


# ---- Finding each other ----------------------------------------------------------------------


def find_ranks(
    store: Any, rank: int, size: int, host: str, is_one_machine: bool, seconds: float
) -> Start:
    """Connect to all ranks of this start of the run.

    `store` is torch's, at `host`. It outlives the processes, so what it holds may be from processes
    that are dead: ranks count as there when they are connected to this rank 0.
    """
    address = "127.0.0.1" if is_one_machine else own_address(host)
    own = Member(rank, os.getpid(), socket.gethostname(), address)
    if rank == 0:
        return _await_others(store, own, size, is_one_machine, seconds)
    return _reach_first(store, own, host, seconds)


class Start(NamedTuple):
    """A start of a run: its ranks, and the connections to those that this one watches."""

    id: str  # unique
    members: list[Member]
    links: dict[int, socket.socket]


def _await_others(
    store: Any, own: Member, size: int, is_one_machine: bool, seconds: float
) -> Start:
    start, deadline = secrets.token_hex(16), time.monotonic() + seconds
    # where a name of this machine means loopback, the others know another address for it
    is_hidden = not is_one_machine and own.address.startswith("127.")
    address = "" if is_hidden else own.address
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    members, links = {0: own}, {}
    with socket.create_server((address, 0), family=family, backlog=size) as server:
        store.set("first", json.dumps([address, server.getsockname()[1], start]))
        while len(members) < size and time.monotonic() < deadline:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            with contextlib.suppress(OSError, ValueError, TypeError):
                link, _ = server.accept()
                link.settimeout(5.0)
                given, member = json.loads(_line(link))
                if given == start:
                    member = Member(*member)
                    members[member.rank], links[member.rank] = member, link
    missing = [str(rank) for rank in range(size) if rank not in members]
    problem = (
        f"all {size} ranks must join within {seconds:g} s, but {', '.join(missing)} did not. "
        "See their output for the cause."
    )
    everyone = sorted(members.values())
    answer = json.dumps([problem if missing else "", everyone])
    for link in links.values():
        with contextlib.suppress(OSError):
            link.sendall(f"{answer}\n".encode())
    if missing:
        raise PufferError(problem)
    return Start(start, everyone, links)


def _reach_first(store: Any, own: Member, host: str, seconds: float) -> Start:
    reason, deadline = "it has not started", time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.ExitStack() as failed:
            try:
                if store.check(["first"]):
                    address, port, start = json.loads(store.get("first"))
                    link = socket.create_connection((address or host, port), timeout=5.0)
                    failed.callback(link.close)
                    link.sendall(f"{json.dumps([start, own])}\n".encode())
                    link.settimeout(max(0.01, deadline - time.monotonic()) + 5.0)
                    problem, members = json.loads(_line(link))
                    if problem:
                        raise PufferError(problem)
                    failed.pop_all()
                    return Start(start, [Member(*member) for member in members], {0: link})
            except (OSError, ValueError) as error:  # a rank 0 of before, or one that has failed
                reason = str(error)
        time.sleep(0.05)
    raise PufferError(
        f"rank {own.rank} must reach rank 0 within {seconds:g} s, but cannot: {reason}. "
        "See the output of rank 0 for the cause."
    )


def own_address(host: str) -> str:
    """Return the address of this machine on the way to `host`."""
    try:
        family, kind, *_, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def _line(link: socket.socket) -> bytes:
    """Read up to the end of a line, and nothing beyond it."""
    data = bytearray()
    while not data.endswith(b"\n"):
        part = link.recv(1)
        if not part or len(data) > _MOST_BYTES:
            raise ConnectionError("rank 0 has ended")
        data += part
    return bytes(data)
