"""PuffeRL: PPO from experience to updated weights, one iteration at a time.

    trainer = PuffeRL(pufferlib.make("breakout"))
    while not trainer.done:
        trainer.evaluate()      # collect a rollout
        trainer.train()         # advantages, then minibatches of loss and update
        trainer.mean_and_log()  # numbers to loggers and dashboard

A run can be saved between any two iterations, and goes on from there bit for bit.
"""

from __future__ import annotations

import inspect
import math
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from pufferlib import native, resuming
from pufferlib.async_rollout import AsyncRollout, collect_async
from pufferlib.config import TrainConfig, check_train
from pufferlib.dashboard import Dashboard, make_dashboard
from pufferlib.distributed import SlotGenerator, World, join_world, joined_metrics
from pufferlib.errors import NonFiniteError, UsageError
from pufferlib.learner import NUMBERS, Learner, Schedule
from pufferlib.loggers import Logger, SafeLogger
from pufferlib.models import make_policy
from pufferlib.nonfinite import rollout_fault, update_fault
from pufferlib.normalisation import ObservationNorm, RewardNorm
from pufferlib.profiling import Profiler, SystemMonitor
from pufferlib.pytorch import (
    State,
    env_actions,
    in_eval_mode,
    mode,
    observation_rows,
    policy_spaces,
    policy_step,
    prepare_policy,
    sample,
)
from pufferlib.rollout import (
    Carry,
    Rollout,
    begin,
    collect,
)
from pufferlib.selfplay import as_self_play, self_play_of

if TYPE_CHECKING:
    from pufferlib.vectorization import VectorEnv

_SMALL_POLICY = 20_000  # parameters; below, waking a second thread costs more than it saves


