from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from pufferlib.advantage import compute_advantages, compute_advantages_torch

try:
    from pufferlib import _core  # noqa: F401
except ImportError:
    has_core = False
else:
    has_core = True

IMPLEMENTATIONS = [
    pytest.param(compute_advantages_torch, id="torch"),
    pytest.param(
        compute_advantages,
        id="c",
        marks=pytest.mark.skipif(not has_core, reason="the C core is not built"),
    ),
]
every_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


def compute(implementation: Any, **given: Any) -> NDArray[np.float32]:
    """Call with one segment; what is not given is 0, and nothing ends."""
    horizon = len(given["rewards"])
    zeros = [0.0] * horizon
    rows = {
        name: torch.tensor([given.pop(name, zeros)], dtype=torch.float32)
        for name in ("rewards", "values", "final_values")
    }
    flags = {
        name: torch.tensor([given.pop(name, zeros)]).bool() for name in ("terminals", "truncations")
    }
    bootstrap = torch.tensor([given.pop("bootstrap", 0.0)])
    for name in ("masks", "ratios"):
        if name in given:
            dtype = torch.bool if name == "masks" else torch.float32
            rows[name] = torch.tensor([given.pop(name)], dtype=dtype)
    settings_ = {"gamma": 0.9, "gae_lambda": 0.8, **given}
    advantages = implementation(bootstrap=bootstrap, **rows, **flags, **settings_)
    return np.asarray(advantages)[0]


@every_implementation
def test_last_step_bootstraps_from_the_value_after_it(implementation: Any) -> None:
    # delta_1 = 1 + 0.9*2 - 0.5 = 2.3; delta_0 = 1 + 0.9*0.5 - 0.5 = 0.95
    # A_0 = 0.95 + 0.9*0.8*2.3 = 2.606
    advantages = compute(implementation, rewards=[1, 1], values=[0.5, 0.5], bootstrap=2.0)

    assert_allclose(advantages, [2.606, 2.3], rtol=1e-6)


@every_implementation
def test_terminal_cuts_value_and_sum(implementation: Any) -> None:
    # delta_1 = 1 - 0.5 = 0.5 (no value after a terminal); delta_0 = 1 + 0.9*0.5 - 0.5 = 0.95
    # A_0 = 0.95 + 0.9*0.8*0.5 = 1.31. The third step is another episode: 1 - 0.5 + 0.9*7 = 6.8
    advantages = compute(
        implementation,
        rewards=[1, 1, 1],
        values=[0.5, 0.5, 0.5],
        terminals=[0, 1, 0],
        bootstrap=7.0,
    )

    assert_allclose(advantages, [1.31, 0.5, 6.8], rtol=1e-6)


@every_implementation
def test_truncation_bootstraps_from_the_final_observation(implementation: Any) -> None:
    # delta_0 = 1 + 0.9*4 - 0.5 = 4.1, and the sum ends there; v_1 = 100 is another episode's
    advantages = compute(
        implementation,
        rewards=[1, 0],
        values=[0.5, 100],
        truncations=[1, 0],
        final_values=[4, np.nan],
    )

    assert_allclose(advantages, [4.1, -100], rtol=1e-6)


@every_implementation
def test_terminal_wins_over_truncation(implementation: Any) -> None:
    advantages = compute(
        implementation, rewards=[1], values=[0.5], terminals=[1], truncations=[1], final_values=[9]
    )

    assert_allclose(advantages, [0.5])


@every_implementation
def test_masked_step_ends_the_agents_sum_and_nothing_of_it_is_read(implementation: Any) -> None:
    # Step 0 is the last before the agent is gone: 1 - 0.5 = 0.5. Step 2 is later: 0.5 + 0.9 = 1.4
    advantages = compute(
        implementation,
        rewards=[1, np.nan, 1],
        values=[0.5, np.nan, 0.5],
        final_values=[np.nan] * 3,
        masks=[1, 0, 1],
        bootstrap=1.0,
    )

    assert_allclose(advantages, [0.5, 0, 1.4], rtol=1e-6)


@every_implementation
def test_truncation_before_a_masked_step_still_bootstraps(implementation: Any) -> None:
    # 1 + 0.9*2 - 0.5 = 2.3
    advantages = compute(
        implementation,
        rewards=[1, 5],
        values=[0.5, 5],
        truncations=[1, 0],
        final_values=[2, 0],
        masks=[1, 0],
    )

    assert_allclose(advantages, [2.3, 0], rtol=1e-6)


