"""The trainer's gradients against the same mathematics written out by hand in NumPy, float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import pufferlib
from pufferlib import PuffeRL
from pufferlib.training.rollout import Minibatch

Array = NDArray[np.float64]
SEGMENTS, HORIZON, WIDTH = 6, 4, 5
VF_COEF, ENT_COEF, CLIP_COEF = 0.7, 0.05, 0.2


class Tiny(nn.Module):
    """One tanh layer, then heads: everything that the oracle has to know."""

    def __init__(self, inputs: int, outputs: int, continuous: bool) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, WIDTH)
        self.actor = nn.Linear(WIDTH, outputs)
        self.critic = nn.Linear(WIDTH, 1)
        self.log_std = nn.Parameter(torch.linspace(-0.5, 0.5, outputs)) if continuous else None

    def forward(self, observations: Tensor) -> tuple[Tensor, ...]:
        features = self.hidden(observations).tanh()
        actions, value = self.actor(features), self.critic(features)
        if self.log_std is None:
            return actions, value
        return actions, self.log_std.exp(), value


def make_trainer(name: str, **settings: Any) -> PuffeRL:
    env = pufferlib.make(name, num_envs=SEGMENTS, num_workers=1)
    torch.manual_seed(0)
    continuous = name == "continuous"
    outputs = env.action_space.shape[0] if continuous else env.action_space.n
    policy = Tiny(env.observation_space.shape[0], outputs, continuous)
    return PuffeRL(
        env,
        policy,
        batch_size=SEGMENTS * HORIZON,
        minibatch_size=SEGMENTS * HORIZON,
        vf_coef=VF_COEF,
        ent_coef=ENT_COEF,
        clip_coef=CLIP_COEF,
        device="cpu",
        dashboard="off",
        **settings,
    )


def made_up_minibatch(trainer: PuffeRL, seed: int, **parts: Any) -> Minibatch:
    """Steps that reach every branch of the loss: ratios on both sides of the clip, and inside."""
    rng = torch.Generator().manual_seed(seed)
    rows, action = (SEGMENTS, HORIZON), trainer.spaces.action
    width = trainer.spaces.observation.shape[0]

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng)

    if action.num_continuous:
        actions = normal(*rows, action.num_continuous)
    else:
        actions = torch.randint(action.nvec[0], rows, generator=rng, dtype=torch.int32)
    minibatch = Minibatch(
        observations=normal(*rows, width),
        actions=actions,
        logprobs=torch.zeros(rows),
        values=normal(*rows),
        advantages=normal(*rows) + 0.5,
        returns=normal(*rows),
        resets=torch.zeros(rows, dtype=torch.bool),
        masks=None,
        action_masks=None,
        state=None,
        agent_ids=torch.zeros(SEGMENTS, dtype=torch.int64),
    )._replace(**parts)
    with torch.no_grad():
        logprobs, _, values = trainer.engine.outputs(minibatch)
    return minibatch._replace(
        logprobs=logprobs.view(rows) + 0.25 * normal(*rows),
        values=values.view(rows) + 0.15 * normal(*rows),
    )


def by_hand(
    trainer: PuffeRL, minibatch: Minibatch, norm_adv: bool, vf_clip_coef: float | None
) -> dict[str, Array]:
    """Forward, loss and backward of the tiny policy, a line for each formula."""
    weights = {
        name: part.detach().numpy().astype(np.float64)
        for name, part in trainer.policy.named_parameters()
    }

    def flat(part: Tensor) -> Array:
        return part.flatten(0, 1).numpy().astype(np.float64)

    x = flat(minibatch.observations)
    masks = np.ones(len(x)) if minibatch.masks is None else flat(minibatch.masks)
    count = masks.sum()
    share = masks / count  # of each step in every mean
    if minibatch.weights is not None:
        share = share * flat(minibatch.weights.expand(SEGMENTS, HORIZON))
    advantages = flat(minibatch.advantages)
    if norm_adv:
        odds_of_step = share / share.sum()
        mean = (advantages * odds_of_step).sum()
        spread = np.sqrt(((advantages - mean) ** 2 * odds_of_step).sum())
        advantages = (advantages - mean) / spread

    # forward
    hidden = np.tanh(x @ weights["hidden.weight"].T + weights["hidden.bias"])
    out = hidden @ weights["actor.weight"].T + weights["actor.bias"]
    value = hidden @ weights["critic.weight"][0] + weights["critic.bias"][0]
    if "log_std" in weights:
        std = np.exp(weights["log_std"])
        noise = (flat(minibatch.actions) - out) / std
        logprob = (-(noise**2) / 2 - weights["log_std"] - np.log(2 * np.pi) / 2).sum(1)
    else:
        if minibatch.action_masks is not None:
            out = np.where(flat(minibatch.action_masks) > 0, out, -np.inf)
        odds = np.exp(out - out.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        chosen = np.eye(out.shape[1])[flat(minibatch.actions).astype(int)]
        logprob = np.log((odds * chosen).sum(1))
        surprise = -np.log(np.where(odds > 0, odds, 1))
        entropy = (odds * surprise).sum(1)

    # d loss / d logprob: the clipped surrogate has the plain ratio's slope, or none
    ratio = np.exp(logprob - flat(minibatch.logprobs))
    clipped = np.clip(ratio, 1 - CLIP_COEF, 1 + CLIP_COEF)
    is_plain = ratio * advantages <= clipped * advantages
    d_logprob = -share * is_plain * ratio * advantages

    # d loss / d value: of the larger of the two errors
    error, old = value - flat(minibatch.returns), flat(minibatch.values)
    d_value = VF_COEF * share * error
    if vf_clip_coef is not None:
        moved = np.clip(value - old, -vf_clip_coef, vf_clip_coef)
        clipped_error = old + moved - flat(minibatch.returns)
        is_free = np.abs(value - old) < vf_clip_coef
        d_value = np.where(
            error**2 >= clipped_error**2, d_value, VF_COEF * share * clipped_error * is_free
        )

    # d loss / d outputs, and the gradients of the heads
    grads: dict[str, Array] = {}
    if "log_std" in weights:
        d_out = d_logprob[:, None] * noise / std
        d_log_std = d_logprob[:, None] * (noise**2 - 1) - ENT_COEF * share[:, None]
        grads["log_std"] = d_log_std.sum(0)
    else:
        # d entropy / d logit_i = p_i * (-log p_i - H)
        d_out = d_logprob[:, None] * (chosen - odds)
        d_out -= ENT_COEF * share[:, None] * odds * (surprise - entropy[:, None])
    grads["actor.weight"], grads["actor.bias"] = d_out.T @ hidden, d_out.sum(0)
    grads["critic.weight"], grads["critic.bias"] = (d_value @ hidden)[None], d_value.sum()[None]
    d_hidden = d_out @ weights["actor.weight"] + np.outer(d_value, weights["critic.weight"][0])
    d_hidden *= 1 - hidden**2
    grads["hidden.weight"], grads["hidden.bias"] = d_hidden.T @ x, d_hidden.sum(0)
    return grads


def some_masks() -> Tensor:
    masks = torch.ones(SEGMENTS, HORIZON, dtype=torch.bool)
    masks[1, 2:], masks[4] = False, False
    return masks


def some_action_masks() -> Tensor:
    legal = torch.ones(SEGMENTS, HORIZON, 2, dtype=torch.bool)
    legal[::2, 1, 1] = False  # where the only choice left must have been taken
    return legal


@pytest.mark.parametrize("name", ["cartpole", "continuous"])
@pytest.mark.parametrize("norm_adv", [True, False])
@pytest.mark.parametrize("vf_clip_coef", [None, 0.1])
@pytest.mark.parametrize("kind", ["plain", "masks", "weights", "action_masks"])
@pytest.mark.parametrize("accumulation", [1, 4])
def test_gradients_equal_those_by_hand(
    name: str, norm_adv: bool, vf_clip_coef: float | None, kind: str, accumulation: int
) -> None:
    settings: dict[str, Any] = {"norm_adv": norm_adv, "vf_clip_coef": vf_clip_coef}
    trainer = make_trainer(name, gradient_accumulation=accumulation, **settings)
    parts: dict[str, Any] = {}
    if kind == "masks":
        parts["masks"] = some_masks()
    elif kind == "weights":
        parts["weights"] = torch.linspace(0.2, 2, SEGMENTS).unsqueeze(1)
    elif kind == "action_masks" and name == "cartpole":
        parts["action_masks"] = some_action_masks()
        actions = torch.arange(SEGMENTS * HORIZON, dtype=torch.int32).view(SEGMENTS, HORIZON) % 2
        parts["actions"] = actions * parts["action_masks"][..., 1]
    minibatch = made_up_minibatch(trainer, seed=3, **parts)
    trainer.engine.gradients(minibatch, trainer._schedule())
    expected = by_hand(trainer, minibatch, norm_adv, vf_clip_coef)

    assert {name for name, _ in trainer.policy.named_parameters()} == expected.keys()
    for name, parameter in trainer.policy.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(
            parameter.grad.numpy(), expected[name], rtol=1e-6, atol=1e-6, err_msg=name
        )


def test_the_made_up_steps_reach_every_branch() -> None:
    trainer = make_trainer("cartpole")
    minibatch = made_up_minibatch(trainer, seed=3)
    logprobs, _, values = trainer.engine.outputs(minibatch)
    ratio = (logprobs - minibatch.logprobs.flatten()).exp().detach()
    advantages = minibatch.advantages.flatten()
    moved = (values.detach() - minibatch.values.flatten()).abs()

    for is_good in (advantages > 0, advantages < 0):
        for place in (ratio < 0.8, (ratio > 0.8) & (ratio < 1.2), ratio > 1.2):
            assert (is_good & place).any()
    assert (moved < 0.1).any()
    assert (moved > 0.1).any()


def test_an_update_moves_by_the_clipped_gradient() -> None:
    # Adam's first step is the learning rate in the direction of the gradient, whatever its length,
    # unless eps is of its size: then the clip shows
    trainer = make_trainer("cartpole", max_grad_norm=0.01, adam_eps=1.0, learning_rate=0.1)
    minibatch = made_up_minibatch(trainer, seed=3)
    before = [p.detach().clone() for p in trainer.policy.parameters()]
    expected = by_hand(trainer, minibatch, True, None)
    norm = np.sqrt(sum((part**2).sum() for part in expected.values()))
    assert norm > 0.01
    trainer.optimizer.param_groups[0]["lr"] = 0.1
    numbers = trainer.engine.update(minibatch, trainer._schedule())

    assert numbers[-1].item() == pytest.approx(norm, rel=1e-5)
    for old, (name, parameter) in zip(before, trainer.policy.named_parameters(), strict=True):
        grad = expected[name] * 0.01 / norm
        moved = 0.1 * grad / (np.abs(grad) + 1.0)
        np.testing.assert_allclose((old - parameter.detach()).numpy(), moved, atol=1e-7)
