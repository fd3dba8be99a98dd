"""make_dashboard: which kind suits a run and the terminal it has."""

from __future__ import annotations

import os
from typing import Literal, get_args

from rich.console import Console

from pufferlib.dashboard.base import Dashboard
from pufferlib.dashboard.live import LiveDashboard
from pufferlib.dashboard.plain import PlainDashboard
from pufferlib.dashboard.record import Record
from pufferlib.errors import UsageError, did_you_mean


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # a Dashboard stops showing then; rich would end the process


Mode = Literal["auto", "on", "off", "plain"]


def make_dashboard(
    mode: Mode,
    *,
    env_name: str,
    num_parameters: int,
    device: str,
    engine: str,
    total_steps: float | None,
    console: Console | None = None,
) -> Dashboard:
    """The dashboard for a run: "on" a live panel, "plain" lines, "off" nothing.

    "auto" is a live panel on a terminal, and lines in a pipe, a notebook or CI.
    """
    if mode not in get_args(Mode):
        raise UsageError(
            f"`dashboard` must be one of auto, on, off, plain, but got {mode!r}."
            f"{did_you_mean(str(mode), get_args(Mode))}"
        )
    if console is None:
        console = _Console(force_terminal=True if mode == "on" else None)
    if mode == "auto":
        live = console.is_terminal and not console.is_dumb_terminal and not console.is_jupyter
        mode = "on" if live and not os.environ.get("CI") else "plain"
    kinds: dict[str, type[Dashboard]] = {
        "on": LiveDashboard,
        "plain": PlainDashboard,
        "off": Dashboard,
    }
    record = Record(
        env_name=env_name,
        num_parameters=num_parameters,
        device=device,
        engine=engine,
        total_steps=total_steps,
    )
    return kinds[mode](record, console)