@every_implementation
def test_ratios_are_clipped_apart_for_delta_and_for_decay(implementation: Any) -> None:
    # delta_1 = min(3, 2) * 1 = 2, delta_0 = min(0.5, 2) * 1 = 0.5
    # A_0 = 0.5 + 0.9*0.8*min(0.5, 0.25)*2 = 0.86
    advantages = compute(implementation, rewards=[1, 1], ratios=[0.5, 3], rho_clip=2.0, c_clip=0.25)

    assert_allclose(advantages, [0.86, 2], rtol=1e-6)


@every_implementation
def test_clips_do_nothing_without_ratios(implementation: Any) -> None:
    advantages = compute(implementation, rewards=[1, 1], rho_clip=0.1, c_clip=0.1)

    assert_allclose(advantages, [1.72, 1], rtol=1e-6)


def test_no_gradient_flows_into_advantages() -> None:
    values = torch.zeros(1, 3, requires_grad=True)
    flags = torch.zeros(1, 3, dtype=torch.bool)

    advantages = compute_advantages_torch(
        torch.ones(1, 3), values, torch.zeros(1), flags, flags, values, gamma=0.9, gae_lambda=0.8
    )

    assert not advantages.requires_grad


def slow_advantages(case: dict[str, Any]) -> NDArray[np.float64]:
    """The formula of advantage.py in float64, one step after another."""
    advantages = np.zeros(case["rewards"].shape)
    segments, horizon = advantages.shape
    for s in range(segments):
        following, next_value = 0.0, float(case["bootstrap"][s])
        for t in reversed(range(horizon)):
            step = {
                name: part[s, t]
                for name, part in case.items()
                if isinstance(part, np.ndarray) and part.ndim == 2
            }
            if not step.get("masks", True):
                following = next_value = 0.0
                continue
            if step["truncations"]:
                following, next_value = 0.0, float(step["final_values"])
            if step["terminals"]:
                following = next_value = 0.0
            ratio = float(step["ratios"]) if "ratios" in step else None
            rho = 1.0 if ratio is None else min(ratio, case["rho_clip"])
            c = 1.0 if ratio is None else min(ratio, case["c_clip"])
            delta = rho * (step["rewards"] + case["gamma"] * next_value - step["values"])
            following = delta + case["gamma"] * case["gae_lambda"] * c * following
            advantages[s, t], next_value = following, step["values"]
    return advantages


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    segments, horizon = draw(st.integers(1, 5)), draw(st.integers(1, 17))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (segments, horizon)

    def flags(share: float) -> NDArray[np.bool_]:
        return rng.random(shape) < share

    case: dict[str, Any] = {
        "rewards": rng.normal(size=shape).astype(np.float32),
        "values": rng.normal(size=shape).astype(np.float32),
        "bootstrap": rng.normal(size=segments).astype(np.float32),
        "final_values": rng.normal(size=shape).astype(np.float32),
        "terminals": flags(draw(st.sampled_from([0.0, 0.2, 1.0]))),
        "truncations": flags(draw(st.sampled_from([0.0, 0.2, 1.0]))),
        "gamma": draw(st.sampled_from([0.0, 0.9, 1.0])),
        "gae_lambda": draw(st.sampled_from([0.0, 0.8, 1.0])),
        "rho_clip": draw(st.sampled_from([0.5, 1.0, 2.0])),
        "c_clip": draw(st.sampled_from([0.5, 1.0])),
    }
    if draw(st.booleans()):
        case["masks"] = flags(0.7)
    if draw(st.booleans()):
        case["ratios"] = rng.lognormal(size=shape).astype(np.float32)
    return case


@every_implementation
@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_advantages_equal_a_slow_loop(implementation: Any, case: dict[str, Any]) -> None:
    tensors = {
        name: torch.from_numpy(part) if isinstance(part, np.ndarray) else part
        for name, part in case.items()
    }

    advantages = implementation(**tensors)

    assert_allclose(advantages.numpy(), slow_advantages(case), rtol=1e-4, atol=1e-4)


def test_float64_takes_the_torch_twin() -> None:
    flags = torch.zeros(2, 3, dtype=torch.bool)
    ones = torch.ones(2, 3, dtype=torch.float64)

    advantages = compute_advantages(
        ones, ones, ones[:, 0], flags, flags, ones, gamma=0.5, gae_lambda=0.0
    )

    assert advantages.dtype == torch.float64
    assert_allclose(advantages, np.full((2, 3), 0.5))
