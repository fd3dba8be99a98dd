"""The C core in Python: environments, vectors of them, kernels, and waits between processes.

With engine.py the only importer of the compiled module `_core`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import pufferlib._core as _core
from pufferlib.buffers import Buffers, allocate
from pufferlib.config import parse_number
from pufferlib.env import PufferEnv
from pufferlib.episodes import EpisodeStats, Finished, Info, Infos
from pufferlib.errors import NativeError, UsageError, quoted, unknown_choice, unknown_name
from pufferlib.spaces import Array, Space, action_layout, check_choices, rows_from_values


@dataclass(frozen=True)
class Param:
    """A setting of an env that `make` accepts: one entry of its table in C."""

    name: str
    type: str  # "float", "int" or "choice"
    default: float
    low: float
    high: float
    doc: str
    choices: tuple[str, ...]

    def number(self, env: str, value: Any) -> float:
        """Return the number that the core stores for `value`; a UsageError for a wrong type."""
        if self.choices:
            if value in self.choices:
                return float(self.choices.index(value))
            raise unknown_choice(f"`{self.name}` of `{env}`", value, self.choices)
        if isinstance(value, str):
            number = parse_number(value)
            value = value if number is None else number
        wanted = (int, np.integer) if self.type == "int" else (int, float, np.integer, np.floating)
        is_whole = isinstance(value, float) and value.is_integer()
        if not (isinstance(value, wanted) or is_whole):
            noun = "a whole number" if self.type == "int" else "a number"
            raise UsageError(f"`{self.name}` of `{env}` must be {noun}, but got {quoted(value)}.")
        try:
            return float(value)
        except OverflowError:
            return np.inf if value > 0 else -np.inf  # out of range: the core raises

    def spell(self, number: float) -> Any:
        """Return a stored number in the form that users write."""
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
    """The descriptor of one C environment."""

    name: str
    doc: str
    group: str
    action_names: tuple[tuple[str, ...], ...]  # of each component's choices; empty: not named
    params: tuple[Param, ...]
    metrics: tuple[Metric, ...]

    def values(self, settings: Mapping[str, Any]) -> list[float]:
        """Return one number per param: the given value or the default."""
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
    found = {}
    for entry in _core.infos():
        params = tuple(
            Param(**{**field, "choices": tuple(filter(None, field["choices"].split("|")))})
            for field in entry["params"]
        )
        metrics = tuple(Metric(field["name"], field["doc"]) for field in entry["metrics"])
        parts = filter(None, entry["action_names"].split(","))
        names = tuple(tuple(part.split()) for part in parts)
        own = {"params": params, "metrics": metrics, "action_names": names}
        found[entry["name"]] = NativeInfo(**{**entry, **own})
    return found


class NativeVec:
    """`num_envs` C envs over one set of buffers, stepped by `num_threads` threads.

    The first call must be `reset`, or `restore` of all envs. Between calls the caller may read and
    write the rows. Not safe to use from two threads. With `double_buffer` each half of the envs can
    also step in the background: the threads own its rows from `begin` to `finish`, and any other
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
                f"`num_envs` envs must fit into memory, but got {num_envs}. Try fewer."
            ) from None
        layout = self._vec.layout()
        self.agents_per_env: int = layout["agents"]
        self.num_slots = num_envs * self.agents_per_env
        self.observation_space = _observation_space(layout)
        self.action_space = _action_space(layout)
        self.has_action_masks: bool = layout["action_masks"]
        self.picture_shape = (layout["height"], layout["width"], 3)
        spaces = self.observation_space, self.action_space
        self.bind(buffers or allocate(self.num_slots, *spaces, self.has_action_masks))
        self._final_returns = self._vec.final_returns()
        self._final_lengths = self._vec.final_lengths()
        self._final_metrics = self._vec.final_metrics()
        self._metric_names = tuple(metric.name for metric in self.info.metrics)
        self._started = time.perf_counter()
        self._stepped = [self._started] * 2  # when each half finished its last step

    def bind(self, buffers: Buffers) -> None:
        """Use these buffers from now on. The next call must be `reset` or `restore`."""
        self._vec.bind(**{name: _as_bytes(rows) for name, rows in vars(buffers).items()})
        self.buffers = buffers
        self._ready = False

    def place(self, first_env: int) -> None:
        """Seed env i as env `first_env + i` in future resets, as a part of a larger vector."""
        self._vec.place(first_env)

    def reset(self, seed: int, seeds: NDArray[np.uint64] | None = None) -> None:
        """Seed env i from (seed, i), start new episodes and clear the statistics.

        With `seeds`, env i gets `seeds[i]` as env 0 gets `seed`.
        """
        self._vec.reset(seed, seeds)
        self._started = time.perf_counter()
        self._stepped = [self._started] * 2
        self._ready = True

    def step(self, actions: Array | None = None, held: NDArray[np.bool_] | None = None) -> None:
        """Step all envs with `actions` (read in place, not kept), or with the bound actions.

        Those whose flag in `held` is set do not move: see `VectorEnv.hold`.
        """
        self._check_ready("step")
        self._vec.step(actions, _as_bytes(held))
        self._stepped = [time.perf_counter()] * 2

    def begin(self, half: int) -> None:
        """Step half 0 or 1 of the envs in the background, with the bound actions."""
        self._check_ready("begin")
        self._vec.begin(half)

    def finish(self, half: int) -> None:
        """Wait for the step of `half`; return at once if it is not running."""
        self._vec.finish(half)
        self._stepped[half] = time.perf_counter()

    def _check_ready(self, call: str) -> None:
        if not self._ready:  # C code relies on an initialised state
            raise UsageError(f"`reset` must be called before `{call}`.")

    def episode_infos(self, half: int | None = None) -> Finished:
        """Return slot -> info, with the env's metrics, for episodes that ended in the last step.

        With `half`, only for its slots, counted from the first of them.
        """
        middle = self.num_slots // 2
        rows = slice(None) if half is None else slice(half * middle, (half + 1) * middle)
        ended = self.buffers.terminals[rows] | self.buffers.truncations[rows]
        returns, lengths = self._final_returns[rows], self._final_lengths[rows]
        seconds = self._stepped[half or 0] - self._started
        metrics = self._metric_names, self._final_metrics[rows]
        return Finished(ended, returns, lengths, seconds, *metrics)

    def drain(self) -> EpisodeStats:
        """Return the statistics of episodes finished since the last drain."""
        episodes, returns, lengths, lowest, highest, samples, metrics = self._vec.drain()
        if not episodes:
            lowest, highest = np.inf, -np.inf
        counts = dict.fromkeys(self._metric_names, samples)
        sums = dict(zip(self._metric_names, metrics, strict=True))
        return EpisodeStats(episodes, returns, lengths, lowest, highest, counts, sums)

    def snapshot(self) -> NDArray[np.uint8]:
        """Return a snapshot of every env, [num_envs, bytes]: a copy."""
        self._check_ready("snapshot")
        snapshots = np.empty((self.num_envs, self._vec.snapshot_bytes()), dtype=np.uint8)
        self._vec.snapshot(0, self.num_envs, snapshots)
        return snapshots

    def restore(self, snapshots: NDArray[np.uint8], first: int = 0) -> None:
        """Restore envs `first`, `first + 1`, ... from `snapshots`.

        Restores their observations and masks too. Rewards, terminals and truncations are cleared,
        because no step led to this state.
        """
        last = first + len(snapshots)
        try:
            self._vec.restore(first, last, np.ascontiguousarray(snapshots))
        except ValueError as error:
            raise UsageError(f"`snapshot` must be of the same env and params: {error}.") from None
        self._ready = self._ready or len(snapshots) == self.num_envs
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
        """Stop the threads. Buffers and infos stay readable; no other call may follow."""
        # infos may be read after closing, so copy the arrays that the core owns
        self._final_returns = self._final_returns.copy()
        self._final_lengths = self._final_lengths.copy()
        self._final_metrics = self._final_metrics.copy()
        self._vec.close()


