"""Call any policy, for one step or for whole segments, and bring its answer into one form.

`policy_step` and `policy_sequence` return a `PolicyOutput`, which `distributions` works on.

What a policy may return from `forward(obs)`, B rows at a time:

- discrete actions: `(logits, value)`; logits `[B, sum(nvec)]`, or a list of one tensor a component
- Box actions: `(mean, std, value)` or `((mean, std), value)`
- both kinds at once: `(logits, mean, std, value)`
- a `torch.distributions` object in the place of the logits or of mean and std
- any of these with a recurrent state at the end, where `forward(obs, state=None)` takes one

`forward(obs, agent_ids)` is told which agent of its env each row belongs to. A policy that has both
`encode_observations(obs, state)` and `decode_actions(obs, actions, state)` answers through the
first in rollouts and through the second, over `[T, B]`, in training.

All of this goes through methods of the policy itself, never through what wraps it: hooks on the
`__call__` of a wrapper, such as those of DistributedDataParallel, see steps of rollouts only. Who
trains on several processes averages the gradients of the parameters themselves.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pufferlib.errors import UsageError
from pufferlib.policies.observations import (
    Observations,
    PolicySpaces,
    first_tensor,
    torch_dtype,
    unflatten_observations,
)
from pufferlib.policies.outputs import PolicyOutput, policy_output
from pufferlib.policies.recurrent import (
    RecurrentState,
    map_state,
    reset_columns,
    reset_state,
    tensors_of,
)
from pufferlib.policies.two_part import decode_segments, is_in_halves, tie_cells


def policy_step(
    policy: nn.Module,
    observations: Observations,
    state: RecurrentState,
    spaces: PolicySpaces,
    agent_ids: Tensor | None = None,
) -> PolicyOutput:
    """Ask `policy` about one step of B slots: observations `[B, *shape]`, its last state.

    `agent_ids` `[B]` says which agent of its env each slot is; without it the rows must be those of
    whole envs in order.
    """
    inputs = observations
    if spaces.observation.structured:
        inputs = unflatten_observations(observations, spaces.observation)
    is_rows = isinstance(observations, Tensor)
    batch = len(observations if is_rows else first_tensor(observations))
    if agent_ids is None and _call_of(policy).agent_ids:
        agent_ids = _agents_in_order(batch, spaces, observations)
    result = _asked(policy, inputs, _to_policy(policy, state), agent_ids)
    output = policy_output(result, batch, spaces.action)
    if output.state is None:
        if takes_state(policy):  # `state=None` is there for others to call it alike
            _STATELESS.add(unwrapped(policy))
        return output
    if not takes_state(policy):  # it would never get back what it remembers
        names = ", ".join(inspect.signature(type(unwrapped(policy)).forward).parameters)
        raise UsageError(
            "`forward` must take `state` where it returns one, but got a state from "
            f"forward({names}). Try forward(self, observations, state=None)."
        )
    return output._replace(state=_from_policy(policy, output.state, batch, inputs))


def policy_sequence(
    policy: nn.Module,
    observations: Observations,
    state: RecurrentState,
    resets: Tensor | None,
    spaces: PolicySpaces,
    agent_ids: Tensor | None = None,
    actions: Tensor | None = None,
) -> PolicyOutput:
    """Ask `policy` about whole segments: observations `[S, T, *shape]`; outputs are `[S*T, ...]`.

    `state` is that before the first step. Where `resets[s, t]` is true, step t begins an episode
    and sees a state of zeros. The state returned is that after the last step. `agent_ids` `[S]` is
    as for `policy_step`; `actions` `[S, T, ...]` are those taken, for policies that want them.

    A policy without state sees all steps at once. One with state is asked through
    `forward_sequence(obs, state, resets)` if it has one, which returns what `forward` does for
    `[S, T]`; through `decode_actions` if it has that, when no state is returned; else step by step.
    """
    is_rows = isinstance(observations, Tensor)
    segments, horizon = (observations if is_rows else first_tensor(observations)).shape[:2]
    if not takes_state(policy):
        flat = observations.flatten(0, 1) if is_rows else map_state(_flatten_steps, observations)
        if _call_of(policy).agent_ids:
            if agent_ids is None:
                agent_ids = _agents_in_order(segments, spaces, observations)
            agent_ids = agent_ids.repeat_interleave(horizon)
        return policy_step(policy, flat, None, spaces, agent_ids)
    module: Any = unwrapped(policy)
    if _call_of(policy).two_halves:
        if actions is None:
            raise TypeError("a policy with `decode_actions` needs the actions that were taken")
        rows = map_state(_flatten_steps, observations)
        inputs = unflatten_observations(rows, spaces.observation)
        return decode_segments(module, inputs, actions, state, resets, spaces.action)
    if hasattr(module, "forward_sequence"):
        inputs = unflatten_observations(observations, spaces.observation)
        named = {}
        if _takes_agent_ids(type(module).forward_sequence):
            if agent_ids is None:
                agent_ids = _agents_in_order(segments, spaces, observations)
            named["agent_ids"] = agent_ids
        result = module.forward_sequence(inputs, _to_policy(policy, state), resets, **named)
        output = policy_output(result, segments * horizon, spaces.action)
        if output.state is None or _STATE_DIMS.get(module) is None:
            return output
        return output._replace(state=_moved(output.state, _STATE_DIMS[module], back=False))

    steps = []
    for t, reset in enumerate(reset_columns(resets, horizon)):
        state = state if reset is None else reset_state(state, reset)
        now = map_state(partial(torch.select, dim=1, index=t), observations)
        steps.append(policy_step(policy, now, state, spaces, agent_ids))
        state = steps[-1].state
    return _joined(steps, state)


def prepare_policy(policy: nn.Module, spaces: PolicySpaces | None = None) -> nn.Module:
    """Tie what must be one; return the policy. Call it before an optimizer takes the parameters.

    A policy that steps by a cell (`lstm_cell`) and trains by layers of it (`lstm`) would else play
    with other weights than it learns: the layers get the parameters of the cell. With `spaces`,
    lazy layers get their sizes, from two rows of zeros.
    """
    if spaces is not None and any(map(is_lazy, (*policy.parameters(), *policy.buffers()))):
        layout, device = spaces.observation, next(policy.parameters()).device
        rows = torch.zeros(2, *layout.shape, dtype=torch_dtype(layout.dtype), device=device)
        with torch.no_grad(), in_eval_mode(policy):
            policy_step(policy, rows, None, spaces)
    if _call_of(policy).two_halves:
        tie_cells(unwrapped(policy))
    return policy


@contextmanager
def in_eval_mode(policy: nn.Module) -> Iterator[None]:
    """Ask `policy` meanwhile as it is to play: no dropout, running statistics as they are.

    Afterwards every module is in the mode that it was in.
    """
    training = [module for module in policy.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def takes_state(policy: nn.Module) -> bool:
    """Say whether `policy` is recurrent: `forward` has a parameter `state`, or it has two halves.

    The two halves are `encode_observations` and `decode_actions`. One that has been asked for a
    step and returned no state is not.
    """
    return _call_of(policy).state and unwrapped(policy) not in _STATELESS


def unwrapped(policy: nn.Module) -> nn.Module:
    """Return the module as written, from inside `torch.compile` and DistributedDataParallel."""
    while True:
        if isinstance(policy, nn.parallel.DistributedDataParallel):
            policy = policy.module
        elif "_orig_mod" in policy._modules:
            policy = policy.get_submodule("_orig_mod")
        else:
            return policy


_STATELESS: WeakSet[nn.Module] = WeakSet()  # take a state, but return none


class _Call(NamedTuple):
    """How a class of policies wants to be called."""

    state: bool
    agent_ids: bool
    two_halves: bool  # encode_observations and decode_actions in place of forward


def _call_of(policy: nn.Module) -> _Call:
    policy_type: Any = type(unwrapped(policy))
    return _call_of_type(policy_type)


@lru_cache(maxsize=256)
def _call_of_type(policy_type: Any) -> _Call:
    if is_in_halves(policy_type):
        return _Call(True, _takes_agent_ids(policy_type.encode_observations), True)
    names = inspect.signature(policy_type.forward).parameters
    return _Call("state" in names, "agent_ids" in names, False)


@lru_cache(maxsize=256)
def _takes_agent_ids(function: Any) -> bool:
    return "agent_ids" in inspect.signature(function).parameters


def _asked(
    policy: nn.Module, inputs: Observations, state: RecurrentState, agent_ids: Tensor | None
) -> Any:
    """Return what the policy returns for one step."""
    call = _call_of(policy)
    named: dict[str, Any] = {"agent_ids": agent_ids} if call.agent_ids else {}
    try:
        if call.two_halves:
            module: Any = unwrapped(policy)
            return module.encode_observations(inputs, state, **named)
        if call.state:
            named["state"] = state
        return policy(inputs, **named)
    except RuntimeError as error:
        if not is_mismatch(error):
            raise
        raise mismatch(error, "forward", inputs) from error


# what torch says of a tensor that does not fit a layer
_WRONG_TYPE = re.compile(r"dtype|\btypes?\b")
_MISMATCH = re.compile(rf"{_WRONG_TYPE.pattern}|shape|size|dimension|channels", re.IGNORECASE)


def is_mismatch(error: RuntimeError) -> bool:
    is_full = isinstance(error, torch.OutOfMemoryError)  # its text has sizes in it too
    return not is_full and _MISMATCH.search(str(error)) is not None


def mismatch(error: RuntimeError, method: str, inputs: Observations) -> UsageError:
    """Word an error of torch for the author of a policy: what its layers were given."""
    said = str(error).strip().partition("\n")[0].rstrip(".")
    if _WRONG_TYPE.search(said):
        is_float = isinstance(inputs, Tensor) and inputs.is_floating_point()
        hint = "a cast to what the layer takes" if is_float else "`.float()` before the first layer"
    else:
        is_rows = isinstance(inputs, Tensor) and inputs.dim() == 2
        hint = (
            "a first layer of that width" if is_rows else "`.flatten(1)`, or layers of that shape"
        )
    return UsageError(
        f"`{method}` must take observations of {_spelled(inputs)}, but raised: {said}. Try {hint}."
    )


def _spelled(tree: Observations) -> str:
    """Return shapes and dtypes of observations, by key where they have any."""
    if isinstance(tree, Tensor):
        return f"shape {tuple(tree.shape)} {str(tree.dtype).removeprefix('torch.')}"
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    return ", ".join(f"[{key!r}] {_spelled(part)}" for key, part in items)


def _flatten_steps(part: Tensor) -> Tensor:
    return part.flatten(0, 1)


def _agents_in_order(count: int, spaces: PolicySpaces, observations: Observations) -> Tensor:
    slots = torch.arange(count, device=first_tensor(observations).device)
    return slots % spaces.num_agents


def _joined(steps: list[PolicyOutput], state: RecurrentState) -> PolicyOutput:
    """Stack the outputs of T steps `[S, ...]` into one output `[S*T, ...]`."""

    def stacked(parts: list[Tensor | None]) -> Tensor | None:
        tensors = [part for part in parts if part is not None]
        return torch.stack(tensors, 1).flatten(0, 1) if tensors else None

    value, logits, mean, std = (stacked(list(parts)) for parts in list(zip(*steps))[:4])
    if value is None:
        raise TypeError("a policy gave no values")
    if any(step.distribution is not None or step.transforms for step in steps):
        return PolicyOutput(value, state=state, steps=tuple(steps))
    return PolicyOutput(value, logits, mean, std, state=state)


# --- states as policies write them ----------------------------------------------------------------
#
# We keep the batch first. nn.LSTM and nn.GRU keep layers first, and so do policies written around
# them: which dimension of each tensor is the batch is found once for each policy.

_STATE_DIMS: WeakKeyDictionary[nn.Module, tuple[int, ...]] = WeakKeyDictionary()


def _to_policy(policy: nn.Module, state: RecurrentState) -> RecurrentState:
    dims = None if state is None else _STATE_DIMS.get(unwrapped(policy))
    return state if dims is None or not any(dims) else _moved(state, dims, back=True)


def _from_policy(
    policy: nn.Module, state: RecurrentState, batch: int, inputs: Observations
) -> RecurrentState:
    module = unwrapped(policy)
    dims = _STATE_DIMS.get(module)
    tensors = tensors_of(state)
    if dims is None or not _fits(tensors, dims, batch):
        dims = _batch_dims(policy, tensors, batch, inputs)
        _STATE_DIMS[module] = dims
    return _moved(state, dims, back=False) if any(dims) else state


def _moved(state: RecurrentState, dims: tuple[int, ...], back: bool) -> RecurrentState:
    left = iter(dims)

    def move(part: Tensor) -> Tensor:
        dim = next(left)
        if dim == 0:
            return part
        return part.movedim(0, dim).contiguous() if back else part.movedim(dim, 0)

    return map_state(move, state)


def _fits(tensors: list[Tensor], dims: tuple[int, ...], batch: int) -> bool:
    return len(tensors) == len(dims) and all(
        part.dim() > dim and part.shape[dim] == batch
        for part, dim in zip(tensors, dims, strict=True)
    )


def _batch_dims(
    policy: nn.Module, tensors: list[Tensor], batch: int, inputs: Observations
) -> tuple[int, ...]:
    """Find the batch in each tensor of a state; where two fit, a copy of the policy is asked."""
    options = [[d for d, size in enumerate(part.shape) if size == batch] for part in tensors]
    unclear = [
        len(found) > 1 and part.dim() > 2 for found, part in zip(options, tensors, strict=True)
    ]
    if any(unclear):
        one_more = map_state(lambda rows: torch.cat((rows, rows[:1])), inputs)
        with torch.no_grad(), torch.random.fork_rng():
            nobody = torch.zeros(batch + 1, dtype=torch.int64, device=tensors[0].device)
            result = _asked(copy.deepcopy(unwrapped(policy)), one_more, None, nobody)
        for found, part, other in zip(options, tensors, tensors_of(result[-1]), strict=True):
            found[:] = [d for d in found if other.shape[d] != part.shape[d]]
    for found, part in zip(options, tensors, strict=True):
        if not found:
            raise UsageError(
                f"`state` must have the batch of {batch} as a dimension, best as the first, but "
                f"got a tensor of shape {tuple(part.shape)}."
            )
    return tuple(found[0] for found in options)
