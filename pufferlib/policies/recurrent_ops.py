"""Recurrent ops over whole segments: each is one autograd operation with its own backward pass.

An unrolled loop leaves ten small operations per step for the backward pass, and one product per
step for the gradient of the weights. Here the weights take one product for all steps. The
elementwise part between the products is a kernel: one pass over memory in C
(csrc/nn/recurrent_ops.c) for float32 on the CPU, and elsewhere its slow, obvious twin in torch,
which takes the same arguments. Time comes first here, `[T, S, ...]`. `kept` `[T, S, 1]` is 0 where
a step begins an episode and 1 elsewhere.
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
    output, next_cell = cell.new_empty(cell.shape), cell.new_empty(cell.shape)
    forward = native.lstm_forward if _is_native(gates) else _lstm_forward
    forward(*_operands(gates, cell, None, output, None, next_cell, None))
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
    output = hidden.new_empty(hidden.shape)
    forward = native.gru_forward if _is_native(remembered) else _gru_forward
    forward(*_operands(projected, remembered, hidden, None, None, output, None))
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
    """Return whether the kernels in C take a tensor."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype == torch.float32
        and not torch.compiler.is_compiling()
    )


def _operands(first: Tensor, *others: Tensor | None) -> list[Any]:
    """Return tensors as a kernel takes them: arrays for C, themselves for torch.

    A kernel writes into its results, which must be contiguous: else C would get a copy.
    """
    parts = (first, *others)
    if not _is_native(first):
        return list(parts)
    return [None if part is None else part.detach().contiguous().numpy() for part in parts]


def _starts(projected: Tensor, start: Tensor, kept: Tensor | None) -> Tensor:
    """Return what each of T steps begins with, `[T + 1, S, H]`: the first, and room for the rest.

    One more than there are steps, so that the last step writes like the others.
    """
    starts = projected.new_empty(len(projected) + 1, *start.shape)
    starts[0] = start
    if kept is not None:
        starts[0] *= kept[0]
    return starts


def _next_kept(like: Tensor, kept: Tensor | None) -> list[Any]:
    """Return what is kept between each of T steps and the next; after the last, all."""
    if kept is None:
        return [None] * len(like)
    return [*_operands(like, kept)[1][1:], None]


# --- LSTM -----------------------------------------------------------------------------------------


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
        shape = (*projected.shape[:2], weight.shape[1])
        gates = projected.new_empty(projected.shape)
        outputs, squashed = projected.new_empty(shape), projected.new_empty(shape)
        hiddens, cells = (_starts(projected, start, kept) for start in (hidden, cell))
        recurrent, next_kept = weight.t(), _next_kept(gates, kept)
        forward = native.lstm_forward if _is_native(gates) else _lstm_forward
        now, begin, then, out, tanh = _operands(gates, cells, hiddens, outputs, squashed)
        for t in range(len(gates)):
            torch.addmm(projected[t], hiddens[t], recurrent, out=gates[t])
            forward(now[t], begin[t], next_kept[t], out[t], then[t + 1], begin[t + 1], tanh[t])
        ctx.save_for_backward(gates, hiddens, cells, squashed, weight, kept)
        return outputs, cells[-1].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gates, hiddens, cells, squashed, weight, kept = ctx.saved_tensors
        of_outputs, of_cell = grads[0], grads[1].clone(memory_format=torch.contiguous_format)
        of_gates, of_hidden = torch.empty_like(gates), torch.zeros_like(of_cell)
        next_kept = _next_kept(gates, kept)
        backward = native.lstm_backward if _is_native(gates) else _lstm_backward
        now, begin, tanh, given = _operands(gates, cells, squashed, of_outputs)
        out, of_next, of_begin = _operands(of_gates, of_hidden, of_cell)
        for t in reversed(range(len(gates))):
            backward(now[t], begin[t], tanh[t], next_kept[t], given[t], of_next, of_begin, out[t])
            torch.mm(of_gates[t], weight, out=of_hidden)
        if kept is not None:
            of_hidden, of_cell = of_hidden * kept[0], of_cell * kept[0]
        of_weight = of_gates.flatten(0, 1).t() @ hiddens[:-1].flatten(0, 1)
        return of_gates, of_weight, of_hidden, of_cell, None


def _lstm_forward(
    gates: Tensor,
    cell: Tensor,
    kept: Tensor | None,
    output: Tensor,
    next_hidden: Tensor | None,
    next_cell: Tensor,
    squashed: Tensor | None,
) -> None:
    """The twin of puf_lstm_forward; sums in `gates` become activations."""
    width = cell.shape[1]
    gates[:, : 2 * width].sigmoid_()
    gates[:, 2 * width : 3 * width].tanh_()
    gates[:, 3 * width :].sigmoid_()
    write, keep, candidate, read = gates.chunk(4, 1)
    after = torch.addcmul(keep * cell, write, candidate)
    tanh = after.tanh()
    torch.mul(read, tanh, out=output)
    next_cell.copy_(after if kept is None else after * kept)
    if next_hidden is not None:
        next_hidden.copy_(output if kept is None else output * kept)
    if squashed is not None:
        squashed.copy_(tanh)


