"""Adam and Muon with two additions for PPO: a scale for the gradients, and a veto.

`step(scale, veto)` divides gradients by `scale`, which clips their norm without a pass of its own,
and leaves parameters and moments unchanged where `veto` is 1. Both are tensors: no update waits
for the device. The state is that of `torch.optim`, so checkpoints need no special case.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

if TYPE_CHECKING:
    from pufferlib.config import TrainConfig

_FUSED = ("cpu", "cuda")  # devices that have Adam as one kernel
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # of Jordan 2024: fast, to singular values of 0.7 to 1.2
_HIDDEN = 16  # a matrix narrower than this reads inputs or makes outputs


class Adam(torch.optim.Optimizer):
    """Adam (Kingma & Ba 2015), all parameters in one kernel where there is one.

    One count of updates serves all parameters. Parameters without a gradient do not change.
    """

    def __init__(
        self,
        parameters: ParamsT,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @classmethod
    def from_config(cls, policy: nn.Module, config: TrainConfig) -> Self:
        """Return the optimizer of a run for the trained parameters of `policy`."""
        trained = [p for p in policy.parameters() if p.requires_grad]
        betas = (config.adam_beta1, config.adam_beta2)
        return cls(trained, config.learning_rate, betas, config.adam_eps)

    @torch.no_grad()
    def step(self, scale: Tensor | None = None, veto: Tensor | None = None) -> None:  # type: ignore[override]
        """Make one update with the gradients of the parameters."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(group, parameters, scale, veto)

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        scale: Tensor | None,
        veto: Tensor | None,
    ) -> None:
        step, means, squares = self._moments(parameters, group)
        step += 1 if veto is None else 1 - veto
        grads = [cast(Tensor, p.grad) for p in parameters]
        lr, (beta1, beta2), eps = group["lr"], group["betas"], group["eps"]
        if all(p.device.type in _FUSED and p.dtype == torch.float32 for p in parameters):
            torch._fused_adam_(
                parameters,
                grads,
                means,
                squares,
                [],
                [step] * len(parameters),
                lr=lr,
                beta1=beta1,
                beta2=beta2,
                weight_decay=0.0,
                eps=eps,
                amsgrad=False,
                maximize=False,
                grad_scale=scale,
                found_inf=veto,
            )
            return
        keep = 1.0 if veto is None else 1 - veto
        for p, grad, mean, square in zip(parameters, grads, means, squares, strict=True):
            wide = torch.promote_types(p.dtype, torch.float32)  # halves are too coarse to sum in
            grad = _sound(grad.to(wide), scale, veto)
            first, second = mean.to(wide), square.to(wide)
            mean.copy_(first + (grad - first) * ((1 - beta1) * keep))
            square.copy_(second + (grad.square() - second) * ((1 - beta2) * keep))
            spread = (square.to(wide) / (1 - beta2**step).clamp(min=1e-8)).sqrt() + eps
            p -= mean / spread * (lr * keep / (1 - beta1**step).clamp(min=1e-8))

    def moments(self, parameters: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
        """Return the count of updates, and mean and mean square of each parameter's gradients.

        They are the optimizer's own memory, for code that makes the update itself. A matrix of Muon
        has its momentum, and no mean square.
        """
        step, means, squares = self._moments(parameters, self.param_groups[0])
        return step, means, [*squares]

    def _moments(
        self, parameters: list[Tensor], group: dict[str, Any]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        first = group["params"][0]
        step = self.state[first].setdefault("step", torch.zeros((), device=first.device))
        means, squares = [], []
        for parameter in parameters:
            state = self.state[parameter]
            state["step"] = step  # loading a state gives each parameter a count of its own
            if "exp_avg" not in state:
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            means.append(state["exp_avg"])
            squares.append(state["exp_avg_sq"])
        return step, means, squares


class Muon(Adam):
    """Muon (Jordan et al. 2024) for the hidden matrices of `policy`, Adam for all the rest.

    A matrix moves along its momentum made orthogonal: all directions at once, equally far. The
    step is scaled to what Adam's would be (Liu et al. 2025), so that one learning rate fits both.
    """

    def __init__(
        self,
        policy: nn.Module,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
        momentum: float = 0.95,
    ) -> None:
        trained = [p for p in policy.parameters() if p.requires_grad]
        hidden = hidden_matrices(policy)
        chosen = {id(p) for p in hidden}
        groups: list[dict[str, Any]] = [
            {"params": hidden, "momentum": momentum},
            {"params": [p for p in trained if id(p) not in chosen], "momentum": None},
        ]
        super().__init__([group for group in groups if group["params"]], lr, betas, eps)

    @classmethod
    def from_config(cls, policy: nn.Module, config: TrainConfig) -> Self:
        betas = (config.adam_beta1, config.adam_beta2)
        return cls(policy, config.learning_rate, betas, config.adam_eps, config.muon_momentum)

    def _update(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        scale: Tensor | None,
        veto: Tensor | None,
    ) -> None:
        if group["momentum"] is None:
            super()._update(group, parameters, scale, veto)
            return
        keep = 1.0 if veto is None else 1 - veto
        for p in parameters:
            grad, buffer = _sound(cast(Tensor, p.grad), scale, veto), self._momentum(p)
            buffer += (grad - buffer) * ((1 - group["momentum"]) * keep)
            ahead = grad.lerp(buffer, group["momentum"])  # Nesterov's momentum
            direction = orthogonalised(ahead)
            p -= direction * (group["lr"] * 0.2 * math.sqrt(max(p.shape)) * keep)

    def _momentum(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer: Tensor = state["momentum_buffer"]
        return buffer

    def moments(self, parameters: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
        [rest] = (group for group in self.param_groups if group["momentum"] is None)
        own = set(map(id, rest["params"]))
        step, means, squares = self._moments([p for p in parameters if id(p) in own], rest)
        of_adam = zip(means, squares, strict=True)
        pairs: list[tuple[Tensor, Tensor | None]] = [
            next(of_adam) if id(p) in own else (self._momentum(p), None) for p in parameters
        ]
        return step, [mean for mean, _ in pairs], [square for _, square in pairs]


def hidden_matrices(policy: nn.Module) -> list[nn.Parameter]:
    """Return the trained matrices between hidden layers.

    Input layers, heads and look-up tables do not count: one of their sides is short, or their rows
    are used one at a time.
    """
    tables = {
        id(module.weight)
        for module in policy.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag)
    }
    return [
        p
        for p in policy.parameters()
        if p.requires_grad and p.dim() == 2 and min(p.shape) >= _HIDDEN and id(p) not in tables
    ]


def orthogonalised(matrix: Tensor, steps: int = 5) -> Tensor:
    """Return nearly U V^T of `matrix` = U S V^T, by a Newton-Schulz iteration: products only."""
    a, b, c = _NEWTON_SCHULZ
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if is_tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.t()
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.t() if is_tall else x


def _sound(grad: Tensor, scale: Tensor | None, veto: Tensor | None) -> Tensor:
    """Return the gradient over `scale`, zeros under a veto (nan times 0 is nan)."""
    if scale is not None:
        grad = grad / scale
    return grad if veto is None else grad.where(veto == 0, 0.0)
