"""The process of a trial, an ordinary run: `puffer train NAME ...` with these words in sys.argv.

It ends when its driver does: stdin is a pipe that the driver holds open. Before that, the pipe may
bring an environment that the driver's script has registered, which no other process knows.
"""

from __future__ import annotations

import os
import runpy
import signal
import struct
import sys
import threading
import time
from typing import BinaryIO

_PATIENCE = 20.0  # seconds to end by itself once the driver is gone
HEADER = struct.Struct("<Q")  # bytes of the pickled environment, 0 for none


def main() -> None:
    pipe = sys.stdin.buffer
    size = HEADER.unpack(_read(pipe, HEADER.size))[0]
    if size:
        import cloudpickle

        from pufferlib.registry import register

        register(*cloudpickle.loads(_read(pipe, size)))  # from the driver, through its pipe
    threading.Thread(target=_end_with_driver, args=(pipe,), daemon=True).start()
    sys.argv = ["puffer", *sys.argv[1:]]
    runpy.run_module("pufferlib", run_name="__main__")  # as `python -m pufferlib` does


def _read(pipe: BinaryIO, size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:  # the driver died before it said what to do
        raise SystemExit(1)
    return data


def _end_with_driver(pipe: BinaryIO) -> None:
    """Wait until the driver's end of the pipe is closed, then stop this run."""
    os.read(pipe.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE)
    os._exit(1)
