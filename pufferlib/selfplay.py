"""SelfPlay: a two-sided env in which the other side is played by the policy's own past.

The learner plays one side of every game, the first in even envs and the second in odd ones. The
other side is the latest policy itself in a part of the games, else one of a pool of snapshots,
drawn anew for each game. Games against the pool give ratings (Elo 1978): a number that rises while
the policy gets stronger, which a win rate against itself, always one half, cannot show.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.config import TrainConfig
from pufferlib.episodes import EpisodeTracker
from pufferlib.errors import UsageError
from pufferlib.pytorch import (
    PolicySpaces,
    State,
    env_actions,
    map_state,
    policy_spaces,
    policy_step,
    sample,
    unwrapped,
)
from pufferlib.vectorization import VectorEnv

START_RATING = 1000.0
RATING_STEP = 8.0  # how far one game moves a rating; small, since there are very many games
_LATEST = -1  # in place of a number of the pool


@dataclass
class Member:
    """A past policy and its rating."""

    policy: nn.Module
    rating: float
    iteration: int


def as_self_play(env: VectorEnv, settings: Mapping[str, Any]) -> VectorEnv:
    """Return the learner's half of `env` if the settings of a run ask for self-play, else `env`."""
    config = TrainConfig.from_dict(settings)
    if not config.self_play or isinstance(env, SelfPlay):
        return env
    return SelfPlay(
        env,
        pool_size=config.self_play_pool,
        interval=config.self_play_interval,
        seed=config.seed,
    )


