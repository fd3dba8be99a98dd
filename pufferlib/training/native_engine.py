"""NativeEngine: rollouts and PPO updates in C on the CPU, for MLPs with or without a core.

The engine in C (csrc/nn) reads and writes the memory of the torch tensors: parameters, moments of
Adam, rollout. So the rest of a run, checkpoints and `predict` included, uses an ordinary module,
and a run may change its engine between any two iterations. Results do not depend on threads.

    collect   C envs on threads: all in C; any other env: one call in C for each batch
    train     advantages, then one call in C for the passes over the rollout
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pufferlib import native
from pufferlib.policies.acting import Actor, Decision
from pufferlib.policies.normalisation import CLIP, RETURN_FLOOR, RewardNorm
from pufferlib.policies.observations import PolicySpaces
from pufferlib.policies.recurrent import RecurrentState, tensors_of
from pufferlib.system import usable_cores
from pufferlib.training.engine import LOSSES, NUMBERS, Parts, Schedule
from pufferlib.training.native_network import array_of, bytes_of, describe, hooks_of
from pufferlib.training.optimizers import Adam
from pufferlib.training.ppo import Targets, explained_variance, mean_and_variance
from pufferlib.training.rollout import Carry, Priority, Rollout, Share, draw, shares
from pufferlib.training.torch_engine import ADVANTAGE_FLOOR, TorchEngine
from pufferlib.vectorization.threads import Threads

if TYPE_CHECKING:
    from pufferlib.config import BatchShape
    from pufferlib.vectorization import VectorEnv

_MAX_STEPS = 2**20  # of the passes that one call in C makes: the order of all is in memory


class NativeEngine(TorchEngine):
    """The engine for MLPs and recurrent cores on the CPU; it inherits the parts torch computes."""

    name = "native"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        network = describe(parts.policy, parts.spaces)
        if isinstance(network, str):
            raise TypeError(f"`unsupported` must be called first: {network}")
        self._network_parameters = network.parameters
        threads = parts.config.torch_threads or usable_cores()
        self._core = native.make_engine(num_threads=threads, **network.spec)
        self._bound: list[int] = []  # addresses that C knows: of parameters, then of Adam's state
        self._num_steps: Tensor | None = None  # of Adam so far
        self._hooks = [hooks for module in parts.policy.modules() for hooks in hooks_of(module)]
        # processes exchange gradients between C's part of an update and the step
        self._fuses_steps = type(self.optimizer) is Adam and parts.world.size == 1
        self._advantage_floor = ADVANTAGE_FLOOR if parts.config.norm_reward else 1e-8
        self._state = _StateForm(network.spec["core"], network.spec["core_width"])
        self._keys = _Keys(parts.sample_rng)
        self._native_actor = _NativeActor(
            self._core, self.actor, self._state, self._keys, parts.world.rank
        )
        self._view = _Views()

    @staticmethod
    def unsupported(parts: Parts) -> str:
        config = parts.config
        if parts.device.type != "cpu":
            return f"device {parts.device.type}"
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
        self._targets = Targets(torch.empty_like(rollout.values), torch.empty_like(rollout.values))
        masks = rollout.action_masks
        self._core.bind_rollout(
            num_slots=rollout.num_slots,
            observations=array_of(rollout.observations),
            actions=array_of(rollout.actions),
            action_masks=None if masks is None else bytes_of(masks),
            logprobs=array_of(rollout.logprobs),
            values=array_of(rollout.values),
            rewards=array_of(rollout.rewards),
            final_values=array_of(rollout.final_values),
            terminals=bytes_of(rollout.terminals),
            truncations=bytes_of(rollout.truncations),
            resets=bytes_of(rollout.resets),
            masks=bytes_of(rollout.masks),
            bootstrap=array_of(rollout.bootstrap),
        )

    # ---- The two halves of an iteration ----------------------------------------------------------

    def collect(self, env: VectorEnv, carry: Carry) -> Carry:
        self.rollout.all_finite = False
        if self._has_changed():
            return super().collect(env, carry)
        self._pack()
        if type(env) is not Threads or env.batches > 1 or self.actor.normalise is not None:
            with self._native_actor.acting():
                return self._collect(env, self._native_actor, self.rollout, carry, self._profiler)
        self._profiler("env")  # no time of its own, but an entry in the log
        with self._profiler("forward"):  # env and policy in one
            rollout, form, resets = self.rollout, self._state, carry.resets
            state = form.parts(carry.state, env.num_agents, copy=True)
            states = form.empty(len(rollout.values))
            rollout.all_present, rollout.all_finite = self._core.collect(
                env.handle(),
                resets=self._view(resets),  # kept up in place: the carry before is used up
                state=list(map(array_of, state)),
                states=list(map(array_of, states)),
                key=self._keys.draw(),
                first_slot=self.world.rank * env.num_agents,
            )
            sizes = rollout.num_stretches, rollout.num_slots, -1
            stretches = [part.view(sizes).unbind(0) for part in states]
            rollout.states = [
                form.joined([part[number] for part in stretches])
                for number in range(rollout.num_stretches)
            ]
        return Carry(carry.batches, form.joined(state), resets)

    def train(self, shape: BatchShape, now: Schedule) -> tuple[NDArray[np.float32], float]:
        if self._has_changed():
            return super().train(shape, now)
        config, rollout = self.config, self.rollout
        for group in self.optimizer.param_groups:
            group["lr"] = now.learning_rate
        with self._profiler("advantage"):
            targets, variance = self._native_targets()
        with self._profiler("update"):
            self._bind_parameters()
            self._core.pack()
            tables: list[NDArray[np.float32]] = []
            left = self._num_updates(shape)
            while left > 0:
                if config.vtrace and tables:
                    targets = self.targets(rollout, self.ratios(rollout, shape))
                tables.append(self._native_passes(shape, targets, now, left))
                left -= len(tables[-1])
                last_kl = tables[-1][-1, LOSSES.index("approx_kl")]
                if config.target_kl is not None and last_kl > config.target_kl:
                    break
        return tables[0] if len(tables) == 1 else np.concatenate(tables), variance

    def _has_changed(self) -> bool:
        """Return whether the policy has hooks or frozen parameters now: torch honours them."""
        return any(self._hooks) or any(
            p._backward_hooks or not p.requires_grad for p in self._network_parameters
        )

    def ratios(self, rollout: Rollout, shape: BatchShape) -> Tensor:
        if self._has_changed():
            return super().ratios(rollout, shape)
        logprobs = torch.empty_like(rollout.logprobs)
        self._core.logprobs(self._initial_states(), array_of(logprobs))
        return (logprobs - rollout.logprobs).exp()

    def _initial_states(self) -> list[NDArray[np.float32]]:
        """Return the recurrent state before each segment, part by part."""
        state = self.rollout.initial_state()
        return list(map(array_of, self._state.parts(state, len(self.rollout.values))))

    def _native_passes(
        self, shape: BatchShape, targets: Targets, now: Schedule, most: int
    ) -> NDArray[np.float32]:
        """Make the updates of the next passes over the rollout, at most `most`.

        Returns their NUMBERS. It is one pass if something must happen before the next one.
        """
        config, rollout = self.config, self.rollout
        betas, eps = itemgetter("betas", "eps")(self.optimizer.param_groups[0])
        as_array = self._view if targets is self._targets else array_of
        given: dict[str, Any] = {
            "states": self._initial_states(),
            "advantages": as_array(targets.advantages.contiguous()),
            "returns": as_array(targets.returns.contiguous()),
            "by_step": shape.by_step,
            "all_present": rollout.all_present,
            "clip_coef": now.clip_coef,
            "vf_coef": config.vf_coef,
            "ent_coef": now.ent_coef,
            "vf_clip_coef": -1.0 if config.vf_clip_coef is None else config.vf_clip_coef,
            "norm_adv": config.norm_adv,
            "adv_floor": self._advantage_floor,
            "max_grad_norm": -1.0 if config.max_grad_norm is None else config.max_grad_norm,
            "learning_rate": now.learning_rate,
            "beta1": betas[0],
            "beta2": betas[1],
            "eps": eps,
        }
        source = (rollout, targets.advantages, shape, self._rng, self.world)
        priority = Priority(config.prio_alpha, now.prio_beta)
        if not self._fuses_steps:
            return self._torch_steps(shares(*source, priority)[:most], given)
        is_alone = config.vtrace or config.target_kl is not None
        passes = 1 if is_alone else max(1, _MAX_STEPS // rollout.values.numel())
        passes = min(passes, -(-most // shape.minibatches))
        drawn = [draw(*source, priority) for _ in range(passes)]
        order = drawn[0].units if passes == 1 else torch.cat([each.units for each in drawn])
        weights = drawn[0].weights  # the same in every pass
        splits = _splits(len(drawn[0].units), shape.minibatches, passes)[: most + 1]
        numbers = np.empty((len(splits) - 1, len(NUMBERS)), np.float32)
        assert self._num_steps is not None
        self._core.pass_(
            order=order.numpy(),
            splits=splits,
            weights=None if weights is None else weights[order].numpy(),
            moments=None,
            num_steps=self._view(self._num_steps),
            numbers=numbers,
            **given,
        )
        return numbers

    def _torch_steps(self, parts: list[Share], given: dict[str, Any]) -> NDArray[np.float32]:
        """Make the updates of these minibatches one by one: C has the gradients, torch steps."""
        numbers = np.empty((len(parts), len(NUMBERS)), np.float32)
        for index, part in enumerate(parts):
            self._core.pass_(
                order=part.units.numpy(),
                splits=np.array([0, len(part.units)]),
                weights=None if part.weights is None else part.weights.numpy(),
                moments=self._moments_in_c(part.moments),
                num_steps=None,
                numbers=numbers[index],
                **given,
            )
            numbers[index, -1] = self._step_by_torch()
        if self.world.size > 1:
            losses = torch.from_numpy(numbers[:, : len(LOSSES)].copy())
            numbers[:, : len(LOSSES)] = self.world.sum_(losses).numpy()
        return numbers

    def _native_targets(self) -> tuple[Targets, float]:
        """Return the targets of the rollout and its explained variance."""
        config, rollout = self.config, self.rollout
        if not self._scans_in_c():
            targets = self.targets(rollout)
            masks = None if rollout.all_present else rollout.masks
            sum_ = None if self.world.size == 1 else self.world.sum_
            return targets, float(explained_variance(rollout.values, targets.returns, masks, sum_))
        variance = self._core.targets(
            rollout.all_present, config.gamma, config.gae_lambda, *map(self._view, self._targets)
        )
        return self._targets, variance

    def normalise_rewards(self, norm: RewardNorm) -> None:
        if not self._scans_in_c():
            return super().normalise_rewards(norm)
        moments = norm.moments
        self._core.normalise_rewards(
            all_present=self.rollout.all_present,
            gamma=norm.gamma,
            running=self._view(norm.returns),
            count=self._view(moments.count),
            mean=self._view(moments.mean),
            variance=self._view(moments.var),
            floor=RETURN_FLOOR,
            limit=CLIP,
        )

    def _scans_in_c(self) -> bool:
        """Return whether C can go through the rollout slot by slot, alone."""
        return type(self.rollout) is Rollout and self.world.size == 1

    def _moments_in_c(self, moments: Tensor | None) -> NDArray[np.float64] | None:
        """Return number, mean and deviation of the advantages of a minibatch of all processes."""
        if moments is None:
            return None
        mean, variance = 0.0, 1.0
        if self.config.norm_adv:
            mean, variance = map(float, mean_and_variance(moments))
        return np.array([float(moments[0]), mean, max(variance**0.5, self._advantage_floor)])

    def _step_by_torch(self) -> float:
        """Sum the gradients of the last minibatch over processes, let the optimizer use them.

        Returns their norm.
        """
        for index, parameter in enumerate(self._network_parameters):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            self._core.gradient(index, array_of(parameter.grad))
        self.world.sum_gradients(self.parameters)
        norm = self._step()
        self._core.pack()
        return float(norm)

    def _pack(self) -> None:
        """Let C use the weights as they are now."""
        parameters = self._network_parameters
        if [part.data_ptr() for part in parameters] != self._bound[: len(parameters)]:
            self._bind_parameters()
        self._core.pack()

    def _bind_parameters(self) -> None:
        """Pass the memory of parameters and moments to C, if it has moved."""
        if self._addresses() == self._bound:
            return
        groups: list[list[Tensor]] = [self._network_parameters, [], []]
        if self._fuses_steps:
            self._num_steps, *groups[1:] = self.optimizer.moments(self._network_parameters)
        self._core.bind_params(*([array_of(part) for part in group] for group in groups))
        self._bound = self._addresses()

    def _addresses(self) -> list[int]:
        """Return where parameters are, and where the optimizer has its state."""
        addresses = [part.data_ptr() for part in self._network_parameters]
        if self._fuses_steps:
            states = self.optimizer.state.values()
            addresses += [part.data_ptr() for state in states for part in state.values()]
        return addresses


class _StateForm:
    """The recurrent state of a core: a tensor, a pair of an LSTM, or None without a core."""

    def __init__(self, core: str, width: int) -> None:
        self._count = {"none": 0, "lstm": 2}.get(core, 1)
        self._width = width

    def empty(self, rows: int) -> list[Tensor]:
        """Return the parts of a state `[rows, width]`, to be written."""
        return [torch.empty(rows, self._width) for _ in range(self._count)]

    def parts(self, state: RecurrentState, rows: int, copy: bool = False) -> list[Tensor]:
        """Return the parts of a state as C reads them; zeros for None."""
        if not self._count:
            return []
        if state is None:
            return [part.zero_() for part in self.empty(rows)]
        return [part.clone() if copy else part.contiguous() for part in tensors_of(state)]

    def joined(self, parts: Sequence[Tensor]) -> RecurrentState:
        """Return the state of these parts."""
        if self._count == 2:
            return tuple(parts)
        return parts[0] if parts else None


class _Views:
    """Arrays of the memory of tensors that live as long as the engine, each made once.

    An array of a tensor takes several microseconds to make, and an iteration only a few thousand.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Tensor, NDArray[Any]]] = {}

    def __call__(self, tensor: Tensor) -> NDArray[Any]:
        if id(tensor) not in self._known:  # the entry keeps the tensor, so its id stays its own
            is_flags = tensor.dtype == torch.bool
            self._known[id(tensor)] = tensor, bytes_of(tensor) if is_flags else array_of(tensor)
        return self._known[id(tensor)][1]


