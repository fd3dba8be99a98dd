"""The training loop of `puffer train` and `puffer resume`, which ends at the budget or a signal."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pufferlib.cli.printing import announce_loading, flush_output
from pufferlib.cli.stopping import stop_requests
from pufferlib.config import LOGGERS, Config, load_choice
from pufferlib.errors import CheckpointError, one_line
from pufferlib.runs import LOG, Run

if TYPE_CHECKING:
    from pufferlib.loggers import RunLogger
    from pufferlib.training.trainer import PuffeRL
    from pufferlib.vectorization import VectorEnv

T = TypeVar("T")
_STOPPING = "puffer: stopping after this iteration{}, then saving; Ctrl-C again stops at once"


def first_readable(paths: Sequence[Path], read: Callable[[Path], T]) -> tuple[Path, T]:
    """Return the first checkpoint that `read` accepts, and its result; report those it skips."""
    *older, last = paths
    for path, following in zip(older, paths[1:], strict=True):
        try:
            return path, read(path)
        except CheckpointError as error:
            print(f"puffer: {error}; trying {following.name}", file=sys.stderr)
    return last, read(last)


def is_first() -> bool:
    """Whether this is rank 0, or the only process: the one that has the folder of the run."""
    return os.environ.get("RANK", "0") == "0"


def on_first(call: Callable[[], T]) -> T:
    """Return what `call` returns on rank 0; all processes of a torchrun must call this."""
    if int(os.environ.get("WORLD_SIZE") or 1) == 1:
        return call()
    from pufferlib.distributed import world

    return world.on_first(call)


def count_learning_slots(vecenv: VectorEnv, config: Config) -> int:
    """Return the number of slots that learn, over all processes of a torchrun."""
    own = vecenv.num_agents
    if config.train.self_play:
        from pufferlib.selfplay import check_sides

        check_sides(vecenv)
        own //= 2
    return own * int(os.environ.get("WORLD_SIZE", "1"))


def train_run(
    config: Config, vecenv: VectorEnv, run: Run, prepare: Callable[[PuffeRL], None], svg: str | None
) -> int:
    """Train as `config` says and return the exit code; `prepare` gets the trainer first."""
    import torch

    from pufferlib.models import make_policy
    from pufferlib.training.trainer import PuffeRL

    _check_policy(config, vecenv)
    torch.manual_seed(config.train.seed)
    policy = make_policy(vecenv, **asdict(config.policy))
    with run:
        loggers = {}
        if run.is_first:
            _start_log(run)
            loggers = _make_loggers(config, run.folder)
        with PuffeRL(vecenv, policy, logger=loggers.values(), **config.chosen_train()) as trainer:
            prepare(trainer)
            if run.is_first:
                trainer.dashboard  # noqa: B018 - shown from the start, though empty
            stopped_by = run_loop(trainer, run)
            if svg and run.is_first:
                _export(trainer, svg)
            paths = {"checkpoint": str(run.latest), "log": str(run.folder / LOG)}
            paths |= {name: logger.url for name, logger in loggers.items() if logger.url}
            trainer.finish(paths, _next_commands(config, run, trainer))
    with contextlib.suppress(OSError):  # the results are in the folder of the run
        if config.train.dashboard == "off" and run.is_first:
            print(f"{run.folder}: {trainer.dashboard.outcome()}")
        flush_output()
    return 128 + stopped_by if stopped_by else 0


def announce_run(config: Config) -> None:
    """Print that torch is being loaded, unless the run shows nothing."""
    if config.train.dashboard != "off" and is_first():
        announce_loading(config.name)


def _next_commands(config: Config, run: Run, trainer: PuffeRL) -> list[str]:
    """Return the commands to suggest after a run: play the policy, continue the run."""
    folder = shlex.quote(str(run.folder))
    more = f" --train.total-timesteps {2 * trainer.steps}" if trainer.done else ""
    return [f"puffer eval {config.name} --checkpoint {folder}", f"puffer resume {folder}{more}"]


def _check_policy(config: Config, vecenv: VectorEnv) -> None:
    """Raise UsageError if the default policy does not fit into memory; small ones always do."""
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
    """Save the dashboard. The run is already saved, so a full disk is only a warning."""
    try:
        trainer.dashboard.export_svg(path)
    except OSError as error:
        reason = error.strerror or error
        warnings.warn(f"cannot write {one_line(path)}: {reason}", RuntimeWarning, stacklevel=1)


def _start_log(run: Run) -> None:
    """Say that a run that has a log but no checkpoint starts over, and keep its log."""
    kept = run.begin_log()
    if kept is not None:
        print(
            f"puffer: {one_line(run.folder)} has no checkpoint, so training starts over; "
            f"the log so far is {kept.name}",
            file=sys.stderr,
        )


def _make_loggers(config: Config, folder: Path) -> dict[str, RunLogger]:
    """Make the loggers of a run by name; a log of JSON lines is always one of them."""
    from pufferlib.loggers import JsonlLogger

    loggers: dict[str, RunLogger] = {"jsonl": JsonlLogger(folder / LOG)}
    for name in config.log.loggers:
        loggers[name] = load_choice(LOGGERS[name].location).for_run(config, folder)
    return loggers


def run_loop(trainer: PuffeRL, run: Run) -> int:
    """Train to the end of the budget and save; return the first signal received, or 0."""
    interval = trainer.config.checkpoint_interval
    log: Mapping[str, float] = {}
    saved: int | None = None  # iteration of the last checkpoint

    def announce_stop() -> None:
        if trainer.world.is_first:
            left = trainer.seconds_left
            more = f", in about {left:.0f} s" if left >= 2 else ""
            trainer.dashboard.note(_STOPPING.format(more))

    from pufferlib.training.trainer import RolloutDropped

    with stop_requests(announce_stop) as received:

        def requested() -> int:  # a signal that any process received; all of them must call it
            own = received[0] if received else 0
            return own if trainer.world.size == 1 else trainer.world.most(own)

        trainer.is_stopping = lambda: bool(received)
        while not trainer.done and not requested():
            try:
                trainer.evaluate()
            except RolloutDropped as dropped:
                trainer.dashboard.note(f"puffer: saving without the last {dropped}")
                break
            trainer.train()
            log = trainer.mean_and_log()
            if interval and trainer.iteration % interval == 0:
                try:
                    run.save(trainer, log, trainer.is_settled)
                    saved = trainer.iteration
                except CheckpointError as error:
                    warnings.warn(f"{error}. The run continues.", RuntimeWarning, stacklevel=1)
        if trainer.world.most(saved != trainer.iteration):  # all processes take part, or none
            run.save(trainer, log, trainer.is_settled)
        return requested()
