"""Atomic files: whole or absent, whenever the process dies.

A file is written under a temporary name, synced, then renamed. The next writer in the same folder
removes the temporary file of a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}\.unfinished")


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path`; an older file there stays until the new one is complete.

    Creates missing folders. After an OSError nothing has changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_unfinished(path.parent)
    with _unfinished(path) as (unfinished, file):
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        os.fsync(file)
        os.replace(unfinished, path)
    _sync_folder(path.parent)


def link_atomically(source: Path, path: Path) -> None:
    """Make `path` a hard link to `source`, or a copy if the disk has no links."""
    unfinished = _unfinished_name(path)
    try:
        os.link(source, unfinished)
    except OSError:
        write_atomically(path, source.read_bytes())
        return
    try:
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)  # a rename between links to one file does nothing
    _sync_folder(path.parent)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of killed writers in `folder`; those of live ones are locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _UNFINISHED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


def read_regular(path: Path, limit: int) -> bytes:
    """Return the bytes of a file; raise ValueError as `open_regular` does."""
    with open_regular(path, limit) as file:
        return file.read(limit)


@contextmanager
def open_regular(path: Path, limit: int) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raise ValueError for anything else or above `limit` bytes.

    Never waits for a pipe or a device.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a file")
        if status.st_size > limit:
            raise ValueError(f"it has {status.st_size:,} bytes, more than the {limit:,} expected")
        with open(opened, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(opened)


def open_own(path: Path, flags: int) -> int:
    """Open a file that is changed in place; raise ValueError if it may be elsewhere too.

    A stranger who made the folder of `path` could have made it a link to any file of the user, of
    either kind.
    """
    try:
        opened = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("it is a link") from None
        raise
    status = os.fstat(opened)
    reason = _link(status) if stat.S_ISREG(status.st_mode) else "not a file"
    if reason:
        os.close(opened)
        raise ValueError(f"it is {reason}")
    return opened


def link_at(path: Path) -> str:
    """Return "a link" or "a hard link" if what is at `path` may be elsewhere too, else ""."""
    try:
        return _link(os.lstat(path))
    except FileNotFoundError:
        return ""


def _link(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "a link"
    return "a hard link" if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 else ""


@contextmanager
def _unfinished(path: Path) -> Iterator[tuple[Path, int]]:
    """Create and lock a temporary file beside `path`; remove it in any case."""
    while True:
        name = _unfinished_name(path)
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with contextlib.suppress(OSError):  # a disk without locks: no temporary file is removed
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file).st_nlink == 0:  # another writer removed it before it was locked
                continue
            yield name, file
            return
        finally:
            os.close(file)
            name.unlink(missing_ok=True)


def _unfinished_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.unfinished")


def _sync_folder(folder: Path) -> None:
    """Sync the names in a folder, so that they survive a crash of the machine."""
    with contextlib.suppress(OSError):
        file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
