"""`make test-integrations`: what it installs, how it tries a name, and its table."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from pufferlib import registry


def test_every_family_is_tried(integrations_script: ModuleType) -> None:
    tried = {
        case.name.partition("-")[0] for group in integrations_script.GROUPS for case in group.cases
    }
    assert registry.FAMILIES.keys() <= tried


def test_extras_may_name_others(integrations_script: ModuleType) -> None:
    needed = integrations_script.requirements(["all"])
    assert "crafter>=1.8.3" in needed
    assert not [each for each in needed if each.startswith("pufferlib")]


def test_commands_of_modules_are_pips_arguments(integrations_script: ModuleType) -> None:
    group = integrations_script.Group("x", (), commands=("neuralmmo",))
    first, second = integrations_script.install_commands(group)
    assert first[0] == second[0] == "install"
    assert "setuptools<81" in first  # without its quotes
    assert second[-2:] == ["nmmo==2.1.2", "-qq"]


def test_a_python_that_it_would_remove_may_not_run_it(
    integrations_script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = integrations_script.ROOT / ".integrations" / "all"
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "argv", ["test_integrations.py", "no-such-name"])
    with pytest.raises(SystemExit):
        integrations_script.main()
    assert "run it with .venv/bin/python" in capsys.readouterr().err


@pytest.mark.slow
def test_a_name_is_made_stepped_checked_and_trained(integrations_script: ModuleType) -> None:
    case = integrations_script.Case("gym-CartPole-v1", "gymnasium")
    outcome = integrations_script.run_case(Path(sys.executable), case)
    assert outcome.wrong == ""
    assert outcome.cells[2:5] == ("float32 4", "Discrete(2)", "1")
    assert "8 envs" in outcome.cells[6]
    assert outcome.cells[7] == "yes"


def test_a_name_that_takes_too_long_is_ended(
    integrations_script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrations_script, "TIME_LIMIT", 0.1)
    case = integrations_script.Case("gym-CartPole-v1", "gymnasium")
    outcome = integrations_script.run_case(Path(sys.executable), case)
    assert outcome.wrong == "took longer than 0 s"


def test_a_process_that_dies_is_a_failure(integrations_script: ModuleType, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such library\nexit 3\n")
    python.chmod(0o755)
    outcome = integrations_script.run_case(python, integrations_script.Case("x", "y"))
    assert outcome.wrong == "exit code 3: no such library"


def test_a_missing_package_is_an_answer_only_where_no_registry_has_it(
    try_integration: ModuleType,
) -> None:
    case = try_integration.Case("gpudrive", "gpudrive", may_lack=True)
    answer = try_integration.try_name(case)
    assert (answer.wrong, answer.is_skipped) == ("", True)
    assert "needs madrona_gpudrive" in answer.cells[7]
    failed = try_integration.try_name(case._replace(may_lack=False))
    assert "needs madrona_gpudrive" in failed.wrong
    assert not failed.is_skipped


def test_a_broken_env_is_a_failure(try_integration: ModuleType) -> None:
    unknown = try_integration.try_name(try_integration.Case("gym-Nothing-v0", "gymnasium"))
    assert "Unknown environment" in unknown.wrong


def test_what_stays_behind_is_named(
    try_integration: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests write to the usual one
    monkeypatch.setattr(try_integration, "PATIENCE", 0.0)
    traces = try_integration.Traces()
    assert traces.left() == ""
    (tmp_path / "crumbs.ini").write_text("")
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="lingering")
    thread.start()
    try:
        assert traces.left().endswith("crumbs.ini, thread lingering")
    finally:
        release.set()
        thread.join()


def test_a_run_that_resumes_leaves_out_what_has_passed(
    integrations_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = integrations_script.Case("x", "y")
    answers = iter(["broken", "", "not asked again"])
    tried: list[str] = []

    def run_case(python: Path, case: NamedTuple) -> NamedTuple:
        tried.append(next(answers))
        outcome: NamedTuple = integrations_script.Outcome(tuple("12345678"), tried[-1])
        return outcome

    monkeypatch.setattr(integrations_script, "ROOT", tmp_path)
    (tmp_path / ".integrations").mkdir()
    monkeypatch.setattr(integrations_script, "GROUPS", [integrations_script.Group("g", (case,))])
    monkeypatch.setattr(integrations_script, "environment", lambda group: Path(sys.executable))
    monkeypatch.setattr(integrations_script, "run_case", run_case)
    monkeypatch.setattr(sys, "argv", ["test_integrations.py", "--resume", "--no-write"])
    assert [integrations_script.main() for _ in range(3)] == [1, 0, 0]
    assert tried == ["broken", ""]


def test_a_package_of_clients_that_pip_cannot_install_is_a_failure(
    integrations_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[list[str]] = []

    def pip(python: Path, arguments: list[str]) -> bool:
        installed.append(list(arguments))
        return "broken" not in arguments

    case = integrations_script.Case("x", "y")
    outcome = integrations_script.Outcome(tuple("12345678"))
    clients = integrations_script.Group("clients", packages=("good", "broken"))
    (tmp_path / "pyproject.toml").write_text("[project]\noptional-dependencies = {}\n")
    monkeypatch.setattr(integrations_script, "ROOT", tmp_path)
    monkeypatch.setattr(
        integrations_script, "GROUPS", [integrations_script.Group("g", (case,)), clients]
    )
    monkeypatch.setattr(integrations_script, "pip", pip)
    monkeypatch.setattr(integrations_script, "run_case", lambda python, case: outcome)
    monkeypatch.setattr(sys, "argv", ["test_integrations.py", "--no-write"])
    assert integrations_script.main() == 1
    assert [each[-1] for each in installed] == ["broken", "good", "broken"]  # then each alone
    monkeypatch.setattr(integrations_script, "pip", lambda *_: True)
    assert integrations_script.main() == 0


def test_the_table_goes_into_its_block(
    integrations_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before\n<!-- measured: integrations -->\nold\n<!-- end -->\nAfter\n")
    monkeypatch.setattr(integrations_script, "PAGE", page)
    outcome = integrations_script.Outcome(("a|b", *"1234567"))
    integrations_script.write_page(integrations_script.table([outcome]))
    text = page.read_text()
    assert "| a\\|b | 1 | 2 | 3 | 4 | 5 | 6 | 7 |" in text
    assert "old" not in text
    assert text.startswith("Before\n")
    assert json.dumps(outcome)  # it goes through a file
