"""Between tensors and spaces: observations in, action distributions out, memory in between.

`unflatten_observations` and `layer_init` are for writers of policies. `policy_step` and
`policy_sequence` call any policy and bring what `forward` returns into one form, `PolicyOutput`;
`sample`, `evaluate_actions` and `mode` work on that form. `LSTMWrapper` gives a policy memory.

What a policy may return from `forward(obs)`, B rows at a time:

- discrete actions: `(logits, value)`; logits `[B, sum(nvec)]`, or a list of one tensor a component
- Box actions: `(mean, std, value)` or `((mean, std), value)`
- both kinds at once: `(logits, mean, std, value)`
- a `torch.distributions` object in the place of the logits or of mean and std
- any of these with a recurrent state at the end, where `forward(obs, state=None)` takes one

A state is a tensor or a nested tuple, list or dict of tensors, each with the batch as its first
dimension. At the beginning of an episode it is None or all zeros.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import (
    Bernoulli,
    Categorical,
    Distribution,
    Independent,
    Normal,
    OneHotCategorical,
)

from pufferlib.errors import UsageError
from pufferlib.spaces import (
    ActionLayout,
    Leaf,
    ObservationLayout,
    Space,
    action_layout,
    observation_layout,
)

Observations: TypeAlias = Any  # a tensor [B, *shape], or a dict or tuple of such
State: TypeAlias = Any  # a tensor [B, ...], nested tuples, lists or dicts of such, or None
LayerT = TypeVar("LayerT", bound=nn.Module)

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_ILLEGAL = -1e30  # logit of an illegal choice: its probability is exactly 0


class PolicySpaces(NamedTuple):
    """What a policy reads and what it chooses."""

    observation: ObservationLayout
    action: ActionLayout


class PolicyOutput(NamedTuple):
    """What a policy said about B observations, whatever form its `forward` returned it in."""

    value: Tensor  # [B]
    logits: Tensor | None = None  # [B, sum(nvec)]; None without discrete components
    mean: Tensor | None = None  # [B, num_continuous]; None without Box components
    std: Tensor | None = None  # [B, num_continuous]
    distribution: Distribution | None = None  # in place of the three above, if it is no common one
    state: State = None


def layer_init(layer: LayerT, std: float = math.sqrt(2), bias: float = 0.0) -> LayerT:
    """Give a linear or convolutional layer orthogonal weights of gain `std`; return the layer."""
    weight, offset = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, Tensor):
        raise UsageError(f"`layer` must have a weight tensor, but got {type(layer).__name__}.")
    nn.init.orthogonal_(weight, std)
    if isinstance(offset, Tensor):
        nn.init.constant_(offset, bias)
    return layer


def policy_spaces(env: Any) -> PolicySpaces:
    """Lay out the spaces of one agent of `env`, be it a single env or a vector env."""
    spaces: list[Any] = [
        getattr(env, f"single_{name}_space", None) or getattr(env, f"{name}_space", None)
        for name in ("observation", "action")
    ]
    if None in spaces:
        raise UsageError(
            "`env` must have `observation_space` and `action_space`, but got "
            f"{type(env).__name__}. Try what `pufferlib.make` returns."
        )
    return PolicySpaces(observation_layout(spaces[0]), action_layout(spaces[1]))


# --- observations ---------------------------------------------------------------------------------


def unflatten_observations(flat: Observations, space: Space | ObservationLayout) -> Observations:
    """Return the parts of flat rows `[..., *row]` in the form of a Dict or Tuple space, as views.

    Observations of other spaces, and those that are a dict or tuple already, come back as they are.
    A layout in place of the space saves working it out again.
    """
    if not isinstance(flat, Tensor):
        return flat
    layout = space if isinstance(space, ObservationLayout) else observation_layout(space)
    if not layout.structured:
        return flat
    return _tree([(leaf.path, _leaf_view(flat, layout, leaf)) for leaf in layout.leaves])


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Return torch's name for a NumPy dtype."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _leaf_view(rows: Tensor, layout: ObservationLayout, leaf: Leaf) -> Tensor:
    itemsize = layout.dtype.itemsize
    part = rows.narrow(-1, leaf.offset // itemsize, leaf.nbytes // itemsize)
    if leaf.dtype != layout.dtype:
        part = part.view(torch_dtype(leaf.dtype))
    return part.view(*rows.shape[:-1], *leaf.shape)


def _tree(parts: list[tuple[tuple[str | int, ...], Tensor]]) -> Any:
    """Arrange parts by their paths: names make a dict, indices a tuple."""
    if parts[0][0] == ():
        return parts[0][1]
    children: dict[str | int, list[tuple[tuple[str | int, ...], Tensor]]] = {}
    for (key, *rest), part in parts:
        children.setdefault(key, []).append((tuple(rest), part))
    built = {key: _tree(below) for key, below in children.items()}
    return tuple(built.values()) if isinstance(parts[0][0][0], int) else built


# --- calling a policy -----------------------------------------------------------------------------


def policy_step(
    policy: nn.Module, observations: Observations, state: State, spaces: PolicySpaces
) -> PolicyOutput:
    """Ask `policy` about one step of B slots: observations `[B, *shape]`, its last state."""
    batch = _first_tensor(observations).shape[0]
    inputs = unflatten_observations(observations, spaces.observation)
    result = policy(inputs, state=state) if takes_state(policy) else policy(inputs)
    output = _policy_output(result, batch, spaces.action)
    _check_state(output.state, batch)
    return output


def policy_sequence(
    policy: nn.Module,
    observations: Observations,
    state: State,
    resets: Tensor | None,
    spaces: PolicySpaces,
) -> PolicyOutput:
    """Ask `policy` about whole segments: observations `[S, T, *shape]`; outputs are `[S*T, ...]`.

    `state` is that before the first step. Where `resets[s, t]` is true, step t begins an episode
    and sees a state of zeros. The state returned is that after the last step. A policy without
    state sees all steps at once. One with state is asked through its `forward_sequence(obs, state,
    resets)` if it has one, which returns what `forward` does for `[S, T]`, else step by step.
    """
    if not takes_state(policy):
        return policy_step(policy, _map(lambda x: x.flatten(0, 1), observations), None, spaces)
    segments, horizon = _first_tensor(observations).shape[:2]
    forward_sequence = getattr(unwrapped(policy), "forward_sequence", None)
    if forward_sequence is not None:
        inputs = unflatten_observations(observations, spaces.observation)
        result = forward_sequence(inputs, state, resets)
        return _policy_output(result, segments * horizon, spaces.action)

    steps = []
    for t, reset in enumerate(reset_columns(resets, horizon)):
        state = state if reset is None else reset_state(state, reset)
        now = _map(partial(torch.select, dim=1, index=t), observations)
        steps.append(policy_step(policy, now, state, spaces))
        state = steps[-1].state
    return _joined(steps, state)


def takes_state(policy: nn.Module) -> bool:
    """Say whether `policy.forward` has a parameter `state`, that is whether it is recurrent."""
    policy_type: Any = type(unwrapped(policy))
    return _forward_takes_state(policy_type)


def unwrapped(policy: nn.Module) -> nn.Module:
    """Return the module as written, from inside `torch.compile` and DistributedDataParallel."""
    while True:
        if isinstance(policy, nn.parallel.DistributedDataParallel):
            policy = policy.module
        elif "_orig_mod" in policy._modules:
            policy = policy.get_submodule("_orig_mod")
        else:
            return policy


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """Apply `function` to every tensor of a state and keep its form; None stays None."""
    return _map(function, state)


def reset_state(state: State, resets: Tensor) -> State:
    """Zero the rows of a state where `resets` `[B]` is true: a new episode remembers nothing."""
    resets = resets.bool()

    def zeroed(part: Tensor) -> Tensor:
        return part.masked_fill(resets.view(-1, *(1,) * (part.dim() - 1)), 0)

    return map_state(zeroed, state)


def reset_columns(resets: Tensor | None, horizon: int) -> list[Tensor | None]:
    """Return the columns of `resets` `[S, T]`, with None for those known to hold no reset."""
    if resets is None:
        return [None] * horizon
    columns: list[Tensor | None] = list(resets.bool().unbind(1))
    if resets.device.type != "cpu":
        return columns  # to look inside would wait for the device
    found = resets.any(0).tolist()
    return [column if any_ else None for column, any_ in zip(columns, found, strict=True)]


@lru_cache(maxsize=256)
def _forward_takes_state(policy_type: Any) -> bool:
    return "state" in inspect.signature(policy_type.forward).parameters


def _joined(steps: list[PolicyOutput], state: State) -> PolicyOutput:
    """Stack the outputs of T steps `[S, ...]` into one output `[S*T, ...]`."""
    if steps[0].distribution is not None:
        raise UsageError(
            "`forward` of a recurrent policy must return logits, mean and std, or a common "
            f"distribution, but got {type(steps[0].distribution).__name__}. Try a "
            "`forward_sequence(obs, state, resets)` that returns one distribution for all steps."
        )

    def stacked(parts: list[Tensor | None]) -> Tensor | None:
        tensors = [part for part in parts if part is not None]
        return torch.stack(tensors, 1).flatten(0, 1) if tensors else None

    value, logits, mean, std = (stacked(list(parts)) for parts in list(zip(*steps))[:4])
    return PolicyOutput(_given(value), logits, mean, std, None, state)


def _check_state(state: State, batch: int) -> None:
    def check(part: Tensor) -> Tensor:
        if part.dim() == 0 or part.shape[0] != batch:
            raise UsageError(
                f"`state` must have the batch of {batch} as its first dimension, but got a tensor "
                f"of shape {tuple(part.shape)}. Try `transpose(0, 1)` around nn.LSTM or nn.GRU."
            )
        return part

    map_state(check, state)


def _map(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return function(tree)
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: _map(function, part) for key, part in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(function, part) for part in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(_map(function, part) for part in tree)
    raise UsageError(
        f"A state or observation must be made of tensors, tuples, lists and dicts, but got "
        f"{type(tree).__name__}."
    )


def _first_tensor(tree: Any) -> Tensor:
    while not isinstance(tree, Tensor):
        tree = next(iter(tree.values() if isinstance(tree, Mapping) else tree))
    return tree


# --- what a policy returned -----------------------------------------------------------------------


def _policy_output(result: Any, batch: int, layout: ActionLayout) -> PolicyOutput:
    """Bring what `forward` returned into one form; a UsageError shows what it was otherwise."""
    if isinstance(result, PolicyOutput):
        return result
    if not isinstance(result, tuple | list) or len(result) < 2:
        raise _unexpected(result, layout)

    parts: Any
    actions, *rest = result
    if layout.nvec and layout.num_continuous:
        if len(result) < 4:
            raise _unexpected(result, layout)
        parts, rest = result[:3], list(result[3:])
    elif layout.num_continuous and isinstance(actions, Tensor):
        if len(result) < 3:
            raise _unexpected(result, layout)
        parts, rest = [None, *result[:2]], list(result[2:])
    elif layout.num_continuous and _is_pair(actions):
        parts = [None, *actions]
    elif isinstance(actions, Distribution) and (common := _common(actions)) is None:
        parts = actions
    elif isinstance(actions, Distribution):
        parts = common
    else:
        parts = [actions, None, None]

    value, *rest = rest
    if not isinstance(value, Tensor) or value.numel() != batch or len(rest) > 1:
        raise _unexpected(result, layout)
    value = value.reshape(batch)
    state = rest[0] if rest else None
    if isinstance(parts, Distribution):
        return PolicyOutput(value, distribution=parts, state=state)
    logits = _logits(parts[0], batch) if layout.nvec else None
    mean, std = _gaussian(parts[1], parts[2], batch) if layout.num_continuous else (None, None)
    fits = (logits is None or logits.shape[1] == sum(layout.nvec)) and (
        mean is None or mean.shape[1] == layout.num_continuous
    )
    if not fits or (layout.nvec and logits is None) or (layout.num_continuous and mean is None):
        raise _unexpected(result, layout)
    return PolicyOutput(value, logits, mean, std, None, state)


def _logits(parts: Any, batch: int) -> Tensor | None:
    if isinstance(parts, Tensor):
        return parts.reshape(batch, -1) if parts.numel() % batch == 0 else None
    if not isinstance(parts, tuple | list) or not parts:
        return None
    tensors = []
    for part in parts:
        common = _common(part) if isinstance(part, Distribution) else (part, None, None)
        if common is None or not isinstance(common[0], Tensor) or common[0].numel() % batch:
            return None
        tensors.append(common[0].reshape(batch, -1))
    return torch.cat(tensors, 1)


def _gaussian(mean: Any, std: Any, batch: int) -> tuple[Tensor | None, Tensor | None]:
    if not isinstance(mean, Tensor) or not isinstance(std, Tensor) or mean.numel() % batch:
        return None, None
    flat = mean.reshape(batch, -1)
    if std.numel() == mean.numel():
        return flat, std.reshape(flat.shape)
    if std.numel() in (1, flat.shape[1]):
        return flat, std.reshape(1, -1).expand_as(flat)
    return None, None


def _common(
    distribution: Distribution,
) -> tuple[Tensor | None, Tensor | None, Tensor | None] | None:
    """Return logits, mean and std of the distributions that are just these, else None."""
    while isinstance(distribution, Independent):
        distribution = distribution.base_dist
    if isinstance(distribution, Categorical | OneHotCategorical):
        return distribution.logits, None, None
    if isinstance(distribution, Bernoulli):  # a component of two choices
        ones = distribution.logits
        return torch.stack((torch.zeros_like(ones), ones), -1), None, None
    if isinstance(distribution, Normal):
        return None, distribution.loc, distribution.scale
    return None


def _is_pair(parts: Any) -> bool:
    return isinstance(parts, tuple | list) and len(parts) == 2


def _unexpected(result: Any, layout: ActionLayout) -> UsageError:
    if layout.nvec and layout.num_continuous:
        wanted = (
            f"(logits, mean, std, value) with {sum(layout.nvec)} logits and "
            f"{layout.num_continuous} means"
        )
    elif layout.num_continuous:
        wanted = f"(mean, std, value) with {layout.num_continuous} means"
    else:
        wanted = f"(logits, value) with {sum(layout.nvec)} logits"
    return UsageError(
        f"`forward` must return {wanted} and one value for each row, and may add a state, but got "
        f"{_described(result)}."
    )


def _described(result: Any) -> str:
    if isinstance(result, Tensor):
        return f"a tensor of shape {tuple(result.shape)}"
    if isinstance(result, tuple | list):
        return f"({', '.join(_described(part) for part in result)})"
    return type(result).__name__


# --- actions --------------------------------------------------------------------------------------


def sample(
    outputs: PolicyOutput,
    layout: ActionLayout,
    action_masks: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw actions `[B, *layout.shape]`, as the env takes them, and their log-probabilities `[B]`.

    `action_masks` `[B, sum(nvec)]` is false for choices that are illegal; those are never drawn,
    unless a component has no legal choice at all. Box actions are not clipped: the log-probability
    is that of the action returned, and the env clips.
    """
    if outputs.distribution is not None:
        return _sample_distribution(outputs.distribution, layout, action_masks, generator)
    indices = reals = logprobs = None
    if outputs.logits is not None:
        log_probs = _log_probs(outputs.logits, layout.nvec, action_masks)
        indices = _draw(log_probs, generator)
        logprobs = _chosen(log_probs, indices)
    if outputs.mean is not None:
        mean, std = outputs.mean.float(), _given(outputs.std).float()
        noise = torch.empty_like(mean).normal_(generator=generator)
        reals = torch.addcmul(mean, std, noise)
        density = _log_density(noise, std)
        logprobs = density if logprobs is None else logprobs + density
    return _packed(indices, reals, layout), _given(logprobs)


