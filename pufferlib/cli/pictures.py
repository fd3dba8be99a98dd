"""Pictures of environments: one as a PNG file, many as a GIF or an MP4 video."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError, imported, one_line, quoted

MIN_VIDEO_WIDTH = 480  # pixels: smaller pictures are enlarged


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


FRAMES_PER_SECOND = 30
MOST_FRAMES = 600  # later ones are dropped


class Film:
    """Collects pictures and saves them as an animation: a GIF, or a video if it ends in .mp4."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if self._path.suffix.lower() not in (".gif", ".mp4"):
            raise UsageError(f"`--video` must end in .gif or .mp4, but got {quoted(path)}.")
        self._is_video = self._path.suffix.lower() == ".mp4"
        if self._is_video:
            self._ffmpeg = imported("imageio_ffmpeg", "video", "imageio-ffmpeg for an .mp4")
        else:
            self._image = imported("PIL.Image", "plot", "Pillow for a .gif")
        self._frames: list[NDArray[np.uint8]] = []

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Add a picture, [height, width, 3] bytes."""
        if len(self._frames) < MOST_FRAMES:
            self._frames.append(picture.copy())

    def save(self) -> None:
        """Write the file."""
        if not self._frames:
            raise UsageError("`--video` needs an environment that renders.")
        try:
            if self._is_video:
                self._save_video()
            else:
                first, *rest = map(self._image.fromarray, self._frames)
                duration = 1000 // FRAMES_PER_SECOND
                first.save(self._path, save_all=True, append_images=rest, duration=duration, loop=0)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"`--video` must be a file that can be written, but {one_line(error)}."
            ) from None

    def _save_video(self) -> None:
        height, width, _ = self._frames[0].shape
        scale = max(1, -(-MIN_VIDEO_WIDTH // width))  # players blur small pictures
        size = width * scale // 2 * 2, height * scale // 2 * 2  # H.264 needs even sizes
        writer = self._ffmpeg.write_frames(
            str(self._path), size, fps=FRAMES_PER_SECOND, macro_block_size=1
        )
        writer.send(None)
        for frame in self._frames:
            large = frame.repeat(scale, axis=0).repeat(scale, axis=1)
            writer.send(np.ascontiguousarray(large[: size[1], : size[0]]))
        writer.close()
