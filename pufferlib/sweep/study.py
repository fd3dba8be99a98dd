"""The study: all trials of a sweep, in a file or a database that several drivers may share.

It is a study of Optuna, so its dashboard shows it. A trial is written whole when it starts, with
the driver that runs it, and ends once: whoever writes its end first wins. A driver that dies leaves
trials that another one, or the next, finds and records as lost.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil

from pufferlib.config import Range, SweepConfig, check_range, full_key
from pufferlib.errors import MissingExtraError, UsageError, imported, one_line, quoted
from pufferlib.sweep.distributions import from_params, to_distributions, to_params
from pufferlib.sweep.evidence import Curve, Evidence, State, is_hopeless, pareto_front, thin
from pufferlib.sweep.method import Budget, Protein, Suggestion
from pufferlib.sweep.search_space import SearchSpace
from pufferlib.sweep.storage import open_storage, storage_errors

DEFAULT_TRIALS = 50
_STALE = 120.0  # seconds without a sign of life after which a driver elsewhere counts as dead
_BEAT = 20.0  # seconds between two signs of life
_BEAT_COST = 0.01  # share of max_cost that a trial may spend between two of them
_MAX_METRIC = 200  # characters of the name of a metric
_LARGEST = 1e30  # what a score or a cost may be in a study that others may have written

TrialState = Literal["running", "complete", "stopped", "cut", "failed", "lost"]


@dataclass(frozen=True)
class Trial:
    """One config that was tried.

    `complete` trials ran to their end, `stopped` ones were hopeless, `cut` ones still ran when the
    cost of the sweep was spent, `failed` ones ended with the line in `failure`. Those whose process
    or driver was killed are `lost`: they do not count, and their config runs again, once.
    """

    number: int
    config: dict[str, Any]
    state: TrialState
    seed: int
    curve: Curve = field(default_factory=lambda: np.zeros((0, 3)), compare=False, repr=False)
    failure: str = ""
    folder: str = ""  # of the trial; its run is inside
    retry_of: int | None = None

    @property
    def score(self) -> float:
        """The metric at the end of the curve, nan without one."""
        return float(self.curve[-1, 2]) if len(self.curve) else math.nan

    @property
    def cost(self) -> float:
        """Seconds or steps so far."""
        return float(self.curve[-1, 1]) if len(self.curve) else 0.0

    @property
    def is_counted(self) -> bool:
        """Whether the trial takes one of the sweep's trials: all but lost ones do."""
        return self.state != "lost"


