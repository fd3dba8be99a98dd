"""Screens for playing: pictures and keys in a terminal, or in a window.

A terminal shows two pixels in each character: the upper half block has one colour in front and one
behind. It reports key presses but not releases, so a key counts as held for a moment after each.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pufferlib.closing import Closing
from pufferlib.errors import UsageError, imported

HELD_SECONDS = 0.3  # terminals repeat a held key more often than that
_ESCAPES = {"A": "up", "B": "down", "C": "right", "D": "left"}
_NAMES = {" ": "space", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x03": "q"}


class Screen(Closing):
    """Shows pictures and reads keys; the end of a `with` statement restores the terminal."""

    def show(self, picture: NDArray[np.uint8], text: str) -> None:
        """Show a picture and a line of text."""
        raise NotImplementedError

    def pressed(self, seconds: float) -> list[str]:
        """Return the keys that were pressed; wait for up to `seconds` if there are none yet."""
        raise NotImplementedError

    def held(self) -> set[str]:
        """Return the keys that are down now."""
        raise NotImplementedError


class Terminal(Screen):
    """A screen of half blocks in the terminal."""

    def __init__(self) -> None:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(
                "`puffer play` needs a terminal. Try `puffer eval NAME --video FILE`, or --window."
            )
        self._input = sys.stdin.fileno()
        self._before: list[Any] | None = None
        self._last_press: dict[str, float] = {}
        self._size: os.terminal_size | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._input)
        tty.setcbreak(self._input)
        _write("\x1b[?1049h\x1b[?25l")  # a screen of its own, no cursor
        return self

    def close(self) -> None:
        """Give the terminal back as it was."""
        if self._before is not None:
            _write("\x1b[0m\x1b[?25h\x1b[?1049l")
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
            self._before = None

    def show(self, picture: NDArray[np.uint8], text: str) -> None:
        size = shutil.get_terminal_size()
        clear = "" if size == self._size else "\x1b[2J"
        self._size = size
        lines = half_blocks(picture, size.columns, size.lines - 1)
        end = "\x1b[0m\x1b[K"
        _write(clear + "\x1b[H" + "".join(f"{line}{end}\r\n" for line in lines))
        _write(f"{text[: size.columns]}\x1b[K")

    def pressed(self, seconds: float) -> list[str]:
        if not select.select([self._input], [], [], seconds)[0]:
            return []
        keys = read_keys(os.read(self._input, 1024).decode(errors="ignore"))
        self._last_press.update(dict.fromkeys(keys, time.monotonic()))
        return keys

    def held(self) -> set[str]:
        now = time.monotonic()
        return {key for key, at in self._last_press.items() if now - at < HELD_SECONDS}


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def read_keys(text: str) -> list[str]:
    """Return the names of the keys in what a terminal sent."""
    keys = []
    while text:
        if text[0] == "\x1b" and len(text) > 2 and text[1] in "[O":
            keys.append(_ESCAPES.get(text[2], ""))
            text = text[3:]
            continue
        keys.append("q" if text[0] == "\x1b" else _NAMES.get(text[0], text[0].lower()))
        text = text[1:]
    return [key for key in keys if key]


def half_blocks(picture: NDArray[np.uint8], columns: int, lines: int) -> list[str]:
    """Return a picture [height, width, 3] as lines of characters, as large as fits."""
    height, width, _ = picture.shape
    pixels = max(width / max(columns, 1), height / max(2 * lines, 2))  # of the picture, for one
    wide, high = max(1, int(width / pixels)), max(2, int(height / pixels) // 2 * 2)
    small = _shrunk(_shrunk(picture.astype(np.float32), high, 0), wide, 1)
    rows = (small + 0.5).astype(np.uint8).reshape(high // 2, 2, wide, 3)
    return [_spelled(upper, lower) for upper, lower in rows]


def _shrunk(picture: NDArray[np.float32], size: int, axis: int) -> NDArray[np.float32]:
    """Return means over equal ranges of an axis, or repeats where there are fewer numbers."""
    length = picture.shape[axis]
    edges = np.arange(size) * length // size
    if length < size:
        return np.asarray(np.take(picture, edges, axis), np.float32)
    counts = np.diff(edges, append=length).astype(np.float32)
    sums = np.add.reduceat(picture, edges, axis, dtype=np.float32)
    return np.asarray(sums / counts.reshape([-1 if i == axis else 1 for i in range(3)]))


def _spelled(upper: NDArray[np.uint8], lower: NDArray[np.uint8]) -> str:
    """Return one line; colours are named where they change."""
    parts, front, behind = [], None, None
    for above, below in zip(upper.tolist(), lower.tolist(), strict=True):
        if above != front:
            parts.append("\x1b[38;2;{};{};{}m".format(*above))
        if below != behind:
            parts.append("\x1b[48;2;{};{};{}m".format(*below))
        front, behind = above, below
        parts.append("▀")
    return "".join(parts)


class Window(Screen):
    """A screen in a window of pygame."""

    def __init__(self, title: str) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        self._pygame = imported("pygame", "play", "pygame-ce for `--window`")
        self._pygame.init()
        self._pygame.display.set_caption(title)
        self._surface: Any = None

    def close(self) -> None:
        """Close the window."""
        self._pygame.quit()

    def show(self, picture: NDArray[np.uint8], text: str) -> None:
        height, width, _ = picture.shape
        scale = max(1, 640 // width)
        size = width * scale, height * scale
        if self._surface is None:
            self._surface = self._pygame.display.set_mode(size)
        own = self._pygame.surfarray.make_surface(picture.swapaxes(0, 1))
        self._surface.blit(self._pygame.transform.scale(own, size), (0, 0))
        self._pygame.display.set_caption(text)
        self._pygame.display.flip()

    def pressed(self, seconds: float) -> list[str]:
        pygame = self._pygame
        first = pygame.event.wait(int(seconds * 1000)) if seconds else pygame.event.poll()
        keys = []
        for event in (first, *pygame.event.get()):
            if event.type == pygame.QUIT:
                keys.append("q")
            elif event.type == pygame.KEYDOWN:
                keys.append(self._name(event.key))
        return keys

    def held(self) -> set[str]:
        down = self._pygame.key.get_pressed()
        names = ("left", "right", "up", "down", "space", *"abcdefghijklmnopqrstuvwxyz0123456789")
        return {name for name in names if down[self._pygame.key.key_code(name)]}

    def _name(self, key: int) -> str:
        name: str = self._pygame.key.name(key)
        return {"return": "enter", "escape": "q"}.get(name, name)
