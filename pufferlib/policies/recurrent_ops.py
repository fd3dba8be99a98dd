"""Recurrent cells over whole segments: each is one operation with a backward pass of its own.

An unrolled loop leaves ten small operations a step for the backward pass, and a product for the
gradient of the weights in each. Written out, the weights take one product for all steps, and what
lies between the products is one pass over memory in C (csrc/nn/recurrent_ops.c) on the CPU; torch's
own operations, the slow and obvious twin, do it elsewhere and in other precisions. Time comes first
here, `[T, S, ...]`. `kept` `[T, S, 1]` is 0 where a step begins an episode and 1 elsewhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pufferlib import native


def lstm_step(
    projected: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    """Return hidden and cell after one step, without a gradient; `projected` is `[B, 4 H]`."""
    gates = torch.addmm(projected, hidden, weight.t())
    if not _is_native(gates):
        outputs, next_cell, _ = _lstm_gates(gates, cell)
        return outputs, next_cell
    output, next_cell = torch.empty_like(cell), torch.empty_like(cell)
    native.lstm_forward(
        gates.numpy(), _array(cell), None, output.numpy(), None, next_cell.numpy(), None
    )
    return output, next_cell


def lstm_sequence(
    projected: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, kept: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return all outputs `[T, S, H]` of an LSTM and its last cell `[S, H]`.

    `projected` `[T, S, 4 H]` is what the inputs contribute to the gates, all biases included, and
    `weight` `[4 H, H]` what the hidden state does.
    """
    outputs, last = _LstmSequence.apply(projected, weight, hidden, cell, kept)  # type: ignore[no-untyped-call]
    return outputs, last


def gru_step(projected: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor) -> Tensor:
    """Return the hidden state after one step, without a gradient; `projected` is `[B, 3 H]`."""
    remembered = torch.addmm(bias, hidden, weight.t())
    if not _is_native(remembered):
        return _gru_gates(projected, remembered, hidden)[0]
    output = torch.empty_like(hidden)
    native.gru_forward(
        _array(projected), remembered.numpy(), _array(hidden), None, None, output.numpy(), None
    )
    return output


def gru_sequence(
    projected: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor, kept: Tensor | None
) -> Tensor:
    """Return all outputs `[T, S, H]` of a GRU; `bias` is that of the hidden state's part."""
    outputs: Tensor = _GruSequence.apply(projected, weight, bias, hidden, kept)  # type: ignore[no-untyped-call]
    return outputs


def mingru_sequence(projected: Tensor, start: Tensor, resets: Tensor | None) -> Tensor:
    """Return all states `[S, T, H]` of a MinGRU: here segments come first.

    `projected` `[S, T, 2 H]` holds the gate before its sigmoid, then the candidate.
    """
    if _is_native(projected):
        hidden: Tensor = _MinGruSequence.apply(projected, start, resets)  # type: ignore[no-untyped-call]
        return hidden
    gate, candidate = projected.chunk(2, -1)
    gate = gate.sigmoid()
    keep = 1 - gate
    if resets is not None:
        keep = keep.masked_fill(resets.bool().unsqueeze(-1), 0)
    return linear_scan(keep, gate * candidate, start)


def _is_native(tensor: Tensor) -> bool:
    return (
        tensor.device.type == "cpu"
        and tensor.dtype == torch.float32
        and not torch.compiler.is_compiling()
    )


def _array(tensor: Tensor | None) -> Any:
    """Return a tensor as the array that C reads."""
    return None if tensor is None else tensor.detach().contiguous().numpy()


def _next_kept(kept: Tensor | None, horizon: int) -> list[Any]:
    """Return what is kept between each step and the next; after the last, all."""
    return [None] * horizon if kept is None else [*_array(kept)[1:], None]


# --- LSTM -----------------------------------------------------------------------------------------


