"""check_env: play an environment and tell, in one line each, what is wrong with it.

What an env returns is judged by emulation itself, so a line here is the error that training would
stop with. On top come faults that a run survives, as warnings (a seed that changes nothing, an
observation that changes after it was returned), and facts worth knowing, as notes.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import pickle
import random
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pufferlib import registry
from pufferlib.checks.guards import Guards
from pufferlib.emulation import (
    ALL_AGENTS,
    AgentDicts,
    Emulated,
    FiniteCheck,
    Gymnasium,
    InPlace,
    Parallel,
    SingleAgent,
    TurnBased,
    create,
    creator_of,
    undisturbed,
)
from pufferlib.env import PufferEnv
from pufferlib.errors import EnvError, PufferError, UsageError
from pufferlib.native import NativeCreator, NativeEnv
from pufferlib.spaces import action_layout, observation_layout

Level: TypeAlias = Literal["error", "warning", "note"]

_PROBED_STEPS = 64  # steps whose parts are looked at one by one
_SECONDS = 2.0  # of play, for slow envs
_UNWRITTEN = 0xA5  # fills the bytes of rows that an env has to write
_FIELDS = ("observations", "rewards", "terminals", "truncations", "masks", "action_masks")


class Finding(NamedTuple):
    """One line of a report. An error stops a run, a warning spoils it, a note is worth knowing."""

    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


@dataclass(frozen=True, repr=False)
class Report:
    """What `check_env` found, errors first. As text: a line for each, and a verdict."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not self.of("error")

    def of(self, level: Level) -> list[str]:
        """Return the texts of one level."""
        return [finding.text for finding in self.findings if finding.level == level]

    def raise_for_errors(self) -> None:
        """Raise the first error as an EnvError, which counts the others."""
        errors = self.of("error")
        if errors:
            others = f" ({len(errors) - 1} more in `check_env`)" if len(errors) > 1 else ""
            raise EnvError(errors[0] + others)

    @property
    def verdict(self) -> str:
        """One line that sums up."""
        levels: tuple[Level, ...] = ("error", "warning", "note")
        counts = [_counted(len(self.of(level)), level) for level in levels]
        return f"{self.name}: {'ok' if self.ok else 'broken'}, {', '.join(counts)}"

    def __str__(self) -> str:
        return "\n".join([*map(str, self.findings), self.verdict])

    __repr__ = __str__


