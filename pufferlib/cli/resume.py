"""`puffer resume`: continue a run from its newest readable checkpoint."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pufferlib import config as configs
from pufferlib import runs
from pufferlib.cli.arguments import Parser, check_output, env_id, make_vecenv, spell_flag
from pufferlib.cli.run_loop import (
    announce_run,
    count_learning_slots,
    first_readable,
    is_first,
    on_first,
    train_run,
)
from pufferlib.config import Config, Override
from pufferlib.errors import UnknownNameError, UsageError, one_line, quoted
from pufferlib.system import check_batch

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL

# Options that may change when a run is resumed: its budget, device, envs, display and checkpoints.
_MAY_CHANGE = {
    "train": {
        "timeout",
        *("total_timesteps", "num_iterations", "device", "torch_threads", "dashboard"),
        *("checkpoint_interval", "keep_checkpoints", "best_metric", "log_interval"),
    },
    "vec": {"num_envs", "num_workers", "envs_per_worker", "timeout", "restart", "worker_threads"},
    "log": {option.key for option in configs.describe("log")},
}


def main(words: list[str]) -> int:
    parser = Parser("resume")
    parser.add_argument(
        "run",
        metavar="RUN",
        help="folder of a run, a checkpoint, or an environment: its newest run",
    )
    parser.add_argument(
        "--run-dir", default="runs", metavar="FOLDER", help="folder that holds the runs"
    )
    parser.add_argument("--svg", metavar="FILE", help="save the final dashboard as an SVG picture")
    options, overrides = parser.parse(words)
    check_output(options, "svg")
    run, before, config, paths = on_first(
        lambda: _found(options.run, Path(options.run_dir), overrides)
    )
    run.is_first = is_first()
    announce_run(config)
    with make_vecenv(config) as vecenv:
        slots = count_learning_slots(vecenv, config)
        is_recurrent = config.policy.recurrent != "none"
        completed = configs.complete_options(config.chosen_train(), slots, is_recurrent)
        check_batch(vecenv, completed.config.batch_size)
        if completed.warning is not None:  # the batch does not fit another number of envs
            warnings.warn(completed.warning, UserWarning, stacklevel=1)
        config = replace(config, train=completed.config)

        def prepare(trainer: PuffeRL) -> None:
            if paths:  # a run without checkpoints starts over
                run.note_resume(*first_readable(paths, trainer.load_checkpoint))
            if run.is_first and config != before:
                run.write_config(config)

        return train_run(config, vecenv, run, prepare, options.svg)


def _found(
    word: str, run_dir: Path, overrides: list[Override]
) -> tuple[runs.Run, Config, Config, list[Path]]:
    """Return the run, its config before and from now on, and the checkpoints to try."""
    run, chosen, typed = _run_to_resume(word, run_dir)
    before = run.read_config()
    _check_env(before.name, typed, run)
    config = _extended(before, overrides)
    run.keep, run.metric = config.train.keep_checkpoints, config.train.best_metric
    run.check_own()
    paths = [chosen] if chosen else run.candidates()
    if paths:
        paths = paths[paths.index(_first_to_extend(paths, config)) :]
    return run, before, config, paths


def _run_to_resume(word: str, base: Path) -> tuple[runs.Run, Path | None, str]:
    """Return the run that `word` names, the checkpoint in it and the env if it names one."""
    found = runs.find(word, base)
    if found is not None:
        return *found, ""
    try:
        name = env_id(word)
    except UnknownNameError as error:
        raise UsageError(f"{quoted(Path(word))} must be a run or an environment. {error}") from None
    return runs.newest(base, name, with_checkpoint=False), None, name


def _check_env(name: str, typed: str, run: runs.Run) -> None:
    """Raise UsageError if the env is a module that only a file names: those are not imported."""
    from pufferlib.registry import find

    if ":" in name and name != typed:
        raise UsageError(
            f"{quoted(run.folder)} is a run of {quoted(name)}, and modules are only imported if "
            "you type them. Try `puffer resume` with that name, which continues its newest run."
        )
    find(name)


def _extended(config: Config, overrides: list[Override]) -> Config:
    """Return the config of a run with the options that may change when it is resumed."""
    given = configs.load(config.name, overrides, packaged=False)
    if any(override[:2] == ("train", "total_timesteps") for override in overrides):
        config = replace(config, train=replace(config.train, num_iterations=None))
    for section, key, _ in overrides:
        if key not in _MAY_CHANGE.get(section, ()):
            raise UsageError(
                f"`{spell_flag(section, key)}` must not change when a run is resumed. "
                f"Try `puffer train {one_line(config.name, 60)} --from RUN` for a new run with its "
                "weights."
            )
        value = getattr(getattr(given, section), key)
        part: Any = replace(getattr(config, section), **{key: value})
        config = replace(config, **{section: part})
    return config


def _first_to_extend(paths: list[Path], config: Config) -> Path:
    """Return the first readable checkpoint; raise UsageError if its run has no budget left."""
    from pufferlib.runs import checkpoint

    def counters(path: Path) -> tuple[int, int]:
        values = checkpoint.load(path).values
        return checkpoint.spent(values, config.train), checkpoint.counter(values, "steps")

    path, (spent, steps) = first_readable(paths, counters)
    if spent >= config.train.iterations:
        raise UsageError(
            f"{quoted(path.parent)} must have budget left, but has trained all {steps} steps. "
            f"Try --train.total-timesteps {2 * steps}."
        )
    return path
