"""Adapters out: our environments for code written for Gymnasium, Stable-Baselines3 or PettingZoo.

`to_gymnasium` and `to_sb3` take a whole vector env, with one row for each agent; `to_pettingzoo`
and `GymnasiumEnv` take a single env. Rows are the vector env's own, step by step. All that comes
out is a copy and belongs to the caller. Closing an adapter closes the env behind it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from pufferlib.emulation import MASK_KEY, Emulated
from pufferlib.errors import MissingExtraError, UsageError, unknown_name
from pufferlib.registry import emulate, make
from pufferlib.spaces import (
    Leaf,
    Space,
    action_layout,
    flatten_action,
    observation_layout,
    unflatten_observation,
)
from pufferlib.vectorization import Batch, VectorEnv

if TYPE_CHECKING:
    from pettingzoo import ParallelEnv
    from stable_baselines3.common.vec_env import VecEnv

PRESENCE_KEY = "agent_mask"
RENDER_MODE = "rgb_array"
FRAMES_PER_SECOND = 30  # at which pictures are played back

_NO_METRICS = {"episodes", "mean_reward", "min_reward", "max_reward", "episode_length"}


def to_gymnasium(
    vecenv: Any, *, statistics: bool = True, render_mode: str | None = RENDER_MODE
) -> GymnasiumVectorEnv:
    """Return `vecenv` as a `gymnasium.vector.VectorEnv` with same-step autoreset.

    Every agent counts as one env. `infos` of ended slots hold `final_obs`, `final_info` and, with
    `statistics`, `episode`; leave the latter out for Gymnasium's own `RecordEpisodeStatistics`.
    """
    return GymnasiumVectorEnv(vecenv, statistics, render_mode)


def to_sb3(vecenv: Any) -> VecEnv:
    """Return `vecenv` as a VecEnv of Stable-Baselines3; every agent counts as one env."""
    made: VecEnv = _sb3_class()(vecenv)
    return made


def to_pettingzoo(env: Any, **params: Any) -> ParallelEnv[Any, Any, Any]:
    """Return one multi-agent env as a `ParallelEnv` of PettingZoo.

    `env` is the name of an env, a VectorEnv of one env, or whatever `emulate` takes; `params` are
    the env's own.
    """
    made: ParallelEnv[Any, Any, Any] = _pettingzoo_class()(_one_env(env, params))
    return made


class _Rows:
    """A vector env as all adapters drive it: whole batches, values of the spaces in, copies out.

    A reset without a seed that follows one with a seed is determined by the latter.
    """

    def __init__(self, vecenv: Any) -> None:
        if not all(hasattr(vecenv, name) for name in ("send", "recv", "drain_metrics")):
            raise UsageError(
                f"`vecenv` must be a VectorEnv, but got {type(vecenv).__name__}. "
                "Try `pufferlib.make(name)` or `pufferlib.emulate(env)`."
            )
        self.vecenv: VectorEnv = vecenv
        self.num_slots = vecenv.num_agents
        self.observation_space: Space = vecenv.observation_space
        self.action_space: Space = vecenv.action_space
        self._observation_layout = observation_layout(self.observation_space)
        self.action_layout = action_layout(self.action_space)
        self._random: np.random.Generator | None = None

    def reset(self, seed: int | None) -> Batch:
        if seed is None and self._random is not None:
            self.vecenv.reset(seed=int(self._random.integers(2**31)))
        else:
            self.vecenv.reset(seed=seed)
            self._random = None if seed is None else np.random.default_rng(seed)
        return self.recv()

    def send(self, actions: Any) -> None:
        """Hand over a batch of actions, as the batched action space has them."""
        self.vecenv.send(self._action_rows(actions))

    def recv(self) -> Batch:
        """Return the next batch: all slots in order, and an info for each."""
        batch = self.vecenv.recv()
        if not isinstance(batch.slots, slice) or batch.slots != slice(0, self.num_slots):
            raise UsageError(
                "`vecenv` must answer with all of its slots in every step, but gave "
                f"{len(batch.rewards)} of {self.num_slots}. Try mode='sync'."
            )
        infos = list(batch.infos or ())
        infos += [{}] * (self.num_slots - len(infos))
        return batch._replace(infos=infos)

    def observation(self, rows: NDArray[Any]) -> Any:
        """Return observations in the form and the dtypes of their space: of one row, or batched."""
        tree = unflatten_observation(self._observation_layout, rows)
        return _copied(tree, iter(self._observation_layout.leaves))

    def action_masks(self) -> NDArray[np.int8] | None:
        """Return one flag for each choice, in the dtype that Gymnasium's `sample` wants."""
        masks = self.vecenv.action_masks
        return None if masks is None else masks.astype(np.int8)

    def _action_rows(self, actions: Any) -> Any:
        layout = self.action_layout
        if not layout.structured and not any(layout.starts):
            return actions  # rows already
        rows = np.zeros((self.num_slots, *layout.shape), dtype=layout.dtype)
        for leaf in layout.leaves:
            layout.view(rows, leaf)[...] = self._action_part(leaf, actions)
        return rows

    def _action_part(self, leaf: Leaf, actions: Any) -> NDArray[Any]:
        """Return what `actions` hold for one leaf: indices from 0, or reals."""
        name = "actions" + "".join(f"[{key!r}]" for key in leaf.path)
        try:
            for key in leaf.path:
                actions = actions[key]
            part = np.asarray(actions)
        except (KeyError, IndexError, TypeError, ValueError):
            raise UsageError(
                f"`{name}` must be there, but is not. Try `action_space.sample()`."
            ) from None
        wanted = (self.num_slots, *leaf.shape)
        if part.shape != wanted:
            raise UsageError(f"`{name}` must have shape {wanted}, but got {part.shape}.")
        if leaf.kind == "box":
            return part
        if part.dtype.kind not in "biu" or ((part < leaf.lowest) | (part > leaf.highest)).any():
            raise UsageError(f"`{name}` must be values of {leaf.space}, but got {part}.")
        return part - leaf.lowest  # type: ignore[no-any-return]


