"""The loop in C over Python envs: what Python does env by env, row for row and word for word."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from pufferlib import native
from pufferlib.errors import EnvError, UsageError
from pufferlib.spaces import action_layout, action_values
from pufferlib.vectorization import Multiprocessing, Serial
from pufferlib.vectorization.measuring import random_rows

STEPS = 90
NUM_ENVS = 3
OBSERVED = Box(-100, 100, (3,), np.float32)


class Scripted(gymnasium.Env[Any, Any]):
    """Episodes of 7, 8, ... steps that end in both ways; `change` alters what `step` returns."""

    def __init__(
        self,
        change: Callable[..., Any] = lambda *parts: parts,
        observed: gymnasium.Space[Any] = OBSERVED,
        actions: gymnasium.Space[Any] | None = None,
        see: Callable[[np.ndarray], Any] = lambda row: row,
    ) -> None:
        self.observation_space, self.action_space = observed, actions or Discrete(4)
        self.change, self.see = change, see
        self.count = self.tick = self.length = 0
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.tick, self.length = 0, int(self.rng.integers(7, 12))
        return self.see(self.rng.uniform(-1, 1, 3).astype(np.float32)), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.tick += 1
        self.count += 1
        seen = self.see(self.rng.uniform(-1, 1, 3).astype(np.float32))
        ended = self.tick == self.length
        is_cut = bool(self.length % 2)
        return self.change(
            seen, float(self.rng.uniform(-1, 1)), ended and not is_cut, ended and is_cut, {}
        )


class Legacy:
    """The same in the form of gym before 0.26."""

    def __init__(self) -> None:
        self.inner = Scripted()
        self.observation_space, self.action_space = OBSERVED, Discrete(4)
        self.actions = self.inner.actions

    def seed(self, seed: int) -> None:
        self.inner.reset(seed=seed)

    def reset(self) -> Any:
        return self.inner.reset()[0]

    def step(self, action: int) -> tuple[Any, float, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, _ = self.inner.step(action)
        return seen, reward, terminated or truncated, {"TimeLimit.truncated": truncated}


def vector(create: Callable[[], Any], in_c: bool) -> Serial:
    vecenv = Serial(create, NUM_ENVS)
    assert vecenv.shard._loop is not None
    if not in_c:
        vecenv.shard._loop = None
    vecenv.reset(seed=5)
    return vecenv


def stepped(vecenv: Serial, actions: Any) -> list[Any]:
    """Step, and return copies of all that can be seen of it."""
    infos = vecenv.step(actions)[3]
    rows = vecenv.shard.buffers
    seen = [rows.observations, rows.rewards, rows.terminals, rows.truncations]
    seen.append(rows.final_observations[rows.truncations])
    said = [{key: info[key] for key in info if key != "episode"} for info in infos]
    episodes = [(info["episode"]["r"], info["episode"]["l"]) for info in infos if "episode" in info]
    return [*(row.copy() for row in seen), said, episodes]


def talkative(seen: Any, reward: float, terminated: bool, truncated: bool, info: Any) -> Any:
    return seen, reward, terminated, truncated, {"speed": reward} if reward > 0 else {}


def with_reward(convert: Callable[[float], Any]) -> Callable[[], Any]:
    return lambda: Scripted(lambda seen, reward, *rest: (seen, convert(reward), *rest))


def read_only(row: np.ndarray) -> np.ndarray:
    row.flags.writeable = False
    return row


def three_parts(row: np.ndarray) -> dict[str, Any]:
    image = np.full((2, 2, 3), int(abs(row[0] * 255)), np.uint8)
    return {"image": image, "vector": row, "index": int(abs(row[1]) * 5)}


PARTS = Dict(image=Box(0, 255, (2, 2, 3), np.uint8), vector=OBSERVED, index=Discrete(5))
USUAL: dict[str, Callable[[], Any]] = {
    "plain": Scripted,
    "legacy": Legacy,
    "float64 reward": with_reward(np.float64),
    "float32 reward": with_reward(np.float32),
    "int reward": with_reward(lambda reward: int(10 * reward)),
    "array reward": with_reward(np.array),
    "numpy flags": lambda: Scripted(lambda o, r, a, b, i: (o, r, np.bool_(a), np.bool_(b), i)),
    "a list": lambda: Scripted(lambda *parts: list(parts)),
    "infos": lambda: Scripted(talkative),
    "wider observation": lambda: Scripted(see=lambda row: row.astype(np.float64)),
    "list observation": lambda: Scripted(see=lambda row: row.tolist()),
    "every other item": lambda: Scripted(see=lambda row: np.repeat(row, 2)[::2]),
    "read-only": lambda: Scripted(see=read_only),
    "bytes": lambda: Scripted(
        observed=Box(0, 255, (2, 3), np.uint8),
        see=lambda row: np.tile(np.abs(row * 255).astype(np.uint8), (2, 1)),
    ),
    "float16": lambda: Scripted(
        observed=Box(-1, 1, (3,), np.float16), see=lambda row: row.astype(np.float16)
    ),
    "nothing to see": lambda: Scripted(
        observed=Box(0, 1, (0,), np.float32), see=lambda row: row[:0]
    ),
    "a dict": lambda: Scripted(observed=PARTS, see=three_parts),
    "start of 3": lambda: Scripted(actions=Discrete(4, start=3)),
    "box action": lambda: Scripted(actions=Box(-0.5, 0.5, (2,), np.float32)),
    "two choices": lambda: Scripted(actions=MultiDiscrete([2, 3])),
}


@pytest.mark.parametrize("name", USUAL)
def test_rows_are_those_of_python(name: str) -> None:
    in_c, in_python = (vector(USUAL[name], flag) for flag in (True, False))
    layout, rng = action_layout(in_c.action_space), np.random.default_rng(1)
    num_ends = 0
    for _ in range(STEPS):
        actions = action_values(layout, random_rows(layout, NUM_ENVS, rng))
        found, wanted = (stepped(vecenv, actions) for vecenv in (in_c, in_python))
        for one, other in zip(found, wanted):
            np.testing.assert_equal(one, other)
        num_ends += len(found[-1])
    assert num_ends > 10
    assert in_c.shard._loop is not None
    for ours, theirs in zip(in_c.envs, in_python.envs):
        np.testing.assert_equal(ours.env.actions, theirs.env.actions)
        assert type(ours.env.actions[-1]) is type(theirs.env.actions[-1])
    assert in_c.drain_metrics() == in_python.drain_metrics()


class Late(Scripted):
    """Behaves for 40 steps; from then on `fault` makes of the parts what it likes."""

    def __init__(self, fault: Callable[..., Any], **rest: Any) -> None:
        super().__init__(lambda *parts: fault(*parts) if self.count > 40 else parts, **rest)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        first = super().reset(seed=seed)
        self.length = 1000
        return first


def explode(*parts: Any) -> Any:
    raise ZeroDivisionError("the world ended")


def interrupt(*parts: Any) -> Any:
    raise KeyboardInterrupt


FAULTS: dict[str, Callable[..., Any]] = {
    "raises": explode,
    "nan": lambda seen, *rest: (seen * np.nan, *rest),
    "inf": lambda seen, *rest: (seen / 0, *rest),
    "reward nan": lambda seen, reward, *rest: (seen, float("nan"), *rest),
    "reward too large": lambda seen, reward, *rest: (seen, 1e39, *rest),
    "reward beyond floats": lambda seen, reward, *rest: (seen, 10**400, *rest),
    "reward of text": lambda seen, reward, *rest: (seen, "ten", *rest),
    "no reward": lambda seen, reward, *rest: (seen, None, *rest),
    "three parts": lambda *parts: parts[:3],
    "nothing": lambda *parts: None,
    "shape": lambda seen, *rest: (seen[:2], *rest),
    "no observation": lambda seen, *rest: (None, *rest),
    "flag": lambda seen, reward, terminated, *rest: (seen, reward, "no", *rest),
    "info": lambda *parts: (*parts[:4], [1]),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the arithmetic that makes the faults
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_reported_as_in_python(name: str) -> None:
    reported = []
    for in_c in (True, False):
        vecenv = vector(lambda: Late(FAULTS[name]), in_c)
        for _ in range(40):
            vecenv.step(0)
        with pytest.raises(EnvError) as caught:
            vecenv.step(0)
        reported.append((str(caught.value), type(caught.value.__cause__)))
    assert reported[0] == reported[1]
    assert reported[0][0].startswith("Late (env 0), `step`: ")


def test_the_fault_is_that_of_the_env_whose_turn_it_is() -> None:
    creators = iter([Late(lambda *parts: parts), Late(explode), Late(explode)])
    vecenv = vector(lambda: next(creators), in_c=True)
    for _ in range(40):
        vecenv.step(0)
    with pytest.raises(
        EnvError, match=r"^Late \(env 1\), `step`: raised ZeroDivisionError: the wor"
    ):
        vecenv.step(0)
    vecenv.reset(seed=0)  # and all is well again, up to there
    assert [env.env.tick for env in vecenv.envs] == [0, 0, 0]


def test_an_interrupt_is_not_the_fault_of_an_env() -> None:
    vecenv = vector(lambda: Late(interrupt), in_c=True)
    for _ in range(40):
        vecenv.step(0)
    with pytest.raises(KeyboardInterrupt):
        vecenv.step(0)


def test_an_action_that_is_no_choice_is_the_callers_mistake() -> None:
    for actions, wrong in ((Discrete(4), 4), (Discrete(4), -1), (MultiDiscrete([2, 3]), [1, 3])):
        vecenv = vector(lambda actions=actions: Scripted(actions=actions), in_c=True)
        rows = np.zeros_like(vecenv.shard.buffers.actions)
        for _ in range(60):
            vecenv.step(rows)
        assert vecenv.shard._loop is not None
        rows[1] = wrong
        with pytest.raises(UsageError, match=r"`actions`.* must be in"):
            vecenv.step(rows)


def test_a_long_time_in_the_loop_leaks_nothing() -> None:
    vecenv = vector(Scripted, in_c=True)
    for _ in range(50):
        vecenv.step(0)
    seen = np.zeros(3, np.float32)
    info: dict[str, Any] = {}
    answer = (seen, 0.5, False, False, info)
    loop_envs = [env.env for env in vecenv.envs]
    for env in loop_envs:
        env.change = lambda *parts: answer
    vecenv.step(0)
    counts = [sys.getrefcount(each) for each in (seen, info, answer)]
    for _ in range(100):
        vecenv.step(0)
    assert [sys.getrefcount(each) for each in (seen, info, answer)] == counts


def test_a_vector_that_its_env_knows_is_still_collected() -> None:
    vecenv = vector(Scripted, in_c=True)
    vecenv.envs[0].env.vecenv = vecenv
    gone = weakref.ref(vecenv)
    del vecenv
    gc.collect()
    assert gone() is None


def test_workers_run_the_same_loop() -> None:
    serial = vector(lambda: Scripted(talkative), in_c=False)
    with Multiprocessing(lambda: Scripted(talkative), NUM_ENVS, 2) as vecenv:
        vecenv.reset(seed=5)
        for _ in range(STEPS):
            ours, theirs = vecenv.step(1), serial.step(1)
            for one, other in zip(ours[:3], theirs[:3]):
                np.testing.assert_array_equal(one, other)
            assert [info.get("speed") for info in ours[3]] == [
                info.get("speed") for info in theirs[3]
            ]


def test_rows_that_do_not_fit_are_refused() -> None:
    shard = vector(Scripted, in_c=True).shard
    sums = shard.tracker.returns, shard.tracker.lengths
    with pytest.raises(ValueError, match="one row per env"):
        native.EnvLoop([len], [], [], shard.buffers, *sums, np.zeros(1, np.uint32), 4, 0, False)
    steps = [len] * NUM_ENVS
    with pytest.raises(ValueError, match="wrong type or length"):
        native.EnvLoop(steps, [], [], shard.buffers, *sums, np.zeros(2, np.uint32), 4, 0, False)
