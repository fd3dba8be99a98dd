"""SelfPlay: the learner's side of a two-sided env, and how runs and evaluations get it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.config import TrainConfig
from pufferlib.distributed.world import ALONE, SlotGenerator, World
from pufferlib.env import Wrapper
from pufferlib.episodes import RESERVED, EpisodeTracker, Info, Infos, info_at
from pufferlib.errors import CheckpointError, UsageError, one_line
from pufferlib.policies.acting import unwrapped
from pufferlib.policies.observations import policy_spaces
from pufferlib.policies.recurrent import map_state
from pufferlib.runs import checkpoint
from pufferlib.selfplay.games import LATEST, Games, Sides, check_games
from pufferlib.selfplay.pool import START_RATING, Member, Normalise, Opponents, Pool, Result
from pufferlib.vectorization import VectorEnv

_STATE = "memory/"  # the opponents' recurrent state in checkpoints; the name of older versions too


def check_sides(env: VectorEnv) -> None:
    """Raise unless `env` has two sides and returns all slots in one batch."""
    name = env.name or type(env).__name__
    if env.agents_per_env % 2:
        raise UsageError(
            f"`env` must have two sides with the same number of agents, but {name} has "
            f"{env.agents_per_env} agent(s) per env. "
            "Try `opponent='self'` if the env has that param."
        )
    if env.batch_slots != env.num_agents:
        raise UsageError(
            f"`env` must return all slots in one batch, but {name} returns {env.batch_slots} of "
            f"{env.num_agents}. Try it without `double_buffer`, or with mode='sync'."
        )


class SelfPlay(VectorEnv):
    """The learner's side of `env`, whose envs have two sides with the same number of agents.

    `note_policy` must be called before the first step and then once per iteration, as PuffeRL does.
    Every `interval` iterations a copy of the policy is added to a `Pool` of `pool_size`.
    `latest_share` of the games are against the latest policy, the others against the pool. With
    `rated=False` games do not change the ratings. `close` closes `env` too.

    Besides the usual metrics, which are the learner's, there are `elo`, `win_rate` against the pool
    (a draw counts half) and `pool_size`. The side with the higher sum of rewards wins.
    """

    _owns_rows = True

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
        self.name, self.is_from_make, self.backend = env.name, env.is_from_make, env.backend
        self.num_envs, self.num_workers = env.num_envs, env.num_workers
        self.agents_per_env = env.agents_per_env // 2
        self.agent_cycle = env.agents_per_env  # slot n is agent n % agent_cycle of its env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.world = ALONE
        self.pool = Pool(pool_size, rated)
        self._spaces = policy_spaces(env)
        self._interval = interval
        self._sides = Sides.of(env.num_envs, self.agents_per_env)
        self._games = Games(env.num_envs, self.agents_per_env, seed, latest_share)
        self._opponents = Opponents(self._spaces, self._sides.other % self.agent_cycle)
        self._latest: Member | None = None
        self._tracker: EpisodeTracker = EpisodeTracker(self.num_agents)
        self._ticks = 0
        self._metric_sums: dict[str, list[float]] = {}  # of infos for single slots

    # ---- Policies --------------------------------------------------------------------------------

    def note_policy(
        self, policy: nn.Module, iteration: int, normalise: Normalise | None = None
    ) -> None:
        """Play with this policy from now on; add a copy of it to the pool every `interval`.

        `normalise` is applied to observations with its current statistics. The copy keeps the
        statistics of its time: its weights do not fit later ones.
        """
        # torch.compile would recompile the policy for each number of rows
        policy = unwrapped(policy)
        self._latest = Member(policy, self.pool.rating, iteration, normalise)
        self._move_to(policy)
        past = self.pool.members
        if not past or iteration >= past[-1].iteration + self._interval:
            self.pool.settle(self.world)
            dropped = self.pool.add(self._latest)
            if dropped is not None:
                self._games.drop_member(dropped)

    def _move_to(self, policy: nn.Module) -> SlotGenerator:
        """Move pool and opponents to the device of the policy; return the generator of actions."""
        device = next(policy.parameters()).device
        seed = self._games.seed + 2  # the trainer's two generators have the seeds before it
        self.pool.move_to(device)
        return self._opponents.move_to(device, self.world, seed)

    def _member(self, number: int) -> Member:
        assert self._latest is not None
        return self._latest if number == LATEST else self.pool.members[number]

    def take_over(self, other: SelfPlay) -> None:
        """Use the pool and the ratings of another, between two of its iterations."""
        other.pool.settle(other.world)
        self.pool.replace(other.pool.members[-self.pool.size :], other.pool.rating)
        self._opponents.rng = other._opponents.rng

    # ---- Playing ---------------------------------------------------------------------------------

    def place(self, first_env: int) -> bool:
        """Use the seeds and games of the envs from `first_env` on in a larger vector."""
        self._games.first_env = first_env  # also where the inner env keeps its own seeds
        return self._inner.place(first_env)

    def reset(self, seed: int | None = None) -> NDArray[np.generic]:
        self._inner.reset(seed=self._take_seed(seed))
        self._tracker = EpisodeTracker(self.num_agents)
        self._games.begin(len(self.pool.members))
        self._begin_counting()
        self._take_rows()
        return self.observations

    def _begin_counting(self) -> None:
        """Drop the results and recurrent states of games before a reset or a restore."""
        self._ticks = 0
        self.pool.results = []
        self._opponents.state = None

    def _take_rows(self) -> None:
        """Receive the next batch and select the learner's rows."""
        self._whole = batch = self._inner.recv()
        own, masks = self._sides.own, self._inner.action_masks
        self.observations = batch.observations[own]
        self.rewards, self.masks = batch.rewards[own], batch.masks[own]
        self.terminals, self.truncations = batch.terminals[own], batch.truncations[own]
        self.final_observations = self.observations
        if batch.truncations.any():
            self.final_observations = self._inner.final_observations[own]
        self.action_masks = None if masks is None else masks[own]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any]:
        self._begin("step")
        rows, present = self._both_sides(np.asarray(actions)), self._whole.masks.copy()
        self._inner.send(rows)
        self._take_rows()
        points = self._count_games(present)
        ended = self.terminals | self.truncations
        episodes = self._tracker.step(self.rewards, ended, present[self._sides.own])
        infos = self._whole.infos

        def build() -> dict[int, Info]:
            rows = enumerate(self._sides.own.tolist())
            return {
                slot: {
                    **episodes.get(slot, {}),
                    **info_at(infos, row),
                    **points.get(slot // self.agents_per_env, {}),
                }
                for slot, row in rows
            }

        return self.observations, self.rewards, ended, Infos(self.num_agents, build)

    def _both_sides(self, actions: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return the actions of both sides, a row for each slot of the env."""
        if self._latest is None:
            raise UsageError("`note_policy` must be called before the first step.")
        shape = (self.num_agents, *self._spaces.action.shape)
        if len(np.atleast_1d(actions)) != self.num_agents or actions.size != math.prod(shape):
            raise UsageError(
                f"`actions` must have a row for each of {self.num_agents} slots, but got shape "
                f"{actions.shape}."
            )
        own, other = self._sides
        legal = self._inner.action_masks
        theirs = self._opponents.act(
            np.repeat(self._games.records["opponent"], self.agents_per_env),
            self._member,
            self._whole.observations[other],
            None if legal is None else legal[other],
        )
        kind = np.result_type(actions, theirs)
        rows = np.empty((self._inner.num_agents, *shape[1:]), dtype=kind)
        rows[own], rows[other] = actions.reshape(shape), theirs.reshape(shape)
        return rows

    # ---- Finished games --------------------------------------------------------------------------

    def _count_games(self, present: NDArray[np.bool_]) -> dict[int, dict[str, float]]:
        """Record finished games and begin the next ones; the `present` slots acted.

        Returns env -> {"win_rate": points} of the finished games against the pool.
        """
        games = self._games
        over = games.step(self._whole, present)
        self._ticks += 1
        self._count_metrics()
        settled: dict[int, dict[str, float]] = {}
        if len(over):
            points = games.points(self._sides)
            for env in over.tolist():
                member = int(games.records["opponent"][env])
                if member != LATEST:
                    result = Result(self._ticks, games.first_env + env, member, float(points[env]))
                    self.pool.results.append(result)
                    settled[env] = {"win_rate": result.points}
            games.begin_next(over, len(self.pool.members))
        self._opponents.reset(games.away[self._sides.other])
        return settled

    def _count_metrics(self) -> None:
        """Add up the infos of the learner's slots whose episode has ended."""
        batch = self._whole
        for slot in np.flatnonzero(batch.terminals | batch.truncations).tolist():
            env, agent = divmod(slot, self.agent_cycle)
            is_own = agent // self.agents_per_env == env % 2
            for name, value in info_at(batch.infos, slot).items():
                if isinstance(value, int | float | np.number | np.bool_):
                    sums = self._metric_sums.setdefault(name, [0.0, 0.0])
                    if is_own and np.isfinite(value):
                        sums[0] += float(value)
                        sums[1] += 1

    def drain_metrics(self) -> dict[str, float]:
        """Return means as every env does; with several processes, all must call this.

        Metrics of single slots are means over the learner's; metrics of whole games are unchanged.
        """
        self.pool.settle(self.world)
        sums, self._metric_sums = self._metric_sums, {}
        metrics = super().drain_metrics()
        for name, value in self._inner.drain_metrics().items():
            total, count = sums.get(name, (value, 1))
            if name not in RESERVED and count:
                metrics[name] = total / count
        return {**metrics, **self.pool.drain_metrics()}

    # ---- Snapshots and checkpoints ---------------------------------------------------------------

    def snapshot(self) -> NDArray[np.uint8] | None:
        """Return a snapshot of every env and its game, or None where the envs have no snapshots.

        It excludes the pool and the opponents' recurrent state: see `tensors` and `values`.
        """
        inner = self._inner.snapshot()
        if inner is None:
            return None
        games = self._games.records.copy()
        games["own_returns"] = self._tracker.returns.reshape(self.num_envs, -1)
        games["own_lengths"] = self._tracker.lengths.reshape(self.num_envs, -1)
        return np.concatenate((inner, games.view(np.uint8).reshape(self.num_envs, -1)), axis=1)

    def restore(self, state: NDArray[np.uint8], env: int | None = None) -> None:
        """Restore every env, or one, from `snapshot`; call `recv` next.

        The pool must be the same as then. The recurrent state of the opponents is zeroed.
        """
        self._begin("restore")
        kind = self._games.records.dtype
        rows = self._state_rows(state, env, above=kind.itemsize)
        games = np.ascontiguousarray(rows[:, -kind.itemsize :]).view(kind)[:, 0]
        check_games(games, len(self.pool.members))
        self._inner.restore(rows[:, : -kind.itemsize], env)
        chosen = np.full(self.num_envs, env is None)
        if env is not None:
            chosen[env] = True
        self._games.records[chosen] = games
        for name, part in (("returns", self._tracker.returns), ("lengths", self._tracker.lengths)):
            part.reshape(self.num_envs, -1)[chosen] = games[f"own_{name}"]
        if env is None:
            self._begin_counting()
        self._opponents.reset(np.repeat(chosen, self.agents_per_env))
        self._take_rows()
        self._start_over()

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a checkpoint besides `snapshot`; all processes must call this."""
        own = self._opponents
        state = checkpoint.pack(map_state(self.world.join_rows, own.state), _STATE)[1]
        rng = {} if own.rng is None else {"rng": own.rng.get_state()}
        return {**rng, **state, **self.pool.tensors()}

    def values(self) -> dict[str, Any]:
        """Return the JSON values that belong to `tensors`; all processes must call this."""
        self.pool.settle(self.world)
        outline = checkpoint.pack(self._opponents.state, "")[0]
        return {"seed": self._games.seed, "memory": outline, **self.pool.values()}

    def load_pool(
        self,
        tensors: Mapping[str, Tensor],
        values: Mapping[str, Any],
        policy: nn.Module,
        normalise: Normalise | None = None,
    ) -> None:
        """Restore the pool, the ratings and the random numbers of a checkpoint.

        The members are copies of `policy` and `normalise` with the weights and statistics in it. A
        `restore` may follow; without one, the current games continue against the latest policy.
        """
        policy = unwrapped(policy)
        seed = checkpoint.counter(values, "seed")
        self.pool.load(tensors, values, Member(policy, START_RATING, 0, normalise))
        self._games.seed, self._opponents.rng = seed, None
        rng = self._move_to(policy)
        if "rng" in tensors:
            checkpoint.restore_rng(rng, tensors["rng"])
        self._games.records["opponent"] = LATEST

    def reset_pool(self) -> None:
        """Empty the pool and reset the rating; current games continue against the latest policy."""
        self.pool.replace([], START_RATING)
        self._games.records["opponent"] = LATEST

    def load_recurrent_state(
        self, tensors: Mapping[str, Tensor], values: Mapping[str, Any], policy: nn.Module
    ) -> None:
        """Restore, after `restore`, the recurrent state of the opponents."""
        whole = checkpoint.unpack(values["memory"], tensors, _STATE)
        state = map_state(self.world.own_rows, whole)
        like = Member(unwrapped(policy), START_RATING, 0)
        self._opponents.load_state(state, self._whole.observations[self._sides.other], like)

    def render(self, env: int = 0) -> NDArray[np.uint8] | None:
        return self._inner.render(env)

    def close(self) -> None:
        self._inner.close()
        super().close()


# ---- Setup ---------------------------------------------------------------------------------------


def as_self_play(
    env: VectorEnv,
    settings: Mapping[str, Any],
    world: World = ALONE,
    before: VectorEnv | None = None,
) -> VectorEnv:
    """Return the learner's side of `env` if `self_play` is set, else `env`.

    `before` is the env that it replaces, whose pool and ratings it keeps.
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


def self_play_of(env: object) -> SelfPlay | None:
    """Return the SelfPlay that `env` is or wraps, if any."""
    inside = env.unwrapped if isinstance(env, Wrapper) else env
    return inside if isinstance(inside, SelfPlay) else None


def against_past(
    env: VectorEnv,
    policy: nn.Module,
    saved: checkpoint.Checkpoint,
    normalise: Normalise | None = None,
    seed: int = 0,
) -> SelfPlay:
    """Return one side of `env`, against the pool of a checkpoint.

    Ratings do not change. Where the checkpoint has no pool, the opponent is `policy` itself.
    """
    tensors = checkpoint.under(saved.tensors, "self_play/")
    tensors.pop("rng", None)
    try:
        values = {"rating": START_RATING, "pool": [], **saved.values.get("self_play", {})}
        own = SelfPlay(
            env,
            pool_size=max(1, len(values["pool"])),
            interval=2**62,  # no policy is added
            latest_share=0.0,
            rated=False,
        )
        own.load_pool(tensors, {**values, "seed": seed}, policy, normalise)
    except UsageError:  # a ValueError too, but about the env
        raise
    except checkpoint.MALFORMED as error:
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        raise CheckpointError(
            f"the checkpoint has an invalid pool of past policies: {reason}"
        ) from error
    own.note_policy(policy, 0, normalise)
    return own
