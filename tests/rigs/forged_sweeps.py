"""Sweep folders and databases that a stranger could have made: damaged, forged and full of links.

`cases()` yields a label and a function that turns the folder `s` of a good sweep, or its database
`s.db`, into a bad one. What lies in `outside` must stay as it is.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Case = tuple[str, Callable[[], None]]

FOLDER, DATABASE, OUTSIDE = Path("s"), Path("s.db"), Path("outside")
_JOURNAL = FOLDER / "study.journal"

_LINES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda line: b"garbage\n",
    "binary": lambda line: b"\xff\xfe\x00\x80" + os.urandom(20).replace(b"\n", b"") + b"\n",
    "deleted": lambda line: b"",
    "twice": lambda line: line * 2,
    "cut": lambda line: line[: len(line) // 2] + b"\n",
    "joined": lambda line: line.rstrip(b"\n"),
    "list": lambda line: b"[]\n",
    "null": lambda line: b"null\n",
    "empty": lambda line: b"\n",
    "deep": lambda line: b"[" * 100_000 + b"\n",
    "long number": lambda line: b'{"op_code":' + b"9" * 5000 + b"}\n",
    "operation": lambda line: _changed(line, "op_code", 99),
    "no operation": lambda line: _changed(line, "op_code", None),
    "no worker": lambda line: line.replace(b'"worker_id"', b'"worker"'),
    "study": lambda line: _changed(line, "study_id", []),
    "trial": lambda line: _changed(line, "trial_id", {}),
    "far trial": lambda line: _changed(line, "trial_id", 10**12),
}
_VALUES: list[Any] = [
    None, [], {}, True, -1, 10**30, 1e308, "", "x" * 10_000, "a\nb\x1b[2J", "/etc/passwd", "../..",
    ["a", 1], float("nan"),
]  # fmt: skip
_NAMES = {
    "command": ("subprocess:check_output", {"args": "touch RUN", "shell": True}),
    "module": ("evil:Env", {}),
    "gym module": ("gym-evil:CartPole-v1", {}),
    "nested": ("bandit", {"config": {"vehicle": "evil.Env"}}),
    "lines": ("bandit", {"arms": "4\n[log]\nlogger = wandb"}),
}
_PLACES = ("study.journal", "trials", "best.ini", "report.png", "trials/1a-1", "trials/1a-1/run")


def cases() -> Iterator[Case]:
    """Yield all of them."""
    lines = len(_JOURNAL.read_bytes().splitlines()) if _JOURNAL.exists() else 8
    for label, change in _LINES.items():
        for number in range(lines):
            yield f"line {number}: {label}", partial(_change_line, number, change)
    for name, (env, kwargs) in _NAMES.items():
        for both in (False, True):
            yield f"name: {name} {both}", partial(_forge_name, env, kwargs, both)
    for attr in ("sweep", "space", "budget_key", "about"):
        for value in _VALUES[::3]:
            yield f"{attr} = {value!r:.20}", partial(_set_attr, (attr,), value)
    for key in ("metric", "max_cost", "parallel", "goal", "storage", "seed"):
        for value in _VALUES[1::5]:
            yield f"sweep.{key} = {value!r:.20}", partial(_set_attr, ("sweep", key), value)
    ranges = (
        "int 0 1e300",
        "pow2 1 1e300",
        "a\nb",
        "$\\frac$, x",
        "log_uniform 0 nan",
        "1," * 9999,
    )
    for text in ranges:
        space = {"env.x$\\q$": text, "train.learning_rate": "log_uniform 1e-5 1e-1"}
        yield f"range {text:.20}", partial(_set_attr, ("space",), space)
    for key in ("train.run_dir", "log.logger", "vec.nothing", "__class__", "env.a\nb", "name"):
        yield f"searched {key!r}", partial(_set_attr, ("space",), {key: "outside, /tmp"})
    for section in ("train", "vec", "env", "log"):
        for value in _VALUES[::4]:
            yield (
                f"{section} = {value!r:.20}",
                partial(_set_attr, ("about", "config", section), value),
            )
    for key in ("params", "user_attrs", "state", "datetime_start", "distributions", "values"):
        for value in _VALUES[::4]:
            yield f"trial {key} = {value!r:.20}", partial(_set_trial, (key,), value)
    for key in ("seed", "folder", "driver", "retry_of", "beat", "failure"):
        for value in _VALUES[::2]:
            path = ("user_attrs", key)
            yield f"trial {key} = {value!r:.20}", partial(_set_trial, path, value)
    for place in _PLACES:
        for kind in ("link", "dangling", "hard link", "folder link", "fifo", "folder"):
            yield f"{place}: {kind}", partial(_put, place, kind)
    for folder in ("outside/run", "/etc", "..", "../../1a-1", "s/trials/1a-1", "s/trials/../../x"):
        yield f"abandoned in {folder}", partial(_abandon, folder)
    for label, forge in _DATABASES.items():
        yield f"database: {label}", forge


# ---- Journals ------------------------------------------------------------------------------------


def _change_line(number: int, change: Callable[[bytes], bytes]) -> None:
    lines = _JOURNAL.read_bytes().splitlines(keepends=True)
    lines[number] = change(lines[number])
    _JOURNAL.write_bytes(b"".join(lines))


def _changed(line: bytes, key: str, value: Any) -> bytes:
    return json.dumps({**json.loads(line), key: value}).encode() + b"\n"


def _edit(operation: int, path: tuple[str, ...], value: Any) -> None:
    """Set what lies at `path` in the first line of an operation that has it."""
    lines = [json.loads(line) for line in _JOURNAL.read_text().splitlines()]
    for log in lines:
        part = log
        for key in path[:-1]:
            part = part.get(key) if isinstance(part, dict) else None
        if log["op_code"] == operation and isinstance(part, dict) and path[-1] in part:
            part[path[-1]] = value
            break
    _JOURNAL.write_text("".join(json.dumps(log) + "\n" for log in lines))


def _set_attr(path: tuple[str, ...], value: Any) -> None:
    _edit(2, ("user_attr", *path), value)


def _set_trial(path: tuple[str, ...], value: Any) -> None:
    _edit(4, path, value)


def _forge_name(name: str, env: dict[str, Any], both: bool) -> None:
    _set_attr(("about", "config", "name"), name)
    _set_attr(("about", "config", "env"), env)
    if both:
        _set_attr(("about", "name"), name)


def _abandon(folder: str) -> None:
    """Add a trial whose driver is dead, and whose folder is said to be elsewhere."""
    lines = [json.loads(line) for line in _JOURNAL.read_text().splitlines()]
    trial = next(log for log in lines if log["op_code"] == 4)
    attrs = {**trial["user_attrs"], "folder": folder, "driver": {"host": 3, "pid": "x"}, "beat": 0}
    lines.append({**trial, "trial_id": 1, "state": 0, "user_attrs": attrs})
    _JOURNAL.write_text("".join(json.dumps(log) + "\n" for log in lines))


# ---- Links ---------------------------------------------------------------------------------------


def _put(place: str, kind: str) -> None:
    path = FOLDER / place
    path.parent.mkdir(parents=True, exist_ok=True)
    target = OUTSIDE / "precious"
    if place == "study.journal":
        os.rename(path, OUTSIDE / "journal")
        target = OUTSIDE / "journal"
    _abandon_at = place.startswith("trials/")
    if kind == "link":
        path.symlink_to(target.absolute())
    elif kind == "dangling":
        path.symlink_to(OUTSIDE.absolute() / "new")
    elif kind == "hard link":
        os.link(target, path)
    elif kind == "folder link":
        path.symlink_to(OUTSIDE.absolute())
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    if _abandon_at:
        _abandon("s/trials/1a-1")


# ---- Databases -----------------------------------------------------------------------------------


def _sql(*statements: str) -> None:
    with sqlite3.connect(DATABASE) as database:
        for statement in statements:
            database.execute(statement)
    database.close()


def _truncate() -> None:
    with DATABASE.open("r+b") as file:
        file.truncate(DATABASE.stat().st_size // 2)


def _spoil() -> None:
    data = bytearray(DATABASE.read_bytes())
    data[4096::97] = b"\xee" * len(data[4096::97])
    DATABASE.write_bytes(data)


_ATTR = "UPDATE study_user_attributes SET value_json = '{}' WHERE key = '{}'"
_DATABASES: dict[str, Callable[[], None]] = {
    "text": lambda: _overwrite(b"not a database\n" * 1000),
    "empty": lambda: _overwrite(b""),
    "half": _truncate,
    "spoilt": _spoil,
    "folder": lambda: (DATABASE.unlink(), DATABASE.mkdir())[0],
    "missing": lambda: DATABASE.unlink(),
    "no trials": lambda: _sql("DROP TABLE trials"),
    "no studies": lambda: _sql("DROP TABLE studies"),
    "no attributes": lambda: _sql("DELETE FROM study_user_attributes"),
    "no version": lambda: _sql("DROP TABLE version_info"),
    "other tables": lambda: _sql("DROP TABLE studies", "CREATE TABLE studies (a INTEGER)"),
    "no study": lambda: _sql("DELETE FROM studies"),
    "no json": lambda: _sql(_ATTR.format("{{", "space")),
    "about": lambda: _sql(_ATTR.format("[]", "about")),
    "sweep": lambda: _sql(_ATTR.format('{"metric": {}}', "sweep")),
    "space": lambda: _sql(_ATTR.format('{"train.run_dir": "a, /b"}', "space")),
    "state": lambda: _sql("UPDATE trials SET state = 'ODD'"),
    "number": lambda: _sql("UPDATE trials SET number = 'x'"),
    "params": lambda: _sql("UPDATE trial_params SET param_value = 1e300"),
    "distribution": lambda: _sql("UPDATE trial_params SET distribution_json = '{}'"),
    "curve": lambda: _sql("UPDATE trial_user_attributes SET value_json = '\"x\"'"),
    "trial json": lambda: _sql("UPDATE trial_user_attributes SET value_json = '['"),
    "study name": lambda: _sql("UPDATE studies SET study_name = 'a' || char(10) || char(27)"),
    "command": lambda: _sql(
        "UPDATE study_user_attributes SET value_json = replace(value_json, '\"bandit\"', "
        "'\"subprocess:check_output\"')"
    ),
}


def _overwrite(data: bytes) -> None:
    DATABASE.write_bytes(data)
