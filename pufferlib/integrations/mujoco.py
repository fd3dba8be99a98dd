"""The family `mujoco-`: Gymnasium's MuJoCo robots by their bare names, such as `mujoco-hopper`."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from pufferlib.integrations.packages import extra
from pufferlib.integrations.registered import RegisteredFamily


def _name_of(spec: GymnasiumSpec) -> str | None:
    return spec.id if str(spec.entry_point).startswith("gymnasium.envs.mujoco") else None


_family = RegisteredFamily("mujoco", "mujoco", _name_of, extra("mujoco"), module="gymnasium")
find = _family.find
names = _family.names
