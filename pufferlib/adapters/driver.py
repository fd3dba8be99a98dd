"""VectorDriver: how all adapters step a vector env, in whole batches that are copied out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pufferlib.errors import UsageError
from pufferlib.spaces import (
    Array,
    Leaf,
    Space,
    action_layout,
    action_values,
    flatten_action,
    observation_layout,
    rebuilt,
)
from pufferlib.vectorization import Batch, VectorEnv, check_vector_env, emulate, make

Seeds: TypeAlias = int | Sequence[int | None] | None

RENDER_MODE = "rgb_array"
PRESENCE_KEY = "agent_mask"  # of infos: the agent of the slot is present
FRAMES_PER_SECOND = 30  # at which pictures are played back


class VectorDriver:
    """Steps a vector env for an adapter: takes values of the spaces, returns copies.

    A reset without a seed is determined by the last reset with one.
    """

    def __init__(self, vecenv: Any) -> None:
        check_vector_env(vecenv, "vecenv")
        if getattr(vecenv, "mode", "sync") != "sync" or vecenv.batch_slots != vecenv.num_agents:
            raise UsageError(
                "`vecenv` must return all of its slots in every step, but is "
                f"{'asynchronous' if vecenv.batches == 1 else 'double-buffered'}. "
                "Try mode='sync' and double_buffer=False."
            )
        self.vecenv: VectorEnv = vecenv
        self.num_slots = vecenv.num_agents
        self.observation_space: Space = vecenv.observation_space
        self.action_space: Space = vecenv.action_space
        self._observation_layout = observation_layout(self.observation_space)
        self.action_layout = action_layout(self.action_space)
        self._random: np.random.Generator | None = None

    def reset(self, seed: Seeds) -> Batch:
        """Start new episodes everywhere and return their first batch.

        A list of seeds has one for each env; where it has None, the env gets one as without a seed.
        """
        if isinstance(seed, Sequence | np.ndarray):
            random = self._random or np.random.default_rng()
            seeds = [int(random.integers(2**31)) if each is None else each for each in seed]
            self.vecenv.seed_each(seeds)
            self.vecenv.reset()
            self._random = np.random.default_rng([int(each) for each in seeds])
        elif seed is None and self._random is not None:
            self.vecenv.reset(seed=int(self._random.integers(2**31)))
        else:
            self.vecenv.reset(seed=seed)
            self._random = None if seed is None else np.random.default_rng(seed)
        return self.recv()

    def send(self, actions: Any) -> None:
        """Send a batch of actions, a value of the batched action space."""
        layout = self.action_layout
        if layout.is_plain and not layout.structured:
            self.vecenv.send(actions)
            return
        rows = np.zeros((self.num_slots, *layout.shape), dtype=layout.dtype)
        flatten_action(layout, actions, rows)
        self.send_rows(rows)

    def send_rows(self, rows: Array) -> None:
        """Send rows that `flatten_action` has filled."""
        self.vecenv.send(action_values(self.action_layout, rows))

    def recv(self) -> Batch:
        """Return the next batch: all slots in order, and an info for each."""
        batch = self.vecenv.recv()
        infos = list(batch.infos or ())
        infos += [{}] * (self.num_slots - len(infos))
        return batch._replace(infos=infos)

    def observation(self, rows: Array) -> Any:
        """Return observations in the form and the dtypes of their space: of one row, or batched."""
        layout = self._observation_layout

        def copied(leaf: Leaf) -> Any:
            part = np.array(layout.view(rows, leaf), dtype=leaf.space.dtype)
            return part[()] if leaf.kind == "discrete" else part  # of one row: a scalar

        return rebuilt(layout.space, map(copied, layout.leaves))

    def action_masks(self) -> NDArray[np.int8] | None:
        """Return one flag for each choice, in the dtype that Gymnasium's `sample` takes."""
        masks = self.vecenv.action_masks
        return None if masks is None or not self.action_layout.nvec else masks.astype(np.int8)


def one_env(env: Any, params: dict[str, Any]) -> VectorEnv:
    """Return a vector env of one env, from a name, such a vector env, or what `emulate` takes."""
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
