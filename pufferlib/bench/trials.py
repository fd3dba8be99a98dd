"""Trials: train on a layout for a few iterations and measure the steps per second."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from pufferlib.bench.layouts import Layout
from pufferlib.config import BatchShape, Config, complete_options
from pufferlib.errors import PufferError, UsageError
from pufferlib.registry import EnvSpec
from pufferlib.vectorization import VectorEnv, emulate, make
from pufferlib.vectorization.measuring import EnvCost, Memory

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL

LONG_HORIZON = 128  # steps; layouts may shorten the segments of a config to this

_NEAR = 0.9  # of the best rate in the first trial: then it joins the finals if it is smaller
_FINALISTS = 3
_MAX_ROUNDS = 100


class Trial(NamedTuple):
    """A layout, and its measured training."""

    layout: Layout
    sps: float  # of training, over all agents, best iteration; 0 if it failed
    iteration_seconds: float  # to collect one batch and learn from it
    memory: float  # estimated bytes of all envs and workers
    is_finalist: bool = False  # trained again, alternately with the other finalists
    failure: str = ""
    batch_size: int = 0
    horizon: int = 0


class TrialSetup:
    """How a run of a config trains, for any number of envs; `make` makes those of a layout."""

    def __init__(
        self,
        config: Config,
        make: Callable[[Layout], VectorEnv],
        cost: EnvCost,
        memory: Memory,
        cores: int,
    ) -> None:
        self.make = make
        # unset options are adjusted to the env, as in a run
        self._settings = config.chosen_train()
        self._settings["dashboard"] = "off"
        self._policy = config.to_dict()["policy"]
        self._cost, self._memory, self._cores = cost, memory, cores
        self._sides = 2 if config.train.self_play else 1

    def most_envs(self, num_envs: int, limit: int) -> int:
        """Return the most envs up to `limit` whose segments are as long as those of `num_envs`."""
        first = self._shape(self._slots(num_envs))
        while 2 * num_envs <= limit:
            try:
                shape = self._shape(self._slots(2 * num_envs))
            except UsageError:
                break
            is_larger = shape.segments > first.segments and "num_steps" in self._settings
            if is_larger or shape.horizon < min(first.horizon, LONG_HORIZON):
                break
            num_envs *= 2
        return min(num_envs, limit)

    def trainer(
        self, vecenv: VectorEnv, seconds: float, surplus_envs: int = 0
    ) -> tuple[PuffeRL, int, int]:
        """Return a trainer, and the batch size and horizon of a run.

        An iteration takes about `seconds` at most: for slow envs the trainer has shorter segments
        than a run, at the same cost per step.
        """
        from pufferlib.models import make_policy
        from pufferlib.training.trainer import PuffeRL

        slots = self._slots(vecenv.num_envs + surplus_envs)
        shape, settings = self._shape(slots), self._settings
        workers = min(self._cores, max(1, vecenv.num_workers))
        rate = workers * self._cost.num_agents / max(self._cost.mean, 1e-9)
        horizon = shape.horizon
        while horizon % 2 == 0 and horizon > 8 and slots * horizon > rate * seconds:
            horizon //= 2
        if horizon < shape.horizon:
            short = {"num_steps": horizon, "batch_size": slots * horizon, "minibatch_size": None}
            settings = {**settings, **short}
        trainer = PuffeRL(vecenv, make_policy(vecenv, **self._policy), **settings)
        return trainer, shape.segments * shape.horizon, shape.horizon

    def memory(self, layout: Layout) -> float:
        """Return the estimated bytes of all envs and workers of a layout."""
        processes = layout.total_workers if layout.backend == "multiprocessing" else 0
        return float(processes * self._memory.worker + layout.total_envs * self._memory.env)

    def _shape(self, slots: int) -> BatchShape:
        """Return how a run on `slots` slots cuts a batch."""
        is_recurrent = self._policy["recurrent"] != "none"
        return complete_options(self._settings, slots, is_recurrent).shape

    def _slots(self, num_envs: int) -> int:
        return num_envs * self._cost.num_agents // self._sides


def make_layout(spec: EnvSpec, settings: dict[str, Any], layout: Layout) -> VectorEnv:
    """Make the vector env of a layout, as `puffer train` would."""
    vec = {"mode": "async", "surplus_envs": layout.surplus_envs} if layout.surplus_envs else {}
    workers = None if layout.backend == "serial" else layout.num_workers
    sizes = (layout.num_envs, workers, None, layout.backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more workers than cores, which is worth a trial
        if ":" in spec.id:
            return emulate(spec.entry_point, *sizes, vec=vec, **settings)
        return make(spec.id, *sizes, vec=vec, **settings)


def try_all(
    setup: TrialSetup,
    layouts: Sequence[Layout],
    seconds: float,
    on_progress: Callable[[str], None],
) -> list[Trial]:
    """Train on every layout, then alternately on the best few; return trials, the fastest first."""
    deadline = time.perf_counter() + 0.7 * seconds
    trials: list[Trial] = []
    for number, layout in enumerate(layouts, start=1):
        left = max(0.0, deadline - time.perf_counter()) / (len(layouts) - len(trials))
        trial = _try(setup, layout, left)
        trials.append(trial)
        outcome = f"{trial.sps:,.0f} SPS" if trial.sps else f"failed: {trial.failure}"
        on_progress(f"{number}/{len(layouts)}  {layout}: {outcome}")
    trials.sort(key=lambda trial: -trial.sps)
    finalists = _finalists(trials)
    others = [trial for trial in trials if trial not in finalists]
    on_progress(f"the best {len(finalists)} again, alternately")
    finalists = _run_finals(setup, finalists, 0.2 * seconds)
    return [*sorted(finalists, key=lambda trial: -trial.sps), *others]


def _finalists(trials: Sequence[Trial]) -> list[Trial]:
    """Return the fastest few, and the smallest layout that is nearly as fast."""
    able = [trial for trial in trials if trial.sps]
    near = [trial for trial in able if trial.sps >= _NEAR * able[0].sps]
    return list(
        dict.fromkeys([*able[:_FINALISTS], *([min(near, key=layout_size)] if near else [])])
    )


def layout_size(trial: Trial) -> tuple[int, int]:
    """Return a key that sorts trials by their envs, then their workers."""
    return trial.layout.total_envs, trial.layout.total_workers


def _try(setup: TrialSetup, layout: Layout, seconds: float) -> Trial:
    """Train on a layout for about `seconds`, at least one iteration after a warm-up."""
    bytes_used = setup.memory(layout)
    deadline = time.perf_counter() + seconds
    try:
        with setup.make(layout) as vecenv:
            trainer, batch_size, horizon = setup.trainer(vecenv, seconds / 4, layout.surplus_envs)
            _iteration(trainer)  # warm-up: caches, lazy imports
            rates = [_iteration(trainer)]
            while time.perf_counter() < deadline:
                rates.append(_iteration(trainer))
    except PufferError as error:
        return Trial(layout, 0, 0, bytes_used, failure=str(error).partition("\n")[0])
    seconds_each = batch_size / max(rates)
    return Trial(layout, max(rates), seconds_each, bytes_used, False, "", batch_size, horizon)


def _run_finals(setup: TrialSetup, trials: Sequence[Trial], seconds: float) -> list[Trial]:
    """Train on layouts alternately: only rates under the same load can be compared."""
    with ExitStack() as stack:
        vecenvs = [stack.enter_context(setup.make(trial.layout)) for trial in trials]
        each = seconds / len(trials) / 4
        trainers = [
            setup.trainer(vecenv, each, trial.layout.surplus_envs)[0]
            for vecenv, trial in zip(vecenvs, trials)
        ]
        for trainer in trainers:
            _iteration(trainer)
        best = [0.0] * len(trainers)
        deadline = time.perf_counter() + seconds
        for number in range(_MAX_ROUNDS):
            if number > 1 and time.perf_counter() > deadline:
                break
            for index, trainer in enumerate(trainers):
                best[index] = max(best[index], _iteration(trainer))
    return [
        trial._replace(sps=sps, iteration_seconds=trial.batch_size / sps, is_finalist=True)
        for trial, sps in zip(trials, best)
    ]


def _iteration(trainer: PuffeRL) -> float:
    """Collect a batch and learn from it; return the steps per second."""
    start = time.perf_counter()
    trainer.evaluate()
    trainer.train()
    return trainer.config.batch_size / (time.perf_counter() - start)
