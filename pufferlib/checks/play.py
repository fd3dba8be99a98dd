"""Checks of whole runs: determinism, episodes, speed, and writes into and past the rows."""

from __future__ import annotations

import hashlib
import pickle
import random
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import ALIGNMENT, Buffers
from pufferlib.checks.batched import stepped_alone
from pufferlib.checks.report import Findings
from pufferlib.checks.steps import (
    RandomActions,
    check_action_masks,
    check_metrics,
    check_observations,
    check_rewards,
)
from pufferlib.emulation import Emulated, InPlace
from pufferlib.env import PufferEnv
from pufferlib.native import NativeEnv
from pufferlib.spaces import Array, ObservationChecks

_SECONDS = 2.0  # of the first run after its first step, for slow envs
_UNWRITTEN = 0xA5  # fills the bytes of rows that an env must write
_FIELDS = ("observations", "rewards", "terminals", "truncations", "masks", "action_masks")


class _Run(NamedTuple):
    """The record of a run of random steps."""

    digests: list[dict[str, bytes]]  # of every field, after the reset and after each step
    episodes: list[tuple[int, bool]]  # length, and whether it ended in a terminal
    seconds: float


class PlayCheck:
    """Plays an env twice with the same seed and actions, and compares the runs.

    `guards` are those around the rows of a C env, where a write past a row raises nothing.
    """

    def __init__(self, env: PufferEnv, findings: Findings, guards: Guards | None = None) -> None:
        self._env, self._findings, self._guards = env, findings, guards

    def run(self, seed: int, steps: int) -> None:
        """Play at most `steps` steps a run, and report what is wrong."""
        before = _global_state()
        first = self._play(seed, steps, _SECONDS)
        if first is None:
            return
        if _global_state() != before:
            what = "draws from the global generator of `random` or `numpy.random`, which its seed "
            what += "does not set. Try `np.random.default_rng(seed)`."
            self._findings.add("warning", "step", what)
        self._check_episodes(first)
        if stepped_alone(self._env):
            self._note_speed(first)
        second = self._play(seed, len(first.digests) - 1)
        if second is not None:
            self._compare(first, second)

    def _play(self, seed: int, steps: int, seconds: float = float("inf")) -> _Run | None:
        """Take random steps as a vector env would; None if the env broke its contract."""
        env = self._env
        space = env.single_observation_space
        now = ObservationChecks(space, env.observations)
        finals = ObservationChecks(space, env.final_observations, "final_observation")
        actions = RandomActions(env, seed)
        lengths = np.zeros(env.num_agents, dtype=np.int64)
        seen = np.zeros(env.num_agents, dtype=np.bool_)
        run = _Run([], [], 0.0)
        spent, until = 0.0, float("inf")
        self._clear()
        if not self._findings.attempt(env.reset, seed)[1]:
            return None
        for number in range(steps + 1):
            if not self._check_rows("step" if number else "reset", now, finals):
                return None
            seen |= env.masks
            run.digests.append({field: _digest(getattr(env, field)) for field in _FIELDS})
            if number == steps or time.perf_counter() > until:
                break
            if number == 1:  # the first reset and step may compile
                until = time.perf_counter() + seconds
            present = env.masks.copy()
            actions.write(number)
            self._clear()
            given = env.actions.tobytes()
            started = time.perf_counter()
            result, succeeded = self._findings.attempt(env.step, env.actions)
            spent += time.perf_counter() - started
            if not succeeded:
                return None
            if env.actions.tobytes() != given:
                what = "must not change its `action`, but does."
                self._findings.add("warning", "step", what)
            check_metrics(env, result[-1], self._findings)
            lengths += present
            for slot in np.flatnonzero(env.terminals | env.truncations):
                run.episodes.append((int(lengths[slot]), bool(env.terminals[slot])))
                lengths[slot] = 0
        if not seen.all():
            what = f"`num_agents` is {env.num_agents}, but only {seen.sum()} agents took part."
            self._findings.add("note", "step", what)
        return run._replace(seconds=spent)

    def _clear(self) -> None:
        """Clear rows as a vector env does before a step, and mark what the env must write."""
        env = self._env
        env.rewards[:], env.terminals[:], env.truncations[:] = 0, False, False
        env.final_observations.view(np.uint8)[...] = _UNWRITTEN

    def _check_rows(self, method: str, now: ObservationChecks, finals: ObservationChecks) -> bool:
        """Check the rows after a reset or step; return whether to play on."""
        env, overrun = self._env, self._guards and self._guards.overrun()
        if overrun:
            self._findings.add("error", method, overrun)
            return False
        sound = check_observations(env, method, now, env.masks, self._findings)
        if sound and env.truncations.any():
            sound = check_observations(env, method, finals, env.truncations, self._findings)
        if sound and isinstance(env, InPlace):
            sound = self._check_in_place(env, method)
        sound = check_rewards(env, method, self._findings) and sound
        sound = check_action_masks(env, method, self._findings) and sound
        return sound or isinstance(env, NativeEnv)  # of a C env all faults are of interest

    def _check_in_place(self, env: InPlace, method: str) -> bool:
        """Check what only the in-place form can get wrong; return whether to play on."""
        if env._dicts is None:
            for field in ("observations", "rewards", "terminals", "truncations", "masks"):
                if getattr(env.traits.unwrapped, field) is not getattr(env, field):
                    what = f"must write into `self.{field}`, but replaces it by another array. "
                    self._findings.add("error", method, f"{what}Try `self.{field}[:] = ...`.")
                    return False
            unwritten = env.final_observations.view(np.uint8) == _UNWRITTEN
            for slot in np.flatnonzero(env.truncations):
                if unwritten[slot].all():
                    what = "`final_observations` must hold the last observation where "
                    what += "`truncations` is set, but was not written."
                    self._findings.add("error", method, what)
                    return False
        return True

    def _check_episodes(self, run: _Run) -> None:
        steps = len(run.digests) - 1
        if not run.episodes:
            self._findings.add("note", "step", f"no episode ended within {steps} random steps.")
        lengths = {length for length, _ in run.episodes}
        if len(run.episodes) > 1 and len(lengths) == 1 and all(ended for _, ended in run.episodes):
            length = lengths.pop()
            if length >= 10:
                what = f"all {len(run.episodes)} episodes end after {length} steps. If that is a "
                what += 'time limit, mark it: `truncated`, or `info["TimeLimit.truncated"]`.'
                self._findings.add("note", "step", what)

    def _note_speed(self, run: _Run) -> None:
        micros = run.seconds / max(1, len(run.digests) - 1) * 1e6
        rate = f"{1e6 / max(micros, 1e-3):,.0f} steps a second"
        spelled = f"{micros:.3g} us" if micros < 1000 else f"{micros / 1000:.3g} ms"
        self._findings.add("note", "step", f"takes {spelled}, emulation included: {rate}.")

    def _compare(self, first: _Run, second: _Run) -> None:
        for number, (one, other) in enumerate(zip(first.digests, second.digests)):
            for field in _FIELDS:
                if one[field] != other[field]:
                    where = f"step {number}" if number else "`reset`"
                    what = f"the same seed and actions gave different `{field}` in {where}."
                    if isinstance(self._env, Emulated) and not self._env.traits.takes_seed:
                        what += " Try `reset(self, seed=None)`."
                    self._findings.add("warning", "reset", what)
                    return


