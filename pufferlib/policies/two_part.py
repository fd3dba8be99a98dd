"""Two-part policies: `encode_observations` in rollouts, `decode_actions` in training.

The first takes one step with a cell, the second a sequence `[T, B]` with fast layers. The second
cannot reset its state inside of a sequence, so segments are cut where episodes begin.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from pufferlib.errors import UsageError
from pufferlib.policies.distributions import PolicyOutput, described, join_outputs, policy_output
from pufferlib.policies.hooks import hooks_of
from pufferlib.policies.recurrent import RecurrentState, map_state
from pufferlib.spaces import ActionLayout

_LAYERS: dict[Any, Any] = {nn.LSTMCell: nn.LSTM, nn.GRUCell: nn.GRU, nn.RNNCell: nn.RNN}
_WANTS_LAYERS: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # states as [1, B, H]


def is_two_part(policy_type: type) -> bool:
    """Return whether policies of a class have both parts, with actions for the second.

    A `decode_actions` that takes features only is the `decode` of `LSTMWrapper`.
    """
    decode = getattr(policy_type, "decode_actions", None)
    if decode is None or not hasattr(policy_type, "encode_observations"):
        return False
    params = list(inspect.signature(decode).parameters.values())[1:]
    required = [p for p in params if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return len(required) > 1 or any(p.kind is p.VAR_POSITIONAL for p in params)


def tie_cells(policy: nn.Module) -> None:
    """Give the layers `x` beside every cell `x_cell` the weights of the cell.

    Raises UsageError where their sizes differ.
    """
    for parent in list(policy.modules()):
        for name, cell in list(parent.named_children()):
            layers: Any = getattr(parent, name.removesuffix("_cell"), None)
            if type(cell) in _LAYERS and isinstance(layers, _LAYERS[type(cell)]):
                _tie(name, cell, layers)


def _tie(name: str, cell: Any, layers: Any) -> None:
    names = [part for part, _ in cell.named_parameters()]
    fits = (
        layers.num_layers == 1
        and not layers.bidirectional
        and not layers.proj_size
        and {f"{part}_l0" for part in names} == {part for part, _ in layers.named_parameters()}
        and (layers.input_size, layers.hidden_size) == (cell.input_size, cell.hidden_size)
    )
    if not fits:
        raise UsageError(
            f"`{name}` and `{name.removesuffix('_cell')}` must have the same sizes to share their "
            f"weights, but got {cell} and {layers}. Try one layer of the cell's sizes."
        )
    for part in names:
        setattr(layers, f"{part}_l0", getattr(cell, part))


class _Pieces(NamedTuple):
    """Runs of consecutive steps of similar length; only the first may begin an episode."""

    steps: Tensor  # [L, P]: the index of each step; shorter pieces are padded with their last
    lengths: Tensor  # [P]
    go_on: Tensor  # [P]: the piece continues the episode from before its segment


def decode_segments(
    policy: Any,
    observations: Any,
    actions: Tensor,
    state: RecurrentState,
    resets: Tensor | None,
    layout: ActionLayout,
) -> PolicyOutput:
    """Call `decode_actions` for segments `[S, T]`; return one output `[S*T, ...]` without a state.

    Observations are `[S*T, ...]`, actions `[S, T, ...]`; it gets discrete actions as int64.
    """
    segments, horizon = actions.shape[:2]
    taken = actions.flatten(0, 1)
    taken = taken if layout.num_continuous else taken.long()
    rows, outputs = [], []
    for pieces in _cut(segments, horizon, resets, taken.device):

        def pick(part: Tensor, steps: Tensor = pieces.steps) -> Tensor:
            return part[steps]

        before = _before(state, pieces, horizon)
        result = _decode(policy, map_state(pick, observations), pick(taken), before)
        output = policy_output(result, pieces.steps.numel(), layout)
        if output.distribution is not None or output.transforms:
            raise UsageError(
                "`decode_actions` must return logits, or mean and std, or a common distribution, "
                f"but got {described(result)}."
            )
        offsets = torch.arange(len(pieces.steps), device=taken.device).unsqueeze(1)
        real = offsets < pieces.lengths
        rows.append(pieces.steps[real])
        outputs.append(join_outputs([output], lambda parts: parts[0][real.flatten()]))  # noqa: B023
    order = torch.cat(rows).argsort()
    return join_outputs(outputs, lambda parts: torch.cat(parts)[order])


def _cut(segments: int, horizon: int, resets: Tensor | None, device: torch.device) -> list[_Pieces]:
    """Cut segments where episodes begin; in a group, no length is below half of the longest."""
    begins = torch.zeros(segments, horizon, dtype=torch.bool, device=device)
    if resets is not None:
        begins |= resets.bool()
    fresh = begins.flatten().clone()
    begins[:, 0] = True
    first = begins.flatten().nonzero().squeeze(1)
    lengths = torch.cat((first[1:], first.new_tensor([segments * horizon]))) - first
    groups, longest = [], horizon
    while longest:
        chosen = ((lengths <= longest) & (lengths > longest // 2)).nonzero().squeeze(1)
        if len(chosen):
            length, start = lengths[chosen], first[chosen]
            offsets = torch.arange(int(length.max()), device=device).unsqueeze(1)
            steps = start + torch.minimum(offsets, length - 1)
            groups.append(_Pieces(steps, length, ~fresh[start]))
        longest //= 2
    return groups


def _before(state: RecurrentState, pieces: _Pieces, horizon: int) -> RecurrentState:
    """Return the state before each piece: that of its segment, or zeros for a new episode."""
    segment = pieces.steps[0] // horizon

    def chosen(part: Tensor) -> Tensor:
        keep = pieces.go_on.view(-1, *(1,) * (part.dim() - 1))
        return part.index_select(0, segment).masked_fill(~keep, 0)

    return map_state(chosen, state)


def _decode(policy: Any, observations: Any, actions: Tensor, state: RecurrentState) -> Any:
    """Call `decode_actions` with the state as `encode_observations` returns it, or as [1, B, H].

    A state `[B, H]` of a cell fits nn.LSTM only with the dimension of layers, and no signature says
    which form a policy takes: the first call tries both on a copy.
    """
    if any(hooks_of(policy)):
        warnings.warn(
            "hooks of a two-part policy never run: its `encode_observations` and `decode_actions` "
            "are called. Try hooks of its layers.",
            stacklevel=2,
        )
    if state is None:
        return policy.decode_actions(observations, actions, None)
    layered = map_state(lambda part: part.unsqueeze(0).contiguous(), state)
    if policy not in _WANTS_LAYERS:
        twin, problems = copy.deepcopy(policy), []
        for form in (state, layered):
            try:
                with torch.no_grad(), torch.random.fork_rng():
                    twin.decode_actions(observations, actions, form)
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                problems.append(error)
            else:
                _WANTS_LAYERS[policy] = form is layered
                break
        else:
            raise problems[0]
    return policy.decode_actions(observations, actions, layered if _WANTS_LAYERS[policy] else state)
