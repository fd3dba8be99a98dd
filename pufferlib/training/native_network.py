"""Policies as the engine in C knows them: sizes, and parameters in the order of network.h."""

from __future__ import annotations

import math
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib import native
from pufferlib.models import MLP, CategoryEncoder, VectorEncoder
from pufferlib.policies.hooks import GLOBAL_HOOKS, hooks_of
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.recurrent import GRU, LSTM, MinGRU
from pufferlib.policies.recurrent_wrapper import LSTMWrapper, RecurrentWrapper

# Dtypes of observations.
_DTYPES = ("uint8", "bool", "int8", "int16", "int32", "int64", "float32", "float64")
# Sizes that csrc/nn/network.c accepts: layers of a branch, their units, discrete or continuous
# components of an action, and choices of all discrete ones.
_MAX_LAYERS, _MAX_WIDTH, _MAX_PARTS, _MAX_LOGITS = 30, 2**16, 64, 2**16
_ACTIVATIONS = {nn.ReLU: "relu", nn.Tanh: "tanh"}
_VERSION, _REQUIRES_GRAD = attrgetter("_version"), attrgetter("requires_grad")
_SHAPE = attrgetter("shape")
_BACKWARD_HOOKS = attrgetter("_backward_hooks")
# methods that C computes instead of calling them: an object may have others than its class
_METHODS = ("forward", "encode", "decode", "step", "sequence", "forward_sequence")
_GRADIENT_HOOKS = attrgetter("_post_accumulate_grad_hooks")


class Network(NamedTuple):
    """A policy as C knows it; see csrc/nn/network.h."""

    spec: dict[str, Any]
    parameters: list[Tensor]

    def fits(self, other: Network) -> bool:
        """Return whether the other differs in its parameters alone."""
        return _is_same(self.spec, other.spec)


def describe(policy: nn.Module, spaces: PolicySpaces) -> Network | str:
    """Return the network of a policy, or in a few words why C does not support it."""
    if any(map(any, map(hooks_of, policy.modules()))):
        return "hooks of the policy"
    if any(GLOBAL_HOOKS):
        return "hooks of all modules"
    for method in _METHODS:
        if any(method in vars(module) for module in policy.modules()):
            return f"a {method} that was replaced"
    whole = policy
    core = _read_core(policy)
    if isinstance(core, str):
        return core
    if isinstance(policy, RecurrentWrapper):
        policy = policy.policy
    if type(policy) is not MLP:
        return f"policy {type(policy).__name__}"
    observation, action = spaces.observation, spaces.action
    if observation.structured or str(observation.dtype) not in _DTYPES:
        return f"observations of {observation.dtype}"
    if max(action.num_discrete, action.num_continuous) > _MAX_PARTS:
        return f"actions of more than {_MAX_PARTS} components"
    if sum(action.nvec) > _MAX_LOGITS:
        return f"more than {_MAX_LOGITS} choices"
    first = _read_branch(policy.layers)
    if isinstance(first, str):
        return first
    if len(first.widths) > _MAX_LAYERS:
        return f"more than {_MAX_LAYERS} layers"
    if max(*first.widths, core.width) > _MAX_WIDTH:
        return f"layers of more than {_MAX_WIDTH} units"
    if first.input["obs_size"] != math.prod(observation.shape):
        return f"an encoder of {first.input['obs_size']} numbers for {observation.space}"
    parameters, shapes = [*first.parameters], [*first.shapes]
    if policy.separate:
        second = _read_branch(policy.critic_layers)
        if isinstance(second, str):
            return second
        one, other = (each._replace(parameters=[], shapes=[]) for each in (first, second))
        if not _is_same(one, other):
            return "a critic of other layers than the actor"
        parameters += second.parameters
        shapes += second.shapes
    parameters += core.parameters
    shapes += core.shapes_after(first.widths[-1])
    for head, size in (
        (policy.actor, sum(action.nvec) + action.num_continuous),
        (policy.critic, 1),
    ):
        if type(head) is not nn.Linear or head.bias is None:
            return "heads other than dense ones"
        parameters += [head.weight, head.bias]
        shapes += [(size, core.width or first.widths[-1]), (size,)]
    reals: dict[str, Any] = dict.fromkeys(("center", "scale"), np.zeros(0, np.float32))
    reals["bounded"] = np.zeros(0, np.uint8)
    if action.num_continuous:
        parameters.append(policy.log_std)
        shapes.append((action.num_continuous,))
        reals = {"center": array_of(policy.center), "scale": array_of(policy.scale)}
        reals["bounded"] = bytes_of(policy.bounded)
    own = {id(p): p for p in whole.parameters()}
    if own.keys() != {id(p) for p in parameters} or len(own) != len(parameters):
        return "parameters besides those of an MLP"
    if 0 in first.widths or [tuple(p.shape) for p in parameters] != shapes:
        return "parameters of unusual sizes"
    for p in parameters:
        if not p.requires_grad:
            return "frozen parameters"
        if p._backward_hooks or p._post_accumulate_grad_hooks:
            return "hooks of parameters"
        if p.dtype != torch.float32 or not p.is_contiguous() or p.device.type != "cpu":
            return "parameters other than contiguous float32 on the CPU"
    spec = {
        "obs_dtype": str(observation.dtype),
        "widths": first.widths,
        "activation": first.activation,
        "separate": policy.separate,
        "core": core.name,
        "core_width": core.width,
        "nvec": list(action.nvec),
        "squash": policy.squash,
        "action_low": np.ascontiguousarray(action.low, np.float32),
        "action_high": np.ascontiguousarray(action.high, np.float32),
        **first.input,
        **reals,
    }
    return Network(spec, parameters)


