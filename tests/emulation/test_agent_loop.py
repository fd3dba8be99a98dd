"""The loop in C over the agents of one env: what Python does agent by agent, row for row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from pufferlib import native
from pufferlib.emulation.agent_dicts import AgentDicts
from pufferlib.errors import EnvError, UsageError
from pufferlib.vectorization import Serial

STEPS = 80
Parts = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]


class Crowd:
    """PettingZoo's parallel API; agents end now and then. `change` alters what `step` returns."""

    possible_agents: ClassVar = ["a", "b", "c", "d"]

    def __init__(self, change: Callable[[Crowd, Parts], Any] = lambda env, parts: parts) -> None:
        self.change, self.given = change, []

    def observation_space(self, agent: str) -> Any:
        return Box(-100, 100, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return Discrete(4, start=2)

    def _looks(self) -> dict[str, Any]:
        return {id: self.rng.uniform(-1, 1, 3).astype(np.float32) for id in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.tick = list(self.possible_agents), 0
        return self._looks(), {id: {} for id in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        self.given.append(dict(actions))
        self.tick += 1
        rewards = {id: float(self.rng.uniform(-1, 1)) for id in self.agents}
        ended = {id: bool(self.rng.uniform() < 0.03) for id in self.agents}
        cut = {id: bool(self.rng.uniform() < 0.03) for id in self.agents}
        parts = self._looks(), rewards, ended, cut, {id: {} for id in self.agents}
        self.agents = [id for id in self.agents if not (ended[id] or cut[id])]
        return self.change(self, parts)


def casts(env: Crowd, parts: Parts) -> Any:
    seen, rewards, ended, cut, infos = parts
    seen = {id: row.astype(np.float64) for id, row in seen.items()}
    return seen, rewards, ended, cut, infos


def whole_numbers(env: Crowd, parts: Parts) -> Any:
    seen, rewards, ended, cut, infos = parts
    return seen, {id: round(9 * reward) for id, reward in rewards.items()}, ended, cut, infos


def numpy_flags(env: Crowd, parts: Parts) -> Any:
    seen, rewards, ended, cut, infos = parts
    return seen, rewards, {id: np.bool_(flag) for id, flag in ended.items()}, cut, infos


def talks(env: Crowd, parts: Parts) -> Any:
    if env.tick % 3 == 0:
        parts[4]["b"] = {"speed": env.tick}
    return parts


def has_no_infos(env: Crowd, parts: Parts) -> Any:
    return (*parts[:4], {})


def waits(env: Crowd, parts: Parts) -> Any:
    if env.tick % 4 and "c" in env.agents:
        del parts[0]["c"]
    return parts


def keeps_agents_in_an_array(env: Crowd, parts: Parts) -> Any:
    env.agents = np.array(env.agents)
    return parts


def leaves_without_a_flag(env: Crowd, parts: Parts) -> Any:
    if env.tick == 5 and "d" in env.agents:
        env.agents.remove("d")
    return parts


WAYS = (
    lambda env, parts: parts,
    casts,
    whole_numbers,
    numpy_flags,
    talks,
    has_no_infos,
    waits,
    keeps_agents_in_an_array,
    leaves_without_a_flag,
)


def vector(change: Callable[[Crowd, Parts], Any], in_c: bool) -> Serial:
    vecenv = Serial(lambda: Crowd(change), 2)
    for env in vecenv.envs:
        assert isinstance(env, AgentDicts)
        assert env._loop is not None
        if not in_c:
            env._loop = None
    vecenv.reset(seed=3)
    return vecenv


@pytest.mark.parametrize("change", WAYS, ids=lambda change: change.__name__)
def test_rows_are_those_of_python(change: Callable[[Crowd, Parts], Any]) -> None:
    fast, slow = vector(change, in_c=True), vector(change, in_c=False)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(STEPS):
        actions = rng.integers(2, 6, size=8, dtype=np.int32)
        infos = [vecenv.step(actions)[3] for vecenv in (fast, slow)]
        for info, other in zip(*infos, strict=True):
            for each in (info, other):
                each.get("episode", {}).pop("t", None)
            assert info == other
        ours, theirs = fast.shard.buffers, slow.shard.buffers
        ended = ours.terminals | ours.truncations
        for name in ("observations", "rewards", "terminals", "truncations", "masks"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        np.testing.assert_array_equal(
            ours.final_observations[ended], theirs.final_observations[ended]
        )
        ends += int(ended.sum())
    assert ends > 10
    for one, other in zip(fast.envs, slow.envs, strict=True):
        assert one.env.given == other.env.given
        assert {type(action) for given in one.env.given for action in given.values()} == {int}


def test_the_loop_takes_most_steps() -> None:
    vecenv = vector(WAYS[0], in_c=True)
    env = vecenv.envs[0]
    unpacked = []
    unpack = env._unpack_step
    env._unpack_step = lambda result: unpacked.append(result) or unpack(result)
    for _ in range(STEPS):
        vecenv.step(2)
    ended = sum(any(parts[2].values()) or any(parts[3].values()) for parts in unpacked)
    assert 0 < len(unpacked) == ended < STEPS / 2


@pytest.mark.parametrize("fault", ["nan", "text", "raises", "stranger"])
def test_faults_are_reported_as_in_python(fault: str) -> None:
    def break_down(env: Crowd, parts: Parts) -> Any:
        if env.tick == 3 and fault == "raises":
            raise ZeroDivisionError("the world ends")
        if env.tick == 3:
            wrong = {"nan": np.full(3, np.nan, np.float32), "text": "none", "stranger": "none"}
            parts[0]["z" if fault == "stranger" else env.agents[0]] = wrong[fault]
        return parts

    reported = []
    for in_c in (True, False):
        vecenv = vector(break_down, in_c)
        vecenv.step(3)
        vecenv.step(3)
        with pytest.raises(EnvError) as caught:
            vecenv.step(3)
        reported.append((str(caught.value), type(caught.value.__cause__)))
    assert reported[0] == reported[1]
    assert reported[0][0].startswith("Crowd (env 0")


def test_an_interrupt_is_not_the_fault_of_the_env() -> None:
    def interrupt(env: Crowd, parts: Parts) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vector(interrupt, in_c=True).step(2)


def test_an_action_that_is_no_choice_is_the_callers_mistake() -> None:
    vecenv = vector(WAYS[0], in_c=True)
    rows = np.full(8, 2, np.int32)
    for wrong in (6, 1):
        vecenv.reset(seed=0)
        rows[2] = wrong
        with pytest.raises(UsageError, match=r"`actions` must be in 2\.\.5"):
            vecenv.step(rows)


def test_the_loop_leaks_nothing() -> None:
    vecenv = vector(WAYS[0], in_c=True)
    ids = Crowd.possible_agents
    row, nothing = np.zeros(3, np.float32), {}
    answer = (
        dict.fromkeys(ids, row),
        dict.fromkeys(ids, 0.5),
        dict.fromkeys(ids, False),
        dict.fromkeys(ids, False),
        dict.fromkeys(ids, nothing),
    )
    for env in vecenv.envs:
        env.env.change = lambda env, parts: answer
        env.env.agents = list(ids)
    loop, acting = vecenv.envs[0]._loop, [(id, slot) for slot, id in enumerate(ids)]
    held = (row, nothing, answer, *answer, acting)
    counts = [sys.getrefcount(each) for each in held]
    for _ in range(100):
        assert loop.run(lambda actions: answer, acting) == (answer, True)
    assert [sys.getrefcount(each) for each in held] == counts


def test_an_agent_needs_a_row() -> None:
    loop = vector(WAYS[0], in_c=True).envs[0]._loop
    with pytest.raises(ValueError, match="needs a row"):
        loop.run(lambda actions: None, [("a", 4)])
    assert isinstance(loop, native.AgentLoop)
