"""GAE and V-trace beside slow, obvious formulas, in every implementation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from pufferlib.training.ppo import Steps, compute_advantages, compute_advantages_torch

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
    advantages = implementation(Steps(**rows, **flags), bootstrap, **settings_)
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

    steps = Steps(torch.ones(1, 3), values, flags, flags, values)
    advantages = compute_advantages_torch(steps, torch.zeros(1), gamma=0.9, gae_lambda=0.8)

    assert not advantages.requires_grad


def slow_advantages(case: dict[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The formula of advantage.py in float64, a step of all segments after another.

    The second result is the same sum over absolute values: what rounding errors are relative to,
    where terms cancel.
    """
    parts = {
        name: part.astype(np.float64) if part.dtype == np.float32 else part
        for name, part in case.items()
        if isinstance(part, np.ndarray)
    }
    gamma, gae_lambda = case["gamma"], case["gae_lambda"]
    segments, horizon = parts["rewards"].shape
    advantages, sizes = np.zeros((segments, horizon)), np.zeros((segments, horizon))
    following, size_after = np.zeros(segments), np.zeros(segments)
    next_value = parts["bootstrap"]
    for t in reversed(range(horizon)):
        step = {name: part[:, t] for name, part in parts.items() if part.ndim == 2}
        ended = step["terminals"] | step["truncations"]
        next_value = np.where(step["truncations"], step["final_values"], next_value)
        next_value = np.where(step["terminals"], 0.0, next_value)
        following, size_after = np.where(ended, 0.0, following), np.where(ended, 0.0, size_after)
        ratio = step.get("ratios", np.full(segments, np.inf))
        rho = np.minimum(ratio, case["rho_clip"]) if "ratios" in step else 1.0
        c = np.minimum(ratio, case["c_clip"]) if "ratios" in step else 1.0
        delta = step["rewards"] + gamma * next_value - step["values"]
        delta_size = abs(step["rewards"]) + gamma * abs(next_value) + abs(step["values"])
        present = step.get("masks", np.ones(segments, dtype=bool))
        following = np.where(present, rho * delta + gamma * gae_lambda * c * following, 0.0)
        size_after = np.where(present, rho * delta_size + gamma * gae_lambda * c * size_after, 0.0)
        next_value = np.where(present, step["values"], 0.0)
        advantages[:, t], sizes[:, t] = following, size_after
    return advantages, sizes


SEGMENTS, EXAMPLES = 100, 100  # each segment is a case of its own: 10,000 for each implementation


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    horizon = draw(st.sampled_from([1, 2, 3, 8, 17, 64, 128]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (SEGMENTS, horizon)
    scale = np.float32(draw(st.sampled_from([1e-3, 1.0, 1e4])))

    def flags() -> NDArray[np.bool_]:
        return rng.random(shape) < rng.choice([0.0, 0.05, 0.3, 1.0], size=(SEGMENTS, 1))

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32) * scale

    case: dict[str, Any] = {
        "rewards": normal(*shape),
        "values": normal(*shape),
        "bootstrap": normal(SEGMENTS),
        "final_values": normal(*shape),
        "terminals": flags(),
        "truncations": flags(),
        "gamma": draw(st.floats(0, 1)),
        "gae_lambda": draw(st.floats(0, 1)),
        "rho_clip": draw(st.sampled_from([0.5, 1.0, 2.0])),
        "c_clip": draw(st.sampled_from([0.5, 1.0])),
    }
    if draw(st.booleans()):
        case["masks"] = ~flags()
        for name in ("rewards", "values", "final_values"):
            case[name][~case["masks"]] = np.nan
    if draw(st.booleans()):
        case["ratios"] = rng.lognormal(size=shape).astype(np.float32)
    return case


@every_implementation
@settings(max_examples=EXAMPLES, deadline=None)
@given(case=cases())
def test_advantages_equal_a_slow_loop(implementation: Any, case: dict[str, Any]) -> None:
    tensors = {
        name: torch.from_numpy(part) if isinstance(part, np.ndarray) else part
        for name, part in case.items()
    }

    steps = Steps(**{name: tensors.pop(name) for name in Steps._fields if name in tensors})
    advantages = implementation(steps, **tensors)

    with np.errstate(invalid="ignore"):  # what is masked may be nan
        expected, sizes = slow_advantages(case)
    errors = np.abs(advantages.numpy() - expected)
    assert (errors <= 1e-5 * sizes).all()


def test_c_and_torch_agree_bit_for_bit_or_nearly() -> None:
    rng = np.random.default_rng(0)
    shape = (64, 128)
    parts = [torch.from_numpy(rng.normal(size=shape).astype(np.float32)) for _ in range(3)]
    ends = [torch.from_numpy(rng.random(shape) < 0.05) for _ in range(2)]
    masks = torch.from_numpy(rng.random(shape) < 0.9)
    ratios = torch.from_numpy(rng.lognormal(size=shape).astype(np.float32))
    given_ = (Steps(parts[0], parts[1], *ends, parts[2], masks, ratios), parts[2][:, 0])

    in_c = compute_advantages(*given_, gamma=0.99, gae_lambda=0.95)
    in_torch = compute_advantages_torch(*given_, gamma=0.99, gae_lambda=0.95)

    assert_allclose(in_c, in_torch, rtol=1e-5, atol=1e-5)


def test_float64_takes_the_torch_twin() -> None:
    flags = torch.zeros(2, 3, dtype=torch.bool)
    ones = torch.ones(2, 3, dtype=torch.float64)

    steps = Steps(ones, ones, flags, flags, ones)
    advantages = compute_advantages(steps, ones[:, 0], gamma=0.5, gae_lambda=0.0)

    assert advantages.dtype == torch.float64
    assert_allclose(advantages, np.full((2, 3), 0.5))