class _Keys:
    """Draws the keys of random numbers in C from the run's generator, which a checkpoint keeps."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._key = torch.zeros((), dtype=torch.int64)
        self._number = self._key.numpy()  # the same memory

    def draw(self) -> int:
        self._key.random_(2**62, generator=self._generator)
        return int(self._number)


class _NativeActor(Actor):
    """Acts in C where a rollout asks for it, with random numbers that belong to slots."""

    def __init__(self, core: Any, actor: Actor, form: _StateForm, keys: _Keys, rank: int) -> None:
        super().__init__(
            actor.policy,
            actor.spaces,
            actor.device,
            normalise=actor.normalise,
            generator=actor.generator,
        )
        self._core, self._form, self._keys, self._rank = core, form, keys, rank

    def values(
        self,
        observations: NDArray[Any],
        state: RecurrentState,
        agent_ids: Tensor | None = None,
    ) -> Tensor:
        rows = self.observe(observations)
        values = torch.empty(len(rows))
        self._call(rows, None, state, None, 0, None, None, None, values)
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
        key, after = self._keys.draw(), self._form.empty(count)
        self._call(
            observations, action_masks, state, after, key, actions, env_actions, logprobs, values
        )
        following = self._form.joined(after)
        return Decision(actions, logprobs, values, following, self._spelled(env_actions))

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
        state: RecurrentState,
        next_state: list[Tensor] | None,
        key: int,
        actions: Tensor | None,
        env_actions: Tensor | None,
        logprobs: Tensor | None,
        values: Tensor,
    ) -> None:
        self._core.act(
            observations=array_of(observations.contiguous()),
            action_masks=None if action_masks is None else bytes_of(action_masks.contiguous()),
            state=list(map(array_of, self._form.parts(state, len(observations)))),
            next_state=None if next_state is None else list(map(array_of, next_state)),
            key=key,
            first_slot=self._rank * len(observations),
            counter=0,
            actions=None if actions is None else array_of(actions),
            env_actions=None if env_actions is None else array_of(env_actions),
            logprobs=None if logprobs is None else array_of(logprobs),
            values=array_of(values),
        )


@cache
def _splits(count: int, minibatches: int, passes: int) -> NDArray[np.int64]:
    """Return where the minibatches of some passes begin and end; sizes are as `tensor_split`'s."""
    sizes = [count // minibatches + (i < count % minibatches) for i in range(minibatches)]
    return np.cumsum([0, *sizes * passes])
