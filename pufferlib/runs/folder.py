"""The folder of a run: its config, its log and its checkpoints.

    config.json                    all options
    metrics.jsonl                  the log, a JSON object for each iteration
    metrics-1.jsonl                the log before a run without a checkpoint started over
    latest.safetensors             where `puffer resume` continues
    best.safetensors               the checkpoint with the highest score so far
    iteration-000200.safetensors   the newest few, `train.keep_checkpoints` of them

A checkpoint is written once; `latest` and `best` are hard links to it. Each name changes
atomically, so whenever a process dies, the newest checkpoint or the one before is there and whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import os
import re
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import psutil

from pufferlib.closing import Closing
from pufferlib.config import Config
from pufferlib.errors import CheckpointError, UsageError, one_line, quoted
from pufferlib.files import (
    link_at,
    link_atomically,
    read_regular,
    remove_unfinished,
    write_atomically,
)

if TYPE_CHECKING:
    from pufferlib.training.trainer import PuffeRL

CONFIG, LOG, LATEST, BEST = "config.json", "metrics.jsonl", "latest.safetensors", "best.safetensors"
LAUNCH = ".launch"  # holds the id of the torchrun launch that started the run
_NUMBERED = re.compile(r"iteration-(\d{6,})\.safetensors")
_SCORES = ("env/elo", "env/perf", "mean_reward")  # the first that a log has is the score
_MAX_CONFIG = 1 << 20  # bytes of a config.json


class Run(Closing):
    """The folder of a run. A `with` block locks it: only one process at a time can train it.

    `keep` numbered checkpoints are kept besides the latest and the best. `metric` selects the best
    checkpoint: the higher the better. "auto" is `env/elo` in self-play, else `env/perf` if the env
    reports it, else `mean_reward`.
    """

    def __init__(self, folder: Path, keep: int = 0, metric: str = "auto") -> None:
        self.folder, self.keep, self.metric = folder, keep, metric
        self.best_score: float | None = None
        self.is_first = True  # of several processes that train together, the one that writes
        self._lock: int | None = None
        self._config: bytes | None = None  # to be written again if the folder is removed

    @property
    def latest(self) -> Path:
        """The checkpoint to continue from, once there is one."""
        return self.folder / LATEST

    # ---- The lock --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if not self.is_first:
            return self
        file = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise UsageError(
                f"{quoted(self.folder)} must not be in use, but another process trains this run."
            ) from None
        except OSError:  # a disk without locks
            pass
        self._lock = file
        with contextlib.suppress(OSError, ValueError):
            self._config = read_regular(self.folder / CONFIG, _MAX_CONFIG)
        remove_unfinished(self.folder)
        return self

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # ---- Checkpoints -----------------------------------------------------------------------------

    def save(self, trainer: PuffeRL, log: Mapping[str, float], settled: bool = True) -> None:
        """Save the trainer; `log` holds the metrics of its last iteration.

        Until the scores are `settled` they are not compared, and the latest checkpoint is the best.
        Raises CheckpointError if it cannot be written; earlier checkpoints are then still there.
        """
        score = self._score(log) if settled else None
        is_best = score is not None and (self.best_score is None or score > self.best_score)
        best = score if is_best else self.best_score
        is_best = is_best or (not settled and best is None)
        metadata = {"run": {"score": score, "best": best}}
        numbered = self.folder / f"iteration-{trainer.iteration:06d}.safetensors"
        path = numbered if self.keep else self.latest
        trainer.save_checkpoint(path, metadata)
        if not self.is_first:
            return
        try:
            if self._config is not None and not (self.folder / CONFIG).exists():
                write_atomically(self.folder / CONFIG, self._config)
                warnings.warn(
                    f"{quoted(self.folder)} was removed, or its config: they are there again, but "
                    "earlier checkpoints and lines of the log may be lost.",
                    RuntimeWarning,
                    stacklevel=2,
                )
            if is_best:
                link_atomically(path, self.folder / BEST)
                self.best_score = score
            if path != self.latest:
                link_atomically(path, self.latest)
            # old ones beyond `keep`; later ones belong to another branch
            past = [other for other in self.numbered() if _number(other) <= trainer.iteration]
            for old in past[self.keep :]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot write to {one_line(self.folder)}: {error.strerror or error}"
            ) from error

    def _score(self, log: Mapping[str, float]) -> float | None:
        """Return the score of an iteration, None if its log has none."""
        keys = _SCORES if self.metric == "auto" else (self.metric,)
        value = next((log[key] for key in keys if key in log), math.nan)
        return float(value) if math.isfinite(value) else None

    def numbered(self) -> list[Path]:
        """Return the numbered checkpoints, the newest first."""
        paths = [path for path in self.folder.iterdir() if _NUMBERED.fullmatch(path.name)]
        return sorted(paths, key=_number, reverse=True)

    def candidates(self) -> list[Path]:
        """Return the checkpoints to try to continue from, in order."""
        paths = (self.latest, *self.numbered(), self.folder / BEST)
        return [path for path in paths if path.exists()]

    def note_resume(self, path: Path, metadata: Any) -> None:
        """Restore the best score from the checkpoint that the run continues from."""
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            score, best = (metadata["run"][key] for key in ("score", "best"))
            self.best_score = float(best) if math.isfinite(best) else None
            if (
                self.is_first and path == self.latest and score == best
            ):  # killed before `best` was linked?
                with contextlib.suppress(OSError):
                    link_atomically(path, self.folder / BEST)

    def begin_log(self) -> Path | None:
        """Keep the log of a run that starts over, having no checkpoint, under another name.

        Returns its new path, or None if there is no log.
        """
        log = self.folder / LOG
        if self.candidates() or not log.is_file() or not log.stat().st_size:
            return None
        names = (self.folder / f"{log.stem}-{number}{log.suffix}" for number in itertools.count(1))
        kept = next(path for path in names if not os.path.lexists(path))
        log.rename(kept)
        return kept

    # ---- Config ----------------------------------------------------------------------------------

    def write_config(self, config: Config) -> None:
        """Write `config` into the folder, replacing an older one."""
        self._config = (json.dumps(config.to_dict(), indent=2) + "\n").encode()
        try:
            write_atomically(self.folder / CONFIG, self._config)
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(
                f"{quoted(self.folder)} must be a folder that can be written, but: {reason}."
            ) from error

    def read_config(self) -> Config:
        """Return the config of the run."""
        try:
            return Config.from_file(json.loads(read_regular(self.folder / CONFIG, _MAX_CONFIG)))
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"{quoted(self.folder)} must be the folder of a run, but {one_line(error)}."
            ) from None

    def check_own(self) -> None:
        """Raise UsageError if a file to append to is a link, which could lead anywhere."""
        for name in (LOG, "tensorboard"):
            if kind := link_at(self.folder / name):
                raise UsageError(
                    f"{quoted(self.folder / name)} must be in the folder of the run, but is {kind}."
                )


def _number(path: Path) -> int:
    match = _NUMBERED.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def launch_id() -> str | None:
    """Return the id of this torchrun launch, which stays the same when it restarts processes."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if run_id is None:
        return None
    torchrun = psutil.Process(os.getppid())  # a number of a process comes again, its start does not
    return f"{run_id}-{torchrun.pid}-{torchrun.create_time()}"


