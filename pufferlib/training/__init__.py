"""PPO: collect a rollout, compute advantages, update the policy. `trainer` has PuffeRL."""

__all__ = ["trainer"]
