"""`puffer train`: start a new run."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pufferlib import config as configs
from pufferlib import runs
from pufferlib.cli.arguments import Parser, check_output, env_id, is_native, make_vecenv
from pufferlib.cli.run_loop import (
    announce_run,
    count_learning_slots,
    first_readable,
    is_first,
    on_first,
    train_run,
)
from pufferlib.config import Config, complete_options
from pufferlib.errors import PufferError
from pufferlib.runs import LOG
from pufferlib.system import check_batch

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL


def main(words: list[str]) -> int:
    parser = Parser("train", with_config=True)
    parser.add_argument("name", help="environment (see `puffer envs`), or your own as `module:Env`")
    parser.add_argument("--svg", metavar="FILE", help="save the final dashboard as an SVG picture")
    parser.add_argument(
        "--from", dest="source", metavar="RUN", help="start from the weights of a run or checkpoint"
    )
    options, overrides = parser.parse(words)
    check_output(options, "svg")
    config = configs.load(env_id(options.name), overrides, options.config)
    weights: Path | None = None
    if options.source:
        base = runs.base_of(config)
        weights = on_first(lambda: runs.find_checkpoint(options.source, base, "--from")[1])
    is_slow = not is_native(config.name)  # workers take a second to start
    if is_slow:
        announce_run(config)
    sizes = {"num_envs": None} if config.has_default_envs else {}  # which `make` may reduce
    with make_vecenv(config, **sizes) as vecenv:  # reports wrong params before torch is loaded
        if vecenv.reduced:
            config = replace(config, vec=replace(config.vec, num_envs=vecenv.num_envs))
        completed = complete_options(
            config.chosen_train(),
            count_learning_slots(vecenv, config),
            config.policy.recurrent != "none",
        )
        if "batch_size" in config.chosen_train():  # else the trainer reduces it
            check_batch(vecenv, completed.config.batch_size)
        if completed.warning is not None:
            warnings.warn(completed.warning, UserWarning, stacklevel=1)
        complete = replace(config, train=completed.config)
        run, config, paths = on_first(lambda: _new_or_restarted(complete))
        run.is_first = is_first()
        if not is_slow:
            announce_run(config)  # after all errors that do not need torch

        def prepare(trainer: PuffeRL) -> None:
            if paths:
                run.note_resume(*first_readable(paths, trainer.load_checkpoint))
            elif weights is not None:
                trainer.load_checkpoint(weights, weights_only=True)
            if run.is_first and trainer.config != config.train:  # by the measured cost of a step
                run.write_config(replace(config, train=trainer.config))

        try:
            return train_run(config, vecenv, run, prepare, options.svg)
        except PufferError:
            log = run.folder / LOG
            if run.is_first and (not log.exists() or not log.stat().st_size):
                shutil.rmtree(run.folder, ignore_errors=True)  # the run never started
            raise


def _new_or_restarted(config: Config) -> tuple[runs.Run, Config, list[Path]]:
    """Create the folder of a run; return it, its config and its checkpoints.

    A run that torchrun restarts after the death of a process continues in its old folder, with the
    sizes that its first start has measured.
    """
    launch = runs.launch_id()
    run = None if launch is None else runs.of_launch(config, launch)
    run = run or runs.create(config, launch)
    paths = run.candidates()
    return run, run.read_config() if paths else config, paths