def of_launch(config: Config, launch: str) -> Run | None:
    """Return the run that an earlier start of the same launch created, None at the first start.

    The number of restarts does not say which start it is: one for another machine does not count.
    """
    for path in base_of(config).glob(f"*/{LAUNCH}"):
        with contextlib.suppress(OSError, UsageError, ValueError):
            if read_regular(path, 4096).decode() == launch:
                return Run(path.parent, config.train.keep_checkpoints, config.train.best_metric)
    return None


def base_of(config: Config) -> Path:
    """Return `train.run_dir`, the folder that holds the runs; `~` is the user's home."""
    return Path(os.path.expanduser(config.train.run_dir))


def create(config: Config, launch: str | None = None) -> Run:
    """Create a folder for a run in `train.run_dir` and write its config."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    base = base_of(config)
    name = _folder_name(config.name)
    try:
        for attempt in range(1000):
            folder = base / f"{name}-{stamp}{f'-{attempt}' if attempt else ''}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            run = Run(folder, config.train.keep_checkpoints, config.train.best_metric)
            run.write_config(config)
            if launch is not None:
                write_atomically(folder / LAUNCH, launch.encode())
            return run
    except OSError as error:
        raise UsageError(
            f"`--train.run-dir` must be a folder that can be written, but got {quoted(base)}: "
            f"{error.strerror}."
        ) from error
    raise UsageError(f"{quoted(base)} already holds 1000 runs of {name} from this second.")


def _folder_name(name: str) -> str:
    """Return how the folders of an env's runs begin; no system refuses it."""
    return name.replace("/", "-").replace(":", ".")


class Found(NamedTuple):
    """A run, and its checkpoint if the name was that of a checkpoint."""

    run: Run
    checkpoint: Path | None


def find(word: str, base: Path) -> Found | None:
    """Return the run that `word` names, as a folder or a checkpoint; None if there is none."""
    path = Path(os.path.expanduser(word))
    if os.path.isdir(path):  # unlike Path.is_dir, it accepts a name of any length
        return Found(Run(path), None)
    if os.path.isfile(path) or path.suffix == ".safetensors":
        if not os.path.isfile(path):
            raise UsageError(
                f"{quoted(path)} must be a checkpoint in the folder of a run, but does not exist."
            )
        return Found(Run(path.parent), path)
    if os.path.isdir(base / word):
        return Found(Run(base / word), None)
    return None


def find_checkpoint(word: str, base: Path, label: str) -> tuple[Run, Path]:
    """Return the run and the checkpoint that `word` names; a folder means its latest one.

    Without one, the UsageError names the option `label`.
    """
    found = find(word, base)
    if found is None:
        raise UsageError(
            f"`{label}` must be a checkpoint, the folder of a run or a run in {base}, but got "
            f"{quoted(Path(word))}."
        )
    return found.run, found.checkpoint or found.run.latest


def newest(base: Path, name: str, with_checkpoint: bool = True) -> Run:
    """Return the most recently trained run of env `name` in `base`."""
    marker = LATEST if with_checkpoint else CONFIG
    names = {_folder_name(name), name.replace("/", "-")}  # those of older versions have colons
    stamp = re.compile(f"({'|'.join(map(re.escape, names))})" + r"-\d{8}-\d{6}(-\d+)?")
    found = base.glob(f"*/{marker}") if os.path.isdir(base) else ()
    folders = [path.parent for path in found if stamp.fullmatch(path.parent.name)]
    if not folders:
        raise UsageError(
            f"{quoted(base)} must hold a run of {name}, but has none. "
            f"Try `puffer train {name}` first."
        )
    return Run(max(folders, key=_last_change))


def _last_change(folder: Path) -> float:
    times = [0.0]
    for name in (LATEST, LOG, CONFIG):
        with contextlib.suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return max(times)
