"""Runs the tests again and again, on a machine that is not as they expect: none may fail.

    python scripts/stress_tests.py                   the whole campaign, many hours
    python scripts/stress_tests.py quiet busy --times 5 --tests tests/faults tests/sweep
    python scripts/stress_tests.py one-core --mark "not slow"

One line per run: condition, seconds, tests that passed, names of those that did not. The output of
a run with failures is kept in build/stress/. Ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "stress"
# what depends on time or on processes
TIMED = [
    f"tests/{room}"
    for room in ("faults", "vectorization", "distributed", "cli", "sweep", "selfplay")
]
SEED = "STRESS_SEED"  # environment variable: every process of a run needs the same order
# it ends with this program, even with one that is killed
LOOP = "import os\nwhile os.getppid() == {}: sum(range(10000))"


class Machine(NamedTuple):
    """What a condition changes: variables (None: unset), what runs in the new process before
    pytest, words around it, and busy loops beside it.
    """

    variables: Mapping[str, str | None] = MappingProxyType({})
    before: Callable[[], object] | None = None
    prefix: Sequence[str] = ()
    plugin: Sequence[str] = ()
    loops: int = 0


def machine(condition: str, folder: Path, busy: int) -> Machine:
    """Return what makes a condition; `folder` is empty, and for this run only."""
    if condition == "busy":
        return Machine(loops=busy)
    if condition == "one-core":
        one = {min(os.sched_getaffinity(0))}
        return Machine(before=partial(os.sched_setaffinity, 0, one))
    if condition == "random-order":
        seed = str(random.randrange(10**6))
        variables = {"PYTHONPATH": str(Path(__file__).parent), SEED: seed}
        return Machine(variables, plugin=["-p", Path(__file__).stem])
    if condition == "other-user":  # `nobody`, and without the rights of root
        return Machine({"HOME": None, "USER": None, "LOGNAME": None}, prefix=["unshare", "--user"])
    if condition == "long-tmpdir":
        (long := folder / ("long" * 30)).mkdir()
        return Machine({"TMPDIR": str(long)})
    if condition == "c-locale":
        return Machine({"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": None})
    if condition == "umask":
        return Machine(before=partial(os.umask, 0o077))
    return Machine()


CONDITIONS = ["quiet", "busy", "one-core", "random-order", "other-user", "long-tmpdir", "c-locale"]
CONDITIONS += ["umask"]


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Shuffle the modules, and the tests of each: this file is a plugin of pytest too."""
    order = random.Random(os.environ[SEED])
    ranks = {module: order.random() for module in dict.fromkeys(item.path for item in items)}
    order.shuffle(items)
    items.sort(key=lambda item: ranks[item.path])


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep `count` cores busy while the block runs."""
    words = [sys.executable, "-c", LOOP.format(os.getpid())]
    loops = [subprocess.Popen(words) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(condition: str, number: int, tests: list[str], mark: str, busy: int, jobs: int) -> bool:
    """Run the tests once, print the line, and return whether all passed."""
    with tempfile.TemporaryDirectory(prefix="stress-") as folder:
        under = machine(condition, Path(folder), busy)
        variables = {**os.environ, "TMPDIR": folder, **under.variables}
        words = [sys.executable, "-m", "pytest", "-o", "addopts=", "-rfE", "--tb=short", "-m", mark]
        words += ["-p", "no:cacheprovider", "-n", str(jobs)] if jobs else []
        log, start = LOGS / f"{condition}-{number}-{os.getpid()}.log", time.monotonic()
        with busy_loops(under.loops), log.open("w") as file:
            process = subprocess.Popen(
                [*under.prefix, *words, *under.plugin, *tests],
                cwd=ROOT,
                env={name: value for name, value in variables.items() if value is not None},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,  # so that what it started ends with it
                preexec_fn=under.before,
            )
            try:
                code = process.wait()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    output, seconds = log.read_text(errors="replace"), time.monotonic() - start
    passed = re.findall(r"(\d+) passed", output)[-1:] or ["0"]
    names = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    seed = f" (seed {under.variables[SEED]})" if SEED in under.variables else ""
    line = f"{condition}{seed} {number}: {seconds:.0f} s, {passed[0]} passed"
    if code == 0:
        log.unlink()
    else:
        line += f", ended with {code}, see {log}: {' '.join(names)}"
    print(line, flush=True)
    return code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("conditions", nargs="*", metavar="CONDITION", help=", ".join(CONDITIONS))
    parser.add_argument("--times", type=int, default=1, help="runs of each condition")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="files or folders")
    parser.add_argument("--mark", default="", help="as pytest's -m; by default the slow ones too")
    parser.add_argument("--busy", type=int, default=4, help="busy loops of the condition `busy`")
    parser.add_argument("--jobs", type=int, default=2, help="test processes side by side")
    options = parser.parse_args()
    for condition in options.conditions:
        if condition not in CONDITIONS:
            parser.error(f"Unknown condition `{condition}`. Known are {', '.join(CONDITIONS)}.")
    plan = [(condition, options.tests, options.times) for condition in options.conditions]
    if not plan:
        plan = [(condition, TIMED, 20) for condition in ("quiet", "busy")]
        plan += [(each, ["tests"], 3 if each in ("quiet", "busy") else 1) for each in CONDITIONS]
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # loops and tests end with it
    good = True
    for condition, tests, times in plan:
        for number in range(1, times + 1):
            good &= run(condition, number, tests, options.mark, options.busy, options.jobs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
