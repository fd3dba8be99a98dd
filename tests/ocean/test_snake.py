"""Snake against a slow twin: lists of cells, dicts, and windows looked up cell by cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from splitmix import Rng

import pufferlib
from pufferlib import native
from pufferlib.errors import UsageError

FOOD, EMPTY, WALL, HEAD, BODY, OWN, SELF = range(7)
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
TRIES = 32
Cell = tuple[int, int]


@dataclass
class Snake:
    length: int
    cells: list[Cell] = field(default_factory=list)  # head first; empty while it waits
    direction: int = 0


class Twin:
    """One board. What a tick did is left in `rewards`, `terminals` and `truncated`."""

    def __init__(
        self,
        rng: Rng,
        width: int = 40,
        height: int = 40,
        num_agents: int = 16,
        num_food: int = 48,
        vision: int = 5,
        initial_length: int = 3,
        max_length: int = 64,
        max_steps: int = 1024,
        leave_corpse: int = 0,
    ) -> None:
        self.rng, self.width, self.height = rng, width, height
        self.num_agents, self.num_food, self.vision = num_agents, num_food, vision
        self.initial_length = min(initial_length, max_length)
        self.max_length, self.max_steps, self.leave_corpse = max_length, max_steps, leave_corpse
        self.reset()

    def reset(self) -> None:
        self.tick = 0
        self.food: set[Cell] = set()
        self.snakes: list[Snake] = []
        for _ in range(self.num_agents):
            self.snakes.append(self.spawn())
        self.refill()

    def guess(self) -> Cell | None:
        taken = {cell for snake in self.snakes for cell in snake.cells} | self.food
        for _ in range(TRIES):
            row = self.rng.below(self.height)
            cell = (row, self.rng.below(self.width))
            if cell not in taken:
                return cell
        return None

    def spawn(self) -> Snake:
        cell = self.guess()
        return Snake(self.initial_length, [cell] if cell else [])

    def refill(self) -> None:
        while len(self.food) < self.num_food:
            cell = self.guess()
            if cell is None:
                return
            self.food.add(cell)

    def step(self, actions: NDArray[np.int32]) -> None:
        self.tick += 1
        self.rewards = np.zeros(self.num_agents, np.float32)
        self.terminals = np.zeros(self.num_agents, bool)
        targets: dict[int, Cell] = {}
        for k, snake in enumerate(self.snakes):
            if not snake.cells:
                continue
            action = int(actions[k])
            if len(snake.cells) > 1 and action == (snake.direction + 2) % 4:
                action = snake.direction
            snake.direction = action
            row, col = snake.cells[0]
            targets[k] = (row + MOVES[action][0], col + MOVES[action][1])
            if len(snake.cells) == snake.length:
                snake.cells.pop()
        bodies = {cell for snake in self.snakes for cell in snake.cells}
        entered = list(targets.values())
        for k, (row, col) in targets.items():
            inside = 0 <= row < self.height and 0 <= col < self.width
            if not inside or (row, col) in bodies or entered.count((row, col)) > 1:
                self.terminals[k] = True
        for k, target in targets.items():
            snake = self.snakes[k]
            if self.terminals[k]:
                self.rewards[k] = -1
                if self.leave_corpse:
                    self.food |= set(snake.cells)
                snake.cells = []
                continue
            snake.cells.insert(0, target)
            if target in self.food:
                self.food.remove(target)
                self.rewards[k] = 0.2
                snake.length = min(snake.length + 1, self.max_length)
        for k, snake in enumerate(self.snakes):
            if not snake.cells:
                self.snakes[k] = self.spawn()
        self.refill()
        self.truncated = self.tick == self.max_steps

    @property
    def present(self) -> NDArray[np.bool_]:
        return np.array([bool(snake.cells) for snake in self.snakes])

    def windows(self) -> NDArray[np.uint8]:
        codes = dict.fromkeys(self.food, FOOD)
        for snake in self.snakes:
            codes.update(dict.fromkeys(snake.cells, BODY) | dict.fromkeys(snake.cells[:1], HEAD))
        side = 2 * self.vision + 1
        windows = np.full((self.num_agents, side, side), WALL, np.uint8)
        for k, snake in enumerate(self.snakes):
            if not snake.cells:
                continue
            own = dict.fromkeys(snake.cells, OWN) | {snake.cells[0]: SELF}
            top, left = (x - self.vision for x in snake.cells[0])
            for row in range(max(top, 0), min(top + side, self.height)):
                for col in range(max(left, 0), min(left + side, self.width)):
                    code = own.get((row, col), codes.get((row, col), EMPTY))
                    windows[k, row - top, col - left] = code
        return windows


def careful(windows: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.int32]:
    """Return random moves that mostly eat what lies ahead and avoid what kills."""
    vision = windows.shape[1] // 2
    ahead = np.stack(
        [windows[:, vision + row, vision + col] for row, col in MOVES], axis=1, dtype=np.float64
    )
    ahead[ahead >= WALL] = 9
    choices = np.argmin(ahead + rng.random(ahead.shape), axis=1)
    wild = rng.random(len(choices)) < 0.1
    return np.where(wild, rng.integers(0, 4, len(choices)), choices).astype(np.int32)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"width": 12, "height": 9, "num_agents": 7, "num_food": 30, "max_steps": 70},
        {"width": 8, "height": 8, "num_agents": 40, "num_food": 9, "vision": 2, "leave_corpse": 1},
        {"width": 20, "height": 14, "num_agents": 3, "num_food": 200, "vision": 8, "max_length": 9},
        {"width": 16, "height": 16, "num_agents": 2, "initial_length": 90, "max_length": 40},
    ],
)
def test_every_row_equals_the_twins(params: dict[str, int]) -> None:
    num_envs, seed, rng = 2, 11, np.random.default_rng(0)
    twins = [Twin(Rng(seed, index), **params) for index in range(num_envs)]
    ends = meals = cuts = 0
    with pufferlib.make("snake", num_envs=num_envs, **params) as vec:
        observations = vec.reset(seed=seed)
        for _ in range(200):
            expected = np.concatenate([twin.windows() for twin in twins])
            np.testing.assert_array_equal(observations, expected)
            np.testing.assert_array_equal(vec.masks, np.concatenate([t.present for t in twins]))
            actions = careful(observations, rng)
            observations = vec.step(actions)[0]
            for twin, rows in zip(twins, np.split(np.arange(len(actions)), num_envs)):
                before = twin.present
                twin.step(actions[rows])
                np.testing.assert_array_equal(vec.rewards[rows], twin.rewards)
                np.testing.assert_array_equal(vec.terminals[rows], twin.terminals)
                # A snake that ended in this very tick, or waits, is not cut off.
                cut = twin.truncated & twin.present & ~twin.terminals
                np.testing.assert_array_equal(vec.truncations[rows], cut)
                assert not twin.terminals[~before].any()
                if twin.truncated:
                    np.testing.assert_array_equal(vec.final_observations[rows], twin.windows())
                    twin.reset()
                ends += int(twin.terminals.sum())
                meals += int((twin.rewards > 0).sum())
                cuts += int(cut.sum())
    assert ends > 0
    assert meals > 0
    assert (cuts > 0) == ("max_steps" in params)


def test_score_is_the_length_at_death_and_perf_its_share_of_the_target() -> None:
    # No snake eats on the way up from a board without room for luck: food is on one cell of 40000.
    # A snake that only goes up unfolds to 3 cells and dies at the wall: score 3, perf 3/6.
    params = {"width": 200, "height": 200, "num_agents": 1, "num_food": 1, "target_length": 6}
    with pufferlib.make("snake", num_envs=64, **params) as vec:
        vec.reset(seed=0)
        vec.drain_metrics()
        for _ in range(200):
            vec.step(np.zeros(64, np.int32))
        metrics = vec.drain_metrics()
    assert metrics["episodes"] >= 64
    assert 3 <= metrics["score"] < 3.1
    assert metrics["perf"] == pytest.approx(metrics["score"] / 6)
    # -1 for the death, 0.2 for what was eaten by chance.
    assert -1 <= metrics["mean_reward"] < -0.9


def test_planes_show_one_code_each() -> None:
    with (
        pufferlib.make("snake", num_envs=2, obs="planes") as planes,
        pufferlib.make("snake", num_envs=2) as codes,
    ):
        window = codes.reset(seed=5).reshape(32, 1, 121)
        one_hot = window == np.array([FOOD, WALL, HEAD, BODY, OWN])[:, None]
        np.testing.assert_array_equal(planes.reset(seed=5), one_hot)


def test_render_shows_food_in_red_and_grows_with_the_board() -> None:
    with pufferlib.make("snake", num_envs=1, width=20, height=10) as vec:
        vec.reset(seed=0)
        frame = np.asarray(vec.render())
    # 640 // 20 = 32 pixels a cell, a frame of 6 on each side, a header of 28.
    assert frame.shape == (10 * 32 + 12 + 28, 20 * 32 + 12, 3)
    assert (frame == (0xE5, 0x48, 0x4D)).all(axis=-1).sum() > 48 * 100


# ---- States from a file --------------------------------------------------------------------------

NUM, RING = 2, 64
SNAKES = slice(80, 80 + 8 * NUM)  # of a snapshot: head, size, length as uint16; direction, fate
RINGS = slice(SNAKES.stop, SNAKES.stop + 2 * NUM * RING)


def unfolded() -> native.NativeVec:
    """Return a board whose first snake has at least three cells."""
    vec = native.NativeVec("snake", 1, 1, {"num_agents": NUM, "max_length": RING})
    vec.reset(3)
    rng = np.random.default_rng(0)
    while vec.snapshot()[0, SNAKES].view(np.uint16)[1] < 3:
        vec.buffers.actions[:] = rng.integers(4, size=NUM)
        vec.step()
    return vec


def cell(state: NDArray[np.uint8], i: int) -> NDArray[np.uint16]:
    """Return the first snake's i-th cell, counted from its head."""
    head = int(state[0, SNAKES].view(np.uint16)[0])
    at = (head - i) % RING
    return state[0, RINGS].view(np.uint16)[at : at + 1]


