"""`puffer play`: keys, half blocks, and a game in a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from waiting import PATIENCE

from pufferlib.cli import main
from pufferlib.cli.play import Controls, make_controls
from pufferlib.cli.screens import half_blocks, read_keys
from pufferlib.native import infos
from pufferlib.spaces import action_layout
from pufferlib.vectorization import make


def controls(space: gymnasium.Space[object], *names: str) -> Controls:
    return make_controls(action_layout(space), [part.split() for part in names])


def test_a_character_shows_two_pixels() -> None:
    picture = np.zeros((4, 2, 3), np.uint8)
    picture[0, 0] = 255, 0, 0  # red above
    picture[1, 0] = 0, 0, 255  # blue below
    upper, lower = half_blocks(picture, columns=2, lines=2)
    red_on_blue = "\x1b[38;2;255;0;0m\x1b[48;2;0;0;255m▀"
    assert upper == red_on_blue + "\x1b[38;2;0;0;0m\x1b[48;2;0;0;0m▀"
    assert lower == "\x1b[38;2;0;0;0m\x1b[48;2;0;0;0m▀▀"  # colours are named where they change


@pytest.mark.parametrize(("columns", "lines", "size"), [(80, 24, (80, 20)), (20, 24, (20, 5))])
def test_a_picture_fills_the_terminal_in_one_direction(
    columns: int, lines: int, size: tuple[int, int]
) -> None:
    rows = half_blocks(np.full((100, 200, 3), 7, np.uint8), columns, lines)
    assert (rows[0].count("▀"), len(rows)) == size
    assert re.findall(r"8;2;(\d+);", rows[0]) == ["7", "7"]  # a mean of equal pixels


def test_a_small_picture_is_enlarged() -> None:
    assert len(half_blocks(np.zeros((8, 8, 3), np.uint8), 80, 24)) == 24


def test_keys_have_names() -> None:
    assert read_keys("\x1b[A\x1bOB d\r") == ["up", "down", "space", "d", "enter"]
    assert read_keys("\x1b") == read_keys("\x03") == read_keys("Q") == ["q"]


def test_named_choices_get_the_keys_one_expects() -> None:
    ship = controls(Discrete(5), "stay left right thrust fire")
    assert ship.keys == [{"left": 1, "right": 2, "space": 3, "f": 4}]
    assert not ship.waits
    assert ship.choose([], set()) == [0]
    assert ship.choose(["left"], {"space"}) == [1]  # what was pressed now counts first
    assert "← left" in ship.help


def test_a_game_without_an_idle_choice_waits_for_a_key() -> None:
    snake = controls(Discrete(4), "up right down left")
    assert snake.waits
    assert snake.choose([], set()) is None
    assert snake.choose(["down"], set()) == [2]


def test_components_are_chosen_together() -> None:
    slime = controls(MultiDiscrete([3, 2]), "stay left right", "ground jump")
    assert slime.choose([], {"right", "space"}) == [2, 1]


def test_numbers_follow_the_axes() -> None:
    car = controls(Box(-2, 2, (2,), np.float32), "steer", "throttle")
    assert car.reals({"left", "up"}).tolist() == [-1.0, 1.0]
    assert car.reals(set()).tolist() == [0.0, 0.0]
    assert not car.waits


def test_many_choices_are_typed_as_numbers() -> None:
    board = controls(Discrete(65))
    assert board.choose(["6", "4"], set()) is None
    assert board.typed == " > 64"
    assert board.choose(["enter"], set()) == [64]
    assert board.choose(["9", "9", "enter"], set()) is None  # no such choice
    assert board.choose(["1", "2", "backspace", "enter"], set()) == [1]


def test_every_c_env_can_be_played() -> None:
    for name, info in infos().items():
        with make(name, num_envs=1, num_workers=1) as vecenv:
            layout = action_layout(vecenv.action_space)
        found = make_controls(layout, info.action_names)
        if found.types_numbers:
            continue
        for count, keys, idle in zip(layout.nvec, found.keys, found.idle, strict=True):
            assert {*keys.values(), idle} >= set(range(count)), name


def test_play_needs_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "pong"]) == 2
    assert "`puffer play` needs a terminal" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["pong"], ["connect4"], ["pong", "--pretrained"]])
def test_a_game_runs_in_a_terminal_until_q(words: list[str]) -> None:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "pufferlib", "play", *words]
    environment = {**os.environ, "COLUMNS": "60", "LINES": "20"}
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=subprocess.PIPE, env=environment
    )
    os.close(child)
    try:
        seen = read_until(parent, b"q quit")
        assert "▀".encode() in seen
        os.write(parent, b"\x1b[A4")
        read_until(parent, b"q quit")
        os.write(parent, b"q")
        seen = read_until(parent, b"\x1b[?1049l")  # the screen from before is back
        assert b"\x1b[?25h" in seen
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.wait()
        os.close(parent)


def read_until(file: int, text: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + PATIENCE
    while text not in seen:
        assert select.select([file], [], [], deadline - time.monotonic())[0], seen[-200:]
        seen += os.read(file, 65536)
    return seen