def _as_bytes(rows: Array | None) -> Array | None:
    """Return flags as bytes, and other rows as they are: the core knows no bool arrays."""
    return rows.view(np.uint8) if rows is not None and rows.dtype == np.bool_ else rows


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
    """Creates single C envs by name; `make` recognises it and builds a NativeVec instead."""

    name: str

    @property
    def param_names(self) -> list[str]:
        """Names of the settings that the env takes."""
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

    def reset(self, seed: int | None = None) -> tuple[Array, list[Info]]:
        self._vec.reset(fresh_seed() if seed is None else seed)
        return self.observations, [{} for _ in range(self.num_agents)]

    def step(self, actions: Array) -> tuple[Any, ...]:
        if actions is not self.actions:
            layout = action_layout(self.single_action_space)
            rows = rows_from_values(layout, np.asarray(actions)).reshape(self.actions.shape)
            check_choices(layout, rows, self.masks)
            self.actions[...] = rows
        self._vec.step()
        infos = Infos(self.num_agents, self._vec.episode_infos).settle()
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def drain(self) -> EpisodeStats:
        """Return the statistics of episodes finished since the last drain."""
        return self._vec.drain()

    def snapshot(self) -> NDArray[np.uint8]:
        """Return a snapshot of the env, [1, bytes]: a copy."""
        return self._vec.snapshot()

    def restore(self, snapshot: NDArray[np.uint8]) -> None:
        """Restore the env from what `snapshot` returned."""
        self._vec.restore(snapshot)

    def render(self) -> NDArray[np.uint8]:
        return self._vec.render()

    def close(self) -> None:
        self._vec.close()


