"""Atomic files, and temporary files of killed writers."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from pufferlib.files import link_atomically, read_regular, remove_unfinished, write_atomically


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert names(path.parent) == ["b"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_failed_write_changes_nothing(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "a", b"old")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, bytes(data[:3])))
    write_atomically(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_only_temporary_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    left = tmp_path / ".a.0123abcd.unfinished"
    left.write_bytes(b"half")
    (tmp_path / ".b.89ab0123.unfinished").write_bytes(b"of another name")
    (tmp_path / "other.unfinished").write_bytes(b"")
    (tmp_path / ".c.0123abcd").write_bytes(b"")
    (tmp_path / ".d.0123abcd.unfinished").mkdir()
    (tmp_path / ".e.0123abcd.unfinished").symlink_to(tmp_path / "other.unfinished")
    write_atomically(tmp_path / "a", b"whole")
    kept = [".c.0123abcd", ".d.0123abcd.unfinished", ".e.0123abcd.unfinished"]
    assert names(tmp_path) == [*kept, "a", "other.unfinished"]


def test_a_file_that_is_being_written_is_not_removed(tmp_path: Path) -> None:
    with (tmp_path / ".a.0123abcd.unfinished").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_unfinished(tmp_path)
        assert names(tmp_path) == [".a.0123abcd.unfinished"]
    remove_unfinished(tmp_path)
    assert names(tmp_path) == []


def test_a_writer_starts_over_if_its_temporary_file_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, locked = fcntl.flock, []

    def late(file: Any, how: int) -> None:
        if not locked:  # between creating and locking, another writer comes and tidies up
            locked.append(file)
            remove_unfinished(tmp_path)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    write_atomically(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    assert names(tmp_path) == ["a"]


def test_a_link_shares_the_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a", b"one")
    link_atomically(tmp_path / "a", tmp_path / "latest")
    link_atomically(tmp_path / "a", tmp_path / "latest")  # again: renaming would do nothing
    assert (tmp_path / "latest").samefile(tmp_path / "a")
    write_atomically(tmp_path / "a", b"two")
    assert (tmp_path / "latest").read_bytes() == b"one"
    assert names(tmp_path) == ["a", "latest"]


def test_a_disk_without_links_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write_atomically(tmp_path / "a", b"one")
    link_atomically(tmp_path / "a", tmp_path / "latest")
    assert (tmp_path / "latest").read_bytes() == b"one"
    assert not (tmp_path / "latest").samefile(tmp_path / "a")


def test_only_files_are_read_and_only_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_regular(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError, match="5 bytes, more than the 4 expected"):
        read_regular(tmp_path / "a", 4)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):  # a pipe would wait for a writer
        with pytest.raises(ValueError, match="it is not a file"):
            read_regular(path, 100)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="more than the 100 expected"):
        read_regular(tmp_path / "sparse", 100)
