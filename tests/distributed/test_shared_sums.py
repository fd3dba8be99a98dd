"""Sums through shared memory are those of all processes, the same for each, and never hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import PATIENCE

from pufferlib.distributed import shared_sums
from pufferlib.distributed.shared_sums import SharedSums
from pufferlib.errors import PufferError

SIZE = 3


def together(
    work: Callable[[SharedSums, int], Any],
    timeout: float = PATIENCE,
    check: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Run `work` for each rank, threads in the place of processes; return what they return."""
    barrier, given, out = threading.Barrier(SIZE), [None] * SIZE, [None] * SIZE

    def run(rank: int) -> None:
        def gather(value: Any) -> list[Any]:
            given[rank] = value
            barrier.wait()
            values = list(given)
            barrier.wait()
            return values

        try:
            sums = SharedSums(rank, SIZE, timeout, lambda value: gather(value)[0], gather, check)
            out[rank] = work(sums, rank)
        except Exception as error:
            out[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


def test_all_get_the_sum_of_all_however_often_they_ask() -> None:
    def work(sums: SharedSums, rank: int) -> list[torch.Tensor]:
        results = []
        for number in range(300):
            kind = (torch.float32, torch.float64, torch.int64)[number % 3]
            mine = torch.full((number % 7 + 1, 2), number * (rank + 1), dtype=kind)
            assert sums.fits(mine)
            sums.sum_(mine)
            results.append(mine)
        return results

    whole = together(work)
    for number, parts in enumerate(zip(*whole, strict=True)):
        for part in parts:
            assert (part == number * 6).all()  # 1 + 2 + 3 times the number


def test_the_order_of_sums_is_the_same_for_all() -> None:
    numbers = torch.tensor([1e8, -1e8, 1.5e-3])

    def work(sums: SharedSums, rank: int) -> float:
        mine = numbers[rank : rank + 1].clone()
        sums.sum_(mine)
        return mine.item()

    assert together(work) == [pytest.approx(1.5e-3)] * SIZE


def test_strided_and_zero_dimensional_tensors_are_summed_too() -> None:
    def work(sums: SharedSums, rank: int) -> tuple[Any, Any]:
        table, one = torch.ones(4, 3), torch.tensor(2.0)
        column = table[:, 1]
        sums.sum_(column)
        sums.sum_(one)
        return table.tolist(), one.item()

    assert together(work) == [([[1.0, 3.0, 1.0]] * 4, 6.0)] * SIZE


def test_fits_is_false_for_tensors_that_cannot_be_summed() -> None:
    def work(sums: SharedSums, rank: int) -> list[bool]:
        most = sums._slot_bytes // 4
        tensors = [torch.zeros(most), torch.zeros(most + 1), torch.zeros(1, dtype=torch.bfloat16)]
        return [sums.fits(tensor) for tensor in tensors]

    assert together(work) == [[True, False, False]] * SIZE


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_sums, "_FOLDER", str(tmp_path))

    def work(sums: SharedSums, rank: int) -> bool:
        sums.sum_(torch.ones(1))
        return sums.is_available

    assert together(work) == [True] * SIZE
    assert list(tmp_path.iterdir()) == []


def test_without_shared_memory_no_process_uses_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_sums, "_FOLDER", str(tmp_path / "none"))
    assert (
        together(lambda sums, rank: (sums.is_available, sums.fits(torch.ones(1))))
        == [(False, False)] * SIZE
    )


def test_waiting_ends_when_a_rank_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sums, "_SLICE_MS", 10)

    def check() -> None:
        raise PufferError("rank 0 has died")

    errors = together(lambda sums, rank: sums.sum_(torch.ones(1)) if rank else None, check=check)
    assert [str(error) for error in errors[1:]] == ["rank 0 has died"] * 2


def test_a_sum_to_which_the_rank_came_before_it_left_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_sums, "_SLICE_MS", 10)
    waits, comes = threading.Event(), threading.Event()

    def check() -> None:  # while rank 1 and 2 wait, rank 0 comes, and then leaves the run
        waits.set()
        comes.wait(20)
        raise PufferError("rank 0 has left the run")

    def work(sums: SharedSums, rank: int) -> float:
        if rank == 0:
            waits.wait(20)
        total = torch.ones(1)
        if rank == 0:
            monkeypatch.setattr(sums, "_all_arrive", noted(sums._all_arrive))
        sums.sum_(total)
        return total.item()

    def noted(arrive: Callable[[int], bool]) -> Callable[[int], bool]:
        def all_arrive(milliseconds: int) -> bool:
            done = arrive(milliseconds)
            comes.set()
            return done

        return all_arrive

    assert together(work, check=check) == [3.0] * SIZE


def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_sums, "_SLICE_MS", 10)
    errors = together(lambda sums, rank: sums.sum_(torch.ones(1)) if rank else None, timeout=0.05)
    assert all("s for the other ranks" in str(error) for error in errors[1:])
