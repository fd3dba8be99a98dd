"""Ctrl-C and other signals in the middle of `evaluate`; threads that share one trainer."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from faulty import nothing_left
from waiting import watchdog

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.models import make_policy
from pufferlib.training.trainer import PuffeRL
from pufferlib.vectorization import Multiprocessing, Serial, VectorEnv

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*workers share.*core"),
    pytest.mark.filterwarnings("ignore:.*batch_size"),
]
SMALL: Any = {"num_steps": 8, "device": "cpu", "dashboard": "off", "num_iterations": 50}
FORK: Any = {"start_method": "fork"}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with watchdog(), nothing_left():
        yield


class Walk(gymnasium.Env[Any, Any]):
    """Episodes of 5 steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.place = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.place += 1
        return np.full(2, self.place / 5, np.float32), 1.0, self.place == 5, False, {}


class Own(VectorEnv):
    """A vector env of the user's."""

    observation_space, action_space, num_envs = Walk.observation_space, Walk.action_space, 8

    def reset(self, seed: int | None = None) -> Any:
        return np.zeros((8, 2), np.float32)

    def step(self, actions: Any) -> Any:
        zeros = np.zeros(8, np.float32)
        return np.zeros((8, 2), np.float32), zeros, zeros.astype(bool), [{}] * 8


ENVS: dict[str, Callable[[], VectorEnv]] = {
    "serial": lambda: Serial(Walk, 8),
    "multiprocessing": lambda: Multiprocessing(Walk, 8, 2, **FORK),
    "async": lambda: Multiprocessing(Walk, 8, 2, mode="async", surplus_envs=8, **FORK),
    "VectorEnv": Own,
    "threads": lambda: pufferlib.make("cartpole", 8),
    "double-buffered": lambda: pufferlib.make("cartpole", 8, double_buffer=True),
    "C envs in workers": lambda: pufferlib.make("cartpole", 8, backend="multiprocessing"),
    "self-play": lambda: pufferlib.make("connect4", 8, opponent="self"),
}
KEEP = ("threads", "double-buffered", "C envs in workers", "self-play")  # their episodes go on


class Interrupt(BaseException):
    """Raised by the handler of a signal."""


def interrupt(*_: Any) -> None:
    raise Interrupt


