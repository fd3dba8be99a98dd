"""Breakout against a slow twin: the ball's square and every brick's rectangle, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pufferlib
from pufferlib.errors import UsageError

COURT, TOP, BRICK_HEIGHT, PADDLE_TOP, FRAMESKIP = 84, 12, 3, 77, 4
PADDLE_WIDTH, PADDLE_SPEED, BALL_SPEED, SPEEDUP, BOUNCE = 12, 1.25, 1.5, 0.5, 0.85
MAX_SPEED = BALL_SPEED * (1 + SPEEDUP)
ROWS, COLS = 6, 18


class Twin:
    """The game of one observation row, played on in double precision."""

    def __init__(self, row: NDArray[np.float32]) -> None:
        paddle, x, y, vx, vy, lives = (float(v) for v in row[:6])
        self.paddle, self.x, self.y = ((v + 1) * COURT / 2 for v in (paddle, x, y))
        self.vx, self.vy = vx * MAX_SPEED, vy * MAX_SPEED
        self.lives = round(5 * lives)
        self.bricks = {divmod(int(i), COLS) for i in np.flatnonzero(row[6:])}
        self.reward = 0.0

    def step(self, action: int) -> bool:
        """Play one step; False when the ball was lost or no brick is left."""
        for _ in range(FRAMESKIP):
            self.paddle += PADDLE_SPEED * (0, -1, 1)[action]
            self.paddle = min(max(self.paddle, PADDLE_WIDTH / 2), COURT - PADDLE_WIDTH / 2)
            above = self.y + 1 <= PADDLE_TOP
            self._move_sideways()
            self._move_upright()
            offset = self.x - self.paddle
            reach = PADDLE_WIDTH / 2 + 1
            if above and self.y + 1 > PADDLE_TOP and abs(offset) <= reach:
                speed = min(np.hypot(self.vx, self.vy) + BALL_SPEED * SPEEDUP / 20, MAX_SPEED)
                self.vx = speed * BOUNCE * offset / reach
                self.vy = -np.sqrt(speed**2 - self.vx**2)
                self.y = PADDLE_TOP - 1
            if not self.bricks or self.y + 1 >= COURT:
                return False
        return True

    def _move_sideways(self) -> None:
        self.x += self.vx
        brick = self._touched(lambda row, col: abs((row + 0.5) * BRICK_HEIGHT + TOP - self.y))
        if brick is not None:
            left = brick[1] * COURT / COLS
            self.x = left - 1.001 if self.vx > 0 else left + COURT / COLS + 1.001
        elif 1 <= self.x <= COURT - 1:
            return
        self.x = min(max(self.x, 1), COURT - 1)
        self.vx = -self.vx

    def _move_upright(self) -> None:
        self.y += self.vy
        brick = self._touched(lambda row, col: abs((col + 0.5) * COURT / COLS - self.x))
        if brick is not None:
            top = TOP + BRICK_HEIGHT * brick[0]
            self.y = top - 1.001 if self.vy > 0 else top + BRICK_HEIGHT + 1.001
        elif self.y >= 1:
            return
        self.y = max(self.y, 1)
        self.vy = -self.vy

    def _touched(self, distance: Any) -> tuple[int, int] | None:
        """Remove and return the nearest brick that the ball's square overlaps."""
        width = COURT / COLS
        touched = [
            (row, col)
            for row, col in self.bricks
            if self.x + 1 > col * width
            and self.x - 1 < (col + 1) * width
            and self.y + 1 > TOP + row * BRICK_HEIGHT
            and self.y - 1 < TOP + (row + 1) * BRICK_HEIGHT
        ]
        if not touched:
            return None
        brick = min(touched, key=lambda at: distance(*at))
        self.bricks.remove(brick)
        self.reward += 1
        return brick

    def row(self) -> NDArray[np.float64]:
        """Return what the env must show now."""
        bricks = np.zeros(ROWS * COLS)
        bricks[[row * COLS + col for row, col in self.bricks]] = 1
        places = np.array([self.paddle, self.x, self.y]) * 2 / COURT - 1
        return np.concatenate(
            [places, [self.vx / MAX_SPEED, self.vy / MAX_SPEED, self.lives / 5], bricks]
        )


