"""Our envs for Gymnasium: a vector env, or a single env."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pufferlib.adapters.driver import (
    FRAMES_PER_SECOND,
    PRESENCE_KEY,
    RENDER_MODE,
    Seeds,
    VectorDriver,
    one_env,
)
from pufferlib.emulation import MASK_KEY
from pufferlib.env import Wrapper
from pufferlib.episodes import Info
from pufferlib.errors import UnknownParamError, UsageError, unknown_choice
from pufferlib.spaces import Array, flatten_action
from pufferlib.vectorization import Batch, VectorEnv, make


def to_gymnasium(
    vecenv: Any,
    *,
    statistics: bool = True,
    render_mode: str | None = RENDER_MODE,
    autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
) -> GymnasiumVectorEnv:
    """Return `vecenv` as a `gymnasium.vector.VectorEnv`; every agent counts as one env.

    `infos` of ended slots hold `episode`; with `statistics=False` they do not, as Gymnasium's own
    `RecordEpisodeStatistics` demands. `autoreset_mode` "same_step" returns the first observation of
    the next episode in the step that ends one, and puts the last one into `infos`. "next_step", for
    envs of one agent, returns the last one, and the first of the next episode in the step after:
    that step ignores the action and does not move the env.
    """
    return GymnasiumVectorEnv(vecenv, statistics, render_mode, autoreset_mode)


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Array]):
    """A vector env for Gymnasium; `vecenv` is the adapted one.

    With same-step autoreset, the last observation of a slot that has ended is in
    `infos["final_obs"]` and its info in `infos["final_info"]`; with next-step autoreset they are
    what the step returns. `infos["action_mask"]` is there where the envs have one, and
    `infos["agent_mask"]` (the slot's agent is present) where they have several agents.
    """

    def __init__(
        self,
        vecenv: Any,
        statistics: bool = True,
        render_mode: str | None = RENDER_MODE,
        autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        self._driver = VectorDriver(vecenv)
        self.vecenv = self._driver.vecenv
        self.render_mode = _checked_mode(render_mode)
        self.autoreset_mode = _checked_autoreset(autoreset_mode)
        self.metadata = {
            "autoreset_mode": self.autoreset_mode,
            "render_modes": [RENDER_MODE],
            "render_fps": FRAMES_PER_SECOND,
        }
        self._is_next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        if self._is_next_step:
            _check_can_hold(vecenv)
        self._statistics = statistics
        self.num_envs = self._driver.num_slots
        self.single_observation_space = self._driver.observation_space
        self.single_action_space = self._driver.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._ended = np.zeros(self.num_envs, dtype=np.bool_)  # slots, in the last step

    def reset(
        self, *, seed: Seeds = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        """Start new episodes everywhere. There are no `options`.

        Env 0 gets exactly `seed`. A list has one seed for each env, not for each agent; None in it
        stands for any seed.
        """
        if options and "reset_mask" in options:
            raise UsageError(
                "`options` must not have a `reset_mask`, but got one: slots that end are reset "
                "without it."
            )
        batch = self._driver.reset(seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        self._ended[:] = False
        return self._driver.observation(batch.observations), self._with_masks({}, batch)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, Info]:
        """Step every env with its row of `actions`."""
        if self._is_next_step and self._ended.any():
            self.vecenv.hold(self._ended)
        self._driver.send(actions)
        batch = self._driver.recv()
        self._ended = batch.terminals | batch.truncations
        rows = batch.observations
        if self._is_next_step and self._ended.any():
            rows = rows.copy()
            rows[self._ended] = self.vecenv.final_observations[self._ended]
        return (
            self._driver.observation(rows),
            batch.rewards.copy(),
            batch.terminals.copy(),
            batch.truncations.copy(),
            self._with_masks(self._infos(batch), batch),
        )

    def _infos(self, batch: Batch) -> Info:
        """Return the infos of a step in Gymnasium's form."""
        infos: Info = {}
        finals = self.vecenv.final_observations
        for slot, info in enumerate(batch.infos):
            if self._ended[slot]:
                shown = {key: info[key] for key in info if key != "episode"}
                if not self._is_next_step:
                    final = self._driver.observation(finals[slot, ...])
                    shown = {"final_obs": final, "final_info": info}
                if self._statistics and "episode" in info:
                    shown["episode"] = info["episode"]
                self._add_info(infos, shown, slot)
            elif info:
                self._add_info(infos, info, slot)
        return infos

    def _with_masks(self, infos: Info, batch: Batch) -> Info:
        """Add the masks that go with the current observations."""
        masks = self._driver.action_masks()
        if masks is not None:
            if self._is_next_step:
                masks[self._ended] = True  # the next action is ignored
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
    of an episode's last step has the env's metrics, unless `statistics` is False: then all infos
    have the same keys. `RecordEpisodeStatistics` gives the return.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [RENDER_MODE],
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(
        self, env: Any, render_mode: str | None = None, statistics: bool = True, **params: Any
    ) -> None:
        self.render_mode = _checked_mode(render_mode)
        self._statistics = statistics
        with _in_words_of_python():
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
        info = dict(batch.infos[0])
        rows = batch.observations
        if terminal or truncation:
            self._next, self._is_running = batch, False
            rows = self.vecenv.final_observations
            left_out = {"episode"} if self._statistics else {"episode", *self.vecenv.metric_names}
            info = {key: info[key] for key in info if key not in left_out}
        observation = self._driver.observation(rows[0, ...])
        reward = float(batch.rewards[0])
        return observation, reward, terminal, truncation, self._with_mask(info)

    def _with_mask(self, info: Info) -> Info:
        """Add the mask that goes with the current observation; after an end, all is allowed."""
        masks = self._driver.action_masks()
        if masks is None:
            return info
        if self._is_running:
            return {**info, MASK_KEY: masks[0]}
        return {MASK_KEY: np.ones_like(masks[0]), **info}  # the env's own, if it has one

    @property
    def action_masks(self) -> Callable[[], NDArray[np.bool_]]:
        """The method that sb3-contrib looks for: it returns one flag for each choice.

        An env without action masks does not have it.
        """
        masks = self.vecenv.action_masks
        if masks is None:
            raise AttributeError(f"`{self.vecenv.name}` has no action masks")
        return lambda: masks[0].copy()

    def render(self) -> Any:
        """Return a picture [height, width, 3], or None without a render mode."""
        return None if self.render_mode is None else self.vecenv.render()

    def close(self) -> None:
        self.vecenv.close()


def make_gymnasium_vec(
    env: str,
    num_envs: int = 1,
    render_mode: str | None = None,
    autoreset_mode: str | AutoresetMode = AutoresetMode.SAME_STEP,
    **params: Any,
) -> GymnasiumVectorEnv:
    """Make what `gymnasium.make_vec` returns for an Ocean env.

    As with Gymnasium's own envs, a wrapper gives episode statistics; `final_info` has them too.
    """
    with _in_words_of_python():
        vecenv = make(env, num_envs, **params)
    return to_gymnasium(
        vecenv, statistics=False, render_mode=render_mode, autoreset_mode=autoreset_mode
    )


@contextmanager
def _in_words_of_python() -> Iterator[None]:
    """Let the error for an unknown param also say what Python says: TorchRL looks for its words."""
    try:
        yield
    except UnknownParamError as error:
        said = f"{error} (unexpected keyword argument {error.param!r})"
        raise UnknownParamError(said, error.suggestions, error.param) from None


def _checked_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, RENDER_MODE):
        raise UsageError(f"`render_mode` must be {RENDER_MODE!r} or None, but got {render_mode!r}.")
    return render_mode


def _checked_autoreset(given: str | AutoresetMode) -> AutoresetMode:
    """Return the mode with this name, in the spelling of Gymnasium or with an underscore."""
    name = given.value if isinstance(given, AutoresetMode) else str(given)
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        if name.lower() in (mode.value.lower(), mode.name.lower()):
            return mode
    raise unknown_choice("`autoreset_mode`", name, ("same_step", "next_step"))


def _check_can_hold(vecenv: VectorEnv) -> None:
    """Raise unless the envs of `vecenv` can wait for a step, as next-step autoreset needs."""
    if vecenv.agents_per_env > 1:
        raise UsageError(
            "`autoreset_mode` must be 'same_step' for envs of several agents, but got 'next_step': "
            "an agent that has ended cannot wait while the others go on."
        )
    if not getattr(vecenv, "can_hold", False) or isinstance(vecenv, Wrapper):
        raise UsageError(
            "`autoreset_mode` must be 'same_step' for a vector env that cannot step some of its "
            f"envs without the others, but got 'next_step' for {type(vecenv).__name__}."
        )
