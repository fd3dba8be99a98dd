"""The family `dmc-`: the DeepMind Control Suite as `dmc-<domain>-<task>`, through shimmy."""

from __future__ import annotations

from pufferlib.integrations.packages import extra
from pufferlib.integrations.registered import RegisteredFamily, named_after

_family = RegisteredFamily(
    "dmc", "dm_control", named_after("dm_control/"), extra("dmc"), module="shimmy"
)
find = _family.find
names = _family.names
