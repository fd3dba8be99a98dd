"""The script that runs tests under other conditions: what it prints, and what it leaves behind."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from types import ModuleType

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stress(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("stress_tests")
    monkeypatch.setattr(module, "LOGS", tmp_path)
    return module


def test_a_run_with_a_failure_is_a_line_with_its_name(
    stress: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "test_two.py"
    path.write_text("def test_good(): pass\ndef test_bad(): assert False\n")

    assert not stress.run("random-order", 3, [str(path)], "", busy=0, jobs=0)
    (line,) = capfd.readouterr().out.splitlines()
    assert line.startswith("random-order (seed ")
    assert ") 3: " in line
    assert ", 1 passed, ended with 1, see " in line
    assert line.endswith("test_two.py::test_bad")
    assert "assert False" in next(tmp_path.glob("random-order-3-*.log")).read_text()

    path.write_text("def test_good(): pass\n")
    assert stress.run("quiet", 1, [str(path)], "", busy=0, jobs=0)
    assert not list(tmp_path.glob("quiet-*.log"))


def test_busy_loops_end_with_their_block(stress: ModuleType) -> None:
    known = set(psutil.Process().children())
    loops: set[psutil.Process] = set()

    def interrupted() -> None:
        with stress.busy_loops(2):
            loops.update(set(psutil.Process().children()) - known)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(loops) == 2
    assert not any(map(psutil.Process.is_running, loops))


def test_an_order_follows_from_its_seed(
    stress: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Item:
        def __init__(self, name: int) -> None:
            self.name, self.path = name, name % 4

    def order(seed: str) -> list[int]:
        monkeypatch.setenv(stress.SEED, seed)
        items = [Item(name) for name in range(40)]
        stress.pytest_collection_modifyitems(items)
        return [item.name for item in items]

    assert order("1") == order("1") != order("2")
    modules = [name % 4 for name in order("1")]
    assert sum(a != b for a, b in itertools.pairwise(modules)) == 3  # each in one piece
