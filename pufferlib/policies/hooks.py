"""Hooks of modules, which run only where a module is called, not where its weights are read."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

# hooks of all modules: torch adds to these dicts and never replaces them
GLOBAL_HOOKS: tuple[dict[int, Any], ...] = (
    torch_module._global_forward_hooks,
    torch_module._global_forward_pre_hooks,
    torch_module._global_backward_hooks,
    torch_module._global_backward_pre_hooks,
)


def hooks_of(module: nn.Module) -> tuple[dict[int, Any], ...]:
    """Return the dicts in which a module keeps its hooks: they fill when hooks are added."""
    return (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )


def is_plain(module: nn.Module) -> bool:
    """Return whether a call of `module` is its class's `forward` and no more: then what it computes
    may be computed from its weights, without a call.
    """
    return not (any(hooks_of(module)) or any(GLOBAL_HOOKS) or "forward" in vars(module))
