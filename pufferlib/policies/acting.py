"""Call any policy, and act with it.

`Actor` turns observations into actions, for rollouts, evaluation, `predict` and self-play. Below it
`policy_step` and `policy_sequence` call a policy for one step or for whole segments and return a
`PolicyOutput`, which `distributions` works on.

A policy may return from `forward(obs)`, for B rows:

- discrete actions: `(logits, value)`; logits `[B, sum(nvec)]`, or a list with one per component
- Box actions: `(mean, std, value)` or `((mean, std), value)`
- discrete and Box actions: `(logits, mean, std, value)`
- a `torch.distributions` object in the place of the logits or of mean and std
- any of these with a recurrent state at the end, where `forward(obs, state=None)` takes one

`forward(obs, agent_ids)` also gets the index of each row's agent in its env. A *two-part policy*
has `encode_observations(obs, state)`, called in rollouts, and `decode_actions(obs, actions,
state)`, called over `[T, B]` in training.

Methods are called on the policy itself, never on its wrapper: hooks on the `__call__` of a wrapper,
such as those of DistributedDataParallel, see steps of rollouts only. Training on several processes
therefore averages the gradients of the parameters directly.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pufferlib.env import AgentIds
from pufferlib.errors import UsageError
from pufferlib.policies.distributions import (
    PolicyOutput,
    env_actions,
    join_outputs,
    mode,
    policy_output,
    sample,
)
from pufferlib.policies.hooks import hooks_of
from pufferlib.policies.normalisation import ObservationNorm
from pufferlib.policies.observations import (
    Observations,
    PolicySpaces,
    observation_rows,
    torch_dtype,
    unflatten_observations,
)
from pufferlib.policies.recurrent import (
    RecurrentState,
    map_state,
    reset_columns,
    reset_state,
    tensors_of,
)
from pufferlib.policies.two_part import decode_segments, is_two_part, tie_cells
from pufferlib.spaces import ActionLayout, Array


class Decision(NamedTuple):
    """Actions of a policy for B observations."""

    actions: Tensor  # [B, *shape], as a rollout stores them
    logprobs: Tensor  # [B]; zeros for deterministic actions
    values: Tensor  # [B]
    state: RecurrentState  # the one after this step
    env_actions: Tensor  # [B, ...], as the env takes them


class Actor:
    """A policy with what it needs to act in an env: spaces, normalisation, random numbers.

    Only `observe` applies `normalise`, so that a rollout can store what the policy saw. `acting`
    enters `autocast`. Without a generator, actions come from torch's global one.
    """

    def __init__(
        self,
        policy: nn.Module,
        spaces: PolicySpaces,
        device: torch.device,
        *,
        normalise: ObservationNorm | Callable[[Tensor], Tensor] | None = None,
        generator: torch.Generator | None = None,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.policy, self.spaces, self.device = policy, spaces, device
        self.normalise, self.generator, self._autocast = normalise, generator, autocast

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Enter the mode in which a policy acts: no gradients, no dropout, the run's precision."""
        with torch.no_grad(), self._autocast(), in_eval_mode(self.policy):
            yield

    def observe(
        self, observations: Array, masks: Tensor | None = None, ends_step: bool = False
    ) -> Tensor:
        """Return observations `[B, *shape]` on the policy's device, normalised.

        With `masks` `[B]` the statistics of the normalisation are updated from the rows that carry
        data. `ends_step` is true for the last rows of a step, in place of a call of `end_step`.
        """
        rows = on_device(observations, self.device)
        if self.normalise is None:
            return rows
        if masks is not None and isinstance(self.normalise, ObservationNorm):
            self.normalise.note(rows, masks)
            if ends_step:
                self.normalise.end_step()
        return self.normalise(rows)

    def end_step(self) -> None:
        """End a step in which every slot acted; see `ObservationNorm.end_step`."""
        if isinstance(self.normalise, ObservationNorm):
            self.normalise.end_step()

    def values(
        self, observations: Array, state: RecurrentState, agent_ids: Tensor | None = None
    ) -> Tensor:
        """Return the values `[B]` of observations from the env."""
        return self.output(self.observe(observations), state, agent_ids).value.float()

    def output(
        self, observations: Tensor, state: RecurrentState, agent_ids: Tensor | None = None
    ) -> PolicyOutput:
        """Return the policy's output for observations from `observe`; see `policy_step`."""
        return policy_step(self.policy, observations, state, self.spaces, agent_ids)

    def act(
        self,
        observations: Tensor,
        state: RecurrentState,
        *,
        action_masks: Tensor | None = None,
        agent_ids: Tensor | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose actions for observations from `observe`; `state` is the one before this step."""
        output = self.output(observations, state, agent_ids)
        return decide(output, self.spaces.action, action_masks, self.generator, deterministic)

    def predict(
        self,
        observations: Any,
        state: RecurrentState,
        deterministic: bool,
        action_masks: ArrayLike | None,
        agent_ids: AgentIds = None,
    ) -> tuple[Array, RecurrentState]:
        """Act on observations in any form of an env; return actions and the next state."""
        layout, by_agent = self.spaces.observation, isinstance(observations, Mapping)
        if agent_ids and by_agent and observations.keys() == set(agent_ids):
            parts = [observation_rows(observations[id], layout) for id in agent_ids]
            given = np.stack(parts, 1).reshape(-1, *layout.shape)
        else:
            given = observation_rows(observations, layout)
        is_single = given.ndim == len(layout.shape)
        with self.acting():
            seen = self.observe(given[None] if is_single else given)
            masks = self._action_masks(action_masks, len(seen))
            decision = self.act(seen, state, action_masks=masks, deterministic=deterministic)
        actions = decision.env_actions.cpu().numpy()
        return (actions[0, ...] if is_single else actions), decision.state

    def _action_masks(self, action_masks: ArrayLike | None, batch: int) -> Tensor | None:
        if action_masks is None:
            return None
        masks = np.asarray(action_masks, dtype=np.bool_)
        width = self.spaces.action.mask_width
        if masks.shape not in ((width,), (batch, width)):
            raise UsageError(
                f"`action_masks` must have shape {(batch, width)}, but got {masks.shape}."
            )
        return torch.as_tensor(masks, device=self.device).expand(batch, width)


def decide(
    output: PolicyOutput,
    layout: ActionLayout,
    action_masks: Tensor | None = None,
    generator: torch.Generator | None = None,
    deterministic: bool = False,
) -> Decision:
    """Sample legal actions from an output, or take its most likely ones."""
    if deterministic:
        actions, logprobs = mode(output, layout, action_masks), torch.zeros_like(output.value)
    else:
        actions, logprobs = sample(output, layout, action_masks, generator)
    taken = env_actions(output, layout, actions)
    return Decision(actions, logprobs, output.value, output.state, taken)


def on_device(array: Array, device: torch.device) -> Tensor:
    """Return a tensor of the array: a view on the CPU, a copy elsewhere."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


# --- calling a policy -----------------------------------------------------------------------------


def policy_step(
    policy: nn.Module,
    observations: Observations,
    state: RecurrentState,
    spaces: PolicySpaces,
    agent_ids: Tensor | None = None,
) -> PolicyOutput:
    """Call `policy` for one step of B slots: observations `[B, *shape]`, its last state.

    `agent_ids` `[B]` is the index of each slot's agent in its env; without it the rows must be
    those of whole envs in order.
    """
    inputs = observations
    if spaces.observation.structured:
        inputs = unflatten_observations(observations, spaces.observation)
    batch = len(_first_part(observations))
    if agent_ids is None and _call_of(policy).agent_ids:
        agent_ids = _agents_in_order(batch, spaces, observations)
    result = _called(policy, inputs, _to_policy(policy, state), agent_ids)
    output = policy_output(result, batch, spaces.action)
    if output.state is None:
        if takes_state(policy):  # accepts a state, but never returns one
            _STATELESS.add(unwrapped(policy))
        return output
    if not takes_state(policy):  # the state could not be passed back
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
    """Call `policy` for whole segments: observations `[S, T, *shape]`; outputs are `[S*T, ...]`.

    `state` is the one before the first step. Where `resets[s, t]` is true, step t begins an episode
    with a state of zeros. The returned state is the one after the last step. `agent_ids` `[S]` is
    as for `policy_step`; `actions` `[S, T, ...]` are those taken, which two-part policies need.

    A policy without state gets all steps at once. For one with state this calls `decode_actions` of
    a two-part policy, which returns no state; or `forward_sequence(obs, state, resets)` if it has
    that, which returns what `forward` does for `[S, T]`; else `forward`, step by step, which runs
    the policy's own hooks too.
    """
    segments, horizon = _first_part(observations).shape[:2]
    if agent_ids is None:
        agent_ids = _agents_in_order(segments, spaces, observations)
    if not takes_state(policy):
        is_rows = isinstance(observations, Tensor)
        flat = observations.flatten(0, 1) if is_rows else map_state(_flatten_steps, observations)
        if _call_of(policy).agent_ids:
            agent_ids = agent_ids.repeat_interleave(horizon)
        return policy_step(policy, flat, None, spaces, agent_ids)
    module: Any = unwrapped(policy)
    if _call_of(policy).two_part:
        if actions is None:
            raise TypeError("a two-part policy needs the actions that were taken")
        rows = map_state(_flatten_steps, observations)
        inputs = unflatten_observations(rows, spaces.observation)
        return decode_segments(module, inputs, actions, state, resets, spaces.action)
    if hasattr(module, "forward_sequence") and not any(hooks_of(module)):
        inputs = unflatten_observations(observations, spaces.observation)
        takes_ids = _takes_agent_ids(type(module).forward_sequence)
        named = {"agent_ids": agent_ids} if takes_ids else {}
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
    joined = join_outputs(steps, lambda parts: torch.stack(parts, 1).flatten(0, 1))
    if any(step.distribution is not None or step.transforms for step in steps):
        return PolicyOutput(joined.value, state=state, steps=tuple(steps))
    return joined._replace(state=state)


def prepare_policy(policy: nn.Module, spaces: PolicySpaces | None = None) -> nn.Module:
    """Tie weights that must be shared; return the policy. Call it before making an optimizer.

    A two-part policy that steps with a cell (`lstm_cell`) and trains with layers (`lstm`) would
    play with other weights than it learns: the layers get the parameters of the cell. With
    `spaces`, lazy layers get their sizes from two rows of zeros.
    """
    if spaces is not None and any(map(is_lazy, (*policy.parameters(), *policy.buffers()))):
        layout, device = spaces.observation, next(policy.parameters()).device
        rows = torch.zeros(2, *layout.shape, dtype=torch_dtype(layout.dtype), device=device)
        with torch.no_grad(), in_eval_mode(policy):
            policy_step(policy, rows, None, spaces)
    if _call_of(policy).two_part:
        tie_cells(unwrapped(policy))
    return policy


@contextmanager
def in_eval_mode(policy: nn.Module) -> Iterator[None]:
    """Put `policy` into eval mode: no dropout, fixed running statistics.

    Afterwards every module is back in its own mode.
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
    """Return whether `policy` is recurrent: two-part, or its `forward` has a parameter `state`.

    A policy that was called for a step and returned no state is not recurrent.
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


_STATELESS: WeakSet[nn.Module] = WeakSet()  # `forward` takes a state, but returns none


class _Call(NamedTuple):
    """The parameters that the methods of a class of policies take."""

    state: bool
    agent_ids: bool
    two_part: bool  # encode_observations and decode_actions in place of forward


def _call_of(policy: nn.Module) -> _Call:
    policy_type: Any = type(unwrapped(policy))
    return _call_of_type(policy_type)


@lru_cache(maxsize=256)
def _call_of_type(policy_type: Any) -> _Call:
    if is_two_part(policy_type):
        return _Call(True, _takes_agent_ids(policy_type.encode_observations), True)
    names = inspect.signature(policy_type.forward).parameters
    return _Call("state" in names, "agent_ids" in names, False)


@lru_cache(maxsize=256)
def _takes_agent_ids(function: Callable[..., object]) -> bool:
    return "agent_ids" in inspect.signature(function).parameters


def _called(
    policy: nn.Module, inputs: Observations, state: RecurrentState, agent_ids: Tensor | None
) -> Any:
    """Return what the policy returns for one step."""
    call = _call_of(policy)
    named: dict[str, Any] = {"agent_ids": agent_ids} if call.agent_ids else {}
    with explaining_mismatch("forward", inputs):
        if call.two_part:
            module: Any = unwrapped(policy)
            return module.encode_observations(inputs, state, **named)
        if call.state:
            named["state"] = state
        return policy(inputs, **named)


# torch's messages about a tensor that does not fit a layer
_WRONG_TYPE = re.compile(r"dtype|\btypes?\b")
_MISMATCH = re.compile(rf"{_WRONG_TYPE.pattern}|shape|size|dimension|channels", re.IGNORECASE)


@contextmanager
def explaining_mismatch(method: str, inputs: Observations) -> Iterator[None]:
    """Turn torch's error about a layer into one for the author of a policy: with what it got."""
    try:
        yield
    except torch.OutOfMemoryError:  # its message has sizes in it too
        raise
    except RuntimeError as error:
        if not _MISMATCH.search(str(error)):
            raise
        raise _mismatch(error, method, inputs) from error


def _mismatch(error: RuntimeError, method: str, inputs: Observations) -> UsageError:
    why = str(error).strip().partition("\n")[0].rstrip(".")
    if _WRONG_TYPE.search(why):
        is_float = isinstance(inputs, Tensor) and inputs.is_floating_point()
        hint = "a cast to what the layer takes" if is_float else "`.float()` before the first layer"
    else:
        is_rows = isinstance(inputs, Tensor) and inputs.dim() == 2
        hint = (
            "a first layer of that width" if is_rows else "`.flatten(1)`, or layers of that shape"
        )
    return UsageError(
        f"`{method}` must take observations of {_spelled(inputs)}, but raised: {why}. Try {hint}."
    )


def _spelled(tree: Observations) -> str:
    """Return shapes and dtypes of observations, by key for dicts and tuples."""
    if isinstance(tree, Tensor):
        return f"shape {tuple(tree.shape)} {str(tree.dtype).removeprefix('torch.')}"
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    return ", ".join(f"[{key!r}] {_spelled(part)}" for key, part in items)


def _flatten_steps(part: Tensor) -> Tensor:
    return part.flatten(0, 1)


def _first_part(observations: Observations) -> Tensor:
    return observations if isinstance(observations, Tensor) else tensors_of(observations)[0]


def _agents_in_order(count: int, spaces: PolicySpaces, observations: Observations) -> Tensor:
    slots = torch.arange(count, device=_first_part(observations).device)
    return slots % spaces.num_agents


# --- the batch dimension of states ----------------------------------------------------------------
#
# Here the batch comes first. In nn.LSTM and nn.GRU, and in policies that return their states, the
# layers do. Which dimension of each tensor is the batch is found once for each policy, by its size.

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
    """Return the batch dimension of each tensor of a state: the one of size `batch`.

    Of a matrix it is the first if both fit: `[B, H]`. Where several dimensions of a larger tensor
    have that size by coincidence (two layers, two slots), only calling a copy of the policy with
    another batch shows which of them follows it.
    """
    options = [[d for d, size in enumerate(part.shape) if size == batch] for part in tensors]
    pairs = list(zip(options, tensors, strict=True))
    if any(len(found) > 1 and part.dim() > 2 for found, part in pairs):
        one_more = map_state(lambda rows: torch.cat((rows, rows[:1])), inputs)
        with torch.no_grad(), torch.random.fork_rng():
            agent_ids = torch.zeros(batch + 1, dtype=torch.int64, device=tensors[0].device)
            result = _called(copy.deepcopy(unwrapped(policy)), one_more, None, agent_ids)
        for (found, part), other in zip(pairs, tensors_of(result[-1]), strict=True):
            found[:] = [d for d in found if other.shape[d] != part.shape[d]]
    for found, part in pairs:
        if not found:
            raise UsageError(
                f"`state` must have a dimension of the batch size {batch}, preferably the first, "
                f"but got a tensor of shape {tuple(part.shape)}."
            )
    return tuple(found[0] for found in options)
