"""The driver: starts trials, follows their logs, stops hopeless ones and records how they end."""

from __future__ import annotations

import errno
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from pufferlib.config import Config, merge_train_layers
from pufferlib.errors import PufferError, UsageError, error_line, nearest, one_line, quoted
from pufferlib.files import link_at
from pufferlib.sweep.executors import (
    Executor,
    Job,
    LocalExecutor,
    Process,
    Progress,
    RayExecutor,
    is_in_use,
    is_saved,
    read_log,
)
from pufferlib.sweep.study import Study, Trial, TrialState, check_installed

BUDGET_KEYS = ("train.total_timesteps", "train.num_iterations")  # the length of a run

_PAUSE = 0.1  # seconds between two looks at the trials
_CHECK = 0.3  # seconds between two decisions about a trial
_REAP = 15.0  # seconds between two looks for dead drivers
_PATIENCE = 60.0  # seconds for a trial to save and end
_FALSE_STARTS = 3  # trials that end before training; if they are the first, the sweep is wrong

# what a trial says whose disk is full
_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))
_KILLS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # from outside

Kind = Literal["start", "progress", "end"]


class Event(NamedTuple):
    """Something that a display may show."""

    kind: Kind
    trial: Trial


class _Running:
    """A trial that runs: its process and its curve so far."""

    def __init__(self, trial: Trial, process: Process) -> None:
        self.trial, self.process = trial, process
        self.points: list[tuple[float, float, float]] = []
        self.records = 0
        self.keys: list[str] = []
        self.ends_as: TrialState | None = None  # once it was asked to end
        self.deadline = math.inf
        self.next_check = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether it has logged its last iteration."""
        return bool(self.points) and self.points[-1][0] >= 1

    @property
    def curve(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array(self.points, dtype=np.float64).reshape(-1, 3)


class Driver:
    """Runs trials of `study` until its budget is spent.

    `config` is the run that trials are variants of; `folder` gets a folder for each trial. Several
    drivers may work on one study. `keys` maps keys of the search space to `section.key` where they
    differ.
    """

    def __init__(
        self,
        study: Study,
        config: Config,
        folder: Path,
        env: bytes = b"",
        on_event: Callable[[Event], None] = lambda event: None,
        keys: Mapping[str, str] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._executor = executor
        self.study, self.config, self.folder = study, config, folder
        self._trials = folder / "trials"
        self._env, self.on_event = env, on_event
        self._keys = {key: key for key in study.space.ranges} | dict(keys or {})
        self._running: list[_Running] = []
        self._has_metric = False
        self._parallel = 1
        self._next_reap = 0.0

    @property
    def running(self) -> list[Trial]:
        """The trials that this driver runs, with their curves so far."""
        return [replace(each.trial, curve=each.curve) for each in self._running]

    def run(self, is_stopped: Callable[[], object] = lambda: False) -> None:
        """Run trials until the budget is spent or `is_stopped` returns something true.

        Trials that still run are ended then, and their configs run again when the sweep is resumed.
        Raises UsageError if no trial can work: none reports the metric, or none starts.
        """
        is_ray = self.study.config.executor == "ray"
        executor = self._executor or (RayExecutor() if is_ray else LocalExecutor())
        options = self.study.config
        check_installed(options.method)
        self._parallel = options.parallel or executor.capacity(options.threads)
        try:
            while not is_stopped():
                self.reap()
                has_budget = self._start_trials(executor, is_stopped)
                if not self._running and not has_budget and not self.study.abandoned():
                    return
                time.sleep(_PAUSE)
                for each in list(self._running):
                    self._follow(each)
        finally:
            with _held_signals():  # a second Ctrl-C must not leave a trial behind
                self._end_all()
            executor.close()

    def _end_all(self) -> None:
        """Record the trials that still run as lost and end them, whatever else goes wrong."""
        try:
            for each in self._running:
                self.study.tell(each.trial, "lost", each.curve, "the sweep was interrupted")
        finally:
            for each in self._running:
                each.process.kill()
            self._running.clear()

    def reap(self) -> None:
        """Record the trials of dead drivers: complete if their run is, else lost."""
        if time.monotonic() < self._next_reap:
            return
        self._next_reap = time.monotonic() + _REAP
        for trial in self.study.abandoned():
            folder = self._own_folder(trial)
            if folder is not None and is_in_use(folder):  # its process is about to end
                self._next_reap = time.monotonic() + 1
                continue
            running = _Running(trial, _NoProcess())
            if folder is not None:
                self._note_records(running, read_log(folder))
            if running.is_whole and folder is not None and is_saved(folder):
                self._end(running, "complete")
            else:
                self._end(running, "lost", "its driver was killed")

    def _own_folder(self, trial: Trial) -> Path | None:
        """Return the folder of a trial in that of the sweep, None if it is not there.

        Where the study says that it is makes no difference: a stranger may have written that.
        """
        path = self._trials / Path(trial.folder).name
        is_ours = re.fullmatch(r"[0-9a-f]+-\d+", path.name) and not link_at(self._trials)
        return path if is_ours and not link_at(path) and os.path.isdir(path) else None

    def _start_trials(self, executor: Executor, is_stopped: Callable[[], object]) -> bool:
        """Start trials while there is room and budget; return whether there was budget."""
        while len(self._running) < self._parallel and not is_stopped():
            if link_at(self._trials):
                raise UsageError(
                    f"{quoted(self._trials)} must be in the folder of the sweep, but is a link."
                )
            trial = self.study.ask(self._first_config(), self._trials)
            if trial is None:
                return False
            try:
                ini = config_ini(self.trial_config(trial))
                job = Job(self.config.name, ini, trial.folder, self.study.config.threads, self._env)
                process = executor.start(job)
            except BaseException as error:
                self.study.tell(trial, "lost", failure=f"it was not started: {error_line(error)}")
                if isinstance(error, OSError):
                    raise _cannot_write(self.folder, error.strerror or error) from error
                raise
            self._running.append(_Running(trial, process))
            self.on_event(Event("start", trial))
        return True

    def _first_config(self) -> dict[str, Any] | None:
        """Return the searched options as the config has them."""
        if not self.study.config.start:
            return None
        values: dict[str, Any] = {}
        for key, full in self._keys.items():
            section, _, name = full.partition(".")
            part = self.config.env if section == "env" else vars(getattr(self.config, section))
            if name in part:
                values[key] = part[name]
        return values

    def trial_config(self, trial: Trial) -> Config:
        """Return the config of a trial: an ordinary run, limited to its cores."""
        threads = self.study.config.threads
        config = with_values(self.config, {self._keys[k]: v for k, v in trial.config.items()})
        own: dict[str, Any] = {
            "run_dir": trial.folder,
            "dashboard": "off",
            "torch_threads": threads,
            "seed": trial.seed if "train.seed" not in self._keys.values() else config.train.seed,
        }
        if self.study.config.goal == "maximize":
            own["best_metric"] = self._metric_key(self.study.config.metric)
        config = with_values(config, {f"train.{key}": value for key, value in own.items()})
        if config.vec.num_workers is None and config.vec.backend == "auto":
            config = replace(config, vec=replace(config.vec, num_workers=threads))
        return config

    def _metric_key(self, metric: str) -> str:
        return metric if metric in ("mean_reward", "episode_length") or "/" in metric else "auto"

    # ---- One trial -------------------------------------------------------------------------------

    def _follow(self, each: _Running) -> None:
        """Read what a trial has logged; stop it or record its end."""
        progress = each.process.poll()
        before = len(each.points)
        self._note_records(each, progress.records)
        if progress.exit_code is None:
            if each.ends_as is not None and time.monotonic() > each.deadline:
                each.process.kill()
            elif each.ends_as is None and len(each.points) > before:
                if time.monotonic() < each.next_check and each.points[-1][0] < 1:
                    return
                each.next_check = time.monotonic() + _CHECK
                self.on_event(Event("progress", replace(each.trial, curve=each.curve)))
                end = self.study.note(each.trial, each.curve)
                if end is not None and not each.is_whole:  # else only its checkpoint is missing
                    each.ends_as = end
                    each.deadline = time.monotonic() + _PATIENCE
                    each.process.stop()
            elif not each.points:
                self.study.note(each.trial, each.curve)  # a sign of life
            return
        self._running.remove(each)
        code = progress.exit_code
        failure = progress.failure or f"exit code {code}"
        if each.points and (code == 0 or (each.is_whole and progress.is_saved)):
            self._end(each, "complete")  # even if its process has died in the act of ending
        elif each.ends_as is not None and each.points:
            self._end(each, each.ends_as)
        elif code == 0:
            self._missing_metric(each)
        elif abs(code) % 128 in _KILLS and (code < 0 or code > 128):
            # once may be bad luck; twice it is probably too large for the machine
            state = "lost" if each.trial.retry_of is None else "failed"
            self._end(each, state, f"its process was killed by signal {abs(code) % 128}")
        elif any(reason in failure for reason in _FULL):  # that says nothing about the config
            self._end(each, "lost", failure)
            raise _cannot_write(self.folder, next(r for r in _FULL if r in failure))
        elif code < 0:
            said = f": {progress.failure}" if progress.failure else ""
            self._end(each, "failed", f"it crashed with signal {-code}{said}")
        else:
            self._end(each, "failed", failure)
            self._check_start(each, failure)

    def _note_records(self, each: _Running, records: list[dict[str, Any]]) -> None:
        """Add the points of new log entries to the curve."""
        metric, cost = self.study.config.metric, self.study.config.cost
        for record in records:
            each.records += 1
            each.keys = list(record)
            key = metric if metric in record else f"env/{metric}"
            score = _number(record, key)
            self._has_metric = self._has_metric or key in record
            steps, total = _number(record, "steps"), _number(record, "total_steps")
            spent = _number(record, "uptime") if cost == "seconds" else steps
            if score is None or spent is None or steps is None or not total:
                continue
            each.points.append((min(1.0, steps / total), spent, score))

    def _missing_metric(self, each: _Running) -> None:
        """Record a run that never reported the metric; raise if no run does."""
        metric = quoted(self.study.config.metric)
        self._end(each, "failed", f"its log never had a value of {metric}")
        if not self._has_metric and not any(t.state == "complete" for t in self.study.trials()):
            similar = nearest(self.study.config.metric, [k for k in each.keys if "time/" not in k])
            known = similar or [k for k in each.keys if k.startswith(("mean", "env/", "epis"))]
            raise UsageError(
                f"`metric` must be a number that runs log, but no run has {metric}. "
                f"Try {' or '.join(map(quoted, known[:4]))}."
            )

    def _end(self, each: _Running, state: Any, failure: str = "") -> None:
        curve = each.curve
        if self.study.tell(each.trial, state, curve, failure):
            ended = replace(each.trial, state=state, curve=curve, failure=failure)
            self.on_event(Event("end", ended))

    def _check_start(self, each: _Running, failure: str) -> None:
        """Raise UsageError if the first trials all ended before they trained."""
        ended = [t for t in self.study.trials() if t.state not in ("running", "lost")]
        are_false = all(t.state == "failed" and not len(t.curve) for t in ended)
        if len(ended) == _FALSE_STARTS and are_false and not each.records:
            raise UsageError(f"the first {_FALSE_STARTS} trials could not start: {failure}")


def _cannot_write(folder: Path, reason: object) -> PufferError:
    return PufferError(
        f"cannot write to {one_line(folder)}: {reason}. Its trials count as lost: "
        "--resume runs them again."
    )


@contextmanager
def _held_signals() -> Iterator[None]:
    """Hold back Ctrl-C, SIGTERM and SIGHUP until the end of the block."""
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    before = {
        signum: signal.signal(signum, lambda signum, frame: received.append(signum))
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if is_main and signal.getsignal(signum) is not None
    }
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if received:
        signal.raise_signal(received[0])


class _NoProcess:
    """The process of a trial whose driver is dead."""

    def poll(self) -> Progress:
        return Progress([], None)

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def _number(record: Mapping[str, Any], key: str) -> float | None:
    """Return a finite number of a log, None if it has none: the log may be a stranger's."""
    value = record.get(key)
    try:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        return None


