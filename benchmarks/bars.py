"""The speed bars: our figures beside those of plain C programs, run alternately.

    python benchmarks/bars.py                         our own figures
    python benchmarks/bars.py --yardsticks DIR        and their ratio to the programs in DIR
    python benchmarks/bars.py --yardsticks DIR --rounds 5 --json bars.json
    python benchmarks/bars.py --yardsticks DIR --only training    beside the fused program alone

DIR holds cartpole_loop.c and fused_ppo.c. They are compiled with the flags in their first lines.
Only the ratio of the best rounds counts: absolute figures vary with the machine. Training and the
fused program take many short turns, so that both see the same seconds of the machine, and the
median of the turns' ratios is printed too. The efficiency of the native engine needs no program:
its yardstick is torch's matrix product, measured in the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import re
import select
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

SIM_BARS = {"cartpole": 0.8, "squared": 0.25, "snake": 0.15, "breakout": 0.15}
TRAIN_BARS = {"torch": 0.2, "native": 1.3}  # of the fused program's rate, by engine
NATIVE_OVER_TORCH_BAR = 4.0
PYTHON_ENV, PYTHON_ENV_BAR = "gym-CartPole-v1", 1.5  # native over torch, with an env in Python
# Bars are shares of torch's matrix product, see docs/engine.md.
EFFICIENCY_CASES = [
    *(
        (name, width, epochs, "none", 0.6)
        for name in ("cartpole", "breakout")
        for width in (64, 128)
        for epochs in (1, 4)
    ),
    ("cartpole", 128, 1, "mingru", 0.5),
    ("cartpole", 128, 1, "lstm", 0.4),
]
THREADS = 2
LOOP_LINE = "AoS libm sinf,n=4096,threads=2"
# As the fused program trains: 1024 envs, a shared trunk of two layers, batches of 32768 in four
# minibatches. Its layers are relu; the efficiency is that of the default, tanh.
NUM_ENVS, BATCH_SIZE, MINIBATCH_SIZE = 1024, 32768, 8192
TRAIN_SETTINGS = (
    f"--vec.num-envs={NUM_ENVS}",
    "--policy.num-layers=2",
    "--policy.separate=false",
    f"--train.batch-size={BATCH_SIZE}",
    f"--train.minibatch-size={MINIBATCH_SIZE}",
)
FUSED_PASSES = 80  # over a rollout in one turn of the fused program: half a second or more


class Pair(NamedTuple):
    """Steps per second of ours and of the yardstick right before it, None if it was not run."""

    ours: float
    yardstick: float | None


class Bar(NamedTuple):
    """One line of the report; the figures of the yardstick are None if it was not run."""

    what: str
    sps: float  # the best of all rounds, as is the yardstick
    yardstick: float | None
    ratio: float | None  # of the best
    median_ratio: float | None  # of the rounds
    bar: float


def bench(name: str, mode: str, seconds: float, *words: str) -> list[dict[str, Any]]:
    """Return what `puffer bench` reports of each engine, from a process of its own."""
    command = [sys.executable, "-m", "pufferlib", "bench", name, "--mode", mode, "--json"]
    command += ["--threads", str(THREADS), "--seconds", str(seconds), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command[1:])} failed:\n{done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def sim_rate(name: str, seconds: float) -> float:
    """Return the steps per second of an env alone."""
    return float(bench(name, "sim", seconds)[0]["sps"])


@contextmanager
def training(engine: str, epochs: int, seconds: float) -> Iterator[Callable[[], float]]:
    """Train what the fused program trains; give a function that continues for one turn.

    It returns steps per second. Turns continue one run in this process, so the first of several is
    not spent on imports and page faults.
    """
    import pufferlib
    from pufferlib.models import make_policy

    with pufferlib.make("cartpole", num_envs=NUM_ENVS, num_workers=THREADS, seed=1) as env:
        policy = make_policy(env, hidden_size=64, num_layers=2, separate=False, activation="relu")
        trainer = pufferlib.PuffeRL(
            env,
            policy,
            engine=engine,
            batch_size=BATCH_SIZE,
            minibatch_size=MINIBATCH_SIZE,
            n_epochs=epochs,
            anneal_lr=False,
            torch_threads=THREADS,
            dashboard="off",
        )

        def advance(seconds: float) -> float:
            steps, start = 0, time.perf_counter()
            while (taken := time.perf_counter() - start) < seconds or not steps:
                trainer.evaluate()
                trainer.train()
                trainer.mean_and_log()
                steps += BATCH_SIZE
            return steps / taken

        def turn() -> float:
            advance(seconds / 10)  # the other program had the caches
            return advance(seconds)

        yield turn
        trainer.close()


def compile_yardstick(source: Path, folder: Path, *defines: str) -> Path:
    """Compile a C program with the gcc line in its first comments; return the program."""
    head = source.read_text(encoding="utf-8").splitlines()[:8]
    pattern = rf"gcc (.*?) {re.escape(source.name)} -o \S+ ?(.*?)(?:&&|$)"
    match = next(filter(None, (re.search(pattern, line) for line in head)), None)
    if match is None:
        sys.exit(f"{source} must say `gcc FLAGS {source.name} -o NAME LIBS` in its first lines.")
    program = folder / "".join((source.stem, *defines))
    flags, libraries = [*shlex.split(match[1]), *defines], shlex.split(match[2])
    command = [os.environ.get("CC", "cc"), *flags, str(source), "-o", str(program), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
    return program


def lines_of(command: list[str], seconds: float) -> Generator[str, None, None]:
    """Yield a program's lines as it prints them; end it after `seconds`, or when closed.

    It gets a terminal, so that its output is not buffered as in a pipe.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=theirs, stdin=subprocess.DEVNULL)
    os.close(theirs)
    deadline = time.monotonic() + seconds
    pending = b""
    try:
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([ours], [], [], left)[0]:
                return
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # on Linux: the other end is closed
                return
            if not chunk:
                return
            *whole, pending = (pending + chunk).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace").strip()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def loop_rate(program: Path, seconds: float) -> float | None:
    """Return the steps per second of the plain loop; stop it after the wanted line."""
    # six cases before it, three repetitions each, and time for a busy machine
    with closing(lines_of([str(program), str(seconds)], 60 + 60 * seconds)) as lines:
        for line in lines:
            if LOOP_LINE in line:
                return float(line.rsplit(",", 1)[1])
    return None


