"""`puffer autotune`: measure one env, train on layouts of it, and report the fastest and why.

Every layout that suits the cost of one env trains for a few iterations, with the batch and the
policy that a run of the same config would have. The best few then train alternately, because the
load of the machine changes from second to second. Layouts with more envs than keep the horizon of
the config are left out: they would be fast, and learn worse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pufferlib import config as configs
from pufferlib.bench.layouts import most_envs, native_layouts, python_layouts
from pufferlib.bench.loops import check_seconds
from pufferlib.bench.trials import Trial, TrialSetup, layout_size, make_layout, try_all
from pufferlib.config import Config
from pufferlib.errors import UsageError
from pufferlib.files import write_atomically
from pufferlib.native import NativeCreator
from pufferlib.registry import check_settings, find_or_load
from pufferlib.system import usable_cores
from pufferlib.vectorization import DEFAULT_NUM_ENVS
from pufferlib.vectorization.measuring import (
    EnvCost,
    Memory,
    measure_env,
    measure_memory,
    measure_native,
    measure_native_memory,
)

DEFAULT_SECONDS = 60.0

_ENOUGH = 0.97  # of the best rate: then fewer envs and workers are the better choice


class Report(NamedTuple):
    """The result of `autotune`."""

    env: str
    cores: int
    cost: EnvCost
    memory: Memory
    trials: list[Trial]  # finalists before the others, and the fastest first
    best: Trial
    why: str

    def to_dict(self) -> dict[str, object]:
        """Return plain values that JSON can hold."""
        out = self._asdict() | {"cost": self.cost._asdict(), "memory": self.memory._asdict()}
        out["trials"] = [_trial_dict(trial) for trial in self.trials]
        out["best"] = _trial_dict(self.best)
        return out


def _trial_dict(trial: Trial) -> dict[str, object]:
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

    `params` are those of the env. `config` is that of a run; by default the one of `puffer train`.
    With `num_envs` only layouts of that many envs are tried, else those that keep the horizon of
    the config. `on_progress` gets a line for each trial.
    """
    check_seconds(seconds)
    if num_envs is not None and num_envs < 1:
        raise UsageError(f"`num_envs` must be at least 1, but got {num_envs}.")
    spec = find_or_load(name)
    config = configs.load(spec.id) if config is None else config
    settings = {**spec.kwargs, **config.env, **(params or {})}
    check_settings(spec, settings)
    on_progress("one env")
    cores, layouts_of = usable_cores(), python_layouts
    if isinstance(spec.entry_point, NativeCreator):
        cost = measure_native(spec.entry_point, settings, seconds / 20)
        memory = measure_native_memory(spec.entry_point, settings)
        layouts_of = native_layouts
    else:
        creator = partial(spec.entry_point, **settings)
        cost = measure_env(creator, seconds / 20)
        memory = measure_memory(creator, cost.create)
    setup = TrialSetup(config, partial(make_layout, spec, settings), cost, memory, cores)
    limit = most_envs(cost, memory, seconds)
    if num_envs is None:
        family = configs.family_vec(spec.id) if spec.family else {}
        usual = config.vec.num_envs or family.get("num_envs") or DEFAULT_NUM_ENVS
        limit = setup.most_envs(usual, limit)
    layouts = layouts_of(cost, cores, limit, num_envs)
    trials = try_all(setup, layouts, seconds, on_progress)
    if not any(trial.sps for trial in trials):
        raise UsageError(f"no layout of `{spec.id}` could run: {trials[0].failure}")
    best = choose(trials)
    why = explain(best, trials, cost, cores)
    return Report(spec.id, cores, cost, memory, trials, best, why)


def choose(trials: Sequence[Trial]) -> Trial:
    """Return the smallest finalist that is about as fast as the best."""
    finalists = [trial for trial in trials if trial.is_finalist]
    best = max(trial.sps for trial in finalists)
    return min((trial for trial in finalists if trial.sps >= _ENOUGH * best), key=layout_size)


def explain(best: Trial, trials: Sequence[Trial], cost: EnvCost, cores: int) -> str:
    """Return one sentence on why the best layout is the best."""
    step, layout = format_seconds(cost.mean), best.layout
    rates: dict[str, float] = {}
    for trial in trials:
        rates[trial.layout.backend] = max(trial.sps, rates.get(trial.layout.backend, 0.0))
    gain = f" ({best.sps / rates['serial']:.1f} times Serial)" if rates.get("serial") else ""
    if layout.backend == "threads":
        return f"a C env steps in {step}, so threads in one process cost the least{gain}"
    if layout.backend == "serial":
        if "multiprocessing" not in rates:
            reason = (
                "there is only one core" if cores == 1 else "there was no time for other trials"
            )
            return f"a step takes {step}, and {reason}"
        reached = rates["multiprocessing"] / best.sps
        return f"a step takes {step}, and worker processes reach only {reached:.0%} of this rate"
    if layout.surplus_envs:
        uneven = f"steps of {step} vary by {cost.spread / cost.mean:.0%}"
        return f"{uneven}, and async batches do not wait for slow envs{gain}"
    if layout.total_workers > cores:
        share = f"{cost.wait_share:.0%}"
        return f"envs wait for {share} of a step, so {cores} cores serve more of them{gain}"
    work = format_seconds(cost.mean * layout.total_envs / layout.total_workers)
    return f"a step takes {step}, so {work} of work per batch pay for a worker on each core{gain}"


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that fits: `12.3 us`, `4.5 ms`, `1.2 s`."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def format_bytes(count: float) -> str:
    """Return an amount of memory in the unit that fits: `320 B`, `44.8 kB`, `12 MB`."""
    for factor, unit in ((1, "B"), (1e3, "kB"), (1e6, "MB")):
        if count / factor < 999.5:
            return f"{count / factor:.3g} {unit}"
    return f"{count / 1e9:.3g} GB"


# ---- Writing -------------------------------------------------------------------------------------


_OWN_KEYS = ("num_envs", "num_workers", "envs_per_worker", "backend", "mode", "surplus_envs")


def write_settings(path: Path, report: Report) -> None:
    """Write the best layout into section [vec] of an ini file; the rest of the file stays.

    Other keys of [vec] are for worker processes: if the best layout has none, they become comments.
    """
    try:
        old = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`--write` must be an ini file, but {path}: {error}.") from None
    if old:
        configs.load(report.env, files=[path])  # raises for an invalid file before it changes
    try:
        write_atomically(path, _with_vec(old, report).encode())
    except OSError as error:
        raise UsageError(
            f"`--write` must be a file that can be written, but got `{path}`: {error.strerror}."
        ) from None


def _with_vec(text: str, report: Report) -> str:
    """Return the text of an ini with the best layout in its section [vec]."""
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
