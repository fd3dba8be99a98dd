"""BufferedVectorEnv: a vector env whose rows are one set of `Buffers`; the base of all backends."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.errors import UsageError
from pufferlib.spaces import Space, action_layout
from pufferlib.vectorization.actions import Slots, action_rows
from pufferlib.vectorization.base import Batch, VectorEnv
from pufferlib.vectorization.creators import Recipe


class BufferedVectorEnv(VectorEnv):
    """A vector env whose rows live in one set of `Buffers`; the base of the backends."""

    _buffers: Buffers

    @classmethod
    def from_recipe(cls, recipe: Recipe, options: Mapping[str, Any]) -> Self:
        """Make the vector env of a recipe; `options` are keywords of the constructor."""
        return cls(recipe.creator(), recipe.num_envs, recipe.num_workers, **options)  # type: ignore[call-arg]

    @classmethod
    def option_names(cls) -> list[str]:
        """Return the keywords of the constructor that no recipe holds."""
        own = ("env_creator", "num_envs", "num_workers", "envs_per_worker", "first_env", "settings")
        return [name for name in inspect.signature(cls).parameters if name not in own]

    def _attach(self, buffers: Buffers, observation_space: Space, action_space: Space) -> None:
        self._buffers = buffers
        self.observation_space, self.action_space = observation_space, action_space
        self._action_layout = action_layout(action_space)
        self.observations, self.rewards = buffers.observations, buffers.rewards
        self.terminals, self.truncations = buffers.terminals, buffers.truncations
        self.masks, self.action_masks = buffers.masks, buffers.action_masks
        self.final_observations = buffers.final_observations
        self._action_rows = buffers.actions[: self.batch_slots]  # for the slots of one batch

    def rebind(self, buffers: Buffers) -> bool:
        """Use rows of a larger vector from the next reset on; return False where that cannot be."""
        return False

    def _begin(self, call: str) -> None:
        super()._begin(call)
        if call == "step":
            self._received = True  # nothing is left to receive from before this step

    def _note_reset(self, observations: Any) -> None:
        self._next_seed = None
        self._ready, self._sent, self._received = True, False, False

    def _note_restore(self) -> None:
        self._ready, self._sent, self._received = True, False, False

    def _as_batch(self, observations: Any, rewards: Any, dones: Any, infos: Any) -> Batch:
        return self._batch_of(infos)

    def _as_step_takes(self, actions: Any) -> Any:
        return actions

    def _state_rows(self, state: Any, env: int | None) -> NDArray[np.uint8]:
        """Return `state` as rows for all envs, or as the one row for `env`."""
        rows = np.atleast_2d(np.asarray(state))
        total = self.num_envs + self.surplus_envs
        wanted = total if env is None else 1
        if rows.dtype != np.uint8 or len(rows) != wanted:
            raise UsageError(
                f"`state` must be {wanted} rows of bytes from `snapshot`, "
                f"but got {rows.dtype} of shape {rows.shape}."
            )
        if env is not None and not self._ready:
            raise UsageError("`reset` must be called before `restore` of one env.")
        if env is not None and not 0 <= env < total:
            raise UsageError(f"`env` must be in 0..{total - 1}, but got {env}.")
        return rows

    def _rows(self, actions: Any, slots: slice | None = None) -> NDArray[Any]:
        """Return `actions`, in any form of `action_rows`, as rows for `slots`.

        By default for those handed over last. The result may be the very array given.
        """
        wanted = self._action_rows if slots is None else self._buffers.actions[slots]
        if (
            type(actions) is np.ndarray
            and actions.dtype == wanted.dtype
            and actions.shape == wanted.shape
            and actions.flags.carray
            and self._action_layout.is_plain
        ):
            return actions
        masks = self.masks[self.slots if slots is None else slots]
        whose = Slots(masks, self.agents_per_env, self.agent_ids)
        return action_rows(self._action_layout, actions, whose)


def other_process(call: str, vecenv: VectorEnv) -> UsageError:
    """Return the error for a `call` in a fork of the process that made `vecenv`."""
    name = type(vecenv).__name__
    return UsageError(
        f"`{call}` must be called in the process that made this {name}, but this is a fork of it, "
        f"which has no workers. Try a new {name} here."
    )