def fused_rate(program: Path, limit: float) -> float | None:
    """Return the steps per second of the fused trainer: its total, else its latest progress."""
    rate = None
    with closing(lines_of([str(program)], limit)) as lines:
        for line in lines:
            if total := re.search(r"total ([\d.]+)M SPS", line):
                return 1e6 * float(total[1])
            if progress := re.search(r"steps ([\d.]+)M .*t=([\d.]+)s", line):
                rate = 1e6 * float(progress[1]) / max(float(progress[2]), 1e-9)
    return rate


def alternate(
    rounds: int,
    ours: Mapping[str, Callable[[], float]],
    yardstick: Callable[[], float | None] | None,
    noun: str,
) -> dict[str, list[Pair]]:
    """Run each of ours right after the yardstick, `rounds` times; return all pairs by name."""
    pairs: dict[str, list[Pair]] = {name: [] for name in ours}
    for number in range(1, rounds + 1):
        for name, run in ours.items():
            other = yardstick() if yardstick is not None else None
            if yardstick is not None:
                result = "no figure in time" if other is None else spelled(other)
                say(f"round {number}/{rounds}  {noun:<22}{result}")
            pairs[name].append(Pair(run(), other))
            say(f"round {number}/{rounds}  {name:<22}{spelled(pairs[name][-1].ours)}")
    return pairs


def measure(options: argparse.Namespace, folder: Path) -> list[Bar]:
    """Measure all parts, or the one that is asked for; return a line for each bar."""
    names = PARTS if options.only is None else [options.only]
    return [row for name in names for row in PARTS[name](options, folder)]


def measure_simulation(options: argparse.Namespace, folder: Path) -> list[Bar]:
    """Step envs alone, in turns with the plain loop."""
    sims = {f"sim {name}": partial(sim_rate, name, options.sim_seconds) for name in SIM_BARS}
    loop = None
    if options.yardsticks is not None:
        program = compile_yardstick(options.yardsticks / "cartpole_loop.c", folder)
        loop = partial(loop_rate, program, options.loop_seconds)
    pairs = alternate(options.rounds, sims, loop, "plain loop")
    return [row(f"sim {name}", pairs[f"sim {name}"], bar) for name, bar in SIM_BARS.items()]


def measure_training(options: argparse.Namespace, folder: Path) -> list[Bar]:
    """Train cartpole in turns with the fused program, with four epochs and with one."""
    rows = []
    for epochs, engines in ((4, ("torch", "native")), (1, ("native",))):
        fused = None
        if options.yardsticks is not None:
            source = options.yardsticks / "fused_ppo.c"
            sizes = f"-DEPOCHS={epochs}", f"-DITERS={FUSED_PASSES // epochs}"
            program = compile_yardstick(source, folder, *sizes)
            fused = partial(fused_rate, program, options.fused_limit)
        names = {engine: f"{engine}, epochs {epochs}" for engine in engines}
        with ExitStack() as stack:
            runs = {
                name: stack.enter_context(training(engine, epochs, options.turn_seconds))
                for engine, name in names.items()
            }
            pairs = alternate(options.turns, runs, fused, f"fused, epochs {epochs}")
        rows += [row(name, pairs[name], TRAIN_BARS[engine]) for engine, name in names.items()]
        if len(engines) == 2:
            torch, native = (pairs[names[engine]] for engine in engines)
            both = [Pair(a.ours, b.ours) for a, b in zip(native, torch, strict=True)]
            rows.append(row("native over torch", both, NATIVE_OVER_TORCH_BAR))
    return rows


