"""Envs of one agent: Gymnasium, legacy gym, and plain PufferEnvs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pufferlib import native
from pufferlib.buffers import Buffers
from pufferlib.emulation.base import MAX_REWARD, MIN_REWARD, Emulated, must_return
from pufferlib.emulation.inspection import EnvTraits, spaces_of
from pufferlib.episodes import Info
from pufferlib.errors import FAULTS, EnvError


class SingleAgent(Emulated):
    """One agent: plain PufferEnvs and legacy gym; `Gymnasium` is the strict form.

    `reset` returns an observation or (observation, info); `step` returns four parts or five.
    """

    strict: ClassVar[bool] = False

    def __init__(self, traits: EnvTraits, index: int = 0, like: Emulated | None = None) -> None:
        observation_space, action_space = spaces_of(traits)
        self._step_env: Callable[[Any], Any] = traits.env.step
        super().__init__(traits, observation_space, action_space, index=index, like=like)

    def _try_infos(self) -> Iterable[Any]:
        return [self._unpack_reset(self._reset_env(0))[1]]

    def reset(self, seed: int | None = None) -> tuple[NDArray[np.generic], list[Info]]:
        return self.observations, [self._begin(seed)]

    def _begin(self, seed: int | None) -> Info:
        observation, info = self._unpack_reset(self._reset_env(seed))
        self._observe("reset", 0, observation)
        self.masks[0] = True
        if self.action_masks is not None:
            self._mask("reset", 0, observation, info)
        return info

    def _unpack_reset(self, result: Any) -> tuple[Any, Info]:
        """Return observation and info from what `reset` returned."""
        is_pair = isinstance(result, tuple) and len(result) == 2
        if self.strict:
            if not is_pair:
                raise self.broken("reset", must_return("2 parts (observation, info)", result))
            return result[0], self._info("reset", result[1])
        if is_pair and isinstance(result[1], dict):
            may_be_observation = self._observation_layout.structured
            if not may_be_observation or not self.single_observation_space.contains(result):
                return result[0], result[1]
        return result, {}

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        self.step, self.finish = self._stepper()  # type: ignore[method-assign, assignment]

    def _stepper(self) -> tuple[Callable[[Any], tuple[Any, ...]], Callable[[Any], Info]]:
        """Return `step` over the current rows, and the part of it after the env's own `step`.

        Both read local variables: in a class with __getattr__ an attribute costs as much as a
        call, and a dozen of them would double the cost of a step.
        """
        observations, rewards, actions = self.observations, self.rewards, self.actions
        terminals, truncations = self.terminals, self.truncations
        read_action, write_observation = self._read[0], self._write[0]
        lowest, highest = MIN_REWARD, MAX_REWARD
        has_masks = self.action_masks is not None

        def step(action: Any) -> tuple[Any, ...]:
            if action is not actions:
                actions[...] = action
            chosen = read_action()
            try:
                result = self._step_env(chosen)
            except FAULTS as error:
                raise self.raised("step", error) from error
            return observations, rewards, terminals, truncations, finish(result)

        def finish(result: Any) -> Info:
            try:
                observation, reward, terminated, truncated, info = result
            except (TypeError, ValueError):
                observation, reward, terminated, truncated, info = self._unpack_legacy(result)
            if type(info) is not dict:
                info = self._info("step", info)
            if type(reward) is not float or not lowest <= reward <= highest:
                reward = self._reward(reward)
            rewards[0] = reward
            if terminated is False and truncated is False:
                try:
                    write_observation(observation)
                except EnvError as error:
                    raise self.broken("step", str(error)) from error
                if has_masks:
                    self._mask("step", 0, observation, info)
            else:
                self._finish_flagged(observation, info, terminated, truncated)
            return info  # type: ignore[no-any-return]

        return step, finish

    def _finish_flagged(
        self, observation: Any, info: Info, terminated: Any, truncated: Any
    ) -> None:
        """Finish a step whose flags are not both False: the last of an episode, or to be cast."""
        terminated = self._flag("terminated", terminated)
        truncated = self._flag("truncated", truncated)
        if terminated or truncated:
            self._observe("step", 0, observation, final=True)
            self.terminals[0], self.truncations[0] = terminated, not terminated
            self._add_metrics(info)
            self._begin(None)
        else:
            self._observe("step", 0, observation)
            if self.action_masks is not None:
                self._mask("step", 0, observation, info)

    def _unpack_legacy(self, result: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Return five parts from the four of gym before 0.26; the info may mark a time limit."""
        if self.strict or not isinstance(result, tuple | list) or len(result) != 4:
            five = "5 parts (observation, reward, terminated, truncated, info)"
            wanted = five if self.strict else f"4 parts (observation, reward, done, info) or {five}"
            raise self.broken("step", must_return(wanted, result))
        observation, reward, done, info = result
        info = self._info("step", info)
        done = self._flag("done", done)
        truncated = done and bool(info.get("TimeLimit.truncated", False))
        return observation, reward, done and not truncated, truncated, info


class Gymnasium(SingleAgent):
    """A Gymnasium env: `reset` returns two parts, `step` five."""

    strict = True


def env_loop(
    envs: Sequence[SingleAgent],
    buffers: Buffers,
    returns: NDArray[np.float64],
    lengths: NDArray[np.int64],
    progress: NDArray[np.uint32],
) -> Any:
    """Return the loop in C over envs of equal spaces, whose rows `buffers` are and have no masks.

    It reads actions that are indices, and writes observations that are arrays like their rows;
    others go through the functions of the env.
    """
    first, actions = envs[0], envs[0]._action_layout
    observed = first._observation_layout.leaves[0]
    is_index = not actions.structured and actions.leaves[0].kind == "discrete"
    is_box = observed.path == () and observed.kind == "box"
    return native.EnvLoop(
        [env._step_env for env in envs],
        [] if is_index else [env._read[0] for env in envs],
        [] if is_box else [env._write[0] for env in envs],
        buffers,
        returns,
        lengths,
        progress,
        actions.nvec[0] if is_index else 0,
        actions.starts[0] if is_index else 0,
        not first.strict,
    )
