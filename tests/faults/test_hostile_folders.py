"""Commands in a folder of a stranger: none of its modules is imported unless the user names it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from pufferlib.cli import main

TINY = [
    *("--train.batch-size=64", "--train.num-iterations=2", "--train.n-epochs=1"),
    *("--vec.num-envs=4", "--vec.num-workers=1", "--policy.hidden-size=8", "--train.device=cpu"),
    "--train.dashboard=off",
]
MODULE = "import os\nos.close(os.open({marker!r}, os.O_CREAT | os.O_WRONLY))\n"


# what `python -m` itself imports from the folder before the package is there to stop it
OWN = "import runpy, sys; print(*sys.modules)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module of every name that this process could import, and an entry point."""
    module = MODULE.format(marker=str(tmp_path / "imported"))
    own = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, check=True)
    names = {*sys.stdlib_module_names, *packages_distributions(), "a_world"}
    for name in names - {*own.stdout.split(), "pufferlib"}:
        if name.isidentifier():
            (tmp_path / f"{name}.py").write_text(module)
    offer = tmp_path / "stranger-1.0.dist-info"
    offer.mkdir()
    (offer / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (offer / "entry_points.txt").write_text("[pufferlib.environments]\na = a_world\n")
    return tmp_path


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


PUFFER = [
    [sys.executable, "-m", "pufferlib"],
    [str(Path(sys.executable).with_name("puffer"))],
]


@pytest.mark.slow
@pytest.mark.parametrize("puffer", PUFFER, ids=["module", "script"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["envs", "cartpole"], 0),
        (["check", "cartpole", "--steps=5"], 0),
        (["train", "no-such-env"], 2),  # looks through the entry points of installed packages
        (["resume", "."], 0),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_modules_of_the_working_folder_are_not_imported(
    puffer: list[str], words: list[str], code: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if words[0] == "resume":
        monkeypatch.chdir(folder)
        assert main(["train", "cartpole", *TINY, "--train.num-iterations=1"]) == 0
        (run,) = (folder / "runs").iterdir()
        for path in run.iterdir():
            os.rename(path, folder / path.name)
        words = [*words, "--train.num-iterations=2"]
    done = run_in(folder, *puffer, *words)
    assert not (folder / "imported").exists(), done.stderr
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("puffer", PUFFER, ids=["module", "script"])
def test_a_module_that_the_user_names_is_imported(puffer: list[str], tmp_path: Path) -> None:
    (tmp_path / "a_world.py").write_text("open('imported', 'w')\n")
    done = run_in(tmp_path, *puffer, "check", "a_world:Env")
    assert done.returncode == 2
    assert (tmp_path / "imported").exists()