def measure_efficiency(options: argparse.Namespace, folder: Path) -> list[Bar]:
    """Train with the native engine; the yardstick is the rate of torch's matrix product."""
    rows = []
    for name, width, epochs, core, bar in EFFICIENCY_CASES:
        pairs = []
        what = f"{name} {f'{width}x{width}' if core == 'none' else f'{core} {width}'} x{epochs}"
        words = [f"--policy.hidden-size={width}", f"--train.n-epochs={epochs}"]
        words += [f"--policy.recurrent={core}", "--engine", "native", *TRAIN_SETTINGS]
        for _ in range(options.rounds):
            [result] = bench(name, "train", options.train_seconds, *words)
            pairs.append(Pair(result["sps"], result["sps"] / result["efficiency"]))
            say(f"{what:<24}{spelled(result['sps'])}  {result['efficiency']:.2f}")
        rows.append(row(what, pairs, bar))
    return rows


def measure_python_env(options: argparse.Namespace, folder: Path) -> list[Bar]:
    """Train on an env in Python with both engines, with the options of its family."""
    pairs = []
    for _ in range(options.rounds):
        engines = bench(PYTHON_ENV, "train", options.train_seconds, "--engine", "native,torch")
        pairs.append(Pair(*(float(result["sps"]) for result in engines)))
        say(f"{PYTHON_ENV:<24}{spelled(pairs[-1].ours)}  torch {spelled(pairs[-1].yardstick)}")
    return [row(PYTHON_ENV, pairs, PYTHON_ENV_BAR)]


PARTS: dict[str, Callable[[argparse.Namespace, Path], list[Bar]]] = {
    "simulation": measure_simulation,
    "training": measure_training,
    "efficiency": measure_efficiency,
    "python": measure_python_env,
}


def row(what: str, pairs: Sequence[Pair], bar: float) -> Bar:
    """Return the line of some rounds, with ratios if the yardstick was run."""
    best = max(pair.ours for pair in pairs)
    others = [pair.yardstick for pair in pairs if pair.yardstick is not None]
    if not others:
        return Bar(what, best, None, None, None, bar)
    ratios = [pair.ours / pair.yardstick for pair in pairs if pair.yardstick is not None]
    return Bar(what, best, max(others), best / max(others), statistics.median(ratios), bar)


def report(rows: list[Bar]) -> None:
    """Print the table."""
    names = f"{'ours':>12}{'yardstick':>12}{'ratio':>8}{'median':>8}{'wanted':>8}"
    say(f"\n{'bar':<22}{names}")
    for line in rows:
        ratios = ["-" if r is None else f"{r:.2f}" for r in (line.ratio, line.median_ratio)]
        met = "" if line.ratio is None else "  met" if line.ratio >= line.bar else "  MISSED"
        rates = f"{spelled(line.sps):>12}{spelled(line.yardstick):>12}"
        say(f"{line.what:<22}{rates}{ratios[0]:>8}{ratios[1]:>8}{line.bar:>8}{met}")


def facts(options: argparse.Namespace, rows: list[Bar]) -> dict[str, Any]:
    """Return the report as JSON values."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "rounds": options.rounds,
        "bars": [line._asdict() for line in rows],
    }


def cpu_model() -> str:
    """Return the name of the processor."""
    try:
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def spelled(rate: float | None) -> str:
    """Return steps per second as short text."""
    if rate is None:
        return "-"
    if rate < 1e5:
        return f"{rate / 1e3:.1f}k"
    return f"{rate / 1e6:.1f}M" if rate >= 1e7 else f"{rate / 1e6:.3f}M"


def say(text: str) -> None:
    """Print at once: a run takes minutes."""
    print(text, flush=True)


def main() -> int:
    """Run the command line; exit code 1 means that a bar was missed."""
    parser = argparse.ArgumentParser(description="the speed bars beside their yardsticks")
    parser.add_argument("--yardsticks", type=Path, metavar="DIR", help="folder of the C programs")
    parser.add_argument("--only", choices=PARTS, help="measure one part of the bars")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="rounds of each, of which the best counts",
    )
    parser.add_argument(
        "--turns", type=int, default=20, metavar="N", help="turns with the fused trainer"
    )
    parser.add_argument(
        "--turn-seconds", type=float, default=0.5, metavar="S", help="of a training in a turn"
    )
    parser.add_argument("--sim-seconds", type=float, default=2, metavar="S", help="of a simulation")
    parser.add_argument(
        "--train-seconds",
        type=float,
        default=10,
        metavar="S",
        help="of a training whose efficiency is measured",
    )
    parser.add_argument(
        "--loop-seconds", type=float, default=0.2, metavar="S", help="of a case of the loop"
    )
    parser.add_argument(
        "--fused-limit",
        type=float,
        default=60,
        metavar="S",
        help="after which the progress of the fused trainer counts",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the report to this file"
    )
    options = parser.parse_args()
    for name in ("rounds", "turns"):
        if (count := getattr(options, name)) < 1:
            parser.error(f"--{name} must be at least 1, but got {count}")
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, Path(folder))
    report(rows)
    if options.json is not None:
        options.json.write_text(json.dumps(facts(options, rows), indent=2) + "\n")
    return 1 if any(line.ratio is not None and line.ratio < line.bar for line in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
