"""Weights & Biases."""

from __future__ import annotations

import os
import re
import secrets
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from pufferlib.config import Config
from pufferlib.files import read_regular, write_atomically
from pufferlib.loggers.background import BackgroundLogger, load

_INIT_SECONDS = 15.0  # W&B's exit hook may delay a shorter script by this long


class WandbLogger(BackgroundLogger):
    """Logs to Weights & Biases: `pip install 'pufferlib[wandb]'`, then `wandb login` once.

    Without a login or a network, one warning says so, the run is kept in the folder `wandb`, and
    `wandb sync` uploads it. `config` is shown beside the run. A second logger with the same `id`
    continues the same run; see `kept_id`. Variables of W&B such as WANDB_MODE, WANDB_DIR and
    WANDB_RUN_ID apply. `run` is W&B's own object, None until the first entry is written. It becomes
    W&B's current run unless one is open, so your own `wandb.log` adds to it; if your code has
    imported wandb, the first `log` waits until the run is open.
    """

    def __init__(
        self,
        project: str,
        entity: str | None = None,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> None:
        super().__init__()
        # only code that has imported wandb can call `wandb.log`; then the first `log` waits
        self._is_shared = "wandb" in sys.modules
        self._wandb = load("wandb", "WandbLogger")
        self._opened = threading.Event()
        self._about = {"project": project, "entity": entity, "name": name}
        if id is not None and "WANDB_RUN_ID" not in os.environ:
            self._about |= {"id": id, "resume": "allow"}  # continue a run that the server knows
        self._config = dict(config or {})
        self.run: Any = None

    @classmethod
    def for_run(cls, config: Config, folder: Path) -> Self:
        name = config.log.name or folder.name
        own_id = kept_id(folder / "wandb.id")
        return cls(config.log.project, config.log.entity, name, config.to_dict(), own_id)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        super().log(metrics, step)
        if self._is_shared and not self._opened.is_set():
            self._opened.wait(self.patience)

    def _open(self) -> None:
        try:
            self._connect()
        finally:
            self._opened.set()

    def _connect(self) -> None:
        # Keep the terminal for the dashboard: `setup` silences the login, `_init` the run.
        self._wandb.setup(settings=self._wandb.Settings(silent=True))
        mode = os.environ.get("WANDB_MODE")
        if mode is None and not self._wandb.login(prompt=False, verify=False):
            mode, reason = "offline", "is not logged in"
        try:
            self.run = self._init(mode)
        except self._wandb.Error as error:
            if mode == "offline":
                raise
            cause = str(error).partition("\n")[0]
            mode, reason = "offline", f"cannot reach the server ({cause})"
            self.run = self._init(mode)
        self.url = self.run.url or self.run.settings.sync_dir
        if mode == "offline" and "WANDB_MODE" not in os.environ:
            self._note(f"{reason}: the run is kept on disk. {self._rescue()}")

    def _init(self, mode: str | None) -> Any:
        timeout = float(os.environ.get("WANDB_INIT_TIMEOUT", _INIT_SECONDS))
        settings = self._wandb.Settings(
            silent=True,
            console="off",  # or it wraps stdout, where the dashboard draws
            init_timeout=timeout,
            finish_timeout=self.patience,  # or the exit of the script waits for the network
        )
        return self._wandb.init(
            **self._about,
            config=self._config,
            mode=mode,
            # a run that the user's code has opened stays open, and current
            reinit="default" if self._wandb.run is None else "create_new",
            settings=settings,
        )

    def _write(self, metrics: Mapping[str, float], step: int) -> None:
        self.run.log(dict(metrics), step=step)

    def _finish(self) -> None:
        self.run.finish()

    def _rescue(self) -> str:
        folder = self.run.settings.sync_dir if self.run is not None else "wandb/*run-*"
        return f"`wandb sync {folder}` uploads it"


def kept_id(path: str | os.PathLike[str]) -> str:
    """Return the id in the file at `path`; if there is none, make one and write it there.

    With it, a resumed run continues the same run at W&B.
    """
    with suppress(OSError, ValueError):
        found = read_regular(Path(path), 64).decode()
        if re.fullmatch("[0-9a-f]{16}", found):
            return found
    made = secrets.token_hex(8)
    with suppress(OSError):  # a folder that cannot be written: the id is not kept
        write_atomically(Path(path), made.encode())
    return made
