"""`puffer autotune`: measure one env, train on layouts of it, say which is the fastest, and why.

A layout is where envs run (backend) and how many of them, in how many workers. Every layout that
makes sense for what one env costs trains for a few iterations, with the batch and the policy that a
run of the same config would have; the best few then train in turns, because whatever else the
machine does changes from second to second. Layouts of so many envs that the segments of a batch
would become shorter than those of the config are left out: they would be fast, and learn worse.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pufferlib import config as configs
from pufferlib.config import BatchShape, Config, complete_options
from pufferlib.errors import PufferError, UsageError
from pufferlib.files import write_atomically
from pufferlib.native import NativeCreator
from pufferlib.registry import (
    DEFAULT_NUM_ENVS,
    EnvSpec,
    check_settings,
    emulate,
    find_or_load,
    make,
)
from pufferlib.system import available_memory, usable_cores
from pufferlib.vectorization import VectorEnv
from pufferlib.vectorization.measuring import (
    EnvCost,
    Memory,
    measure_env,
    measure_memory,
    measure_native,
    measure_native_memory,
)

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL

DEFAULT_SECONDS = 60.0
MAX_ENVS_PER_WORKER = 1024
MAX_WORKERS = 64
NATIVE_SLOTS = (64, 256, 1024, 4096, 16384)  # agents in all: from a small cache to a large one
LONG_HORIZON = 128  # steps; where a config has longer segments, layouts may shorten them to this

# how long the turn of a worker should last: short ones weigh less in a batch, long ones cost less
_TURN_SECONDS = (0.6e-3, 2.5e-3, 10e-3)
_SMALL_ENVS = 8  # of Serial, to show what a few cost
_UNEVEN = 0.15  # deviation of a turn, as a share of its mean, from which it pays not to wait
_ENOUGH = 0.97  # of the best rate: then fewer envs and workers are the better choice
_NEAR = 0.9  # of the best rate in a first try: then it may be enough after all
_FINALISTS = 3
_MEMORY_SHARE = 0.5  # of what is free, for all envs
_MAX_TURNS = 100


class Layout(NamedTuple):
    """Where envs run, and how many: a section [vec]."""

    backend: str
    num_envs: int
    num_workers: int = 1
    surplus_envs: int = 0  # above 0 in mode async

    @property
    def total_envs(self) -> int:
        """Envs in all."""
        return self.num_envs + self.surplus_envs

    @property
    def total_workers(self) -> int:
        """Workers in all, those of surplus envs included."""
        return self.num_workers * self.total_envs // self.num_envs

    def settings(self) -> dict[str, Any]:
        """Return the keys of [vec] that make this layout."""
        out: dict[str, Any] = {"backend": self.backend, "num_envs": self.num_envs}
        if self.backend != "serial":
            out["num_workers"] = self.num_workers
        if self.surplus_envs:
            out |= {"mode": "async", "surplus_envs": self.surplus_envs}
        return out

    def __str__(self) -> str:
        """Spell it as people say it: `multiprocessing, 64 envs on 2 workers`."""
        if self.backend == "serial":
            return f"serial, {_count(self.num_envs, 'env')}"
        workers = _count(self.total_workers, "thread" if self.backend == "threads" else "worker")
        text = f"{self.backend}, {_count(self.total_envs, 'env')} on {workers}"
        return f"{text}, {self.num_envs} at a time" if self.surplus_envs else text


class Trial(NamedTuple):
    """A layout, and what came of it."""

    layout: Layout
    sps: float  # of training, steps of all agents, best round; 0 where it could not run
    iteration_seconds: float  # of one batch: to collect it and to learn from it
    memory: float  # bytes of envs and workers, as measured on a few
    is_finalist: bool = False  # ran once more, in turns with the other finalists
    failure: str = ""
    batch_size: int = 0
    horizon: int = 0


class Report(NamedTuple):
    """What `autotune` found out."""

    env: str
    cores: int
    cost: EnvCost
    memory: Memory
    trials: list[Trial]  # finalists before the others, and the fastest first
    best: Trial
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        out = self._asdict() | {"cost": self.cost._asdict(), "memory": self.memory._asdict()}
        out["trials"] = [_trial_dict(trial) for trial in self.trials]
        out["best"] = _trial_dict(self.best)
        return out


def _trial_dict(trial: Trial) -> dict[str, Any]:
    return {**trial._asdict(), "layout": trial.layout.settings()}


def autotune(
    name: str,
    *,
    params: dict[str, Any] | None = None,
    num_envs: int | None = None,
    seconds: float = DEFAULT_SECONDS,
    on_progress: Callable[[str], None] = lambda text: None,
    config: Config | None = None,
) -> Report:
    """Measure the env `name` (or "module:Object") and train on layouts of it for about `seconds`.

    `params` are the env's own. `config` says how a run would train; by default it is what
    `puffer train` would take. With `num_envs` only layouts of that many envs are tried, else those
    that keep the horizon of the config. `on_progress` gets a line for each step of the way.
    """
    if not 0 < seconds < math.inf:
        raise UsageError(f"`seconds` must be above 0, but got {seconds}.")
    if num_envs is not None and num_envs < 1:
        raise UsageError(f"`num_envs` must be at least 1, but got {num_envs}.")
    spec = find_or_load(name)
    config = configs.load(spec.id) if config is None else config
    settings = {**spec.kwargs, **config.env, **(params or {})}
    if not isinstance(spec.entry_point, NativeCreator):
        check_settings(spec, settings)  # the core checks its own
    on_progress("one env")
    cores = usable_cores()
    native = isinstance(spec.entry_point, NativeCreator)
    if isinstance(spec.entry_point, NativeCreator):
        cost = measure_native(spec.entry_point, settings, seconds / 20)
        memory = measure_native_memory(spec.entry_point, settings)
    else:
        creator = partial(spec.entry_point, **settings)
        cost = measure_env(creator, seconds / 20)
        memory = measure_memory(creator, cost.create)
    training = _Training(config, cost, cores)
    limit = _most_envs(cost, memory, seconds)
    if num_envs is None:
        limit = training.most_envs(_default_num_envs(spec, config), limit)
    layouts = (native_layouts if native else python_layouts)(cost, cores, limit, num_envs)
    make_one = partial(_make, spec, settings)
    trials = _try_all(make_one, training, layouts, memory, seconds, on_progress)
    if not any(trial.sps for trial in trials):
        raise UsageError(f"no layout of `{spec.id}` could run: {trials[0].failure}")
    best = choose(trials)
    why = explain(best, trials, cost, cores)
    return Report(spec.id, cores, cost, memory, trials, best, why)


def _default_num_envs(spec: EnvSpec, config: Config) -> int:
    """Return how many envs a run of this config would have."""
    family = configs.family_num_envs(spec.id) if spec.family else None
    return config.vec.num_envs or family or DEFAULT_NUM_ENVS


# ---- How a run would train -----------------------------------------------------------------------


class _Training:
    """The training of a config, on any number of envs."""

    def __init__(self, config: Config, cost: EnvCost, cores: int) -> None:
        # what the config leaves open is fitted to the env, here as in a run
        self._settings = config.chosen_train()
        self._settings["dashboard"] = "off"
        self._policy = config.to_dict()["policy"]
        self._cost, self._cores = cost, cores
        self._sides = 2 if config.train.self_play else 1

    def most_envs(self, num_envs: int, limit: int) -> int:
        """Return how many envs, up to `limit`, train on segments as long as `num_envs` do."""
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

    def trainer(self, vecenv: VectorEnv, seconds: float) -> tuple[PuffeRL, int, int]:
        """Return a trainer whose iterations take about `seconds` at most; batch size and horizon.

        Where envs are too slow for that its segments are shorter than those of a run; a step then
        costs the same.
        """
        from pufferlib.models import make_policy
        from pufferlib.training.trainer import PuffeRL

        slots = self._slots(vecenv.num_envs + getattr(vecenv, "surplus_envs", 0))
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

    def _shape(self, slots: int) -> BatchShape:
        """Return how a batch of a run on so many slots is cut."""
        is_recurrent = self._policy["recurrent"] != "none"
        return complete_options(self._settings, slots, is_recurrent).shape

    def _slots(self, num_envs: int) -> int:
        return num_envs * self._cost.num_agents // self._sides


# ---- Which layouts to try ------------------------------------------------------------------------


def _most_envs(cost: EnvCost, memory: Memory, seconds: float) -> int:
    """Return how many envs fit into memory, and can be created within a share of the budget."""
    room = _MEMORY_SHARE * available_memory() / max(memory.env, 1)
    in_time = seconds / 10 * usable_cores() / max(cost.create, 1e-9)
    return int(2 ** math.floor(math.log2(max(1, min(room, in_time, 1e6)))))


def native_layouts(
    cost: EnvCost, cores: int, limit: int, num_envs: int | None = None
) -> list[Layout]:
    """Return layouts for an env of the C core: threads, and the others for comparison."""
    if num_envs is not None:
        counts = [num_envs]
    else:
        counts = sorted({min(limit, max(1, n // cost.num_agents)) for n in NATIVE_SLOTS})
    threads = sorted({1, cores, *(2**k for k in range(cores.bit_length()) if 2**k <= cores)})
    layouts = [Layout("threads", n, k) for n in counts for k in threads if k <= n]
    few = min(counts[0], 64)
    layouts.append(Layout("serial", num_envs or few))
    if cores > 1 and counts[-1] >= cores:
        each = max(1, counts[0] // cores)
        layouts += _divided(cores, each, num_envs)
    return layouts


def python_layouts(
    cost: EnvCost, cores: int, limit: int, num_envs: int | None = None
) -> list[Layout]:
    """Return layouts for a Python env: one process, workers for the cores, more for those who wait.

    Where steps differ much, batches are also made of the workers that are ready.
    """
    turns = {_power_of_two(seconds / max(cost.mean, 1e-9)) for seconds in _TURN_SECONDS}
    turns |= set() if len(turns) > 1 else {2 * max(turns)}
    room = max(1, limit // cores)  # for each worker
    per_worker = sorted({min(turn, room) for turn in turns})
    workers = {cores, *([cores // 2] if cores > 3 else [])}
    if cost.wait_share > 0.5:  # a core is free while an env waits: more of them can
        workers |= {min(MAX_WORKERS, cores * factor) for factor in (2, 4, 8)}
    layouts = [Layout("serial", n) for n in _serial_counts(cores, per_worker, num_envs, limit)]
    for count in sorted(workers):
        if count > 1:
            for each in per_worker:
                layouts += _divided(count, each, num_envs)
    for each in per_worker:
        if cost.spread / math.sqrt(each) > _UNEVEN * cost.mean:  # of a whole turn
            for count in sorted(workers | {2 * cores})[-2:]:
                layouts += _uneven(count, each, num_envs)
    return [each for each in dict.fromkeys(layouts) if num_envs or each.total_envs <= limit]


def _serial_counts(
    cores: int, per_worker: Sequence[int], num_envs: int | None, limit: int
) -> list[int]:
    if num_envs is not None:
        return [num_envs]
    return sorted({min(limit, _SMALL_ENVS), min(limit, cores * per_worker[-1])})


def _divided(workers: int, each: int, num_envs: int | None) -> list[Layout]:
    """Return `workers` workers with `each` envs, or with what `num_envs` leaves for them."""
    if num_envs is None:
        return [Layout("multiprocessing", workers * each, workers)]
    return [Layout("multiprocessing", num_envs, workers)] if workers <= num_envs else []


def _uneven(workers: int, each: int, num_envs: int | None) -> list[Layout]:
    """Return layouts that hand over half, and a quarter, of `workers` workers at a time."""
    if num_envs is not None:
        each = num_envs // workers
        if each * workers != num_envs:
            return []
    out = []
    for share in (2, 4):
        handed = workers // share
        if handed and each and handed * share == workers:
            surplus = (workers - handed) * each
            out.append(Layout("multiprocessing", handed * each, handed, surplus))
    return out


def _power_of_two(value: float) -> int:
    return int(2 ** round(math.log2(min(max(value, 1), MAX_ENVS_PER_WORKER))))


# ---- Trying them ---------------------------------------------------------------------------------


def _make(spec: EnvSpec, settings: dict[str, Any], layout: Layout) -> VectorEnv:
    """Make the vector env as `puffer train` would."""
    vec = {"mode": "async", "surplus_envs": layout.surplus_envs} if layout.surplus_envs else {}
    workers = None if layout.backend == "serial" else layout.num_workers
    sizes = (layout.num_envs, workers, None, layout.backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more workers than cores are worth a try here
        if ":" in spec.id:
            return emulate(spec.entry_point, *sizes, vec=vec, **settings)
        return make(spec.id, *sizes, vec=vec, **settings)


def _try_all(
    make_one: Callable[[Layout], VectorEnv],
    training: _Training,
    layouts: Sequence[Layout],
    memory: Memory,
    seconds: float,
    on_progress: Callable[[str], None],
) -> list[Trial]:
    """Train on every layout, then on the best few in turns; return trials, the fastest first."""
    deadline = time.perf_counter() + 0.7 * seconds
    trials: list[Trial] = []
    for number, layout in enumerate(layouts, start=1):
        left = max(0.0, deadline - time.perf_counter()) / (len(layouts) - len(trials))
        trial = _try(make_one, training, layout, memory, left)
        trials.append(trial)
        told = f"{trial.sps:,.0f} SPS" if trial.sps else f"failed: {trial.failure}"
        on_progress(f"{number}/{len(layouts)}  {layout}: {told}")
    trials.sort(key=lambda trial: -trial.sps)
    finalists = _finalists(trials)
    others = [trial for trial in trials if trial not in finalists]
    on_progress(f"the best {len(finalists)} again, in turns")
    finalists = _try_again(make_one, training, finalists, 0.2 * seconds)
    return [*sorted(finalists, key=lambda trial: -trial.sps), *others]


def _finalists(trials: Sequence[Trial]) -> list[Trial]:
    """Return the fastest few, and the smallest of those that are nearly as fast."""
    able = [trial for trial in trials if trial.sps]
    near = [trial for trial in able if trial.sps >= _NEAR * able[0].sps]
    return list(dict.fromkeys([*able[:_FINALISTS], *([min(near, key=_size)] if near else [])]))


def _try(
    make_one: Callable[[Layout], VectorEnv],
    training: _Training,
    layout: Layout,
    memory: Memory,
    seconds: float,
) -> Trial:
    """Make a layout and train on it for about `seconds`, at least one iteration after the first."""
    processes = layout.total_workers if layout.backend == "multiprocessing" else 0
    bytes_used = float(processes * memory.worker + layout.total_envs * memory.env)
    deadline = time.perf_counter() + seconds
    try:
        with make_one(layout) as vecenv:
            trainer, batch_size, horizon = training.trainer(vecenv, seconds / 4)
            _iteration(trainer)  # caches, lazy imports
            rates = [_iteration(trainer)]
            while time.perf_counter() < deadline:
                rates.append(_iteration(trainer))
    except PufferError as error:
        return Trial(layout, 0, 0, bytes_used, failure=str(error).partition("\n")[0])
    seconds_each = batch_size / max(rates)
    return Trial(layout, max(rates), seconds_each, bytes_used, False, "", batch_size, horizon)


def _try_again(
    make_one: Callable[[Layout], VectorEnv],
    training: _Training,
    trials: Sequence[Trial],
    seconds: float,
) -> list[Trial]:
    """Train on layouts in turns; only these rates count, for they saw the same machine."""
    with ExitStack() as stack:
        vecenvs = [stack.enter_context(make_one(trial.layout)) for trial in trials]
        each = seconds / len(trials) / 4
        trainers = [training.trainer(vecenv, each)[0] for vecenv in vecenvs]
        for trainer in trainers:
            _iteration(trainer)
        best = [0.0] * len(trainers)
        deadline = time.perf_counter() + seconds
        for turn in range(_MAX_TURNS):
            if turn > 1 and time.perf_counter() > deadline:
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


# ---- Choosing ------------------------------------------------------------------------------------


def choose(trials: Sequence[Trial]) -> Trial:
    """Return the smallest of the finalists that are about as fast as the best."""
    finalists = [trial for trial in trials if trial.is_finalist]
    best = max(trial.sps for trial in finalists)
    return min((trial for trial in finalists if trial.sps >= _ENOUGH * best), key=_size)


def _size(trial: Trial) -> tuple[int, int]:
    return trial.layout.total_envs, trial.layout.total_workers


def explain(best: Trial, trials: Sequence[Trial], cost: EnvCost, cores: int) -> str:
    """Say in one sentence why the best layout is the best."""
    step, layout = spell_seconds(cost.mean), best.layout
    rates: dict[str, float] = {}
    for trial in trials:
        rates[trial.layout.backend] = max(trial.sps, rates.get(trial.layout.backend, 0.0))
    gain = f" ({best.sps / rates['serial']:.1f} times Serial)" if rates.get("serial") else ""
    if layout.backend == "threads":
        return f"a C env steps in {step}, so threads of one process lose nothing on the way{gain}"
    if layout.backend == "serial":
        if "multiprocessing" not in rates:
            only = "there is one core for all envs" if cores == 1 else "there was no time for more"
            return f"a step takes {step}, and {only}"
        reached = rates["multiprocessing"] / best.sps
        return f"a step takes {step}, for which worker processes reach {reached:.0%} of this rate"
    if layout.surplus_envs:
        uneven = f"steps of {step} vary by {cost.spread / cost.mean:.0%}"
        return f"{uneven}, and batches of the envs that are ready wait for no other{gain}"
    if layout.total_workers > cores:
        return f"envs wait for {cost.wait_share:.0%} of a step, so {cores} cores serve more{gain}"
    turn = spell_seconds(cost.mean * layout.total_envs / layout.total_workers)
    return f"a step takes {step}, so a turn of {turn} is worth a worker on each core{gain}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def spell_seconds(seconds: float) -> str:
    """Return a duration in the unit that fits: `12.3 us`, `4.5 ms`, `1.2 s`."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def spell_bytes(count: float) -> str:
    """Return an amount of memory in the unit that fits: `320 B`, `44.8 kB`, `12 MB`."""
    for factor, unit in ((1, "B"), (1e3, "kB"), (1e6, "MB")):
        if count / factor < 999.5:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"