class _Branch(NamedTuple):
    """The layers of an actor or a critic."""

    input: dict[str, Any]  # how observations enter
    widths: list[int]
    activation: str
    parameters: list[Tensor]
    shapes: list[tuple[int, ...]]  # that the parameters must have


def _read_branch(layers: nn.Module) -> _Branch | str:
    """Read pairs of a layer and its activation, of which the first is an encoder."""
    if type(layers) is not nn.Sequential:
        return "layers other than dense ones"
    modules: list[Any] = list(layers)
    encoders, activations = modules[::2], {type(module) for module in modules[1::2]}
    if len(modules) % 2 or len(activations) != 1 or not activations <= _ACTIVATIONS.keys():
        return "layers other than dense ones"
    encoder, *rest = encoders
    if any(type(module) is not nn.Linear or module.bias is None for module in rest):
        return "layers other than dense ones"
    parameters: list[Tensor]
    if type(encoder) is VectorEncoder:
        scale = encoder.scale
        given = {
            "obs_size": encoder.in_features,
            "low": array_of(scale.low.flatten()) if scale.is_needed else None,
            "factor": array_of(scale.factor.flatten()) if scale.is_needed else None,
            **dict.fromkeys(("lowest", "highest", "offset")),
            "table_rows": 0,
        }
        parameters, width = [encoder.weight, encoder.bias], encoder.out_features
        shapes: list[tuple[int, ...]] = [(width, encoder.in_features), (width,)]
    elif type(encoder) is CategoryEncoder:
        given = {
            "obs_size": len(encoder.offsets),
            "low": None,
            "factor": None,
            "lowest": array_of(encoder.lowest),
            "highest": array_of(encoder.highest),
            "offset": array_of(encoder.offsets),
            "table_rows": len(encoder.table),
        }
        parameters, width = [encoder.table], encoder.table.shape[1]
        shapes = [(len(encoder.table), width)]
    else:
        return f"encoder {type(encoder).__name__}"
    for module in rest:
        parameters += [module.weight, module.bias]
    widths = [width, *(module.out_features for module in rest)]
    for before, after in pairwise(widths):
        shapes += [(after, before), (after,)]
    return _Branch(given, widths, _ACTIVATIONS[activations.pop()], parameters, shapes)


class _Core(NamedTuple):
    """The recurrent core of a policy."""

    name: str
    width: int
    parameters: list[Tensor]

    def shapes_after(self, inputs: int) -> list[tuple[int, ...]]:
        """Return the shapes that the parameters must have, for inputs of this width."""
        width = self.width
        if self.name == "none":
            return []
        if self.name == "mingru":
            return [(2 * width, inputs), (2 * width,), (width, width), (width,)]
        rows = width * (4 if self.name == "lstm" else 3)
        return [(rows, inputs), (rows,), (rows, width), (rows,)]


def _read_core(policy: nn.Module) -> _Core | str:
    if not isinstance(policy, RecurrentWrapper):
        return _Core("none", 0, [])
    core = policy.core
    if type(policy) not in (RecurrentWrapper, LSTMWrapper):
        return f"policy {type(policy).__name__}"
    if getattr(policy.policy, "separate", False):
        return "a critic of its own before a recurrent core"
    if type(core) is MinGRU and type(core.skip) is nn.Identity:
        layers = core.project, core.read
        if any(type(layer) is not nn.Linear or layer.bias is None for layer in layers):
            return "layers of a core other than dense ones"
        parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
        return _Core("mingru", core.hidden_size, parameters)
    if type(core) in (LSTM, GRU):
        name = type(core).__name__.lower()
        layer = getattr(core, name)
        if type(layer) not in (nn.LSTM, nn.GRU) or not layer.bias:
            return "layers of a core other than its own"
        by_input, by_hidden, *biases = layer.all_weights[0]
        return _Core(name, core.hidden_size, [by_input, biases[0], by_hidden, biases[1]])
    return f"core {type(core).__name__}"


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two values of a spec are equal, arrays included."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_is_same(a[key], b[key]) for key in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return type(a) is type(b) and bool(np.array_equal(a, b))


class Watch:
    """Notices when a policy is no longer as it was described: modules, tensors, hooks, methods.

    What it cannot notice are numbers written into a buffer through its `data` or through NumPy.
    Weights may change freely: C reads them where they are.
    """

    def __init__(self, policy: nn.Module, network: Network) -> None:
        modules = list(policy.modules())
        owned = [part for m in modules for part in (m._modules, m._parameters, m._buffers)]
        hooks = [hooks for module in modules for hooks in hooks_of(module)]  # empty ones
        members = [vars(module) for module in modules]
        self._dicts = native.DictWatch([*owned, *hooks, *GLOBAL_HOOKS], members, list(_METHODS))
        self._parameters, self._buffers = network.parameters, list(policy.buffers())
        self._state = self._read()

    def is_current(self) -> bool:
        """Return whether the policy is still as it was."""
        return (
            self._dicts.is_same()
            and not any(map(_BACKWARD_HOOKS, self._parameters))
            and not any(map(_GRADIENT_HOOKS, self._parameters))
            and self._read() == self._state
        )

    def _read(self) -> list[object]:
        """Return what else must stay: where parameters are, and whether C may train them."""
        parameters = self._parameters
        return [
            *map(_VERSION, self._buffers),
            *map(Tensor.data_ptr, parameters),
            *map(_SHAPE, parameters),
            *map(Tensor.is_contiguous, parameters),
            *map(_REQUIRES_GRAD, parameters),
        ]


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return the memory of a tensor as C takes it."""
    return tensor.detach().numpy()


def bytes_of(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the memory of flags as C takes it."""
    return array_of(tensor).view(np.uint8)
