"""Search spaces as distributions of Optuna, so that its samplers and its dashboard know them.

A range that Optuna has no distribution for is searched in another scale, which its name says:
`logit(train.gamma)`, `log2(vec.num_envs)`. A range that can be off has a switch `train.ent_coef?`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pufferlib.config import Choice, Logit, LogUniform, OnOff, Pow2, Range, Uniform, logit
from pufferlib.errors import imported
from pufferlib.sweep.search_space import SearchSpace


def to_distributions(space: SearchSpace) -> dict[str, Any]:
    """Return Optuna's distributions by the names of its params."""
    found: dict[str, Any] = {}
    for key, each in space.ranges.items():
        found |= _distributions(key, each)
    return found


def to_params(space: SearchSpace, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params that stand for a config."""
    found: dict[str, Any] = {}
    for key, each in space.ranges.items():
        found |= _params(key, each, config[key])
    return found


def from_params(space: SearchSpace, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config that params stand for."""
    return {key: _value(key, each, params) for key, each in space.ranges.items()}


def _distributions(key: str, each: Range) -> dict[str, Any]:
    optuna = imported("optuna", "sweep", "Optuna")
    distributions = optuna.distributions
    if isinstance(each, OnOff):
        switch = distributions.CategoricalDistribution([False, True])
        return {f"{key}?": switch, **_distributions(key, each.inner)}
    if isinstance(each, Uniform | LogUniform):
        is_log = isinstance(each, LogUniform)
        if each.integer:
            low, high = int(each.low), int(each.high)
            return {key: distributions.IntDistribution(low, high, log=is_log)}
        return {key: distributions.FloatDistribution(each.low, each.high, log=is_log)}
    if isinstance(each, Logit):
        ends = logit(each.low), logit(each.high)
        return {f"logit({key})": distributions.FloatDistribution(*ends)}
    if isinstance(each, Pow2):
        return {f"log2({key})": distributions.IntDistribution(*each.exponents)}
    assert isinstance(each, Choice)
    if each.is_ordered and len(each.values) > 2:
        return {f"choice({key})": distributions.IntDistribution(0, len(each.values) - 1)}
    return {key: distributions.CategoricalDistribution(each.values)}


def _params(key: str, each: Range, value: Any) -> dict[str, Any]:
    if isinstance(each, OnOff):
        is_on = each.encode(value)[0] >= 0.5
        inner = value if is_on else each.inner.decode([0.5] * each.inner.width)
        return {f"{key}?": is_on, **_params(key, each.inner, inner)}
    if isinstance(each, Logit):
        return {f"logit({key})": logit(value)}
    if isinstance(each, Pow2):
        return {f"log2({key})": int(math.log2(value))}
    if isinstance(each, Choice) and each.is_ordered and len(each.values) > 2:
        return {f"choice({key})": each.values.index(value)}
    return {key: value}


def _value(key: str, each: Range, params: Mapping[str, Any]) -> Any:
    if isinstance(each, OnOff):
        return _value(key, each.inner, params) if params[f"{key}?"] else each.off
    if isinstance(each, Logit):
        value = 1 / (1 + math.exp(-params[f"logit({key})"]))
        return min(max(value, each.low), each.high)
    if isinstance(each, Pow2):
        low, high = each.exponents
        exponent = params[f"log2({key})"]
        if not low <= exponent <= high:
            raise ValueError(f"the exponent must be from {low} to {high}, but is {exponent}")
        return 1 << exponent
    if isinstance(each, Choice) and each.is_ordered and len(each.values) > 2:
        return each.values[params[f"choice({key})"]]
    return params[key]
