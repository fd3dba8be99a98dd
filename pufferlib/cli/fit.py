"""Train as a config says, to the end of the budget or to a signal: what train and resume share."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from pufferlib.cli.printing import flush_output
from pufferlib.config import Config
from pufferlib.errors import CheckpointError, one_line
from pufferlib.runs import LOG, Run

if TYPE_CHECKING:
    from pufferlib.loggers import Logger
    from pufferlib.training.trainer import PuffeRL
    from pufferlib.vectorization import VectorEnv

T = TypeVar("T")
_STOPPING = "puffer: stopping after this iteration, then saving; Ctrl-C again stops at once"
_STOPS = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,  # the terminal is closed
}


def first_sound(paths: Sequence[Path], read: Callable[[Path], T]) -> tuple[Path, T]:
    """Return the first checkpoint that `read` takes, and what it gave; name those it skips."""
    *older, last = paths
    for path, following in zip(older, paths[1:], strict=True):
        try:
            return path, read(path)
        except CheckpointError as error:
            print(f"puffer: {error}; trying {following.name}", file=sys.stderr)
    return last, read(last)


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
    from pufferlib.training.trainer import PuffeRL

    _check_policy(config, vecenv)
    torch.manual_seed(config.train.seed)
    policy = make_policy(vecenv, **asdict(config.policy))
    with run:
        loggers = _loggers(config, run.folder) if run.is_first else {}
        with PuffeRL(vecenv, policy, logger=loggers.values(), **config.chosen_train()) as trainer:
            begin(trainer)
            stopped_by = loop(trainer, run)
            if svg:
                _export(trainer, svg)
            places = {name: getattr(logger, "url", None) for name, logger in loggers.items()}
            paths = {"checkpoint": str(run.latest), "log": str(run.folder / LOG)}
            paths |= {name: url for name, url in places.items() if url}
            trainer.finish(paths, _next_commands(config, run, trainer))
    with contextlib.suppress(OSError):  # the results of a run are in its folder
        flush_output()
    return 128 + stopped_by if stopped_by else 0


def announce(config: Config) -> None:
    """Say that a run begins, unless torch is loaded already: that takes seconds."""
    is_shown = config.train.dashboard != "off" and os.environ.get("RANK", "0") == "0"
    if is_shown and "torch" not in sys.modules:
        with contextlib.suppress(OSError):  # a run needs no reader
            print(f"puffer: loading torch and {config.name} ...", flush=True)


def _next_commands(config: Config, run: Run, trainer: PuffeRL) -> list[str]:
    """Return what one types after a run: a look at the policy, and more of the run."""
    folder = shlex.quote(str(run.folder))
    more = f" --train.total-timesteps {2 * trainer.steps}" if trainer.done else ""
    return [
        f"puffer eval {config.name} --checkpoint {folder}",
        f"puffer resume {folder}{more}",
    ]


def _check_policy(config: Config, vecenv: VectorEnv) -> None:
    """Raise where the default policy is too large for the memory; only large ones are asked."""
    import torch

    from pufferlib.models import make_policy
    from pufferlib.system import check_policy

    policy = config.policy
    width = policy.hidden_size or 128
    if width**2 * (policy.num_layers or 2) < 2**24:
        return

    def count_bytes(hidden_size: int) -> int:
        small = make_policy(vecenv, **asdict(replace(policy, hidden_size=hidden_size)))
        return sum(part.nbytes for part in small.parameters())

    on_cpu = config.train.device in ("auto", "cpu") and not torch.cuda.is_available()
    moments = 2 if config.train.optimizer == "adam" else 1
    check_policy(count_bytes, width, copies=2 + moments if on_cpu else 1)


def _export(trainer: PuffeRL, path: str) -> None:
    """Save the dashboard; the run is over and saved, so a disk that is full now is a warning."""
    try:
        trainer.dashboard.export_svg(path)
    except OSError as error:
        reason = error.strerror or error
        warnings.warn(f"cannot write {one_line(path)}: {reason}", RuntimeWarning, stacklevel=1)


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

    def answer() -> None:
        if trainer.world.is_first:
            trainer.dashboard.note(_STOPPING)

    with _stop_requests(answer) as asked:
        while not trainer.done and not trainer.world.most(asked()):
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
            if interval and trainer.iteration % interval == 0:
                try:
                    run.save(trainer, log, trainer.is_settled)
                    saved = trainer.iteration
                except CheckpointError as error:
                    warnings.warn(f"{error}. The run goes on.", RuntimeWarning, stacklevel=1)
        if trainer.world.most(saved != trainer.iteration):  # all have a part in it, or none
            run.save(trainer, log, trainer.is_settled)
        return trainer.world.most(asked())


@contextmanager
def _stop_requests(answer: Callable[[], None]) -> Iterator[Callable[[], int]]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP into a request: its number, from what is yielded.

    `answer` is called when it arrives. The second stops at once. A run must end between two
    iterations to be resumed bit for bit. Signals that are ignored, as Ctrl-C is in background jobs,
    or not ours to handle, stay so.
    """
    wishes: list[int] = []

    def ask(signum: int, frame: FrameType | None) -> None:
        wishes.append(signum)
        if len(wishes) > 1:
            raise KeyboardInterrupt if signum == signal.SIGINT else SystemExit(128 + signum)
        answer()

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