class PuffeRL:
    """Trains `policy` on `env` with PPO. Keywords are the fields of `config.TrainConfig`.

    The trainer owns the stepping of `env` from here on; the caller still closes both. `policy=None`
    builds one that fits the spaces. The seed is given to the env unless one is held already. What
    nobody chose is fitted: a default `batch_size` is rounded to fit the slots, and without a budget
    (`total_timesteps` or `num_iterations`) the learning rate stays constant.
    """

    def __init__(
        self,
        env: VectorEnv,
        policy: nn.Module | None = None,
        *,
        logger: Logger | Iterable[Logger] | None = None,
        **settings: Any,
    ) -> None:
        _check_env(env)
        _check_policy(policy)
        if isinstance(settings.get("device"), torch.device):
            settings["device"] = str(settings["device"])
        self.world = join_world(str(settings.get("device", "auto")))
        env = as_self_play(env, settings, self.world)
        self.config = _fitted_config(settings, env.num_agents * self.world.size)
        self.shape = check_train(self.config, env.num_agents * self.world.size)
        self.device = _device(self.config.device, self.world)
        if self.device.type == "cpu":
            native.keep_memory()  # 15 to 40 % of an update went into fresh pages
        self.spaces = policy_spaces(env)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            self.policy = (make_policy(env) if policy is None else policy).to(self.device)
            prepare_policy(self.policy, self.spaces)
        self.world.copy_from_first((*self.policy.parameters(), *self.policy.buffers()))
        # one pass over all segments must not depend on the device, so the order is drawn on the CPU
        self._order_rng = torch.Generator().manual_seed(self.config.seed)
        self._sample_rng = SlotGenerator(self.device, self.world)
        self._sample_rng.manual_seed(self.config.seed + 1)
        self._learner = Learner(
            self.policy, self.spaces, self.config, self.device, self._order_rng, self.world
        )
        self.optimizer = self._learner.optimizer
        self.learning_rate = self.config.learning_rate
        self.num_parameters = sum(p.numel() for p in self._learner.parameters)
        self._set_threads()
        self.engine = "torch"

        self.iteration = 0
        self.steps = 0
        self._uptime = 0.0  # of earlier parts of the run, before a checkpoint
        self._num_episodes = 0.0  # that ended in the last rollout
        self._loss_log: dict[str, float] = {}
        self._has_warned = False  # of something that is not finite
        self.observation_norm: ObservationNorm | None = None
        self._reward_norm: RewardNorm | None = None
        if self.config.norm_obs:
            self.observation_norm = ObservationNorm(
                self.spaces.observation, self.device, self.world
            )
        self._profiler = Profiler()
        self._monitor = SystemMonitor()
        self._logger = SafeLogger(_as_loggers(logger) if self.world.is_first else [])
        self._dashboard: Dashboard | None = None
        self._closed = False
        self._begin_on(env)
        self._started = self._last_evaluate = self._last_log = time.perf_counter()

    @property
    def env(self) -> VectorEnv:
        """What is trained on; another of the same spaces may take its place between iterations.

        So a curriculum goes from task to task with weights, optimizer, counters and schedule as
        they are, and with the pool of self-play. Its episodes begin anew. The caller closes the old
        one and the new one.
        """
        return self._env

    @env.setter
    def env(self, env: VectorEnv) -> None:
        _check_env(env)
        env = as_self_play(env, asdict(self.config), self.world, before=self._env)
        spaces = policy_spaces(env)
        for noun in ("observation", "action"):
            own, new = getattr(self.spaces, noun), getattr(spaces, noun)
            if _rows_of(own) != _rows_of(new):
                raise UsageError(
                    f"`env` must have the {noun} space of the env before, {own.space}, but has "
                    f"{new.space}."
                )
        self.shape = check_train(self.config, env.num_agents * self.world.size)
        self.spaces = self._learner.spaces = spaces
        self._begin_on(env)

    def _begin_on(self, env: VectorEnv) -> None:
        """Make what depends on the number of slots, and start the first episodes."""
        self._env, self._self_play = env, self_play_of(env)
        slots = self.world.gather(env.num_agents)
        if set(slots) != {env.num_agents}:
            raise UsageError(f"every process must have as many slots, but they have {slots}.")
        shape = self.shape._replace(segments=self.shape.segments // self.world.size)
        is_whole = not getattr(env, "surplus_envs", 0)
        self.rollout = (Rollout if is_whole else AsyncRollout)(
            shape, env.num_agents, self.spaces, self.device, env.action_masks is not None
        )
        self._collect: Any = collect if is_whole else collect_async
        if self.config.norm_reward:
            before = self._reward_norm
            self._reward_norm = RewardNorm(
                env.num_agents, self.config.gamma, self.device, self.world
            )
            if before is not None:
                self._reward_norm.moments.load_state_dict(before.moments.state_dict())
        self._has_rollout = False
        self._episode_log: dict[str, float] = {}  # of the last rollout in which any ended
        self._carry = self._start_env()

    # ---- The three calls of an iteration -------------------------------------------------------

    def evaluate(self) -> dict[str, float]:
        """Collect one rollout; return statistics of the episodes that finished in it.

        Where none finished, those of the last rollout in which any did are repeated.
        """
        self._has_rollout = False
        if self._self_play is not None:
            self._self_play.note_policy(self.policy, self.iteration, self.observation_norm)
        with self._learner.autocast(), in_eval_mode(self.policy):
            self._carry = self._collect(
                self.env,
                self._learner.runner,
                self.spaces,
                self.rollout,
                self._carry,
                generator=self._sample_rng,
                profiler=self._profiler,
                normalise=self.observation_norm,
            )
        with self._profiler("store"):
            layout, agents = self.spaces.observation, getattr(self.env, "agents_per_env", 1)
            self._note_fault(rollout_fault(self.rollout, layout, agents))
            self._prepare_rollout()
        self.steps += self.config.batch_size
        self._has_rollout = True
        episodes = joined_metrics(self.world.gather(self.env.drain_metrics()))
        self._num_episodes = episodes.pop("episodes")
        if self._num_episodes:
            self._episode_log = episodes
        now = time.perf_counter()
        sps = self.config.batch_size / (now - self._last_evaluate)
        self._last_evaluate = now
        blank = dict.fromkeys(
            ("mean_reward", "min_reward", "max_reward", "episode_length"), math.nan
        )
        return {**blank, **self._episode_log, "episodes": self._num_episodes, "sps": sps}

    def train(self) -> dict[str, float]:
        """Update the policy on the last rollout; return the means of its losses."""
        if not self._has_rollout:
            raise UsageError("`evaluate` must be called before `train`: there is no rollout yet.")
        config, now = self.config, self._schedule()
        table, variance = self._learner.train(self.rollout, self.shape, now, self._profiler)
        self._note_fault(update_fault(NUMBERS, table))
        self.iteration += 1
        sound = table[np.isfinite(table).all(axis=1)]
        means = sound.mean(0) if len(sound) else np.full(len(NUMBERS), np.nan)
        self._loss_log = {
            **dict(zip(NUMBERS, means.tolist(), strict=True)),
            "explained_variance": variance,
            "learning_rate": now.learning_rate,
            "updates": float(len(table)),
            **({} if config.clip_coef_final is None else {"clip_coef": now.clip_coef}),
            **({} if config.ent_coef_final is None else {"ent_coef": now.ent_coef}),
            **(
                {}
                if config.on_nan == "stop"
                else {"skipped_updates": float(len(table) - len(sound))}
            ),
        }
        return dict(self._loss_log)

    def mean_and_log(self) -> dict[str, float]:
        """Join the numbers of this iteration, hand them to loggers and dashboard, return them."""
        now = time.perf_counter()
        elapsed, self._last_log = now - self._last_log, now
        spans = self._profiler.drain()
        episodes = dict(self._episode_log)
        common = ("mean_reward", "min_reward", "max_reward", "episode_length")
        log: dict[str, float] = {
            "iteration": self.iteration,
            "steps": self.steps,
            "total_steps": self.num_iterations * self.config.batch_size,
            "sps": self.config.batch_size / elapsed,
            "uptime": self.uptime,
            "eta": max(0, self.num_iterations - self.iteration) * elapsed,
            **{key: episodes.pop(key, math.nan) for key in common},
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

    def _prepare_rollout(self) -> None:
        """Scale, normalise and clip what the envs gave, as the policy is to be trained on it."""
        config, rollout = self.config, self.rollout
        masks = None if rollout.all_present else rollout.masks
        rewards = rollout.rewards
        if config.reward_scale != 1.0:
            rewards.mul_(config.reward_scale)
        if self._reward_norm is not None:
            ends = rollout.terminals | rollout.truncations
            parts = (rewards, ends) if masks is None else (rewards, ends, masks)
            if isinstance(rollout, AsyncRollout):
                for rows, slots in rollout.waves():
                    own = None if masks is None else masks[rows]
                    self._reward_norm.update(rewards[rows], ends[rows], own, slots)
            else:
                self._reward_norm.update(*map(rollout.by_slot, parts))
            rewards.copy_(self._reward_norm(rewards))
        if config.reward_clip is not None:
            rewards.clamp_(-config.reward_clip, config.reward_clip)
        if self.observation_norm is not None:
            seen = self.observation_norm(rollout.observations)  # as in the rollout, before it moves
            self.observation_norm.update(rollout.observations, masks)
            rollout.observations.copy_(seen)

    def _note_fault(self, fault: str | None) -> None:
        """Stop for what is not finite, or say it once, as `on_nan` wants it."""
        if fault is None:
            return
        told = f"{fault}, iteration {self.iteration + 1}."
        if self.config.on_nan == "stop":
            raise NonFiniteError(f"{told} Try a lower learning_rate, or `puffer check` on the env.")
        if not self._has_warned:
            self._has_warned = True
            message = f"{told} What it spoils is skipped, now and from here on."
            warnings.warn(message, RuntimeWarning, stacklevel=3)

    # ---- Schedule --------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """Step size before annealing; a new value counts from the next update on."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        try:
            number = float(rate)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise UsageError(f"`learning_rate` must be a number of at least 0, but got {rate!r}.")
        self._learning_rate = number

    @property
    def num_iterations(self) -> int:
        """Iterations in the run's budget."""
        return self.config.iterations

    @property
    def done(self) -> bool:
        """Whether the budget is spent."""
        return self.iteration >= self.num_iterations

    @property
    def uptime(self) -> float:
        """Seconds of this run, the parts before a resume included."""
        return self._uptime + time.perf_counter() - self._started

    def _schedule(self) -> Schedule:
        """Return the coefficients of this iteration."""
        config = self.config
        progress = min(1.0, self.iteration / self.num_iterations)
        return Schedule(
            learning_rate=self.learning_rate * (1.0 - progress if config.anneal_lr else 1.0),
            clip_coef=_between(config.clip_coef, config.clip_coef_final, progress),
            ent_coef=_between(config.ent_coef, config.ent_coef_final, progress),
            prio_beta=_between(config.prio_beta0, 1.0, progress),
        )

    # ---- Acting, saving, ending ------------------------------------------------------------------

    @torch.no_grad()
    def predict(
        self,
        observations: Any,
        state: State = None,
        deterministic: bool = True,
        action_masks: Any = None,
    ) -> tuple[np.ndarray[Any, Any], State]:
        """Return actions for observations as the env gives them, and the next state.

        Those of a Dict or Tuple space may be flat rows or values of the space. One observation
        without a batch gets one action; states have a batch always. Actions are rows that `step`
        of the env takes. `action_masks` are false for what is illegal, one row for each
        observation. The policy is asked in eval mode; pass the state on, and None at the beginning
        of an episode.
        """
        given = self._rows_to_see(observations)
        is_one = given.ndim == len(self.spaces.observation.shape)
        rows = torch.as_tensor(given[None] if is_one else given, device=self.device)
        if self.observation_norm is not None:
            rows = self.observation_norm(rows)
        legal = self._legal(action_masks, len(rows))
        with self._learner.autocast(), in_eval_mode(self.policy):
            output = policy_step(self._learner.runner, rows, state, self.spaces)
        if deterministic:
            actions = mode(output, self.spaces.action, legal)
        else:
            drawn, _ = sample(output, self.spaces.action, legal, self._sample_rng)
            actions = env_actions(output, self.spaces.action, drawn)
        made = actions.cpu().numpy()
        return (made[0, ...] if is_one else made), output.state

    def _rows_to_see(self, observations: Any) -> np.ndarray[Any, Any]:
        """Return observations in any form that an env gives them in as rows, or as one row."""
        layout, ids = self.spaces.observation, getattr(self.env, "agent_ids", None)
        if ids and isinstance(observations, Mapping) and observations.keys() == set(ids):
            parts = [observation_rows(observations[id], layout) for id in ids]
            return np.stack(parts, 1).reshape(-1, *layout.shape)
        return observation_rows(observations, layout)

    def _legal(self, action_masks: Any, batch: int) -> Tensor | None:
        if action_masks is None:
            return None
        masks = np.asarray(action_masks, dtype=np.bool_)
        width = sum(self.spaces.action.nvec)
        if masks.shape not in ((width,), (batch, width)):
            raise UsageError(
                f"`action_masks` must have shape {(batch, width)}, but got {masks.shape}."
            )
        return torch.as_tensor(masks, device=self.device).expand(batch, width)

    def save_checkpoint(self, path: str | Path, metadata: Mapping[str, Any] | None = None) -> None:
        """Write all that the run needs to go on to one file, atomically.

        `metadata` is any JSON value, with numbers of NumPy and torch; `load_checkpoint` returns it.
        """
        resuming.save(self, path, metadata)

    def load_checkpoint(self, path: str | Path, weights_only: bool = False) -> Any:
        """Take over what `save_checkpoint` wrote for the same policy; return its metadata.

        The run continues where it was: weights, optimizer, counters and random numbers, and the
        envs where they could give their state. With `weights_only` the policy plays as it did then
        (its weights, and the statistics of `norm_obs`), and all else stays as it is. A file that
        does not fit changes nothing. Nothing in it is executed.
        """
        return resuming.load(self, path, weights_only)

    @property
    def dashboard(self) -> Dashboard:
        """The display of this run, begun when first asked for."""
        if self._dashboard is None:
            self._dashboard = make_dashboard(
                self.config.dashboard if self.world.is_first else "off",
                env_name=self.env.name or type(self.env).__name__,
                num_parameters=self.num_parameters,
                device=str(self.device),
                engine=self.engine,
                total_steps=self.num_iterations * self.config.batch_size,
            )
            self._dashboard.__enter__()
        return self._dashboard

    def finish(self, paths: Mapping[str, str] | None = None) -> None:
        """Show the summary of a run that went well, then close."""
        self.dashboard.finish(paths)
        self.close()

    def close(self) -> None:
        """Give the terminal back and close the loggers. Safe to call twice; `env` stays open."""
        if self._closed:
            return
        self._closed = True
        if self._dashboard is not None:
            self._dashboard.close()
        self._logger.close()

    def __enter__(self) -> PuffeRL:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start_env(self) -> Carry:
        seed = getattr(self.env, "_next_seed", None)
        seed = self.config.seed if seed is None else seed
        before = self.world.rank * self.env.num_agents // getattr(self.env, "agents_per_env", 1)
        if before and not (hasattr(self.env, "place") and self.env.place(before)):
            seed = native.env_seed(seed, self.world.rank << 32) % 2**32
        self.env.seed(seed)
        self.env.reset()
        return begin(self.env, self.device)

    def _set_threads(self) -> None:
        """Give torch as many CPU threads as pay off, for the whole process."""
        if self.config.torch_threads is not None:
            torch.set_num_threads(self.config.torch_threads)
        elif self.device.type == "cpu" and self.num_parameters < _SMALL_POLICY:
            torch.set_num_threads(1)


def _signature() -> inspect.Signature:
    """Spell out the options of TrainConfig, so that help() and editors show them."""
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


def _rows_of(layout: Any) -> tuple[Any, ...]:
    """Return what a policy depends on in a layout; bounds of observations are no part of it."""
    leaves = [(leaf.path, leaf.kind, leaf.shape, leaf.dtype, leaf.nvec) for leaf in layout.leaves]
    bounds = [
        part.tolist()
        for part in (getattr(layout, "low", None), getattr(layout, "high", None))
        if part is not None
    ]
    return layout.shape, layout.dtype, leaves, bounds


def _check_env(env: Any) -> None:
    missing = [name for name in ("reset", "send", "recv", "num_agents") if not hasattr(env, name)]
    if missing:
        raise UsageError(
            f"`env` must be a VectorEnv, but got {type(env).__name__}. "
            "Try `pufferlib.make(...)` or a class of `pufferlib.vectorization`."
        )


def _check_policy(policy: Any) -> None:
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


def _fitted_config(settings: Mapping[str, Any], num_slots: int) -> TrainConfig:
    """Check the settings, and fit to the env and the call what nobody chose."""
    fitted = dict(settings)
    if not {"anneal_lr", "total_timesteps", "num_iterations"} & settings.keys():
        fitted["anneal_lr"] = False  # a loop of the user's own may go on for longer
    config = TrainConfig.from_dict(fitted)
    unit = num_slots * (config.num_steps or 1)
    if "batch_size" in settings or config.batch_size % unit == 0:
        return config
    return replace(config, batch_size=max(1, config.batch_size // unit) * unit)


def _between(start: float, final: float | None, progress: float) -> float:
    """Return what is `progress` of the way from `start` to `final`; None stays at the start."""
    return start if final is None else start + (final - start) * progress


def _device(name: str, world: World) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and world.size > 1:
        name = f"cuda:{world.local_rank}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"`device` must be auto, cpu, cuda or cuda:N, but got {name!r}.") from None
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # each kind has its own way
        raise UsageError(
            f"`device` must be present, but {name!r} is not. Try device='cpu'."
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
