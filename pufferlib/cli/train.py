"""`puffer train`: a new run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pufferlib import runs
from pufferlib.cli.arguments import Parser, is_given, load_config, make_vecenv
from pufferlib.cli.fit import fit, num_slots
from pufferlib.config import Config, check_train
from pufferlib.errors import PufferError, UsageError
from pufferlib.runs import LOG

if TYPE_CHECKING:
    from pufferlib.trainer import PuffeRL


def main(words: list[str]) -> int:
    parser = Parser("train", with_config=True)
    parser.add_argument("name", help="environment, see `puffer envs`")
    parser.add_argument("--svg", metavar="FILE", help="save the last dashboard as a picture")
    parser.add_argument(
        "--from", dest="source", metavar="RUN", help="begin with the weights of a run or checkpoint"
    )
    options, overrides = parser.parse(words)
    config = load_config(options.name, overrides, options.config)
    weights = _checkpoint_of(options.source, config) if options.source else None
    with make_vecenv(config) as vecenv:  # wrong params are told before torch is loaded
        slots = num_slots(vecenv, config)
        if not is_given(overrides, "train", "batch_size"):
            config = _fitted(config, slots)
        check_train(config.train, slots)
        run, path = _new_or_restarted(config)

        def begin(trainer: PuffeRL) -> None:
            if path is not None:
                run.note_resume(path, trainer.load_checkpoint(path))
            elif weights is not None:
                trainer.load_checkpoint(weights, weights_only=True)

        try:
            return fit(config, vecenv, run, begin, options.svg)
        except PufferError:
            if not (run.folder / LOG).exists() or not (run.folder / LOG).stat().st_size:
                shutil.rmtree(run.folder, ignore_errors=True)  # nothing ran
            raise


def _checkpoint_of(word: str, config: Config) -> Path:
    """Return the checkpoint that `word` names: a file, the latest of a folder."""
    found = runs.find(word, Path(config.train.run_dir))
    if found is None:
        raise UsageError(f"`--from` must be a run or a checkpoint, but got `{word}`.")
    return found.checkpoint or found.run.latest


def _fitted(config: Config, slots: int) -> Config:
    """Round a batch size that the command line did not name to the slots that it implies."""
    unit = slots * (config.train.num_steps or 1)
    rounded = max(1, config.train.batch_size // unit) * unit
    return replace(config, train=replace(config.train, batch_size=rounded))


def _new_or_restarted(config: Config) -> tuple[runs.Run, Path | None]:
    """Create the folder of a run, the same for all processes; None: there is no checkpoint yet.

    A run that torchrun has started again, since a process died, goes on in its old folder.
    """
    launch = runs.launch_id()
    if launch is None:
        return runs.create(config), None
    from pufferlib.distributed import join_world

    world = join_world(config.train.device)
    run: runs.Run | None = None
    if world.is_first:
        run = runs.of_launch(config, launch) or runs.create(config, launch)
    found = world.from_first(run)
    assert found is not None
    found.is_first = world.is_first
    return found, next(iter(found.candidates()), None)
