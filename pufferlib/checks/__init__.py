"""check_env: play any environment and report what is wrong with it."""

from pufferlib.checks.checking import check_env

__all__ = ["check_env", "checking"]