def _lstm_gates(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Make sums `[S, 4 H]` activations, in place; return output, next cell and its tanh."""
    width = cell.shape[1]
    gates[:, : 2 * width].sigmoid_()
    gates[:, 2 * width : 3 * width].tanh_()
    gates[:, 3 * width :].sigmoid_()
    write, keep, candidate, read = gates.chunk(4, 1)
    cell = torch.addcmul(keep * cell, write, candidate)
    squashed = cell.tanh()
    return read * squashed, cell, squashed


class _LstmSequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        weight: Tensor,
        hidden: Tensor,
        cell: Tensor,
        kept: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        horizon, segments, width = projected.shape[0], projected.shape[1], weight.shape[1]
        gates = projected.new_empty(horizon, segments, 4 * width)
        shape = (horizon, segments, width)
        outputs, squashed = projected.new_empty(shape), projected.new_empty(shape)
        # what each step begins with; one more, so that the last step writes like the others
        hiddens, cells = (projected.new_empty(horizon + 1, segments, width) for _ in range(2))
        hiddens[0], cells[0] = hidden, cell
        if kept is not None:
            hiddens[0] *= kept[0]
            cells[0] *= kept[0]
        recurrent = weight.t()
        if _is_native(projected):
            sums, before, after = gates.numpy(), cells.numpy(), hiddens.numpy()
            out, tanh, next_kept = outputs.numpy(), squashed.numpy(), _next_kept(kept, horizon)
            for t in range(horizon):
                torch.addmm(projected[t], hiddens[t], recurrent, out=gates[t])
                native.lstm_forward(
                    sums[t], before[t], next_kept[t], out[t], after[t + 1], before[t + 1], tanh[t]
                )
        else:
            for t in range(horizon):
                torch.addmm(projected[t], hiddens[t], recurrent, out=gates[t])
                outputs[t], cells[t + 1], squashed[t] = _lstm_gates(gates[t], cells[t])
                hiddens[t + 1] = outputs[t]
                if kept is not None and t + 1 < horizon:
                    hiddens[t + 1] *= kept[t + 1]
                    cells[t + 1] *= kept[t + 1]
        ctx.save_for_backward(gates, hiddens, cells, squashed, weight, kept)
        return outputs, cells[horizon].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gates, hiddens, cells, squashed, weight, kept = ctx.saved_tensors
        of_outputs, of_cell = grads[0].contiguous(), grads[1].clone()
        horizon = len(gates)
        of_gates, of_hidden = torch.empty_like(gates), torch.zeros_like(of_cell)
        if _is_native(gates):
            now, before, tanh = gates.numpy(), cells.numpy(), squashed.numpy()
            given, out, next_kept = of_outputs.numpy(), of_gates.numpy(), _next_kept(kept, horizon)
            later, of_before = of_hidden.numpy(), of_cell.numpy()
            for t in reversed(range(horizon)):
                native.lstm_backward(
                    now[t], before[t], tanh[t], next_kept[t], given[t], later, of_before, out[t]
                )
                torch.mm(of_gates[t], weight, out=of_hidden)
        else:
            for t in reversed(range(horizon)):
                if kept is not None and t + 1 < horizon:
                    of_hidden, of_cell = of_hidden * kept[t + 1], of_cell * kept[t + 1]
                of_cell = _lstm_gates_backward(
                    gates[t], cells[t], squashed[t], of_outputs[t] + of_hidden, of_cell, of_gates[t]
                )
                of_hidden = of_gates[t] @ weight
        if kept is not None:
            of_hidden, of_cell = of_hidden * kept[0], of_cell * kept[0]
        of_weight = of_gates.flatten(0, 1).t() @ hiddens[:horizon].flatten(0, 1)
        return of_gates, of_weight, of_hidden, of_cell, None


def _lstm_gates_backward(
    gates: Tensor,
    cell: Tensor,
    squashed: Tensor,
    of_hidden: Tensor,
    of_cell: Tensor,
    of_gates: Tensor,
) -> Tensor:
    """Write the gradient of the sums; return that of the cell before the step."""
    write, keep, candidate, read = gates.chunk(4, 1)
    of_cell = torch.addcmul(of_cell, of_hidden * read, 1 - squashed.square())
    parts = (
        of_cell * candidate * (write - write.square()),
        of_cell * cell * (keep - keep.square()),
        of_cell * write * (1 - candidate.square()),
        of_hidden * squashed * (read - read.square()),
    )
    torch.cat(parts, 1, out=of_gates)
    return of_cell * keep


# --- GRU ------------------------------------------------------------------------------------------


def _gru_gates(projected: Tensor, remembered: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output of a step and its gates `[S, 3 H]`."""
    width = hidden.shape[1]
    gates = (projected[:, : 2 * width] + remembered[:, : 2 * width]).sigmoid()
    read, keep = gates.chunk(2, 1)
    candidate = torch.addcmul(projected[:, 2 * width :], read, remembered[:, 2 * width :]).tanh()
    return torch.lerp(candidate, hidden, keep), torch.cat((gates, candidate), 1)


class _GruSequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        weight: Tensor,
        bias: Tensor,
        hidden: Tensor,
        kept: Tensor | None,
    ) -> Tensor:
        horizon, segments, width = projected.shape[0], projected.shape[1], weight.shape[1]
        projected = projected.contiguous()
        gates = projected.new_empty(horizon, segments, 3 * width)
        outputs, inner = (projected.new_empty(horizon, segments, width) for _ in range(2))
        hiddens = projected.new_empty(horizon + 1, segments, width)
        hiddens[0] = hidden
        if kept is not None:
            hiddens[0] *= kept[0]
        recurrent, remembered = weight.t(), projected.new_empty(segments, 3 * width)
        if _is_native(projected):
            given, now, out = _array(projected), gates.numpy(), outputs.numpy()
            before, sums, next_kept = hiddens.numpy(), remembered.numpy(), _next_kept(kept, horizon)
            for t in range(horizon):
                torch.addmm(bias, hiddens[t], recurrent, out=remembered)
                inner[t] = remembered[:, 2 * width :]
                native.gru_forward(
                    given[t], sums, before[t], next_kept[t], now[t], out[t], before[t + 1]
                )
        else:
            for t in range(horizon):
                torch.addmm(bias, hiddens[t], recurrent, out=remembered)
                inner[t] = remembered[:, 2 * width :]
                outputs[t], gates[t] = _gru_gates(projected[t], remembered, hiddens[t])
                hiddens[t + 1] = outputs[t]
                if kept is not None and t + 1 < horizon:
                    hiddens[t + 1] *= kept[t + 1]
        ctx.save_for_backward(gates, inner, hiddens, weight, kept)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gates, inner, hiddens, weight, kept = ctx.saved_tensors
        of_outputs = grads[0].contiguous()
        horizon = len(gates)
        of_projected, of_remembered = torch.empty_like(gates), torch.empty_like(gates)
        of_hidden = torch.zeros_like(inner[0])
        if _is_native(gates):
            now, sums, before = gates.numpy(), inner.numpy(), hiddens.numpy()
            given, next_kept = of_outputs.numpy(), _next_kept(kept, horizon)
            out, out_remembered = of_projected.numpy(), of_remembered.numpy()
            for t in reversed(range(horizon)):
                later = of_hidden.numpy()
                native.gru_backward(
                    now[t],
                    sums[t],
                    before[t],
                    next_kept[t],
                    given[t],
                    later,
                    out[t],
                    out_remembered[t],
                )
                of_hidden = torch.addmm(of_hidden, of_remembered[t], weight)
        else:
            for t in reversed(range(horizon)):
                if kept is not None and t + 1 < horizon:
                    of_hidden = of_hidden * kept[t + 1]
                of_hidden = of_hidden + of_outputs[t]
                read, keep, candidate = gates[t].chunk(3, 1)
                of_candidate = of_hidden * (1 - keep) * (1 - candidate.square())
                of_read = of_candidate * inner[t] * (read - read.square())
                of_keep = of_hidden * (hiddens[t] - candidate) * (keep - keep.square())
                torch.cat((of_read, of_keep, of_candidate), 1, out=of_projected[t])
                torch.cat((of_read, of_keep, of_candidate * read), 1, out=of_remembered[t])
                of_hidden = torch.addmm(of_hidden * keep, of_remembered[t], weight)
        if kept is not None:
            of_hidden = of_hidden * kept[0]
        flat = of_remembered.flatten(0, 1)
        of_weight = flat.t() @ hiddens[:horizon].flatten(0, 1)
        return of_projected, of_weight, flat.sum(0), of_hidden, None