@pytest.fixture
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt_at(monkeypatch: pytest.MonkeyPatch, env: Any, call: str, when: str) -> None:
    """Let a signal come before or after the third call of `call`, once."""
    left = [3]
    usual = getattr(env, call)

    def called(*arguments: Any) -> Any:
        left[0] -= 1
        if when == "before" and not left[0]:
            os.kill(os.getpid(), signal.SIGUSR1)
        result = usual(*arguments)
        if when == "after" and not left[0]:
            os.kill(os.getpid(), signal.SIGUSR1)
        return result

    monkeypatch.setattr(env, call, called)


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("recurrent", [None, pytest.param("lstm", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("call", "when"), [("send", "before"), ("send", "after"), ("recv", "after")]
)
@pytest.mark.parametrize("kind", ENVS)
def test_evaluate_goes_on_after_an_interrupt(
    kind: str, call: str, when: str, recurrent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ENVS[kind]() as env:
        policy = make_policy(env, hidden_size=8, recurrent=recurrent)
        options = {**SMALL, "batch_size": 8 * 8, "minibatch_size": 64, "engine": "torch"}
        options |= {"self_play": kind == "self-play", "norm_reward": True}
        if kind == "async":
            options |= {"batch_size": 16 * 8, "minibatch_size": 128}
        with PuffeRL(env, policy, **options) as trainer:
            trainer.evaluate()
            trainer.train()
            interrupt_at(monkeypatch, trainer.env, call, when)
            with pytest.raises(Interrupt):
                trainer.evaluate()
            with pytest.raises(UsageError, match="there is no rollout"):
                trainer.train()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                trainer.evaluate()
            said = [each for each in caught if "all episodes begin again" in str(each.message)]
            assert len(said) == (0 if kind in KEEP else 1)
            assert all(each.filename == __file__ for each in said)
            trainer.train()
            trainer.evaluate()
            trainer.train()
            assert trainer.iteration == 3


@pytest.mark.usefixtures("handler")
def test_an_interrupt_in_the_step_of_an_env_is_not_an_error_of_the_env() -> None:
    class Slow(Walk):
        steps = 0

        def step(self, action: Any) -> Any:
            Slow.steps += 1
            if Slow.steps == 60:
                os.kill(os.getpid(), signal.SIGUSR1)
            return super().step(action)

    options = {**SMALL, "batch_size": 64, "minibatch_size": 64}
    with Serial(Slow, 8) as env, PuffeRL(env, **options) as trainer:
        with pytest.raises(Interrupt):
            trainer.evaluate()
        with pytest.warns(UserWarning, match="all episodes begin again"):
            trainer.evaluate()
        # episodes of 5 steps, from the beginning in each of the 8 envs
        assert trainer.rollout.terminals.sum(0).tolist() == [0, 0, 0, 0, 8, 0, 0, 0]
        trainer.train()


def test_an_error_of_an_alarm_is_raised_as_it_is() -> None:
    def late(*_: Any) -> None:
        raise TimeoutError("too late")

    class Slow(Walk):
        def step(self, action: Any) -> Any:
            os.kill(os.getpid(), signal.SIGALRM)
            return super().step(action)

    before = signal.signal(signal.SIGALRM, late)
    try:
        with Serial(Slow, 2) as env:
            env.reset(seed=0)
            with pytest.raises(TimeoutError, match="too late"):
                env.step([0, 0])
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("handler")
def test_a_checkpoint_restores_bit_for_bit_after_an_interrupt(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    options = {**SMALL, "batch_size": 64, "minibatch_size": 64, "engine": "torch"}
    with pufferlib.make("cartpole", 8) as env, PuffeRL(env, **options) as trainer:
        trainer.evaluate()
        trainer.train()
        trainer.save_checkpoint(path)
        trainer.evaluate()
        wanted = trainer.rollout.observations.clone()
        trainer.train()
        interrupt_at(monkeypatch, env, "send", "after")
        with pytest.raises(Interrupt):
            trainer.evaluate()
        trainer.load_checkpoint(path)
        trainer.evaluate()
        assert trainer.rollout.observations.equal(wanted)


# ---- Threads -------------------------------------------------------------------------------------


class Held(Walk):
    """Waits in its second step until it may go on."""

    entered, go_on = threading.Event(), threading.Event()

    def step(self, action: Any) -> Any:
        Held.entered.set()
        assert Held.go_on.wait(30)
        return super().step(action)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_trainer_that_another_thread_uses_is_refused(engine: str, tmp_path: Any) -> None:
    Held.entered.clear()
    Held.go_on.clear()
    options = {**SMALL, "batch_size": 16, "minibatch_size": 16, "engine": engine}
    with Serial(Held, 2) as env, PuffeRL(env, **options) as trainer:
        trainer.save_checkpoint(tmp_path / "a")
        thread = threading.Thread(target=trainer.evaluate)
        thread.start()
        assert Held.entered.wait(30)
        for call in (
            trainer.evaluate,
            trainer.train,
            lambda: trainer.load_checkpoint(tmp_path / "a"),
        ):
            with pytest.raises(UsageError, match="this trainer is in use by another thread"):
                call()
        Held.go_on.set()
        thread.join()
        trainer.train()
        trainer.evaluate()


def test_two_threads_on_one_vector_env_of_c_envs_end_and_leave_it_usable() -> None:
    wrong: list[Exception] = []
    with pufferlib.make("cartpole", 4096) as env:
        env.reset(seed=0)

        def play() -> None:
            for _ in range(300):
                try:
                    env.step(0)
                except UsageError as error:
                    if "in use by another thread" not in str(error):
                        wrong.append(error)

        threads = [threading.Thread(target=play) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []
        env.step(0)
        env.snapshot()
