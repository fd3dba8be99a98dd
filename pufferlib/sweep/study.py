"""The study: all trials of a sweep, in a file or a database that several drivers may share.

It is a study of Optuna, so its dashboard shows it. A trial is written whole when it starts, with
the driver that runs it, and ends once: whoever writes its end first wins. A driver that dies leaves
trials that another one, or the next, finds and records as lost.
"""

from __future__ import annotations

import fcntl
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil

from pufferlib.config import Range, SweepConfig, check_range
from pufferlib.errors import MissingExtraError, UsageError, imported, one_line, quoted
from pufferlib.sweep.distributions import from_params, to_distributions, to_params
from pufferlib.sweep.evidence import Curve, Evidence, State, is_hopeless, pareto_front, thin
from pufferlib.sweep.method import Budget, Protein, Suggestion
from pufferlib.sweep.search_space import SearchSpace

JOURNAL = "study.journal"
DEFAULT_TRIALS = 50
_STALE = 120.0  # seconds without a sign of life after which a driver elsewhere counts as dead
_BEAT = 20.0  # seconds between two signs of life
_BEAT_COST = 0.01  # share of max_cost that a trial may spend between two of them

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
        self._driver = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "born": psutil.Process().create_time(),
        }

    # ---- What is there ---------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """Return all trials by number."""
        return [self._trial(frozen) for frozen in self._frozen()]

    def _frozen(self) -> list[Any]:
        found = self._study.get_trials(deepcopy=False)
        self._ids |= {frozen.number: frozen._trial_id for frozen in found}
        return sorted(found, key=lambda frozen: frozen.number)

    def _trial(self, frozen: Any) -> Trial:
        states = self._optuna.trial.TrialState
        attrs = frozen.user_attrs
        state: TrialState = "running"
        if frozen.state == states.COMPLETE:
            state = "complete"
        elif frozen.state == states.PRUNED:
            state = "cut" if attrs.get("cut") else "stopped"
        elif frozen.state == states.FAIL:
            state = "lost" if attrs.get("lost") else "failed"
        return Trial(
            frozen.number,
            from_params(self.space, frozen.params),
            state,
            int(attrs.get("seed", 0)),
            np.array(attrs.get("curve", []), dtype=np.float64).reshape(-1, 3),
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
        known = self._study.get_trials(deepcopy=False)
        copied.add_trials([each for each in known if not each.user_attrs.get("cut")])
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
        trial_id = self._storage.create_new_trial(self._study._study_id, template_trial=template)
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
        if state in ("stopped", "cut") and value is not None:  # where Optuna keeps it
            try:
                self._storage.set_trial_intermediate_value(self._ids[trial.number], 0, value)
            except self._optuna.exceptions.UpdateFinishedTrialError:
                return False
        try:
            self._storage.set_trial_state_values(
                self._ids[trial.number], ends.get(state, states.FAIL), values
            )
        except self._optuna.exceptions.UpdateFinishedTrialError:
            return False
        self._last_beat.pop(trial.number, None)
        return True

    # ---- Dead drivers ----------------------------------------------------------------------------

    def abandoned(self) -> list[Trial]:
        """Return running trials whose driver is dead."""
        running = self._optuna.trial.TrialState.RUNNING
        return [
            self._trial(frozen)
            for frozen in self._frozen()
            if frozen.state == running and self._is_abandoned(frozen.user_attrs)
        ]

    def _is_abandoned(self, attrs: Mapping[str, Any]) -> bool:
        driver = attrs.get("driver", {})
        if driver.get("host") != self._driver["host"]:
            return time.time() - float(attrs.get("beat", 0)) > _STALE
        try:
            born = psutil.Process(driver["pid"]).create_time()
        except psutil.Error:
            return True
        return bool(abs(born - driver["born"]) > 1)  # the number belongs to another process by now


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
    optuna = imported("optuna", "sweep", "Optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(
            study_name=name,
            storage=_open_storage(optuna, storage, folder),
            direction=config.goal,
            load_if_exists=False,
        )
    except optuna.exceptions.DuplicatedStudyError:
        raise UsageError(
            f"the storage must not have a study {quoted(name)} yet, but has one. Try --resume."
        ) from None
    study.set_user_attr("space", {key: str(each) for key, each in space.ranges.items()})
    study.set_user_attr("sweep", dict(vars(config)))
    study.set_user_attr("budget_key", space.budget_key)
    study.set_user_attr("about", dict(about or {}))
    return Study(study, space, config)


def load_study(
    storage: str | None,
    name: str | None,
    folder: Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[Study, dict[str, Any]]:
    """Return a study that exists, with `changes` of its options, and what was kept with it."""
    optuna = imported("optuna", "sweep", "Optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    opened = _open_storage(optuna, storage, folder)
    names = optuna.get_all_study_names(opened)
    if name is None and names:
        name = names[-1]
    if name not in names:
        known = f" It has {', '.join(map(quoted, names[:5]))}." if names else " It has none."
        raise UsageError(f"the storage must have the study {quoted(name)}, but does not.{known}")
    study = optuna.load_study(study_name=name, storage=opened)
    attrs = study.user_attrs
    if "sweep" not in attrs:
        raise UsageError(f"study {quoted(name)} must be one of `puffer sweep`, but is not.")
    config = SweepConfig.from_dict({**attrs["sweep"], **(changes or {})})
    ranges: dict[str, Range] = {
        key: check_range(key, text, key) if "." in key else _plain_range(key, text)
        for key, text in attrs["space"].items()
    }
    space = SearchSpace(ranges, attrs["budget_key"])
    return Study(study, space, config, is_new=False), dict(attrs["about"])


def _plain_range(key: str, text: str) -> Range:
    return check_range(f"env.{key}", text, key)


def _open_storage(optuna: Any, storage: str | None, folder: Path | None) -> Any:
    if storage is not None:
        try:
            return optuna.storages.RDBStorage(
                storage,
                engine_kwargs={"connect_args": {"timeout": 60}}
                if storage.startswith("sqlite")
                else None,
            )
        except Exception as error:  # of a driver of a database
            reason = one_line(error, 120)
            raise UsageError(
                f"`storage` must be the URL of a database, but got {quoted(storage)}: {reason}. "
                "Try sqlite:///sweep.db."
            ) from error
    if folder is None:
        return optuna.storages.InMemoryStorage()
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / JOURNAL)
    journal = optuna.storages.journal
    return optuna.storages.JournalStorage(journal.JournalFileBackend(path, _JournalLock(path)))


class _JournalLock:
    """The lock of a journal, which ends with its process; Optuna's own would stay for 30 s.

    A line that a killed process has begun is removed before the next one is written.
    """

    def __init__(self, path: str) -> None:
        self._path, self._file = path, -1

    def acquire(self) -> bool:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(file, fcntl.LOCK_EX)
        self._file = file
        size = os.fstat(file).st_size
        tail = os.pread(file, 1 << 20, max(0, size - (1 << 20)))
        if tail and not tail.endswith(b"\n"):
            os.ftruncate(file, size - len(tail) + tail.rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        os.close(self._file)


def _make_sampler(optuna: Any, method: str, seed: int) -> Any:
    samplers = optuna.samplers
    if method == "tpe":
        return samplers.TPESampler(seed=seed, constant_liar=True)
    return samplers.GPSampler(seed=seed) if method == "gp" else samplers.RandomSampler(seed=seed)
