"""NativeEngine: rollouts and PPO updates in C on the CPU, for the policies of `models`.

The engine in C (csrc/nn) reads and writes the memory of the torch tensors: parameters, moments of
Adam, rollout. So all else of a run, checkpoints and `predict` included, sees an ordinary module,
and a run may change its engine between any two iterations. Results do not depend on threads.

    collect   C envs on threads: all in C; any other env: one call in C for each batch
    train     advantages, then one call in C for each pass over the rollout
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib import native
from pufferlib.models import MLP, CategoryEncoder, VectorEncoder
from pufferlib.policies.acting import Actor, Decision
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.recurrent import RecurrentState
from pufferlib.system import usable_cores
from pufferlib.training.engine import LOSSES, NUMBERS, Parts, Schedule
from pufferlib.training.minibatches import prioritised_units, shuffled_units
from pufferlib.training.optimizers import Adam
from pufferlib.training.rollout import Carry, Rollout, Targets
from pufferlib.training.torch_engine import ADVANTAGE_FLOOR, TorchEngine
from pufferlib.vectorization.threads import Threads

if TYPE_CHECKING:
    from pufferlib.config import BatchShape
    from pufferlib.vectorization import VectorEnv

_DTYPES = ("uint8", "bool", "float32", "float64", "int32", "int64")  # of observations
_MAX_PARTS = 64  # discrete or continuous components of an action: PUF_MAX_ACTION_PARTS
_ACTIVATIONS = {nn.ReLU: "relu", nn.Tanh: "tanh"}


class NativeEngine(TorchEngine):
    """The engine for MLPs on the CPU; what it leaves to torch it inherits."""

    name = "native"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        network = describe(parts.policy, parts.spaces)
        if isinstance(network, str):
            raise TypeError(f"`unsupported` must be asked first: {network}")
        self._policy, self._network_parameters = parts.policy, network.parameters
        threads = parts.config.torch_threads or usable_cores()
        self._core = native.make_engine(num_threads=threads, **network.spec)
        self._bound: tuple[int, ...] = ()
        self._fuses_steps = type(self.optimizer) is Adam
        self._native_actor = _NativeActor(self._core, self.actor)

    @staticmethod
    def unsupported(parts: Parts) -> str:
        config = parts.config
        if parts.device.type != "cpu":
            return f"device {parts.device.type}"
        if parts.world.size > 1:
            return "several processes"
        if config.precision != "float32":
            return f"precision {config.precision}"
        if config.compile == "on":
            return "torch.compile"
        network = describe(parts.policy, parts.spaces)
        return network if isinstance(network, str) else ""

    def begin_on(self, env: VectorEnv, spaces: PolicySpaces, shape: BatchShape) -> None:
        super().begin_on(env, spaces, shape)
        self._native_actor.spaces = spaces
        rollout = self.rollout
        masks = rollout.action_masks
        self._core.bind_rollout(
            num_slots=rollout.num_slots,
            observations=_array(rollout.observations),
            actions=_array(rollout.actions),
            action_masks=None if masks is None else _bytes(masks),
            logprobs=_array(rollout.logprobs),
            values=_array(rollout.values),
            rewards=_array(rollout.rewards),
            final_values=_array(rollout.final_values),
            terminals=_bytes(rollout.terminals),
            truncations=_bytes(rollout.truncations),
            resets=_bytes(rollout.resets),
            masks=_bytes(rollout.masks),
            bootstrap=_array(rollout.bootstrap),
        )

    # ---- The two halves of an iteration ----------------------------------------------------------

    def collect(self, env: VectorEnv, carry: Carry) -> Carry:
        if self._has_changed():
            return super().collect(env, carry)
        self._bind_parameters()
        if type(env) is not Threads or env.batches > 1 or self.actor.normalise is not None:
            with self._native_actor.acting():
                return self._collect(env, self._native_actor, self.rollout, carry, self._profiler)
        self._profiler("env")  # it has no time of its own, but a place in the log
        with self._profiler("forward"):  # env and policy in one
            resets = carry.resets.clone()
            key = _draw_key(self._native_actor.generator)
            self.rollout.all_present = self._core.collect(env.handle(), _bytes(resets), key, 0)
        return carry._replace(resets=resets)

    def train(self, shape: BatchShape, now: Schedule) -> tuple[NDArray[np.float32], float]:
        if self._has_changed():
            return super().train(shape, now)
        config, rollout = self.config, self.rollout
        for group in self.optimizer.param_groups:
            group["lr"] = now.learning_rate
        with self._profiler("advantage"):
            targets = self.targets(rollout)
            variance = _explained_variance(rollout, targets.returns)
        with self._profiler("update"):
            self._bind_parameters()
            tables: list[NDArray[np.float32]] = []
            left = self._num_updates(shape)
            while left > 0:
                if config.vtrace and tables:
                    targets = self.targets(rollout, self.ratios(rollout, shape))
                tables.append(self._native_pass(shape, targets, now, left))
                left -= len(tables[-1])
                last_kl = tables[-1][-1, LOSSES.index("approx_kl")]
                if config.target_kl is not None and last_kl > config.target_kl:
                    break
        return np.concatenate(tables), variance

    def _has_changed(self) -> bool:
        """Return whether the policy has hooks or frozen parameters now: torch honours them."""
        return any(map(_has_hooks, self._policy.modules())) or any(
            p._backward_hooks or not p.requires_grad for p in self._network_parameters
        )

    def ratios(self, rollout: Rollout, shape: BatchShape) -> Tensor:
        if self._has_changed():
            return super().ratios(rollout, shape)
        logprobs = torch.empty_like(rollout.logprobs)
        self._core.logprobs(_array(logprobs))
        return (logprobs - rollout.logprobs).exp()

    def _native_pass(
        self, shape: BatchShape, targets: Targets, now: Schedule, most: int
    ) -> NDArray[np.float32]:
        """Make the updates of one pass over the rollout, at most `most`; return their NUMBERS."""
        config, rollout = self.config, self.rollout
        weights = None
        if config.prio_alpha == 0:
            order = shuffled_units(len(targets.returns), shape, self._rng)
        else:
            order, of_units = prioritised_units(
                rollout,
                targets.advantages,
                shape,
                self._rng,
                alpha=config.prio_alpha,
                beta=now.prio_beta,
            )
            weights = of_units[order].numpy()
        ends = np.cumsum([0, *map(len, order.tensor_split(shape.minibatches))])
        splits = ends[: most + 1]
        group = self.optimizer.param_groups[0]
        numbers = np.empty((len(splits) - 1, len(NUMBERS)), np.float32)
        given: dict[str, Any] = {
            "advantages": _array(targets.advantages.contiguous()),
            "returns": _array(targets.returns.contiguous()),
            "order": order.numpy(),
            "weights": weights,
            "by_step": shape.by_step,
            "all_present": rollout.all_present,
            "clip_coef": now.clip_coef,
            "vf_coef": config.vf_coef,
            "ent_coef": now.ent_coef,
            "vf_clip_coef": -1.0 if config.vf_clip_coef is None else config.vf_clip_coef,
            "norm_adv": config.norm_adv,
            "adv_floor": ADVANTAGE_FLOOR if config.norm_reward else 1e-8,
            "max_grad_norm": -1.0 if config.max_grad_norm is None else config.max_grad_norm,
            "learning_rate": now.learning_rate,
            "beta1": group["betas"][0],
            "beta2": group["betas"][1],
            "eps": group["eps"],
        }
        if self._fuses_steps:
            count, _, _ = self.optimizer.moments(self._network_parameters)
            self._core.pass_(splits=splits, num_steps=_array(count), numbers=numbers, **given)
            return numbers
        for index in range(len(numbers)):
            own = np.ascontiguousarray(splits[index : index + 2])
            self._core.pass_(splits=own, num_steps=None, numbers=numbers[index], **given)
            self._step_by_torch()
        return numbers

    def _step_by_torch(self) -> None:
        """Let the optimizer use the gradients of the last minibatch."""
        for index, parameter in enumerate(self._network_parameters):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            self._core.gradient(index, _array(parameter.grad))
        self._step()
        self._core.pack()

    def _bind_parameters(self) -> None:
        """Let C see the memory that parameters and moments have now, and the values in it."""
        parts = list(self._network_parameters)
        moments: tuple[list[Tensor], list[Tensor]] = ([], [])
        if self._fuses_steps:
            _, *moments = self.optimizer.moments(parts)  # type: ignore[assignment]
        bound = tuple(part.data_ptr() for part in (*parts, *moments[0], *moments[1]))
        if bound != self._bound:
            self._core.bind_params(
                *([_array(part) for part in group] for group in (parts, *moments))
            )
            self._bound = bound
        self._core.pack()


class _NativeActor(Actor):
    """Acts in C where a rollout asks for it, with random numbers that belong to slots."""

    def __init__(self, core: Any, actor: Actor) -> None:
        super().__init__(
            actor.policy,
            actor.spaces,
            actor.device,
            normalise=actor.normalise,
            generator=actor.generator,
        )
        self._core = core

    def values(
        self,
        observations: NDArray[Any],
        state: RecurrentState,
        agent_ids: Tensor | None = None,
    ) -> Tensor:
        rows = self.observe(observations)
        values = torch.empty(len(rows))
        self._call(rows, None, 0, None, None, None, values)
        return values

    def act(
        self,
        observations: Tensor,
        state: RecurrentState,
        *,
        action_masks: Tensor | None = None,
        agent_ids: Tensor | None = None,
        deterministic: bool = False,
    ) -> Decision:
        layout, count = self.spaces.action, len(observations)
        dtype = torch.int32 if layout.nvec else torch.float32
        actions, env_actions = (torch.empty(count, *layout.shape, dtype=dtype) for _ in range(2))
        logprobs, values = torch.empty(count), torch.empty(count)
        key = _draw_key(self.generator)
        self._call(observations, action_masks, key, actions, env_actions, logprobs, values)
        return Decision(actions, logprobs, values, None, self._spelled(env_actions))

    def _spelled(self, rows: Tensor) -> Tensor:
        """Return rows as `VectorEnv.step` takes them; see `distributions.env_actions`."""
        layout = self.spaces.action
        if layout.is_plain:
            return rows
        starts = torch.tensor(layout.starts)
        if not layout.num_continuous:
            return rows + starts.view(layout.shape)
        count = layout.num_discrete
        values, reals = rows[:, :count] + starts, rows[:, count:].contiguous().view(torch.float32)
        return torch.cat((values.double(), reals.double()), 1)

    def _call(
        self,
        observations: Tensor,
        action_masks: Tensor | None,
        key: int,
        actions: Tensor | None,
        env_actions: Tensor | None,
        logprobs: Tensor | None,
        values: Tensor,
    ) -> None:
        self._core.act(
            observations=_array(observations.contiguous()),
            action_masks=None if action_masks is None else _bytes(action_masks.contiguous()),
            key=key,
            first_slot=0,
            counter=0,
            actions=None if actions is None else _array(actions),
            env_actions=None if env_actions is None else _array(env_actions),
            logprobs=None if logprobs is None else _array(logprobs),
            values=_array(values),
        )


def _explained_variance(rollout: Rollout, returns: Tensor) -> float:
    """Do what `ppo.explained_variance` does."""
    masks = None if rollout.all_present else _array(rollout.masks)
    _, _, spread = native.moments(_array(returns.contiguous()), masks)
    _, _, left = native.moments(_array(returns - rollout.values), masks)
    return 1 - left / spread if spread > 0 else np.nan


def _draw_key(generator: torch.Generator | None) -> int:
    """Draw the key of random numbers in C from the run's generator, which a checkpoint keeps."""
    return int(torch.randint(2**62, (), generator=generator))


