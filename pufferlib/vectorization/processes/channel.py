"""Channel: objects and file descriptors between two processes of one machine, over a socket.

Both ends belong to this package and to one user: messages are trusted.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import socket
import struct
from typing import Any

import cloudpickle
import numpy as np

_HEADER = struct.Struct("<QII")  # number of the message, this packet of it, packets in all
_PACKET_BYTES = 32768  # well below what a socket holds
MAX_FDS = 8
_NUMBERS = frozenset({np.float64, np.float32, np.int64, np.int32, np.bool_})


class Channel:
    """One end of a socket that carries pickled objects. A lost peer raises EOFError.

    Packets arrive whole or not at all. An interrupt may cut a message off at any point: that one is
    lost, and the next is complete again.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._num_sent = 0
        self._number = 0  # of the message whose packets are these
        self._packets: list[bytes] = []

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Return two connected ends."""
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(ends[0]), Channel(ends[1])

    @staticmethod
    def of_fd(fd: int) -> Channel:
        """Return the end that was inherited as descriptor `fd`."""
        return Channel(socket.socket(fileno=fd))

    def set_timeout(self, seconds: float | None) -> None:
        """Raise TimeoutError when the peer neither reads nor sends for `seconds`; None: never."""
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        """Return the descriptor, for `poll`."""
        return self._socket.fileno()

    def send(self, message: object, fds: tuple[int, ...] = ()) -> None:
        """Send an object, and copies of descriptors."""
        data = pickled(message)
        self._num_sent += 1
        count = -(-len(data) // _PACKET_BYTES)
        try:
            for packet in range(count):
                first = packet * _PACKET_BYTES
                part = _HEADER.pack(self._num_sent, packet, count)
                part += data if count == 1 else data[first : first + _PACKET_BYTES]
                if fds and packet == 0:
                    socket.send_fds(self._socket, [part], list(fds))
                else:
                    self._socket.send(part)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError("the other process has exited") from None

    def receive(self) -> Any:
        """Wait for the next object."""
        while True:
            try:
                packet = self._socket.recv(_HEADER.size + _PACKET_BYTES)
            except ConnectionResetError:  # it left, and its messages may still be there
                continue
            data = self._whole(packet)
            if data is not None:
                return pickle.loads(data)

    def receive_with_fds(self) -> tuple[Any, list[int]]:
        """Wait for the next object and the descriptors that came with it."""
        fds: list[int] = []
        while True:
            try:
                packet, more, _, _ = socket.recv_fds(
                    self._socket, _HEADER.size + _PACKET_BYTES, MAX_FDS, socket.MSG_CMSG_CLOEXEC
                )
            except ConnectionResetError:
                continue
            fds += more
            data = self._whole(packet)
            if data is not None:
                return pickle.loads(data), fds

    def _whole(self, packet: bytes) -> bytes | None:
        """Return the message that this packet completes; else keep the packet and return None."""
        if not packet:
            raise EOFError("the other process has exited")
        number, place, count = _HEADER.unpack_from(packet)
        if count == 1:
            return packet[_HEADER.size :]
        if place == 0:  # an earlier message was cut off
            self._number, self._packets = number, []
        if number != self._number or place != len(self._packets):
            return None
        self._packets.append(packet[_HEADER.size :])
        if place < count - 1:
            return None
        packets, self._packets = self._packets, []
        return b"".join(packets)

    def close(self) -> None:
        """Close this end in this process. Safe to call twice."""
        self._socket.close()

    def shut(self) -> None:
        """End the channel for the peer too, even if a fork of this process still holds this end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class _Pickler(pickle.Pickler):
    """Writes numpy's numbers, of which infos are full, in half the time that numpy takes."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        return (kind, (value.item(),)) if kind in _NUMBERS else NotImplemented


def pickled(message: object) -> bytes:
    """Return `message` as bytes; what plain pickle cannot name goes by value."""
    stream = io.BytesIO()
    try:
        _Pickler(stream, protocol=5).dump(message)
        return stream.getvalue()
    except Exception:  # a lambda, a class of the user's script
        data: bytes = cloudpickle.dumps(message)
        return data
