"""C environments as Python sees them: params, rows, order of calls."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from pufferlib.buffers import allocate
from pufferlib.errors import UnknownNameError, UsageError
from pufferlib.native import (
    NativeCreator,
    NativeEnv,
    NativeVec,
    env_seed,
    fresh_seed,
    futex_baseline,
    infos,
)


def test_every_env_is_described() -> None:
    assert {"cartpole", "squared", "breakout", "snake", "connect4"} <= set(infos())
    cartpole = infos()["cartpole"]
    gravity = next(param for param in cartpole.params if param.name == "gravity")
    assert (gravity.type, gravity.default, gravity.low) == ("float", 9.8, 0.0)
    opponent = infos()["connect4"].params[0]
    assert (opponent.type, opponent.choices) == ("choice", ("scripted", "self", "random"))


@pytest.mark.parametrize(
    ("given", "stored"),
    [(3, 3.0), (2.5, 2.5), ("2.5", 2.5), ("3", 3.0), (np.float32(2), 2.0), (np.int64(4), 4.0)],
)
def test_a_float_param_takes_any_number(given: Any, stored: float) -> None:
    values = infos()["cartpole"].values({"gravity": given})
    assert values[0] == stored


@pytest.mark.parametrize("given", [7, 7.0, "7", np.int32(7)])
def test_an_int_param_takes_whole_numbers(given: Any) -> None:
    values = infos()["cartpole"].values({"max_steps": given})
    assert values[-1] == 7.0


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("cartpole", {"max_steps": 2.5}, "`max_steps` of `cartpole` must be a whole number"),
        ("cartpole", {"max_steps": "many"}, "must be a whole number, but got `many`"),
        ("cartpole", {"gravity": None}, "`gravity` of `cartpole` must be a number, but got None"),
        ("cartpole", {"gravity": 1e9}, r"`gravity` must be in \[0, 100\], but got 1e\+09"),
        ("cartpole", {"gravity": float("nan")}, r"`gravity` must be in \[0, 100\]"),
        ("cartpole", {"max_steps": 0}, "`max_steps` must be in"),
        ("connect4", {"opponent": "slef"}, "scripted, self, random, but got `slef`.*`self`"),
        ("connect4", {"opponent": 1}, "must be one of scripted, self, random, but got 1"),
    ],
)
def test_a_bad_param_is_reported_in_one_line(
    name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        NativeVec(name, 2, settings=settings)
    assert "\n" not in str(caught.value)


def test_an_unknown_param_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"param of `breakout` `paddle_widht`.*paddle_width"):
        NativeVec("breakout", 1, settings={"paddle_widht": 3})
    with pytest.raises(UnknownNameError, match="Did you mean `breakout`"):
        NativeVec("braekout", 1)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((0, 1), "`num_envs` must be between 1"),
        ((2**40, 1), "`num_envs` must be between 1"),
        ((2**31 - 1, 1), "`num_envs` x agents must be at most 67108864"),
        ((1, 0), "`num_workers` must be between 1"),
        ((1, 5000), r"threads must be in 1..1024, but got 1 and 5000"),
    ],
)
def test_impossible_sizes_are_reported_in_one_line(sizes: tuple[int, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        NativeVec("squared", *sizes)


@pytest.mark.parametrize("call", ["step", "render", "snapshot"])
def test_reset_must_come_first(call: str) -> None:
    vec = NativeVec("snake", 1)  # its rules index a board that only `reset` lays out
    with pytest.raises(UsageError, match=f"`reset` must be called before `{call}`"):
        getattr(vec, call)()


def test_a_snapshot_of_all_envs_stands_in_for_a_reset() -> None:
    one, other = NativeVec("cartpole", 3), NativeVec("cartpole", 3)
    one.reset(7)
    state = one.snapshot()
    one.step()

    other.restore(state)
    other.step()

    assert (one.buffers.observations == other.buffers.observations).all()


@pytest.mark.parametrize(
    ("settings", "num_envs", "message"),
    [
        ({"gravity": 3.0}, 2, "taken with a different `gravity`"),
        ({}, 1, "the env range must lie inside the vector"),
    ],
)
def test_a_snapshot_of_another_vector_is_refused(
    settings: dict[str, Any], num_envs: int, message: str
) -> None:
    one, other = NativeVec("cartpole", 2), NativeVec("cartpole", num_envs, settings=settings)
    one.reset(7)
    other.reset(8)
    before = other.buffers.observations.copy()
    with pytest.raises(UsageError, match=message):
        other.restore(one.snapshot())
    assert (other.buffers.observations == before).all()
    squared = NativeVec("squared", 2)
    with pytest.raises(UsageError, match="snapshots must have"):
        squared.restore(one.snapshot())


def test_restoring_one_env_leaves_the_others_alone() -> None:
    vec = NativeVec("cartpole", 3)
    vec.reset(1)
    state = vec.snapshot()
    for _ in range(5):
        vec.step()
    after = vec.buffers.observations.copy()

    vec.restore(state[1:2], first=1)

    changed = (vec.buffers.observations != after).any(1)
    assert changed.tolist() == [False, True, False]


def test_actions_are_read_in_place_or_from_the_bound_rows() -> None:
    one, other = NativeVec("cartpole", 4), NativeVec("cartpole", 4)
    for vec in (one, other):
        vec.reset(3)
    actions = np.array([0, 1, 1, 0], np.int32)
    for _ in range(5):
        one.step(actions)
        other.buffers.actions[:] = actions
        other.step()
    assert (one.buffers.observations == other.buffers.observations).all()
    assert not one.buffers.actions.any()
    with pytest.raises(ValueError, match="actions must have 16 bytes, but got 12"):
        one.step(actions[:3])


def test_rows_live_in_the_buffers_given() -> None:
    own = NativeVec("connect4", 2)
    buffers = allocate(2, own.observation_space, own.action_space, action_masks=True)
    vec = NativeVec("connect4", 2, buffers=buffers)
    vec.reset(5)
    own.reset(5)
    assert (buffers.observations == own.buffers.observations).all()
    assert buffers.action_masks is not None
    assert buffers.action_masks.all()


def test_a_bound_row_of_the_wrong_size_is_refused() -> None:
    vec = NativeVec("cartpole", 4)
    wrong = allocate(3, vec.observation_space, vec.action_space)
    with pytest.raises(ValueError, match="observations must have 64 bytes, but got 48"):
        vec.bind(wrong)


def test_closing_twice_is_fine_and_rows_stay_readable() -> None:
    vec = NativeVec("cartpole", 2, num_threads=2)
    vec.reset(0)
    vec.step()
    rows = vec.buffers.observations
    vec.close()
    vec.close()
    assert np.isfinite(rows).all()
    with pytest.raises(ValueError, match="closed"):
        vec.step()


def test_a_script_that_ends_with_an_env_in_use_prints_nothing() -> None:
    script = (
        "import gc, pufferlib\n"
        "env = pufferlib.make('cartpole', num_envs=2)\n"
        "def kept(phase, info): env\n"
        "gc.callbacks.append(kept)  # the interpreter never frees it\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_episode_time_is_that_of_the_step_not_of_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pufferlib.native.time.perf_counter", lambda: now[0])
    vec = NativeVec("cartpole", 1, settings={"max_steps": 1})
    vec.reset(0)
    now[0] = 102.0
    vec.step()
    now[0] = 150.0
    assert vec.episode_infos()[0]["episode"]["t"] == 2.0


def test_a_single_env_plays_like_one_of_a_vector() -> None:
    env, vec = (
        NativeEnv("snake", width=12, height=12),
        NativeVec("snake", 1, 1, {"width": 12, "height": 12}),
    )
    env.reset(seed=4)
    vec.reset(4)
    rng = np.random.default_rng(0)
    for _ in range(50):
        actions = rng.integers(0, 4, env.num_agents, dtype=np.int32)
        observations, rewards, terminals, _, reported = env.step(actions)
        vec.step(actions)
        assert (observations == vec.buffers.observations).all()
        assert (rewards == vec.buffers.rewards).all()
        assert [bool(info) for info in reported] == terminals.tolist()
    assert env.drain() == vec.drain()


def test_a_creator_makes_single_envs() -> None:
    env = NativeCreator("cartpole")(max_steps=5)
    assert env.num_agents == 1
    observations, reported = env.reset(seed=0)
    assert observations.shape == (1, 4)
    assert reported == [{}]
    picture = env.render()
    assert picture.ndim == 3
    env.close()


def test_env_seeds_differ_and_the_first_is_the_run_seed() -> None:
    seeds = [env_seed(123, index) for index in range(1000)]
    assert seeds[0] == 123
    assert len(set(seeds)) == 1000
    assert set(seeds[1:]).isdisjoint(env_seed(124, index) for index in range(1000))
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert fresh_seed() != fresh_seed()


def test_a_turn_of_the_futex_baseline_takes_at_least_the_time_of_its_work() -> None:
    assert futex_baseline(2, 2e-3, 5) >= 2e-3
    with pytest.raises(ValueError, match="must be at least 1"):
        futex_baseline(0, 0.0, 1)
