"""Connect4 against a slow twin: a grid, lines searched cell by cell, moves tried one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from splitmix import Rng

import pufferlib

ROWS, COLS = 6, 7
Board = NDArray[np.int8]  # [6, 7], the top row first: 1 agent 0, -1 the other side, 0 empty


def landing(board: Board, col: int) -> int | None:
    """Return the row where a stone comes to rest, None in a full column."""
    free = np.flatnonzero(board[:, col] == 0)
    return int(free[-1]) if len(free) else None


def wins(board: Board, side: int) -> bool:
    for row in range(ROWS):
        for col in range(COLS):
            for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(row + i * down, col + i * right) for i in range(4)]
                if all(r < ROWS and 0 <= c < COLS and board[r, c] == side for r, c in cells):
                    return True
    return False


def wins_at(board: Board, row: int, col: int, side: int) -> bool:
    after = board.copy()
    after[row, col] = side
    return wins(after, side)


class Twin:
    """One game. What a step did is left in `rewards` and `ended`."""

    def __init__(self, rng: Rng, opponent: str, opponent_random: float) -> None:
        self.rng, self.opponent = rng, opponent
        self.opponent_random = np.float32(opponent_random)
        self.reset()

    def reset(self) -> None:
        self.board: Board = np.zeros((ROWS, COLS), np.int8)
        self.side = -1 if self.rng.below(2) else 1
        if self.side == -1 and self.opponent != "self":
            self.play(self.answer())

    def play(self, col: int) -> None:
        while landing(self.board, col) is None:
            col = (col + 1) % COLS
        self.board[landing(self.board, col), col] = self.side
        self.side = -self.side

    def pick(self, columns: Sequence[int], weights: Sequence[int]) -> int:
        bag = [col for col in columns for _ in range(weights[col])]
        return bag[self.rng.below(len(bag))]

    def answer(self) -> int:
        even, centre = [1] * COLS, [1, 2, 3, 4, 3, 2, 1]
        rows = {c: r for c in range(COLS) if (r := landing(self.board, c)) is not None}
        if self.opponent == "random" or self.rng.uniform() < self.opponent_random:
            return self.pick(list(rows), even)
        for side in (-1, 1):  # win, else block
            decisive = [c for c, r in rows.items() if wins_at(self.board, r, c, side)]
            if decisive:
                return self.pick(decisive, even)
        safe = [c for c, r in rows.items() if r == 0 or not wins_at(self.board, r - 1, c, 1)]
        return self.pick(safe or list(rows), centre)

    def settled(self) -> bool:
        for side in (1, -1):
            if wins(self.board, side):
                self.rewards = [side] if self.opponent != "self" else [side, -side]
                return True
        return bool((self.board != 0).all())

    def step(self, actions: NDArray[np.int32]) -> None:
        self.rewards = [0, 0] if self.opponent == "self" else [0]
        self.play(int(actions[0 if self.side == 1 else 1]))
        self.ended = self.settled()
        if not self.ended and self.opponent != "self":
            self.play(self.answer())
            self.ended = self.settled()

    def rows(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return observations [agents, 42] and action masks [agents, 7]."""
        legal = self.board[0] == 0
        waiting = np.arange(COLS) == 0
        observations, masks = [], []
        for side in (1, -1) if self.opponent == "self" else (1,):
            on_turn = side == self.side
            observations.append(self.board.ravel() * (side if on_turn else 0.5 * side))
            masks.append(legal if on_turn else waiting)
        return np.array(observations, np.float32), np.array(masks)


@pytest.mark.parametrize(
    "opponent", [pytest.param("scripted", marks=pytest.mark.slow), "self", "random"]
)
@pytest.mark.parametrize("legal_only", [True, False])
def test_every_row_equals_the_twins(opponent: str, legal_only: bool) -> None:
    num_envs, seed, rng = 4, 21, np.random.default_rng(1)
    twins = [Twin(Rng(seed, i), opponent, opponent_random=0.2) for i in range(num_envs)]
    params = {"opponent": opponent, "opponent_random": 0.2}
    ends, returns = 0, []
    with pufferlib.make("connect4", num_envs=num_envs, **params) as vec:
        agents = vec.num_agents // num_envs
        assert agents == (2 if opponent == "self" else 1)
        observations = vec.reset(seed=seed)
        for _ in range(120):
            expected, masks = zip(*(twin.rows() for twin in twins))
            np.testing.assert_array_equal(observations, np.concatenate(expected))
            np.testing.assert_array_equal(vec.action_masks, np.concatenate(masks))
            odds = rng.random(vec.action_masks.shape)
            actions = np.argmax(odds * vec.action_masks if legal_only else odds, axis=1)
            if not legal_only:  # columns fill up
                actions = np.where(rng.random(len(actions)) < 0.5, 3, actions)
            actions = actions.astype(np.int32)
            observations = vec.step(actions)[0]
            assert vec.masks.all()
            for i, twin in enumerate(twins):
                rows = slice(i * agents, (i + 1) * agents)
                twin.step(actions[rows])
                np.testing.assert_array_equal(vec.rewards[rows], twin.rewards)
                np.testing.assert_array_equal(vec.terminals[rows], twin.ended)
                if twin.ended:
                    ends += 1
                    returns.append(twin.rewards[0])
                    twin.reset()
        assert not vec.truncations.any()
        metrics = vec.drain_metrics()
    assert ends > 10
    assert metrics["episodes"] == ends * agents
    assert metrics["score"] == pytest.approx(np.mean(returns))
    assert metrics["perf"] == pytest.approx(0.5 + np.mean(returns) / 2)


def test_the_script_beats_random_play_nearly_always() -> None:
    rng = np.random.default_rng(2)
    with pufferlib.make("connect4", num_envs=64, opponent_random=0.0) as vec:
        vec.reset(seed=0)
        for _ in range(150):
            vec.step(rng.integers(0, COLS, 64, dtype=np.int32))
        metrics = vec.drain_metrics()
    assert metrics["episodes"] > 500
    assert metrics["perf"] < 0.05


def test_random_play_against_random_play_is_even() -> None:
    rng = np.random.default_rng(3)
    with pufferlib.make("connect4", num_envs=256, opponent="random") as vec:
        vec.reset(seed=0)
        for _ in range(200):
            vec.step(rng.integers(0, COLS, 256, dtype=np.int32))
        metrics = vec.drain_metrics()
    # About 4500 games: standard deviation 0.5 / sqrt(4500) = 0.0075.
    assert metrics["episodes"] > 3000
    assert metrics["perf"] == pytest.approx(0.5, abs=0.04)


def test_render_shows_a_board_with_stones() -> None:
    red, yellow = (0xE5, 0x48, 0x4D), (0xF7, 0xCE, 0x5B)
    with pufferlib.make("connect4", num_envs=1) as vec:
        vec.reset(seed=0)
        vec.step(np.array([3], np.int32))
        frame = np.asarray(vec.render())
    assert frame.shape == (470, 480, 3)
    for color in (red, yellow):
        assert (frame == color).all(axis=-1).sum() > 500
