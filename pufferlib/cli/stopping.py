"""The first Ctrl-C asks the program to finish cleanly. The second stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

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
