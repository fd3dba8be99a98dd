"""One env of a simulator that steps a whole batch, in the form that `check_env` plays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from pufferlib.buffers import Buffers
from pufferlib.emulation import Emulated
from pufferlib.env import PufferEnv
from pufferlib.spaces import action_layout, action_values
from pufferlib.vectorization.batched import SimulatorCreator


class BatchOfOne(PufferEnv):
    """A batch with a single env, as a PufferEnv that works in place."""

    def __init__(self, creator: SimulatorCreator, settings: Mapping[str, Any]) -> None:
        self._vecenv = vecenv = creator(**settings)
        self.single_observation_space = vecenv.observation_space
        self.single_action_space = vecenv.action_space
        self.num_agents = vecenv.num_agents
        self.has_action_masks = vecenv.action_masks is not None
        self._layout = action_layout(vecenv.action_space)
        super().__init__()

    def bind(self, buffers: Buffers) -> None:
        super().bind(buffers)
        self._vecenv.rebind(buffers)

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        self._vecenv.reset(seed)
        return self.observations

    def step(self, action: Any) -> tuple[Any, ...]:
        *_, infos = self._vecenv.step(action_values(self._layout, self.actions))
        return self.observations, self.rewards, self.terminals, self.truncations, list(infos)

    def render(self) -> Any:
        return self._vecenv.render()

    def close(self) -> None:
        self._vecenv.close()


def stepped_alone(env: PufferEnv) -> Emulated | None:
    """Return an env of Python; None for one that is stepped in a batch, in C or by a simulator."""
    return env if isinstance(env, Emulated) and not isinstance(env.env, BatchOfOne) else None
