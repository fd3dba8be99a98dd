"""Where options are equal, targets and updates are those of Stable-Baselines3's PPO.

One convention differs: our value loss is half the mean squared error, theirs is all of it. So their
`vf_coef` 0.5 is our 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from pufferlib.models import MLP
from pufferlib.policies.normalisation import RewardNorm
from pufferlib.training.optimizers import Adam
from pufferlib.training.ppo import Steps, compute_advantages, normalise_advantages, ppo_loss

SLOTS, HORIZON = 4, 520  # Acrobot is truncated after 500 steps


class Theirs:
    """A rollout of their PPO on Acrobot-v1, and what came from the env: all [slots, steps]."""

    def __init__(self) -> None:
        sb3 = pytest.importorskip("stable_baselines3")
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import VecNormalize

        env = VecNormalize(make_vec_env("Acrobot-v1", SLOTS, seed=1), norm_obs=False)
        self.model = sb3.PPO(
            "MlpPolicy", env, n_steps=HORIZON, batch_size=SLOTS * HORIZON, n_epochs=1, seed=1,
            device="cpu",
        )  # fmt: skip
        self.env, seen = env, []

        class Watch(BaseCallback):
            def _on_step(self) -> bool:
                infos = self.locals["infos"]
                cut = np.array([info.get("TimeLimit.truncated", False) for info in infos])
                last = [info.get("terminal_observation", np.zeros(6)) for info in infos]
                rows = torch.as_tensor(np.array(last), dtype=torch.float32)
                with torch.no_grad():
                    values = self.model.policy.predict_values(rows).flatten().numpy()
                seen.append((env.get_original_reward(), self.locals["dones"].copy(), cut, values))
                return True

        _, callback = self.model._setup_learn(SLOTS * HORIZON, Watch())
        self.buffer: Any = self.model.rollout_buffer
        self.model.collect_rollouts(self.model.env, callback, self.buffer, HORIZON)
        parts = (np.stack(part, 1) for part in zip(*seen, strict=True))
        self.raw_rewards, self.ends, self.cut, self.final_values = map(torch.as_tensor, parts)

    def rows(self, name: str) -> Tensor:
        """Return a part of the rollout as [slots, steps]."""
        return torch.as_tensor(getattr(self.buffer, name).T.copy())


@pytest.fixture(scope="module")
def theirs() -> Theirs:
    return Theirs()


def test_advantages_of_truncated_episodes_are_theirs(theirs: Theirs) -> None:
    assert theirs.cut.sum() == SLOTS
    # they add the value after a truncation to its reward
    rewards = theirs.rows("rewards") - 0.99 * theirs.final_values.where(theirs.cut, 0.0)
    last = torch.as_tensor(theirs.model._last_obs)
    with torch.no_grad():
        bootstrap = theirs.model.policy.predict_values(last).flatten()
    steps = Steps(
        rewards,
        theirs.rows("values"),
        theirs.ends & ~theirs.cut,
        theirs.cut,
        theirs.final_values,
    )
    advantages = compute_advantages(steps, bootstrap, gamma=0.99, gae_lambda=0.95)

    torch.testing.assert_close(advantages, theirs.rows("advantages"))
    torch.testing.assert_close(advantages + steps.values, theirs.rows("returns"))


def test_the_deviation_of_returns_is_theirs(theirs: Theirs) -> None:
    norm = RewardNorm(SLOTS, 0.99, torch.device("cpu"))
    norm.update(theirs.raw_rewards.float(), theirs.ends)

    assert float(norm.moments.var.sqrt()) == pytest.approx(theirs.env.ret_rms.var**0.5, rel=1e-4)


def test_initial_weights_have_their_gains_and_an_update_is_theirs(theirs: Theirs) -> None:
    policy, model = MLP(theirs.env.observation_space, theirs.env.action_space), theirs.model.policy
    nets = model.mlp_extractor
    pairs: list[tuple[nn.Linear, nn.Linear]] = [
        (policy.layers[0], nets.policy_net[0]),
        (policy.layers[2], nets.policy_net[2]),
        (policy.critic_layers[0], nets.value_net[0]),
        (policy.critic_layers[2], nets.value_net[2]),
        (policy.actor, model.action_net),
        (policy.critic, model.value_net),
    ]
    for own, other in pairs:
        gains = [torch.linalg.matrix_norm(layer.weight, 2) for layer in (own, other)]
        torch.testing.assert_close(*gains)
        own.load_state_dict(other.state_dict())

    def flat(name: str) -> Tensor:
        return torch.as_tensor(getattr(theirs.buffer, name)).flatten()

    observations = torch.as_tensor(theirs.buffer.observations).flatten(0, 1)
    actions, old_logprobs, old_values = flat("actions"), flat("log_probs"), flat("values")
    advantages, returns = normalise_advantages(flat("advantages")), flat("returns")
    logits, values = policy(observations)
    choices = Categorical(logits=logits)
    loss = ppo_loss(
        choices.log_prob(actions),
        choices.entropy(),
        values,
        old_logprobs=old_logprobs,
        old_values=old_values,
        advantages=advantages,
        returns=returns,
        clip_coef=0.2,
        vf_coef=1.0,
        ent_coef=0.0,
    )
    loss.loss.backward()  # type: ignore[no-untyped-call]
    norm = nn.utils.get_total_norm([p.grad for p in policy.parameters() if p.grad is not None])
    optimizer = Adam(policy.parameters(), lr=3e-4, eps=1e-5)
    optimizer.step((norm / 0.5).clamp(min=1), veto=torch.zeros(()))
    before = model.action_net.weight.clone()
    theirs.model.train()

    assert norm > 0.5  # so that the clip matters
    assert (model.action_net.weight - before).abs().max() > 1e-4
    for own, other in pairs:
        torch.testing.assert_close(own.weight, other.weight, atol=1e-6, rtol=0)
        torch.testing.assert_close(own.bias, other.bias, atol=1e-6, rtol=0)
