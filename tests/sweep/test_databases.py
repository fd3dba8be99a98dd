"""Studies in databases: drivers, passwords, and a real PostgreSQL where one is installed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from pufferlib.cli import main
from pufferlib.config import SweepConfig, check_range
from pufferlib.errors import PufferError, UsageError
from pufferlib.sweep import SearchSpace, Study, create_study, load_study, storage

pytest.importorskip("optuna", reason="needs pufferlib[sweep]")

DRIVERS = ("psycopg", "psycopg2", "pg8000")
PASSWORD = "oh-so-secret"


def new_study(url: str, folder: Path | None = None) -> Study:
    ranges = {"train.gamma": check_range("train.gamma", [0.9, 0.99], "x")}
    kept = f"postgresql://me:{PASSWORD}@host/db"
    options = SweepConfig(num_trials=3, method="random", storage=kept)
    return create_study(url, "study", SearchSpace(ranges), options, folder)


def only(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Let only these drivers be installed."""
    monkeypatch.setattr(storage, "_is_installed", lambda module: module in modules)


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_url_without_a_driver_takes_the_one_that_is_installed(
    driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, driver)
    for scheme in ("postgresql", "postgres"):
        assert storage._with_driver(f"{scheme}://me@host/db") == f"postgresql+{driver}://me@host/db"
    assert storage._with_driver(f"postgresql+{driver}://host") == f"postgresql+{driver}://host"
    assert storage._with_driver("sqlite:///a.db") == "sqlite:///a.db"


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("postgresql://me:{}@host/db", "psycopg[binary]"),
        ("postgresql+psycopg2://me:{}@host/db", "psycopg2-binary"),
        ("mysql://me:{}@host/db", "pymysql"),
    ],
)
def test_a_missing_driver_is_named(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    with pytest.raises(UsageError) as caught:
        new_study(url.format(PASSWORD))
    assert f"pip install '{package}'" in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:{}@127.0.0.1:1/db",
        "postgresql+nothing://me:{}@127.0.0.1:1/db",
        "postgresql://me:{}/x@127.0.0.1:port/db",
        "postgresql://127.0.0.1:1/db?user=me&password={}",
        "odd://me:{}@host/db",
        "sqlite://me:{}@host/db",
        "me:{}@host",
    ],
)
@pytest.mark.parametrize("command", [[], ["--resume"]])
def test_no_error_shows_a_password(
    url: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ["sweep", "bandit", *command, "--sweep.storage", url.format(PASSWORD)]
    assert main(words) == 2

    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1
    if "://" in url:
        assert PASSWORD not in error


def test_a_study_does_not_keep_the_password(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    study = new_study(f"sqlite:///{path}", tmp_path)

    assert study.config.storage is None
    assert PASSWORD.encode() not in path.read_bytes()


def test_the_command_that_resumes_hides_the_password() -> None:
    url = f"postgresql://me:{PASSWORD}@host/db?sslpassword={PASSWORD}&a=1"
    assert storage.hidden(url) == "postgresql://me:***@host/db?sslpassword=***&a=1"
    assert storage.hidden("sqlite:///sweep.db") == "sqlite:///sweep.db"


def test_a_database_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with pytest.raises(UsageError, match="must be a database that exists"):
        load_study(f"sqlite:///{path}", None)
    assert not path.exists()


def test_a_database_that_breaks_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    study = new_study(f"sqlite:///{path}")
    path.write_bytes(b"not a database" * 1000)

    with pytest.raises(PufferError, match="storage of the study cannot be used"):
        study.trials()


# ---- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL of this machine on loopback; what follows `://` in its URL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    initdb = shutil.which("initdb") or (str(found[-1]) if found else None)
    if initdb is None:
        pytest.skip("needs a PostgreSQL server: apt-get install postgresql")
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket() as free:
        if user is not None:
            shutil.chown(folder, user)
        Path(folder, "password").write_text(PASSWORD)
        os.chmod(Path(folder, "password"), 0o644)
        init = [initdb, "-D", f"{folder}/data", "-A", "scram-sha-256", "-U", "me"]
        init += ["--pwfile", f"{folder}/password"]
        done = subprocess.run(init, user=user, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            pytest.skip(f"initdb failed: {done.stderr}")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder}"
        control = [str(Path(initdb).with_name("pg_ctl")), "-D", f"{folder}/data", "-w"]
        start = [*control, "-l", f"{folder}/log", "-o", settings, "start"]
        subprocess.run(start, user=user, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            yield f"me:{PASSWORD}@127.0.0.1:{port}/postgres"
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, user=user, check=True, cwd=folder, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_study_in_postgresql_with_any_driver(
    driver: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec(driver) is None:
        pytest.skip(f"needs {driver}")
    only(monkeypatch, driver)
    url = f"postgresql://{server}"
    study = create_study(
        url, driver, SearchSpace({"x": check_range("env.x", "uniform 0 1", "x")}), SweepConfig()
    )
    trial = study.ask()
    assert trial is not None
    study.tell(trial, "complete", np.array([[0.5, 1.0, 2.0], [1.0, 2.0, 3.0]]))

    again, _ = load_study(url, driver)

    assert [(each.state, each.config) for each in again.trials()] == [("complete", trial.config)]
    attrs = again._study.user_attrs
    assert PASSWORD not in str(attrs)
