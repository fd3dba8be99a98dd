"""`puffer resume`: go on with a run, from its newest checkpoint that can be read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pufferlib import config as configs
from pufferlib import runs
from pufferlib.cli.arguments import Parser, check_output, env_id, is_given, make_vecenv, spell_flag
from pufferlib.cli.fit import announce, first_sound, fit, num_slots
from pufferlib.config import Config, Override
from pufferlib.errors import UnknownNameError, UsageError, one_line, quoted
from pufferlib.system import check_batch

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL

# What a run may have anew when it goes on: its budget, and where and how it is shown and kept.
_MAY_CHANGE = {
    "train": {
        *("total_timesteps", "num_iterations", "device", "torch_threads", "dashboard"),
        *("checkpoint_interval", "keep_checkpoints", "best_metric", "log_interval"),
    },
    "vec": {"num_workers", "timeout", "restart", "worker_threads"},
    "log": {option.key for option in configs.describe("log")},
}


def main(words: list[str]) -> int:
    parser = Parser("resume")
    parser.add_argument("run", metavar="RUN", help="its folder, a checkpoint in it, or the env")
    parser.add_argument("--run-dir", default="runs", metavar="FOLDER", help="where runs are")
    parser.add_argument("--svg", metavar="FILE", help="save the last dashboard as a picture")
    options, overrides = parser.parse(words)
    check_output(options, "svg")
    run, chosen = _run_to_resume(options.run, Path(options.run_dir))
    before = run.read_config()
    _check_env(before.name, run)
    config = _extended(before, overrides)
    run.keep, run.metric = config.train.keep_checkpoints, config.train.best_metric
    run.is_first = os.environ.get("RANK", "0") == "0"
    run.check_own()
    paths = [chosen] if chosen else run.candidates()
    if paths:
        paths = paths[paths.index(_first_to_extend(paths, config)) :]
    announce(config)
    with make_vecenv(config) as vecenv:
        check_batch(vecenv, config.train.batch_size)
        configs.batch_shape(config.train, num_slots(vecenv, config))

        def begin(trainer: PuffeRL) -> None:
            if paths:  # a run without any begins again, as it did then
                run.note_resume(*first_sound(paths, trainer.load_checkpoint))
            if config != before:
                run.write_config(config)

        return fit(config, vecenv, run, begin, options.svg)


def _run_to_resume(word: str, base: Path) -> tuple[runs.Run, Path | None]:
    """Return the run that `word` names, and the checkpoint in it if it names one."""
    found = runs.find(word, base)
    if found is not None:
        return found
    try:
        name = env_id(word)
    except UnknownNameError as error:
        raise UsageError(f"{quoted(Path(word))} must be a run or an environment. {error}") from None
    return runs.newest(base, name, with_checkpoint=False), None


def _check_env(name: str, run: runs.Run) -> None:
    """Raise where the env of a run is a module's that only its config names: none is imported."""
    from pufferlib.registry import find

    try:
        find(name)
    except UnknownNameError as error:
        if ":" not in name:
            raise
        raise UsageError(
            f"{quoted(run.folder)} is a run of {quoted(name)}, and a module must be typed to be "
            "imported. Try `puffer resume` with that name, which goes on with its newest run."
        ) from error


def _extended(config: Config, overrides: list[Override]) -> Config:
    """Return the config of a run with what may change when it goes on."""
    given = configs.load(config.name, overrides, packaged=False)
    if is_given(overrides, "train", "total_timesteps"):
        config = replace(config, train=replace(config.train, num_iterations=None))
    for section, key, _ in overrides:
        if key not in _MAY_CHANGE.get(section, ()):
            raise UsageError(
                f"`{spell_flag(section, key)}` must stay what it was when the run began. "
                f"Try `puffer train {one_line(config.name, 60)} --from RUN` for a new run with its "
                "weights."
            )
        value = getattr(getattr(given, section), key)
        part: Any = replace(getattr(config, section), **{key: value})
        config = replace(config, **{section: part})
    return config


def _first_to_extend(paths: list[Path], config: Config) -> Path:
    """Return the first checkpoint that can be read; its run must not be over."""
    from pufferlib.runs import checkpoint

    def counters(path: Path) -> tuple[int, int]:
        facts = checkpoint.load(path).facts
        return checkpoint.counter(facts, "iteration"), checkpoint.counter(facts, "steps")

    path, (iteration, steps) = first_sound(paths, counters)
    if iteration >= config.train.iterations:
        raise UsageError(
            f"{quoted(path.parent)} must have some of its budget left, but has trained all of its "
            f"{steps} steps. Try --train.total-timesteps {2 * steps}."
        )
    return path