def check_env(
    env: Any, *, kwargs: Mapping[str, Any] | None = None, steps: int = 1000, seed: int = 0
) -> Report:
    """Play `env` and report all that is wrong with it.

    `env` is what `emulate` takes, a name that `make` takes, or "module:Object"; `kwargs` are params
    for a name, a class or a factory. Two runs of at most `steps` random steps (fewer for a slow
    env) begin with `seed`. An env that was given is left open, in the middle of an episode; one
    that was made here is closed.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"`steps` must be a whole number of at least 1, but got {steps!r}.")
    name, creator, is_given = _source(env, dict(kwargs or {}))
    check = _Check(name, label=env if isinstance(env, str) else "")
    with check.overheard(), undisturbed():
        rows = check.made(creator)
        if rows is not None:
            if isinstance(rows, NativeEnv) and not is_given:
                check.guard(rows)
            check.run(rows, seed, steps)
            if not is_given:
                check.close(rows)
    return check.report()


def _source(env: Any, kwargs: dict[str, Any]) -> tuple[str, Callable[[], Any], bool]:
    """Return (name, creator, whether `env` is an env already)."""
    if isinstance(env, str):
        spec = registry.find_or_load(env)
        settings = {**spec.kwargs, **kwargs}
        registry.check_settings(spec, settings)
        if isinstance(spec.entry_point, NativeCreator):
            native = spec.entry_point(**settings)  # what it refuses is the caller's mistake
            return spec.id, lambda: native, False

        def make_one() -> Any:
            return spec.entry_point(**settings)

        make_one.__name__ = spec.id.rpartition(":")[2]
        return make_one.__name__, make_one, False
    is_given = not isinstance(env, type) and hasattr(env, "step")
    name = getattr(env, "__name__", type(getattr(env, "unwrapped", env)).__name__)
    if kwargs and not is_given and callable(env):
        registry.check_settings(registry.EnvSpec(name, env), kwargs)
    return name, creator_of(env, **kwargs), is_given


class _Run(NamedTuple):
    """What a run of random steps left behind."""

    digests: list[dict[str, bytes]]  # of every field, after the reset and after each step
    episodes: list[tuple[int, bool]]  # length, and whether it ended in a terminal
    seconds: float


class _Check:
    """Collects findings about one env."""

    def __init__(self, name: str, label: str) -> None:
        self.name = name  # of the class, as emulation's errors spell it
        self.label = label
        self._found: dict[tuple[str, str], Finding] = {}
        self._shown: list[tuple[Any, Any]] = []  # observations as returned, and copies of that time
        self._guards: Guards | None = None

    def report(self) -> Report:
        order = ("error", "warning", "note")
        found = sorted(self._found.values(), key=lambda finding: order.index(finding.level))
        return Report(self.label or self.name, tuple(found))

    @property
    def failed(self) -> bool:
        return any(finding.level == "error" for finding in self._found.values())

    def tell(self, level: Level, method: str, what: str) -> None:
        self._add(level, f"{self.name}, `{method}`: {what}")

    def _add(self, level: Level, text: str) -> None:
        """Keep the first of those that differ only in the value that was found."""
        text = text.replace(" (env 0)", "", 1).replace(" (env 0, ", " (", 1)
        self._found.setdefault((level, text.partition(", but got")[0]), Finding(level, text))

    def attempt(self, call: Callable[..., Any], *args: Any) -> tuple[Any, bool]:
        """Return what `call` returns, and whether it went well; what it raises is an error."""
        try:
            return call(*args), True
        except PufferError as error:
            self._add("error", str(error))
            return None, False

    @contextmanager
    def overheard(self) -> Iterator[None]:
        """Take what emulation warns of as findings; other warnings go on to the user."""
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            yield
        for each in heard:
            text = str(each.message)
            if text.startswith(f"{self.name} (env 0"):
                self._add("warning", text)
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

    # ---- The course of a check -----------------------------------------------------------------

    def made(self, creator: Callable[[], Any]) -> PufferEnv | None:
        rows: PufferEnv | None = self.attempt(create, creator)[0]
        if isinstance(rows, Emulated):
            self.name = type(rows._unwrapped).__name__
        return rows

    def guard(self, rows: NativeEnv) -> None:
        """Give a C env rows with guard bytes around them: in C a write past a row is no error."""
        self._guards = Guards(rows._vec.buffers)
        rows.bind(self._guards.buffers)

    def run(self, rows: PufferEnv, seed: int, steps: int) -> None:
        self._look_at_spaces(rows)
        if isinstance(rows, Emulated):
            self._look_at_reset(rows)
        if isinstance(rows, SingleAgent | AgentDicts):
            self._probe(rows, seed)
        if not self.failed:
            self._play_twice(rows, seed, steps)
        self._look_at_picture(rows)
        if isinstance(rows, Emulated):
            self._look_at_copies(rows.env)

    def close(self, rows: PufferEnv) -> None:
        if self.attempt(rows.close)[1]:
            try:
                rows.close()
            except Exception as error:
                said = _said(error.__cause__ or error)
                self.tell("warning", "close", f"must be fine to call twice, but raised {said}.")

    # ---- What shows without playing ------------------------------------------------------------

    def _look_at_spaces(self, rows: PufferEnv) -> None:
        for leaf in observation_layout(rows.single_observation_space).leaves:
            if leaf.dtype == np.float64:
                field = "observation_space" + "".join(f"[{key!r}]" for key in leaf.path)
                what = f"`{field}` is float64, twice the memory of float32, which policies read."
                self.tell("note", "__init__", what)
        layout = action_layout(rows.single_action_space)
        if not (np.isfinite(layout.low).all() and np.isfinite(layout.high).all()):
            what = "`action_space` must have bounds for policies to know its scale, but has none."
            self.tell("warning", "__init__", what)
        if any(n == 1 for n in layout.nvec):
            self.tell("note", "__init__", "`action_space` has a component with a single choice.")

    def _look_at_reset(self, rows: Emulated) -> None:
        """Look for the keywords that Gymnasium and PettingZoo promise."""
        if not isinstance(rows, Gymnasium | Parallel | TurnBased):
            return
        try:
            params = inspect.signature(rows._unwrapped.reset).parameters
        except (TypeError, ValueError):  # C code may not tell
            return
        takes_any = any(param.kind is param.VAR_KEYWORD for param in params.values())
        missing = [name for name in ("seed", "options") if name not in params and not takes_any]
        if missing:
            listed = " and ".join(f"`{name}`" for name in missing)
            what = f"must take `seed` and `options` by keyword, but takes no {listed}."
            self.tell("warning", "reset", what)

    def _look_at_picture(self, rows: PufferEnv) -> None:
        env = rows.env if isinstance(rows, Emulated) else rows
        mode = getattr(env, "render_mode", None)
        unwrapped = getattr(env, "unwrapped", env)
        is_drawn = mode not in (None, "human") or isinstance(unwrapped, PufferEnv)
        if self.failed or not is_drawn or not hasattr(env, "render"):
            return
        known = (getattr(unwrapped, "metadata", None) or {}).get("render_modes")
        if mode is not None and known is not None and mode not in known:
            what = f"`render_mode` must be one of metadata's {list(known)}, but got {mode!r}."
            self.tell("warning", "render", what)
        try:
            picture = env.render()
        except Exception as error:
            self.tell("error", "render", f"raised {_said(error)}.")
            return
        if isinstance(picture, list) and picture:
            picture = picture[-1]
        if isinstance(picture, np.ndarray):
            is_rgb = picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
            given = f"{picture.dtype} {picture.shape}"
        else:
            is_rgb = picture is None or isinstance(picture, str | list)
            given = type(picture).__name__
        if not is_rgb:
            what = f"must return uint8 pixels [height, width, 3] or None, but got {given}."
            self.tell("warning", "render", what)

    def _look_at_copies(self, env: Any) -> None:
        for method, call, hint in (
            ("deepcopy", copy.deepcopy, "more than one come from a class or factory only"),
            ("pickle", pickle.dumps, "it must be made in the process that runs it"),
        ):
            if method == "pickle" and "<locals>" in type(env).__qualname__:
                continue  # says something of the class, not of the env
            try:
                call(env)
            except Exception as error:
                self.tell("note", method, f"cannot be copied ({_said(error)}): {hint}.")
                return

    # ---- Every part of a step by itself --------------------------------------------------------

    def _probe(self, rows: SingleAgent | AgentDicts, seed: int) -> None:
        """Look at each part of what the env returns: one that is wrong must not hide another."""
        reset_env, step_env = rows._reset_env, rows._step_env

        def watched_reset(seed: int | None) -> Any:
            result = reset_env(seed)
            is_pair = isinstance(result, tuple) and len(result) == 2
            self._note_shown(result[0] if is_pair else result)
            return result

        rows._reset_env = watched_reset  # type: ignore[method-assign]
        try:
            finite = FiniteCheck(rows.single_observation_space, rows.observations)
            actor = _Actor(rows, seed)
            if not self._restart(rows, seed, finite):
                return
            for number in range(_PROBED_STEPS):
                actor.act(number)
                try:
                    result = self._stepped(rows, step_env)
                except Exception as error:
                    self._add("error", str(rows.raised("step", error)))
                    return
                if isinstance(rows, SingleAgent):
                    self._judge_one(rows, result)
                else:
                    self._judge_many(rows, result)
                rows._step_env = lambda _, result=result: result
                went_well = self.attempt(rows.step, rows.actions)[1]
                self._judge_finite(rows, "step", finite)
                if not went_well and not self._restart(rows, None, finite):
                    return
        finally:
            rows._step_env = step_env
            del rows._reset_env

    def _restart(self, rows: Emulated, seed: int | None, finite: FiniteCheck) -> bool:
        """Reset, and return whether stepping makes sense."""
        try:
            rows.reset(seed)
        except PufferError as error:
            self._add("error", str(error))
            was_raised = error.__cause__ is not None and not isinstance(error.__cause__, EnvError)
            return isinstance(rows, SingleAgent) and not was_raised
        self._judge_finite(rows, "reset", finite)
        return True

    def _stepped(self, rows: SingleAgent | AgentDicts, step_env: Callable[[Any], Any]) -> Any:
        if isinstance(rows, SingleAgent):
            chosen: Any = rows._read[0]()
        else:
            chosen = {id: rows._read[slot]() for id, slot in rows._acting}
        given = copy.deepcopy(chosen)
        result = step_env(chosen)
        if not _same(chosen, given):
            self.tell("warning", "step", "must leave its `action` alone, but changes it.")
        if any(not _same(shown, then) for shown, then in self._shown):
            what = "must leave observations alone once returned, but changes them. Try a copy."
            self.tell("warning", "step", what)
        is_some = isinstance(result, tuple | list) and len(result) > 0
        self._note_shown(result[0] if is_some else None)
        return result

    def _note_shown(self, observation: Any) -> None:
        self._shown = [(observation, copy.deepcopy(observation))]

    def _judge_finite(self, rows: Emulated, method: str, finite: FiniteCheck) -> None:
        found = finite.bad()
        if found is not None:
            self._add("error", str(rows.broken(method, found[1], found[0])))

    def _judge_one(self, rows: SingleAgent, result: Any) -> None:
        """Judge the parts of a single agent's step; a wrong number of them is told by the step."""
        if not isinstance(result, tuple | list) or len(result) not in (4, 5):
            return
        if len(result) == 4 and rows.strict:
            return
        observation, reward, *flags, info = result
        self.attempt(rows._observe, "step", 0, observation)
        self.attempt(rows._reward, reward)
        for field, flag in zip(
            ("terminated", "truncated") if len(flags) == 2 else ("done",), flags
        ):
            self.attempt(rows._flag, field, flag)
        self.attempt(rows._info, "step", info)

    def _judge_many(self, rows: AgentDicts, result: Any) -> None:
        """Judge what each agent got; to dict-style PufferEnvs a missing key is no error."""
        parts, went_well = self.attempt(rows._parts, result)
        if not went_well:
            return
        observations, rewards, terminated, truncated, _ = parts
        ended = []
        for id, slot in rows._acting:
            if id in observations:
                self.attempt(rows._observe, "step", slot, observations[id])
            if id in rewards:
                self.attempt(rows._reward, rewards[id], slot)
            else:
                what = f"`rewards` lacks agent {id!r}, which acted: it gets 0."
                self.tell("warning", "step", what)
            flags = [
                self.attempt(rows._flag, field, part.get(id, False), slot)[0]
                for field, part in (("terminated", terminated), ("truncated", truncated))
            ]
            if any(flags):
                ended.append(id)
            elif id not in observations:
                what = f"`observations` lacks agent {id!r}, which has not ended: it waits."
                self.tell("note", "step", what)
        if isinstance(rows, Parallel):
            return
        if ALL_AGENTS not in terminated and ALL_AGENTS not in truncated:
            what = f"`dones` lacks {ALL_AGENTS!r}: an episode ends when every agent is done."
            self.tell("warning", "step", what)
        elif len(ended) == len(rows._acting) > 0 and not (
            terminated.get(ALL_AGENTS) or truncated.get(ALL_AGENTS)
        ):
            what = f"`dones[{ALL_AGENTS!r}]` is False though every agent is done: nobody can act."
            self.tell("warning", "step", what)

    # ---- Two runs ------------------------------------------------------------------------------

    def _play_twice(self, rows: PufferEnv, seed: int, steps: int) -> None:
        before = _global_state()
        first = self._play(rows, seed, steps, time.perf_counter() + _SECONDS)
        if first is None:
            return
        if _global_state() != before:
            what = "draws from the global generator of `random` or `numpy.random`, which its seed "
            self.tell("warning", "step", what + "does not own. Try `np.random.default_rng(seed)`.")
        self._judge_episodes(first)
        if isinstance(rows, Emulated):  # a C env is stepped among many, not by itself
            self._time(first)
        second = self._play(rows, seed, len(first.digests) - 1)
        if second is not None:
            self._compare(rows, first, second)

    def _play(
        self, rows: PufferEnv, seed: int, steps: int, until: float = float("inf")
    ) -> _Run | None:
        """Take random steps as a vector env would; None if the env broke its contract."""
        finite = FiniteCheck(rows.single_observation_space, rows.observations)
        actor = _Actor(rows, seed)
        lengths = np.zeros(rows.num_agents, dtype=np.int64)
        seen = np.zeros(rows.num_agents, dtype=np.bool_)
        run = _Run([], [], 0.0)
        spent = 0.0
        _clear(rows)
        if not self.attempt(rows.reset, seed)[1]:
            return None
        for number in range(steps + 1):
            method = "step" if number else "reset"
            overrun = None if self._guards is None else self._guards.overrun()
            if overrun is not None:
                self.tell("error", method, overrun)
                return None
            seen |= rows.masks
            found = finite.bad()
            if found is not None and isinstance(rows, Emulated):
                self._add("error", str(rows.broken(method, found[1], found[0])))
                return None
            if isinstance(rows, InPlace) and not self._judge_rows(rows, number):
                return None
            run.digests.append(_digests(rows))
            if number == steps or time.perf_counter() > until:
                break
            present = rows.masks.copy()
            actor.act(number)
            _clear(rows)
            started = time.perf_counter()
            if not self.attempt(rows.step, rows.actions)[1]:
                return None
            spent += time.perf_counter() - started
            lengths += present
            for slot in np.flatnonzero(rows.terminals | rows.truncations):
                run.episodes.append((int(lengths[slot]), bool(rows.terminals[slot])))
                lengths[slot] = 0
        if not seen.all():
            what = f"`num_agents` is {rows.num_agents}, but only {seen.sum()} agents ever came."
            self.tell("note", "step", what)
        return run._replace(seconds=spent)

    def _judge_rows(self, rows: InPlace, number: int) -> bool:
        """Judge what only the in-place form can get wrong; return whether to go on."""
        method = "step" if number else "reset"
        if rows._speaker is None:
            for field in ("observations", "rewards", "terminals", "truncations", "masks"):
                if getattr(rows._unwrapped, field) is not getattr(rows, field):
                    what = f"must write into `self.{field}`, but puts another array there. "
                    self.tell("error", method, f"{what}Try `self.{field}[:] = ...`.")
                    return False
            unwritten = rows.final_observations.view(np.uint8) == _UNWRITTEN
            for slot in np.flatnonzero(rows.truncations):
                if unwritten[slot].all():
                    what = "`final_observations` must hold the last observation where "
                    self.tell("error", method, f"{what}`truncations` is set, but nothing does.")
                    return False
        if rows.action_masks is not None:
            for slot in np.flatnonzero(rows.masks):
                row = rows.action_masks[slot]
                if rows._action_layout.num_continuous and not row.any():
                    continue  # it waits
                if not self.attempt(rows._allow_one, method, int(slot), row)[1]:
                    return False
        return True

    def _judge_episodes(self, run: _Run) -> None:
        steps = len(run.digests) - 1
        if not run.episodes:
            self.tell("note", "step", f"no episode ended within {steps} random steps.")
        lengths = {length for length, _ in run.episodes}
        if len(run.episodes) > 1 and len(lengths) == 1 and all(ended for _, ended in run.episodes):
            length = lengths.pop()
            if length >= 10:
                what = f"all {len(run.episodes)} episodes end after {length} steps. If that is a "
                hint = 'time limit, say so: `truncated`, or `info["TimeLimit.truncated"]`.'
                self.tell("note", "step", what + hint)

    def _time(self, run: _Run) -> None:
        micros = run.seconds / max(1, len(run.digests) - 1) * 1e6
        rate = f"{1e6 / max(micros, 1e-3):,.0f} steps a second"
        spelled = f"{micros:.3g} us" if micros < 1000 else f"{micros / 1000:.3g} ms"
        self.tell("note", "step", f"takes {spelled}, emulation included: {rate}.")

    def _compare(self, rows: PufferEnv, first: _Run, second: _Run) -> None:
        for number, (one, other) in enumerate(zip(first.digests, second.digests)):
            for field in _FIELDS:
                if one[field] != other[field]:
                    where = f"step {number}" if number else "`reset`"
                    what = f"the same seed and actions gave other `{field}` in {where}."
                    if isinstance(rows, Emulated) and not rows._takes_seed:
                        what += " Try `reset(self, seed=None)`."
                    self.tell("warning", "reset", what)
                    return


