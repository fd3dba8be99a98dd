"""Kill the driver of a sweep and its trials again and again; no result may be lost or doubled.

    python tests/faults/kill_sweeps.py --kills 50           trials that only log, to be quick
    python tests/faults/kill_sweeps.py --kills 50 --real    trials that train cartpole

After every kill, results that were recorded before must still be there, unchanged. At the end there
must be exactly as many trials as asked for, every finished run must belong to one complete trial,
and no process may be left. The last line counts what was seen; the exit code is 1 after a fault.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from pufferlib import config as configs
from pufferlib.config import SweepConfig, check_range
from pufferlib.sweep import JOURNAL, Driver, SearchSpace, Study, create_study, load_study
from pufferlib.sweep.executors import LocalExecutor

FAKE = Path(__file__).resolve().parents[1] / "rigs" / "fake_trial.py"
STATES = ("complete", "failed", "lost")
SPACE = {"train.learning_rate": "log_uniform 1e-5 1e-1"}


def drive(folder: Path, num_trials: int, is_real: bool, method: str) -> None:
    """Create or resume the sweep in `folder` and run it to its end."""
    if (folder / JOURNAL).exists() and (folder / "created").exists():
        study, _ = load_study(None, None, folder)
    else:
        (folder / JOURNAL).unlink(missing_ok=True)  # killed while it was created: nothing is lost
        space = SearchSpace({key: check_range(key, text, key) for key, text in SPACE.items()})
        config = SweepConfig(num_trials=num_trials, parallel=2, method=method, early_stop=False)
        study = create_study(None, "kills", space, config, folder)
        (folder / "created").touch()
    name, overrides = "cartpole", [("train", "total_timesteps", "60_000")]
    config = configs.load(name, [*overrides, ("vec", "num_envs", "64")])
    if is_real:
        Driver(study, config, folder).run()
        return
    config = configs.load(name, [("env", "pause", "0.05")], packaged=False)
    Driver(study, config, folder, executor=LocalExecutor((str(FAKE),))).run()


class Verdict:
    """What was seen in the study after kills."""

    def __init__(self, folder: Path, num_trials: int) -> None:
        self.folder, self.num_trials = folder, num_trials
        self.kills = {"driver": 0, "trial": 0}
        self.faults: list[str] = []
        self._finished: dict[int, tuple[str, float]] = {}

    def study(self) -> Study:
        return load_study(None, None, self.folder)[0]

    def look(self) -> None:
        """Compare the finished trials with those seen before."""
        now = {
            t.number: (t.state, t.score)
            for t in self.study().trials()
            if t.state in ("complete", "stopped", "failed")
        }
        for number, before in self._finished.items():
            if now.get(number) != before:
                self.faults.append(f"trial {number} was {before} and is {now.get(number)}")
        self._finished = now

    def finish(self) -> None:
        """Check the study that has come to its end."""
        self.look()
        trials = self.study().trials()
        counted = [t for t in trials if t.is_counted]
        wrong = [t.state for t in counted if t.state != "complete" and "signal 9" not in t.failure]
        if len(counted) != self.num_trials or wrong:  # a config that was killed twice has failed
            self.faults.append(f"{self.num_trials} wanted, but {len(counted)} counted, {wrong}")
        retried = [t.retry_of for t in trials if t.retry_of is not None]
        if len(retried) != len(set(retried)):
            self.faults.append(f"a lost trial was run again twice: {retried}")
        complete = {t.folder for t in trials if t.state == "complete"}
        for log in self.folder.glob("trials/*/*/metrics.jsonl"):
            lines = log.read_text().splitlines()
            last = json.loads(lines[-1]) if lines else {"steps": 0, "total_steps": 1}
            if last["steps"] >= last["total_steps"] and str(log.parents[1]) not in complete:
                self.faults.append(f"the finished run {log.parent} is in no complete trial")
        if len(complete) != sum(t.state == "complete" for t in trials):
            self.faults.append("two complete trials have one folder")
        left = [p.pid for p in psutil.process_iter(["cmdline"]) if self._is_trial(p)]
        if left:
            self.faults.append(f"processes are left: {left}")

    def _is_trial(self, process: Any) -> bool:
        words = process.info["cmdline"] or []
        is_own = any(str(self.folder) in word for word in words)
        return is_own and process.pid != psutil.Process().pid


def campaign(kills: int, num_trials: int, is_real: bool, seed: int, method: str) -> int:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "sweep"
        folder.mkdir()
        verdict = Verdict(folder, num_trials)
        command = [sys.executable, __file__, "--drive", str(folder), "--trials", str(num_trials)]
        command += ["--method", method, *(["--real"] if is_real else [])]
        driver: subprocess.Popen[bytes] | None = None
        deadline = time.monotonic() + 3600
        while time.monotonic() < deadline:
            if driver is None:
                driver = subprocess.Popen(command)
            total = sum(verdict.kills.values())
            if total >= kills:
                if driver.wait() != 0:
                    verdict.faults.append(f"the driver ended with {driver.returncode}")
                break
            if rng.random() < 0.9:  # else it is killed while it starts
                wait_for_trials(driver)
            time.sleep(rng.uniform(0.0, 6.0 if is_real else 0.5))  # from start to beyond its end
            if driver.poll() is not None:  # the sweep came to its end before all kills
                verdict.finish()
                verdict.num_trials += max(4, num_trials // 4)
                extend(folder, verdict.num_trials)
                driver = None
                continue
            trials = trial_processes(driver.pid)
            if trials and rng.random() < 0.6:
                victim = rng.choice(trials)
                verdict.kills["trial"] += 1
                try:
                    victim.send_signal(signal.SIGKILL)
                except psutil.NoSuchProcess:
                    verdict.kills["trial"] -= 1
            elif trials or (folder / "created").exists():
                driver.kill()
                driver.wait()
                driver = None
                verdict.kills["driver"] += 1
            if (folder / "created").exists():
                verdict.look()
        verdict.finish()
        trials_seen = verdict.study().trials()
    counts = {state: sum(t.state == state for t in trials_seen) for state in STATES}
    print(
        f"{verdict.kills['driver']} kills of the driver, {verdict.kills['trial']} of trials: "
        f"{counts['complete']} trials complete, {counts['failed']} killed twice, "
        f"{counts['lost']} lost and replaced, "
        f"{len(verdict.faults)} faults"
    )
    for fault in verdict.faults:
        print(fault)
    return 1 if verdict.faults else 0


def wait_for_trials(driver: subprocess.Popen[bytes]) -> None:
    while driver.poll() is None and not trial_processes(driver.pid):
        time.sleep(0.02)


def extend(folder: Path, num_trials: int) -> None:
    """Let the sweep have more trials, so that there is something left to kill."""
    study, _ = load_study(None, None, folder)
    study._study.set_user_attr("sweep", {**vars(study.config), "num_trials": num_trials})


def trial_processes(driver: int) -> list[psutil.Process]:
    try:
        return psutil.Process(driver).children()
    except psutil.NoSuchProcess:
        return []


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill sweeps; nothing finished may be lost.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", default="random")
    parser.add_argument("--real", action="store_true", help="train instead of only logging")
    parser.add_argument("--drive", metavar="FOLDER", help="be the driver of the sweep in FOLDER")
    options = parser.parse_args()
    if options.drive:
        drive(Path(options.drive), options.trials, options.real, options.method)
        return 0
    return campaign(options.kills, options.trials, options.real, options.seed, options.method)


if __name__ == "__main__":
    sys.exit(main())
