"""check_env: play an environment and report, in one line each, what is wrong with it.

Emulation itself judges what an env returns, so an error here is the error that training would stop
with. Warnings are faults that a run survives (a seed that changes nothing, an observation that
changes after it was returned); notes are worth knowing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pufferlib import registry
from pufferlib.checks.batched import BatchOfOne, stepped_alone
from pufferlib.checks.declarations import (
    check_copies,
    check_picture,
    check_reset_parameters,
    check_spaces,
)
from pufferlib.checks.guards import Guards
from pufferlib.checks.play import PlayCheck
from pufferlib.checks.report import Findings, Report
from pufferlib.checks.steps import StepCheck
from pufferlib.emulation import AgentDicts, SingleAgent, create, creator_of, name_of, undisturbed
from pufferlib.env import PufferEnv
from pufferlib.errors import UsageError, error_line
from pufferlib.native import NativeCreator, NativeEnv
from pufferlib.vectorization.batched import SimulatorCreator


def check_env(
    env: Any, *, kwargs: Mapping[str, Any] | None = None, steps: int = 1000, seed: int = 0
) -> Report:
    """Play `env` and report all that is wrong with it.

    `env` is what `emulate` takes, a name that `make` takes, or "module:Object"; `kwargs` are params
    for a name, a class or a factory. Two runs of at most `steps` random steps (fewer for a slow
    env) begin with `seed`. An env that was given stays open, in the middle of an episode; one that
    was made here is closed.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise UsageError(f"`steps` must be a whole number of at least 1, but got {steps!r}.")
    name, creator, is_given = _source(env, dict(kwargs or {}))
    findings = Findings(name)
    with findings.catching_warnings(), undisturbed():
        made: PufferEnv | None = findings.attempt(create, creator)[0]
        if made is not None:
            _check(made, findings, seed, steps, is_given)
            if not is_given:
                _close(made, findings)
    return findings.report(env if isinstance(env, str) else "")


def _source(env: Any, kwargs: dict[str, Any]) -> tuple[str, Callable[[], Any], bool]:
    """Return (name, creator, whether `env` is an env already)."""
    if isinstance(env, str):
        spec = registry.find_or_load(env)
        settings = {**spec.kwargs, **kwargs}
        registry.check_settings(spec, settings)
        if isinstance(spec.entry_point, NativeCreator):
            native = spec.entry_point(**settings)  # invalid params are the caller's mistake
            return spec.id, lambda: native, False

        def make_one() -> Any:
            if isinstance(spec.entry_point, SimulatorCreator):
                return BatchOfOne(spec.entry_point, settings)
            return spec.entry_point(**settings)

        make_one.__name__ = spec.id.rpartition(":")[2]
        return make_one.__name__, make_one, False
    is_given = not isinstance(env, type) and hasattr(env, "step")
    name = name_of(env)
    if kwargs and not is_given and callable(env):
        registry.check_settings(registry.EnvSpec(name, env), kwargs)
    return name, creator_of(env, **kwargs), is_given


def _check(env: PufferEnv, findings: Findings, seed: int, steps: int, is_given: bool) -> None:
    guards = None
    if isinstance(env, NativeEnv) and not is_given:
        guards = Guards(env._vec.buffers)
        env.bind(guards.buffers)
    alone = stepped_alone(env)
    if alone is not None:
        findings.name = alone.traits.name
    check_spaces(env, findings)
    if alone is not None:
        check_reset_parameters(alone, findings)
    if isinstance(env, SingleAgent | AgentDicts):
        StepCheck(env, findings).run(seed)
    if not findings.failed:
        PlayCheck(env, findings, guards).run(seed, steps)
    check_picture(env, findings)
    if alone is not None:
        check_copies(alone.env, findings)


def _close(env: PufferEnv, findings: Findings) -> None:
    if findings.attempt(env.close)[1]:
        try:
            env.close()
        except Exception as error:
            cause = error_line(error.__cause__ or error)
            what = f"must not fail when called twice, but raised {cause}."
            findings.add("warning", "close", what)
