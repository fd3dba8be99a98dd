"""A rank that dies, is silent or leaves is named by all others; one that is late is waited for."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pufferlib.distributed import watch as watching
from pufferlib.distributed.watch import Start, Watch, find_ranks
from pufferlib.errors import PufferError

LONG = 60.0  # seconds, on a busy machine


class Store:
    """The part of torch's store that ranks find each other with."""

    def __init__(self, **values: str) -> None:
        self.values = values

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def get(self, name: str) -> str:
        return self.values[name]

    def check(self, names: list[str]) -> bool:
        return all(name in self.values for name in names)


def found(size: int, store: Store, ranks: list[int] | None = None, seconds: float = LONG) -> Any:
    """Let ranks, threads in the place of processes, find each other; return what each got."""
    out: dict[int, Any] = {}

    def find(rank: int) -> None:
        try:
            out[rank] = find_ranks(store, rank, size, "127.0.0.1", True, seconds)
        except PufferError as error:
            out[rank] = str(error)

    threads = [threading.Thread(target=find, args=(rank,)) for rank in ranks or range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


@contextmanager
def watched(size: int, timeout: float = LONG) -> Iterator[tuple[list[Watch], list[Start]]]:
    places: dict[int, Start] = found(size, Store())
    parts = [places[rank] for rank in range(size)]
    watches = [Watch(rank, each.members, each.links, timeout) for rank, each in enumerate(parts)]
    try:
        yield watches, parts
    finally:
        for each in watches:
            each.close()


def cause(watch: Watch, in_exchange: bool = False) -> str:
    """Wait until a watch has something to say, and return it."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        try:
            watch.check(in_exchange)
        except PufferError as error:
            return str(error)
        time.sleep(0.01)
    raise AssertionError("nothing was noticed")


# ---- Finding each other --------------------------------------------------------------------------


def test_every_rank_knows_all_of_the_same_start() -> None:
    parts = found(3, Store())
    assert len({each.id for each in parts.values()}) == 1
    for each in parts.values():
        assert [member.rank for member in each.members] == [0, 1, 2]
        assert {member.pid for member in each.members} == {os.getpid()}
        for link in each.links.values():
            link.close()


def test_what_an_earlier_start_left_in_the_store_is_no_rank() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    store = Store(first=f'["127.0.0.1", {port}, "earlier"]')
    out: dict[int, Any] = {}
    late = threading.Thread(target=lambda: out.update(found(2, store, [1])))
    late.start()  # meets the address of the dead rank 0 first
    time.sleep(0.2)
    out |= found(2, store, [0])
    late.join()
    assert out[0].id == out[1].id != "earlier"
    for each in out.values():
        for link in each.links.values():
            link.close()


def test_a_rank_that_does_not_come_is_named_by_all() -> None:
    said = found(3, Store(), ranks=[0, 2], seconds=1.0)
    line = "all 3 ranks must join within 1 s, but 1 did not. See their output for the cause."
    assert said == {0: line, 2: line}


def test_strangers_are_not_ranks() -> None:
    store, out = Store(), {}
    first = threading.Thread(target=lambda: out.update(found(2, store, [0], seconds=2.0)))
    first.start()
    while "first" not in store.values:
        time.sleep(0.01)
    port = int(store.values["first"].split(",")[1])
    for line in (
        b"GET / HTTP/1.1\n",
        b'["guess", [1, 1, "host", "address"]]\n',
        b"[]\n",
        b"\xff\n",
    ):
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(line)
    first.join()
    assert out[0].startswith("all 2 ranks must join within 2 s, but 1 did not.")


# ---- Losing each other ---------------------------------------------------------------------------


def test_a_rank_that_dies_is_named_by_all_others() -> None:
    with watched(3) as (watches, parts):
        parts[1].links[0].shutdown(socket.SHUT_RDWR)  # as the kernel does for a dead process
        said = f"rank 1 (pid {os.getpid()} on {socket.gethostname()}, 127.0.0.1) has died"
        assert cause(watches[0]).startswith(said)
        assert cause(watches[2]).startswith(said)


def test_a_silent_rank_is_named_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(3, timeout=LONG) as (watches, _):
        monkeypatch.setattr(watches[2], "_send_all", lambda line: None)
        for each in watches[:2]:
            each.timeout = 1.0
        for each in watches[:2]:
            said = cause(each)
            assert said.startswith("no answer within 1 s (`timeout`) from rank 2 (pid ")
            assert "rank 1" not in said


def test_a_rank_that_leaves_is_no_fault_outside_of_an_exchange() -> None:
    with watched(3) as (watches, _):
        watches[1].close()
        for each in (watches[0], watches[2]):
            assert cause(each, in_exchange=True).endswith(
                "has left the run. Its own output says why."
            )
            each.check()


def test_a_failed_exchange_names_the_rank_that_died() -> None:
    with watched(2) as (watches, parts):
        parts[1].links[0].shutdown(socket.SHUT_RDWR)
        with pytest.raises(PufferError, match=r"rank 1 .* has died"), watches[0].exchange():
            raise RuntimeError("Connection closed by peer")


def test_a_failed_exchange_without_a_cause_shows_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_CAUSE_SECONDS", 0.01)
    with watched(2) as (watches, _):
        with (
            pytest.raises(PufferError, match="rank 1 cannot reach the others: out of memory"),
            watches[1].exchange(),
        ):
            raise RuntimeError("out of memory\nC++ frames")
        watches[1].check()  # nobody is lost


def test_a_late_rank_is_named_and_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    said = ""
    with watched(3, timeout=2.0) as (watches, _):
        with watches[0].exchange(), watches[1].exchange():
            deadline = time.monotonic() + LONG
            while "\n" not in said and time.monotonic() < deadline:
                said += capfd.readouterr().err
                time.sleep(0.01)
        for each in watches:
            each.check()
    assert said.startswith("puffer: the other ranks have waited 2 s for rank 2 (pid ")
    assert said.count("rank") == 2
    assert said.endswith("alive, but late. They wait on.\n")
