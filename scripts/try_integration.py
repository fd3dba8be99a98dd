"""Try one third-party environment in this process: the part of `make test-integrations` per name.

    python scripts/try_integration.py '["crafter", "crafter", {}, false]' result.json

Writes an `Outcome`. The process must be fresh: what it has at the start, it may keep.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

STEPS, SECONDS = 1000, 8.0  # of one env alone: whichever ends first
VECTOR_SECONDS = 3.0
WARM_UP_SECONDS = 1.0  # JAX compiles the first step, and the first end of an episode
CHECK_STEPS = 250
ITERATIONS = 3
PATIENCE = 5.0  # seconds that processes and threads may take to end
_SHARED = re.compile(r"/memfd:|/dev/shm/")  # names of shared memory in /proc/self/maps


class Case(NamedTuple):
    """A name to try, the distribution that it comes from, and the params that it gets."""

    name: str
    package: str
    params: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    may_lack: bool = False  # it needs what no registry has: a one-line answer is fine


class Outcome(NamedTuple):
    """The cells of one line, and what is wrong with it ("" if nothing)."""

    cells: tuple[str, ...]
    wrong: str = ""
    is_skipped: bool = False  # the last cell is the answer of an env that lacks something


def try_name(case: Case) -> Outcome:
    """Do all with one name, in this process."""
    import pufferlib
    from pufferlib.errors import MissingExtraError, PufferError

    traces = Traces()
    params = {**case.params, **_own_params(case.name)}
    try:
        about = _about(case.name, params)
        alone = "" if _is_batched(case.name) else _rate_alone(case.name, params)
        report = pufferlib.check_env(case.name, kwargs=params, steps=CHECK_STEPS)
        if not report.ok:
            return Outcome(cells(case, *about, alone), wrong=str(report).partition("\n")[0])
        inside, through, trained = _train(case.name, params)
    except MissingExtraError as error:
        wrong = "" if case.may_lack else str(error)
        return Outcome(cells(case, trained=str(error)), wrong, is_skipped=case.may_lack)
    except PufferError as error:
        return Outcome(cells(case), wrong=str(error))
    return Outcome(cells(case, *about, alone or inside, through, trained), wrong=traces.left())


def cells(
    case: Case,
    observations: str = "",
    actions: str = "",
    agents: str = "",
    alone: str = "",
    through: str = "",
    trained: str = "no",
) -> tuple[str, ...]:
    """Return the line of a name in the table."""
    package = ", ".join(map(_version, case.package.split(", ")))
    return case.name, package, observations, actions, agents, alone, through, trained


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


def _is_batched(name: str) -> bool:
    """Return whether a simulator steps whole batches: then there is no single env to time."""
    from pufferlib.registry import find
    from pufferlib.vectorization.batched import SimulatorCreator

    return isinstance(find(name).entry_point, SimulatorCreator)


def _about(name: str, params: dict[str, Any]) -> tuple[str, str, str]:
    """Return observations, actions and the number of agents."""
    import pufferlib

    with pufferlib.make(name, num_envs=1, **params) as vecenv:
        masked = ", masked" if vecenv.action_masks is not None else ""
        agents = str(vecenv.agents_per_env)
        return _short(vecenv.observation_space), _short(vecenv.action_space) + masked, agents


def _short(space: Any) -> str:
    """Describe a space in a few words, such as `uint8 64x64x3` or `Dict(direction, image)`."""
    if hasattr(space, "spaces"):
        return f"Dict({', '.join(map(str, space.spaces))})"
    if hasattr(space, "n"):
        return f"{type(space).__name__}({space.n})"
    sizes = "x".join(map(str, space.shape))
    kind = space.dtype if hasattr(space, "low") else type(space).__name__
    return f"{kind} {sizes}"


# ---- Steps per second ----------------------------------------------------------------------------


class Stopwatch:
    """Adds up the seconds that functions take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


def _rate_alone(name: str, params: dict[str, Any]) -> str:
    """Return the steps per second of the env's own code in one process, emulation left out."""
    from pufferlib.registry import find
    from pufferlib.vectorization import Serial

    spec = find(name)
    spent = Stopwatch()

    def create() -> Any:
        env = spec.entry_point(**{**spec.kwargs, **params})
        env.step, env.reset = spent.around(env.step), spent.around(env.reset)
        return env

    with Serial(create, 1) as vecenv:
        vecenv.reset(seed=0)
        spent.seconds = 0.0
        steps, _ = _play(vecenv, SECONDS)
        fewer = f" in {steps} steps" if steps < STEPS else ""
        return _rate(steps * vecenv.num_agents, spent.seconds) + fewer