# ---- Writing -------------------------------------------------------------------------------------


_OWN_KEYS = ("num_envs", "num_workers", "envs_per_worker", "backend", "mode", "surplus_envs")


def write_settings(path: Path, report: Report) -> None:
    """Put the best settings into section [vec] of an ini; the rest of the file stays as it is.

    Other keys of [vec] are for worker processes: where the best are none, they become comments.
    """
    try:
        old = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`--write` must be an ini file, but {path}: {error}.") from None
    if old:
        configs.load(report.env, files=[path])  # what is wrong with it is told before it changes
    try:
        write_atomically(path, _with_vec(old, report).encode())
    except OSError as error:
        raise UsageError(
            f"`--write` must be a file that can be written, but got `{path}`: {error.strerror}."
        ) from None


def _with_vec(text: str, report: Report) -> str:
    """Return the text of an ini with the best settings in its section [vec]."""
    best = report.best
    own = [f"; puffer autotune {report.env}: {best.sps:,.0f} SPS on {report.cores} cores"]
    own += [f"{key} = {value}" for key, value in best.layout.settings().items()]
    lines, section, place = [], "", None
    for line in text.splitlines():
        header = re.match(r"\s*\[([^\]]*)\]", line)
        if header:
            section = header[1].strip().lower()
        elif section == "vec":
            key = line.partition("=")[0].strip().replace("-", "_")
            if key in _OWN_KEYS or line.startswith("; puffer autotune "):
                continue
            if key.isidentifier() and best.layout.backend != "multiprocessing":
                line = f"; {line}"
        lines.append(line)
        if header and section == "vec" and place is None:
            place = len(lines)
    if place is None:
        lines += [*([""] if lines else []), "[vec]"]
        place = len(lines)
    lines[place:place] = own
    return "\n".join(lines) + "\n"
