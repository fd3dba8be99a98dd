"""Ocean: the suite of native C environments.

Importing this package registers them with Gymnasium: `gymnasium.make("ocean/Cartpole-v0")`.
"""

from __future__ import annotations

import gymnasium

from pufferlib.ocean.environment import OCEAN_REGISTRY

__all__ = ["OCEAN_REGISTRY", "gymnasium_id", "register_gymnasium"]


def gymnasium_id(name: str) -> str:
    """Return the Gymnasium id of an Ocean env: `ocean/Cartpole-v0` for "cartpole"."""
    words = name.replace("-", "_").split("_")
    return f"ocean/{''.join(word[:1].upper() + word[1:] for word in words)}-v0"


def register_gymnasium() -> list[str]:
    """Register all of OCEAN_REGISTRY with Gymnasium, for `make` and `make_vec`; return the ids.

    Importing this package calls it; call it again after adding to OCEAN_REGISTRY.
    """
    ids = {gymnasium_id(name): name for name in OCEAN_REGISTRY}
    for id, name in ids.items():
        if id not in gymnasium.registry:
            gymnasium.register(
                id,
                entry_point="pufferlib.adapters:GymnasiumEnv",
                vector_entry_point="pufferlib.adapters:make_gymnasium_vec",
                kwargs={"env": name},
            )
    return list(ids)


register_gymnasium()
