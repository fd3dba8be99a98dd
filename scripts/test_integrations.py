"""Try every family of third-party environments for real: `make test-integrations`.

    python scripts/test_integrations.py              all names; writes docs/integrations.md
    python scripts/test_integrations.py crafter      only these names; writes nothing
    python scripts/test_integrations.py --no-write   all names; writes nothing
    python scripts/test_integrations.py --resume     all names that have not passed yet

Packages go into virtual environments under .integrations/, one for each group of families that pip
can install together, and those that tests/clients needs; they borrow what the running Python has
and are made once. Each name runs in a process of its own (scripts/try_integration.py): made, reset,
stepped 1000 times or for some seconds, `check_env`, trained for three iterations, closed; then
processes, threads, shared memory and files must be gone. The exit code is 1 if one of them fails. A
name that needs what no registry has is skipped where it answers in one line what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from try_integration import Case, Outcome, cells

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "integrations.md"
BLOCK = re.compile(r"(<!-- measured: integrations -->\n).*?(<!-- end -->)", re.DOTALL)
HEADINGS = (
    "name",
    "package",
    "observations",
    "actions",
    "agents",
    "alone",
    "through us",
    "trained",
)
TIME_LIMIT = 300.0  # seconds of one name; `craftax` took 140 on busy cores
CONSTRAINED = ("install", "-qq", "-c", str(ROOT / "constraints.txt"))


class Group(NamedTuple):
    """What lives together: extras of pyproject.toml, other packages, and commands of modules."""

    name: str
    cases: tuple[Case, ...] = ()
    extras: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()  # modules of pufferlib.integrations with `INSTALL`
    packages: tuple[str, ...] = ()


GROUPS = (
    Group(
        "all",
        (
            Case("gym-CartPole-v1", "gymnasium"),
            Case("gym-FrozenLake-v1", "gymnasium"),
            Case("gym-LunarLander-v3", "gymnasium"),
            Case("mujoco-hopper", "mujoco"),
            Case("pettingzoo-simple-spread", "mpe2"),
            Case("pettingzoo-knights-archers-zombies", "pettingzoo"),
            Case("pettingzoo-connect-four", "pettingzoo"),
            Case("minigrid-empty-8x8", "minigrid"),
            Case("minigrid-doorkey-8x8", "minigrid"),
            Case("minigrid-multiroom", "minigrid"),
            Case("minigrid-babyai-goto", "minigrid"),
            Case("nethack", "nle"),
            Case("minihack-room-5x5", "minihack"),
            Case("minihack-corridor", "minihack"),
            Case("crafter", "crafter"),
            Case("griddly-clusters", "griddly"),
            Case("griddly-sokoban", "griddly"),
            Case("magent-battle", "magent2"),
            Case("magent-adversarial-pursuit", "magent2"),
            Case("dmc-walker-walk", "dm-control"),
            Case("highway-merge", "highway-env"),
            Case("vizdoom-basic", "vizdoom"),
            Case("bsuite-catch", "bsuite"),
            Case("openspiel-tic-tac-toe", "open_spiel"),
            Case("retro-airstriker-genesis", "stable-retro"),
            Case("pokemon-red", "pyboy"),
            Case("microrts", "gym-microrts", {"map_size": 8}, may_lack=True),  # Java
            Case("neuralmmo", "nmmo", {"num_agents": 16, "map_size": 64}),
            Case("gpudrive", "gpudrive", may_lack=True),
            Case("atari-pong", "ale-py"),
            Case("procgen-coinrun", "envpool, procgen2"),
            Case("envpool-CartPole-v1", "envpool"),
            Case("envpool-Pong-v5", "envpool"),
            Case("craftax", "craftax"),
            Case("craftax-classic", "craftax"),
            Case("gymnax-CartPole-v1", "gymnax"),
            Case("brax-ant", "brax"),
            Case("pgx-tic-tac-toe", "pgx"),
        ),
        extras=("all",),
        commands=("procgen", "microrts", "neuralmmo"),
    ),
    Group(  # of tests/clients: other projects that take our envs
        "clients",
        packages=(
            "minari[create,hdf5]>=0.5",
            "pettingzoo",
            "sb3-contrib",
            "skrl",
            "tianshou>=2",
            "torchrl",
        ),
    ),
    Group("rllib", packages=("ray[rllib]", "supersuit")),  # of the same: it pins Gymnasium
)


# ---- Virtual environments ------------------------------------------------------------------------


def requirements(extras: Iterable[str]) -> list[str]:
    """Return what extras of this package need, those that they name in turn included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known: dict[str, list[str]] = project["optional-dependencies"]
    found: list[str] = []
    for extra in extras:
        for line in known.get(extra, ()):
            inner = re.fullmatch(rf"{project['name']}\[([\w,-]+)\]", line)
            found += requirements(inner[1].split(",")) if inner else [line]
    return list(dict.fromkeys(found))


def install_commands(group: Group) -> list[list[str]]:
    """Return the arguments of pip that make the environment of a group."""
    needed = [*requirements(group.extras), *group.packages]
    commands = [[*CONSTRAINED, *needed]] if needed else []
    for module in group.commands:
        text = importlib.import_module(f"pufferlib.integrations.{module}").INSTALL
        for command in text.split(" && "):
            words = [quoted or bare for quoted, bare in re.findall(r"'([^']*)'|(\S+)", command)]
            commands.append([*words[1:], "-qq"])
    return commands


