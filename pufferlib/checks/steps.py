"""Checks of every part of a step by itself: one that is wrong must not hide another.

Emulation judges each part that a Python env returns, so `StepCheck` uses the checks of `Emulated`
and its subclasses one by one, although they are private to emulation. What lies in rows is checked
here for all envs, those in C included.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pufferlib.checks.report import Findings, Level
from pufferlib.emulation import ALL_AGENTS, AgentDicts, Emulated, Parallel, SingleAgent
from pufferlib.env import PufferEnv
from pufferlib.errors import FAULTS, EnvError, PufferError
from pufferlib.native import NativeEnv
from pufferlib.spaces import ObservationChecks, action_layout, missing_choice

_NUM_STEPS = 64
_ROUNDING = 1e-4  # of a `perf` that adds up to 1 in float32


class StepCheck:
    """Plays some steps of an env that returns its parts, and checks each of them."""

    def __init__(self, env: SingleAgent | AgentDicts, findings: Findings) -> None:
        self._env, self._findings = env, findings
        self._returned: Any = None  # the last observation, as the env returned it
        self._returned_copy: Any = None
        self._observations = ObservationChecks(env.single_observation_space, env.observations)

    def run(self, seed: int) -> None:
        """Play, and report what is wrong."""
        env = self._env
        reset_env, step_env = env._reset_env, env._step_env

        def reset_and_keep(seed: int | None) -> Any:
            result = reset_env(seed)
            is_pair = isinstance(result, tuple) and len(result) == 2
            self._keep(result[0] if is_pair else result)
            return result

        env._reset_env = reset_and_keep  # type: ignore[method-assign]
        try:
            actions = RandomActions(env, seed)
            if not self._reset(seed):
                return
            for number in range(_NUM_STEPS):
                actions.write(number)
                try:
                    result = self._step(step_env)
                except FAULTS as error:
                    self._findings.add_text("error", str(env.raised("step", error)))
                    self._findings.keep_traceback(error)
                    return
                if isinstance(env, SingleAgent):
                    self._check_single(env, result)
                else:
                    self._check_agents(env, result)
                env._step_env = lambda _, result=result: result
                succeeded = self._findings.attempt(env.step, env.actions)[1]
                self._check_observations("step")
                if not succeeded and not self._reset(None):
                    return
        finally:
            env._step_env = step_env
            del env._reset_env

    def _reset(self, seed: int | None) -> bool:
        """Reset, and return whether the env can be stepped."""
        try:
            self._env.reset(seed)
        except PufferError as error:
            self._findings.add_text("error", str(error))
            was_raised = error.__cause__ is not None and not isinstance(error.__cause__, EnvError)
            return isinstance(self._env, SingleAgent) and not was_raised
        self._check_observations("reset")
        return True

    def _step(self, step_env: Callable[[Any], Any]) -> Any:
        env = self._env
        if isinstance(env, SingleAgent):
            chosen: Any = env._read[0]()
        else:
            chosen = {id: env._read[slot]() for id, slot in env._acting}
        given = copy.deepcopy(chosen)
        result = step_env(chosen)
        if not _same(chosen, given):
            what = "must not change its `action`, but does."
            self._findings.add("warning", "step", what)
        if not _same(self._returned, self._returned_copy):
            what = "must not change observations it has returned, but does. Try a copy."
            self._findings.add("warning", "step", what)
        has_parts = isinstance(result, tuple | list) and len(result) > 0
        self._keep(result[0] if has_parts else None)
        return result

    def _keep(self, observation: object) -> None:
        self._returned, self._returned_copy = observation, copy.deepcopy(observation)

    def _check_observations(self, method: str) -> None:
        check_observations(self._env, method, self._observations, self._env.masks, self._findings)

    def _check_single(self, env: SingleAgent, result: Any) -> None:
        """Check the parts of a single agent's step; `env.step` reports a wrong number of them."""
        if not isinstance(result, tuple | list) or len(result) not in (4, 5):
            return
        if len(result) == 4 and env.strict:
            return
        attempt = self._findings.attempt
        observation, reward, *flags, info = result
        attempt(env._observe, "step", 0, observation)
        attempt(env._reward, reward)
        for field, flag in zip(
            ("terminated", "truncated") if len(flags) == 2 else ("done",), flags
        ):
            attempt(env._flag, field, flag)
        attempt(env._info, "step", info)

    def _check_agents(self, env: AgentDicts, result: Any) -> None:
        """Check the parts of each agent; in a dict-style PufferEnv keys may be missing."""
        attempt = self._findings.attempt
        parts, succeeded = attempt(env._unpack_step, result)
        if not succeeded:
            return
        observations, rewards, terminated, truncated, _ = parts
        ended = []
        for id, slot in env._acting:
            if id in observations:
                attempt(env._observe, "step", slot, observations[id])
            if id in rewards:
                attempt(env._reward, rewards[id], slot)
            else:
                what = f"`rewards` lacks agent {id!r}, which acted: it gets 0."
                self._findings.add("warning", "step", what)
            flags = [
                attempt(env._flag, field, part.get(id, False), slot)[0]
                for field, part in (("terminated", terminated), ("truncated", truncated))
            ]
            if any(flags):
                ended.append(id)
            elif id not in observations:
                what = f"`observations` lacks agent {id!r}, which has not ended: it waits."
                self._findings.add("note", "step", what)
        if isinstance(env, Parallel):
            return
        if ALL_AGENTS not in terminated and ALL_AGENTS not in truncated:
            what = f"`dones` lacks {ALL_AGENTS!r}: an episode ends when every agent is done."
            self._findings.add("warning", "step", what)
        elif len(ended) == len(env._acting) > 0 and not (
            terminated.get(ALL_AGENTS) or truncated.get(ALL_AGENTS)
        ):
            what = f"`dones[{ALL_AGENTS!r}]` is False though every agent is done: none can act."
            self._findings.add("warning", "step", what)