def fresh_seed() -> int:
    """Return a seed from the system's entropy, for runs without a seed."""
    return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1)


# Recurrent operations on NumPy arrays, in place; csrc/nn/recurrent_ops.h documents their arguments
lstm_forward, lstm_backward = _core.lstm_forward, _core.lstm_backward
gru_forward, gru_backward = _core.gru_forward, _core.gru_backward
mingru_forward, mingru_backward = _core.mingru_forward, _core.mingru_backward

Flags = _core.Flags  # turns of workers in shared memory, see csrc/sync/flags.h
EnvLoop = _core.EnvLoop  # steps Python envs, see csrc/python/env_loop.cpp
AgentLoop = _core.AgentLoop  # steps a Python env of many agents
DictWatch = _core.DictWatch  # notices when values of dicts are replaced, see csrc/python/dicts.cpp
flags_bytes: Callable[[int], int] = _core.flags_bytes  # of workers

# seed and index of an env -> its seed; env 0 gets the seed itself
env_seed: Callable[[int, int], int] = _core.env_seed
# whether all numbers of a contiguous int32 array are in 0..limit - 1
words_below: Callable[[Array, int], bool] = _core.words_below

# These return False where the system does not support them
die_with_parent: Callable[[], bool] = _core.die_with_parent  # the kernel kills this process then
adopt_orphans: Callable[[], bool] = _core.adopt_orphans  # become the parent of orphaned descendants
keep_memory: Callable[[], bool] = _core.keep_memory  # reuse freed memory, in the whole process

# number of processes -> bytes of shared, initially zeroed memory for their barrier
barrier_bytes: Callable[[int], int] = _core.barrier_bytes


def futex_baseline(num_workers: int, work_seconds: float, turns: int) -> float:
    """Return the median seconds of a turn of bare processes, which wake each other by futex.

    Each process works for `work_seconds` per turn. A baseline for steps of `Multiprocessing` whose
    processes sleep: one system call wakes all of them, in the order in which they fell asleep.
    """
    taken = int(_core.futex_baseline(num_workers, round(work_seconds * 1e9), turns))
    if taken < 0:
        raise NativeError(f"Could not start {num_workers} processes, or one of them was killed.")
    return taken * 1e-9


def barrier_wait(
    memory: NDArray[np.uint8], rank: int, size: int, round: int, spins: int, timeout_ms: int
) -> bool:
    """Reach round `round` (1, 2, ...) of a barrier and wait for all ranks; False after a timeout.

    After a timeout or an interrupt, call it again. Other threads of this process run meanwhile.
    """
    return bool(_core.barrier_wait(memory, rank, size, round % 2**32, spins, timeout_ms))


def advantage_scan(
    rewards: NDArray[np.float32],
    values: NDArray[np.float32],
    bootstrap: NDArray[np.float32],
    terminals: Array,
    truncations: Array,
    final_values: NDArray[np.float32],
    masks: Array | None,
    ratios: NDArray[np.float32] | None,
    /,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> NDArray[np.float32]:
    """Compute advantages over [segments, horizon]; csrc/nn/advantage.c has the formula."""
    out = np.empty_like(rewards)
    arrays = (rewards, values, bootstrap, terminals, truncations, final_values, masks, ratios, out)
    try:
        _core.advantage(*map(_as_bytes, arrays), gamma, gae_lambda, rho_clip, c_clip)
    except (TypeError, ValueError) as error:
        raise NativeError(f"advantage: {error}") from error
    return out


def return_moments(
    rewards: NDArray[np.float32],
    ends: NDArray[np.bool_],
    masks: NDArray[np.bool_] | None,
    gamma: float,
    running: NDArray[np.float32],
) -> tuple[float, float, float]:
    """Return count, mean and variance of running discounted returns; see csrc/nn/returns.h.

    Arrays are `[slots, horizon]`; `running` `[slots]` becomes the returns after the last step.
    """
    found: tuple[float, float, float] = _core.return_moments(
        rewards, _as_bytes(ends), _as_bytes(masks), gamma, running
    )
    return found


def shuffled(key: int, count: int) -> NDArray[np.int64]:
    """Return 0, ..., count - 1 in the random order that `key` names; see csrc/nn/order.h."""
    numbers = np.empty(count, np.int64)
    _core.shuffled(key, numbers)
    return numbers


def kernel_sets() -> list[str]:
    """Return the sets of kernels that this CPU runs, the fastest first; see csrc/nn/kernels.h."""
    return list(_core.kernel_sets())


def make_engine(**spec: Any) -> Any:
    """Return the C half of the native engine; see csrc/nn/engine.h and training/native_engine.py.

    Its kernels are the fastest that the CPU runs, or those that PUFFER_KERNELS names.
    """
    try:
        return _core.Engine(**spec)
    except ValueError as error:
        raise UsageError(str(error)) from None
