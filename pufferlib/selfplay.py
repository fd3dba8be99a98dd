"""SelfPlay: a two-sided env in which the other side is played by the policy's own past.

The learner plays one side of every game, the first in even envs and the second in odd ones. The
other side is the latest policy itself in a part of the games, else one of a pool of snapshots,
drawn anew for each game. Games against the pool give ratings (Elo 1978): a number that rises while
the policy gets stronger, which a win rate against itself, always one half, cannot show.

With several processes each has games of its own; the pool and the ratings are those of all. Whom a
game is against follows from the seed and the number of the game in its env, so neither a resume nor
the number of processes changes it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib import checkpoint, native
from pufferlib.config import TrainConfig
from pufferlib.distributed import ALONE, SlotGenerator, World
from pufferlib.distributions import Squash
from pufferlib.episodes import EpisodeStats, EpisodeTracker, Infos
from pufferlib.errors import CheckpointError, UsageError
from pufferlib.pytorch import (
    PolicyOutput,
    PolicySpaces,
    State,
    env_actions,
    map_state,
    policy_spaces,
    policy_step,
    reset_state,
    sample,
    unwrapped,
)
from pufferlib.vectorization import VectorEnv

START_RATING = 1000.0
RATING_STEP = 8.0  # how far one game moves a rating; small, since there are very many games
_LATEST = -1  # in place of a number of the pool
_COMMON = EpisodeStats(episodes=1).means().keys()  # of every env; the others are its own

Normalise = Callable[[Tensor], Tensor]


@dataclass
class Member:
    """A past policy, its rating, and how it saw observations then."""

    policy: nn.Module
    rating: float
    iteration: int
    normalise: Normalise | None = None


class Result(NamedTuple):
    """A game that is over: when and where, against which member of the pool, and its points."""

    tick: int
    env: int  # counted over all processes
    member: int
    points: float


def as_self_play(
    env: VectorEnv, settings: Mapping[str, Any], world: World = ALONE, before: Any = None
) -> VectorEnv:
    """Return the learner's half of `env` if the settings of a run ask for self-play, else `env`.

    `before` is the env whose place it takes: its pool and ratings go on.
    """
    config = TrainConfig.from_dict(settings)
    own = self_play_of(env)
    if own is None and config.self_play:
        env = own = SelfPlay(
            env,
            pool_size=config.self_play_pool,
            interval=config.self_play_interval,
            seed=config.seed,
        )
        old = self_play_of(before)
        if old is not None:
            own.take_over(old)
    if own is not None:
        own.world = world
    return env


def self_play_of(env: Any) -> SelfPlay | None:
    """Return the SelfPlay that `env` is or wraps, if any."""
    inside = env if isinstance(env, SelfPlay) else getattr(env, "unwrapped", None)
    return inside if isinstance(inside, SelfPlay) else None


def check_sides(env: VectorEnv) -> None:
    """Raise unless `env` has two sides and hands over all slots at once."""
    name = env.name or type(env).__name__
    if env.agents_per_env % 2:
        raise UsageError(
            f"`env` must have two sides of equally many agents, but {name} has "
            f"{env.agents_per_env} agent(s) in an env. "
            "Try `opponent='self'` where the env has such a param."
        )
    if env.batch_slots != env.num_agents:
        raise UsageError(
            f"`env` must hand over all slots at once, but {name} gives {env.batch_slots} of "
            f"{env.num_agents}. Try it without `double_buffer`, or with mode='sync'."
        )


def against_past(
    env: VectorEnv,
    policy: nn.Module,
    saved: checkpoint.Checkpoint,
    normalise: Normalise | None = None,
    seed: int = 0,
) -> SelfPlay:
    """Return one side of `env` with the pool of a checkpoint as the other: to see who is better.

    Ratings stay as they are. Where the checkpoint has no pool, the other side is `policy` itself.
    """
    tensors = checkpoint.under(saved.tensors, "self_play/")
    tensors.pop("rng", None)
    try:
        facts = {"rating": START_RATING, "pool": [], **saved.facts.get("self_play", {})}
        own = SelfPlay(
            env,
            pool_size=max(1, len(facts["pool"])),
            interval=2**62,  # nobody joins
            latest_share=0.0,
            rated=False,
        )
        own.load_pool(tensors, {**facts, "seed": seed}, policy, normalise)
    except UsageError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise CheckpointError(f"the pool of the checkpoint is malformed: {reason:.200}") from error
    own.note_policy(policy, 0, normalise)
    return own


class SelfPlay(VectorEnv):
    """The learner's half of `env`, whose envs have two sides of equally many agents.

    `note_policy` must be called before the first step and then once an iteration; PuffeRL does so.
    Every `interval` iterations the policy joins the pool; of more than `pool_size` the second
    oldest leaves, so that the pool keeps its beginning and its recent past (a pool of one keeps the
    newest). `latest_share` of the games are against the present policy. With `rated=False` games
    leave the ratings alone. `env` is closed with this.

    Beyond the usual metrics, which are the learner's, there are `elo`, `win_rate` against the pool
    (a draw counts half) and `pool_size`. The side with the higher sum of rewards has won.
    """

    def __init__(
        self,
        env: VectorEnv,
        *,
        pool_size: int = 8,
        interval: int = 20,
        latest_share: float = 0.5,
        seed: int = 0,
        rated: bool = True,
    ) -> None:
        check_sides(env)
        for noun, value in (("pool_size", pool_size), ("interval", interval)):
            if value < 1:
                raise UsageError(f"`{noun}` must be at least 1, but got {value}.")
        if not 0 <= latest_share <= 1:
            raise UsageError(f"`latest_share` must be between 0 and 1, but got {latest_share}.")
        self._inner = env
        self.name = env.name
        self.num_envs, self.num_workers = env.num_envs, env.num_workers
        self.agents_per_env = env.agents_per_env // 2
        self.agent_cycle = env.agents_per_env  # slot n is agent n % agent_cycle of its env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._spaces: PolicySpaces = policy_spaces(env)
        self.pool_size, self.rated = pool_size, rated
        self._interval, self._latest_share, self._seed = interval, latest_share, seed
        rows = np.arange(env.num_agents).reshape(env.num_envs, 2, self.agents_per_env)
        own = np.arange(env.num_envs) % 2  # the side of the learner in each env
        each = np.arange(env.num_envs)
        self._own = rows[each, own].ravel()
        self._other = rows[each, 1 - own].ravel()
        self._is_own = np.isin(np.arange(env.num_agents), self._own)
        self._ids = torch.from_numpy(self._other % self.agent_cycle)
        self._record = _record(self.agents_per_env)
        self._games = np.zeros(self.num_envs, dtype=self._record)
        self._tracker: EpisodeTracker = EpisodeTracker(self.num_agents)
        self.pool: list[Member] = []
        self.rating = START_RATING
        self.world = ALONE
        self.memory: State = None  # of the other side, a row for each of its slots
        self._first_env = 0  # of this process
        self._latest: Member | None = None
        self._rng: SlotGenerator | None = None  # of the other side's actions
        self._results: list[Result] = []  # not yet rated
        self._num_games = self._points = 0.0  # against the pool since the last drain
        self._ticks = 0
        self._metric_sums: dict[str, list[float]] = {}  # that the env tells of single slots

    # ---- The pool --------------------------------------------------------------------------------

    def note_policy(
        self, policy: nn.Module, iteration: int, normalise: Normalise | None = None
    ) -> None:
        """Play with this policy from now on; let a copy of it join the pool when it is time.

        The policy sees observations through `normalise`, as it is at the time. A copy sees them as
        the policy did when it joined: its weights mean nothing with later statistics.
        """
        # what compiles or synchronises the policy would do so anew for each number of rows
        policy = unwrapped(policy)
        self._latest = Member(policy, self.rating, iteration, normalise)
        self._move_to(next(policy.parameters()).device)
        last = self.pool[-1].iteration if self.pool else None
        if last is None or iteration >= last + self._interval:
            self._settle()
            self.pool.append(_copied(policy, self.rating, iteration, normalise))
            if len(self.pool) > self.pool_size:
                gone = min(1, self.pool_size - 1)
                del self.pool[gone]
                # games with it go on with the next oldest
                self._games["opponent"] -= self._games["opponent"] > gone

    def take_over(self, other: SelfPlay) -> None:
        """Go on with the pool and the ratings of another, between two of its iterations."""
        other._settle()
        self.pool, self.rating = list(other.pool[-self.pool_size :]), other.rating
        self._rng = other._rng

    def _move_to(self, device: torch.device) -> SlotGenerator:
        """Keep all that plays where the policy is; return the generator of its actions."""
        if self._rng is None or self._rng.device != device:
            seed = self._seed + 2  # the trainer has two generators of its own
            if self._rng is not None:
                seed = int(torch.randint(2**62, (), generator=self._rng, device=self._rng.device))
            self._rng = SlotGenerator(device, self.world)
            self._rng.manual_seed(seed)
        self._ids = self._ids.to(device)
        self.memory = map_state(lambda part: part.to(device), self.memory)
        for member in self.pool:
            member.policy.to(device)
            if isinstance(member.normalise, nn.Module):
                member.normalise.to(device)
        return self._rng

    # ---- Playing ---------------------------------------------------------------------------------

    def place(self, first_env: int) -> bool:
        """Take the seeds and the games of envs `first_env` and on of a larger vector."""
        self._first_env = first_env  # its games are others, whatever the env can do
        place = getattr(self._inner, "place", None)
        return place is not None and bool(place(first_env))

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        self._inner.reset(seed=self._take_seed(seed))
        self._batch_inner = self._inner.recv()
        self._games = np.zeros(self.num_envs, dtype=self._record)
        self._tracker = EpisodeTracker(self.num_agents)
        self._results = []
        self._ticks = 0
        self.memory = None
        self._draw(np.ones(self.num_envs, dtype=np.bool_))
        self._rows()
        return self.observations

    def _draw(self, beginning: NDArray[np.bool_]) -> None:
        """Choose the opponents of games that begin."""
        for env in np.flatnonzero(beginning):
            game = self._games[env]
            stream = native.env_seed(self._seed, 1 + self._first_env + int(env))
            drawn = native.env_seed(stream, 1 + int(game["number"]))
            is_past = self.pool and drawn % 2**24 >= self._latest_share * 2**24
            game["opponent"] = (drawn >> 24) % len(self.pool) if is_past else _LATEST

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
        answers = self._answers()
        if len(np.atleast_1d(own)) != len(answers) or own.size != answers.size:
            raise UsageError(
                f"`actions` must have a row for each of {len(answers)} slots, but have shape "
                f"{own.shape}."
            )
        kind = np.result_type(own, answers)
        rows = np.zeros((self._inner.num_agents, *answers.shape[1:]), dtype=kind)
        rows[self._own] = own.reshape(answers.shape)
        rows[self._other] = answers
        present = self._batch_inner.masks.copy()
        self._inner.send(rows)
        self._batch_inner = self._inner.recv()
        self._ticks += 1
        self._rows()
        self._count_games(present)
        ended = self.terminals | self.truncations
        episodes = self._tracker.step(self.rewards, ended, present[self._own])
        told = self._batch_inner.infos

        def build() -> dict[int, dict[str, Any]]:
            rows = enumerate(self._own.tolist())
            return {slot: {**episodes.get(slot, {}), **_told(told, row)} for slot, row in rows}

        return self.observations, self.rewards, ended, Infos(self.num_agents, build)

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Any:
        return self._batch_of(infos)

    def _note_reset(self, observations: Any) -> None:
        self._next_seed = None
        self._ready, self._sent, self._received = True, False, False

    @torch.no_grad()
    def _answers(self) -> NDArray[Any]:
        """Return the actions of the other side, each by its own opponent."""
        if self._latest is None:
            raise UsageError("`note_policy` must be called before the first step.")
        assert self._rng is not None
        device = self._rng.device
        observations = torch.from_numpy(self._batch_inner.observations[self._other]).to(device)
        legal: Tensor | None = None
        if self._inner.action_masks is not None:
            legal = torch.from_numpy(self._inner.action_masks[self._other]).to(device)
        order, outputs = [], []
        for member, rows in self._opponents(device):
            seen = observations[rows]
            seen = seen if member.normalise is None else member.normalise(seen)
            memory = map_state(lambda part: part[rows], self.memory)  # noqa: B023 - used at once
            output = policy_step(member.policy, seen, memory, self._spaces, self._ids[rows])
            order.append(rows)
            outputs.append(output)
        back = torch.argsort(torch.cat(order))
        self.memory = _joined_states([output.state for output in outputs], back)
        if all(_is_plain(output) for output in outputs):
            joined = _joined_outputs(outputs, back)
            drawn, _ = sample(joined, self._spaces.action, legal, self._rng)
            return env_actions(joined, self._spaces.action, drawn).cpu().numpy()
        actions = []
        for output, rows in zip(outputs, order, strict=True):
            own = None if legal is None else legal[rows]
            drawn, _ = sample(output, self._spaces.action, own, self._rng)
            actions.append(env_actions(output, self._spaces.action, drawn))
        return torch.cat(actions)[back].cpu().numpy()

    def _opponents(self, device: torch.device) -> Iterator[tuple[Member, Tensor]]:
        """Yield those that play now, each with the rows of the other side that it plays."""
        numbers = np.repeat(self._games["opponent"], self.agents_per_env)
        for number in np.unique(numbers):
            member = self._latest if number == _LATEST else self.pool[number]
            assert member is not None
            yield member, torch.from_numpy(np.flatnonzero(numbers == number)).to(device)

    # ---- Games that are over ---------------------------------------------------------------------

    def _count_games(self, present: NDArray[np.bool_]) -> None:
        """Note the games that are over and let the next ones begin; `present` says who acted."""
        batch, games = self._batch_inner, self._games
        games["returns"] += batch.rewards.reshape(self.num_envs, -1)
        ended = batch.terminals | batch.truncations
        if not ended.any():
            return
        self._count_metrics(np.flatnonzero(ended))
        # who had left before has no end now, and after the last end all are back in the next game
        by_env = ended.reshape(self.num_envs, -1)
        done = (by_env | ~present.reshape(self.num_envs, -1)).all(1)
        over: NDArray[np.bool_] = np.asarray(by_env.any(1) & done)
        forgets = ended[self._other] | np.repeat(over, self.agents_per_env)
        if self.memory is not None and forgets.any():
            rows = torch.from_numpy(forgets).to(self._ids.device)
            self.memory = reset_state(self.memory, rows)
        if not over.any():
            return
        returns = games["returns"].ravel()
        own, other = (
            returns[rows].reshape(self.num_envs, -1).sum(1) for rows in (self._own, self._other)
        )
        points = np.where(own > other, 1.0, np.where(own < other, 0.0, 0.5))
        for env in np.flatnonzero(over):
            member = int(games["opponent"][env])
            if member != _LATEST:
                place = self._first_env + int(env)
                self._results.append(Result(self._ticks, place, member, float(points[env])))
        games["returns"][over] = 0
        games["number"][over] += 1
        self._draw(over)

    def _count_metrics(self, slots: NDArray[np.intp]) -> None:
        """Add up what the env tells of single slots whose episode has ended, the learner's only."""
        for slot in slots.tolist():
            for name, value in _told(self._batch_inner.infos, slot).items():
                if isinstance(value, int | float | np.number | np.bool_):
                    sums = self._metric_sums.setdefault(name, [0.0, 0.0])
                    if self._is_own[slot] and np.isfinite(value):
                        sums[0] += float(value)
                        sums[1] += 1

    def _settle(self) -> None:
        """Rate the games that are over: those of all processes, in one order everywhere."""
        results, self._results = self._results, []
        for result in sorted(chain(*self.world.gather(results))):
            self._rate(self.pool[result.member], result.points)

    def _rate(self, member: Member, points: float) -> None:
        gap = min(300.0, (member.rating - self.rating) / 400)  # beyond, a power of ten is too much
        change = RATING_STEP * (points - 1 / (1 + 10**gap)) if self.rated else 0.0
        self.rating += change
        member.rating -= change
        self._num_games += 1
        self._points += points

    def drain_metrics(self) -> dict[str, float]:
        """Return means as every env does; with several processes, all must call this.

        What the env tells of single slots is the learner's; the rest is what it tells of the game.
        """
        self._settle()
        metrics, sums = super().drain_metrics(), self._metric_sums
        for name, value in self._inner.drain_metrics().items():
            total, count = sums.get(name, (value, 1))
            if name not in _COMMON and count:
                metrics[name] = total / count
        metrics["elo"], metrics["pool_size"] = self.rating, float(len(self.pool))
        if self._num_games:
            metrics["win_rate"] = self._points / self._num_games
        self._num_games = self._points = 0.0
        self._metric_sums = {}
        return metrics

    # ---- State -----------------------------------------------------------------------------------

    def snapshot(self) -> NDArray[np.uint8] | None:
        """Return the state of every env and of its game, or None where the envs cannot give it.

        The pool and the memory of the other side are no part of it: see `tensors` and `facts`.
        """
        inner = self._inner.snapshot()
        if inner is None:
            return None
        games = self._games.copy()
        games["own_returns"] = self._tracker.returns.reshape(self.num_envs, -1)
        games["own_lengths"] = self._tracker.lengths.reshape(self.num_envs, -1)
        return np.concatenate((inner, games.view(np.uint8).reshape(self.num_envs, -1)), axis=1)

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        """Put every env, or one, back into a state that `snapshot` returned; `recv` is next.

        The pool must be what it was then. The other side has forgotten what it knew of the game.
        """
        self._begin("restore")
        rows, size = np.atleast_2d(np.asarray(state)), self._record.itemsize
        wanted = self.num_envs if env is None else 1
        if rows.dtype != np.uint8 or len(rows) != wanted or rows.shape[1] <= size:
            raise UsageError(
                f"`state` must be {wanted} rows of bytes from `snapshot`, but got {rows.dtype} of "
                f"shape {rows.shape}."
            )
        games = np.ascontiguousarray(rows[:, -size:]).view(self._record)[:, 0]
        self._check_games(games)
        self._inner.restore(rows[:, :-size], env)
        chosen = slice(None) if env is None else slice(env, env + 1)
        self._batch_inner = self._inner.recv()
        self._games[chosen] = games
        for name, part in (("returns", self._tracker.returns), ("lengths", self._tracker.lengths)):
            part.reshape(self.num_envs, -1)[chosen] = games[f"own_{name}"]
        if env is None:
            self.memory, self._results, self._ticks = None, [], 0
        elif self.memory is not None:
            forgets = torch.zeros(self.num_envs, self.agents_per_env, dtype=torch.bool)
            forgets[env] = True
            self.memory = reset_state(self.memory, forgets.flatten().to(self._ids.device))
        self._rows()
        self._ready, self._sent, self._received = True, False, False

    def _check_games(self, games: NDArray[Any]) -> None:
        opponents = games["opponent"]
        counts = (games["number"], games["own_lengths"])
        sums = (games["returns"], games["own_returns"])
        if not ((opponents >= _LATEST) & (opponents < len(self.pool))).all():
            raise UsageError(
                f"`state` must name opponents of the pool of {len(self.pool)}, but does not."
            )
        if not all(((part >= 0) & (part < 2**62)).all() for part in counts):
            raise UsageError("`state` must count games and steps from 0 on, but does not.")
        if not all(np.isfinite(part).all() for part in sums):
            raise UsageError("`state` must hold finite returns, but does not.")

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint must hold beyond `snapshot`; all processes must call this."""
        tensors: dict[str, Tensor] = {}
        if self._rng is not None:
            tensors["rng"] = self._rng.get_state()
        tensors |= checkpoint.pack(map_state(self.world.join_rows, self.memory), "memory/")[1]
        for number, member in enumerate(self.pool):
            for name, module in _modules(member).items():
                for key, part in module.state_dict().items():
                    tensors[f"pool/{number}/{name}/{key}"] = part
        return tensors

    def facts(self) -> dict[str, Any]:
        """Return what belongs to `tensors`, as JSON values; all processes must call this."""
        self._settle()
        return {
            "seed": self._seed,
            "rating": self.rating,
            "pool": [{"rating": m.rating, "iteration": m.iteration} for m in self.pool],
            "memory": checkpoint.pack(self.memory, "")[0],
        }

    def load_pool(
        self,
        tensors: Mapping[str, Tensor],
        facts: Mapping[str, Any],
        policy: nn.Module,
        normalise: Normalise | None = None,
    ) -> None:
        """Take over the pool, the ratings and the random numbers of a checkpoint.

        The members are copies of `policy` and `normalise` with the weights and statistics in it. A
        `restore` may follow; without one, the games at hand go on against the latest policy.
        """
        policy = unwrapped(policy)
        rows = facts["pool"]
        if not isinstance(rows, list) or len(rows) > self.pool_size:
            raise CheckpointError(
                f"`self_play_pool` must be at least the {len(rows)} past policies of the "
                f"checkpoint, but is {self.pool_size}."
            )
        seed, rating = checkpoint.counter(facts, "seed"), checkpoint.number(facts, "rating")
        pool = []
        for number, row in enumerate(rows):
            own = checkpoint.number(row, "rating"), checkpoint.counter(row, "iteration")
            member = _copied(policy, *own, normalise)
            for name, module in _modules(member).items():
                checkpoint.restore_module(module, tensors, f"pool/{number}/{name}/")
            pool.append(member)
        device = next(policy.parameters()).device
        if device.type == "cpu" and "rng" in tensors:
            checkpoint.check_rng(tensors["rng"])
        self.pool, self.rating = pool, rating
        self._seed, self._rng = seed, None
        rng = self._move_to(device)
        if "rng" in tensors:
            rng.set_state(tensors["rng"])
        self._forget_games()

    def begin_anew(self) -> None:
        """Empty the pool and forget the ratings; the games at hand go on against the latest."""
        self.pool, self.rating = [], START_RATING
        self._forget_games()

    def _forget_games(self) -> None:
        self._results = []
        self._num_games = self._points = 0.0
        self._games["opponent"] = _LATEST

    def load_memory(
        self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], policy: nn.Module
    ) -> None:
        """Take over, after a `restore`, what the other side knew of its games."""
        policy = unwrapped(policy)
        device = next(policy.parameters()).device
        whole = checkpoint.unpack(facts["memory"], tensors, "memory/")
        memory = map_state(lambda part: self.world.own_rows(part).to(device), whole)
        if memory is not None:
            seen = torch.from_numpy(self._batch_inner.observations[self._other]).to(device)
            with torch.no_grad():
                after = policy_step(policy, seen, memory, self._spaces, self._ids).state
            parts = checkpoint.pack(memory, "")[1].values()
            has_rows = all(part.shape[:1] == (len(seen),) for part in parts)
            if not (has_rows and checkpoint.is_alike(memory, after)):
                raise CheckpointError(
                    "the checkpoint must hold a memory of the other side, but does not."
                )
        self.memory = memory

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        return self._inner.render(env)

    def close(self) -> None:
        self._inner.close()
        super().close()


def _told(infos: Any, slot: int) -> Mapping[str, Any]:
    """Return the info of one slot; an env of the user's own may give none, or fewer."""
    return infos[slot] if infos is not None and slot < len(infos) else {}


