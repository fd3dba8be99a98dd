"""Log files survive what happens to runs, and runs survive what happens to loggers."""

import json
import math
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from pufferlib.errors import UsageError
from pufferlib.loggers import JsonlLogger, Logger, NoLogger, SafeLogger


def rows(path: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Recorder:
    def __init__(self) -> None:
        self.steps: list[int] = []
        self.closed = 0

    def log(self, metrics: object, step: int) -> None:
        self.steps.append(step)

    def close(self) -> None:
        self.closed += 1


class Broken(Recorder):
    def log(self, metrics: object, step: int) -> None:
        super().log(metrics, step)
        raise OSError(28, "No space left on device")


def test_one_json_object_per_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonlLogger(path) as logger:
        logger.log({"sps": 1.5, "env/score": 2.0}, step=10)
        logger.log({"sps": 2.5}, step=20)

    assert rows(path) == [{"step": 10, "sps": 1.5, "env/score": 2.0}, {"step": 20, "sps": 2.5}]


def test_nan_and_infinity_become_null(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonlLogger(path) as logger:
        logger.log({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0}, step=0)

    assert rows(path) == [{"step": 0, "a": None, "b": None, "c": None, "d": 1.0}]


def test_numpy_scalars_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonlLogger(path) as logger:
        metrics = {"a": np.float32(0.5), "b": np.int64(3), "c": np.float32("nan")}
        logger.log(metrics, step=np.int64(7))  # type: ignore[arg-type]

    assert rows(path) == [{"step": 7, "a": 0.5, "b": 3.0, "c": None}]


def test_the_step_argument_wins_over_a_metric_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonlLogger(path) as logger:
        logger.log({"step": 99.0}, step=1)

    assert rows(path) == [{"step": 1}]


def test_parent_folders_are_created(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "breakout" / "log.jsonl"
    with JsonlLogger(path) as logger:
        logger.log({}, step=1)

    assert rows(path) == [{"step": 1}]


def test_a_resumed_run_appends(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for step in (1, 2):
        with JsonlLogger(path) as logger:
            logger.log({}, step=step)

    assert rows(path) == [{"step": 1}, {"step": 2}]


@pytest.mark.parametrize(
    ("tail", "kept"),
    [
        ('{"step": 2, "sps": 1', []),  # torn: cut
        ('{"step": 2}', [{"step": 2}]),  # whole, only its newline is missing: kept
    ],
)
def test_a_partial_last_line_does_not_damage_the_next(
    tmp_path: Path, tail: str, kept: list[dict[str, int]]
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n' + tail)
    with JsonlLogger(path) as logger:
        logger.log({}, step=3)

    assert rows(path) == [{"step": 1}, *kept, {"step": 3}]


def test_text_of_others_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes")
    with JsonlLogger(path) as logger:
        logger.log({}, step=1)

    assert path.read_text() == 'my notes\n{"step": 1}\n'


def test_lines_are_readable_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    script = (
        "import os, signal, sys; from pufferlib.loggers import JsonlLogger\n"
        "logger = JsonlLogger(sys.argv[1])\n"
        "for step in range(100): logger.log({'sps': 1.0}, step)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)

    assert done.returncode == -signal.SIGKILL
    assert [row["step"] for row in rows(path)] == list(range(100))


def test_a_path_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"`path` must be a file .* \(Is a directory\)"):
        JsonlLogger(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_warns_once_and_the_run_continues(tmp_path: Path) -> None:
    full, other = JsonlLogger("/dev/full"), JsonlLogger(tmp_path / "log.jsonl")
    logger = SafeLogger([full, other])
    with pytest.warns(RuntimeWarning, match="JsonlLogger failed at step 1 .*No space left"):
        logger.log({}, step=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.log({}, step=2)
        logger.close()

    assert rows(tmp_path / "log.jsonl") == [{"step": 1}, {"step": 2}]


def test_a_short_write_leaves_no_partial_line(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "log.jsonl"
    script = (
        "import resource, signal, sys; from pufferlib.loggers import JsonlLogger, SafeLogger\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))\n"
        "logger = SafeLogger([JsonlLogger(sys.argv[1])])\n"
        "for step in range(3): logger.log({}, step)\n"
    )
    assert resource is not None
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True
    )

    # A line is 12 bytes: of the second only 8 fit below the limit of 20.
    assert path.read_text() == '{"step": 0}\n'
    assert done.stderr.count("failed at step 1") == 1


def test_a_logger_that_raises_is_skipped_and_the_others_continue() -> None:
    broken, working = Broken(), Recorder()
    logger = SafeLogger([broken, working])
    with pytest.warns(RuntimeWarning, match="Broken failed at step 1"):
        logger.log({}, step=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.log({}, step=2)
        logger.log({}, step=3)

    assert broken.steps == [1]
    assert working.steps == [1, 2, 3]


def test_an_exception_without_a_text_costs_one_warning_too() -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    class Mute(Recorder):
        def log(self, metrics: object, step: int) -> None:
            raise UnspeakableError

    logger = SafeLogger([Mute()])
    with pytest.warns(RuntimeWarning, match="Mute failed at step 1 .*: UnspeakableError"):
        logger.log({}, step=1)


def test_a_logger_that_fails_to_close_does_not_keep_others_open() -> None:
    class Stuck(Recorder):
        def close(self) -> None:
            raise RuntimeError("no network")

    working = Recorder()
    logger = SafeLogger([Stuck(), working])
    with pytest.warns(RuntimeWarning, match="Stuck failed to close.*no network"):
        logger.close()
    logger.close()

    assert working.closed == 1


def test_ctrl_c_inside_a_logger_still_stops_the_run() -> None:
    class Interrupted(Recorder):
        def log(self, metrics: object, step: int) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SafeLogger([Interrupted()]).log({}, step=1)


def test_no_logger_accepts_everything() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger = NoLogger()
        logger.log({"a": math.nan}, step=1)
        logger.close()


def test_all_loggers_satisfy_the_protocol(tmp_path: Path) -> None:
    for logger in (NoLogger(), SafeLogger([]), JsonlLogger(tmp_path / "log.jsonl"), Recorder()):
        assert isinstance(logger, Logger)
