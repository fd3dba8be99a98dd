"""Where a study is kept: a journal in the folder of the sweep, a database, or this process.

A database is named by a URL, whose password no message holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pufferlib.errors import PufferError, UsageError, error_line, one_line, quoted
from pufferlib.sweep.journal import JOURNAL, Journal, open_journal

# drivers of databases: name for SQLAlchemy, module, what pip installs; the first is recommended
_DRIVERS = {
    "postgresql": (
        ("psycopg", "psycopg", "psycopg[binary]"),
        ("psycopg2", "psycopg2", "psycopg2-binary"),
        ("pg8000", "pg8000", "pg8000"),
    ),
    "mysql": (
        ("pymysql", "pymysql", "pymysql"),
        ("mysqldb", "MySQLdb", "mysqlclient"),
        ("mysqlconnector", "mysql.connector", "mysql-connector-python"),
    ),
}
_SECRETS = re.compile(r"([?&][^=&]*(?:pass|secret|token)[^=&]*=)([^&]*)", re.IGNORECASE)


def open_storage(
    optuna: Any, url: str | None, folder: Path | None, create: bool
) -> tuple[Any, Journal | None]:
    """Return Optuna's storage and, if it is one, the journal; with `create` it may be new."""
    if url is not None:
        return _open_database(optuna, url, create), None
    if folder is None:
        return optuna.storages.InMemoryStorage(), None
    return open_journal(optuna, folder / JOURNAL, create)


@contextmanager
def storage_errors(optuna: Any) -> Iterator[None]:
    """Turn what a storage raises into one line; a stranger may have filled it with anything."""
    try:
        yield
    except (PufferError, optuna.exceptions.UpdateFinishedTrialError):
        raise
    except optuna.exceptions.DuplicatedStudyError:
        raise
    except Exception as error:  # of a driver of a database, or about values of any type
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        reason = one_line(error_line(cause).partition("[SQL:")[0], 120)
        raise PufferError(f"the storage of the study cannot be used: {reason}") from error


# ---- Databases -----------------------------------------------------------------------------------


def hidden(url: str) -> str:
    """Return a URL without its password."""
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    if at and ":" in user:
        rest = f"{user.partition(':')[0]}:***@{place}"
    return _SECRETS.sub(r"\1***", f"{scheme}{mark}{rest}")


def _open_database(optuna: Any, url: str, create: bool) -> Any:
    try:
        given = _with_driver(url)
        if not create:
            _check_exists(given)
        return optuna.storages.RDBStorage(
            given,
            engine_kwargs={"connect_args": {"timeout": 60}} if url.startswith("sqlite") else None,
            skip_table_creation=not create,
        )
    except UsageError:
        raise
    except Exception as error:  # of a driver of a database
        reason = _without_secrets(error, url)
        raise UsageError(
            f"`storage` must be the URL of a database, but got {quoted(hidden(url))}: {reason}. "
            "Try sqlite:///sweep.db."
        ) from None  # the error itself may show the password


def _with_driver(url: str) -> str:
    """Return a URL that names an installed driver; SQLAlchemy has one default for all machines."""
    scheme, mark, rest = url.partition("://")
    kind, _, driver = scheme.partition("+")
    kind = "postgresql" if kind == "postgres" else kind
    if not mark or kind not in _DRIVERS:
        return url
    known = _DRIVERS[kind]
    usable = [name for name, module, _ in known if _is_installed(module)]
    if not driver and usable:
        return f"{kind}+{usable[0]}://{rest}"
    if not driver or (driver not in usable and driver in [name for name, *_ in known]):
        package = next((pip for name, _, pip in known if name == driver), known[0][2])
        raise UsageError(
            f"`storage` {quoted(hidden(url))} must have an installed driver, but has none. "
            f"Try: pip install '{package}'"
        )
    return url


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in is missing
        return False


def _check_exists(url: str) -> None:
    """Raise UsageError if a database of SQLite does not exist: to open it would create it."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    path = parsed.database
    is_file = parsed.get_backend_name() == "sqlite" and path not in (None, "", ":memory:")
    if is_file and not str(path).startswith("file:") and not os.path.exists(str(path)):
        raise UsageError(
            f"`storage` must be a database that exists, but {quoted(Path(str(path)))} does not."
        )


def _without_secrets(error: Exception, url: str) -> str:
    """Return the reason of an error, unless it holds a part of the password."""
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    reason = one_line(str(cause).partition("(Background on")[0].strip().rstrip("."), 120)
    user = url.partition("://")[2].rpartition("@")[0]
    secrets = [user.partition(":")[2], *(found[1] for found in _SECRETS.findall(url))]
    parts = {part for each in secrets for part in re.split(r"\W+", f"{each} {unquote(each)}")}
    is_shown = any(part in reason for part in parts | {*secrets} if part)
    return type(cause).__name__ if is_shown else reason
