"""Environments of the C core, and its kernels, as Python sees them.

With engine.py the only importer of the compiled module `_core`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import pufferlib._core as _core
from pufferlib.buffers import Buffers, allocate
from pufferlib.env import PufferEnv
from pufferlib.episodes import EpisodeStats, Finished, Infos
from pufferlib.errors import NativeError, UsageError, did_you_mean, quoted, unknown_name
from pufferlib.spaces import Space


@dataclass(frozen=True)
class Param:
    """A constant of an env that `make` may set: one row of its table in C."""

    name: str
    type: str  # "float", "int" or "choice"
    default: float
    low: float
    high: float
    doc: str
    choices: tuple[str, ...]

    def number(self, env: str, value: Any) -> float:
        """Return what the core stores for `value`; a UsageError where its type does not fit."""
        if self.choices:
            if value in self.choices:
                return float(self.choices.index(value))
            hint = did_you_mean(str(value), self.choices)
            raise UsageError(
                f"`{self.name}` of `{env}` must be one of {', '.join(self.choices)}, "
                f"but got {quoted(value)}.{hint}"
            )
        if isinstance(value, str):
            value = _parse_number(value)
        wanted = (int, np.integer) if self.type == "int" else (int, float, np.integer, np.floating)
        is_whole = isinstance(value, float) and value.is_integer()
        if not (isinstance(value, wanted) or is_whole):
            noun = "a whole number" if self.type == "int" else "a number"
            raise UsageError(f"`{self.name}` of `{env}` must be {noun}, but got {quoted(value)}.")
        try:
            return float(value)
        except OverflowError:
            return np.inf if value > 0 else -np.inf  # out of any range, as the core says

    def spell(self, number: float) -> Any:
        """Return a stored number as a user would write it."""
        if self.choices:
            return self.choices[int(number)]
        return int(number) if self.type == "int" else number


@dataclass(frozen=True)
class Metric:
    """A number that an env reports at the end of an episode."""

    name: str
    doc: str


@dataclass(frozen=True)
class NativeInfo:
    """What the C core tells about one of its environments."""

    name: str
    doc: str
    group: str
    params: tuple[Param, ...]
    metrics: tuple[Metric, ...]

    def values(self, settings: Mapping[str, Any]) -> list[float]:
        """Return one number for each param: the given ones, else defaults."""
        known = {param.name: param for param in self.params}
        for name in settings:
            if name not in known:
                raise unknown_name(f"param of `{self.name}`", name, known)
        return [
            param.number(self.name, settings[name]) if name in settings else param.default
            for name, param in known.items()
        ]


@cache
def infos() -> dict[str, NativeInfo]:
    """Return the descriptors of all C environments by name."""
    return {row["name"]: _info(row) for row in _core.infos()}


def _info(row: dict[str, Any]) -> NativeInfo:
    params = tuple(
        Param(
            name=field["name"],
            type=field["type"],
            default=field["default"],
            low=field["low"],
            high=field["high"],
            doc=field["doc"],
            choices=tuple(field["choices"].split("|")) if field["choices"] else (),
        )
        for field in row["params"]
    )
    metrics = tuple(Metric(field["name"], field["doc"]) for field in row["metrics"])
    return NativeInfo(row["name"], row["doc"], row["group"], params, metrics)


def _parse_number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class NativeVec:
    """`num_envs` C envs over one set of buffers, stepped by `num_threads` threads.

    Rows are the caller's after each call, until the next one. `reset` or a `restore` of all envs
    comes first. Not safe to use from two threads. With `double_buffer` each half of the envs can
    step in the background too: its rows are the threads' from `begin` to `finish`, and any other
    call waits for both halves.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        num_threads: int = 1,
        settings: Mapping[str, Any] | None = None,
        buffers: Buffers | None = None,
        double_buffer: bool = False,
    ) -> None:
        if name not in infos():
            raise unknown_name("environment", name, infos())
        self.info = infos()[name]
        self.num_envs = num_envs
        values = self.info.values(settings or {})
        for noun, count in (("num_envs", num_envs), ("num_workers", num_threads)):
            if not 1 <= count < 2**31:
                raise UsageError(f"`{noun}` must be between 1 and 2**31 - 1, but got {count}.")
        try:
            self._vec = _core.Vec(name, num_envs, num_threads, values, double_buffer)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except MemoryError:
            raise UsageError(
                f"`num_envs` must be such that all envs fit into memory, but got {num_envs}. "
                "Try fewer."
            ) from None
        layout = self._vec.layout()
        self.agents_per_env: int = layout["agents"]
        self.num_slots = num_envs * self.agents_per_env
        self.observation_space = _observation_space(layout)
        self.action_space = _action_space(layout)
        self.has_action_masks: bool = layout["action_masks"]
        self.picture_shape = (layout["height"], layout["width"], 3)
        self.bind(buffers or self._allocate())
        self._final_returns = self._vec.final_returns()
        self._final_lengths = self._vec.final_lengths()
        self._final_metrics = self._vec.final_metrics()
        self._metric_names = tuple(metric.name for metric in self.info.metrics)
        self._started = time.perf_counter()
        self._stepped = [self._started] * 2  # when each half was last done

    def _allocate(self) -> Buffers:
        return allocate(
            self.num_slots, self.observation_space, self.action_space, self.has_action_masks
        )

    def bind(self, buffers: Buffers) -> None:
        """Write to these rows from now on. The next call must be `reset` or `restore`."""
        self._vec.bind(
            observations=buffers.observations,
            actions=buffers.actions,
            rewards=buffers.rewards,
            terminals=buffers.terminals.view(np.uint8),
            truncations=buffers.truncations.view(np.uint8),
            masks=buffers.masks.view(np.uint8),
            action_masks=None
            if buffers.action_masks is None
            else buffers.action_masks.view(np.uint8),
            final_observations=buffers.final_observations,
        )
        self.buffers = buffers
        self._ready = False

    def place(self, first_env: int) -> None:
        """Seed env i from (seed, first_env + i) in resets to come: a part of a larger vector."""
        self._vec.place(first_env)

    def reset(self, seed: int) -> None:
        """Seed env i from (seed, i), start new episodes and forget statistics."""
        self._vec.reset(seed)
        self._started = time.perf_counter()
        self._stepped = [self._started] * 2
        self._ready = True

    def step(self, actions: NDArray[Any] | None = None) -> None:
        """Step all envs with `actions` (read in place, not kept), or with the bound action rows."""
        self._check_ready("step")
        self._vec.step(actions)
        self._stepped = [time.perf_counter()] * 2

    def begin(self, half: int) -> None:
        """Step half 0 or 1 of the envs in the background, with the bound action rows."""
        self._check_ready("begin")
        self._vec.begin(half)

    def finish(self, half: int) -> None:
        """Wait until `half` is done with what was begun; return at once where nothing was."""
        self._vec.finish(half)
        self._stepped[half] = time.perf_counter()

    def _check_ready(self, call: str) -> None:
        if not self._ready:  # C code trusts its state: what was never reset has none
            raise UsageError(f"`reset` must be called before `{call}`.")

    def spoken(self, half: int | None = None) -> Finished:
        """Return slot -> info, with the env's metrics, where an episode ended in the last step.

        With `half`, for its slots only, counted from the first of them.
        """
        middle = self.num_slots // 2
        rows = slice(None) if half is None else slice(half * middle, (half + 1) * middle)
        ended = self.buffers.terminals[rows] | self.buffers.truncations[rows]
        seconds = self._stepped[half or 0] - self._started
        return Finished(
            ended,
            self._final_returns[rows],
            self._final_lengths[rows],
            seconds,
            self._metric_names,
            self._final_metrics[rows],
        )

    def drain(self) -> EpisodeStats:
        """Return the statistics of episodes finished since the last drain."""
        sums = self._vec.drain()
        samples = sums.pop("samples")
        if not sums["episodes"]:
            sums.update(return_min=float("inf"), return_max=float("-inf"))
        return EpisodeStats(samples=dict.fromkeys(sums["metric_sums"], samples), **sums)

    def snapshot(self) -> NDArray[np.uint8]:
        """Return the whole state of every env, [num_envs, bytes]: a copy."""
        self._check_ready("snapshot")
        rows = np.empty((self.num_envs, self._vec.snapshot_bytes()), dtype=np.uint8)
        self._vec.snapshot(0, self.num_envs, rows)
        return rows

    def restore(self, rows: NDArray[np.uint8], first: int = 0) -> None:
        """Put envs `first`, `first + 1`, ... back into the states in `rows`.

        Their observations and masks come back too; rewards and flags, which belong to a step that
        never happened, are cleared.
        """
        last = first + len(rows)
        try:
            self._vec.restore(first, last, np.ascontiguousarray(rows))
        except ValueError as error:
            raise UsageError(f"`snapshot` must be of the same env and params: {error}") from None
        self._ready = self._ready or len(rows) == self.num_envs
        buffers = self.buffers.slots(first * self.agents_per_env, last * self.agents_per_env)
        buffers.rewards[:], buffers.terminals[:], buffers.truncations[:] = 0, False, False

    def render(self, env: int = 0) -> NDArray[np.uint8]:
        """Draw one env, [height, width, 3]."""
        self._check_ready("render")
        picture = np.zeros(self.picture_shape, dtype=np.uint8)
        try:
            self._vec.render(env, picture)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return picture

    def handle(self) -> Any:
        """Return the core's own vector, for parts of the core that step its envs themselves."""
        self._check_ready("handle")
        return self._vec.handle()

    def close(self) -> None:
        """Stop the threads. Rows stay readable; statistics and further steps do not."""
        # the arrays of the core are copied out: infos may still be asked for after closing
        self._final_returns = self._final_returns.copy()
        self._final_lengths = self._final_lengths.copy()
        self._final_metrics = self._final_metrics.copy()
        self._vec.close()


