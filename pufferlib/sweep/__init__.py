"""Sweeps: search for the options of a run by score and cost.

A study keeps the trials, a method suggests the next one, a driver runs them as processes, a report
shows what was found. `Protein` in pufferlib/protein.py is the class for scripts.
"""

from pufferlib.sweep import plots, report
from pufferlib.sweep.driver import BUDGET_KEYS, Driver, Event, config_ini, with_values
from pufferlib.sweep.envs import check_params, find_env
from pufferlib.sweep.journal import JOURNAL
from pufferlib.sweep.search_space import SearchSpace
from pufferlib.sweep.storage import hidden
from pufferlib.sweep.study import (
    DEFAULT_TRIALS,
    Study,
    Trial,
    TrialState,
    check_installed,
    create_study,
    load_study,
)

__all__ = [
    "BUDGET_KEYS",
    "DEFAULT_TRIALS",
    "JOURNAL",
    "Driver",
    "Event",
    "SearchSpace",
    "Study",
    "Trial",
    "TrialState",
    "check_installed",
    "check_params",
    "config_ini",
    "create_study",
    "find_env",
    "hidden",
    "load_study",
    "plots",
    "report",
    "with_values",
]
