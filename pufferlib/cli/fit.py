"""Train as a config says, to the end of the budget or to a signal: what train and resume share."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pufferlib.config import Config
from pufferlib.errors import CheckpointError
from pufferlib.runs import LOG, Run

if TYPE_CHECKING:
    from pufferlib.loggers import Logger
    from pufferlib.trainer import PuffeRL
    from pufferlib.vectorization import VectorEnv

_STOPS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


def num_slots(vecenv: VectorEnv, config: Config) -> int:
    """Return the slots that learn, over all processes; torchrun says how many those are."""
    own = vecenv.num_agents
    if config.train.self_play:
        from pufferlib.selfplay import check_sides

        check_sides(vecenv)
        own //= 2
    return own * int(os.environ.get("WORLD_SIZE", "1"))


def fit(
    config: Config,
    vecenv: VectorEnv,
    run: Run,
    begin: Callable[[PuffeRL], None],
    svg: str | None,
) -> int:
    """Train as `config` says, after `begin` has had the trainer; return the exit code."""
    import torch

    from pufferlib.models import make_policy
    from pufferlib.trainer import PuffeRL

    settings = config.to_dict()
    torch.manual_seed(config.train.seed)
    policy = make_policy(vecenv, **settings["policy"])
    with run:
        loggers = _loggers(config, run.folder) if run.is_first else {}
        with PuffeRL(vecenv, policy, logger=loggers.values(), **settings["train"]) as trainer:
            begin(trainer)
            stopped_by = loop(trainer, run)
            if svg:
                trainer.dashboard.export_svg(svg)
            places = {name: getattr(logger, "url", None) for name, logger in loggers.items()}
            paths = {"checkpoint": str(run.latest), "log": str(run.folder / LOG)}
            trainer.finish(paths | {name: url for name, url in places.items() if url})
    return 128 + stopped_by if stopped_by else 0


def _loggers(config: Config, folder: Path) -> dict[str, Logger]:
    """Make the loggers of a run by name; a log of JSON lines is always among them."""
    from pufferlib import loggers

    project, name = config.log.project, config.log.name or folder.name
    makers: dict[str, Callable[[], Logger]] = {
        "jsonl": lambda: loggers.JsonlLogger(folder / LOG),
        "tensorboard": lambda: loggers.TensorboardLogger(folder / "tensorboard"),
        "wandb": lambda: loggers.WandbLogger(
            project, config.log.entity, name, config.to_dict(), loggers.kept_id(folder / "wandb.id")
        ),
        "neptune": lambda: loggers.NeptuneLogger(project, name),
    }
    return {each: makers[each]() for each in ("jsonl", *config.log.loggers)}


def loop(trainer: PuffeRL, run: Run) -> int:
    """Train to the end of the budget and save; return the signal that came first, or 0."""
    interval = trainer.config.checkpoint_interval
    log: Mapping[str, float] = {}
    saved: int | None = None  # at which iteration
    with _stop_requests() as asked:
        while not trainer.done and not trainer.world.most(asked()):
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
            if interval and trainer.iteration % interval == 0:
                try:
                    run.save(trainer, log)
                    saved = trainer.iteration
                except CheckpointError as error:
                    warnings.warn(f"{error}. The run goes on.", RuntimeWarning, stacklevel=1)
        if trainer.world.most(saved != trainer.iteration):  # all have a part in it, or none
            run.save(trainer, log)
        return trainer.world.most(asked())


@contextmanager
def _stop_requests() -> Iterator[Callable[[], int]]:
    """Turn the first Ctrl-C or SIGTERM into a wish, which the yielded function tells as its number.

    The second stops at once. A run must end between two iterations to be resumed bit for bit.
    Signals that are ignored, as Ctrl-C is in background jobs, or not ours to handle, stay so.
    """
    wishes: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        wishes.append(signum)
        if len(wishes) > 1:
            raise KeyboardInterrupt if signum == signal.SIGINT else SystemExit(128 + signum)

    ours = {
        signum: default
        for signum, default in _STOPS.items()
        if signal.getsignal(signum) is default
        and threading.current_thread() is threading.main_thread()
    }
    for signum in ours:
        signal.signal(signum, ask)
    try:
        yield lambda: wishes[0] if wishes else 0
    finally:
        for signum, default in ours.items():
            signal.signal(signum, default)