def _copied(tree: Any, leaves: Iterator[Leaf]) -> Any:
    """Return an equal tree that owns its arrays, each in the dtype of its space."""
    if isinstance(tree, dict):
        return {key: _copied(child, leaves) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_copied(child, leaves) for child in tree)
    leaf = next(leaves)
    return np.array(tree, dtype=leaf.space.dtype) if isinstance(tree, np.ndarray) else tree


# ---- Gymnasium -----------------------------------------------------------------------------------


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv[Any, Any, NDArray[Any]]):
    """A vector env for Gymnasium; `vecenv` is the one behind it.

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
        self._rows = _Rows(vecenv)
        self.vecenv = self._rows.vecenv
        self.render_mode = _checked_mode(render_mode)
        self._statistics = statistics
        self.num_envs = self._rows.num_slots
        self.single_observation_space = self._rows.observation_space
        self.single_action_space = self._rows.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes everywhere; env 0 gets exactly `seed`. No `options` are known."""
        if options and "reset_mask" in options:
            raise UsageError(
                "`options` must not have a `reset_mask`, but got one: slots that end are reset "
                "within the same step."
            )
        batch = self._rows.reset(seed)
        super().reset(seed=seed)
        return self._rows.observation(batch.observations), self._with_masks({}, batch)

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step every env with its row of `actions`."""
        self._rows.send(actions)
        batch = self._rows.recv()
        infos: dict[str, Any] = {}
        ended = batch.terminals | batch.truncations
        finals = self.vecenv.final_observations
        for slot, info in enumerate(batch.infos):
            if ended[slot]:
                final = self._rows.observation(finals[slot, ...])
                shown = {"episode": info["episode"]} if self._shows_episode(info) else {}
                self._add_info(infos, {"final_obs": final, "final_info": info, **shown}, slot)
            elif info:
                self._add_info(infos, info, slot)
        return (
            self._rows.observation(batch.observations),
            batch.rewards.copy(),
            batch.terminals.copy(),
            batch.truncations.copy(),
            self._with_masks(infos, batch),
        )

    def _shows_episode(self, info: dict[str, Any]) -> bool:
        return self._statistics and "episode" in info

    def _with_masks(self, infos: dict[str, Any], batch: Batch) -> dict[str, Any]:
        """Add what holds for the observations just given."""
        masks = self._rows.action_masks()
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
        """Close the vector env behind."""
        self.vecenv.close()


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """One env with one agent for Gymnasium; `vecenv` is the vector env of one behind it.

    An episode ends with its last observation, and `reset` must follow. Without a seed, it goes on
    to the next episode; amid an episode it starts another, determined by the last seed. The info
    of an episode's last step has the env's metrics; `RecordEpisodeStatistics` gives the return.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [RENDER_MODE],
        "render_fps": FRAMES_PER_SECOND,
    }

    def __init__(self, env: Any, render_mode: str | None = None, **params: Any) -> None:
        self.render_mode = _checked_mode(render_mode)
        self.vecenv = _one_env(env, params)
        agents = self.vecenv.agents_per_env
        if agents != 1:
            name = self.vecenv.name
            self.vecenv.close()
            raise UsageError(
                f"`{name}` must have one agent to be a gymnasium.Env, but has {agents}. Try "
                f'pufferlib.to_pettingzoo("{name}"), gymnasium.make_vec (a row for each agent), '
                "or num_agents=1 where the env takes it."
            )
        self._rows = _Rows(self.vecenv)
        self.observation_space = self._rows.observation_space
        self.action_space = self._rows.action_space
        self._next: Batch | None = None  # with the first observation of an episode not yet shown
        self._is_running = False
        layout = self._rows.action_layout
        self._action = np.zeros((1, *layout.shape), dtype=layout.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode. No `options` are known."""
        batch = self._next if seed is None else None
        if batch is None:
            batch = self._rows.reset(seed)
        super().reset(seed=seed)
        self._next, self._is_running = None, True
        return self._rows.observation(batch.observations[0, ...]), self._with_mask({})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take one step."""
        if not self._is_running:
            raise UsageError("`reset` must be called before `step`: no episode is running.")
        flatten_action(self._rows.action_layout, action, self._action[0, ...])
        self.vecenv.send(self._action)
        batch = self._rows.recv()
        terminal, truncation = bool(batch.terminals[0]), bool(batch.truncations[0])
        info = {key: value for key, value in batch.infos[0].items() if key != "episode"}
        rows = batch.observations
        if terminal or truncation:
            self._next, self._is_running = batch, False
            rows = self.vecenv.final_observations
            metrics = self.vecenv.drain_metrics()
            info = {key: metrics[key] for key in metrics if key not in _NO_METRICS} | info
        else:
            info = self._with_mask(info)
        observation = self._rows.observation(rows[0, ...])
        return observation, float(batch.rewards[0]), terminal, truncation, info

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        masks = self._rows.action_masks()
        return info if masks is None else {**info, MASK_KEY: masks[0]}

    def render(self) -> Any:
        """Return a picture [height, width, 3], or None without a render mode."""
        return None if self.render_mode is None else self.vecenv.render()

    def close(self) -> None:
        """Close the vector env behind."""
        self.vecenv.close()


def make_gymnasium_vec(
    env: str, num_envs: int = 1, render_mode: str | None = None, **params: Any
) -> GymnasiumVectorEnv:
    """Make what `gymnasium.make_vec` returns for an Ocean env.

    As Gymnasium's own envs it leaves episode statistics to a wrapper; `final_info` has them.
    """
    return to_gymnasium(make(env, num_envs, **params), statistics=False, render_mode=render_mode)


# ---- Stable-Baselines3 ---------------------------------------------------------------------------


class _Sb3Methods:
    """A vector env for Stable-Baselines3: what goes on top of its VecEnv."""

    num_envs: int
    render_mode: str | None
    reset_infos: list[dict[str, Any]]
    _seeds: list[int | None]

    def __init__(self, vecenv: Any) -> None:
        self._rows = _Rows(vecenv)
        self.vecenv = self._rows.vecenv
        rows = self._rows
        super().__init__(  # type: ignore[call-arg]
            rows.num_slots, rows.observation_space, rows.action_space
        )

    def reset(self) -> Any:
        """Start new episodes everywhere; the seed that `seed` left goes to env 0."""
        batch = self._rows.reset(self._seeds[0])
        self._reset_seeds()  # type: ignore[attr-defined]
        self._reset_options()  # type: ignore[attr-defined]
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self._rows.observation(batch.observations)

    def step_async(self, actions: Any) -> None:
        """Hand over one action for each slot."""
        self._rows.send(actions)

    def step_wait(self) -> tuple[Any, NDArray[Any], NDArray[Any], list[dict[str, Any]]]:
        """Return observations, rewards, dones and infos of the step under way."""
        batch = self._rows.recv()
        dones = batch.terminals | batch.truncations
        infos = [dict(info) for info in batch.infos]
        finals = self.vecenv.final_observations
        for slot in np.flatnonzero(dones):
            infos[slot]["terminal_observation"] = self._rows.observation(finals[slot, ...])
            infos[slot]["TimeLimit.truncated"] = not batch.terminals[slot]
        observations = self._rows.observation(batch.observations)
        return observations, batch.rewards.copy(), dones, infos

    def close(self) -> None:
        """Close the vector env behind."""
        self.vecenv.close()

    def get_images(self) -> list[Any]:
        """Return a picture of each env (not of each agent)."""
        return [self.vecenv.render(env) for env in range(self.vecenv.num_envs)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the env of each slot, or of the vector env where that has it."""
        if attr_name == "render_mode":
            return [RENDER_MODE for _ in self._slots(indices)]
        if attr_name == "action_masks" and self.vecenv.action_masks is not None:
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
                    f"here. Try pufferlib.make(..., {attr_name}=...)."
                )
            setattr(env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the env of each slot; `action_masks` gives the masks of all envs."""
        found = self.get_attr(method_name, indices)
        if method_name == "action_masks" and self.vecenv.action_masks is not None:
            return found
        return [method(*method_args, **method_kwargs) for method in found]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return whether the env of each slot stands within a Gymnasium wrapper of this class."""
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
        envs = getattr(self.vecenv, "envs", None)
        if envs is None:
            return None
        env = envs[slot // self.vecenv.agents_per_env]
        return env.env if isinstance(env, Emulated) else env


@cache
def _sb3_class() -> Any:
    base = _imported("stable_baselines3.common.vec_env", "sb3", "Stable-Baselines3").VecEnv
    return new_class("Sb3VecEnv", (_Sb3Methods, base))


# ---- PettingZoo ----------------------------------------------------------------------------------


class _ParallelMethods:
    """One env with many agents for PettingZoo: what goes on top of its ParallelEnv.

    An agent that has ended is gone until `reset`, as PettingZoo wants it. Where its env lets it
    begin anew at once, the slot goes on with action 0 and is not shown.
    """

    render_mode = RENDER_MODE

    def __init__(self, vecenv: VectorEnv) -> None:
        self._rows = _Rows(vecenv)
        self.vecenv = vecenv
        self.metadata = {
            "name": vecenv.name or type(vecenv).__name__,
            "render_modes": [RENDER_MODE],
            "render_fps": FRAMES_PER_SECOND,
            "is_parallelizable": True,
        }
        slots = range(self._rows.num_slots)
        # copies: whoever seeds the space of one agent leaves those of the others alone
        self._observation_spaces = [copy.deepcopy(self._rows.observation_space) for _ in slots]
        self._action_spaces = [copy.deepcopy(self._rows.action_space) for _ in slots]
        self._learn_ids()
        self.agents: list[Any] = []
        self._gone: set[Any] = set()  # have ended, and stay away until reset
        self._next: Batch | None = None  # with first observations of an episode not yet shown

    def _learn_ids(self) -> None:
        envs = getattr(self.vecenv, "envs", None)
        if envs and isinstance(envs[0], Emulated) and not envs[0].agent_ids:
            held = self.vecenv._next_seed  # a look must not use it up
            self.vecenv.reset()
            if held is not None:
                self.vecenv.seed(held)
        self._note_ids()

    def _note_ids(self) -> None:
        ids = self.vecenv.agent_ids
        if not ids:
            envs = getattr(self.vecenv, "envs", None)
            ids = getattr(envs[0], "agent_ids", None) if envs else None
        known = list(ids or ())
        known += [f"agent_{slot}" for slot in range(len(known), self._rows.num_slots)]
        self.possible_agents = known
        self._slot_of = {id: slot for slot, id in enumerate(known)}

    @property
    def observation_spaces(self) -> dict[Any, Space]:
        """The observation space of every agent."""
        return dict(zip(self.possible_agents, self._observation_spaces, strict=True))

    @property
    def action_spaces(self) -> dict[Any, Space]:
        """The action space of every agent."""
        return dict(zip(self.possible_agents, self._action_spaces, strict=True))

    def observation_space(self, agent: Any) -> Space:
        """Return the observation space of one agent, the same object each time."""
        return self._observation_spaces[self._slot(agent)]

    def action_space(self, agent: Any) -> Space:
        """Return the action space of one agent, the same object each time."""
        return self._action_spaces[self._slot(agent)]

    def _slot(self, agent: Any) -> int:
        if agent not in self._slot_of:
            raise unknown_name("agent", str(agent), map(str, self.possible_agents))
        return self._slot_of[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, dict[str, Any]]]:
        """Start an episode of all agents. No `options` are known."""
        batch = self._next if seed is None else None
        if batch is None:
            batch = self._rows.reset(seed)
        self._next = None
        self._note_ids()
        self._gone = set()
        self.agents = [id for id, slot in self._slot_of.items() if batch.masks[slot]]
        masks = self._rows.action_masks()
        observations, infos = {}, {}
        for id in self.agents:
            slot = self._slot_of[id]
            observations[id] = self._rows.observation(batch.observations[slot, ...])
            infos[id] = {} if masks is None else {MASK_KEY: masks[slot]}
        return observations, infos

    def step(self, actions: Mapping[Any, Any]) -> tuple[dict[Any, Any], ...]:
        """Step all agents at once; `actions` has one for each of `agents`."""
        if not self.agents:
            return {}, {}, {}, {}, {}
        present = self.vecenv.masks.copy()
        self.vecenv.send(self._action_rows(actions))
        batch = self._rows.recv()
        ended = batch.terminals | batch.truncations
        self._note_ids()
        is_over = self._is_over(batch, ended, present)
        if not is_over:
            self.agents += [
                id
                for id, slot in self._slot_of.items()
                if batch.masks[slot] and id not in self.agents and id not in self._gone
            ]
        result = self._said(batch, ended, is_over)
        left = {id for id in self.agents if ended[self._slot_of[id]] or is_over}
        self._gone |= left
        self.agents = [id for id in self.agents if id not in left]
        self._next = batch if is_over else None
        return result

    def _is_over(self, batch: Batch, ended: NDArray[np.bool_], present: NDArray[np.bool_]) -> bool:
        """Return whether all have begun anew in this step.

        Whoever was present has ended, and one who has ended is back. A newcomer alone is none:
        it takes over from those who leave.
        """
        if not ended.any() or not (ended | ~present).all():
            return False
        finished = self._gone | {id for id in self.agents if ended[self._slot_of[id]]}
        return any(batch.masks[self._slot_of[id]] for id in finished)

    def _action_rows(self, actions: Mapping[Any, Any]) -> NDArray[Any]:
        layout = self._rows.action_layout
        rows = np.zeros((self._rows.num_slots, *layout.shape), dtype=layout.dtype)
        for id in actions:
            self._slot(id)
        for id in self.agents:
            if id not in actions:
                raise UsageError(f"`actions` must have one for each agent, but lacks {id!r}.")
            flatten_action(layout, actions[id], rows[self._slot_of[id], ...])
        return rows

    def _said(
        self, batch: Batch, ended: NDArray[np.bool_], is_over: bool
    ) -> tuple[dict[Any, Any], ...]:
        """Return the five dicts of a step."""
        finals, masks = self.vecenv.final_observations, self._rows.action_masks()
        observations, rewards, terminated, truncated, infos = {}, {}, {}, {}, {}
        for id in self.agents:
            slot = self._slot_of[id]
            rows = finals if ended[slot] else batch.observations
            observations[id] = self._rows.observation(rows[slot, ...])
            rewards[id] = float(batch.rewards[slot])
            terminated[id] = bool(batch.terminals[slot])
            # who was only waiting when the episode of all ended is cut with them
            truncated[id] = bool(batch.truncations[slot] or (is_over and not ended[slot]))
            infos[id] = dict(batch.infos[slot])
            if "episode" in infos[id]:  # without its time, which differs between equal runs
                episode = infos[id]["episode"]
                infos[id]["episode"] = {key: episode[key] for key in episode if key != "t"}
            if masks is not None:
                infos[id][MASK_KEY] = masks[slot]
        return observations, rewards, terminated, truncated, infos

    def render(self) -> Any:
        """Return a picture [height, width, 3], or None where there is none."""
        return self.vecenv.render()

    def close(self) -> None:
        """Close the env behind."""
        self.vecenv.close()


@cache
def _pettingzoo_class() -> Any:
    base = _imported("pettingzoo", "pettingzoo", "PettingZoo").ParallelEnv
    return new_class("PettingZooEnv", (_ParallelMethods, base))


# ---- What they share -----------------------------------------------------------------------------


def _one_env(env: Any, params: dict[str, Any]) -> VectorEnv:
    """Return a vector env of one env: by name, as it is, or around whatever `emulate` takes."""
    if isinstance(env, str):
        return make(env, num_envs=1, **params)
    if not hasattr(env, "recv"):
        return emulate(env, num_envs=1, **params)
    if params:
        raise UsageError(f"`{next(iter(params))}` must be given where the env is made, not here.")
    if env.num_envs != 1:
        raise UsageError(
            f"`env` must be a VectorEnv of one env, but has {env.num_envs}. Try num_envs=1."
        )
    return env  # type: ignore[no-any-return]


def _checked_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, RENDER_MODE):
        raise UsageError(f"`render_mode` must be {RENDER_MODE!r} or None, but got {render_mode!r}.")
    return render_mode


def _imported(module: str, extra: str, title: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{title} is needed, but cannot be imported ({error}). "
            f"Try: pip install 'pufferlib[{extra}]'"
        ) from error
