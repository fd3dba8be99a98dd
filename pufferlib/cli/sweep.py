"""`puffer sweep`: search for the best options of a run."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pufferlib import config as configs
from pufferlib.cli.arguments import Parser, see_working_folder
from pufferlib.cli.printing import print_table
from pufferlib.cli.stopping import stop_requests
from pufferlib.config import Config, Override
from pufferlib.errors import UsageError, one_line, quoted

if TYPE_CHECKING:
    from rich.console import Group

    from pufferlib.sweep import Driver, Event, Study, Trial
    from pufferlib.sweep.report import Report

_SWEEPS = Path("sweeps")
_PICTURE = "report.png"
# options that may change when a sweep is resumed
_MAY_CHANGE = {"num_trials", "max_cost", "parallel", "threads", "early_stop", "repeats", "executor"}
_ENDS = {  # states of trials that have ended, in words
    "complete": "complete",
    "stopped": "stopped",
    "cut": "cut off",
    "failed": "failed",
    "lost": "lost",
}


def main(words: list[str]) -> int:
    parser = Parser("sweep", with_config=True, with_sweep=True)
    parser.add_argument("name", help="environment (see `puffer envs`), or your own as `module:Env`")
    parser.add_argument("--resume", action="store_true", help="continue a sweep, or help one along")
    parser.add_argument("--report", action="store_true", help="only show what a sweep has found")
    parser.add_argument(
        "--folder", metavar="FOLDER", help="folder of the sweep (a new one in sweeps/)"
    )
    parser.add_argument(
        "--study", metavar="NAME", help="study in the storage, if it is not that of the folder"
    )
    parser.add_argument(
        "--only", metavar="KEYS", help="search these keys of [sweep] only, with commas"
    )
    options, overrides = parser.parse(words)
    see_working_folder(options.name)
    from pufferlib.sweep import find_env

    name, env = find_env(options.name)
    if options.resume or options.report:
        driver = _old_sweep(name, env, options, overrides)
    else:
        driver = _new_sweep(name, env, options, overrides)
    if options.report:
        _finish(driver)
        return 0
    with _display(driver) as show, stop_requests(_announce_stop) as received:
        driver.on_event = show
        driver.run(lambda: bool(received))
    has_best = _finish(driver)
    if received:
        command = _resume_command(driver, options, overrides)
        print(f"puffer: stopped; {command} continues it", file=sys.stderr)
        return 128 + received[0]
    return 0 if has_best else 1


def _announce_stop() -> None:
    print("puffer: stopping the trials; Ctrl-C again stops at once", file=sys.stderr)


def _new_sweep(
    name: str, env: bytes, options: argparse.Namespace, overrides: list[Override]
) -> Driver:
    """Create the study of a new sweep, once all that was given is known to be right."""
    from pufferlib.sweep import (
        BUDGET_KEYS,
        JOURNAL,
        Driver,
        SearchSpace,
        check_installed,
        check_params,
        create_study,
    )

    layers = configs.load_sweep(name, overrides, options.config)
    check_installed(layers.config.method)
    fixed = {f"{section}.{key}" for section, key, _ in overrides if section != "sweep"}
    ranges = {key: each for key, each in layers.ranges.items() if key not in fixed}
    if options.only:
        wanted = [configs.full_key(key.strip()) for key in options.only.split(",") if key.strip()]
        for key in wanted:
            if key not in ranges:
                raise UsageError(
                    f"`--only` must name keys with a range, but {quoted(key)} has none."
                )
        ranges = {key: ranges[key] for key in wanted}
    if not ranges:
        raise UsageError(
            f"section [sweep] must have a range to search, but {quoted(name)} has none. "
            'Try --sweep.learning-rate "log_uniform 1e-4 1e-2".'
        )
    check_params(name, ranges)
    run_overrides = [override for override in overrides if override[0] != "sweep"]
    config = configs.load(name, run_overrides, options.config)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = Path(options.folder or _SWEEPS / f"{name.replace('/', '-')}-{stamp}")
    if (folder / JOURNAL).exists():
        raise UsageError(f"{quoted(folder)} must not hold a sweep yet, but does. Try --resume.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"`--folder` must be a folder that can be written, but got {quoted(folder)}: {reason}."
        ) from error
    space = SearchSpace(ranges, next((key for key in BUDGET_KEYS if key in ranges), None))
    about = {
        "name": name,
        "config": config.to_dict(),
        "chosen": sorted(config.chosen_train()),
    }
    study = create_study(
        layers.config.storage, options.study or folder.name, space, layers.config, folder, about
    )
    return Driver(study, config, folder, env)


def _old_sweep(
    name: str, env: bytes, options: argparse.Namespace, overrides: list[Override]
) -> Driver:
    """Open the study of a sweep that exists."""
    from pufferlib.sweep import Driver, load_study

    changes: dict[str, Any] = {}
    storage: str | None = None
    layers = configs.load_sweep("", overrides)
    for section, key, _ in overrides:
        if section == "sweep" and key == "storage":
            storage = layers.config.storage
        elif section == "sweep" and key in _MAY_CHANGE:
            changes[key] = vars(layers.config)[key]
        else:
            raise UsageError(
                f"`--{section}.{key.replace('_', '-')}` must not change when a sweep is resumed. "
                "Try a new sweep."
            )
    folder = _find_folder(name, options.folder, storage)
    study, about = load_study(storage, options.study, folder, changes)
    if study.damage:
        print(f"puffer: {study.damage}", file=sys.stderr)
    for key in study.space.ranges:
        if "." not in key:  # as in a study of a function in Python
            raise UsageError(
                f"the study must search options of a run, but it searches {quoted(key)}."
            )
    return Driver(study, _base_config(about, name), folder, env)


def _base_config(about: Mapping[str, Any], name: str) -> Config:
    """Return the config that trials are variants of, from what was kept with the study.

    A stranger may have written it. The env is the one that the user has typed, and no other.
    """
    stored = about.get("config")
    for found in (about.get("name"), stored.get("name") if isinstance(stored, dict) else None):
        if found != name:
            raise UsageError(
                f"the sweep must be one of {quoted(name)}, but is one of {quoted(found)}."
            )
    try:
        config = Config.from_file(stored)
        chosen = about.get("chosen")
        if not isinstance(chosen, list) or not {*map(str, chosen)} <= {*vars(config.train)}:
            raise UsageError(f"its `chosen` names no options of a run, but is {quoted(chosen)}")
    except UsageError as error:
        raise UsageError(f"the study must be one of `puffer sweep`, but {error}.") from None
    return replace(config, name=name, chosen=frozenset(map(str, chosen)))


def _find_folder(name: str, given: str | None, storage: str | None) -> Path:
    """Return the folder of a sweep of `name`: the one given, or the newest."""
    from pufferlib.sweep import JOURNAL

    if given is not None:
        folder = Path(given)
        if storage is None and not os.path.lexists(folder / JOURNAL):
            raise UsageError(f"{quoted(folder)} must be the folder of a sweep, but is not.")
        return folder
    if storage is not None:
        return _SWEEPS / f"{name.replace('/', '-')}-{os.uname().nodename}"
    found = _SWEEPS.glob(f"{name.replace('/', '-')}-[0-9]*/{JOURNAL}")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        raise UsageError(
            f"{quoted(_SWEEPS)} must hold a sweep of {name}, but has none. "
            f"Try `puffer sweep {name}` first."
        )
    return newest.parent


def _resume_command(driver: Driver, options: argparse.Namespace, overrides: list[Override]) -> str:
    """Return the command that continues a sweep: of what the user has typed, but for a password."""
    from pufferlib.sweep import hidden

    words = ["puffer", "sweep", driver.config.name, "--resume", "--folder", str(driver.folder)]
    words += ["--study", options.study] if options.study else []
    for section, key, text in overrides:
        if (section, key) == ("sweep", "storage"):
            words += ["--sweep.storage", hidden(text)]
    return f"`{shlex.join(words)}`"


# ---- Display -------------------------------------------------------------------------------------


@contextmanager
def _display(driver: Driver) -> Iterator[Any]:
    """Yield what shows events: a live view on a terminal, else a line for each trial that ends."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        yield lambda event: _print_line(driver, event)
        return
    from rich.live import Live

    view = _View(driver)
    with Live(get_renderable=view.render, console=console, refresh_per_second=2) as live:

        def show(event: Event) -> None:
            view.note(event)
            live.refresh()

        yield show


