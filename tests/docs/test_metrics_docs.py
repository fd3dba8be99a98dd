"""docs/metrics.md documents every metric that a run reports, and no other."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pufferlib
from pufferlib.native import infos
from pufferlib.selfplay import SelfPlay
from pufferlib.vectorization import VectorEnv

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
ENTRY = re.compile(r"^### (.*)\n((?:- .*\n|  .*\n)*)", re.MULTILINE)
PARTS = ["Is", "Formula", "Healthy", "If not"]
ONLY_WITH_CUDA = {"system/gpu", "system/gpu_memory"}
ONLY_AFTER_A_DEATH = {"env/restarts"}  # of a worker

# Options that add metrics; add any new option that does.
ALL_OPTIONS: dict[str, Any] = {
    "clip_coef_final": 0.1,
    "ent_coef_final": 0.0,
    "on_nan": "skip",
    "norm_obs": True,
    "norm_reward": True,
    "vtrace": True,
    "prio_alpha": 0.5,
    "target_kl": 1.0,
    "optimizer": "muon",
}


def entries() -> dict[str, str]:
    """Return the text of each entry by the name of the metric."""
    text = PAGE.read_text(encoding="utf-8")
    return {
        name: body
        for heading, body in ENTRY.findall(text)
        for name in re.findall(r"`([^`]+)`", heading)
    }


def metrics_of(make: Callable[[], VectorEnv], settings: dict[str, Any]) -> list[dict[str, float]]:
    """Run two iterations; return the results of evaluate, train and mean_and_log in the second."""
    tiny = {"batch_size": 1024, "num_steps": 16, "num_iterations": 2, "n_epochs": 2}
    with (
        make() as env,
        pufferlib.PuffeRL(env, device="cpu", dashboard="off", **tiny, **settings) as trainer,
    ):
        while not trainer.done:
            results = [trainer.evaluate(), trainer.train(), trainer.mean_and_log()]
    assert results[0]["episode_length"] > 0  # an episode has ended, so all metrics are present
    return results


def cartpole() -> VectorEnv:
    return pufferlib.make("cartpole", num_envs=16, num_workers=1, seed=1)


def against_itself() -> VectorEnv:
    env = pufferlib.make("connect4", num_envs=16, num_workers=1, seed=1, opponent="self")
    return SelfPlay(env, latest_share=0.0)


@pytest.fixture(scope="module")
def reported() -> list[dict[str, float]]:
    return [
        *metrics_of(cartpole, {}),
        *metrics_of(cartpole, ALL_OPTIONS),
        *metrics_of(against_itself, {}),
    ]


def test_every_metric_is_documented(reported: list[dict[str, float]]) -> None:
    tables = [infos()[name].metrics for name in ("cartpole", "connect4")]  # in ocean.md
    own = {metric.name for table in tables for metric in table}
    known = {*entries(), *(f"env/{name}" for name in own)}
    known |= {name.removeprefix("env/") for name in known}  # as `evaluate` calls them
    missing = {name for results in reported for name in results} - known

    assert sorted(missing) == [], "each needs an entry in docs/metrics.md"


def test_every_documented_metric_is_reported(reported: list[dict[str, float]]) -> None:
    gone = entries().keys() - {name for results in reported for name in results}

    assert gone == ONLY_WITH_CUDA | ONLY_AFTER_A_DEATH | {"env/..."}


def test_every_entry_has_meaning_formula_range_and_remedy() -> None:
    wrong = {
        name
        for name, body in entries().items()
        if re.findall(r"^- \*\*(.*?)\*\*: \S", body, re.MULTILINE) != PARTS
    }

    assert len(entries()) > 30
    assert wrong == set()