def _lstm_backward(
    gates: Tensor,
    cell: Tensor,
    squashed: Tensor,
    kept: Tensor | None,
    of_output: Tensor,
    of_hidden: Tensor,
    of_cell: Tensor,
    of_gates: Tensor,
) -> None:
    """The twin of puf_lstm_backward; `of_cell` becomes the gradient of the cell before the step."""
    if kept is not None:
        of_hidden, of_after = of_hidden * kept, of_cell * kept
    else:
        of_after = of_cell
    write, keep, candidate, read = gates.chunk(4, 1)
    of_hidden = of_output + of_hidden
    of_after = torch.addcmul(of_after, of_hidden * read, 1 - squashed.square())
    parts = (
        of_after * candidate * (write - write.square()),
        of_after * cell * (keep - keep.square()),
        of_after * write * (1 - candidate.square()),
        of_hidden * squashed * (read - read.square()),
    )
    torch.cat(parts, 1, out=of_gates)
    torch.mul(of_after, keep, out=of_cell)


# --- GRU ------------------------------------------------------------------------------------------


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
        width = weight.shape[1]
        gates = projected.new_empty(projected.shape)
        outputs, inner = (projected.new_empty(*gates.shape[:2], width) for _ in range(2))
        hiddens, remembered = _starts(projected, hidden, kept), torch.empty_like(gates[0])
        recurrent, next_kept = weight.t(), _next_kept(gates, kept)
        forward = native.gru_forward if _is_native(gates) else _gru_forward
        given, sums, begin, now, out = _operands(projected, remembered, hiddens, gates, outputs)
        for t in range(len(gates)):
            torch.addmm(bias, hiddens[t], recurrent, out=remembered)
            inner[t] = remembered[:, 2 * width :]
            forward(given[t], sums, begin[t], next_kept[t], now[t], out[t], begin[t + 1])
        ctx.save_for_backward(gates, inner, hiddens, weight, kept)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gates, inner, hiddens, weight, kept = ctx.saved_tensors
        of_projected, of_remembered = torch.empty_like(gates), torch.empty_like(gates)
        of_hidden, next_kept = torch.zeros_like(inner[0]), _next_kept(gates, kept)
        backward = native.gru_backward if _is_native(gates) else _gru_backward
        now, sums, begin, given = _operands(gates, inner, hiddens, grads[0])
        of_next, out, of_sums = _operands(of_hidden, of_projected, of_remembered)
        for t in reversed(range(len(gates))):
            step = (now[t], sums[t], begin[t], next_kept[t], given[t])
            backward(*step, of_next, out[t], of_sums[t])
            of_hidden.addmm_(of_remembered[t], weight)
        if kept is not None:
            of_hidden = of_hidden * kept[0]
        flat = of_remembered.flatten(0, 1)
        of_weight = flat.t() @ hiddens[:-1].flatten(0, 1)
        return of_projected, of_weight, flat.sum(0), of_hidden, None


def _gru_forward(
    projected: Tensor,
    remembered: Tensor,
    hidden: Tensor,
    kept: Tensor | None,
    gates: Tensor | None,
    output: Tensor,
    next_hidden: Tensor | None,
) -> None:
    """The twin of puf_gru_forward."""
    width = hidden.shape[1]
    both = (projected[:, : 2 * width] + remembered[:, : 2 * width]).sigmoid()
    read, keep = both.chunk(2, 1)
    candidate = torch.addcmul(projected[:, 2 * width :], read, remembered[:, 2 * width :]).tanh()
    torch.lerp(candidate, hidden, keep, out=output)
    if gates is not None:
        torch.cat((both, candidate), 1, out=gates)
    if next_hidden is not None:
        next_hidden.copy_(output if kept is None else output * kept)


def _gru_backward(
    gates: Tensor,
    inner: Tensor,
    hidden: Tensor,
    kept: Tensor | None,
    of_output: Tensor,
    of_hidden: Tensor,
    of_projected: Tensor,
    of_remembered: Tensor,
) -> None:
    """The twin of puf_gru_backward; `of_hidden` becomes what does not go through `remembered`."""
    of_step = of_output + (of_hidden if kept is None else of_hidden * kept)
    read, keep, candidate = gates.chunk(3, 1)
    of_candidate = of_step * (1 - keep) * (1 - candidate.square())
    of_read = of_candidate * inner * (read - read.square())
    of_keep = of_step * (hidden - candidate) * (keep - keep.square())
    torch.cat((of_read, of_keep, of_candidate), 1, out=of_projected)
    torch.cat((of_read, of_keep, of_candidate * read), 1, out=of_remembered)
    torch.mul(of_step, keep, out=of_hidden)


# --- MinGRU ---------------------------------------------------------------------------------------


class _MinGruSequence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, start: Tensor, resets: Tensor | None) -> Tensor:
        flags = None if resets is None else resets.to(torch.uint8)
        hidden = start.new_empty(*projected.shape[:2], start.shape[1])
        native.mingru_forward(*_operands(projected, start, flags, hidden))
        ctx.save_for_backward(projected, start, flags, hidden)
        return hidden

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        projected, start = ctx.saved_tensors[:2]
        of_projected, of_start = projected.new_empty(projected.shape), start.new_empty(start.shape)
        native.mingru_backward(*_operands(*ctx.saved_tensors, grads[0], of_projected, of_start))
        return of_projected, of_start, None


def linear_scan(keep: Tensor, add: Tensor, start: Tensor) -> Tensor:
    """Return `h_t = keep_t * h_{t-1} + add_t` for `[S, T, H]`, where h_{-1} is `start` `[S, H]`.

    Joins spans of 1, 2, 4, ... steps: log2(T) rounds, for devices with slow launches.
    """
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