# ---- Rows ----------------------------------------------------------------------------------------


def _clear(rows: PufferEnv) -> None:
    """Do what a vector env does before a step, and mark what the env has to write."""
    rows.rewards[:], rows.terminals[:], rows.truncations[:] = 0, False, False
    rows.final_observations.view(np.uint8)[...] = _UNWRITTEN


class _Actor:
    """Writes actions: the lowest in step 0, the highest in step 1, then random; masks are kept."""

    def __init__(self, rows: PufferEnv, seed: int) -> None:
        layout = action_layout(rows.single_action_space)
        self._rows, self._rng = rows, np.random.default_rng(seed)
        self._indices, self._reals = layout.split(rows.actions)
        self._numbers = np.array(layout.nvec, dtype=np.int64)
        self._low = np.where(np.isfinite(layout.low), layout.low, -1).astype(np.float64)
        self._high = np.where(np.isfinite(layout.high), layout.high, 1).astype(np.float64)

    def act(self, number: int) -> None:
        num_discrete = len(self._numbers)
        drawn = self._rng.random((self._rows.num_agents, num_discrete + len(self._low)))
        if number < 2:
            drawn[:] = number
        shares, mixes = drawn[:, :num_discrete], drawn[:, num_discrete:]
        self._indices[...] = np.minimum((shares * self._numbers).astype(int), self._numbers - 1)
        self._reals[...] = np.clip(
            self._low + mixes * (self._high - self._low), self._low, self._high
        )
        if self._rows.action_masks is not None:
            for slot, mask in enumerate(self._rows.action_masks):
                self._obey(self._indices[slot], mask)

    def _obey(self, indices: NDArray[np.int32], mask: NDArray[np.bool_]) -> None:
        first = 0
        for component, n in enumerate(self._numbers):
            allowed = np.flatnonzero(mask[first : first + n])
            if len(allowed) and indices[component] not in allowed:
                indices[component] = self._rng.choice(allowed)
            first += n


def _digests(rows: PufferEnv) -> dict[str, bytes]:
    """Return a short digest of each field, to compare runs by."""
    return {field: _digest(getattr(rows, field)) for field in _FIELDS}


def _digest(array: NDArray[Any] | None) -> bytes:
    return b"" if array is None else hashlib.blake2b(array.tobytes(), digest_size=16).digest()


def _global_state() -> tuple[Any, ...]:
    """Return the state of the generators that every env of a process shares."""
    return random.getstate(), pickle.dumps(np.random.get_state())


def _same(one: Any, other: Any) -> bool:
    """Return whether two trees of arrays are equal; nan equals nan."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    return True  # what is no container cannot have changed


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