# ---- Rows of any env -----------------------------------------------------------------------------


def add_row(
    env: PufferEnv,
    findings: Findings,
    level: Level,
    method: str,
    slot: int,
    what: str,
    topic: str = "",
) -> None:
    """Add a finding about the row of one agent; one with a topic is added for a single agent."""
    if isinstance(env, Emulated):
        text = str(env.broken(method, what, slot))
    else:
        agent = f" (agent {slot})" if env.num_agents > 1 else ""
        text = f"{findings.name}{agent}, `{method}`: {what}"
    findings.add_text(level, text, topic)


def check_observations(
    env: PufferEnv,
    method: str,
    observations: ObservationChecks,
    masks: NDArray[np.bool_],
    findings: Findings,
) -> bool:
    """Report nan, inf, and values outside of their Box; return whether all are finite.

    The bounds are those of slots whose mask is set. Values of a C env outside of them are an error:
    its snapshot would be refused, so the run could not be resumed.
    """
    is_native = isinstance(env, NativeEnv)
    found = observations.nonfinite()
    if found is not None:
        add_row(env, findings, "error", method, *found, topic="nonfinite" if is_native else "")
        return False
    outside = observations.outside(masks)
    if outside is not None:
        level: Level = "error" if is_native else "warning"
        add_row(env, findings, level, method, *outside, topic="outside")
    return True


def check_rewards(env: PufferEnv, method: str, findings: Findings) -> bool:
    """Report nan and inf; return whether all rewards are finite."""
    bad = np.flatnonzero(~np.isfinite(env.rewards))
    if len(bad):
        what = f"`reward` must be finite, but got {env.rewards[bad[0]]}."
        add_row(env, findings, "error", method, int(bad[0]), what, "reward")
    return not len(bad)


def check_action_masks(env: PufferEnv, method: str, findings: Findings) -> bool:
    """Report masks that are not flags, or allow nothing; return whether all are sound."""
    if env.action_masks is None:
        return True
    layout = action_layout(env.single_action_space)
    for slot in np.flatnonzero(env.masks).tolist():
        row = env.action_masks[slot]
        if isinstance(env, Emulated) and layout.num_continuous and not row.any():
            continue  # it waits
        most = int(row.view(np.uint8).max())
        what = f"`action_mask` must be 0 or 1 for each choice, but got {most}."
        found = what if most > 1 else missing_choice(layout, row)
        if found is not None:
            add_row(env, findings, "error", method, slot, found, "action_mask")
            return False
    return True


def check_metrics(env: PufferEnv, infos: Any, findings: Findings) -> None:
    """Report metrics of ended episodes that are not finite, and a C env's `perf` beyond 0 to 1.

    What a Python env has in its infos may mean anything; the trainer leaves out what is not finite.
    """
    is_native = isinstance(env, NativeEnv)
    infos = [infos] if isinstance(infos, Mapping) else infos
    for slot in np.flatnonzero(env.terminals | env.truncations).tolist():
        info = infos[slot] if isinstance(infos, list | tuple) and slot < len(infos) else {}
        for name, value in info.items() if isinstance(info, Mapping) else ():
            if not isinstance(value, float | np.floating):
                continue
            if not np.isfinite(value):
                what = f"metric `{name}` must be finite, but got {value}."
                level: Level = "error" if is_native else "warning"
                add_row(env, findings, level, "step", slot, what, f"metric {name}")
            elif is_native and name == "perf" and not -_ROUNDING <= value <= 1 + _ROUNDING:
                what = f"metric `perf` must be from 0 to 1, but got {value:.6g}."
                add_row(env, findings, "error", "step", slot, what, "metric perf")


def _same(one: object, other: Any) -> bool:
    """Return whether two trees of arrays are equal; nan equals nan."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    return True  # what is no container cannot have changed


class RandomActions:
    """Writes actions into an env's rows: the lowest in step 0, the highest in step 1, then random.

    Choices that a mask forbids are replaced by allowed ones.
    """

    def __init__(self, env: PufferEnv, seed: int) -> None:
        layout = action_layout(env.single_action_space)
        self._env, self._rng = env, np.random.default_rng(seed)
        self._indices, self._reals = layout.split(env.actions)
        self._numbers, self._firsts = np.array(layout.nvec, dtype=np.int64), layout.firsts
        self._low = np.where(np.isfinite(layout.low), layout.low, -1).astype(np.float64)
        self._high = np.where(np.isfinite(layout.high), layout.high, 1).astype(np.float64)

    def write(self, step: int) -> None:
        """Write the actions of one step."""
        num_discrete = len(self._numbers)
        drawn = self._rng.random((self._env.num_agents, num_discrete + len(self._low)))
        if step < 2:
            drawn[:] = step
        shares, mixes = drawn[:, :num_discrete], drawn[:, num_discrete:]
        self._indices[...] = np.minimum((shares * self._numbers).astype(int), self._numbers - 1)
        self._reals[...] = np.clip(
            self._low + mixes * (self._high - self._low), self._low, self._high
        )
        if self._env.action_masks is not None:
            for slot, mask in enumerate(self._env.action_masks):
                self._obey(self._indices[slot], mask)

    def _obey(self, indices: NDArray[np.int32], mask: NDArray[np.bool_]) -> None:
        for component, first in enumerate(self._firsts):
            allowed = np.flatnonzero(mask[first : first + self._numbers[component]])
            if len(allowed) and indices[component] not in allowed:
                indices[component] = self._rng.choice(allowed)