def environment(group: Group) -> Path:
    """Return the Python of a group; make its environment first where it is missing or stale."""
    folder = ROOT / ".integrations" / group.name
    python, done = folder / "bin" / "python", folder / ".installed"
    commands = install_commands(group)
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    wanted = hashlib.sha256(json.dumps([commands, borrowed]).encode()).hexdigest()
    if done.exists() and done.read_text() == wanted:
        return python
    print(f"== making {folder.relative_to(ROOT)}", flush=True)
    start = time.perf_counter()
    venv.create(folder, clear=True, with_pip=False)
    lines = [f"import site; site.addsitedir({path!r})" for path in borrowed]
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "borrowed.pth").write_text("\n".join(lines) + "\n")
    went_in = [pip(python, command) for command in commands]
    if all(went_in):
        done.write_text(wanted)
    else:  # each alone: then only names fail whose package cannot be installed
        for requirement in [*requirements(group.extras), *group.packages]:
            pip(python, [*CONSTRAINED, requirement])
    print(f"== made after {time.perf_counter() - start:.0f} s", flush=True)
    return python


def pip(python: Path, arguments: Sequence[str]) -> bool:
    """Run pip; return whether it installed all."""
    command = [python, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=False).returncode == 0


# ---- All names -----------------------------------------------------------------------------------


def run_case(python: Path, case: Case) -> Outcome:
    """Try one name in a process and folders of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = Path(folder)
        for name in ("tmp", "work"):
            (own / name).mkdir()
        variables = {
            **os.environ,
            "TMPDIR": str(own / "tmp"),
            "TORCHINDUCTOR_CACHE_DIR": str(own / "torch"),
            "PYTHONWARNINGS": "ignore",
        }
        result, said = own / "result.json", own / "said.txt"
        with said.open("wb") as output:
            process = subprocess.Popen(
                [python, ROOT / "scripts" / "try_integration.py", json.dumps(case), result],
                cwd=own / "work",
                env=variables,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(TIME_LIMIT)
            except subprocess.TimeoutExpired:
                return Outcome(cells(case), wrong=f"took longer than {TIME_LIMIT:.0f} s")
            finally:
                end_session(process)
        if not result.exists():
            lines = said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return Outcome(cells(case), wrong=f"exit code {code}: {(lines or [''])[-1]}")
        return read_outcome(result)


def read_outcome(file: Path) -> Outcome:
    """Read what `try_integration.py` wrote."""
    row, *rest = json.loads(file.read_text(encoding="utf-8"))
    return Outcome(tuple(row), *rest)


def kept(case: Case) -> Path:
    """Return the file of the last outcome of a name, if it passed."""
    return ROOT / ".integrations" / "passed" / f"{case.name}.json"


def end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of all names."""
    rows = [HEADINGS, ("---",) * len(HEADINGS), *(outcome.cells for outcome in outcomes)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows
    )


def write_page(text: str) -> None:
    """Put the table into the block of the page."""
    page = PAGE.read_text(encoding="utf-8")
    filled, count = BLOCK.subn(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page)
    if count != 1:
        raise ValueError(f"{PAGE} must have one block `measured: integrations`, but has {count}")
    PAGE.write_text(filled, encoding="utf-8")


def main() -> int:
    """Try all names, or those on the command line."""
    parser = argparse.ArgumentParser(description="try every family of third-party environments")
    parser.add_argument("names", nargs="*", help="names to try instead of all")
    parser.add_argument("--no-write", action="store_true", help="do not write the page")
    parser.add_argument("--resume", action="store_true", help="leave out names that have passed")
    options = parser.parse_args()
    if Path(sys.prefix).is_relative_to(ROOT / ".integrations"):
        parser.error(
            "run it with .venv/bin/python: this Python is in a folder that the script may replace"
        )
    known = [case.name for group in GROUPS for case in group.cases]
    if unknown := set(options.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    began, outcomes, incomplete = time.perf_counter(), [], []
    for group in GROUPS:
        chosen = [case for case in group.cases if case.name in (options.names or known)]
        if not chosen and (group.cases or options.names):
            continue
        python = environment(group)
        if not group.cases and not (python.parents[1] / ".installed").exists():
            incomplete.append(group.name)  # tests of clients skip those that are not installed
        for case in chosen:
            file = kept(case)
            if options.resume and file.exists():
                outcomes.append(read_outcome(file))
                continue
            start = time.perf_counter()
            outcome = run_case(python, case)
            seconds = time.perf_counter() - start
            said = f"FAILED {outcome.wrong}" if outcome.wrong else outcome.cells[-1]
            print(f"{case.name:<36}{seconds:6.1f} s  {said}", flush=True)
            outcomes.append(outcome)
            file.unlink(missing_ok=True)
            if not outcome.wrong:
                file.parent.mkdir(exist_ok=True)
                file.write_text(json.dumps(outcome), encoding="utf-8")
    print(table(outcomes))
    failed, skipped = (sum(map(bool, column)) for column in list(zip(*outcomes))[1:])
    if not failed and not options.names and not options.no_write:
        write_page(table(outcomes))
    passed = len(outcomes) - failed - skipped
    seconds = time.perf_counter() - began
    print(f"{passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s")
    for name in incomplete:
        print(f"FAILED to install all packages of .integrations/{name}")
    return 1 if failed or incomplete else 0


if __name__ == "__main__":
    sys.exit(main())
