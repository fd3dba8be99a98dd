"""check_env: play any environment and report what is wrong with it."""

from pufferlib.checks.check import check_env
from pufferlib.checks.report import Finding, Report

__all__ = ["Finding", "Report", "check_env"]