def double_a_cell(state: NDArray[np.uint8]) -> None:
    cell(state, 2)[:] = cell(state, 1)  # the body of its third cell stays on the board


def swap_two_cells(state: NDArray[np.uint8]) -> None:
    cell(state, 1)[:], cell(state, 2)[:] = cell(state, 2).copy(), cell(state, 1).copy()


def turn_back(state: NDArray[np.uint8]) -> None:
    state[0, SNAKES][6] ^= 2  # a direction towards its own neck


def grow_at_once(state: NDArray[np.uint8]) -> None:
    state[0, SNAKES].view(np.uint16)[2] = RING  # as if it had eaten all that in one tick


def be_dead(state: NDArray[np.uint8]) -> None:
    state[0, SNAKES][7] = 2


@pytest.mark.parametrize("forge", [double_a_cell, swap_two_cells, turn_back, grow_at_once, be_dead])
def test_a_state_that_play_never_reaches_is_refused(
    forge: Callable[[NDArray[np.uint8]], None],
) -> None:
    vec = unfolded()
    state = vec.snapshot()
    vec.restore(state)
    forge(state)
    with pytest.raises(UsageError, match="state that play cannot reach"):
        vec.restore(state)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"width": 8, "height": 8, "num_agents": 60, "max_length": 2, "leave_corpse": 1},
        {"width": 8, "height": 8, "num_agents": 4, "num_food": 64, "initial_length": 20},
        {"num_agents": 1, "num_food": 1600, "max_length": 1000, "max_steps": 100000},
        {"num_agents": 40, "leave_corpse": 1, "initial_length": 1000, "max_length": 1000},
    ],
    ids=str,
)
def test_no_state_of_play_is_refused(params: dict[str, int]) -> None:
    rng = np.random.default_rng(0)
    with pufferlib.make("snake", num_envs=2, **params) as vecenv:
        vecenv.reset(seed=0)
        actions = rng.integers(4, size=vecenv.num_agents)
        for _ in range(1500):
            turns = rng.random(vecenv.num_agents) < 0.3  # straight on else: random moves eat little
            actions[turns] = rng.integers(4, size=turns.sum())
            vecenv.step(actions)
            vecenv.restore(vecenv.snapshot())