def _array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().numpy()


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    return _array(tensor).view(np.uint8)


# ---- Policies ------------------------------------------------------------------------------------


class Network(NamedTuple):
    """A policy as C knows it: sizes, and parameters in the order of csrc/nn/network.h."""

    spec: dict[str, Any]
    parameters: list[Tensor]


def describe(policy: nn.Module, spaces: PolicySpaces) -> Network | str:
    """Return the network of a policy, or in a few words why there is none."""
    if type(policy) is not MLP:
        return f"policy {type(policy).__name__}"
    if any(_has_hooks(module) for module in policy.modules()):
        return "hooks of the policy"
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
    for head in (policy.actor, policy.critic):
        parameters += [head.weight, head.bias]
    reals: dict[str, Any] = dict.fromkeys(("center", "scale"), np.zeros(0, np.float32))
    reals["bounded"] = np.zeros(0, np.uint8)
    if action.num_continuous:
        parameters.append(policy.log_std)
        reals = {"center": _array(policy.center), "scale": _array(policy.scale)}
        reals["bounded"] = _bytes(policy.bounded)
    own = {id(p): p for p in policy.parameters()}
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
            "low": _array(scale.low.flatten()) if scale.is_needed else None,
            "factor": _array(scale.factor.flatten()) if scale.is_needed else None,
            **dict.fromkeys(("lowest", "highest", "offset")),
            "table_rows": 0,
        }
        parameters, width = [encoder.weight, encoder.bias], encoder.out_features
    elif type(encoder) is CategoryEncoder:
        given = {
            "obs_size": len(encoder.offsets),
            "low": None,
            "factor": None,
            "lowest": _array(encoder.lowest),
            "highest": _array(encoder.highest),
            "offset": _array(encoder.offsets),
            "table_rows": len(encoder.table),
        }
        parameters, width = [encoder.table], encoder.table.shape[1]
    else:
        return f"encoder {type(encoder).__name__}"
    for module in rest:
        parameters += [module.weight, module.bias]
    widths = [width, *(module.out_features for module in rest)]
    return _Branch(given, widths, _ACTIVATIONS[activations.pop()], parameters)


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
