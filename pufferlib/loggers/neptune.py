"""Neptune."""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

from pufferlib.loggers.background import BackgroundLogger, load


class NeptuneLogger(BackgroundLogger):
    """Logs with the Neptune client, offline: `pip install 'pufferlib[neptune]'`.

    Neptune's hosted service closed in March 2026, which one warning says. The client still writes
    the run to `.neptune/offline`, a JSON object per line of `data-1.log`, and `neptune sync` sends
    it to a server of your own; NEPTUNE_MODE=async talks to that one at once, with `api_token` or
    NEPTUNE_API_TOKEN. NaN and infinities, which Neptune does not take, are left out. `run` is
    Neptune's own object, and None before the first row was written.
    """

    def __init__(self, project: str, name: str | None = None, api_token: str | None = None) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of packages that it imports
            self._neptune = load("neptune", "NeptuneLogger")
        self._about = {"project": project, "name": name, "api_token": api_token}
        self._mode = os.environ.get("NEPTUNE_MODE", "offline")
        self.run: Any = None
        if self._mode == "offline":
            warnings.warn(
                "Neptune's hosted service closed in March 2026: the run is only kept in .neptune. "
                "Try WandbLogger or TensorboardLogger to see it while it trains.",
                UserWarning,
                stacklevel=2,
            )

    def _open(self) -> None:
        logging.getLogger("neptune").setLevel(logging.ERROR)  # else it writes to the dashboard
        self.run = self._neptune.init_run(
            **self._about,
            mode=self._mode,
            source_files=[],
            git_ref=False,
            capture_stdout=False,  # these replace what is not the logger's: streams and hooks
            capture_stderr=False,
            capture_traceback=False,
            capture_hardware_metrics=False,  # the trainer's own are among the rows
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