class Study:
    """Trials in a storage, and what to try next. See `create_study` and `load_study`."""

    def __init__(
        self, study: Any, space: SearchSpace, config: SweepConfig, is_new: bool = True
    ) -> None:
        self._optuna = imported("optuna", "sweep", "Optuna")
        self._study, self._storage = study, study._storage
        self.space, self.config = space, config
        self.name: str = study.study_name
        self._distributions = to_distributions(space)
        self._protein = Protein(space, config.seed, config.repeats)
        # two drivers must not draw the same random configs
        seed = config.seed if is_new else (config.seed + os.getpid()) % 2**31
        self._sampler = _make_sampler(self._optuna, config.method, seed)
        self._ids: dict[int, int] = {}  # of trials in the storage, by number
        self._last_beat: dict[int, tuple[float, float]] = {}  # when, and cost by then, by number
        self.damage = ""  # one line about what in the storage cannot be read
        self._driver = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "born": psutil.Process().create_time(),
        }

    # ---- What is there ---------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """Return all trials by number."""
        return [trial for trial, _ in self._read()]

    def _read(self) -> list[tuple[Trial, Any]]:
        """Return all trials that can be read by number, and what Optuna has of each."""
        with storage_errors(self._optuna):
            found = self._study.get_trials(deepcopy=False)
        self._ids |= {frozen.number: frozen._trial_id for frozen in found}
        pairs = [(self._checked_trial(frozen), frozen) for frozen in found]
        sound = [(trial, frozen) for trial, frozen in pairs if trial is not None]
        return sorted(sound, key=lambda pair: pair[0].number)

    def _checked_trial(self, frozen: Any) -> Trial | None:
        """Return a trial, None if its values cannot be those of one: anyone may have written it."""
        try:
            trial = self._trial(frozen)
            units = self.space.encode(trial.config)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
            return None
        is_sound = (
            self.space.contains(trial.config)
            and bool(np.isfinite(units).all())
            and 0 <= trial.seed < 2**63
            and (trial.state != "complete" or len(trial.curve) > 0)
            and isinstance(trial.failure, str)
            and isinstance(trial.folder, str)
            and isinstance(trial.retry_of, int | None)
        )
        return trial if is_sound else None

    def _trial(self, frozen: Any) -> Trial:
        states = self._optuna.trial.TrialState
        attrs = dict(frozen.user_attrs)
        state: TrialState = "running"
        if frozen.state == states.COMPLETE:
            state = "complete"
        elif frozen.state == states.PRUNED:
            state = "cut" if attrs.get("cut") else "stopped"
        elif frozen.state == states.FAIL:
            state = "lost" if attrs.get("lost") else "failed"
        curve = np.array(attrs.get("curve", []), dtype=np.float64).reshape(-1, 3)
        return Trial(
            frozen.number,
            from_params(self.space, frozen.params),
            state,
            int(attrs.get("seed", 0)),
            curve[(np.abs(curve) < _LARGEST).all(axis=1)],
            attrs.get("failure", ""),
            attrs.get("folder", ""),
            attrs.get("retry_of"),
        )

    def best(self) -> Trial | None:
        """Return the complete trial with the best config; repeats of a config count together."""
        trials = self.trials()
        index = self._protein.recommend(self._evidence(trials))
        return None if index is None else trials[index]

    def pareto(self) -> list[Trial]:
        """Return the complete trials that no other beats in score and cost, the cheapest first."""
        complete = [each for each in self.trials() if each.state == "complete"]
        scores = [self._sign * each.score for each in complete]
        return [complete[i] for i in pareto_front([each.cost for each in complete], scores)]

    @property
    def _sign(self) -> float:
        return 1.0 if self.config.goal == "maximize" else -1.0

    def _evidence(self, trials: Sequence[Trial]) -> list[Evidence]:
        """Return trials in numbers; a lost one shows nothing but what it had learned so far."""
        found = []
        for each in trials:
            curve = each.curve.copy()
            curve[:, 2] *= self._sign
            state: State = "cut" if each.state == "lost" else each.state
            found.append(Evidence(self.space.encode(each.config), curve, state))
        return found

    def describe_damage(self, lines: Sequence[int]) -> str:
        """Return one line about lines of the journal and trials that cannot be read, "" if none."""
        with storage_errors(self._optuna):
            given = self._study.get_trials(deepcopy=False)
        known = {trial.number for trial in self.trials()}
        numbers = [each.number for each in given if each.number not in known]
        parts = []
        if lines:
            parts.append(f"line {_listed(lines)} of its journal")
        if numbers:
            parts.append(f"trial {_listed(numbers)}")
        return f"cannot read {' and '.join(parts)}; the rest is used" if parts else ""

    # ---- Ask and tell ----------------------------------------------------------------------------

    def left(self, trials: Sequence[Trial]) -> Budget:
        """Return what is left of the budget."""
        shares, cost = [1.0], math.inf
        limit = self.config.num_trials
        if limit is None and self.config.max_cost is None:
            limit = DEFAULT_TRIALS
        if limit is not None:
            shares.append(1 - sum(each.is_counted for each in trials) / limit)
        if self.config.max_cost is not None:
            cost = self.config.max_cost - sum(each.cost for each in trials)
            shares.append(cost / self.config.max_cost)
        return Budget(max(0.0, min(shares)), cost)

    def ask(
        self, first: Mapping[str, Any] | None = None, folder: Path | None = None
    ) -> Trial | None:
        """Start a trial: return it, or None if the budget is spent.

        `first` is the config of the study's first trial. A lost config comes before a new one.
        The folder of the trial is made of `folder` and its number.
        """
        trials = self.trials()
        budget = self.left(trials)
        if budget.share <= 0:
            return None
        retry = self._to_retry(trials)
        if retry is not None:
            config = retry.config
        elif not trials and first is not None and self.space.contains(first):
            config = dict(first)
        else:
            config = self._suggest(trials, budget)
        seed = self.config.seed + sum(
            each.config == config and each.state != "lost" for each in trials
        )
        trial = self._create(config, seed, folder, retry)
        # another driver may have taken the last place at the same time: the lower number has it
        earlier = [each for each in self.trials() if each.number < trial.number]
        if self.left(earlier).share <= 0:
            self._end(trial, "lost", "there was no budget left for it")
            return None
        return trial

    def _suggest(self, trials: Sequence[Trial], budget: Budget) -> dict[str, Any]:
        if self.config.method == "protein":
            known = [each for each in trials if each.state != "lost" or len(each.curve)]
            suggestion: Suggestion = self._protein.suggest(self._evidence(known), budget)
            return self.space.decode(suggestion.unit)
        # Samplers write to the trial that they suggest for. Ours is created whole, afterwards, so
        # they get a copy of the study.
        copied = self._optuna.create_study(direction=self.config.goal, sampler=self._sampler)
        copied.add_trials([frozen for trial, frozen in self._read() if trial.state != "cut"])
        return from_params(self.space, copied.ask(self._distributions).params)

    def _to_retry(self, trials: Sequence[Trial]) -> Trial | None:
        """Return a lost trial that has not been run again; a config is not tried a third time."""
        retried = {each.retry_of for each in trials}
        for each in trials:
            is_first = each.retry_of is None and each.number not in retried
            if each.state == "lost" and is_first and not each.failure.startswith("there was no"):
                return each
        return None

    def _template(self, params: dict[str, Any], attrs: dict[str, Any]) -> Any:
        from datetime import datetime

        return self._optuna.trial.FrozenTrial(
            number=-1,
            trial_id=-1,
            state=self._optuna.trial.TrialState.RUNNING,
            value=None,
            datetime_start=datetime.now(),
            datetime_complete=None,
            params=params,
            distributions=self._distributions if params else {},
            user_attrs=attrs,
            system_attrs={},
            intermediate_values={},
        )

    def _create(
        self, config: dict[str, Any], seed: int, folder: Path | None, retry: Trial | None
    ) -> Trial:
        token = f"{time.time_ns():x}-{os.getpid()}"
        attrs = {
            "driver": self._driver,
            "beat": time.time(),
            "seed": seed,
            "folder": "" if folder is None else str(folder / token),
            "retry_of": None if retry is None else retry.number,
        }
        template = self._template(to_params(self.space, config), attrs)
        with storage_errors(self._optuna):
            study_id = self._study._study_id
            trial_id = self._storage.create_new_trial(study_id, template_trial=template)
            frozen = self._storage.get_trial(trial_id)
        self._ids[frozen.number] = trial_id
        return self._trial(frozen)

    def note(self, trial: Trial, curve: Curve) -> TrialState | None:
        """Record how far a trial is; return the state it should end in, None if it should go on.

        `stopped` if it is hopeless, `cut` if the cost of the sweep is spent.
        """
        now, cost = time.monotonic(), float(curve[-1, 1]) if len(curve) else 0.0
        last, last_cost = self._last_beat.get(trial.number, (-math.inf, 0.0))
        limit = math.inf if self.config.max_cost is None else self.config.max_cost
        if now - last > _BEAT or cost - last_cost > _BEAT_COST * limit:
            self._last_beat[trial.number] = now, cost
            self._set_attrs(trial, {"beat": time.time(), "curve": thin(curve).tolist()})
        if not len(curve):
            return None
        others = [each for each in self.trials() if each.number != trial.number]
        if sum(each.cost for each in others) + cost >= limit:
            return "cut"
        signed = curve.copy()
        signed[:, 2] *= self._sign
        stops = self.config.early_stop and is_hopeless(signed, self._evidence(others))
        return "stopped" if stops else None

    def tell(
        self, trial: Trial, state: TrialState, curve: Curve | None = None, failure: str = ""
    ) -> bool:
        """Record the end of a trial; return False if it was already recorded."""
        if curve is not None:
            self._set_attrs(trial, {"curve": thin(curve).tolist()})
        value = None if curve is None or not len(curve) else float(curve[-1, 2])
        return self._end(trial, state, failure, value)

    def _set_attrs(self, trial: Trial, attrs: Mapping[str, Any]) -> None:
        for key, value in attrs.items():
            try:
                with storage_errors(self._optuna):
                    self._storage.set_trial_user_attr(self._ids[trial.number], key, value)
            except self._optuna.exceptions.UpdateFinishedTrialError:
                return

    def _end(
        self, trial: Trial, state: TrialState, failure: str = "", value: float | None = None
    ) -> bool:
        states = self._optuna.trial.TrialState
        if failure:
            self._set_attrs(trial, {"failure": one_line(failure)})
        if state in ("lost", "cut"):  # Optuna has no states for these
            self._set_attrs(trial, {state: True})
        ends = {"complete": states.COMPLETE, "stopped": states.PRUNED, "cut": states.PRUNED}
        values = [value] if state == "complete" and value is not None else None
        number = self._ids[trial.number]
        try:
            with storage_errors(self._optuna):
                if state in ("stopped", "cut") and value is not None:  # where Optuna keeps it
                    self._storage.set_trial_intermediate_value(number, 0, value)
                self._storage.set_trial_state_values(number, ends.get(state, states.FAIL), values)
        except self._optuna.exceptions.UpdateFinishedTrialError:
            return False
        self._last_beat.pop(trial.number, None)
        return True

    # ---- Dead drivers ----------------------------------------------------------------------------

    def abandoned(self) -> list[Trial]:
        """Return running trials whose driver is dead."""
        return [
            trial
            for trial, frozen in self._read()
            if trial.state == "running" and self._is_abandoned(frozen.user_attrs)
        ]

    def _is_abandoned(self, attrs: Mapping[str, Any]) -> bool:
        driver = attrs.get("driver")
        try:
            if not isinstance(driver, dict) or driver.get("host") != self._driver["host"]:
                return time.time() - float(attrs.get("beat", 0)) > _STALE
            born = psutil.Process(driver["pid"]).create_time()
            # else the number belongs to another process by now
            return bool(abs(born - driver["born"]) > 1)
        except (psutil.Error, TypeError, ValueError, LookupError, OverflowError):
            return True  # no driver of ours has written this


