"""squared against a player of the same rules in Python."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import pufferlib

EMPTY, AGENT, TARGET = 0, 1, 2
# Stay, up, down, left, right, then the diagonals: up-left, up-right, down-left, down-right.
MOVES = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


class Oracle:
    """One env, built from the first observation of an episode."""

    def __init__(self, board: NDArray[np.uint8], max_steps: int) -> None:
        self.side = len(board)
        [(self.row, self.col)] = np.argwhere(board == AGENT)
        self.targets = {(int(row), int(col)) for row, col in np.argwhere(board == TARGET)}
        self.total = len(self.targets)
        self.max_steps = max_steps or 8 * (self.side // 2) * self.total
        self.tick = 0

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Move; return reward, terminal, truncation."""
        self.tick += 1
        row, col = self.row + MOVES[action][0], self.col + MOVES[action][1]
        if 0 <= row < self.side and 0 <= col < self.side:
            self.row, self.col = row, col
        hit = (self.row, self.col) in self.targets
        self.targets.discard((self.row, self.col))
        terminal = not self.targets
        return hit / self.total, terminal, not terminal and self.tick >= self.max_steps

    def board(self) -> NDArray[np.uint8]:
        """What the agent sees."""
        board = np.full((self.side, self.side), EMPTY, dtype=np.uint8)
        for cell in self.targets:
            board[cell] = TARGET
        board[self.row, self.col] = AGENT
        return board


def _check_start(board: NDArray[np.uint8], distance: int, num_targets: int) -> None:
    side = 2 * distance + 1
    assert board.shape == (side, side)
    assert board[distance, distance] == AGENT
    assert (board == AGENT).sum() == 1
    assert (board == TARGET).sum() == min(num_targets, 8 * distance)
    assert (board[1:-1, 1:-1] != TARGET).all()


@pytest.mark.parametrize(
    ("distance", "num_targets", "max_steps"),
    [(3, 4, 0), (1, 1, 0), (1, 8, 30), (2, 120, 25), (5, 3, 0)],
)
def test_random_play_follows_the_rules(distance: int, num_targets: int, max_steps: int) -> None:
    rng = np.random.default_rng(1)
    num_envs, hits, ends = 6, 0, {"terminal": 0, "truncation": 0}
    with pufferlib.make(
        "squared",
        num_envs=num_envs,
        distance=distance,
        num_targets=num_targets,
        max_steps=max_steps,
    ) as vecenv:
        boards = vecenv.reset(seed=7)
        oracles = [Oracle(board, max_steps) for board in boards]
        for board in boards:
            _check_start(board, distance, num_targets)
        for _ in range(600):
            actions = rng.integers(9, size=num_envs)
            boards, rewards, _, _ = vecenv.step(actions)
            for i, oracle in enumerate(oracles):
                reward, terminal, truncation = oracle.step(int(actions[i]))
                assert rewards[i] == np.float32(reward)
                assert (vecenv.terminals[i], vecenv.truncations[i]) == (terminal, truncation)
                hits += reward > 0
                if terminal or truncation:
                    ends["terminal" if terminal else "truncation"] += 1
                    np.testing.assert_array_equal(vecenv.final_observations[i], oracle.board())
                    _check_start(boards[i], distance, num_targets)
                    oracles[i] = Oracle(boards[i], max_steps)
                else:
                    np.testing.assert_array_equal(boards[i], oracle.board())
    assert hits > 0
    assert ends["terminal"] + ends["truncation"] > 0


def _towards_nearest(board: NDArray[np.uint8]) -> int:
    """A king's move towards the nearest target."""
    [here] = np.argwhere(board == AGENT)
    targets = np.argwhere(board == TARGET)
    nearest = targets[np.abs(targets - here).max(axis=1).argmin()]
    row, col = np.sign(nearest - here)
    return MOVES.index((int(row), int(col)))


def test_a_full_tour_scores_every_target_and_returns_1() -> None:
    with pufferlib.make("squared", num_envs=5, num_targets=5) as vecenv:
        vecenv.reset(seed=2)
        for _ in range(200):
            vecenv.step(np.array([_towards_nearest(board) for board in vecenv.observations]))
            assert not vecenv.truncations.any()
        metrics = vecenv.drain_metrics()
    assert metrics["episodes"] >= 5
    assert metrics["mean_reward"] == pytest.approx(1, abs=1e-5)
    assert metrics["score"] == 5
    assert metrics["perf"] == 1


def test_standing_still_is_cut_with_perf_0() -> None:
    with pufferlib.make("squared", num_envs=3, max_steps=7) as vecenv:
        vecenv.reset(seed=2)
        for step in range(1, 15):
            vecenv.step(np.zeros(3, dtype=np.int64))
            assert vecenv.truncations.all() == vecenv.truncations.any() == (step % 7 == 0)
        metrics = vecenv.drain_metrics()
    assert metrics["episodes"] == 6
    assert metrics["episode_length"] == 7
    assert metrics["score"] == metrics["perf"] == metrics["mean_reward"] == 0


def test_every_border_cell_is_equally_often_a_target() -> None:
    # 4096 boards, 4 targets on 24 cells: each cell is hit with p = 1/6, deviation 0.0058.
    with pufferlib.make("squared", num_envs=4096) as vecenv:
        share = (vecenv.reset(seed=0) == TARGET).mean(axis=0)
    border = np.ones((7, 7), dtype=bool)
    border[1:-1, 1:-1] = False
    assert (share[~border] == 0).all()
    np.testing.assert_allclose(share[border], 1 / 6, atol=5 * 0.0058)