def _print_line(driver: Driver, event: Event) -> None:
    """Print how a trial ended."""
    trial = event.trial
    if event.kind == "end":
        counted = sum(each.is_counted for each in driver.study.trials())
        print(f"[{counted}] {_outcome(driver.study, trial)}  {_config_text(trial)}", flush=True)


def _outcome(study: Study, trial: Trial) -> str:
    """Return one line about the end of a trial."""
    options = study.config
    if trial.state in ("failed", "lost"):
        return f"trial {trial.number} {_ENDS[trial.state]}: {one_line(trial.failure, 160)}"
    return (
        f"trial {trial.number} {_ENDS[trial.state]}: {options.metric} {trial.score:.4g} at "
        f"{_amount(trial.cost)} {options.cost}"
    )


def _config_text(trial: Trial) -> str:
    from pufferlib.sweep.report import format_value

    return " ".join(
        f"{key.removeprefix('train.')}={format_value(v)}" for key, v in trial.config.items()
    )


def _amount(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


class _View:
    """The live view of a sweep: progress, trials that run, the Pareto front, the last ones."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._started = time.monotonic()
        self._done_before: int | None = None
        self._trials: list[Trial] = []
        self._best: Trial | None = None
        self._front: list[Trial] = []
        self._next_read = 0.0
        self._last: list[str] = []

    def note(self, event: Event) -> None:
        if event.kind == "end":
            self._last = [*self._last[-4:], _outcome(self.driver.study, event.trial)]
            self._next_read = 0.0

    def render(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        study, options = self.driver.study, self.driver.study.config
        if time.monotonic() >= self._next_read:
            self._trials, self._best, self._front = study.trials(), study.best(), study.pareto()
            self._next_read = time.monotonic() + 2
        best, front = self._best, self._front
        lines = [Text(self._headline(), style="bold")]
        if best is not None:
            text = f"best {options.metric} {best.score:.4g}: {_config_text(best)}"
            lines.append(Text(text, style="green"))
        running = Table("trial", "done", options.metric, options.cost, "config", box=None)
        for trial in self.driver.running:
            share = f"{trial.curve[-1, 0]:.0%}" if len(trial.curve) else "starts"
            score = f"{trial.score:.4g}" if len(trial.curve) else ""
            row = (str(trial.number), share, score, _amount(trial.cost), _config_text(trial))
            running.add_row(*map(Text, row))
        pareto = Table("Pareto: " + options.cost, options.metric, "trial", box=None)
        for trial in front[-6:]:
            pareto.add_row(_amount(trial.cost), f"{trial.score:.4g}", str(trial.number))
        return Group(*lines, running, pareto, *map(Text, self._last))

    def _headline(self) -> str:
        """Return how far the sweep is, and how long the rest takes."""
        study = self.driver.study
        done = sum(t.is_counted and t.state != "running" for t in self._trials)
        if self._done_before is None:
            self._done_before = done
        share = study.left(self._trials).share
        passed = time.monotonic() - self._started
        new, used = done - self._done_before, 1 - share
        is_known = new >= 2 and 0 < used < 1
        eta = f", about {passed * share / used / 60:.0f} min left" if is_known else ""
        numbers = {state: sum(t.state == state for t in self._trials) for state in _ENDS}
        counts = ", ".join(
            f"{number} {_ENDS[state]}" for state, number in numbers.items() if number
        )
        ended = counts or "no trial has ended"
        return f"puffer sweep {self.driver.config.name}: {ended}; {used:.0%} of the budget{eta}"


# ---- Report --------------------------------------------------------------------------------------


def _finish(driver: Driver) -> bool:
    """Write best.ini and the pictures, print the results; return whether there is a best config."""
    from pufferlib.sweep import plots, report

    found = report.make_report(driver.study)
    _print_report(driver, found)
    if found.best is None:
        return False
    ini, picture = driver.folder / report.BEST, driver.folder / _PICTURE
    try:
        report.write_best(driver, found, ini)
        plots.draw(driver.study, found, picture)
        print(f"pictures: {picture}")
    except ImportError as error:
        print(f"puffer: no pictures: {error}", file=sys.stderr)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"{quoted(driver.folder)} must be a folder that can be written, but: {reason}."
        ) from error
    print(f"best config: puffer train {driver.config.name} --config {shlex.quote(str(ini))}")
    return True


def _print_report(driver: Driver, found: Report) -> None:
    from pufferlib.sweep.report import format_value

    study = driver.study
    words = {**_ENDS, "running": "running"}
    counts = ", ".join(f"{found.count(s)} {words[s]}" for s in words if found.count(s))
    title = f"{driver.config.name}: {len(found.trials)} trials ({counts})"
    if found.best is None:
        print(f"{title}; no trial is complete")
        for each in [each for each in found.trials if each.failure][-3:]:
            print(_outcome(study, each))
        return
    keys = list(study.space.ranges)
    headings = [
        "trial",
        study.config.cost,
        study.config.metric,
        *(k.removeprefix("train.") for k in keys),
    ]
    rows = [
        [
            str(t.number),
            _amount(t.cost),
            f"{t.score:.4g}",
            *(format_value(t.config[k]) for k in keys),
        ]
        for t in found.pareto
    ]
    print_table(f"{title}\nPareto front of cost and {study.config.metric}", headings, rows)
    if found.importance:
        shares = [[key, f"{share:.0%}"] for key, share in found.importance.items()]
        print_table("importance", ["key", "share of the score's variation"], shares)
    for failure in dict.fromkeys(t.failure for t in found.trials if t.state == "failed"):
        print(f"failed: {one_line(failure, 160)}")
