"""Neptune."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pufferlib.config import Config
from pufferlib.loggers.background import BackgroundLogger, load


class NeptuneLogger(BackgroundLogger):
    """Logs with the Neptune client, offline: `pip install 'pufferlib[neptune]'`.

    Neptune's hosted service closed in March 2026; one warning says so. The client still writes the
    run to `.neptune/offline`, a JSON object per line of `data-1.log`. `neptune sync` sends it to a
    server of your own; NEPTUNE_MODE=async sends it at once, with `api_token` or NEPTUNE_API_TOKEN.
    NaN and infinities, which Neptune rejects, are dropped. `run` is Neptune's own object, None
    until the first entry is written.
    """

    def __init__(self, project: str, name: str | None = None, api_token: str | None = None) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from packages that it imports
            self._neptune = load("neptune", "NeptuneLogger")
        self._about = {"project": project, "name": name, "api_token": api_token}
        self._mode = os.environ.get("NEPTUNE_MODE", "offline")
        self.run: Any = None
        if self._mode == "offline":
            warnings.warn(
                "Neptune's hosted service closed in March 2026: the run is kept in .neptune only. "
                "Try WandbLogger or TensorboardLogger to see it while it trains.",
                UserWarning,
                stacklevel=2,
            )

    @classmethod
    def for_run(cls, config: Config, folder: Path) -> Self:
        return cls(config.log.project, config.log.name or folder.name)

    def _open(self) -> None:
        logging.getLogger("neptune").setLevel(logging.ERROR)  # else it writes to the dashboard
        self.run = self._neptune.init_run(
            **self._about,
            mode=self._mode,
            source_files=[],
            git_ref=False,
            capture_stdout=False,  # these would replace streams and hooks of the program
            capture_stderr=False,
            capture_traceback=False,
            capture_hardware_metrics=False,  # the trainer logs its own
        )
        self.url = ".neptune/offline" if self._mode == "offline" else self.run.get_url()

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        for name, number in metrics.items():
            if math.isfinite(number):
                self.run[name].append(number, step=step)

    def _finish(self) -> None:
        self.run.stop(seconds=self.patience)

    def _rescue(self) -> str:
        return "`neptune sync` sends what is in .neptune to a server of your own"