def _observation_space(layout: dict[str, Any]) -> Space:
    dtype = np.dtype(layout["obs_dtype"])
    low, high = layout["obs_low"], layout["obs_high"]
    if low == high:
        low, high = -np.inf, np.inf
    kind: Any = dtype.type
    return gymnasium.spaces.Box(kind(low), kind(high), layout["obs_shape"], kind)


def _action_space(layout: dict[str, Any]) -> Space:
    nvec: Sequence[int] = layout["nvec"]
    parts: list[Space] = []
    if len(nvec) == 1:
        parts.append(gymnasium.spaces.Discrete(nvec[0]))
    elif nvec:
        parts.append(gymnasium.spaces.MultiDiscrete(list(nvec)))
    if layout["num_continuous"]:
        low, high = np.float32(layout["action_low"]), np.float32(layout["action_high"])
        parts.append(
            gymnasium.spaces.Box(float(low), float(high), (layout["num_continuous"],), np.float32)
        )
    return parts[0] if len(parts) == 1 else gymnasium.spaces.Tuple(parts)


@dataclass(frozen=True)
class NativeCreator:
    """Makes single C envs by name, and tells `make` that it can do better than one by one."""

    name: str

    @property
    def param_names(self) -> list[str]:
        """Names of the settings that such an env takes."""
        return [param.name for param in infos()[self.name].params]

    def __call__(self, buf: Buffers | None = None, **settings: Any) -> NativeEnv:
        return NativeEnv(self.name, buf=buf, **settings)


