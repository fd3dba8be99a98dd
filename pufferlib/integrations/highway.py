"""The family `highway-`: driving tasks of highway-env, such as `highway-merge`."""

from __future__ import annotations

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from pufferlib.integrations.packages import extra
from pufferlib.integrations.registered import PICTURES, RegisteredFamily


def _name_of(spec: GymnasiumSpec) -> str | None:
    is_ours = str(spec.entry_point).startswith("highway_env")
    # several cars would share one tuple of observations, actions and rewards
    return spec.id if is_ours and "multi-agent" not in spec.id else None


_family = RegisteredFamily("highway", "highway_env", _name_of, extra("highway"), defaults=PICTURES)
find = _family.find
names = _family.names
