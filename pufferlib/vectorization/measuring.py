"""The cost of one env: time to create, reset and step it, how much that varies, and memory."""

from __future__ import annotations

import functools
import math
import resource
import threading
import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from pufferlib.emulation import undisturbed
from pufferlib.native import NativeCreator
from pufferlib.spaces import ActionLayout, Array, action_layout, action_values
from pufferlib.vectorization.base import VectorEnv
from pufferlib.vectorization.creators import EnvCreator, copied
from pufferlib.vectorization.multiprocessing import Multiprocessing
from pufferlib.vectorization.serial import Serial
from pufferlib.vectorization.threads import Threads

_MAX_STEPS = 100_000
_MAX_EXTRA_ENVS = 32  # that are made to see how much memory one takes
_NATIVE_ENVS = 256


class EnvCost(NamedTuple):
    """Seconds of one env; `step` is the mean without resets, `spread` its deviation."""

    create: float
    reset: float
    step: float
    median_step: float
    spread: float
    reset_share: float  # of the time that stepping with autoreset takes
    wait_share: float  # of a step's time that its core is free: it sleeps, or waits for others
    steps: int  # that were measured
    num_agents: int

    @property
    def mean(self) -> float:
        """Seconds of a step, its part of resets included."""
        return self.step / (1 - self.reset_share) if self.reset_share < 1 else self.reset


class Memory(NamedTuple):
    """Bytes of unshared memory: of a worker process with one env, and of each further env."""

    worker: int
    env: int


def measure_env(env_creator: EnvCreator, seconds: float = 0.5, seed: int = 0) -> EnvCost:
    """Create one env, step it with random actions for about `seconds`, and close it again.

    Other programs on the machine make no difference: where the env computes, the time that its
    thread had a core counts; where it waits, the time that went by.
    """
    start = time.perf_counter()
    vecenv = Serial(env_creator, 1)
    created = time.perf_counter()
    try:
        vecenv.reset(seed=seed)
        first_reset = time.perf_counter() - created
        # not through the vector, whose own cost many envs share
        env, layout = vecenv.envs[0], action_layout(vecenv.action_space)
        rng = np.random.default_rng(seed)
        passed: list[float] = []  # seconds of each step
        worked: list[float] = []  # the same on the clock that runs while the thread has a core
        ended: list[bool] = []
        waits, used, left = _voluntary_switches(), time.process_time(), seconds
        while len(ended) < _MAX_STEPS and (left > 0 or not ended):
            env.actions[...] = random_rows(layout, vecenv.num_agents, rng, vecenv.action_masks)
            start_time, start_work = time.perf_counter(), time.thread_time()
            env.step(env.actions)
            worked.append(time.thread_time() - start_work)
            passed.append(time.perf_counter() - start_time)
            ended.append(bool((vecenv.terminals | vecenv.truncations).any()))
            vecenv.terminals[:], vecenv.truncations[:] = False, False
            left -= time.perf_counter() - start_time
        used = time.process_time() - used
        does_wait = _voluntary_switches() - waits > len(ended) / 2
    finally:
        vecenv.close()
    taken, is_end = np.array(passed if does_wait else worked), np.array(ended)
    plain, last = taken[~is_end], taken[is_end]  # an episode's last step has the reset in it
    step = float(plain.mean()) if len(plain) else float(last.mean())
    resets = np.maximum(0, last - step)
    return EnvCost(
        create=created - start,
        reset=float(resets.mean()) if len(resets) else first_reset,
        step=step,
        median_step=float(np.median(plain)) if len(plain) else step,
        spread=float(plain.std()) if len(plain) else 0.0,
        reset_share=float(resets.sum() / taken.sum()) if taken.sum() > 0 else 0.0,
        wait_share=max(0.0, 1 - used / sum(passed)) if does_wait else 0.0,
        steps=len(ended),
        num_agents=vecenv.num_agents,
    )