class NativeEnv(PufferEnv):
    """One C env as a PufferEnv."""

    is_native = True

    def __init__(self, name: str, buf: Buffers | None = None, **settings: Any) -> None:
        self._vec = NativeVec(name, 1, settings=settings)
        self.single_observation_space = self._vec.observation_space
        self.single_action_space = self._vec.action_space
        self.num_agents = self._vec.agents_per_env
        self.has_action_masks = self._vec.has_action_masks
        super().__init__(buf or self._vec.buffers)

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        self._vec.bind(buffers)

    def reset(self, seed: int | None = None) -> tuple[NDArray[Any], list[dict[str, Any]]]:
        self._vec.reset(fresh_seed() if seed is None else seed)
        return self.observations, [{} for _ in range(self.num_agents)]

    def step(self, actions: NDArray[Any]) -> tuple[Any, ...]:
        if actions is not self.actions:
            self.actions[...] = actions
        self._vec.step()
        infos = Infos(self.num_agents, self._vec.spoken).settle()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def drain(self) -> EpisodeStats:
        """Return the statistics of episodes finished since the last drain."""
        return self._vec.drain()

    def snapshot(self) -> NDArray[np.uint8]:
        """Return the whole state, [1, bytes]: a copy."""
        return self._vec.snapshot()

    def restore(self, rows: NDArray[np.uint8]) -> None:
        """Put the env back into a state that `snapshot` returned."""
        self._vec.restore(rows)

    def render(self) -> NDArray[np.uint8]:
        return self._vec.render()

    def close(self) -> None:
        self._vec.close()


