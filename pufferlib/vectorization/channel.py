"""Channel: objects and file descriptors between two processes of one machine, over a socket.

Both ends are ours and of one user: what arrives is trusted.
"""

from __future__ import annotations

import array
import contextlib
import pickle
import socket
import struct
from typing import Any

import cloudpickle

_HEADER = struct.Struct("<QI")  # bytes of the object, descriptors that come with it
MAX_FDS = 8


class Channel:
    """One end of a socket that carries pickled objects.

    A lost peer raises EOFError, and so does a channel on which an interrupt has cut a message
    short: where the next one begins could not be told.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.is_torn = False

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Return two connected ends."""
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return Channel(ends[0]), Channel(ends[1])

    @staticmethod
    def of_fd(fd: int) -> Channel:
        """Return the end that was inherited as descriptor `fd`."""
        return Channel(socket.socket(fileno=fd))

    def set_timeout(self, seconds: float | None) -> None:
        """Raise TimeoutError when the peer neither reads nor speaks for so long; None: never."""
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        """Return the descriptor, for `poll`."""
        return self._socket.fileno()

    def send(self, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Send an object, and copies of descriptors."""
        self.send_bytes(pickled(message), fds)

    def send_bytes(self, data: bytes, fds: tuple[int, ...] = ()) -> None:
        """Send an object that has been pickled."""
        header = _HEADER.pack(len(data), len(fds))
        self._begin_message()
        try:
            if fds:
                socket.send_fds(self._socket, [header], list(fds))
                self._socket.sendall(data)
            else:
                self._socket.sendall(header + data)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError("the other process is gone") from None
        self.is_torn = False

    def _begin_message(self) -> None:
        if self.is_torn:
            raise EOFError("a message was cut short")
        self.is_torn = True

    def receive(self) -> Any:
        """Wait for the next object."""
        return self.receive_with_fds()[0]

    def receive_with_fds(self) -> tuple[Any, list[int]]:
        """Wait for the next object and the descriptors that came with it."""
        fds: list[int] = []
        header = b""
        self._begin_message()
        while len(header) < _HEADER.size:
            part = self._take(_HEADER.size - len(header), fds)
            header += part
        size, _ = _HEADER.unpack(header)
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = self._socket.recv_into(view)
            except ConnectionResetError:
                count = 0
            if not count:
                raise EOFError("the other process is gone")
            view = view[count:]
        self.is_torn = False
        return pickle.loads(data), fds

    def _take(self, size: int, fds: list[int]) -> bytes:
        """Receive up to `size` bytes; descriptors among them are added to `fds`."""
        space = socket.CMSG_LEN(MAX_FDS * 4)
        try:
            data, extra, _, _ = self._socket.recvmsg(size, space, _CLOEXEC)
        except ConnectionResetError:
            data, extra = b"", []
        if not data:
            raise EOFError("the other process is gone")
        for level, kind, body in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(body[: len(body) - len(body) % found.itemsize])
                fds += found
        return data

    def close(self) -> None:
        """Close this end, as far as this process has it. Safe to call twice."""
        self._socket.close()

    def shut(self) -> None:
        """End the channel: the peer learns of it, also where a fork of this process holds on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def pickled(message: Any) -> bytes:
    """Return `message` as bytes; what plain pickle cannot name goes by value."""
    try:
        return pickle.dumps(message, protocol=5)
    except Exception:  # a lambda, a class of the user's script
        data: bytes = cloudpickle.dumps(message)
        return data