def _digest(array: Array | None) -> bytes:
    return b"" if array is None else hashlib.blake2b(array.tobytes(), digest_size=16).digest()


def _global_state() -> tuple[object, ...]:
    """Return the state of the generators that all envs of a process share."""
    return random.getstate(), pickle.dumps(np.random.get_state())


# ---- Guards --------------------------------------------------------------------------------------


_PATTERN = 0x2B  # not a bool, and as a float (6e-13) changed by adding any reward
_MAX_GAP = 4096  # bytes
_APART = ("observations", "action_masks")  # an agent writes them through a pointer to its row


class Guards:
    """Copies of `buffers` with guard bytes before and after each array.

    Rows of observations and action masks also have guard bytes between them. An env bound to
    `self.buffers` must not change those bytes; `overrun` reports where it did.
    """

    def __init__(self, buffers: Buffers) -> None:
        self._arrays: dict[str, _Guarded] = {}
        copies: dict[str, Any] = {}
        for name, array in vars(buffers).items():
            copies[name] = None
            if array is not None:
                self._arrays[name] = _Guarded(array, apart=name in _APART)
                copies[name] = self._arrays[name].array
        self.buffers = Buffers(**copies)

    def overrun(self) -> str | None:
        """Describe what was written outside of a row; None if nothing was."""
        for name, guarded in self._arrays.items():
            found = guarded.overrun()
            if found is not None:
                return f"must write only the {found[0]} of `{name}`, but wrote {found[1]}."
        return None


class _Guarded:
    """One array between guard bytes, with its rows apart or side by side."""

    def __init__(self, array: NDArray[np.generic], apart: bool) -> None:
        self._row = array[0].nbytes
        gap = -(-min(self._row, _MAX_GAP) // ALIGNMENT) * ALIGNMENT
        self._stride = self._row + (gap if apart else 0)
        size = gap + len(array) * self._stride + gap
        memory = np.full(size + ALIGNMENT, _PATTERN, dtype=np.uint8)
        self._memory = memory[-memory.ctypes.data % ALIGNMENT :][:size]
        self._starts = gap + self._stride * np.arange(len(array))  # of the rows
        self.array: NDArray[np.generic] = np.ndarray(
            array.shape,
            array.dtype,
            buffer=self._memory,
            offset=gap,
            strides=(self._stride, *array.strides[1:]),
        )
        self._is_guard = np.ones(size, dtype=np.bool_)
        for start in self._starts:
            self._is_guard[start : start + self._row] = False
        self.array[...] = array

    def overrun(self) -> tuple[str, str] | None:
        """Return the row and by how many bytes it was exceeded, or None."""
        touched = np.flatnonzero((self._memory != _PATTERN) & self._is_guard)
        if not len(touched):
            return None
        ends = self._starts + self._row
        slot = int(np.searchsorted(ends, touched[0], side="right")) - 1  # the last row before it
        after = self._starts[slot + 1] if slot + 1 < len(ends) else len(self._memory)
        here = touched[touched < after]
        if slot < 0 or (slot + 1 < len(ends) and after - here[-1] <= here[0] - ends[slot]):
            slot, count, side = slot + 1, int(after - here[0]), "before"
        else:
            count, side = int(here[-1] - ends[slot]) + 1, "past"
        noun = "byte" if count == 1 else "bytes"
        return f"{self._row} bytes of agent {slot}'s row", f"{count} {noun} {side} it"
