"""The family `bsuite-`: experiments of the Behaviour Suite, such as `bsuite-deep-sea`."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import pkgutil
from pathlib import Path
from typing import Any

from pufferlib.integrations.chosen import ChosenFamily
from pufferlib.integrations.packages import extra, imported


def make(experiment: str, setting: int = 0) -> Any:
    """Return one of the settings of an experiment: sizes, noises or seeds, from easy to hard."""
    id, install = f"bsuite-{experiment}", extra("bsuite")
    bsuite = imported(id, "bsuite", install)
    shimmy = imported(id, "shimmy.bsuite_compatibility", install)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints which one it loads
        env = bsuite.load_from_id(f"{experiment}/{setting}")
    return shimmy.BSuiteCompatibilityV0(env)


def _experiments() -> list[str]:
    """Return the names of experiments, found without importing the package."""
    spec = importlib.util.find_spec("bsuite")
    places = (spec.submodule_search_locations or ()) if spec else ()
    folders = [str(Path(place, "experiments")) for place in places]
    found = [module.name for module in pkgutil.iter_modules(folders) if module.ispkg]
    return [name for name in found if name != "summary_analysis"]


_family = ChosenFamily("bsuite", "bsuite", extra("bsuite"), _experiments, make)
find = _family.find
names = _family.names