def evaluate_actions(
    outputs: PolicyOutput,
    layout: ActionLayout,
    actions: Tensor,
    action_masks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return log-probability and entropy `[B]` of actions `[B, *layout.shape]`.

    Both are sums over the components, and finite with finite gradients whatever is masked.
    """
    if outputs.distribution is not None:
        return _evaluate_distribution(outputs.distribution, layout, actions, action_masks)
    indices, reals = _unpacked(actions, layout)
    logprobs = entropy = None
    if outputs.logits is not None:
        log_probs = _log_probs(outputs.logits, layout.nvec, action_masks)
        logprobs = _chosen(log_probs, _given(indices))
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        if entropy.dim() > 1:
            entropy = entropy.sum(-1)
    if outputs.mean is not None:
        std = _given(outputs.std).float()
        density = _log_density((_given(reals) - outputs.mean.float()) / std, std)
        spread = (std.log() + (0.5 + _LOG_SQRT_2PI)).sum(-1)
        logprobs = density if logprobs is None else logprobs + density
        entropy = spread if entropy is None else entropy + spread
    return _given(logprobs), _given(entropy)


def mode(outputs: PolicyOutput, layout: ActionLayout, action_masks: Tensor | None = None) -> Tensor:
    """Return the likeliest legal actions `[B, *layout.shape]`: no randomness."""
    if outputs.distribution is not None:
        _check_no_masks(outputs.distribution, action_masks)
        try:
            likeliest = outputs.distribution.mode
        except NotImplementedError:
            likeliest = outputs.distribution.mean
        return _as_rows(likeliest, layout)
    indices = reals = None
    if outputs.logits is not None:
        indices = _log_probs(outputs.logits, layout.nvec, action_masks).argmax(-1)
    if outputs.mean is not None:
        reals = outputs.mean.float()
    return _packed(indices, reals, layout)


def _log_probs(logits: Tensor, nvec: tuple[int, ...], action_masks: Tensor | None) -> Tensor:
    """Return log-probabilities `[B, n]` of one component, or `[B, k, max(nvec)]` of several.

    What is illegal, or only pads a component to the widest, gets a huge negative logit in place of
    -inf: its probability is exactly 0 all the same, and 0 times it is no nan. Padding is the less
    likely of the two, so that a component without any legal choice never falls into it.
    """
    logits = logits.float()
    legal = action_masks
    if len(nvec) > 1:
        logits = _by_component(logits, nvec)
        legal = None if legal is None else _by_component(legal, nvec)
    if legal is not None:
        logits = logits.masked_fill(legal.logical_not(), _ILLEGAL)
    if len(set(nvec)) > 1:
        logits = logits.masked_fill(_padding(nvec, logits.device)[1], 2 * _ILLEGAL)
    return F.log_softmax(logits, -1).clamp_min(4 * _ILLEGAL)  # a policy may give -inf itself


def _by_component(rows: Tensor, nvec: tuple[int, ...]) -> Tensor:
    """Return rows `[B, sum(nvec)]` as `[B, k, max(nvec)]`; what pads a component is arbitrary."""
    if len(set(nvec)) > 1:
        rows = rows.index_select(-1, _padding(nvec, rows.device)[0])
    return rows.view(*rows.shape[:-1], len(nvec), max(nvec))


@lru_cache(maxsize=64)
def _padding(nvec: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the column of each choice, and which choices `[k, max(nvec)]` are only padding."""
    width = max(nvec)
    choice = torch.arange(width).expand(len(nvec), width)
    counts = torch.tensor(nvec).unsqueeze(1)
    starts = counts.cumsum(0) - counts
    columns = starts + torch.minimum(choice, counts - 1)
    return columns.flatten().to(device), (choice >= counts).to(device)


def _draw(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw an index from each last dimension by inverting the cumulative distribution.

    One uniform number a row, where the Gumbel trick takes one a choice and `multinomial` several
    passes. Choice i is drawn iff cdf[i-1] <= u < cdf[i], so one of probability 0 never is; scaling
    u by the last entry keeps it below that in spite of rounding.
    """
    cumulative = log_probs.exp().cumsum(-1)
    total = cumulative[..., -1:]
    uniform = torch.empty_like(total).uniform_(generator=generator)
    return (cumulative <= uniform * (total * (1 - 1e-6))).sum(-1)


def _chosen(log_probs: Tensor, indices: Tensor) -> Tensor:
    chosen = log_probs.gather(-1, indices.unsqueeze(-1)).squeeze(-1)
    return chosen.sum(-1) if chosen.dim() > 1 else chosen


def _log_density(noise: Tensor, std: Tensor) -> Tensor:
    """Return the log-density `[B]` of a diagonal Gaussian, `noise` standard deviations off."""
    return (-0.5 * noise.square() - std.log() - _LOG_SQRT_2PI).sum(-1)


def _packed(indices: Tensor | None, reals: Tensor | None, layout: ActionLayout) -> Tensor:
    """Return the rows of an env from indices `[B]` or `[B, k]` and reals `[B, m]`."""
    if indices is None:
        return _as_rows(_given(reals), layout)
    if reals is None:
        return _as_rows(indices, layout)
    words = indices.to(torch.int32).view(-1, len(layout.nvec))
    return torch.cat((words, reals.view(torch.int32)), 1)


def _unpacked(actions: Tensor, layout: ActionLayout) -> tuple[Tensor | None, Tensor | None]:
    """Return indices, `[B]` for one component and `[B, k]` for several, and reals `[B, m]`."""
    batch, count = actions.shape[0], len(layout.nvec)
    if not count:
        return None, actions.reshape(batch, -1)
    words = actions.reshape(batch, -1)
    indices = words[:, 0].long() if count == 1 else words[:, :count].long()
    if not layout.num_continuous:
        return indices, None
    return indices, words[:, count:].contiguous().view(torch.float32)


def _as_rows(actions: Tensor, layout: ActionLayout) -> Tensor:
    dtype = torch.int32 if layout.nvec else torch.float32
    return actions.to(dtype).reshape(actions.shape[0], *layout.shape)


def _sample_distribution(
    distribution: Distribution,
    layout: ActionLayout,
    action_masks: Tensor | None,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    _check_no_masks(distribution, action_masks)
    if generator is None:
        drawn = distribution.sample()
    else:  # torch.distributions take no generator: lend them the global one, seeded by ours
        seed = torch.randint(2**62, (), generator=generator, device=generator.device)
        with torch.random.fork_rng():
            torch.manual_seed(int(seed))
            drawn = distribution.sample()
    return _as_rows(drawn, layout), _row_sums(distribution.log_prob(drawn))


def _evaluate_distribution(
    distribution: Distribution,
    layout: ActionLayout,
    actions: Tensor,
    action_masks: Tensor | None,
) -> tuple[Tensor, Tensor]:
    _check_no_masks(distribution, action_masks)
    shape = distribution.batch_shape + distribution.event_shape
    logprobs = _row_sums(distribution.log_prob(actions.reshape(shape)))
    try:
        entropy = _row_sums(distribution.entropy())
    except NotImplementedError:  # no closed form: one sample is an unbiased estimate
        if not distribution.has_rsample:
            raise UsageError(
                f"A distribution must have an entropy or `rsample`, but "
                f"{type(distribution).__name__} has none. Try a Normal or a Categorical."
            ) from None
        entropy = -_row_sums(distribution.log_prob(distribution.rsample()))
    return logprobs, entropy


def _check_no_masks(distribution: Distribution, action_masks: Tensor | None) -> None:
    if action_masks is not None:
        raise UsageError(
            "`forward` must return logits where the env gives action masks, but got "
            f"{type(distribution).__name__}. Try logits or a Categorical."
        )


def _row_sums(rows: Tensor) -> Tensor:
    return rows.flatten(1).sum(1) if rows.dim() > 1 else rows


def _given(tensor: Tensor | None) -> Tensor:
    """Tell the type checker what the layout already guarantees."""
    if tensor is None:
        raise TypeError("a PolicyOutput lacks a part that its action layout needs")
    return tensor


# --- memory ---------------------------------------------------------------------------------------


class RecurrentCore(nn.Module):
    """A memory between encoder and heads: one step in rollouts, whole segments in training.

    Both must agree to float tolerance. A subclass has `hidden_size` (the width of what it returns)
    and implements `step` and `sequence`; `resets` means what it does in `policy_sequence`.
    """

    hidden_size: int

    def step(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        """Return outputs `[B, hidden_size]` for features `[B, F]`, and the next state."""
        raise NotImplementedError

    def sequence(
        self, features: Tensor, state: State, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        """Return outputs `[S, T, hidden_size]` for features `[S, T, F]`, and the last state."""
        raise NotImplementedError


class LSTM(RecurrentCore):
    """One layer of LSTM whose state is `(hidden, cell)`, each `[B, hidden_size]`."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.lstm = nn.LSTM(input_size, hidden_size, batch_first=True)
        input_weight, hidden_weight, input_bias, hidden_bias = self.lstm.all_weights[0]
        nn.init.orthogonal_(input_weight)
        nn.init.orthogonal_(hidden_weight)
        nn.init.zeros_(input_bias)
        nn.init.zeros_(hidden_bias)
        with torch.no_grad():  # remember at first (Jozefowicz et al. 2015); gates are i, f, g, o
            input_bias[hidden_size : 2 * hidden_size] = 1

    def step(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        started = self._started(state, features)
        hidden, cell = torch.lstm_cell(features, started, *self.lstm.all_weights[0])
        return hidden, (hidden, cell)

    def sequence(
        self, features: Tensor, state: State, resets: Tensor | None
    ) -> tuple[Tensor, State]:
        columns = reset_columns(resets, features.shape[1])
        hidden, cell = self._started(state, features)
        if all(column is None for column in columns[1:]):  # nothing ends inside: the fused kernel
            if columns[0] is not None:
                hidden, cell = reset_state((hidden, cell), columns[0])
            outputs, last = self.lstm(features, (hidden.unsqueeze(0), cell.unsqueeze(0)))
            return outputs, (last[0].squeeze(0), last[1].squeeze(0))

        input_weight, hidden_weight, input_bias, hidden_bias = self.lstm.all_weights[0]
        projected = F.linear(
            features, input_weight, input_bias + hidden_bias
        )  # one product for all
        recurrent = hidden_weight.t()
        steps = []
        for column, from_input in zip(columns, projected.unbind(1), strict=True):
            if column is not None:
                hidden, cell = reset_state((hidden, cell), column)
            gates = torch.addmm(from_input, hidden, recurrent)
            write, keep, candidate, read = gates.chunk(4, 1)
            cell = keep.sigmoid() * cell + write.sigmoid() * candidate.tanh()
            hidden = read.sigmoid() * cell.tanh()
            steps.append(hidden)
        return torch.stack(steps, 1), (hidden, cell)

    def _started(self, state: State, features: Tensor) -> tuple[Tensor, Tensor]:
        if state is None:
            zeros = features.new_zeros(features.shape[0], self.hidden_size)
            return zeros, zeros
        hidden, cell = state
        return hidden, cell


class RecurrentWrapper(nn.Module):
    """Put a memory between the `encode` and the `decode` of a policy.

    `policy.encode(obs)` gives features `[B, F]`; `policy.decode(features)` gives what `forward`
    would return without a state, and here gets the `[B, core.hidden_size]` outputs of the memory.
    The policies of `models` have both. `forward` serves rollouts, `forward_sequence` training.
    """

    def __init__(self, policy: nn.Module, core: RecurrentCore) -> None:
        super().__init__()
        _check_encoder(policy)
        self.policy: Any = policy
        self.core = core

    def forward(self, observations: Observations, state: State = None) -> tuple[Any, ...]:
        outputs, state = self.core.step(self.policy.encode(observations), state)
        return (*self.policy.decode(outputs), state)

    def forward_sequence(
        self, observations: Observations, state: State, resets: Tensor | None
    ) -> tuple[Any, ...]:
        """Take observations `[S, T, ...]`; return outputs `[S*T, ...]` and a state `[S, ...]`."""
        segments, horizon = _first_tensor(observations).shape[:2]
        features = self.policy.encode(_map(lambda x: x.flatten(0, 1), observations))
        features = features.reshape(segments, horizon, -1)
        outputs, state = self.core.sequence(features, state, resets)
        return (*self.policy.decode(outputs.flatten(0, 1)), state)


class LSTMWrapper(RecurrentWrapper):
    """Give a policy that has `encode` and `decode` an LSTM in between.

    The cell of rollouts and the fused LSTM of training are the same parameters. `hidden_size` is
    what `policy.decode` takes; by default as wide as the features that `policy.encode` gives.
    """

    def __init__(self, env: Any, policy: nn.Module, hidden_size: int | None = None) -> None:
        _check_encoder(policy)
        width = feature_size(policy, policy_spaces(env).observation)
        super().__init__(policy, LSTM(width, width if hidden_size is None else hidden_size))


def feature_size(policy: Any, layout: ObservationLayout) -> int:
    """Return the width of what `policy.encode` gives, by asking it about two rows of zeros."""
    parameter = next(policy.parameters(), None)
    device = None if parameter is None else parameter.device
    rows = torch.zeros(2, *layout.shape, dtype=torch_dtype(layout.dtype), device=device)
    with torch.no_grad():
        features = policy.encode(unflatten_observations(rows, layout))
    if not isinstance(features, Tensor) or features.dim() != 2 or features.shape[0] != 2:
        raise UsageError(
            f"`encode` must return features of shape (2, width) for two rows, but got "
            f"{_described(features)}."
        )
    return features.shape[1]


def _check_encoder(policy: nn.Module) -> None:
    missing = [name for name in ("encode", "decode") if not hasattr(policy, name)]
    if missing:
        raise UsageError(
            f"`policy` must have `encode(obs)` and `decode(features)`, but {type(policy).__name__} "
            f"has no `{missing[0]}`. Try splitting its `forward` in two where the memory belongs."
        )