class SelfPlay(VectorEnv):
    """The learner's half of `env`, whose envs have two sides of equally many agents.

    `note_policy` must be called before the first step and then once an iteration; PuffeRL does so.
    Every `interval` iterations the policy joins the pool; of more than `pool_size` the second
    oldest leaves, so that the pool keeps its beginning and its recent past. `latest_share` of the
    games are against the present policy. Beyond the usual metrics there are `elo`, `win_rate`
    against the pool (a draw counts half) and `pool_size`. `env` is closed with this.
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        pool_size: int = 8,
        interval: int = 20,
        latest_share: float = 0.5,
        seed: int = 0,
    ) -> None:
        if env.agents_per_env % 2 or env.batch_slots != env.num_agents:
            raise UsageError(
                "`env` must have two sides of equally many agents and whole batches, but "
                f"{env.name or type(env).__name__} has {env.agents_per_env} agent(s) in an env. "
                "Try `opponent='self'` where the env has such a param."
            )
        for name, value in (("pool_size", pool_size), ("interval", interval)):
            if value < 1:
                raise UsageError(f"`{name}` must be at least 1, but got {value}.")
        if not 0 <= latest_share <= 1:
            raise UsageError(f"`latest_share` must be between 0 and 1, but got {latest_share}.")
        self._inner = env
        self.name = env.name
        self.num_envs, self.num_workers = env.num_envs, env.num_workers
        self.agents_per_env = env.agents_per_env // 2
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._spaces: PolicySpaces = policy_spaces(env)
        self._pool_size, self._interval, self._latest_share = pool_size, interval, latest_share
        rows = np.arange(env.num_agents).reshape(env.num_envs, 2, self.agents_per_env)
        own = np.arange(env.num_envs) % 2  # the side of the learner in each env
        each = np.arange(env.num_envs)
        self._own = rows[each, own].ravel()
        self._other = rows[each, 1 - own].ravel()
        self.pool: list[Member] = []
        self.rating = START_RATING
        self._policy: nn.Module | None = None
        self._normalise: Callable[[Tensor], Tensor] | None = None
        self._rng = np.random.default_rng(seed)
        self._sample_rng = torch.Generator().manual_seed(seed)
        self._games = self._points = 0.0  # against the pool since the last drain

    def note_policy(
        self,
        policy: nn.Module,
        iteration: int,
        normalise: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """Play with this policy from now on; let a copy of it join the pool when it is time."""
        self._policy, self._normalise = policy, normalise
        last = self.pool[-1].iteration if self.pool else None
        if last is None or iteration >= last + self._interval:
            past = copy.deepcopy(unwrapped(policy)).eval().requires_grad_(False)
            self.pool.append(Member(past, self.rating, iteration))
            if len(self.pool) > self._pool_size:
                gone = min(1, len(self.pool) - 1)
                del self.pool[gone]
                if hasattr(self, "_opponents"):  # games with it go on with the next oldest
                    self._opponents[self._opponents > gone] -= 1

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        self._inner.reset(seed=self._take_seed(seed))
        self._batch_inner = self._inner.recv()
        self._opponents = np.full(self.num_envs, _LATEST)
        self._draw(np.ones(self.num_envs, dtype=np.bool_))
        self._state: State = None
        self._returns = np.zeros(self._inner.num_agents, dtype=np.float64)
        self._tracker = EpisodeTracker(self.num_agents)
        self._rows()
        return self.observations

    def _draw(self, ended: NDArray[np.bool_]) -> None:
        """Choose the opponents of games that begin."""
        count = int(ended.sum())
        if not count:
            return
        chosen = np.full(count, _LATEST)
        if self.pool:
            past = self._rng.random(count) >= self._latest_share
            chosen[past] = self._rng.integers(0, len(self.pool), int(past.sum()))
        self._opponents[ended] = chosen

    def _rows(self) -> None:
        """Take the learner's rows of the batch at hand."""
        batch = self._batch_inner
        self.observations = batch.observations[self._own]
        self.rewards, self.masks = batch.rewards[self._own], batch.masks[self._own]
        self.terminals = batch.terminals[self._own]
        self.truncations = batch.truncations[self._own]
        if batch.truncations.any():
            self.final_observations = self._inner.final_observations[self._own]
        else:
            self.final_observations = self.observations
        masks = self._inner.action_masks
        self.action_masks = None if masks is None else masks[self._own]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        self._begin("step")
        own = np.asarray(actions)
        rows = np.zeros((self._inner.num_agents, *own.shape[1:]), dtype=own.dtype)
        if own.shape[:1] != (self.num_agents,):
            raise UsageError(f"`actions` must have {self.num_agents} rows, but got {own.shape}.")
        rows[self._own] = own
        rows[self._other] = self._answers()
        present = self.masks.copy()
        self._inner.send(rows)
        batch = self._batch_inner = self._inner.recv()
        self._rows()
        self._count_games(batch)
        ended = self.terminals | self.truncations
        infos = self._tracker.step(self.rewards, ended, present) if self._tracker else {}
        return (
            self.observations,
            self.rewards,
            ended,
            [infos.get(slot, {}) for slot in range(self.num_agents)],
        )

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Any:
        return self._batch_of(infos)

    def _note_reset(self, observations: Any) -> None:
        self._next_seed = None
        self._ready, self._sent, self._received = True, False, False

    @torch.no_grad()
    def _answers(self) -> NDArray[Any]:
        """Return the actions of the other side, each by its own opponent."""
        if self._policy is None:
            raise UsageError("`note_policy` must be called before the first step.")
        device = next(self._policy.parameters()).device
        batch, action_masks = self._batch_inner, self._inner.action_masks
        observations = torch.from_numpy(batch.observations[self._other]).to(device)
        if self._normalise is not None:
            observations = self._normalise(observations)
        masks = None if action_masks is None else torch.from_numpy(action_masks[self._other])
        opponents = np.repeat(self._opponents, self.agents_per_env)
        answers: Tensor | None = None
        for number in np.unique(opponents):
            policy = self._policy if number == _LATEST else self.pool[number].policy.to(device)
            rows = torch.from_numpy(np.flatnonzero(opponents == number)).to(device)
            memory = map_state(lambda part: part[rows], self._state)  # noqa: B023 - used at once
            output = policy_step(policy, observations[rows], memory, self._spaces)
            own_masks = None if masks is None else masks.to(device)[rows]
            drawn, _ = sample(output, self._spaces.action, own_masks, self._generator(device))
            actions = env_actions(output, self._spaces.action, drawn)
            if answers is None:
                answers = actions.new_zeros(len(opponents), *actions.shape[1:])
            answers[rows] = actions
            if output.state is not None:
                self._remember(rows, output.state, len(opponents))
        assert answers is not None
        return answers.cpu().numpy()

    def _generator(self, device: torch.device) -> torch.Generator:
        if self._sample_rng.device != device:
            seed = int(self._rng.integers(2**62))
            self._sample_rng = torch.Generator(device).manual_seed(seed)
        return self._sample_rng

    def _remember(self, rows: Tensor, state: State, num_rows: int) -> None:
        if self._state is None:
            self._state = map_state(lambda part: part.new_zeros(num_rows, *part.shape[1:]), state)
        parts: list[Tensor] = []
        map_state(lambda part: parts.append(part) or part, state)  # type: ignore[func-returns-value]
        given = iter(parts)

        def write(part: Tensor) -> Tensor:
            part[rows] = next(given)
            return part

        map_state(write, self._state)

    def _count_games(self, batch: Any) -> None:
        """Rate the games that are over and let the next ones begin."""
        self._returns += batch.rewards
        ended = (batch.terminals | batch.truncations | ~batch.masks).reshape(self.num_envs, -1)
        over = ended.all(1) & (batch.terminals | batch.truncations).reshape(self.num_envs, -1).any(
            1
        )
        if not over.any():
            return
        own = self._returns[self._own].reshape(self.num_envs, -1).sum(1)
        other = self._returns[self._other].reshape(self.num_envs, -1).sum(1)
        points = np.where(own > other, 1.0, np.where(own < other, 0.0, 0.5))
        for env in np.flatnonzero(over):
            if self._opponents[env] != _LATEST:
                self._rate(self.pool[self._opponents[env]], float(points[env]))
        slots = np.repeat(over, 2 * self.agents_per_env)
        self._returns[slots] = 0
        if self._state is not None:
            rows = torch.from_numpy(np.flatnonzero(np.repeat(over, self.agents_per_env)))

            def clear(part: Tensor) -> Tensor:
                part[rows.to(part.device)] = 0
                return part

            map_state(clear, self._state)
        self._draw(over)

    def _rate(self, member: Member, points: float) -> None:
        expected = 1 / (1 + 10 ** ((member.rating - self.rating) / 400))
        change = RATING_STEP * (points - expected)
        self.rating += change
        member.rating -= change
        self._games += 1
        self._points += points

    def drain_metrics(self) -> dict[str, float]:
        metrics = super().drain_metrics()
        metrics["elo"], metrics["pool_size"] = self.rating, float(len(self.pool))
        if self._games:
            metrics["win_rate"] = self._points / self._games
        self._games = self._points = 0.0
        return metrics

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        return self._inner.render(env)

    def close(self) -> None:
        self._inner.close()
        super().close()
