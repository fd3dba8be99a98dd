"""Pokemon Red: rewards and ends against PyBoy's API, and PyBoy itself with a ROM of our own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pufferlib
from pufferlib.errors import MissingExtraError, UsageError
from pufferlib.integrations.pokemon import BUTTONS, ROM_VARIABLE

X, LEVEL, BADGES = 0xD362, 0xD18C, 0xD356


class Emulator:
    """Has PyBoy's API; `down` moves the hero, `a` gains a level, `b` a badge."""

    made: Emulator

    def __init__(self, rom: str, window: str, sound_emulated: bool) -> None:
        self.rom, self.memory, self.frames = rom, defaultdict(int), 0
        self.screen = SimpleNamespace(ndarray=np.full((144, 160, 4), 90, np.uint8))
        self.is_held: str | None = None
        self.saves: list[bool] = []
        Emulator.made = self

    def set_emulation_speed(self, speed: int) -> None:
        assert speed == 0  # as fast as it can

    def save_state(self, file: Any) -> None:
        file.write(b"start")

    def load_state(self, file: Any) -> None:
        assert file.read() == b"start"
        self.memory.clear()

    def button_press(self, button: str) -> None:
        self.is_held = button
        address = {"down": X, "a": LEVEL}.get(button)
        if address is not None:
            self.memory[address] += 1
        if button == "b":
            self.memory[BADGES] = 0b101

    def button_release(self, button: str) -> None:
        assert self.is_held == button
        self.is_held = None

    def tick(self, count: int, render: bool) -> None:
        self.frames += count

    def stop(self, save: bool) -> None:
        self.saves.append(save)


@pytest.fixture
def rom(tmp_path: Path, stand_in: Callable[..., ModuleType]) -> str:
    stand_in("pyboy", PyBoy=Emulator)
    path = tmp_path / "red.gb"
    path.write_bytes(b"")
    return str(path)


def make(**params: Any) -> Any:
    return pufferlib.make("pokemon-red", num_envs=1, backend="serial", **params)


def test_places_levels_and_badges_are_rewarded_once(rom: str) -> None:
    down, a, b, up = (BUTTONS.index(name) for name in ("down", "a", "b", "up"))
    with make(rom_path=rom) as vecenv:
        assert vecenv.reset().shape == (1, 72, 80, 1)
        frames = Emulator.made.frames
        rewards = [float(vecenv.step(button)[1][0]) for button in (down, up, a, b, b)]
        np.testing.assert_allclose(rewards, [0.01, 0, 1, 10, 0], rtol=1e-6)  # two badges
        assert Emulator.made.frames - frames == 5 * 24
        assert vecenv.render(0).shape == (144, 160, 3)
    assert Emulator.made.saves == [False]  # nothing is written beside the ROM


def test_the_time_limit_truncates(rom: str) -> None:
    with make(rom_path=rom, max_steps=2) as vecenv:
        vecenv.reset()
        vecenv.step(BUTTONS.index("down"))
        infos = vecenv.step(BUTTONS.index("down"))[3]
        assert (vecenv.terminals[0], vecenv.truncations[0]) == (False, True)
        assert infos[0]["places"] == 3


def test_the_rom_comes_from_a_param_or_a_variable(
    rom: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ROM_VARIABLE, raising=False)
    with pytest.raises(MissingExtraError) as caught:
        make()
    assert str(caught.value).endswith(f"pass `rom_path`, or set {ROM_VARIABLE} to its path")
    with pytest.raises(UsageError, match=r"`rom_path` must be a file, but got `/no/such\.gb`"):
        make(rom_path="/no/such.gb")
    monkeypatch.setenv(ROM_VARIABLE, rom)
    with make():
        assert Emulator.made.rom == rom


def test_pyboy_runs_a_program_of_our_own(tmp_path: Path, try_integration: ModuleType) -> None:
    pytest.importorskip("pyboy", reason="pyboy is not installed")
    path = tmp_path / "idle.gb"
    path.write_bytes(try_integration.idle_rom())
    with make(rom_path=str(path)) as vecenv:
        vecenv.reset(seed=0)
        rewards = [float(vecenv.step(0)[1][0]) for _ in range(5)]
        assert max(rewards) > 0  # it counts up the place of the hero
    assert sorted(tmp_path.iterdir()) == [path]
