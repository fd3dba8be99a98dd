"""`make` and `emulate`: sizes, and which backend runs the envs."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from faulty import nothing_left
from gymnasium.spaces import Box, Discrete

import pufferlib
from pufferlib import config, registry
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.vectorization import Serial, Threads, VectorEnv, backends
from pufferlib.vectorization.creators import Recipe
from pufferlib.vectorization.sizes import resolve_sizes


class Timed(gymnasium.Env[Any, Any]):
    """Computes for `seconds` in every step."""

    observation_space, action_space = Box(-1, 1, (3,), np.float32), Discrete(2)

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        start = time.thread_time()
        while time.thread_time() - start < self.seconds:
            pass
        return np.zeros(3, np.float32), 1.0, False, False, {}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    registered = dict(registry._registered)
    with nothing_left():
        yield
    registry._registered.clear()
    registry._registered.update(registered)


# ---- Sizes and seeds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ((None, None, None), (256, None)),
        ((8, None, None), (8, None)),
        ((8, 2, None), (8, 2)),
        ((None, 2, 16), (32, 2)),
        ((64, None, 16), (64, 4)),
        ((None, None, 64), (256, 4)),
        ((32, 2, 16), (32, 2)),
        ((None, 3, None), (256, 3)),
    ],
)
def test_two_sizes_imply_the_third(given: Any, resolved: tuple[int, int | None]) -> None:
    assert resolve_sizes(*given) == resolved


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((32, 2, 8), r"but got 32 and 2 x 8\. Try num_envs=16"),
        ((30, None, 8), r"must be a multiple of `envs_per_worker`.*Try num_envs=24"),
        ((4, None, 8), r"Try num_envs=8"),
        ((0, None, None), "`num_envs` must be at least 1, but got 0"),
        ((None, -2, None), "`num_workers` must be at least 1, but got -2"),
        ((2.5, None, None), "`num_envs` must be a whole number, but got 2.5"),
        ((True, None, None), "`num_envs` must be a whole number, but got True"),
    ],
)
def test_a_contradiction_says_what_would_fit(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve_sizes(*given)


def test_a_vector_knows_its_sizes() -> None:
    with pufferlib.make("snake", num_workers=2, envs_per_worker=3) as vecenv:
        assert (vecenv.num_envs, vecenv.num_workers, vecenv.envs_per_worker) == (6, 2, 3)
        assert vecenv.num_agents == 6 * vecenv.agents_per_env == 96


def test_a_seed_given_to_make_is_held_until_reset() -> None:
    with (
        pufferlib.make("cartpole", num_envs=2, seed=5) as one,
        pufferlib.make("cartpole", num_envs=2) as other,
    ):
        assert (one.reset() == other.reset(seed=5)).all()


class Wide(Timed):
    """Sees 5 MB; two of them are more than one step of all slots may take."""

    observation_space = Box(0, 255, (5_000_000,), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(5_000_000, np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros(5_000_000, np.uint8), 1.0, False, False, {}


def test_a_default_number_of_envs_is_halved_where_they_see_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "DEFAULT_NUM_ENVS", 4)
    pufferlib.register("wide", Wide)
    with pufferlib.make("wide") as vecenv:
        assert vecenv.num_envs == 1
        assert vecenv.reduced == "num_envs 1 instead of 4: a step of all would be 20 MB"
    with pufferlib.make("wide", num_envs=2) as vecenv:
        assert (vecenv.num_envs, vecenv.reduced) == (2, "")
    pufferlib.register("timed", Timed)
    with pufferlib.make("timed") as vecenv:
        assert (vecenv.num_envs, vecenv.reduced) == (4, "")


def test_the_measured_time_of_a_step_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "usable_cores", lambda: 2)
    monkeypatch.setattr(backends, "step_seconds", lambda creator: 0.03)
    with pufferlib.emulate(Timed, num_envs=2) as vecenv:
        assert vecenv.step_seconds == 0.03
    monkeypatch.setattr(backends, "step_seconds", lambda creator: math.inf)
    with pufferlib.emulate(Timed, num_envs=2) as vecenv:
        assert vecenv.step_seconds == 0  # late, maybe to create only
    with pufferlib.make("cartpole", num_envs=2) as vecenv:
        assert vecenv.step_seconds == 0  # C envs are not measured


# ---- Backends ------------------------------------------------------------------------------------


def best(creator: Callable[[], Any], num_envs: int = 8, **given: Any) -> str:
    options = given.pop("options", {})
    recipe = Recipe("timed", creator, {}, num_envs, given.pop("num_workers", None), **given)
    return backends.best_backend(recipe, options).backend


def test_a_backend_can_be_chosen() -> None:
    with pufferlib.make("cartpole", num_envs=2, backend="serial") as vecenv:
        assert isinstance(vecenv, Serial)
        assert vecenv.backend == "serial"
    with pytest.raises(UnknownNameError, match=r"backend `thread`.*`threads`"):
        pufferlib.make("cartpole", backend="thread")
    pufferlib.register("my-env", Timed)
    with pytest.raises(UsageError, match="auto, serial, multiprocessing or ray for `my-env`"):
        pufferlib.make("my-env", backend="threads")


def test_c_envs_run_on_threads() -> None:
    with pufferlib.make("cartpole", num_envs=2) as vecenv:
        assert isinstance(vecenv, Threads)
        assert vecenv.backend == "threads"


def test_options_and_workers_call_for_processes_without_timing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "step_seconds", None)
    assert best(Timed, options={"restart": 1}) == "multiprocessing"
    assert best(Timed, num_workers=2) == "multiprocessing"
    with pufferlib.emulate(Timed, num_envs=2, num_workers=2) as vecenv:
        assert vecenv.backend == "multiprocessing"


def test_few_envs_one_worker_one_core_and_given_envs_stay_serial_without_timing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "step_seconds", None)
    assert best(Timed, num_envs=1) == "serial"
    assert best(Timed, num_workers=1) == "serial"
    assert best(Timed, is_instance=True) == "serial"
    with pufferlib.emulate(Timed(), num_envs=2) as vecenv:
        assert vecenv.backend == "serial"
    monkeypatch.setattr(backends, "usable_cores", lambda: 1)
    assert best(Timed) == "serial"


def test_the_time_of_a_step_decides_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "usable_cores", lambda: 2)
    assert best(lambda: Timed(1e-3)) == "multiprocessing"  # 8 envs x 1 ms > 0.4 ms
    assert best(Timed, num_envs=4) == "serial"
    lock = threading.Lock()
    assert best(lambda: (lock, Timed(1e-3))[1]) == "serial"  # it cannot go to a worker


def test_make_does_not_fork_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise AssertionError("`make` must not fork this process")

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(backends, "usable_cores", lambda: 2)
    pufferlib.register("timed", Timed)
    with pufferlib.make("timed", num_envs=2) as vecenv:
        assert vecenv.backend == "serial"
    with pufferlib.make("timed", num_envs=2, seconds=1e-3) as vecenv:
        assert vecenv.backend == "multiprocessing"


def test_a_creator_with_state_makes_the_same_envs_as_without_timing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "usable_cores", lambda: 2)
    levels = iter(range(100))

    def create() -> Any:
        env = Timed()
        env.level = next(levels)  # type: ignore[attr-defined]
        return env

    with pufferlib.emulate(create, num_envs=3) as vecenv:
        assert vecenv.backend == "serial"
        assert [env.level for env in vecenv.envs] == [0, 1, 2]


def test_the_ini_of_a_family_may_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "step_seconds", None)
    monkeypatch.setattr(config, "family_vec", lambda name: {"num_envs": 3, "backend": "serial"})
    with pufferlib.make("gym-CartPole-v1") as vecenv:
        assert (vecenv.backend, vecenv.num_envs) == ("serial", 3)


def test_subclasses_and_wrappers_have_a_backend_too() -> None:
    class Mine(VectorEnv):
        pass

    class Own(Serial):
        pass

    assert Mine().backend == "custom"
    with Mine(Timed, 2) as vecenv:
        assert vecenv.backend == "serial"
        assert pufferlib.Wrapper(vecenv).backend == "serial"
    with Own(Timed, 2) as own:
        assert own.backend == "serial"


def test_every_backend_has_the_name_that_selects_it() -> None:
    kinds = {name: config.load_choice(place) for name, place in config.BACKENDS.items()}
    assert {name: kind.backend for name, kind in kinds.items()} == {name: name for name in kinds}
