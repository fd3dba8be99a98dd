"""Pong against a slow twin that finds each contact by bisection of the ball's path."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import pufferlib

WIDTH, HEIGHT, FRAMESKIP = 96, 72, 4
SIZE, PADDLE_SPEED, OPPONENT_SPEED, SIGHT = 12, 1.25, 0.6, 0.6
# With the default 1.5 a ball may end a tick exactly on a line, where rounding decides.
BALL_SPEED, SPEEDUP, BOUNCE = 1.47, 0.5, 0.8
MAX_SPEED = BALL_SPEED * (1 + SPEEDUP)
AGENT_LINE, OPPONENT_LINE = 90, 6  # where the ball's centre is when it touches a paddle


def fold(y: float) -> float:
    """Return the height inside the walls of a ball that flew to `y` as if there were none."""
    span = HEIGHT - 2
    y = (y - 1) % (2 * span)
    return 1 + (y if y <= span else 2 * span - y)


def moved(middle: float, shift: float) -> float:
    """Return a paddle's middle after a move that the walls limit."""
    return min(max(middle + shift, SIZE / 2), HEIGHT - SIZE / 2)


class Twin:
    """The game of one observation row, played on in double precision."""

    def __init__(self, row: NDArray[np.float32]) -> None:
        agent, opponent, x, y, vx, vy, won, lost = (float(v) for v in row)
        self.agent, self.opponent, self.y = ((v + 1) * HEIGHT / 2 for v in (agent, opponent, y))
        self.x = (x + 1) * WIDTH / 2
        self.vx, self.vy = vx * MAX_SPEED, vy * MAX_SPEED
        self.won, self.lost = round(21 * won), round(21 * lost)
        self.reward = 0

    def step(self, action: int) -> bool:
        """Play one step; False when a point was made."""
        for _ in range(FRAMESKIP):
            self.agent = moved(self.agent, PADDLE_SPEED * (0, -1, 1)[action])
            seen = self.vx < 0 and self.x <= SIGHT * WIDTH
            away = (self.y if seen else HEIGHT / 2) - self.opponent
            self.opponent = moved(
                self.opponent, float(np.clip(away, -OPPONENT_SPEED, OPPONENT_SPEED))
            )
            if not self._bounce():
                y = self.y + self.vy
                self.x += self.vx
                self.y = fold(y)
                if self.y != y:
                    self.vy = -self.vy
            self.reward = int(self.x <= 1) - int(self.x >= WIDTH - 1)
            if self.reward:
                return False
        return True

    def _bounce(self) -> bool:
        """Send the ball back if this tick takes it onto a paddle."""
        line, middle = (AGENT_LINE, self.agent) if self.vx > 0 else (OPPONENT_LINE, self.opponent)

        def beyond(part: float) -> bool:
            ahead = (self.x + part * self.vx - line) * np.sign(self.vx)
            return bool(ahead >= -1e-9)

        if beyond(0) or not beyond(1):
            return False
        low, high = 0.0, 1.0
        for _ in range(50):
            part = (low + high) / 2
            low, high = (low, part) if beyond(part) else (part, high)
        y = fold(self.y + high * self.vy)
        offset = (y - middle) / (SIZE / 2 + 1)
        if abs(offset) > 1:
            return False
        speed = min(np.hypot(self.vx, self.vy) + BALL_SPEED * SPEEDUP / 10, MAX_SPEED)
        self.x, self.y = line, y
        self.vy = speed * BOUNCE * offset
        self.vx = -np.sign(self.vx) * np.sqrt(speed**2 - self.vy**2)
        return True

    def row(self) -> NDArray[np.float64]:
        """Return what the env must show now."""
        agent, opponent, y = (v * 2 / HEIGHT - 1 for v in (self.agent, self.opponent, self.y))
        x, vx, vy = self.x * 2 / WIDTH - 1, self.vx / MAX_SPEED, self.vy / MAX_SPEED
        return np.array([agent, opponent, x, y, vx, vy, self.won / 21, self.lost / 21])


def follow(observations: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int32]:
    """Stay level with the ball, roughly, so that it comes off the paddle at many angles."""
    away = observations[:, 3] - observations[:, 0] + rng.uniform(-0.2, 0.2, len(observations))
    return np.where(away < -0.05, 1, np.where(away > 0.05, 2, 0)).astype(np.int32)


def test_every_step_matches_the_slow_twin() -> None:
    rng = np.random.default_rng(0)
    compared = 0
    points = {1: 0, -1: 0}
    with pufferlib.make("pong", num_envs=8, ball_speed=BALL_SPEED) as env:
        env.reset(seed=5)
        for _ in range(1000):
            twins = [Twin(row) for row in env.observations]
            actions = follow(env.observations, rng)
            env.step(actions)
            for i, twin in enumerate(twins):
                if twin.step(int(actions[i])):
                    np.testing.assert_allclose(env.observations[i], twin.row(), atol=1e-5)
                    assert env.rewards[i] == 0
                    compared += 1
                    continue
                assert env.rewards[i] == twin.reward
                points[twin.reward] += 1
                won, lost = twin.won + (twin.reward > 0), twin.lost + (twin.reward < 0)
                over = max(won, lost) == 21
                assert env.terminals[i] == over
                # A new rally: paddles in the middle, the ball on the centre line.
                expected = [0, 0, 0, *((0, 0) if over else (won / 21, lost / 21))]
                np.testing.assert_allclose(
                    env.observations[i][[0, 1, 2, 6, 7]], expected, atol=1e-6
                )
    assert compared > 7000
    assert min(points.values()) > 5


def test_a_game_that_never_moves_is_lost_and_reports_it() -> None:
    with pufferlib.make("pong", num_envs=16, max_score=3) as env:
        env.reset(seed=0)
        returns = np.zeros(16)
        scores = []
        for _ in range(600):
            env.step(np.zeros(16, np.int32))
            returns += env.rewards
            ended = env.terminals
            scores += list(returns[ended])
            returns[ended] = 0
        metrics = env.drain_metrics()
    assert metrics["episodes"] == len(scores) >= 16
    assert np.isclose(metrics["score"], np.mean(scores))
    assert np.isclose(metrics["perf"], np.mean(np.maximum(scores, 0)) / 3)
    assert all(1 <= abs(score) <= 3 for score in scores)


def test_observations_stay_in_their_space() -> None:
    rng = np.random.default_rng(1)
    fast: dict[str, Any] = {"ball_speed": 4, "speedup": 2, "bounce": 0.95}
    for settings in ({}, fast):
        with pufferlib.make("pong", num_envs=4, **settings) as env:
            env.reset(seed=0)
            for _ in range(500):
                env.step(rng.integers(0, 3, 4))
                assert all(env.observation_space.contains(row) for row in env.observations)
