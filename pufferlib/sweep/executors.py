"""Where trials run: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pufferlib.errors import imported, one_line
from pufferlib.files import open_regular
from pufferlib.runs import LATEST, LOG
from pufferlib.sweep.child import HEADER
from pufferlib.system import usable_cores

INI = "trial.ini"
_MAX_LOG = 1 << 32  # bytes
# what Python runs for a trial; -m would warn that the package has already imported the module, and
# without -P modules of the working folder would come before all others
PROGRAM = ("-P", "-c", "from pufferlib.sweep.child import main; main()")


class Job(NamedTuple):
    """An ordinary run: `puffer train NAME --config INI`, in a folder of its own."""

    name: str
    ini: str  # text
    folder: str
    threads: int
    env: bytes = b""  # pickled (id, entry point) of an environment that only this process knows


class Progress(NamedTuple):
    """What a trial has reported since the last call, and its exit code once it has ended."""

    records: list[dict[str, Any]]
    exit_code: int | None
    failure: str = ""  # last line that an ended trial wrote to stderr
    is_saved: bool = False  # whether an ended trial has left the checkpoint of its last iteration


class Process(Protocol):
    """A trial that runs somewhere."""

    def poll(self) -> Progress:
        """Return what is new. After an exit code it must not be called again."""

    def stop(self) -> None:
        """Ask the trial to end soon."""

    def kill(self) -> None:
        """End the trial at once."""


class Executor(Protocol):
    """Starts trials."""

    def capacity(self, threads: int) -> int:
        """Return how many trials with this many threads can run at a time."""

    def start(self, job: Job) -> Process:
        """Start a trial and return at once."""

    def close(self) -> None:
        """Release what is held between trials."""


class LocalProcess:
    """A trial in a process of this machine."""

    def __init__(self, job: Job, program: Sequence[str] = PROGRAM) -> None:
        self._folder = Path(job.folder)
        self._folder.mkdir(parents=True)  # fails if it exists: a stranger could have filled it
        ini = self._folder / INI
        ini.write_text(job.ini)
        threads = str(job.threads)
        limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        # as here, for what the env imports; "" is the working folder of an interactive session
        paths = [path or os.getcwd() for path in sys.path]
        command = ["train", job.name, "--config", str(ini)]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._child = subprocess.Popen(
            [sys.executable, *program, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C reaches the driver, which stops its trials
            env={
                **os.environ,
                **dict.fromkeys(limits, threads),
                "PYTHONPATH": os.pathsep.join(paths),
            },
        )
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has already failed
            self._child.stdin.write(HEADER.pack(len(job.env)) + job.env)
            self._child.stdin.flush()
        self._log = _LogReader(self._folder)

    @property
    def pid(self) -> int:
        return self._child.pid

    def poll(self) -> Progress:
        code = self._child.poll()
        records = self._log.read()  # after the exit code: an ended process writes no more
        if code is None:
            return Progress(records, None)
        failure = self._last_error()
        self._errors.close()
        self._close()
        return Progress(records, code, failure, is_saved(self._folder))

    def stop(self) -> None:
        """Ask the run to save and end after its iteration."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the trial and all that it started, now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._close()

    def _close(self) -> None:
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def _last_error(self) -> str:
        """Return the last line of stderr that says what was wrong."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 8192))
        text = self._errors.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        traces = [n for n, line in enumerate(lines) if line.startswith("Traceback (")]
        last = lines[traces[-1] :] if traces else lines  # warnings before an error are not it
        own = [line for line in last if line.startswith("puffer: ")]
        return one_line((own or lines or [""])[-1].removeprefix("puffer: "))


class _LogReader:
    """Reads the lines that a run adds to its log."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._path, self._offset = folder, None, 0

    _path: Path | None

    def read(self) -> list[dict[str, Any]]:
        if self._path is None:
            self._path = next(self._folder.glob(f"*/{LOG}"), None)
            if self._path is None:
                return []
        try:
            with open_regular(self._path, _MAX_LOG) as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:  # a run that fails before it trains removes its folder
            self._path = None
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        records = map(json.loads, whole.splitlines())
        return [record for record in records if isinstance(record, dict)]


def is_in_use(folder: Path) -> bool:
    """Return whether a process still trains the run in the folder of a trial."""
    for path in folder.glob(f"*/{LOG}"):
        with contextlib.suppress(OSError):
            file = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(file)
    return False


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return what the run in the folder of a trial has logged."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return _LogReader(folder).read()
    return []


def is_saved(folder: Path) -> bool:
    """Return whether the run in the folder of a trial has saved after it last logged."""
    for log in folder.glob(f"*/{LOG}"):
        with contextlib.suppress(OSError):
            return os.stat(log.with_name(LATEST)).st_mtime_ns >= os.stat(log).st_mtime_ns
    return False


class LocalExecutor:
    """Runs trials as processes of this machine."""

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._program = program

    def capacity(self, threads: int) -> int:
        """Return how many trials the cores of this process can run."""
        return max(1, usable_cores() // threads)

    def start(self, job: Job) -> Process:
        """Start a trial."""
        return LocalProcess(job, self._program)

    def close(self) -> None:
        """Nothing is kept between trials."""


class RayExecutor:
    """Runs trials on a Ray cluster; the folder of a run is on the machine that ran it."""

    def __init__(self, program: Sequence[str] = PROGRAM) -> None:
        self._ray, self._program = imported("ray", "ray", "Ray"), program
        self._is_own = not self._ray.is_initialized()
        if self._is_own:
            from pufferlib.vectorization import connect_ray

            # the cluster of RAY_ADDRESS, or one that only this machine can reach
            connect_ray(self._ray, None, log_to_driver=False, logging_level="error")

    def capacity(self, threads: int) -> int:
        """Return how many trials the cores of the cluster can run."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)) // threads)

    def start(self, job: Job) -> Process:
        """Start a trial on any machine with enough free cores."""
        remote = self._ray.remote(num_cpus=job.threads)(LocalProcess)
        actor = remote.remote(job, self._program)
        return _RayProcess(self._ray, actor)

    def close(self) -> None:
        """Leave the cluster."""
        if self._is_own:
            self._ray.shutdown()


class _RayProcess:
    """A trial in an actor of Ray. Its polls are answered later, so that none waits for a place."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._answer: Any = actor.poll.remote()

    def poll(self) -> Progress:
        ready, _ = self._ray.wait([self._answer], timeout=0)
        if not ready:
            return Progress([], None)
        try:
            progress: Progress = self._ray.get(ready[0])
        except Exception as error:  # the machine or the actor is gone
            return Progress([], -signal.SIGKILL, one_line(error, 120))
        if progress.exit_code is None:
            self._answer = self._actor.poll.remote()
        else:
            self._ray.kill(self._actor)
        return progress

    def stop(self) -> None:
        self._actor.stop.remote()

    def kill(self) -> None:
        self._ray.kill(self._actor)
