"""TorchEngine: rollouts and PPO updates in torch, for every policy and device.

Gradients and the step that uses them are computed in two places, so that several processes can sum
theirs in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pufferlib.config import OPTIMIZERS, load_choice
from pufferlib.errors import UsageError
from pufferlib.policies.acting import Actor, policy_sequence
from pufferlib.policies.distributions import evaluate_actions
from pufferlib.policies.normalisation import RewardNorm
from pufferlib.policies.observations import PolicySpaces
from pufferlib.training.async_rollout import AsyncRollout, collect_async
from pufferlib.training.engine import LOSSES, NUMBERS, Engine, Parts, Schedule
from pufferlib.training.optimizers import Adam
from pufferlib.training.ppo import (
    PpoLoss,
    Steps,
    Targets,
    compute_advantages,
    explained_variance,
    normalise_advantages,
    ppo_loss,
    without_rho,
)
from pufferlib.training.rollout import (
    Carry,
    Minibatch,
    Priority,
    Rollout,
    RolloutSizes,
    collect,
    minibatches,
    take,
)

if TYPE_CHECKING:
    from pufferlib.config import BatchShape
    from pufferlib.vectorization import VectorEnv

# The least deviation of advantages, where returns have deviation 1. Smaller ones are errors of the
# value function, which normalisation would amplify to the size of rewards.
ADVANTAGE_FLOOR = 0.05


class TorchEngine(Engine):
    """The engine that supports every policy and device; `runner` is the policy, maybe compiled."""

    name = "torch"
    _collect: Callable[..., Carry]

    def __init__(self, parts: Parts) -> None:
        policy, config, device = parts.policy, parts.config, parts.device
        self.spaces, self.config, self.device = parts.spaces, config, device
        self.world, self._rng, self._profiler = parts.world, parts.order_rng, parts.profiler
        self.policy, self.runner = policy, _compiled(policy, config.compile, device)
        self.parameters = [p for p in policy.parameters() if p.requires_grad]
        self._given = set(map(id, policy.parameters()))
        for name, module in policy.named_modules():
            if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
                raise UsageError(
                    f"`policy` must have dense gradients, but `{name}` has sparse ones. "
                    "Try sparse=False."
                )
        if not self.parameters:
            raise UsageError("`policy` must have parameters that require gradients, but has none.")
        self.optimizer: Adam = load_choice(OPTIMIZERS[config.optimizer]).from_config(policy, config)
        self.actor = Actor(
            self.runner,
            parts.spaces,
            device,
            normalise=parts.observation_norm,
            generator=parts.sample_rng,
            autocast=self._autocast,
        )

    def _autocast(self) -> AbstractContextManager[object]:
        """Return the context in which the policy is called; log-probabilities stay outside."""
        if self.config.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def begin_on(self, env: VectorEnv, spaces: PolicySpaces, shape: BatchShape) -> None:
        self.spaces = self.actor.spaces = spaces
        own = shape._replace(segments=shape.segments // self.world.size)
        has_action_masks = env.action_masks is not None
        sizes = RolloutSizes(own, env.num_agents, spaces, self.device, has_action_masks)
        if env.surplus_envs:
            self.rollout, self._collect = AsyncRollout(sizes), collect_async
        else:
            self.rollout, self._collect = Rollout(sizes), collect

    def check_parameters(self) -> None:
        """Refuse a policy with other parameters than the optimizer's: they would never learn."""
        if self._given != set(map(id, self.policy.parameters())):
            raise UsageError(
                "`policy` must keep the parameters that it had when the trainer was made, but some "
                "were replaced, added or removed. Try load_state_dict without assign=True, or "
                "another PuffeRL."
            )

    # ---- The two halves of an iteration ----------------------------------------------------------

    def collect(self, env: VectorEnv, carry: Carry) -> Carry:
        self.check_parameters()
        with self.actor.acting():
            return self._collect(env, self.actor, self.rollout, carry, self._profiler)

    def normalise_rewards(self, norm: RewardNorm) -> None:
        for steps in self.rollout.in_time():
            ends = steps.terminals | steps.truncations
            norm.update(steps.rewards, ends, steps.masks, steps.slots)
        norm.scale_(self.rollout.rewards)

    def train(self, shape: BatchShape, now: Schedule) -> tuple[NDArray[np.float32], float]:
        self.check_parameters()
        rollout = self.rollout
        target_kl = self.config.target_kl
        for group in self.optimizer.param_groups:
            group["lr"] = now.learning_rate
        with self._profiler("advantage"):
            targets = self.targets(rollout)
            variance = explained_variance(
                rollout.values,
                targets.returns,
                None if rollout.all_present else rollout.masks,
                None if self.world.size == 1 else self.world.sum_,
            )
        with self._profiler("update"):
            rows: list[Tensor] = []
            updates = self._num_updates(shape)
            while len(rows) < updates:
                if self.config.vtrace and rows:
                    targets = self.targets(rollout, self.ratios(rollout, shape))
                priority = Priority(self.config.prio_alpha, now.prio_beta)
                one_pass = minibatches(rollout, targets, shape, self._rng, self.world, priority)
                for minibatch in islice(one_pass, updates - len(rows)):
                    rows.append(self.update(minibatch, now))
                    self._profiler.progress("training", len(rows), updates, "updates")
                    if target_kl is not None:
                        self._sum_losses(rows[-1:])
                if target_kl is not None and rows[-1][LOSSES.index("approx_kl")] > target_kl:
                    break
            if target_kl is None:
                self._sum_losses(rows)
            numbers = torch.cat((*rows, variance.view(1))).cpu().numpy()  # the one wait for a GPU
        return numbers[:-1].reshape(len(rows), len(NUMBERS)), float(numbers[-1])

    def targets(self, rollout: Rollout, ratios: Tensor | None = None) -> Targets:
        """Return what to train on; a slot's segments count as one, however they were cut."""
        return rollout.scan_back(self._scan, ratios)

    def _scan(self, steps: Steps, bootstrap: Tensor, after: Tensor) -> tuple[Targets, Tensor]:
        """Return the targets of some steps, and the correction of the first value of each row.

        The correction `after` the last step enters through the bootstrap: gamma * (v + gae_lambda *
        A) is what the last step would see of the next one, and with ratios gae_lambda * c / rho.
        """
        config, ratios = self.config, steps.ratios
        clips = {"rho_clip": config.vtrace_rho_clip, "c_clip": config.vtrace_c_clip}
        share: Tensor | float = config.gae_lambda
        if ratios is not None:
            rho = ratios[:, -1].clamp(max=config.vtrace_rho_clip)
            c = ratios[:, -1].clamp(max=config.vtrace_c_clip)
            share = share * c / rho.clamp(min=1e-8)
        corrections = compute_advantages(
            steps,
            bootstrap + share * after,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
            **clips,
        )
        advantages = corrections
        if ratios is not None:
            advantages = without_rho(
                corrections,
                after,
                ratios,
                steps.terminals | steps.truncations,
                decay=config.gamma * config.gae_lambda,
                **clips,
            )
        return Targets(advantages, corrections + steps.values), corrections[:, 0]

    @torch.no_grad()
    def ratios(self, rollout: Rollout, shape: BatchShape) -> Tensor:
        """Return the probability ratio of each action, current policy over rollout, [S, T]."""
        initial = rollout.initial_state()
        numbers = torch.arange(len(rollout.values), device=self.device)
        ratios = []
        for chosen in numbers.tensor_split(min(shape.minibatches, len(numbers))):
            part = take(rollout, chosen, rollout.values, rollout.values, initial)
            logprobs, _, _ = self.outputs(part)
            ratios.append((logprobs.view_as(part.logprobs) - part.logprobs).exp())
        return torch.cat(ratios)

    def _num_updates(self, shape: BatchShape) -> int:
        """Return how many minibatches an iteration takes from its rollout."""
        passes = self.config.replay_ratio
        if passes is None:
            passes = self.config.n_epochs
        return max(1, round(passes * shape.minibatches))

    def update(self, minibatch: Minibatch, now: Schedule) -> Tensor:
        """Take one optimizer step; return its NUMBERS as one tensor."""
        losses = self.gradients(minibatch, now)
        if self.world.size > 1:
            self.world.sum_gradients(self.parameters)
        norm = self._step()
        return torch.cat((losses, norm.view(1)))

    def _sum_losses(self, rows: list[Tensor]) -> None:
        """Replace the losses of this process by those of all processes together."""
        if self.world.size > 1:
            losses = self.world.sum_(torch.stack(rows)[:, : len(LOSSES)].contiguous())
            for row, own in zip(rows, losses, strict=True):
                row[: len(LOSSES)] = own

    def gradients(self, minibatch: Minibatch, now: Schedule) -> Tensor:
        """Set the gradients of the parameters to those of the minibatch; return its LOSSES.

        With several processes both are this process's share of the sum over all of them.
        """
        pieces = self.config.gradient_accumulation
        for parameter in self.parameters:
            parameter.grad = None
        advantages, moments = minibatch.advantages, minibatch.moments
        if self.config.norm_adv:
            floor = ADVANTAGE_FLOOR if self.config.norm_reward else 1e-8
            advantages = normalise_advantages(
                advantages, minibatch.masks, minibatch.weights, moments, floor
            )
        minibatch = minibatch._replace(advantages=advantages, moments=None)
        if pieces == 1 and moments is None:
            parts = self._loss(minibatch, now)
            _backward(parts.loss)
            return torch.stack(parts[1:])
        size = minibatch.size if moments is None else moments[0].float().clamp(min=1)
        losses = [torch.zeros(len(LOSSES), device=self.device)]
        for piece in minibatch.split(pieces):
            parts, share = self._loss(piece, now), piece.size / size
            _backward(parts.loss * share)
            losses.append(torch.stack(parts[1:]) * share)
        return torch.stack(losses).sum(0)

    def _loss(self, minibatch: Minibatch, now: Schedule) -> PpoLoss:
        logprobs, entropy, values = self.outputs(minibatch)
        weights = minibatch.weights
        return ppo_loss(
            logprobs,
            entropy,
            values,
            old_logprobs=minibatch.logprobs.flatten(),
            old_values=minibatch.values.flatten(),
            advantages=minibatch.advantages.flatten(),
            returns=minibatch.returns.flatten(),
            masks=None if minibatch.masks is None else minibatch.masks.flatten(),
            weights=None if weights is None else weights.expand_as(minibatch.logprobs).flatten(),
            clip_coef=now.clip_coef,
            vf_coef=self.config.vf_coef,
            ent_coef=now.ent_coef,
            vf_clip_coef=self.config.vf_clip_coef,
        )

    def outputs(self, minibatch: Minibatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return log-probabilities, entropies and values of the current policy, all [M*T]."""
        with self._autocast():
            output = policy_sequence(
                self.runner,
                minibatch.observations,
                minibatch.state,
                minibatch.resets,
                self.spaces,
                minibatch.agent_ids,
                minibatch.actions,
            )
        action_masks = minibatch.action_masks
        logprobs, entropy = evaluate_actions(
            output,
            self.spaces.action,
            minibatch.actions.flatten(0, 1),
            None if action_masks is None else action_masks.flatten(0, 1),
        )
        return logprobs, entropy, output.value.float()

    def _step(self) -> Tensor:
        """Clip the gradients and make an update unless they are non-finite; return their norm."""
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))).float()
        limit = self.config.max_grad_norm
        scale = None if limit is None else (norm / limit).clamp(min=1)
        self.optimizer.step(scale, veto=norm.isfinite().logical_not().float())
        return norm


def _backward(loss: Tensor) -> None:
    if not loss.requires_grad:
        raise UsageError(
            "`forward` must return tensors that depend on the parameters, but no gradient reaches "
            "them. Try `forward` without `torch.no_grad()` and `detach()`."
        )
    loss.backward()  # type: ignore[no-untyped-call]


def _compiled(policy: nn.Module, wanted: str, device: torch.device) -> nn.Module:
    is_wanted = wanted == "on" or (wanted == "auto" and device.type == "cuda")
    already = hasattr(policy, "_orig_mod")
    return torch.compile(policy) if is_wanted and not already else policy  # type: ignore[return-value]
