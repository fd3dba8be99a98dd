"""Actions out of range raise in every space of choices, and nothing is stepped; the env goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

import pufferlib
from pufferlib import PuffeRL, Wrapper
from pufferlib.adapters import to_gymnasium, to_pettingzoo, to_sb3
from pufferlib.errors import UsageError
from pufferlib.native import NativeEnv, NativeVec
from pufferlib.vectorization import Multiprocessing, VectorEnv

NUM_ENVS = 8


def of_space(space: Any) -> Callable[[], Any]:
    class Counts(gymnasium.Env[Any, Any]):
        """Shows how many steps it has taken."""

        observation_space, action_space = Box(0, 1000, (1,), np.float32), space

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.count = 0
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            self.count += 1
            return np.full(1, self.count, np.float32), 0.0, False, False, {}

    return Counts


def make(name: str, **settings: Any) -> VectorEnv:
    return pufferlib.make(name, NUM_ENVS, 2, seed=1, **settings)


BACKENDS: dict[str, Callable[[], VectorEnv]] = {
    "threads": lambda: make("cartpole"),
    "double buffer": lambda: make("cartpole", double_buffer=True),
    "serial": lambda: pufferlib.make("cartpole", NUM_ENVS, 1, seed=1, backend="serial"),
    "processes": lambda: make("cartpole", backend="multiprocessing"),
    "async": lambda: make("cartpole", backend="multiprocessing", vec={"mode": "async"}),
    "python serial": lambda: pufferlib.emulate(
        of_space(Discrete(2)), NUM_ENVS, backend="serial", seed=1
    ),
    "python processes": lambda: pufferlib.emulate(
        of_space(Discrete(2)), NUM_ENVS, 2, backend="multiprocessing", seed=1
    ),
    "wrapped": lambda: Wrapper(make("cartpole")),  # type: ignore[dict-item, return-value]
}


@pytest.mark.filterwarnings("ignore:.* workers share")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("bad", "dtype"), [(2, np.int32), (-1, np.int64), (9, np.int8)])
def test_a_choice_out_of_range_raises_and_nothing_is_stepped(
    backend: str, bad: int, dtype: Any
) -> None:
    env, twin = BACKENDS[backend](), BACKENDS[backend]()
    with env, twin:
        for each in (env, twin):
            each.reset(seed=1)
            for _ in range(3):  # the later steps of workers take a shorter way
                each.step(np.ones(NUM_ENVS, dtype))
        before = env.observations.copy()
        actions = np.zeros(NUM_ENVS, dtype)
        actions[[5, 6]] = bad
        said = rf"^`actions` must be in 0\.\.1 for Discrete\(2\), but slot 5 got {bad}\.$"
        for given in (actions, actions.tolist()):
            with pytest.raises(UsageError, match=said):
                env.step(given)
            assert (env.observations == before).all()
        for _ in range(3):
            rows = [each.step(np.zeros(NUM_ENVS, dtype))[0] for each in (env, twin)]
            np.testing.assert_array_equal(*rows)


@pytest.mark.parametrize("backend", ["threads", "double buffer", "serial"])
def test_send_raises_as_step_does(backend: str) -> None:
    with BACKENDS[backend]() as env:
        env.reset(seed=1)
        for _ in range(2 * env.batches):  # of both halves
            batch = env.recv()
            count = len(batch.rewards)
            actions = np.zeros(count, np.int32)
            actions[-1] = 7
            last = np.arange(NUM_ENVS)[batch.slots][-1]
            with pytest.raises(UsageError, match=rf"but slot {last} got 7\."):
                env.send(actions)
            env.send(np.zeros(count, np.int32))


@pytest.mark.parametrize(
    ("space", "good", "bad", "said"),
    [
        (Discrete(3), 2, 3, r"in 0\.\.2 for Discrete\(3\), but slot 1 got 3\."),
        (Discrete(3, start=5), 7, 4, r"in 5\.\.7 for Discrete\(3, start=5\), but slot 1 got 4\."),
        (Discrete(3, start=-1), -1, 2, r"in -1\.\.1 for .*, but slot 1 got 2\."),
        (MultiDiscrete([2, 3]), [1, 2], [2, 0], r"\(component 0\) must be in 0\.\.1 for .* got 2"),
        (
            MultiDiscrete([2, 3]),
            [1, 2],
            [0, -1],
            r"\(component 1\) must be in 0\.\.2 for .* got -1",
        ),
        (MultiBinary(2), [1, 0], [0, 2], r"\(component 1\) must be in 0\.\.1 .* slot 1 got 2"),
        (Discrete(3), 2, 1.5, r"must be of dtype int32 for Discrete\(3\), but got float64"),
        (Discrete(3), 2, np.nan, r"must be of dtype int32 for Discrete\(3\), but got float64"),
        (
            Dict(a=Discrete(3), b=Box(-1, 1, (1,), np.float32)),
            [2, 0.5],
            [3, 0.5],
            r"must be in 0\.\.2 for .*, but slot 1 got 3\.",
        ),
        (
            Dict(a=Discrete(3), b=Box(-1, 1, (1,), np.float32)),
            [2, 0.5],
            [1.5, 0.5],
            r"must be whole numbers in the first 1 columns",
        ),
    ],
)
def test_every_space_of_choices_is_checked(space: Any, good: Any, bad: Any, said: str) -> None:
    with pufferlib.emulate(of_space(space), 2, backend="serial") as env:
        env.reset()
        with pytest.raises(UsageError, match=said) as caught:
            env.step(np.array([good, bad]))
        assert "\n" not in str(caught.value)
        assert not env.observations.any()  # no env has taken a step
        env.step(np.array([good, good]))
        assert (env.observations == 1).all()


def test_reals_are_clipped_as_before() -> None:
    with pufferlib.make("continuous", 2, 1, seed=1) as env:
        env.reset()
        width = env.action_space.shape[0]
        env.step(np.full((2, width), [[9.0], [np.nan]], np.float32) * np.ones(width))
        assert np.isfinite(env.observations).all()


def test_agents_that_are_absent_may_have_any_action() -> None:
    with pufferlib.make("snake", 1, 1, seed=1) as env:
        env.reset()
        actions = np.zeros(env.num_agents, np.int32)
        env.masks[1] = False
        actions[1] = 99
        env.step(actions)
        env.masks[1] = True
        with pytest.raises(UsageError, match="slot 1 got 99"):
            env.step(actions)


def test_a_single_c_env_raises_too() -> None:
    env = NativeEnv("cartpole")
    env.reset(seed=1)
    before = env.observations.copy()
    for bad in (2, -1, [5], np.array([2**40])):
        with pytest.raises(
            UsageError, match=r"must be in 0\.\.1 for Discrete\(2\), but slot 0 got"
        ):
            env.step(bad)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="whole numbers"):
        env.step(np.array([0.5]))
    assert (env.observations == before).all()
    env.step(np.array([1]))
    env.close()


def test_adapters_raise_too() -> None:
    bad = np.array([0, 1, 4, 0])
    with pufferlib.make("cartpole", 4, 1, seed=1) as env:
        adapted = to_gymnasium(env)
        adapted.reset()
        with pytest.raises(UsageError, match="slot 2 got 4"):
            adapted.step(bad)
        adapted.step(bad % 2)
    single = gymnasium.make("pufferlib.ocean:ocean/Cartpole-v0").unwrapped
    single.reset()
    with pytest.raises(UsageError, match=r"must be a value of Discrete\(2\)"):
        single.step(4)
    single.step(1)
    single.close()
    agents = to_pettingzoo(pufferlib.make("snake", 1, 1, seed=1))
    agents.reset()
    with pytest.raises(UsageError, match="must be a value of Discrete"):
        agents.step(dict.fromkeys(agents.agents, 99))
    agents.step(dict.fromkeys(agents.agents, 0))
    agents.close()


def test_sb3_raises_too() -> None:
    pytest.importorskip("stable_baselines3")
    adapted = to_sb3(pufferlib.make("cartpole", 4, 1, seed=1))
    adapted.reset()
    with pytest.raises(UsageError, match="slot 2 got 4"):
        adapted.step(np.array([0, 1, 4, 0]))
    adapted.step(np.zeros(4, int))
    adapted.close()


def test_the_inner_vector_takes_anything() -> None:
    """The contract of C envs: a choice out of range counts as 0, so a fault cannot harm memory."""
    vecs = [NativeVec("cartpole", 4) for _ in range(2)]
    for vec, action in zip(vecs, (-(2**31), 0), strict=True):
        vec.reset(1)
        vec.step(np.full(4, action, np.int32))
    one, other = (vec.buffers.observations for vec in vecs)
    assert (one == other).all()


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_trainer_draws_is_not_checked(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    monkeypatch.setattr("pufferlib.native.words_below", lambda *given: not checked.append(given))  # type: ignore[func-returns-value]
    vec = {"mode": "async" if is_async else "sync"}
    env: Any = Multiprocessing(of_space(Discrete(2)), 4, 2, **vec) if is_async else make("cartpole")
    with env:
        trainer = PuffeRL(env, batch_size=64, device="cpu", dashboard="off", engine="torch")
        trainer.evaluate()
        assert checked == []
        env.reset()
        env.step(np.zeros(env.num_agents, np.int32))  # the user's own are
        assert len(checked) == 1
