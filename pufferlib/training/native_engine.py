"""NativeEngine: rollouts and PPO updates in C on the CPU, for MLPs with or without a core.

The engine in C (csrc/nn) reads and writes the memory of the torch tensors: parameters, moments of
the optimizer, rollout. So the rest of a run, checkpoints and `predict` included, uses an ordinary
module, and a run may change its engine between any two iterations. Results do not depend on
threads.

    collect   C envs on threads: all in C; any other env: one call in C for each batch
    train     advantages, then one call in C for the passes over the rollout
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from operator import itemgetter
from time import perf_counter
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
from pufferlib.training.native_network import Network, Watch, array_of, bytes_of, describe
from pufferlib.training.optimizers import Adam, Muon
from pufferlib.training.ppo import Targets, explained_variance, mean_and_variance
from pufferlib.training.rollout import Carry, Priority, Rollout, Share, draw, next_key, shares
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
        # processes exchange gradients between C's part of an update and the step
        self._fuses_steps = type(self.optimizer) in (Adam, Muon) and parts.world.size == 1
        self._advantage_floor = ADVANTAGE_FLOOR if parts.config.norm_reward else 1e-8
        self._sample_rng = parts.sample_rng
        self._observation_norm = parts.observation_norm
        self._resets: tuple[Tensor, NDArray[np.uint8]] | None = None  # of the last carry
        self._network: Network | None = None  # the policy as C knows it
        self._has_warned = False
        network = describe(parts.policy, parts.spaces)
        if isinstance(network, str):
            raise TypeError(f"`unsupported` must be called first: {network}")
        self._know(network)

    def _know(self, network: Network) -> None:
        """Let C know the policy as it is now."""
        if self._network is None or not self._network.fits(network):
            threads = self.config.torch_threads or usable_cores()
            self._core = native.make_engine(num_threads=threads, **network.spec)
            self._norm: RewardNorm | None = None  # whose statistics C knows
            self._state = _StateForm(network.spec["core"], network.spec["core_width"])
            self._native_actor = _NativeActor(self._core, self.actor, self._state, self.world.rank)
            if self._network is not None:
                self._bind_rollout()
        self._network, self._network_parameters = network, network.parameters
        self._core.bind_params(list(map(array_of, network.parameters)), [], [], None)
        # the optimizer's state whose moments C knows, and whether they are still there
        self._moments: tuple[Mapping[Any, Any], Any] | None = None
        self._watch = Watch(self.policy, network)

    def _knows_policy(self) -> bool:
        """Return whether C can act and train as the policy is now; else torch does.

        The policy may have got hooks or other layers, or be frozen; weights may have moved.
        """
        if self._watch.is_current():
            return True
        self.check_parameters()
        network = describe(self.policy, self.spaces)
        if isinstance(network, str):
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"torch takes over from the native engine, which does not support {network}.",
                    UserWarning,
                    stacklevel=5,
                )
            return False
        self._know(network)
        return True

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
        values = self.rollout.values
        self._targets = Targets(torch.empty_like(values), torch.empty_like(values))
        self._bind_rollout()

    def _bind_rollout(self) -> None:
        """Pass the memory of the rollout and its targets to C."""
        self._native_actor.spaces = self.spaces
        self._norm = None
        rollout, masks = self.rollout, self.rollout.action_masks
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
            advantages=array_of(self._targets.advantages),
            returns=array_of(self._targets.returns),
        )

    # ---- The two halves of an iteration ----------------------------------------------------------

    def collect(self, env: VectorEnv, carry: Carry) -> Carry:
        self.rollout.all_finite = False
        if not self._knows_policy():
            return super().collect(env, carry)
        norm = self._observation_norm
        memory = None if norm is None else norm.memory()
        is_ready = norm is None or memory is not None
        if type(env) is not Threads or env.batches > 1 or not is_ready:
            self._core.pack()
            with self._native_actor.acting():
                return self._collect(env, self._native_actor, self.rollout, carry, self._profiler)
        start = perf_counter()
        rollout, form = self.rollout, self._state
        state = form.parts(carry.state, env.num_agents, copy=True)
        states = form.empty(rollout.num_stretches * rollout.num_slots)
        rollout.all_present, rollout.all_finite, env_share = self._core.collect(
            env.handle(),
            resets=self._resets_in_c(carry.resets),
            state=list(map(array_of, state)),
            states=list(map(array_of, states)),
            norm=None if memory is None else tuple(map(array_of, memory)),
            limit=CLIP,
            key=next_key(self._sample_rng),
            first_slot=self.world.rank * env.num_agents,
        )
        rollout.states = form.stretches(states, rollout.num_stretches)
        seconds = perf_counter() - start
        self._profiler.add("env", env_share * seconds)
        self._profiler.add("forward", (1 - env_share) * seconds)
        return Carry(carry.batches, form.joined(state), carry.resets)

    def _resets_in_c(self, resets: Tensor) -> NDArray[np.uint8]:
        """Return the resets of a carry; C keeps them up in place, so they are those of the next."""
        if self._resets is None or self._resets[0] is not resets:
            self._resets = resets, bytes_of(resets)
        return self._resets[1]

    def train(self, shape: BatchShape, now: Schedule) -> tuple[NDArray[np.float32], float]:
        self.is_native = self._knows_policy()
        if not self.is_native:
            return super().train(shape, now)
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = now.learning_rate
        with self._profiler("advantage"):
            variance = self._set_targets()
        with self._profiler("update"):
            self._bind_moments()
            tables: list[NDArray[np.float32]] = []
            left = self._num_updates(shape)
            while left > 0:
                if config.vtrace and tables:
                    self._keep(self.targets(self.rollout, self.ratios(self.rollout, shape)))
                tables.append(self._native_passes(shape, now, left))
                left -= len(tables[-1])
                if config.target_kl is not None:
                    last_kl = tables[-1][-1, LOSSES.index("approx_kl")]
                    if last_kl > config.target_kl:
                        break
        return tables[0] if len(tables) == 1 else np.concatenate(tables), variance

    def ratios(self, rollout: Rollout, shape: BatchShape) -> Tensor:
        if not self._knows_policy():
            return super().ratios(rollout, shape)
        logprobs = torch.empty_like(rollout.logprobs)
        self._core.logprobs(self._initial_states(), array_of(logprobs))
        return (logprobs - rollout.logprobs).exp()

    def _initial_states(self) -> list[NDArray[np.float32]]:
        """Return the recurrent state before each segment, part by part."""
        if not self._state.count:
            return []
        state = self.rollout.initial_state()
        return list(map(array_of, self._state.parts(state, len(self.rollout.values))))

    def _native_passes(self, shape: BatchShape, now: Schedule, most: int) -> NDArray[np.float32]:
        """Make the updates of the next passes over the rollout, at most `most`.

        Returns their NUMBERS. It is one pass if something must happen before the next one.
        """
        config, rollout = self.config, self.rollout
        group = self.optimizer.param_groups[0]  # the matrices of Muon, if there are any
        betas, eps = itemgetter("betas", "eps")(group)
        given: dict[str, Any] = {
            "states": self._initial_states(),
            "by_step": shape.by_step,
            "all_present": rollout.all_present,
            "clip_coef": now.clip_coef,
            "vf_coef": config.vf_coef,
            "ent_coef": now.ent_coef,
            "vf_clip_coef": -1.0 if config.vf_clip_coef is None else config.vf_clip_coef,
            "norm_adv": config.norm_adv,
            "adv_floor": self._advantage_floor,
            "max_grad_norm": -1.0 if config.max_grad_norm is None else config.max_grad_norm,
            "step": self._fuses_steps,
            "learning_rate": now.learning_rate,
            "beta1": betas[0],
            "beta2": betas[1],
            "eps": eps,
            "muon_momentum": group.get("momentum") or 0.0,
        }
        source = (rollout, self._targets.advantages, shape, self._rng, self.world)
        priority = Priority(config.prio_alpha, now.prio_beta)
        if not self._fuses_steps:
            return self._torch_steps(shares(*source, priority)[:most], given)
        is_alone = config.vtrace or config.target_kl is not None
        steps = rollout.num_stretches * rollout.num_slots * rollout.horizon
        passes = min(1 if is_alone else max(1, _MAX_STEPS // steps), -(-most // shape.minibatches))
        updates = min(most, passes * shape.minibatches)
        keys = order = weights = None
        if config.prio_alpha == 0:  # C draws what `draw` would
            keys = [next_key(self._rng) for _ in range(passes)]
        else:
            drawn = [draw(*source, priority) for _ in range(passes)]
            units, chances = torch.cat([each.units for each in drawn]), drawn[0].weights
            assert chances is not None  # and the same in every pass
            order, weights = units.numpy(), chances[units].numpy()
        numbers = np.empty((updates, len(NUMBERS)), np.float32)
        self._core.pass_(
            keys=keys,
            order=order,
            weights=weights,
            moments=None,
            per_pass=shape.minibatches,
            updates=updates,
            numbers=numbers,
            **given,
        )
        return numbers

    def _torch_steps(self, parts: list[Share], given: dict[str, Any]) -> NDArray[np.float32]:
        """Make the updates of these minibatches one by one: C has the gradients, torch steps."""
        numbers = np.empty((len(parts), len(NUMBERS)), np.float32)
        for index, part in enumerate(parts):
            self._core.pass_(
                keys=None,
                order=part.units.numpy(),
                weights=None if part.weights is None else part.weights.numpy(),
                moments=self._moments_in_c(part.moments),
                per_pass=1,
                updates=1,
                numbers=numbers[index],
                **given,
            )
            numbers[index, -1] = self._step_by_torch()
        if self.world.size > 1:
            losses = torch.from_numpy(numbers[:, : len(LOSSES)].copy())
            numbers[:, : len(LOSSES)] = self.world.sum_(losses).numpy()
        return numbers

    def _set_targets(self) -> float:
        """Compute the targets of the rollout; return its explained variance."""
        config, rollout = self.config, self.rollout
        if not self._scans_in_c():
            self._keep(self.targets(rollout))
            masks = None if rollout.all_present else rollout.masks
            sum_ = None if self.world.size == 1 else self.world.sum_
            return float(explained_variance(rollout.values, self._targets.returns, masks, sum_))
        variance: float = self._core.targets(rollout.all_present, config.gamma, config.gae_lambda)
        return variance

    def _keep(self, targets: Targets) -> None:
        """Let C train on these targets."""
        for own, given in zip(self._targets, targets, strict=True):
            own.copy_(given)

    def normalise_rewards(self, norm: RewardNorm) -> None:
        if not self._scans_in_c():
            return super().normalise_rewards(norm)
        if norm is not self._norm:
            moments = norm.moments
            parts = (norm.returns, moments.count, moments.mean, moments.var)
            self._core.bind_norm(*map(array_of, parts))
            self._norm = norm
        self._core.normalise_rewards(
            all_present=self.rollout.all_present, gamma=norm.gamma, floor=RETURN_FLOOR, limit=CLIP
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
        return float(self._step())

    def _bind_moments(self) -> None:
        """Pass the memory of the optimizer to C, if C makes the steps and it has other tensors."""
        if not self._fuses_steps:
            return
        state = self.optimizer.state
        if self._moments is not None and state is self._moments[0] and self._moments[1].is_same():
            return
        num_steps, means, squares = self.optimizer.moments(self._network_parameters)
        self._core.bind_params(
            list(map(array_of, self._network_parameters)),
            list(map(array_of, means)),
            [None if square is None else array_of(square) for square in squares],
            array_of(num_steps),
        )
        self._moments = state, native.DictWatch([state, *state.values()], [], [])


class _StateForm:
    """The recurrent state of a core: a tensor, a pair of an LSTM, or None without a core."""

    def __init__(self, core: str, width: int) -> None:
        self.count = {"none": 0, "lstm": 2}.get(core, 1)  # of parts
        self._width = width

    def empty(self, rows: int) -> list[Tensor]:
        """Return the parts of a state `[rows, width]`, to be written."""
        return [torch.empty(rows, self._width) for _ in range(self.count)]

    def parts(self, state: RecurrentState, rows: int, copy: bool = False) -> list[Tensor]:
        """Return the parts of a state as C reads them; zeros for None."""
        if not self.count:
            return []
        if state is None:
            return [part.zero_() for part in self.empty(rows)]
        return [part.clone() if copy else part.contiguous() for part in tensors_of(state)]

    def stretches(self, parts: list[Tensor], number: int) -> list[RecurrentState]:
        """Return the states of that many stretches, whose rows are one after another."""
        if not parts:
            return [None] * number
        return [self.joined(own) for own in zip(*(part.chunk(number) for part in parts))]

    def joined(self, parts: Sequence[Tensor]) -> RecurrentState:
        """Return the state of these parts."""
        if self.count == 2:
            return tuple(parts)
        return parts[0] if parts else None


class _NativeActor(Actor):
    """Acts in C where a rollout asks for it, with random numbers that belong to slots."""

    def __init__(self, core: Any, actor: Actor, form: _StateForm, rank: int) -> None:
        super().__init__(
            actor.policy,
            actor.spaces,
            actor.device,
            normalise=actor.normalise,
            generator=actor.generator,
        )
        self._core, self._form, self._rank = core, form, rank

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
        assert self.generator is not None
        key, after = next_key(self.generator), self._form.empty(count)
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
