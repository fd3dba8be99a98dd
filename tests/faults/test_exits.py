"""Envs that call `sys.exit`, as pygame's programs do when their window is closed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty import AT_RESET, NOW, Faulty, leave_politely, nothing_left
from malformed import without_place
from waiting import watchdog

from pufferlib.cli import main
from pufferlib.env import PufferEnv
from pufferlib.errors import EnvError, WorkerError
from pufferlib.training.trainer import PuffeRL
from pufferlib.vectorization import Multiprocessing, Serial, VectorEnv

pytestmark = pytest.mark.filterwarnings("ignore:.*workers share.*core")
FORK: Any = {"start_method": "fork"}
SMALL: Any = {
    "num_steps": 16,
    "batch_size": 32,
    "minibatch_size": 32,
    "num_iterations": 4,
    "device": "cpu",
    "dashboard": "off",
}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


def run_until_exit(make: Callable[[Callable[[], Any]], VectorEnv], method: str) -> None:
    """Play an env that calls `sys.exit` in `method`."""
    at = "init" if method == "__init__" else ""
    with make(lambda: Faulty(leave_politely, at)) as vecenv:
        vecenv.reset(seed=0)
        vecenv.step([AT_RESET if method == "reset" else NOW] * 2)


@pytest.mark.parametrize("method", ["__init__", "reset", "step"])
@pytest.mark.parametrize(
    "make",
    [
        lambda creator: Serial(creator, 2),
        lambda creator: Multiprocessing(creator, 2, 2, **FORK),
        lambda creator: Multiprocessing(creator, 2, 1),
        lambda creator: VectorEnv(creator, 2),
        lambda creator: Serial(lambda: Serial(creator, 1), 2),
    ],
    ids=["serial", "fork", "forkserver", "VectorEnv", "nested"],
)
def test_an_exit_is_an_error_of_the_env_in_every_backend(make: Any, method: str) -> None:
    with pytest.raises(EnvError) as caught:
        run_until_exit(make, method)
    wanted = f"(env 0), `{method}`: raised SystemExit: the level file is gone"
    assert without_place(str(caught.value)).endswith(wanted)


class Agents(PufferEnv):
    """Two agents, as dicts or in place, that exit in their first step."""

    def __init__(self, in_place: bool) -> None:
        self.single_observation_space = Faulty.observation_space
        self.single_action_space = Faulty.action_space
        self.num_agents, self.possible_agents = 2, ["a", "b"]
        self.in_place = in_place
        super().__init__()

    def reset(self, seed: int | None = None) -> Any:
        zeros = np.zeros(2, np.float32)
        return (None, []) if self.in_place else ({"a": zeros, "b": zeros}, {})

    def step(self, actions: Any) -> Any:
        raise SystemExit


@pytest.mark.parametrize("in_place", [True, False])
def test_an_exit_of_several_agents_names_the_env(in_place: bool) -> None:
    with Serial(lambda: Agents(in_place), 1) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(
            EnvError,
            match=r"Agents \(env 0\), `step`: raised SystemExit \(.*test_exits.py:\d+, in step\)$",
        ):
            vecenv.step([0, 0])


class Own(VectorEnv):
    """A vector env of the user's."""

    observation_space, action_space, num_envs = Faulty.observation_space, Faulty.action_space, 2

    def reset(self, seed: int | None = None) -> Any:
        return np.zeros((2, 2), np.float32)

    def step(self, actions: Any) -> Any:
        sys.exit(0)


def test_an_exit_of_a_users_vector_env_is_named() -> None:
    with PuffeRL(Own(), **SMALL) as trainer, pytest.raises(EnvError, match=r"^Own, `step`: raised"):
        trainer.evaluate()


def test_ctrl_c_in_an_env_stays_a_keyboard_interrupt() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with Serial(lambda: Faulty(interrupt), 1) as vecenv:
        vecenv.reset(seed=0)
        with pytest.raises(KeyboardInterrupt):
            vecenv.step([NOW])


def test_a_signal_handler_that_exits_still_ends_the_program() -> None:
    def leave(signum: int, frame: object) -> None:
        sys.exit(5)

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.sigtimedwait([], 0)  # the handler runs at the latest here

    before = signal.signal(signal.SIGTERM, leave)
    try:
        with Serial(lambda: Faulty(terminate), 1) as vecenv:
            vecenv.reset(seed=0)
            with pytest.raises(SystemExit, match="5"):
                vecenv.step([NOW])
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_death_in_the_reset_that_looks_for_masks_names_reset() -> None:
    class Dies(Faulty):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            os._exit(3)

    with pytest.raises(
        WorkerError, match=r"^worker (\d) \(env \1\) exited with code 3 during `reset`"
    ):
        Multiprocessing(lambda: Dies(), 2, 2, **FORK)


# ---- Commands ------------------------------------------------------------------------------------

MODULE = """
import os
import sys
import gymnasium
import numpy as np

class Quits(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def __init__(self):
        self.leave("__init__")

    def leave(self, where):
        if where == os.environ.get("QUITS"):
            sys.exit(0)

    def reset(self, *, seed=None, options=None):
        self.leave("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps > 20:
            self.leave("step")
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""
TRAIN = [
    "--train.num-iterations=4",
    "--train.num-steps=16",
    "--train.batch-size=32",
    "--train.minibatch-size=32",
    "--train.dashboard=off",
]
TWO = ["--vec.num-envs=2"]


@pytest.fixture
def quits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the name of an env that exits where the variable QUITS says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("quits.py").write_text(MODULE)
    yield "quits:Quits"
    sys.modules.pop("quits", None)


@pytest.mark.parametrize("where", ["__init__", "reset", "step"])
def test_a_command_ends_with_code_2_and_one_line(
    quits: str, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", quits, *TWO, *TRAIN]) == 0  # for `eval`
    monkeypatch.setenv("QUITS", where)
    for words in (
        ["train", quits, *TWO, "--vec.backend=serial", *TRAIN],
        ["train", quits, *TWO, "--vec.backend=multiprocessing", "--vec.num-workers=1", *TRAIN],
        ["eval", quits, "--num-envs=2", "--episodes=3"],
        ["bench", quits, "--num-envs=2", "--seconds=1"],
    ):
        capsys.readouterr()
        assert main(words) == 2, words
        error = capsys.readouterr().err
        assert f"Quits (env 0), `{where}`: raised SystemExit: 0" in error, words
    assert main(["check", quits]) == 1
    output = capsys.readouterr()
    assert f"`{where}`: raised SystemExit: 0" in output.out + output.err


@pytest.mark.usefixtures("quits")
def test_a_module_that_exits_when_it_is_imported_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("quits_at_import.py").write_text("raise SystemExit")
    assert main(["train", "quits_at_import:Env", *TWO, *TRAIN]) == 2
    assert (
        "importing it raised SystemExit (quits_at_import.py:1, in <module>)"
        in capsys.readouterr().err
    )


def test_a_creator_that_exits_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "sys:exit", *TWO, *TRAIN]) == 2
    assert "exit (env 0), `__init__`: raised SystemExit." in capsys.readouterr().err