def follow(observations: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int32]:
    """Stay under the ball, roughly, so that it comes off the paddle at many angles."""
    away = observations[:, 1] - observations[:, 0] + rng.uniform(-0.15, 0.15, len(observations))
    return np.where(away < -0.05, 1, np.where(away > 0.05, 2, 0)).astype(np.int32)


def test_every_step_matches_the_slow_twin() -> None:
    rng = np.random.default_rng(0)
    compared = broken = lost = 0
    with pufferlib.make("breakout", num_envs=8) as env:
        env.reset(seed=5)
        for _ in range(800):
            twins = [Twin(row) for row in env.observations]
            actions = follow(env.observations, rng)
            env.step(actions)
            for i, twin in enumerate(twins):
                in_play = twin.step(int(actions[i]))
                assert env.rewards[i] == twin.reward
                broken += int(twin.reward)
                if in_play:
                    assert not env.terminals[i]
                    np.testing.assert_allclose(env.observations[i], twin.row(), atol=1e-5)
                    compared += 1
                elif twin.lives > 1 and twin.bricks:  # a new ball, the same wall
                    expected = [0, (TOP + BRICK_HEIGHT * ROWS + 4) * 2 / COURT - 1]
                    np.testing.assert_allclose(env.observations[i][[0, 2]], expected, atol=1e-6)
                    np.testing.assert_array_equal(env.observations[i][6:], twin.row()[6:])
                    assert env.observations[i][5] == np.float32((twin.lives - 1) / 5)
                    lost += 1
                else:
                    assert env.terminals[i]
    assert compared > 6000
    assert broken > 300
    assert lost > 10


def test_observations_stay_in_their_space() -> None:
    rng = np.random.default_rng(1)
    fast: dict[str, Any] = {"ball_speed": 4, "speedup": 2, "paddle_width": 40}
    for settings in ({}, fast, {"obs": "pixels"}):
        with pufferlib.make("breakout", num_envs=4, **settings) as env:
            env.reset(seed=0)
            for _ in range(200):
                env.step(rng.integers(0, 3, 4))
                assert all(env.observation_space.contains(row) for row in env.observations)


def test_pixels_and_features_show_the_same_game() -> None:
    rng = np.random.default_rng(2)
    with (
        pufferlib.make("breakout", num_envs=4, obs="pixels") as pixels,
        pufferlib.make("breakout", num_envs=4) as features,
    ):
        assert pixels.observation_space.shape == (84, 84, 1)
        assert pixels.observation_space.dtype == np.uint8
        pixels.reset(seed=3)
        features.reset(seed=3)
        for _ in range(200):
            actions = follow(features.observations, rng)
            pixels.step(actions)
            features.step(actions)
            np.testing.assert_array_equal(pixels.rewards, features.rewards)
            for image, row in zip(pixels.observations[..., 0], features.observations, strict=True):
                left = (row[0] + 1) * COURT / 2 - PADDLE_WIDTH / 2
                inside = image[77:79, int(np.ceil(left + 0.5)) : int(left + PADDLE_WIDTH - 0.5)]
                assert inside.size >= 20
                assert (inside == 237).all()  # luma of the paddle's colour f3eddf
                x, y = ((row[1:3] + 1) * COURT / 2).astype(int)
                near_ball = image[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
                assert near_ball.max() > 130
                bricks = row[6:].reshape(ROWS, COLS) > 0
                middles = ((np.arange(COLS) + 0.5) * COURT / COLS).astype(int)
                rows = TOP + BRICK_HEIGHT * np.arange(ROWS) + 1
                lit = image[np.ix_(rows, middles)] > 100
                assert (lit != bricks).sum() <= 4  # but for the ball and its tail


def test_score_and_perf_count_what_was_broken() -> None:
    # One row of one brick, 84 wide: the first hit of the wall clears it. 1 point, perf 1.
    with pufferlib.make("breakout", num_envs=4, brick_rows=1, brick_cols=1, paddle_width=84) as env:
        env.reset(seed=0)
        for _ in range(60):
            env.step(np.zeros(4, np.int32))
        metrics = env.drain_metrics()
    assert metrics["episodes"] >= 4
    assert metrics["score"] == metrics["perf"] == metrics["mean_reward"] == 1


def test_an_unknown_param_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="paddle_width"):
        pufferlib.make("breakout", num_envs=8, paddle_widht=3)
