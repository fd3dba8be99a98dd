"""Pictures of environments: one as a PNG file, many as a GIF."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from pufferlib.errors import UsageError, imported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image


def write_png(path: Path, picture: NDArray[np.uint8]) -> None:
    """Write [height, width, 3] bytes as a PNG: filter 0, one compressed block."""
    height, width, _ = picture.shape
    raw = b"".join(b"\0" + row.tobytes() for row in picture)

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(raw)), chunk(b"IEND", b"")]
    try:
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    except OSError as error:
        raise UsageError(f"`--picture` must be a file that can be written, but {error}.") from None


class Film:
    """Collects pictures and saves them as a GIF."""

    def __init__(self, path: str) -> None:
        self._path, self._image = path, imported("PIL.Image", "plot", "Pillow for `--gif`")
        self._frames: list[Image] = []

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Add a picture, [height, width, 3] bytes; after 600 they are dropped."""
        if len(self._frames) < 600:
            self._frames.append(self._image.fromarray(picture))

    def save(self) -> None:
        """Write the file."""
        if not self._frames:
            raise UsageError("`--gif` needs an environment that renders.")
        first, *rest = self._frames
        try:
            first.save(self._path, save_all=True, append_images=rest, duration=33, loop=0)
        except (OSError, ValueError) as error:
            raise UsageError(f"`--gif` must be a file that can be written, but {error}.") from None
