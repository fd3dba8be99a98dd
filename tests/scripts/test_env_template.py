"""The env templates: each is valid, reproducible, and trains."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pufferlib

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "env_template.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("env_template", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["env_template"] = module
    spec.loader.exec_module(module)
    return module


env_template = load()


@pytest.mark.slow
@pytest.mark.parametrize("template", env_template.TEMPLATES, ids=lambda t: t.__name__)
def test_a_template_is_valid_and_trains(template: Any) -> None:
    assert env_template.check(template) == []  # not even a warning


def test_the_table_of_the_script_names_every_template() -> None:
    table = re.findall(r"^\| ([A-Z]\w+) ", env_template.__doc__ or "", re.MULTILINE)
    assert table == [template.__name__ for template in env_template.TEMPLATES]


@pytest.mark.slow
def test_the_script_exits_with_0_on_success() -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT, "Reacher"], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(r"Reacher +ok  [\d.]+ s\n", ran.stdout)


def test_the_script_exits_with_1_if_an_env_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(env_template.GridWorld):  # type: ignore[name-defined, misc]
        def observe(self) -> Any:
            return np.zeros(3, np.float32)  # the space says 4

    monkeypatch.setattr(env_template, "TEMPLATES", [Broken])
    assert env_template.main([]) == 1
    assert re.match(
        r"Broken +FAILED  EnvError: Broken, `reset`: .* shape \(4,\), but", capsys.readouterr().out
    )


def test_the_script_names_the_templates_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert env_template.main(["GridWord"]) == 2
    assert "`GridWord` must be one of GridWorld, " in capsys.readouterr().err


def test_the_goal_is_found_on_the_shortest_way() -> None:
    # On 5 x 5 cells |dx| of two different ones is 1.6 * 25 / 24 on average, so is |dy|: 3.33 steps.
    # Random play takes over 25; 14 iterations of 1,024 steps took seeds 1 to 3 to 4.4 to 4.7.
    with pufferlib.emulate(env_template.ManyGridWorlds, num_envs=1) as env:
        trainer = pufferlib.PuffeRL(
            env, batch_size=1024, num_iterations=14, learning_rate=3e-3, seed=1, dashboard="off"
        )
        while not trainer.done:
            trainer.evaluate()
            trainer.train()
            log = trainer.mean_and_log()
        trainer.close()
    assert log["env/success"] > 0.99
    assert 3 < log["episode_length"] < 6
