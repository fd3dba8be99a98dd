"""PuffeRL: PPO from experience to updated weights, one iteration at a time.

    trainer = PuffeRL(pufferlib.make("breakout"))
    while not trainer.done:
        trainer.evaluate()      # collect a rollout
        trainer.train()         # advantages, then minibatches of loss and update
        trainer.mean_and_log()  # numbers to loggers and dashboard

A run can be saved between any two iterations. It continues from there bit for bit.
"""

from __future__ import annotations

import inspect
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from pufferlib import config as configs
from pufferlib import native
from pufferlib.closing import Closing
from pufferlib.config import TrainConfig, batch_shape, complete_options
from pufferlib.dashboard import Dashboard, Record, make_dashboard
from pufferlib.distributed.world import SlotGenerator, World, join_world
from pufferlib.episodes import EpisodeWindow, joined_metrics
from pufferlib.errors import NonFiniteError, PufferError, UsageError
from pufferlib.loggers import Logger, SafeLogger
from pufferlib.models import make_policy
from pufferlib.policies.acting import prepare_policy, takes_state
from pufferlib.policies.normalisation import ObservationNorm, RewardNorm
from pufferlib.policies.observations import PolicySpaces, policy_spaces
from pufferlib.policies.recurrent import RecurrentState
from pufferlib.runs import loading
from pufferlib.selfplay import as_self_play, self_play_of
from pufferlib.system import check_batch
from pufferlib.training import saving
from pufferlib.training.engine import NUMBERS, Parts, Schedule, make_engine
from pufferlib.training.profiling import Profiler, SystemMonitor
from pufferlib.training.rollout import Carry, Rollout, begin
from pufferlib.training.sizing import step_cost
from pufferlib.vectorization import check_vector_env, no_action_check

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

# options that may differ between the processes of a run
_OWN_OPTIONS = {"device", "torch_threads", "run_dir", "dashboard"}
_EPISODE_KEYS = ("mean_reward", "min_reward", "max_reward", "episode_length")
_SLOW_SECONDS = 2.0  # of an iteration, before its progress is shown
_SMALL_POLICY = 20_000  # parameters; below, waking a second thread costs more than it saves


class RolloutDropped(Exception):  # noqa: N818 - a request was met
    """A rollout ended early because the run is to stop; the state is that of the last iteration."""


