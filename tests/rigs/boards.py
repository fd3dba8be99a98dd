"""A dashboard on a console in memory, a log for it, and what it prints."""

from io import StringIO

from rich.console import Console

from pufferlib.dashboard import Dashboard, Record, make_dashboard
from pufferlib.dashboard.drawing import text_of

LOG = {
    "iteration": 300,
    "steps": 12_400_000,
    "total_steps": 20_000_000,
    "sps": 251_300,
    "uptime": 49.5,
    "eta": 192.0,
    "mean_reward": 123.4,
    "min_reward": 11.0,
    "max_reward": 703.9,
    "episode_length": 812.4,
    "episodes": 193,
    "env/score": 56.0,
    "env/perf": 0.61,
    "env/bricks_left": 12.4,
    "policy_loss": -0.0123,
    "value_loss": 0.2314,
    "entropy": 1.021,
    "approx_kl": 0.012,
    "clipfrac": 0.113,
    "explained_variance": 0.87,
    "grad_norm": 0.49,
    "learning_rate": 3e-4,
    "time/env": 0.2,
    "time/forward": 0.3,
    "time/store": 0.05,
    "time/advantage": 0.0,
    "time/update": 0.4,
    "time/other": 0.05,
    "system/cpu": 87.0,
    "system/memory": 812.0,
}


def make(
    mode: str = "off", *, width: int = 100, height: int = 40, terminal: bool = True
) -> Dashboard:
    console = Console(
        file=StringIO(),
        width=width,
        height=height,
        force_terminal=terminal,
        color_system=None,
        legacy_windows=False,
    )
    record = Record("breakout", 128_300, device="cpu", engine="native", total_steps=20_000_000)
    return make_dashboard(mode, record, console)  # type: ignore[arg-type]


def frame(dashboard: Dashboard, width: int = 100, height: int = 40) -> list[str]:
    return [text_of(line) for line in dashboard.frame(width, height)]


def summary(dashboard: Dashboard, **paths: str) -> str:
    return "\n".join(text_of(line) for line in dashboard.summary(80, paths))


def printed(dashboard: Dashboard) -> str:
    file = dashboard._console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def learn(dashboard: Dashboard, num_iterations: int = 50) -> None:
    """A run whose score rises from 10 to 500 in 50 equal steps of 100,000."""
    for n in range(1, num_iterations + 1):
        log = {"steps": n * 100_000, "uptime": n * 0.5, "sps": 200_000, "env/score": 10.0 * n}
        dashboard.update({**LOG, **log})


class Clock:
    """Stands in for time.perf_counter."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
