"""Policies as the engine in C knows them: sizes, and parameters in the order of network.h."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.models import MLP, CategoryEncoder, VectorEncoder
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.recurrent import GRU, LSTM, MinGRU
from pufferlib.policies.recurrent_wrapper import LSTMWrapper, RecurrentWrapper

_DTYPES = ("uint8", "bool", "float32", "float64", "int32", "int64")  # of observations
_MAX_PARTS = 64  # discrete or continuous components of an action: PUF_MAX_ACTION_PARTS
_ACTIVATIONS = {nn.ReLU: "relu", nn.Tanh: "tanh"}


class Network(NamedTuple):
    """A policy as C knows it; see csrc/nn/network.h."""

    spec: dict[str, Any]
    parameters: list[Tensor]


def describe(policy: nn.Module, spaces: PolicySpaces) -> Network | str:
    """Return the network of a policy, or in a few words why C does not support it."""
    if any(hooks for module in policy.modules() for hooks in hooks_of(module)):
        return "hooks of the policy"
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
    branches = [policy.layers, *([policy.critic_layers] if policy.separate else [])]
    read = [_read_branch(branch) for branch in branches]
    if any(isinstance(branch, str) for branch in read):
        return next(branch for branch in read if isinstance(branch, str))
    first = read[0]
    assert not isinstance(first, str)
    parameters = [p for branch in read for p in branch.parameters]  # type: ignore[union-attr]
    parameters += core.parameters
    for head in (policy.actor, policy.critic):
        parameters += [head.weight, head.bias]
    reals: dict[str, Any] = dict.fromkeys(("center", "scale"), np.zeros(0, np.float32))
    reals["bounded"] = np.zeros(0, np.uint8)
    if action.num_continuous:
        parameters.append(policy.log_std)
        reals = {"center": array_of(policy.center), "scale": array_of(policy.scale)}
        reals["bounded"] = bytes_of(policy.bounded)
    own = {id(p): p for p in whole.parameters()}
    if own.keys() != {id(p) for p in parameters} or len(own) != len(parameters):
        return "parameters besides those of an MLP"
    for p in parameters:
        if not p.requires_grad:
            return "frozen parameters"
        if p.dtype != torch.float32 or not p.is_contiguous() or p.device.type != "cpu":
            return "parameters other than float32 on the CPU"
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


def _read_branch(layers: nn.Module) -> _Branch | str:
    """Read pairs of a layer and its activation, of which the first is an encoder."""
    modules = list(layers)  # type: ignore[call-overload]
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
    else:
        return f"encoder {type(encoder).__name__}"
    for module in rest:
        parameters += [module.weight, module.bias]
    widths = [width, *(module.out_features for module in rest)]
    return _Branch(given, widths, _ACTIVATIONS[activations.pop()], parameters)


class _Core(NamedTuple):
    """The recurrent core of a policy."""

    name: str
    width: int
    parameters: list[Tensor]


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
        parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
        return _Core("mingru", core.hidden_size, parameters)
    if type(core) in (LSTM, GRU):
        name = type(core).__name__.lower()
        by_input, by_hidden, *biases = getattr(core, name).all_weights[0]
        return _Core(name, core.hidden_size, [by_input, biases[0], by_hidden, biases[1]])
    return f"core {type(core).__name__}"


def hooks_of(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """Return the dicts in which a module keeps its hooks: they fill when hooks are added."""
    return (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return the memory of a tensor as C takes it."""
    return tensor.detach().numpy()


def bytes_of(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the memory of flags as C takes it."""
    return array_of(tensor).view(np.uint8)