class PuffeRL(Closing):
    """Trains `policy` on `env` with PPO. Keywords are the fields of `config.TrainConfig`.

    The trainer steps `env` from here on; the caller closes both. `policy=None` builds the default
    policy for the spaces. The env gets `seed`, unless `env.seed` was called before.

    Unset options come from the ini of the name that `make` got, if this package has one, as in
    `puffer train`; else they are adjusted to the number of slots (`config.complete_options`), and
    to the time and memory of a step where an iteration would be hopeless. `adjusted` names those
    that differ from the defaults shown here. Without a budget (`total_timesteps` or
    `num_iterations`) the learning rate stays constant.
    """

    def __init__(
        self,
        env: VectorEnv,
        policy: nn.Module | None = None,
        *,
        logger: Logger | Iterable[Logger] | None = None,
        **settings: Any,
    ) -> None:
        check_vector_env(env)
        _check_policy(policy)
        if torch.is_inference_mode_enabled():
            raise UsageError(
                "a trainer must be made outside of `torch.inference_mode`: what is made there "
                "cannot be trained. Try `torch.no_grad`."
            )
        if isinstance(settings.get("device"), torch.device):
            settings["device"] = str(settings["device"])
        packaged = configs.load(env.name if env.is_from_make else "")
        settings = configs.merge_train_layers(packaged.chosen_train(), settings)
        checked = TrainConfig.from_dict(settings)
        self.world = join_world(checked.device, checked.timeout)
        env = as_self_play(env, settings, self.world)
        self.device = _device(checked.device, self.world)
        if self.device.type == "cpu":
            native.keep_memory()  # 15 to 40 % of an update went into fresh pages
        self.spaces = policy_spaces(env)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(checked.seed)
            if policy is None:
                policy = make_policy(env, **asdict(packaged.policy))
            self.policy = policy.to(self.device)
            prepare_policy(self.policy, self.spaces)
        num_slots = env.num_agents * self.world.size
        is_recurrent = takes_state(self.policy)
        completed = complete_options(settings, num_slots, is_recurrent)
        if env.backend != "threads":  # sizes for C envs must not depend on the machine
            own_size = completed.config.batch_size // self.world.size
            cost = step_cost(env, self.policy, self.spaces, self.device, own_size)
            cost = self.world.from_first(cost)._replace(world_size=self.world.size)
            completed = complete_options(settings, num_slots, is_recurrent, cost)
        self.config, self.shape, self.adjusted, warning, self._remark = completed
        if warning is not None:
            warnings.warn(warning, UserWarning, stacklevel=2)
        check_batch(env, self.config.batch_size // self.world.size, self.device.type)
        options = {k: v for k, v in asdict(self.config).items() if k not in _OWN_OPTIONS}
        self.world.agree({"slots": env.num_agents, **options})
        self.world.agree(_layout_of(self.policy, self.spaces))
        self.world.copy_from_first((*self.policy.parameters(), *self.policy.buffers()))
        sample_rng = SlotGenerator(self.device, self.world)
        sample_rng.manual_seed(self.config.seed + 1)
        self.observation_norm: ObservationNorm | None = None
        self.reward_norm: RewardNorm | None = None
        if self.config.norm_obs:
            self.observation_norm = ObservationNorm(
                self.spaces.observation, self.device, self.world, in_step=not env.surplus_envs
            )
        loading.note_norm(self.policy, self.observation_norm)
        self._profiler = Profiler(self._note_progress)
        parts = Parts(
            self.policy,
            self.spaces,
            self.config,
            self.device,
            self.world,
            self._profiler,
            self.observation_norm,
            torch.Generator().manual_seed(self.config.seed),
            sample_rng,
        )
        self.engine = make_engine(self.config.engine, parts)
        self.optimizer = self.engine.optimizer
        trained = [p for p in self.policy.parameters() if p.requires_grad]
        self.num_parameters = sum(p.numel() for p in trained)
        if self.config.torch_threads is not None:  # for the whole process
            torch.set_num_threads(self.config.torch_threads)
        elif self.device.type == "cpu" and self.num_parameters < _SMALL_POLICY:
            torch.set_num_threads(1)
        self.num_iterations = self.config.iterations
        self._num_episodes = 0.0  # that ended in the last rollout
        self._loss_log: dict[str, float] = {}
        self._has_warned = False  # of something that is not finite
        self._has_warned_of_budget = False
        self._monitor = SystemMonitor()
        # set by a loop that ends at a signal: whether to drop the rest of a slow rollout
        self.is_stopping: Callable[[], bool] = lambda: False
        self._logger = SafeLogger(_as_loggers(logger) if self.world.is_first else [])
        self._dashboard: Dashboard | None = None
        self._closed = False
        self._turn = _Turn()
        self._carry_in_use: Carry | None = None  # of an `evaluate` that has not finished
        self._env = env
        self.state = saving.TrainState(
            self.config.learning_rate,
            parts.order_rng,
            sample_rng,
            self._begin_on(env),
            EpisodeWindow(env.num_agents),
        )
        self.restart_clock()

    @property
    def env(self) -> VectorEnv:
        """The env of the run. Another one with the same spaces can be set between iterations.

        So a curriculum moves from task to task: weights, optimizer, counters, schedule and the pool
        of self-play stay, and the new env starts new episodes. The caller closes both envs.
        """
        return self._env

    @env.setter
    def env(self, env: VectorEnv) -> None:
        check_vector_env(env)
        with self._turn:
            env = as_self_play(env, asdict(self.config), self.world, before=self._env)
            spaces = policy_spaces(env)
            loading.check_spaces(spaces, self.spaces, "of the env before")
            self.shape = batch_shape(self.config, env.num_agents * self.world.size)
            self.spaces = spaces
            self.state.carry = self._begin_on(env)
            self.state.episodes = EpisodeWindow(env.num_agents)
            self.state.has_rollout = False

    def restart_clock(self) -> None:
        """Measure steps per second from now on."""
        self._last_evaluate = self._last_log = time.perf_counter()
        self._iteration_seconds = 0.0  # of the last one

    def _begin_on(self, env: VectorEnv) -> Carry:
        """Create all that depends on the number of slots, and start the first episodes."""
        self._env, self.self_play = env, self_play_of(env)
        self.world.agree({"slots": env.num_agents})
        self.engine.begin_on(env, self.spaces, self.shape)
        if self.config.norm_reward:
            before = self.reward_norm
            self.reward_norm = RewardNorm(
                env.num_agents, self.config.gamma, self.device, self.world
            )
            if before is not None:
                self.reward_norm.moments.load_state_dict(before.moments.state_dict())
        return self.restart_episodes()

    def restart_episodes(self, seed: int | None = None) -> Carry:
        """Start new episodes in all envs of this process."""
        env = self._env
        if seed is None:
            seed = self.config.seed if env._next_seed is None else env._next_seed
        first_env = self.world.rank * env.num_agents // env.agents_per_env
        if first_env and not env.place(first_env):
            seed = native.env_seed(seed, self.world.rank << 32) % 2**32
        env.seed(seed)
        env.reset()
        return begin(env, self.device)

    def _after_interrupt(self) -> Carry:
        """Drop the steps of an `evaluate` that did not finish; return what the next begins with.

        Episodes go on in envs that have snapshots, with a recurrent state of zero. Others may
        be in the middle of a step, so their episodes begin again.
        """
        self.rollout.forget()
        try:
            state = self._env.snapshot()
            if state is not None:
                self._env.restore(state)  # ends all turns and actions that are under way
                return begin(self._env, self.device)
        except PufferError:  # `reset` is due
            pass
        if self.reward_norm is not None:
            self.reward_norm.returns.zero_()
        carry = self.restart_episodes(native.env_seed(self.config.seed, 2**40 + self.steps) % 2**32)
        warnings.warn(
            "the last `evaluate` did not finish: its steps are dropped, and all episodes begin "
            "again.",
            UserWarning,
            stacklevel=4,
        )
        return carry

    # ---- The three calls of an iteration -------------------------------------------------------

    def _note_progress(self, doing: str, done: int, total: int, unit: str) -> None:
        """Show how far a slow iteration is; end it where the run is to stop."""
        seconds = time.perf_counter() - self._last_log
        if seconds < _SLOW_SECONDS:
            return
        if self._dashboard is not None:
            text = f"{doing} {done:,} / {total:,} {unit}"
            self._dashboard.progress(text, self.uptime)
        if doing == "collecting" and self.is_stopping():
            left = (time.perf_counter() - self._collect_began) * (total / max(1, done) - 1)
            if left > _SLOW_SECONDS and self._can_drop_rollout():
                raise RolloutDropped(f"{done:,} of {total:,} steps")

    @property
    def seconds_left(self) -> float:
        """About how many seconds this iteration still takes, by the one before; 0 if unknown."""
        took = self._iteration_seconds - (time.perf_counter() - self._last_log)
        return max(0.0, took) if self.iteration else 0.0

    def _can_drop_rollout(self) -> bool:
        """Return whether a checkpoint is the same without the last steps: no env is saved in it."""
        return self.world.size == 1 and self.env.batches == 1 and self.env.snapshot() is None

    def evaluate(self) -> dict[str, float]:
        """Collect one rollout; return statistics of the last episodes.

        The window is the last rollouts with 100 episodes together (`EpisodeWindow`). `episodes` is
        the number that ended in this rollout. After an interrupt, such as Ctrl-C in a notebook,
        the next call begins the rollout again.
        """
        with self._turn:
            return self._evaluate()

    def _evaluate(self) -> dict[str, float]:
        self.state.has_rollout = False
        if self.state.carry is self._carry_in_use:
            self.state.carry = self._after_interrupt()
        self._carry_in_use = self.state.carry
        if self.self_play is not None:
            self.self_play.note_policy(self.policy, self.iteration, self.observation_norm)
        self._collect_began = time.perf_counter()
        with no_action_check(self.env):
            self.state.carry = self.engine.collect(self.env, self.state.carry)
        self._carry_in_use = None
        with self._profiler("store"):
            layout, agents_per_env = self.spaces.observation, self.env.agents_per_env
            self._note_fault(self.rollout.non_finite(layout, agents_per_env))
            self._prepare_rollout()
        self.state.steps += self.config.batch_size
        self.state.has_rollout = True
        self._note_episodes()
        now = time.perf_counter()
        sps = self.config.batch_size / (now - self._last_evaluate)
        self._last_evaluate = now
        means = {**dict.fromkeys(_EPISODE_KEYS, math.nan), **self.state.episodes.means()}
        return {**means, "episodes": self._num_episodes, "sps": sps}

    def train(self) -> dict[str, float]:
        """Update the policy on the last rollout; return the means of its losses."""
        with self._turn:
            return self._train()

    def _train(self) -> dict[str, float]:
        if not self.state.has_rollout:
            raise UsageError("`evaluate` must be called before `train`: there is no rollout yet.")
        if self.done and self.config.anneal_lr and not self._has_warned_of_budget:
            self._has_warned_of_budget = True
            warnings.warn(
                f"the budget of {self.num_iterations * self.config.batch_size} steps is spent and "
                "the learning rate is 0: further updates change nothing. Try a larger "
                "`total_timesteps`, or anneal_lr=False.",
                UserWarning,
                stacklevel=3,
            )
        config, now = self.config, self._schedule()
        table, variance = self.engine.train(self.shape, now)
        num_sound = len(table)
        means = [sum(column) / num_sound for column in zip(*table.tolist(), strict=True)]
        if not all(map(math.isfinite, means)):  # a sum is finite only if all its parts are
            self._note_fault(_non_finite_update(table))
            sound = table[np.isfinite(table).all(axis=1)]
            num_sound = len(sound)
            means = sound.mean(0).tolist() if num_sound else [math.nan] * len(NUMBERS)
        self.state.iteration += 1
        self.state.spent += 1
        self._loss_log = {
            **dict(zip(NUMBERS, means, strict=True)),
            "explained_variance": variance,
            "learning_rate": now.learning_rate,
            "updates": float(len(table)),
            "native_engine": float(self.engine.is_native),
        }
        if config.clip_coef_final is not None:
            self._loss_log["clip_coef"] = now.clip_coef
        if config.ent_coef_final is not None:
            self._loss_log["ent_coef"] = now.ent_coef
        if config.on_nan == "skip":
            self._loss_log["skipped_updates"] = float(len(table) - num_sound)
        return dict(self._loss_log)

    def mean_and_log(self) -> dict[str, float]:
        """Return all numbers of this iteration, after passing them to loggers and dashboard."""
        now = time.perf_counter()
        elapsed, self._last_log = now - self._last_log, now
        self._iteration_seconds = elapsed
        spans = self._profiler.drain()
        episodes = self.state.episodes.means()
        log: dict[str, float] = {
            "iteration": self.iteration,
            "steps": self.steps,
            "total_steps": self.num_iterations * self.config.batch_size,
            "sps": self.config.batch_size / elapsed,
            "uptime": self.uptime,
            "eta": max(0, self.num_iterations - self.state.spent) * elapsed,
            **{key: episodes.pop(key, math.nan) for key in _EPISODE_KEYS},
            "episodes": self._num_episodes,
            **{f"env/{key}": value for key, value in episodes.items()},
            **self._loss_log,
            **{f"time/{key}": value for key, value in spans.items()},
            "time/other": max(0.0, elapsed - sum(spans.values())),
            **self._monitor.sample(),
        }
        if self.iteration % self.config.log_interval == 0:
            self._logger.log(log, self.steps)
        self.dashboard.update(log)
        return log

    def _note_episodes(self) -> None:
        """Add the episodes that ended in this rollout, in all processes, to the window."""
        window, rollout = self.state.episodes, self.rollout
        ended = window.all_ended
        if not ended:
            ends = (rollout.terminals | rollout.truncations).any(1)
            flags = (rollout.slots, ends, rollout.masks.any(1))
            ended = window.note_ends(*(part.cpu().numpy() for part in flags))
        own = self.env.drain_metrics(), ended
        parts = [own] if self.world.size == 1 else self.world.gather(own)
        if not window.all_ended and all(ended for _, ended in parts):
            window.all_ended, window.has_ended[:] = True, True
        joined = joined_metrics([metrics for metrics, _ in parts])
        self._num_episodes = joined["episodes"]
        window.add(joined)

    def _prepare_rollout(self) -> None:
        """Scale, normalise and clip rewards; update the statistics of observations."""
        config, rewards = self.config, self.rollout.rewards
        if config.reward_scale != 1.0:
            rewards.mul_(config.reward_scale)
        if self.reward_norm is not None:
            self.engine.normalise_rewards(self.reward_norm)
        if config.reward_clip is not None:
            rewards.clamp_(-config.reward_clip, config.reward_clip)
        if self.observation_norm is not None:
            self.observation_norm.learn()

    def _note_fault(self, fault: str | None) -> None:
        """Raise on a non-finite number, or warn once, as `on_nan` says."""
        if fault is None:
            return
        message = f"{fault}, iteration {self.iteration + 1}."
        if self.config.on_nan == "stop":
            raise NonFiniteError(
                f"{message} Try a lower learning_rate, or `puffer check` on the env."
            )
        if not self._has_warned:
            self._has_warned = True
            message += " The updates that it affects are skipped, now and later."
            warnings.warn(message, RuntimeWarning, stacklevel=4)

    # ---- Schedule --------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """Step size before annealing; a new value takes effect at the next update."""
        return self.state.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self.state.learning_rate = TrainConfig(learning_rate=rate).learning_rate

    @property
    def iteration(self) -> int:
        """Iterations so far: calls of `train`."""
        return self.state.iteration

    @property
    def steps(self) -> int:
        """Steps so far, of all slots of all processes."""
        return self.state.steps

    @property
    def rollout(self) -> Rollout:
        """The last rollout; rewritten by each `evaluate`."""
        return self.engine.rollout

    @property
    def done(self) -> bool:
        """Whether the budget is spent."""
        return self.state.spent >= self.num_iterations

    @property
    def is_settled(self) -> bool:
        """Whether scores are comparable: every slot has ended an episode, and 100 ended in all.

        Before that, only short episodes have ended.
        """
        return self.state.episodes.is_settled

    @property
    def uptime(self) -> float:
        """Seconds of this run, the parts before a resume included."""
        return self.state.earlier_uptime + time.perf_counter() - self.state.started

    def _schedule(self) -> Schedule:
        """Return the coefficients of this iteration."""
        config = self.config
        progress = min(1.0, self.state.spent / self.num_iterations)
        return Schedule(
            learning_rate=self.learning_rate * (1.0 - progress if config.anneal_lr else 1.0),
            clip_coef=_between(config.clip_coef, config.clip_coef_final, progress),
            ent_coef=_between(config.ent_coef, config.ent_coef_final, progress),
            prio_beta=_between(config.prio_beta0, 1.0, progress),
        )

    # ---- Acting, saving, ending ------------------------------------------------------------------

    def predict(
        self,
        observations: Any,
        state: RecurrentState = None,
        deterministic: bool = True,
        action_masks: ArrayLike | None = None,
    ) -> tuple[NDArray[np.generic], RecurrentState]:
        """Return actions for observations as the env gives them, and the next recurrent state.

        Observations of a Dict or Tuple space may be flat rows or values of the space. A single
        observation without a batch dimension gets a single action; states always have a batch
        dimension. `env.step` takes the actions. `action_masks` has a row for each observation,
        false for illegal actions. The policy runs in eval mode. Pass the state to the next call,
        and None at the beginning of an episode.
        """
        return self.engine.actor.predict(
            observations, state, deterministic, action_masks, self.env.agent_ids
        )

    def save_checkpoint(self, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
        """Write the whole run to one file, atomically.

        `metadata` is any JSON value, with numbers of NumPy and torch; `load_checkpoint` returns it.
        """
        saving.save(self, path, metadata)

    def load_checkpoint(self, path: str | Path, weights_only: bool = False) -> Any:
        """Restore what `save_checkpoint` wrote for the same policy; return its metadata.

        The run continues where it was: weights, optimizer, counters, random generators, and the
        envs if they have snapshots. Where the file has another number of slots, or the envs cannot
        be restored, new episodes begin, and a RuntimeWarning says so. With `weights_only` only the
        policy is restored: its weights and the statistics of `norm_obs`. A file that does not fit
        changes nothing. Nothing in the file is executed.
        """
        with self._turn:
            return saving.load(self, path, weights_only)

    @property
    def dashboard(self) -> Dashboard:
        """The display of this run, created at first use."""
        if self._dashboard is None:
            name = self.env.name or type(self.env).__name__
            steps = self.num_iterations * self.config.batch_size
            about = (self.num_parameters, str(self.device), self.engine.name, steps)
            mode = self.config.dashboard if self.world.is_first else "off"
            self._dashboard = make_dashboard(mode, Record(name, *about))
            self._dashboard.__enter__()
            if self.adjusted:
                slots = self.env.num_agents * self.world.size
                sizes = ", ".join(self.adjusted)
                self._dashboard.remark(f"adjusted to {slots} slots: {sizes}")
            for remark in (self.env.reduced, self._remark):
                if remark:
                    self._dashboard.remark(remark)
            if self.engine.fallback:
                self._dashboard.remark(f"engine {self.engine.name} ({self.engine.fallback})")
            if self.config.rounded_budget:
                self._dashboard.remark(self.config.rounded_budget)
        return self._dashboard

    def finish(self, paths: Mapping[str, str] | None = None, commands: Sequence[str] = ()) -> None:
        """Show the summary of the run and the commands to type next, then close."""
        self.dashboard.finish(paths, commands)
        self.close()

    def close(self) -> None:
        """Release the terminal and close the loggers. Safe to call twice; `env` stays open."""
        if self._closed:
            return
        self._closed = True
        if self._dashboard is not None:
            self._dashboard.close()
        self._logger.close()


class _Turn:
    """Lets one thread at a time use a trainer: engines have no locks.

    A thread that an interrupt has kept from giving its turn back still has it, and may go on.
    """

    def __init__(self) -> None:
        self._owner: dict[str, int] = {}

    def __enter__(self) -> None:
        own = threading.get_ident()
        if self._owner.setdefault("thread", own) != own:  # one step, so no thread gets in between
            raise UsageError(
                "this trainer is in use by another thread. Try a trainer for each thread."
            )

    def __exit__(self, *_: object) -> None:
        self._owner.pop("thread", None)


def _signature() -> inspect.Signature:
    """Return the signature with the options of TrainConfig, for help() and editors."""
    own = inspect.signature(PuffeRL.__init__)
    given = [part for part in own.parameters.values() if part.kind is not part.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in fields(TrainConfig)
    ]
    return inspect.Signature(given[1:] + options)


PuffeRL.__signature__ = _signature()  # type: ignore[attr-defined]


def _check_policy(policy: object) -> None:
    if isinstance(policy, loading.LoadedPolicy):
        raise UsageError(
            "`policy` must be a module to train, but got the result of `load`. Try its `policy`, "
            "or `load_checkpoint(path, weights_only=True)`, which keeps statistics too."
        )
    if isinstance(policy, nn.Module) and any(p.is_inference() for p in policy.parameters()):
        raise UsageError("`policy` must not be made under `torch.inference_mode` to be trained.")
    if policy is None or isinstance(policy, nn.Module):
        return
    if isinstance(policy, type):
        raise UsageError(
            f"`policy` must be an nn.Module, but got a class. Try `{policy.__name__}(...)`."
        )
    raise UsageError(
        f"`policy` must be an nn.Module, but got {type(policy).__name__}. "
        "Try None, which builds one for the spaces."
    )


def _layout_of(policy: nn.Module, spaces: PolicySpaces) -> dict[str, object]:
    """Return what must be equal for policies of two processes, except for their weights."""
    parts = (*policy.named_parameters(), *policy.named_buffers())
    return {
        "observation_space": spaces.observation.space,
        "action_space": spaces.action.space,
        **{f"policy.{name}": (*part.shape, part.dtype, part.requires_grad) for name, part in parts},
    }


def _non_finite_update(table: NDArray[np.float32]) -> str | None:
    """Describe the first nan or inf of [updates, NUMBERS]; None if there is none."""
    bad = np.argwhere(~np.isfinite(table))
    if not len(bad):  # only their sum was not finite
        return None
    update, column = bad[0]
    return f"`{NUMBERS[column]}` must be finite, but is {table[update, column]} in update {update}"


def _between(start: float, final: float | None, progress: float) -> float:
    """Interpolate linearly from `start` to `final`; None keeps `start`."""
    return start if final is None else start + (final - start) * progress


def _device(name: str, world: World) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and world.size > 1:
        name = f"cuda:{world.local_rank}"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # each kind has its own way
        raise UsageError(
            f"`device` must be available, but {name!r} is not. Try device='cpu'."
        ) from None
    return device


def _as_loggers(logger: Logger | Iterable[Logger] | None) -> list[Logger]:
    if logger is None:
        return []
    is_group = isinstance(logger, Iterable) and not isinstance(logger, str)
    loggers: list[Any] = list(logger) if is_group else [logger]  # type: ignore[arg-type]
    for each in loggers:
        if isinstance(each, type) or not isinstance(each, Logger):
            raise UsageError(
                "`logger` must have `log(metrics, step)` and `close()`, but got "
                f"{each if isinstance(each, type) else repr(each)}. "
                "Try `pufferlib.JsonlLogger(path)`."
            )
    return loggers