# ---- Creating and loading ------------------------------------------------------------------------


def check_installed(method: str) -> None:
    """Raise MissingExtraError if what a sweep with this method needs is not installed."""
    imported("optuna", "sweep", "Optuna")
    if method == "protein" and find_spec("botorch") is None:
        raise MissingExtraError(
            "BoTorch must be installed for method protein, but is not. "
            "Try: pip install 'pufferlib[sweep]', or method tpe."
        )


def create_study(
    storage: str | None,
    name: str,
    space: SearchSpace,
    config: SweepConfig,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
) -> Study:
    """Create a study in the database `storage`, in a journal in `folder`, or in this process.

    `about` is kept with it: JSON values that the caller needs to resume.
    """
    check_installed(config.method)  # before anything is written
    optuna = _quiet_optuna()
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"`folder` must be a folder that can be written, but got {quoted(folder)}: "
                f"{error.strerror}."
            ) from error
    config = replace(config, storage=None)  # it may hold a password
    try:
        with storage_errors(optuna):
            study = optuna.create_study(
                study_name=name,
                storage=open_storage(optuna, storage, folder, create=True)[0],
                direction=config.goal,
                load_if_exists=False,
            )
            study.set_user_attr("space", {key: str(each) for key, each in space.ranges.items()})
            study.set_user_attr("sweep", dict(vars(config)))
            study.set_user_attr("budget_key", space.budget_key)
            study.set_user_attr("about", dict(about or {}))
    except optuna.exceptions.DuplicatedStudyError:
        raise UsageError(
            f"the storage must not have a study {quoted(name)} yet, but has one. Try --resume."
        ) from None
    return Study(study, space, config)


