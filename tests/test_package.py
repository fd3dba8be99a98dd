"""What is published: the files of sdist and wheel, and the commands of an installed package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tiny import TINY

import pufferlib

ROOT = Path(__file__).resolve().parent.parent
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


# ---- Files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def dist(request: pytest.FixtureRequest) -> Path:
    """The folder of sdist and wheel."""
    folder: Path | None = request.config.getoption("--package")
    if folder is None:
        pytest.skip("needs `--package DIST`, as `make test` gives it")
    return folder.resolve()


@pytest.fixture(scope="session")
def sources() -> set[str]:
    """Files of the clone that git knows or would add."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard"]
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def sdist_files(dist: Path) -> set[str]:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def wheel_files(dist: Path) -> set[str]:
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def assert_is_the_wheel(files: set[str], sources: set[str]) -> None:
    (core,) = (name for name in files if re.fullmatch(r"pufferlib/_core\..*so", name))
    (info,) = {name.partition("/")[0] for name in files if not name.startswith("pufferlib/")}
    assert info == f"pufferlib-{pufferlib.__version__}.dist-info"
    package = {name for name in sources if name.startswith("pufferlib/")}
    assert files == {core, *package, *(f"{info}/{name}" for name in METADATA)}


def test_the_sdist_holds_what_the_wheel_is_built_from_and_no_more(
    dist: Path, sources: set[str]
) -> None:
    built = {
        name
        for name in sources
        if name.startswith(("pufferlib/", "csrc/")) and not name.startswith("csrc/tests/")
    }
    assert {"pufferlib/runs/__init__.py", "pufferlib/configs/breakout.ini"} < built
    assert {"pufferlib/pretrained/breakout.safetensors", "csrc/puf_env.h"} < built
    text = {"CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO"}
    assert sdist_files(dist) == built | text


def test_the_wheel_holds_the_package_and_the_core(dist: Path, sources: set[str]) -> None:
    assert_is_the_wheel(wheel_files(dist), sources)


@pytest.mark.slow
def test_the_sdist_alone_builds_the_wheel(dist: Path, sources: set[str], tmp_path: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "wheel"]
    # with the build's packages of this Python; without the objects that the clone has compiled
    words = ["--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(sdist)]
    subprocess.run([*command, *words], cwd=tmp_path, check=True)
    assert_is_the_wheel(wheel_files(tmp_path), sources)


# ---- Processes -----------------------------------------------------------------------------------


def run(folder: Path, *words: str) -> str:
    """Run `puffer` in a folder, where no compiler is found; return what it printed."""
    ran = subprocess.run(
        [Path(sys.executable).with_name("puffer"), *words],
        cwd=folder,
        env={**os.environ, "PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_processes_import_the_same_package_as_the_tests() -> None:
    code = "import pufferlib, pufferlib.native; print(pufferlib.__file__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == pufferlib.__file__


def test_an_installed_package_trains_evaluates_and_resumes(tmp_path: Path) -> None:
    run(tmp_path, "train", "cartpole", *TINY)
    assert "mean_reward" in run(tmp_path, "eval", "cartpole", "--episodes=2")
    run(tmp_path, "resume", "cartpole", "--train.num-iterations=4")
    (log,) = tmp_path.glob("runs/cartpole-*/metrics.jsonl")
    assert len(log.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["eval", "breakout", "--pretrained", "--episodes=1"], "score"),
        (["envs", "cartpole", "--picture=cartpole.png"], "score"),
        (["check", "cartpole", "--steps=50"], "cartpole: ok"),
        (["bench", "cartpole", "--seconds=0.1"], "sps"),
        (["autotune", "cartpole", "--seconds=0.1", "--num-envs=64"], "sps"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_other_commands_run_on_an_installed_package(
    words: list[str], printed: str, tmp_path: Path
) -> None:
    assert printed in run(tmp_path, *words).lower()


def test_a_sweep_runs_on_an_installed_package(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="needs pufferlib[sweep]")
    search = ["--sweep.method=random", "--sweep.num-trials=2", "--only=learning_rate"]
    run(tmp_path, "sweep", "bandit", "--folder=out", *search, *TINY)
    assert (tmp_path / "out" / "best.ini").exists()
    assert (tmp_path / "out" / "report.png").exists()
