"""OCEAN_REGISTRY: the native environments by id, as `make` finds them.

A dict of id -> {"entry_point", "kwargs"}. Entries that a user adds or changes are honoured.
"""

from __future__ import annotations

from typing import Any

from pufferlib.native import NativeCreator, infos

OCEAN_REGISTRY: dict[str, dict[str, Any]] = {
    name: {"entry_point": NativeCreator(name), "kwargs": {}} for name in infos()
}
