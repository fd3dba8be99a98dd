"""Kill a process again and again while it saves; what it leaves behind must always be sound.

    python tests/faults/kill_saves.py --kills 200    at random moments of a save
    python tests/faults/kill_saves.py --every-line   when it first comes to each line of a save

After every kill all checkpoints in the folder are read and verified, and the latest must be the
newest that was reported as saved, or one newer. The last line counts what was seen; the exit code
is 1 where anything was torn, lost or left behind for good.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import pufferlib
from pufferlib.models import make_policy
from pufferlib.runs import Run, checkpoint

SAVING = ("checkpoint.py", "files.py", "runs.py")  # whose lines a save consists of


def make_trainer(hidden_size: int) -> pufferlib.PuffeRL:
    vecenv = pufferlib.make("cartpole", num_envs=64, backend="serial")  # which forks can use
    policy = make_policy(vecenv, hidden_size=hidden_size)
    settings = {"batch_size": 512, "n_epochs": 1, "device": "cpu", "dashboard": "off"}
    trainer = pufferlib.PuffeRL(vecenv, policy, **settings)
    trainer.evaluate()
    trainer.train()
    return trainer


def save_next(run: Run, trainer: pufferlib.PuffeRL) -> None:
    trainer.state.iteration += 1
    run.save(trainer, {"mean_reward": float(trainer.iteration % 3)})  # every third is a best


class Verdict:
    """What was seen in the folder after kills."""

    def __init__(self, run: Run, trainer: pufferlib.PuffeRL) -> None:
        self.run, self.trainer = run, trainer
        self.kills = self.midway = self.newer = 0
        self.faults: list[str] = []

    def look(self, reported: int) -> None:
        """Read all that is there after a kill; `reported` is the last save that returned."""
        self.kills += 1
        entries = sorted(path.name for path in self.run.folder.iterdir())
        self.midway += any(name.endswith(".unfinished") for name in entries)
        for name in entries:
            if name.endswith(".safetensors") and not name.startswith("."):
                try:
                    checkpoint.load(self.run.folder / name)
                except pufferlib.errors.CheckpointError as error:
                    self.faults.append(f"torn: {error}")
        try:
            self.trainer.load_checkpoint(self.run.latest)
        except pufferlib.errors.CheckpointError as error:
            self.faults.append(f"not resumable: {error}")
            return
        if not reported <= self.trainer.iteration <= reported + 1:
            self.faults.append(f"{reported} was saved, but the latest is {self.trainer.iteration}")
        self.newer += self.trainer.iteration > reported

    def finish(self) -> int:
        """Save once more, after which nothing unfinished may be left; print and return a code."""
        save_next(self.run, self.trainer)
        left = [path.name for path in self.run.folder.iterdir() if path.name.startswith(".")]
        if left:
            self.faults.append(f"left behind: {left}")
        for fault in self.faults:
            print(fault, file=sys.stderr)
        print(
            f"{self.kills} kills: {self.midway} in the middle of a file, {self.newer} between a "
            f"save and its report, {len(self.faults)} faults"
        )
        return bool(self.faults)


def in_child(work: Callable[[int], Any]) -> tuple[int, int]:
    """Start a process that does `work` with a pipe to report to; return its id and our end."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(theirs)
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    return child, ours


def last_report(pipe: int, before: int) -> int:
    with os.fdopen(pipe, "rb") as file:
        reports = file.read()
    return struct.unpack("<q", reports[-8:])[0] if reports else before


def kill_at_random(verdict: Verdict, kills: int, rng: random.Random) -> None:
    run, trainer = verdict.run, verdict.trainer
    begun = time.perf_counter()
    for _ in range(5):
        save_next(run, trainer)
    typical = (time.perf_counter() - begun) / 5

    def save_on(pipe: int) -> None:
        os.write(pipe, struct.pack("<q", trainer.iteration))
        while True:
            save_next(run, trainer)
            os.write(pipe, struct.pack("<q", trainer.iteration))

    for _ in range(kills):
        before = trainer.iteration
        child, pipe = in_child(save_on)
        time.sleep(rng.uniform(0, 3 * typical))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        verdict.look(last_report(pipe, before))


def kill_at_every_line(verdict: Verdict) -> None:
    run, trainer = verdict.run, verdict.trainer
    save_next(run, trainer)
    number = 0
    seen: set[tuple[str, int]] = set()

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        if os.path.basename(frame.f_code.co_filename) not in SAVING:
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) > number:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    def save_once(pipe: int) -> None:
        sys.settrace(count)
        save_next(run, trainer)
        sys.settrace(None)
        os.write(pipe, struct.pack("<q", trainer.iteration))

    for number in range(1000):  # noqa: B007 - the child counts up to it
        before = trainer.iteration
        child, pipe = in_child(save_once)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):  # it got through: every line has had its turn
            os.close(pipe)
            if os.WEXITSTATUS(status):
                verdict.faults.append("a save failed")
            return
        verdict.look(last_report(pipe, before))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=0, metavar="N")
    parser.add_argument("--every-line", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", metavar="FOLDER", help="on the disk to try; one for passing use"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    code = 0
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.every_line:
            (Path(folder) / "lines").mkdir()
            verdict = Verdict(Run(Path(folder) / "lines", keep=2), make_trainer(hidden_size=8))
            kill_at_every_line(verdict)
            code |= verdict.finish()
        if options.kills:
            (Path(folder) / "random").mkdir()
            verdict = Verdict(Run(Path(folder) / "random", keep=2), make_trainer(hidden_size=192))
            kill_at_random(verdict, options.kills, random.Random(options.seed))
            code |= verdict.finish()
    return code


if __name__ == "__main__":
    sys.exit(main())
