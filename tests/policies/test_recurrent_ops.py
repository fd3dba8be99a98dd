"""The cells in C against their twins in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from pufferlib import native
from pufferlib.policies.recurrent_ops import (
    gru_sequence,
    gru_step,
    lstm_sequence,
    lstm_step,
    mingru_sequence,
)

SHAPES = [(1, 1, 1), (5, 3, 7), (4, 6, 16), (3, 2, 130)]  # horizon, segments, width
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
with_resets = pytest.mark.parametrize("share", [None, 0.4, 1.0])


def randoms(*shapes: tuple[int, ...], spread: float = 0.3) -> list[Tensor]:
    """Return parameters; their twins in double precision take the way of torch."""
    torch.manual_seed(0)
    return [(spread * torch.randn(shape)).requires_grad_() for shape in shapes]


def resets_of(share: float | None, segments: int, horizon: int) -> Tensor | None:
    return None if share is None else torch.rand(segments, horizon) < share


def assert_twins_agree(function: Any, inputs: list[Tensor]) -> None:
    doubles = [part.detach().double().requires_grad_() for part in inputs]
    fast, slow = function(*inputs), function(*doubles)
    fast, slow = (part if isinstance(part, tuple) else (part,) for part in (fast, slow))
    weights = [torch.randn(part.shape) for part in fast]

    for one, other in zip(fast, slow, strict=True):
        assert one.dtype == torch.float32
        assert_close(one.double(), other, atol=3e-6, rtol=1e-5)
    grads, wanted = (
        torch.autograd.grad(
            sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True)), given
        )
        for parts, given in ((fast, inputs), (slow, doubles))
    )
    for one, other in zip(grads, wanted, strict=True):
        assert_close(one.double(), other, atol=3e-5, rtol=1e-4)


@every_shape
@with_resets
def test_lstm_in_c_equals_that_in_torch(shape: tuple[int, int, int], share: float | None) -> None:
    horizon, segments, width = shape
    resets = resets_of(share, segments, horizon)

    def run(*inputs: Tensor) -> Any:
        kept = None if resets is None else (~resets).t().unsqueeze(-1).to(inputs[0].dtype)
        return lstm_sequence(*inputs, kept)

    state = (segments, width)
    inputs = randoms((horizon, segments, 4 * width), (4 * width, width), state, state)
    assert_twins_agree(run, inputs)


@every_shape
@with_resets
def test_gru_in_c_equals_that_in_torch(shape: tuple[int, int, int], share: float | None) -> None:
    horizon, segments, width = shape
    resets = resets_of(share, segments, horizon)

    def run(*inputs: Tensor) -> Any:
        kept = None if resets is None else (~resets).t().unsqueeze(-1).to(inputs[0].dtype)
        return gru_sequence(*inputs, kept)

    sums, weight, bias = (horizon, segments, 3 * width), (3 * width, width), (3 * width,)
    assert_twins_agree(run, randoms(sums, weight, bias, (segments, width)))


@every_shape
@with_resets
def test_mingru_in_c_equals_that_in_torch(shape: tuple[int, int, int], share: float | None) -> None:
    horizon, segments, width = shape
    resets = resets_of(share, segments, horizon)

    def run(*inputs: Tensor) -> Any:
        return mingru_sequence(*inputs, resets)

    assert_twins_agree(run, randoms((segments, horizon, 2 * width), (segments, width)))


@every_shape
def test_one_step_is_the_first_of_a_segment(shape: tuple[int, int, int]) -> None:
    _, batch, width = shape
    with torch.no_grad():
        state = (batch, width)
        sums, weight, hidden, cell = randoms((batch, 4 * width), (4 * width, width), state, state)
        output, next_cell = lstm_step(sums, weight, hidden, cell)
        outputs, last = lstm_sequence(sums.unsqueeze(0), weight, hidden, cell, None)
        assert_close(outputs[0], output)
        assert_close(last, next_cell)

        sums, weight, bias, hidden = randoms(
            (batch, 3 * width), (3 * width, width), (3 * width,), state
        )
        output = gru_step(sums, weight, bias, hidden)
        assert_close(gru_sequence(sums.unsqueeze(0), weight, bias, hidden, None)[0], output)


@pytest.mark.parametrize("size", [30.0, 300.0, 1e30])
def test_gates_far_from_zero_stay_finite(size: float) -> None:
    sums, weight, hidden, cell = randoms((3, 2, 32), (32, 8), (2, 8), (2, 8))
    extreme = (sums.detach().sign() * size).requires_grad_()

    outputs, last = lstm_sequence(extreme, weight, hidden, cell, None)
    (outputs.sum() + last.sum()).backward()  # type: ignore[no-untyped-call]
    scanned = mingru_sequence(extreme.detach().requires_grad_(), torch.zeros(3, 16), None)

    assert outputs.isfinite().all()
    assert (outputs.abs() <= 1).all()
    assert extreme.grad is not None
    assert extreme.grad.isfinite().all()
    assert scanned.isfinite().all()


def test_what_is_not_a_number_is_not_hidden() -> None:
    sums, weight, hidden, cell = randoms((2, 3, 32), (32, 8), (3, 8), (3, 8))
    with torch.no_grad():
        sums[0, 1, 5] = torch.nan
        outputs, _ = lstm_sequence(sums, weight, hidden, cell, None)

    assert outputs[0, 1, 5].isnan()
    assert outputs[1, 1].isnan().all()
    assert outputs[:, [0, 2]].isfinite().all()


def test_sigmoid_is_as_good_as_torchs() -> None:
    # a MinGRU that comes from 0 gives, for candidate 1, its gate
    x = torch.linspace(-40, 40, 100_001)
    projected = torch.stack((x, torch.ones_like(x)), -1).view(-1, 1, 2)

    gates = mingru_sequence(projected, torch.zeros(len(x), 1), None).flatten()

    assert_close(gates.double(), x.double().sigmoid(), atol=1e-7, rtol=1e-6)


def test_arrays_that_do_not_fit_are_refused() -> None:
    zeros = np.zeros((2, 3), np.float32)
    gates = np.zeros((2, 12), np.float32)
    with pytest.raises(ValueError, match="fit"):
        native.lstm_forward(zeros, zeros, None, zeros, None, zeros, None)
    with pytest.raises(ValueError, match="row"):
        native.lstm_forward(gates, zeros, zeros, zeros.copy(), None, zeros.copy(), None)
    with pytest.raises(ValueError, match="rows, width"):
        native.lstm_forward(gates, gates.ravel(), None, zeros, None, zeros, None)
    with pytest.raises(ValueError, match="fit"):
        native.gru_forward(gates, gates, zeros, None, None, zeros, None)
    with pytest.raises(ValueError, match="fit"):
        native.mingru_forward(np.zeros((2, 5, 7), np.float32), zeros, None, zeros)
    with pytest.raises(ValueError, match="like projected"):
        native.mingru_forward(np.zeros((2, 5, 6), np.float32), zeros, None, zeros)