def fresh_seed() -> int:
    """Return a seed from the system's entropy, for runs that asked for none."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1)


# Recurrent operations on NumPy arrays, in place; csrc/nn/recurrent_ops.h documents their arguments
lstm_forward, lstm_backward = _core.lstm_forward, _core.lstm_backward
gru_forward, gru_backward = _core.gru_forward, _core.gru_backward
mingru_forward, mingru_backward = _core.mingru_forward, _core.mingru_backward

Flags = _core.Flags  # turns in shared memory, see csrc/sync/flags.h
EnvLoop = _core.EnvLoop  # over Python envs, see csrc/python/env_loop.cpp
flags_bytes = _core.flags_bytes


def die_with_parent() -> bool:
    """Let the system kill this process when its parent dies; False where it cannot."""
    return bool(_core.die_with_parent())


def adopt_orphans() -> bool:
    """Become the parent of whoever below this process loses its own; False where it cannot."""
    return bool(_core.adopt_orphans())


def futex_baseline(num_workers: int, work_seconds: float, turns: int) -> float:
    """Return the seconds of a median turn of bare processes, which wake each other by futex.

    Each of them works for `work_seconds` of a turn. A yardstick for steps of `Multiprocessing`
    where processes sleep: one call wakes all of them, in the order in which they slept.
    """
    taken = int(_core.futex_baseline(num_workers, round(work_seconds * 1e9), turns))
    if taken < 0:
        raise NativeError(f"{num_workers} processes could not be started, or one was killed.")
    return taken * 1e-9


def barrier_bytes(size: int) -> int:
    """Return the bytes of memory, shared and zero at first, in which `size` processes meet."""
    return int(_core.barrier_bytes(size))


def barrier_wait(
    memory: NDArray[np.uint8], rank: int, size: int, turn: int, spins: int, timeout_ms: int
) -> bool:
    """Come to meeting number `turn` (1, 2, ...) and wait until all have; False after the time.

    Then, and after an interrupt, call it again. Other threads of this process run meanwhile.
    """
    return bool(_core.barrier_wait(memory, rank, size, turn % 2**32, spins, timeout_ms))


def keep_memory() -> bool:
    """Let the process keep memory it frees, for loops that allocate the same sizes again and again.

    Holds for the whole process and cannot be undone; False where the C library has no such switch.
    """
    return bool(_core.keep_memory())


def env_seed(seed: int, index: int) -> int:
    """Return the seed of env `index`; env 0 gets `seed` itself, the others differ from it."""
    return int(_core.env_seed(seed, index))


def advantage_scan(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    bootstrap: NDArray[np.float32],
    terminals: NDArray[Any],
    truncations: NDArray[Any],
    final_values: NDArray[np.float32],
    masks: NDArray[Any] | None,
    ratios: NDArray[np.float32] | None,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> NDArray[np.float32]:
    """Run the C scan of advantage.c over [segments, horizon]; see advantage.py for the formula."""
    out = np.empty_like(rewards)
    try:
        _core.advantage(
            rewards,
            values,
            bootstrap,
            terminals.view(np.uint8),
            truncations.view(np.uint8),
            final_values,
            None if masks is None else masks.view(np.uint8),
            ratios,
            out,
            gamma,
            gae_lambda,
            rho_clip,
            c_clip,
        )
    except (TypeError, ValueError) as error:
        raise NativeError(f"advantage: {error}") from error
    return out


def make_engine(**spec: Any) -> Any:
    """Return the C half of the native engine; see csrc/nn/engine.h and training/native_engine.py.

    Its kernels are the fastest that the CPU runs, or those that PUFFER_KERNELS names.
    """
    try:
        return _core.Engine(**spec)
    except ValueError as error:
        raise UsageError(str(error)) from None
