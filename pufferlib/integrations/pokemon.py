"""The family `pokemon`: `pokemon-red` on the emulator PyBoy, with the user's own ROM."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.env import PufferEnv
from pufferlib.errors import MissingExtraError, UsageError, quoted
from pufferlib.integrations.packages import extra
from pufferlib.integrations.single import SingleFamily

ROM_VARIABLE = "POKEMON_RED_ROM"
BUTTONS = ("down", "left", "right", "up", "a", "b", "start", "select")
_HOLD = 8  # frames that a button is held
# addresses in the memory of the game: https://datacrystal.tcrf.net/wiki/Pokemon_Red_and_Blue/RAM_map
_Y, _X, _MAP, _BADGES = 0xD361, 0xD362, 0xD35E, 0xD356
_LEVELS = (0xD18C, 0xD1B8, 0xD1E4, 0xD210, 0xD23C, 0xD268)


class PokemonRed(PufferEnv):
    """Pokemon Red: eight buttons, every second pixel of the screen as grey.

    One step holds a button for 8 of `frames` frames. Rewards: 0.01 for a place that is new in this
    episode, 1 for each level of the party beyond the highest so far, 5 for a badge. `state_path` is
    a state that PyBoy saved, such as one after the introduction. An episode of `max_steps` is
    truncated. The game itself takes no seed.
    """

    def __init__(
        self,
        rom_path: str | None = None,
        state_path: str | None = None,
        frames: int = 24,
        max_steps: int = 2048,
        buf: Any = None,
    ) -> None:
        super().__init__(buf)
        if frames < _HOLD:
            raise UsageError(f"`frames` must be at least {_HOLD}, but got {frames}.")
        rom = _rom(rom_path)
        import pyboy

        self._game: Any = pyboy.PyBoy(str(rom), window="null", sound_emulated=False)
        self._game.set_emulation_speed(0)
        self._frames, self._max_steps = frames, max_steps
        self._start = Path(state_path).read_bytes() if state_path else self._saved()
        self._ticks = 0
        self._places: set[tuple[int, int, int]] = set()
        self._levels = self._badges = 0
        self.observation_space = self.make_space((72, 80, 1))
        self.action_space = self.make_discrete(len(BUTTONS))

    def reset(self, seed: int | None = None) -> Any:
        self._game.load_state(io.BytesIO(self._start))
        self._game.tick(1, True)
        self._ticks, self._places = 0, {self._place()}
        self._levels, self._badges = self._read_levels(), self._read_badges()
        return self._seen(), {}

    def step(self, action: int) -> Any:
        button = BUTTONS[action]
        self._game.button_press(button)
        self._game.tick(_HOLD, False)
        self._game.button_release(button)
        self._game.tick(self._frames - _HOLD, True)
        self._ticks += 1
        is_over = self._ticks >= self._max_steps
        reward = self._reward()
        metrics = {"places": len(self._places), "levels": self._levels, "badges": self._badges}
        return self._seen(), reward, False, is_over, metrics if is_over else {}

    def _reward(self) -> float:
        place, levels, badges = self._place(), self._read_levels(), self._read_badges()
        reward = 0.01 * (place not in self._places)
        reward += 1.0 * max(0, levels - self._levels) + 5.0 * max(0, badges - self._badges)
        self._places.add(place)
        self._levels, self._badges = max(self._levels, levels), max(self._badges, badges)
        return reward

    def _place(self) -> tuple[int, int, int]:
        memory = self._game.memory
        return memory[_MAP], memory[_X], memory[_Y]

    def _read_levels(self) -> int:
        return sum(self._game.memory[address] for address in _LEVELS)

    def _read_badges(self) -> int:
        return int(self._game.memory[_BADGES]).bit_count()

    def _saved(self) -> bytes:
        state = io.BytesIO()
        self._game.save_state(state)
        return state.getvalue()

    def _seen(self) -> NDArray[np.uint8]:
        picture = self._game.screen.ndarray[::2, ::2, :3]
        return picture.mean(2, keepdims=True).astype(np.uint8)  # type: ignore[no-any-return]

    def render(self) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = self._game.screen.ndarray[:, :, :3].copy()
        return picture

    def close(self) -> None:
        self._game.stop(save=False)


def _rom(rom_path: str | None) -> Path:
    """Return the path of the ROM, or raise with the two ways to give one."""
    given = rom_path or os.environ.get(ROM_VARIABLE)
    if given is None:
        raise MissingExtraError(
            "`pokemon-red` needs the ROM of your own copy of the game, which no package has: pass "
            f"`rom_path`, or set {ROM_VARIABLE} to its path"
        )
    if not Path(given).is_file():
        raise UsageError(f"`rom_path` must be a file, but got {quoted(given)}.")
    return Path(given)


_family = SingleFamily("pokemon-red", "pyboy", extra("pokemon"), PokemonRed)
find = _family.find
names = _family.names