def _play(vecenv: Any, seconds: float) -> tuple[int, float]:
    """Step for a while with random actions; return how often, and the seconds that it took."""
    from pufferlib.vectorization.measuring import legal_actions

    rng, steps, start = np.random.default_rng(0), 0, time.perf_counter()
    while steps < STEPS and time.perf_counter() < start + seconds:
        vecenv.step(legal_actions(vecenv, rng))
        steps += 1
    return steps, time.perf_counter() - start


def _train(name: str, params: dict[str, Any]) -> tuple[str, str, str]:
    """Return the rates of a simulator and of the vector env, and whether it trains."""
    import pufferlib

    spent = Stopwatch()
    with pufferlib.make(name, seed=0, **params) as vecenv:
        vecenv.reset()
        simulator: Any = getattr(vecenv, "_simulator", None)
        _play(vecenv, WARM_UP_SECONDS)
        if simulator is not None:
            simulator.send, simulator.recv = map(spent.around, (simulator.send, simulator.recv))
        steps, seconds = _play(vecenv, VECTOR_SECONDS)
        inside = _rate(steps * vecenv.num_agents, spent.seconds) if simulator is not None else ""
        rate = _rate(steps * vecenv.num_agents, seconds)
        batch = 8 * vecenv.num_agents
        with pufferlib.PuffeRL(
            vecenv,
            device="cpu",
            dashboard="off",
            batch_size=batch,
            minibatch_size=batch,
            n_epochs=1,
            num_iterations=ITERATIONS,
        ) as trainer:
            while not trainer.done:
                trainer.evaluate()
                losses = trainer.train()
    finite = all(abs(losses[key]) < float("inf") for key in ("policy_loss", "value_loss"))
    through = f"{rate} ({vecenv.num_envs} envs, {vecenv.backend})"
    return inside, through, "yes" if finite else "no"


def _rate(steps: int, seconds: float) -> str:
    rate = steps / max(seconds, 1e-9)
    return f"{rate / 1000:.1f}k" if rate >= 10_000 else f"{rate:,.0f}"


# ---- A file that one env needs -------------------------------------------------------------------


def _own_params(name: str) -> dict[str, Any]:
    """Return params that need a file: the ROM of a program that does nothing."""
    if name != "pokemon-red":
        return {}
    path = Path("idle.gb").resolve()
    path.write_bytes(idle_rom())
    return {"rom_path": str(path)}


def idle_rom() -> bytes:
    """Return a Game Boy program of 32 KiB that counts up the place of the hero, forever."""
    rom = bytearray(0x8000)
    rom[0x100:0x104] = bytes([0x00, 0xC3, 0x50, 0x01])  # nop; jp 0x150
    rom[0x134:0x138] = b"IDLE"
    rom[0x150:0x156] = bytes([0x21, 0x62, 0xD3, 0x34, 0x18, 0xFD])  # ld hl, 0xD362; inc (hl); jr -3
    rom[0x14D] = -sum(byte + 1 for byte in rom[0x134:0x14D]) & 0xFF  # checksum of the header
    return bytes(rom)


# ---- What is left behind -------------------------------------------------------------------------


class Traces:
    """What this process could leave behind: children, threads, shared memory and files."""

    def __init__(self) -> None:
        self._before = self._now()

    def left(self) -> str:
        """Return what is there now and was not before, "" if nothing."""
        end = time.perf_counter() + PATIENCE
        gc.collect()  # objects that refer to each other may hold views of rows
        while (more := self._now() - self._before) and time.perf_counter() < end:
            time.sleep(0.05)  # an end of a process or thread takes a moment
            gc.collect()
        return f"left behind: {', '.join(sorted(more))}" if more else ""

    def _now(self) -> set[str]:
        import psutil

        folders = (Path.cwd(), Path(tempfile.gettempdir()))
        files = {str(path) for folder in folders for path in folder.iterdir()}
        children = {f"process {each.pid}" for each in psutil.Process().children(recursive=True)}
        threads = {f"thread {each.name}" for each in threading.enumerate()}
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        shared = {line.split(maxsplit=5)[-1] for line in maps if _SHARED.search(line)}
        return (
            {file for file in files if not file.endswith("idle.gb")} | children | threads | shared
        )


if __name__ == "__main__":
    given, result = sys.argv[1:]
    Path(result).write_text(json.dumps(try_name(Case(*json.loads(given)))), encoding="utf-8")
