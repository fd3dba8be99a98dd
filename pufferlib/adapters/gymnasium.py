"""Our envs for Gymnasium: a vector env, or a single env."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from pufferlib.adapters.driver import FRAMES_PER_SECOND, RENDER_MODE, VectorDriver, one_env
from pufferlib.emulation import MASK_KEY
from pufferlib.episodes import Info
from pufferlib.errors import UsageError
from pufferlib.spaces import Array, flatten_action
from pufferlib.vectorization import Batch, make

PRESENCE_KEY = "agent_mask"


def to_gymnasium(
    vecenv: Any, *, statistics: bool = True, render_mode: str | None = RENDER_MODE
) -> GymnasiumVectorEnv:
    """Return `vecenv` as a `gymnasium.vector.VectorEnv` with same-step autoreset.

    Every agent counts as one env. `infos` of ended slots hold `final_obs`, `final_info` and, with
    `statistics`, `episode`; pass False to use Gymnasium's own `RecordEpisodeStatistics`.
    """
    return GymnasiumVectorEnv(vecenv, statistics, render_mode)


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Array]):
    """A vector env for Gymnasium; `vecenv` is the adapted one.

    The observation of a slot that has ended is the first of its next episode, and its last one is
    in `infos["final_obs"]`. `infos["action_mask"]` is there where the envs have one, and
    `infos["agent_mask"]` (the slot's agent is present) where they have several agents.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "render_modes": [RENDER_MODE],
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(
        self, vecenv: Any, statistics: bool = True, render_mode: str | None = RENDER_MODE
    ) -> None:
        self._driver = VectorDriver(vecenv)
        self.vecenv = self._driver.vecenv
        self.render_mode = _checked_mode(render_mode)
        self._statistics = statistics
        self.num_envs = self._driver.num_slots
        self.single_observation_space = self._driver.observation_space
        self.single_action_space = self._driver.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Start new episodes everywhere; env 0 gets exactly `seed`. There are no `options`."""
        if options and "reset_mask" in options:
            raise UsageError(
                "`options` must not have a `reset_mask`, but got one: slots that end are reset "
                "within the same step."
            )
        batch = self._driver.reset(seed)
        super().reset(seed=seed)
        return self._driver.observation(batch.observations), self._with_masks({}, batch)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        """Step every env with its row of `actions`."""
        self._driver.send(actions)
        batch = self._driver.recv()
        infos: Info = {}
        ended = batch.terminals | batch.truncations
        finals = self.vecenv.final_observations
        for slot, info in enumerate(batch.infos):
            if ended[slot]:
                final = self._driver.observation(finals[slot, ...])
                is_shown = self._statistics and "episode" in info
                shown = {"episode": info["episode"]} if is_shown else {}
                self._add_info(infos, {"final_obs": final, "final_info": info, **shown}, slot)
            elif info:
                self._add_info(infos, info, slot)
        return (
            self._driver.observation(batch.observations),
            batch.rewards.copy(),
            batch.terminals.copy(),
            batch.truncations.copy(),
            self._with_masks(infos, batch),
        )

    def _with_masks(self, infos: Info, batch: Batch) -> Info:
        """Add the masks that go with the current observations."""
        masks = self._driver.action_masks()
        if masks is not None:
            infos[MASK_KEY] = masks
            infos[f"_{MASK_KEY}"] = np.ones(self.num_envs, dtype=np.bool_)
        if self.vecenv.agents_per_env > 1:
            infos[PRESENCE_KEY] = batch.masks.copy()
            infos[f"_{PRESENCE_KEY}"] = np.ones(self.num_envs, dtype=np.bool_)
        return infos

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture of each env (not of each agent), or None without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(self.vecenv.render(env) for env in range(self.vecenv.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        self.vecenv.close()


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """One env with one agent for Gymnasium; `vecenv` is the adapted vector env of one.

    After the last step of an episode, `reset` must follow. Without a seed it returns the next
    episode; in the middle of an episode it starts another, determined by the last seed. The info
    of an episode's last step has the env's metrics; `RecordEpisodeStatistics` gives the return.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [RENDER_MODE],
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(self, env: Any, render_mode: str | None = None, **params: Any) -> None:
        self.render_mode = _checked_mode(render_mode)
        self.vecenv = one_env(env, params)
        agents = self.vecenv.agents_per_env
        if agents != 1:
            name = self.vecenv.name
            self.vecenv.close()
            raise UsageError(
                f"`{name}` must have one agent to be a gymnasium.Env, but has {agents}. Try "
                f'pufferlib.to_pettingzoo("{name}"), gymnasium.make_vec (a row for each agent), '
                "or num_agents=1 where the env takes it."
            )
        self._driver = VectorDriver(self.vecenv)
        self.observation_space = self._driver.observation_space
        self.action_space = self._driver.action_space
        self._next: Batch | None = None  # has the first observation of the next episode
        self._is_running = False
        layout = self._driver.action_layout
        self._action = np.zeros((1, *layout.shape), dtype=layout.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Start an episode. There are no `options`."""
        batch = self._next if seed is None else None
        if batch is None:
            batch = self._driver.reset(seed)
        super().reset(seed=seed)
        self._next, self._is_running = None, True
        return self._driver.observation(batch.observations[0, ...]), self._with_mask({})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        if not self._is_running:
            raise UsageError("`reset` must be called before `step`: no episode is running.")
        flatten_action(self._driver.action_layout, action, self._action[0, ...])
        self._driver.send_rows(self._action)
        batch = self._driver.recv()
        terminal, truncation = bool(batch.terminals[0]), bool(batch.truncations[0])
        info = {key: value for key, value in batch.infos[0].items() if key != "episode"}
        rows = batch.observations
        if terminal or truncation:
            self._next, self._is_running = batch, False
            rows = self.vecenv.final_observations
        else:
            info = self._with_mask(info)
        observation = self._driver.observation(rows[0, ...])
        return observation, float(batch.rewards[0]), terminal, truncation, info

    def _with_mask(self, info: Info) -> Info:
        masks = self._driver.action_masks()
        return info if masks is None else {**info, MASK_KEY: masks[0]}

    def render(self) -> Any:
        """Return a picture [height, width, 3], or None without a render mode."""
        return None if self.render_mode is None else self.vecenv.render()

    def close(self) -> None:
        self.vecenv.close()


def make_gymnasium_vec(
    env: str, num_envs: int = 1, render_mode: str | None = None, **params: Any
) -> GymnasiumVectorEnv:
    """Make what `gymnasium.make_vec` returns for an Ocean env.

    As with Gymnasium's own envs, a wrapper gives episode statistics; `final_info` has them too.
    """
    return to_gymnasium(make(env, num_envs, **params), statistics=False, render_mode=render_mode)


def _checked_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, RENDER_MODE):
        raise UsageError(f"`render_mode` must be {RENDER_MODE!r} or None, but got {render_mode!r}.")
    return render_mode