# --- MinGRU ---------------------------------------------------------------------------------------


class _MinGruSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, start: Tensor, resets: Tensor | None) -> Tensor:
        projected, start = projected.contiguous(), start.contiguous()
        flags = None if resets is None else resets.to(torch.uint8).contiguous()
        hidden = start.new_empty(*projected.shape[:2], start.shape[1])
        native.mingru_forward(_array(projected), _array(start), _array(flags), hidden.numpy())
        ctx.save_for_backward(projected, start, flags, hidden)
        return hidden

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        projected, start, flags, hidden = ctx.saved_tensors
        of_projected, of_start = torch.empty_like(projected), torch.empty_like(start)
        arrays = [_array(part) for part in (projected, start, flags, hidden, grads[0])]
        native.mingru_backward(*arrays, of_projected.numpy(), of_start.numpy())
        return of_projected, of_start, None


def linear_scan(keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
    """Return `h_t = keep_t * h_{t-1} + add_t` for `[S, T, H]`, where h_{-1} is `start` `[S, H]`."""
    scanned: Tensor = _LinearScan.apply(keep, add, start)  # type: ignore[no-untyped-call]
    return scanned


class _LinearScan(torch.autograd.Function):
    """The scan and its gradient, which is the same scan run backwards in time."""

    @staticmethod
    def forward(ctx: Any, keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
        hidden = _scan(keep, add, start)
        ctx.save_for_backward(keep, hidden, start)
        return hidden

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keep, hidden, start = ctx.saved_tensors
        # dL/dh_t = grad_t + keep_{t+1} * dL/dh_{t+1}; nothing comes from beyond the last step
        following = torch.cat((keep[:, 1:], torch.zeros_like(keep[:, :1])), 1)
        grad_add = _scan(following, grads[0], torch.zeros_like(start), backwards=True)
        previous = torch.cat((start.unsqueeze(1), hidden[:, :-1]), 1)
        return grad_add * previous, grad_add, grad_add[:, 0] * keep[:, 0]


def _scan(keep: Tensor, add: Tensor, start: Tensor, backwards: bool = False) -> Tensor:
    if keep.device.type == "cpu":
        return _scan_by_step(keep, add, start, backwards)
    if backwards:
        return _scan_by_doubling(keep.flip(1), add.flip(1), start).flip(1)
    return _scan_by_doubling(keep, add, start)


def _scan_by_step(keep: Tensor, add: Tensor, start: Tensor, backwards: bool = False) -> Tensor:
    """Go through time once: the least work, one kernel a step."""
    hidden = torch.empty(add.shape, dtype=add.dtype, device=add.device)
    views = list(zip(add.unbind(1), keep.unbind(1), hidden.unbind(1), strict=True))
    for added, kept, out in reversed(views) if backwards else views:
        start = torch.addcmul(added, kept, start, out=out)
    return hidden


def _scan_by_doubling(keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
    """Join spans of 1, 2, 4, ... steps: log2(T) rounds, where launching a kernel is dear."""
    hidden = add.clone()
    hidden[:, 0] += keep[:, 0] * start
    span = 1
    while span < add.shape[1]:
        # over two spans: h of the later one + its keep * h of the earlier one
        joined = torch.addcmul(hidden[:, span:], keep[:, span:], hidden[:, :-span])
        hidden = torch.cat((hidden[:, :span], joined), 1)
        keep = torch.cat((keep[:, :span], keep[:, span:] * keep[:, :-span]), 1)
        span *= 2
    return hidden
