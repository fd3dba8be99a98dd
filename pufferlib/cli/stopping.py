"""The first Ctrl-C asks the program to finish cleanly. The second stops it at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_GRACE = 1.0  # seconds that the program has to end after the second signal
_STOPS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # the terminal was closed
}


@contextmanager
def stop_requests(on_request: Callable[[], None]) -> Iterator[list[int]]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP into a request; yield the list it will be in.

    The list is empty until a signal arrives; then it has the number of the signal, and `on_request`
    is called. Raising an error wherever the signal finds the program could leave a file locked or a
    process behind, or get lost in a callback that may not raise. The second signal does raise.
    Signals that the process ignores, as background jobs do Ctrl-C, or handles otherwise stay as
    they are.
    """
    received: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        received.append(signum)
        if len(received) > 1:
            raise KeyboardInterrupt if signum == signal.SIGINT else SystemExit(128 + signum)
        with suppress(OSError):  # a closed terminal: nothing may be raised here
            on_request()

    ours = {
        signum: default
        for signum, default in _STOPS.items()
        if signal.getsignal(signum) is default
        and threading.current_thread() is threading.main_thread()
    }
    for signum in ours:
        signal.signal(signum, handle)
    try:
        yield received
    finally:
        for signum, default in ours.items():
            signal.signal(signum, default)


@contextmanager
def second_signal_ends(until_exit: bool = False) -> Iterator[None]:
    """End the process within a second of the second signal, wherever the program is.

    Python handles a signal between two of its own instructions, and one update or a loop in C can
    take minutes. So a thread counts the signals too. Worker processes end with this one. With
    `until_exit` the process ends with the `with` block, else just the block does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    has_left = threading.Event()
    second: list[int] = []  # the signal that ends the process

    def watch() -> None:
        count = 0
        while count < 2:
            (signum,) = os.read(reader, 1)
            if signum == 0:
                return
            count += signum in _STOPS
        second.append(signum)
        if not has_left.wait(_GRACE):
            with suppress(OSError):
                if sys.stdout.isatty():
                    os.write(1, b"\x1b[?25h\n")  # a live panel has hidden the cursor
            os._exit(128 + signum)

    thread = threading.Thread(target=watch, name="pufferlib-signals", daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        if until_exit and second:  # the end of the interpreter can take seconds too
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os._exit(128 + second[0])
        has_left.set()
        os.write(writer, b"\0")
        thread.join()
        os.close(reader)
        os.close(writer)
