"""Our vector envs for Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from types import new_class
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from pufferlib.adapters.driver import PRESENCE_KEY, RENDER_MODE, VectorDriver
from pufferlib.emulation import Emulated
from pufferlib.episodes import Info
from pufferlib.errors import UsageError, imported

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv


def to_sb3(vecenv: Any) -> VecEnv:
    """Return `vecenv` as a VecEnv of Stable-Baselines3; every agent counts as one env.

    Where envs have several agents, `get_attr("agent_mask")` says of each slot whether its agent is
    present, and each info has this as `agent_mask`. Rows of absent agents hold no data.
    """
    made: VecEnv = _sb3_class()(vecenv)
    return made


class _Sb3Methods:
    """The methods of a VecEnv, mixed into Stable-Baselines3's class when that is imported."""

    num_envs: int
    render_mode: str | None
    reset_infos: list[Info]
    _seeds: list[int | None]

    def __init__(self, vecenv: Any) -> None:
        self._driver = VectorDriver(vecenv)
        self.vecenv = self._driver.vecenv
        self._has_agents = self.vecenv.agents_per_env > 1
        driver = self._driver
        super().__init__(  # type: ignore[call-arg]
            driver.num_slots, driver.observation_space, driver.action_space
        )

    def reset(self) -> Any:
        """Start new episodes everywhere; env 0 gets the seed given to `seed`."""
        batch = self._driver.reset(self._seeds[0])
        self._reset_seeds()  # type: ignore[attr-defined]
        self._reset_options()  # type: ignore[attr-defined]
        self.reset_infos = [self._presence(slot) for slot in range(self.num_envs)]
        return self._driver.observation(batch.observations)

    def step_async(self, actions: Any) -> None:
        """Send one action for each slot."""
        self._driver.send(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.generic], NDArray[np.generic], list[Info]]:
        """Return observations, rewards, dones and infos of the step in progress."""
        batch = self._driver.recv()
        dones = batch.terminals | batch.truncations
        infos = [{**info, **self._presence(slot)} for slot, info in enumerate(batch.infos)]
        finals = self.vecenv.final_observations
        for slot in np.flatnonzero(dones):
            infos[slot]["terminal_observation"] = self._driver.observation(finals[slot, ...])
            infos[slot]["TimeLimit.truncated"] = not batch.terminals[slot]
        observations = self._driver.observation(batch.observations)
        return observations, batch.rewards.copy(), dones, infos

    def _presence(self, slot: int) -> Info:
        """Return whether the agent of a slot is present, where that can differ."""
        return {PRESENCE_KEY: bool(self.vecenv.masks[slot])} if self._has_agents else {}

    def close(self) -> None:
        self.vecenv.close()

    def get_images(self) -> list[Any]:
        """Return a picture of each env (not of each agent)."""
        return [self.vecenv.render(env) for env in range(self.vecenv.num_envs)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the env of each slot, or of the vector env where that has it."""
        if attr_name == "render_mode":
            return [RENDER_MODE for _ in self._slots(indices)]
        if attr_name == PRESENCE_KEY:
            return [bool(self.vecenv.masks[slot]) for slot in self._slots(indices)]
        if attr_name == "action_masks":  # sb3-contrib asks whether it is there
            if self.vecenv.action_masks is None:
                raise AttributeError(f"`{self.vecenv.name}` has no action masks")
            return [self.vecenv.action_masks[slot].copy() for slot in self._slots(indices)]
        return [
            getattr(env if hasattr(env, attr_name) else self.vecenv, attr_name)
            for env in map(self._env, self._slots(indices))
        ]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute in the env of each slot."""
        for slot in self._slots(indices):
            env = self._env(slot)
            if env is None:
                raise UsageError(
                    f"`{attr_name}` must be set in Python envs, but `{self.vecenv.name}` has none "
                    f"in this process. Try pufferlib.make(..., {attr_name}=...)."
                )
            setattr(env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the env of each slot; `action_masks` gives the masks of all envs."""
        found = self.get_attr(method_name, indices)
        if method_name in ("action_masks", PRESENCE_KEY):
            return found
        return [method(*method_args, **method_kwargs) for method in found]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return whether the env of each slot is wrapped by this Gymnasium wrapper."""
        is_wrapped = import_module("stable_baselines3.common.env_util").is_wrapped
        envs = [self._env(slot) for slot in self._slots(indices)]
        return [
            isinstance(env, gymnasium.Env) and bool(is_wrapped(env, wrapper_class)) for env in envs
        ]

    def _slots(self, indices: int | Iterable[int] | None) -> Iterable[int]:
        if indices is None:
            return range(self.num_envs)
        return [indices] if isinstance(indices, int) else indices

    def _env(self, slot: int) -> Any:
        """Return the user's env that a slot belongs to, or None where it is not in this process."""
        if not self.vecenv.envs:
            return None
        env = self.vecenv.envs[slot // self.vecenv.agents_per_env]
        return env.env if isinstance(env, Emulated) else env


@cache
def _sb3_class() -> Any:
    base = imported("stable_baselines3.common.vec_env", "sb3", "Stable-Baselines3").VecEnv
    return new_class("Sb3VecEnv", (_Sb3Methods, base))