def _record(agents: int) -> np.dtype[Any]:
    """Return what is known of the game at hand in an env of two sides of so many agents."""
    return np.dtype(
        [
            ("opponent", np.int64),  # number in the pool, or _LATEST
            ("number", np.int64),  # games before it in this env
            ("returns", np.float64, (2 * agents,)),  # so far, of both sides
            ("own_returns", np.float64, (agents,)),  # of the learner's episodes at hand
            ("own_lengths", np.int64, (agents,)),
        ]
    )


def _copied(
    policy: nn.Module, rating: float, iteration: int, normalise: Normalise | None
) -> Member:
    """Return a member of the pool that stays what the policy is now."""
    try:
        past = copy.deepcopy(policy)
    except Exception as error:
        raise UsageError(
            f"`policy` must be such that copy.deepcopy can copy it, but {type(policy).__name__} "
            f"is not: {error}."
        ) from error
    past.eval().requires_grad_(False)
    past.zero_grad(set_to_none=True)  # gradients of the last update are copied too
    if isinstance(normalise, nn.Module):
        normalise = copy.deepcopy(normalise)
    return Member(past, rating, iteration, normalise)


def _modules(member: Member) -> dict[str, nn.Module]:
    parts = {"policy": member.policy, "normalise": member.normalise}
    return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}


def _is_plain(output: PolicyOutput) -> bool:
    """Return whether the output is rows alone, which can be joined with others of its kind."""
    return output.distribution is None and all(isinstance(t, Squash) for t in output.transforms)


def _joined_outputs(outputs: list[PolicyOutput], back: Tensor) -> PolicyOutput:
    """Return the outputs of all opponents as one, in the order of the slots."""
    value, logits, mean, std = (
        None if parts[0] is None else torch.cat(parts)[back]
        for parts in zip(*(output[:4] for output in outputs), strict=True)
    )
    assert value is not None
    return PolicyOutput(value, logits, mean, std, transforms=outputs[0].transforms)


def _joined_states(states: list[State], back: Tensor) -> State:
    """Return the states of all opponents as one, in the order of the slots."""
    if states[0] is None:
        return None
    columns = zip(*(checkpoint.pack(state, "")[1].values() for state in states), strict=True)
    joined = iter([torch.cat(column)[back] for column in columns])
    return map_state(lambda _: next(joined), states[0])