# ---- Configs -------------------------------------------------------------------------------------


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """Return `config` with new values by `section.key`."""
    parts: dict[str, dict[str, Any]] = {"train": {}, "vec": {}, "policy": {}, "env": {}}
    for key, value in values.items():
        section, _, name = key.partition(".")
        parts[section][name] = value
    train = merge_train_layers(config.chosen_train(), parts["train"])
    if "total_timesteps" in parts["train"]:
        train.pop("num_iterations", None)
    return replace(
        config,
        train=type(config.train).from_dict(train),
        chosen=frozenset(train),
        vec=replace(config.vec, **parts["vec"]),
        policy=replace(config.policy, **parts["policy"]),
        env={**config.env, **parts["env"]},
    )


def config_ini(config: Config, comment: str = "", own: bool = True) -> str:
    """Return the options of a run that were set, as an ini for `puffer train`.

    Without `own` those that belong to one run only are left out: folder, display, cores, seed.
    """
    skipped = {"run_dir", "dashboard", "torch_threads", "best_metric", "seed"}
    sections = {
        "vec": config.vec.changed(),
        "env": dict(config.env),
        "policy": config.policy.changed(),
        "train": config.chosen_train(),
        "log": config.log.changed(),
    }
    if not own:
        sections["train"] = {k: v for k, v in sections["train"].items() if k not in skipped}
        sections["vec"].pop("num_workers", None)
    lines = [f"; {line}" for line in comment.splitlines()]
    for section, values in sections.items():
        if values:
            lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
            lines += [_ini_line(section, key, value) for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _ini_line(section: str, key: str, value: Any) -> str:
    """Return a line that sets one option, and nothing else: a value may come from a stranger."""
    text = str(value).lower() if value is None or isinstance(value, bool) else str(value)
    is_whole = text.strip() and text.isprintable() and ";" not in text
    if not (is_whole and re.fullmatch(r"[A-Za-z][\w.-]*", key)):
        raise UsageError(
            f"a value in an ini must be one line without `;`, but {quoted(f'{section}.{key}')} is "
            f"{quoted(value)}."
        )
    return f"{key} = {text}"