def step_seconds(env_creator: EnvCreator, seconds: float = 0.02, limit: float = 2.0) -> float:
    """Return the median seconds of a step: 0 where the env raises, inf where it is late.

    A copy of the creator makes the env, and it is closed afterwards; so neither the state that the
    creator holds nor the envs that it makes later are affected. Late means that creating, stepping
    and closing take longer than `limit`; a thread of its own finishes them then.
    """
    found: list[float] = []

    def measure() -> None:
        try:
            found.append(measure_env(copied(env_creator), seconds).median_step)
        except BaseException:  # the env's own error: the backend will raise it again
            found.append(0.0)

    with undisturbed(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the envs of the backend will give them, once
        thread = threading.Thread(target=measure, name="pufferlib-timing", daemon=True)
        thread.start()
        thread.join(limit)
    return found[0] if found else math.inf


def measure_native(
    env_creator: NativeCreator, settings: Mapping[str, Any], seconds: float = 0.5
) -> EnvCost:
    """Measure an env of the C core on one thread, many at once: one alone is all Python calls."""
    start = time.perf_counter()
    vecenv = Threads(env_creator, _NATIVE_ENVS, 1, **settings)
    created = time.perf_counter()
    with vecenv:
        vecenv.reset(seed=0)
        reset = (time.perf_counter() - created) / _NATIVE_ENVS
        rows = random_actions(vecenv, count=16)
        batches: list[float] = []
        while sum(batches) < seconds or len(batches) < 2:
            worked = time.thread_time()
            vecenv.step(rows[len(batches) % len(rows)])
            batches.append(time.thread_time() - worked)
        episodes = vecenv.drain_stats().episodes / vecenv.agents_per_env
    taken = np.array(batches) / _NATIVE_ENVS
    steps = len(batches) * _NATIVE_ENVS
    reset_share = min(1.0, episodes * reset / (taken.mean() * steps))
    return EnvCost(
        create=(created - start) / _NATIVE_ENVS,
        reset=reset,
        step=float(taken.mean() * (1 - reset_share)),
        median_step=float(np.median(taken)),
        spread=0.0,  # unknown: only whole batches are timed
        reset_share=float(reset_share),
        wait_share=0.0,
        steps=steps,
        num_agents=vecenv.agents_per_env,
    )


def measure_memory(env_creator: EnvCreator, create_seconds: float) -> Memory:
    """Start workers with one env and with more, each of which takes `create_seconds` to create."""
    extra = int(np.clip(1 / max(create_seconds, 1e-9), 1, _MAX_EXTRA_ENVS))
    few, more = (_worker_bytes(env_creator, count) for count in (1, 1 + extra))
    return Memory(few, max(0, more - few) // extra)


def measure_native_memory(env_creator: NativeCreator, settings: Mapping[str, Any]) -> Memory:
    """Do the same for an env of the C core; a worker has many of them behind one vector env."""
    few, more = (
        _worker_bytes(functools.partial(Threads, env_creator, count, 1, **settings), 1)
        for count in (1, 1 + _NATIVE_ENVS)
    )
    return Memory(few, max(0, more - few) // _NATIVE_ENVS)


def _worker_bytes(env_creator: EnvCreator, num_envs: int) -> int:
    """Return the bytes of unshared memory of a worker with `num_envs` envs, after some steps."""
    with Multiprocessing(env_creator, num_envs, 1) as vecenv:
        vecenv.reset(seed=0)
        for actions in random_actions(vecenv, count=4):
            vecenv.step(actions)
        (pid,) = vecenv.worker_pids
        return int(psutil.Process(pid).memory_full_info().uss)


def _voluntary_switches() -> int:
    """Return how often this thread has given up its core by itself."""
    if not hasattr(resource, "RUSAGE_THREAD"):  # not Linux
        return 0
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def random_actions(vecenv: VectorEnv, count: int) -> list[Array]:
    """Draw actions for every slot, as `step` takes them, `count` times; always the same ones."""
    layout, rng = action_layout(vecenv.action_space), np.random.default_rng(0)
    drawn = (random_rows(layout, vecenv.num_agents, rng) for _ in range(count))
    return [action_values(layout, rows) for rows in drawn]


def legal_actions(vecenv: VectorEnv, rng: np.random.Generator) -> Array:
    """Draw actions for every slot that its action masks allow now, as `step` takes them."""
    layout = action_layout(vecenv.action_space)
    return action_values(layout, random_rows(layout, vecenv.num_agents, rng, vecenv.action_masks))


def random_rows(
    layout: ActionLayout,
    num_slots: int,
    rng: np.random.Generator,
    masks: NDArray[np.bool_] | None = None,
) -> Array:
    """Draw an action for each slot that `masks` allow; unbounded numbers stay within +-1000."""
    rows = np.empty((num_slots, *layout.shape), layout.dtype)
    indices, reals = layout.split(rows)
    indices[...] = rng.integers(0, layout.nvec, indices.shape)
    if masks is not None:
        wishes = masks * rng.uniform(0.5, 1, masks.shape)
        parts = np.split(wishes[:, : sum(layout.nvec)], layout.firsts[1:], axis=1)
        for component, part in enumerate(parts if layout.nvec else ()):
            indices[:, component] = part.argmax(1)
    low, high = np.maximum(layout.low, -1e3), np.minimum(layout.high, 1e3)
    reals[...] = rng.uniform(low, high, reals.shape)
    return rows