def load_study(
    storage: str | None,
    name: str | None,
    folder: Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[Study, dict[str, Any]]:
    """Return a study that exists, with `changes` of its options, and what was kept with it.

    A stranger may have written all of it. What cannot be read is left out, and `Study.damage` names
    it; what was kept with the study is a dict of anything.
    """
    optuna = _quiet_optuna()
    opened, journal = open_storage(optuna, storage, folder, create=False)
    with storage_errors(optuna):
        names = [each for each in optuna.get_all_study_names(opened) if isinstance(each, str)]
        if name is None and names:
            name = names[-1]
        if name not in names:
            wanted = "a study" if name is None else f"the study {quoted(name)}"
            known = f" It has {', '.join(map(quoted, names[:5]))}." if names else " It has none."
            raise UsageError(f"the storage must have {wanted}, but does not.{known}")
        found = optuna.load_study(study_name=name, storage=opened)
        attrs = found.user_attrs
    try:
        config, space = _config_of(attrs, changes or {}), _space_of(attrs)
        study = Study(found, space, config, is_new=False)
        about = attrs.get("about")
        if not isinstance(about, dict):
            raise UsageError("nothing is kept with it")
    except (UsageError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise UsageError(
            f"study {quoted(name)} must be one of `puffer sweep`, but {one_line(error)}"
        ) from error
    study.damage = study.describe_damage(journal.skipped if journal else [])
    return study, dict(about)


def _quiet_optuna() -> Any:
    optuna = imported("optuna", "sweep", "Optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _config_of(attrs: Mapping[str, Any], changes: Mapping[str, Any]) -> SweepConfig:
    """Return the options that a study was created with, but for `changes`."""
    if not isinstance(attrs.get("sweep"), dict):
        raise UsageError("it has no options of a sweep.")
    config = SweepConfig.from_dict({**attrs["sweep"], **changes, "storage": None})
    if not (config.metric.isprintable() and 0 < len(config.metric) <= _MAX_METRIC):
        raise UsageError(f"its metric is {quoted(config.metric)}.")
    return config


def _space_of(attrs: Mapping[str, Any]) -> SearchSpace:
    """Return the search space that a study was created with."""
    texts = attrs.get("space")
    if not isinstance(texts, dict):
        raise UsageError("it has no search space.")
    ranges: dict[str, Range] = {}
    for key, text in texts.items():
        if not (isinstance(text, str) and key.isprintable() and text.isprintable()):
            raise UsageError(f"its range of {quoted(key)} is {quoted(text)}.")
        if "." in key and full_key(key) != key:
            raise UsageError(f"it searches {quoted(key)}.")
        ranges[key] = check_range(key, text, key) if "." in key else _plain_range(key, text)
    return SearchSpace(ranges, attrs.get("budget_key"))


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(numbers)[:8]))
    return shown if len(numbers) <= 8 else f"{shown} and {len(numbers) - 8} more"


def _plain_range(key: str, text: str) -> Range:
    return check_range(f"env.{key}", text, key)


def _make_sampler(optuna: Any, method: str, seed: int) -> Any:
    samplers = optuna.samplers
    if method == "tpe":
        return samplers.TPESampler(seed=seed, constant_liar=True)
    return samplers.GPSampler(seed=seed) if method == "gp" else samplers.RandomSampler(seed=seed)
