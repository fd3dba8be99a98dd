"""What every registered environment promises, tested over all of them.

A new env in envs.def is tested here without a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from random_play import Player, assert_same, play, rows, short_episodes, total_ends

import pufferlib
from pufferlib.native import NativeInfo, NativeVec, infos
from pufferlib.spaces import action_layout, unflatten_action
from pufferlib.vectorization import no_action_check

NUM_ENVS = 5  # no multiple of 2 or 4 threads
STEPS = 300
RESERVED = {
    "backend",
    "buf",
    "double_buffer",
    "env_creator",
    "envs_per_worker",
    "name",
    "num_envs",
    "num_workers",
    "seed",
}

every_env = pytest.mark.parametrize("name", pufferlib.list_envs())


def variants() -> Iterator[Any]:
    """Yield (name, settings): the defaults, and one env for each choice of each param."""
    for name, info in infos().items():
        yield pytest.param(name, {}, id=name)
        for param in info.params:
            for choice in param.choices[1:]:
                yield pytest.param(name, {param.name: choice}, id=f"{name}-{choice}")


def variants_where(test: Callable[[str, dict[str, Any]], Any]) -> Any:
    chosen = [variant for variant in variants() if test(*variant.values)]
    return pytest.mark.parametrize(("name", "settings"), chosen)


def has_masks(name: str, settings: dict[str, Any]) -> bool:
    return NativeVec(name, 1, settings=settings).has_action_masks


def has_choices(name: str, settings: dict[str, Any]) -> bool:
    return bool(action_layout(NativeVec(name, 1, settings=settings).action_space).nvec)


every_variant = variants_where(lambda name, settings: True)
WITHOUT_DICE = {"password", "stochastic", "chain"}  # nothing in their rules is random
# boards too small for all agents: some must wait, masked
CROWDED = {"snake": {"width": 8, "height": 8, "num_agents": 32, "max_length": 8}}


# ---- Rows ----------------------------------------------------------------------------------------


@every_variant
def test_random_play_stays_within_the_spaces(name: str, settings: dict[str, Any]) -> None:
    settings = {**short_episodes(name, 40), **settings}
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=1, **settings) as vecenv:
        space, player = vecenv.observation_space, Player(vecenv)
        vecenv.reset(seed=1)
        assert vecenv.observations.shape == (vecenv.num_agents, *space.shape)
        assert vecenv.observations.dtype == space.dtype
        low, high = np.full(space.shape, np.inf), np.full(space.shape, -np.inf)
        for _ in range(STEPS):
            present = vecenv.masks
            seen = vecenv.observations[present]
            low, high = np.minimum(low, seen.min(0)), np.maximum(high, seen.max(0))
            actions = player()
            assert all(vecenv.action_space.contains(_spoken(player, row)) for row in actions)
            vecenv.step(actions)
            assert np.isfinite(vecenv.observations).all()
            assert np.isfinite(vecenv.rewards).all()
            assert not (vecenv.terminals & vecenv.truncations).any()
            assert vecenv.masks.dtype == np.bool_
        assert (low >= space.low).all()
        assert (high <= space.high).all()


def _spoken(player: Player, row: Any) -> Any:
    if len(player.layout.leaves) > 1:
        return unflatten_action(player.layout, row)
    return row if getattr(row, "ndim", 0) else int(row)


@variants_where(lambda name, settings: short_episodes(name, 7))
def test_final_observations_lie_in_the_space_where_truncated(
    name: str, settings: dict[str, Any]
) -> None:
    settings = {**short_episodes(name, 7), **settings}
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=1, **settings) as vecenv:
        vecenv.reset(seed=2)
        vecenv.final_observations[...] = 77  # outside of every bounded space but bytes
        cut = 0
        for step in play(vecenv, 50):
            final = step["final_observations"]
            cut += len(final)
            assert all(vecenv.observation_space.contains(row) for row in final)
        # 5 envs, 7 steps each unless they end before: some of 7 x 5 episodes reach the limit
        assert cut > 0


@variants_where(has_masks)
def test_every_present_slot_has_a_legal_action(name: str, settings: dict[str, Any]) -> None:
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=1, **settings) as vecenv:
        vecenv.reset(seed=3)
        assert vecenv.action_masks is not None
        splits = np.cumsum(action_layout(vecenv.action_space).nvec)[:-1]
        player = Player(vecenv)
        for _ in range(STEPS):
            for component in np.split(vecenv.action_masks, splits, axis=1):
                assert component[vecenv.masks].any(1).all()
            vecenv.step(player())


@pytest.mark.parametrize("name", CROWDED)
def test_absent_slots_have_no_rewards_and_no_ends(name: str) -> None:
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=1, **CROWDED[name]) as vecenv:
        vecenv.reset(seed=4)
        player, absences = Player(vecenv), 0
        for _ in range(STEPS):
            absent = ~vecenv.masks
            absences += int(absent.sum())
            vecenv.step(player())
            assert not vecenv.rewards[absent].any()
            assert not vecenv.terminals[absent].any()
            assert not vecenv.truncations[absent].any()
        assert absences > 0


# ---- Determinism ---------------------------------------------------------------------------------


@every_variant
def test_threads_and_serial_play_the_same_game(name: str, settings: dict[str, Any]) -> None:
    settings = {**short_episodes(name, 40), **settings}
    stories, drained = [], []
    for backend, workers in (("threads", 1), ("threads", 2), ("threads", 4), ("serial", None)):
        with pufferlib.make(
            name, num_envs=NUM_ENVS, num_workers=workers, backend=backend, **settings
        ) as vecenv:
            vecenv.reset(seed=5)
            first = {**rows(vecenv), "infos": []}
            stories.append([first, *play(vecenv, STEPS)])
            drained.append(vecenv.drain_metrics())
    for other, metrics in zip(stories[1:], drained[1:], strict=True):
        assert_same(stories[0], other)
        assert metrics == pytest.approx(drained[0])
    assert total_ends(stories[0]) == drained[0]["episodes"] > 0
    ended = [info for step in stories[0] for info in step["infos"] if info]
    assert len(ended) == drained[0]["episodes"]
    assert np.mean([info["r"] for info in ended]) == pytest.approx(drained[0]["mean_reward"])
    assert np.mean([info["l"] for info in ended]) == pytest.approx(drained[0]["episode_length"])


@every_env
def test_the_seed_decides_the_game(name: str) -> None:
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=1) as vecenv:
        stories = []
        for seed in (6, 6, 7):
            vecenv.reset(seed=seed)
            stories.append(play(vecenv, 100))
        assert_same(stories[0], stories[1])
        if name in WITHOUT_DICE:
            assert_same(stories[0], stories[2])
            return
        with pytest.raises(AssertionError):
            assert_same(stories[0], stories[2])


@pytest.mark.parametrize(
    "name", [name for name in pufferlib.list_envs() if name not in WITHOUT_DICE]
)
def test_envs_of_one_vector_differ_under_equal_actions(name: str) -> None:
    with pufferlib.make(name, num_envs=2, num_workers=1) as vecenv:
        vecenv.reset(seed=8)
        agents, player, differ = vecenv.agents_per_env, Player(vecenv), False
        for _ in range(100):
            actions = player()
            actions[agents:] = actions[:agents]
            vecenv.step(actions)
            for seen in (vecenv.observations, vecenv.rewards):
                differ = differ or bool((seen[:agents] != seen[agents:]).any())
        assert differ


@every_variant
def test_a_snapshot_replays_all_envs(name: str, settings: dict[str, Any]) -> None:
    settings = {**short_episodes(name, 30), **settings}
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=1, **settings) as vecenv:
        vecenv.reset(seed=9)
        play(vecenv, 57)
        state, before = vecenv.snapshot(), rows(vecenv)
        first = play(vecenv, 100, seed=1)
        play(vecenv, 13, seed=2)

        vecenv.restore(state)

        for field in ("observations", "masks", "action_masks"):
            if field in before:
                assert (rows(vecenv)[field] == before[field]).all()
        assert not vecenv.rewards.any()
        assert not (vecenv.terminals | vecenv.truncations).any()
        assert_same(play(vecenv, 100, seed=1), first)


@every_variant
def test_a_snapshot_replays_one_env_in_another_vector(name: str, settings: dict[str, Any]) -> None:
    settings = {**short_episodes(name, 30), **settings}
    with (
        pufferlib.make(name, num_envs=4, num_workers=1, **settings) as vecenv,
        pufferlib.make(name, num_envs=1, num_workers=1, **settings) as alone,
    ):
        vecenv.reset(seed=10)
        play(vecenv, 40)
        state = vecenv.snapshot()
        agents = vecenv.agents_per_env
        env = slice(2 * agents, 3 * agents)
        player, story = Player(vecenv, 1), []
        actions = []
        for _ in range(60):
            actions.append(player())
            vecenv.step(actions[-1])
            story.append(rows(vecenv))
        alone.reset(seed=0)
        alone.restore(state[2], env=0)
        for step, row in zip(story, actions, strict=True):
            alone.step(row[env])
            for field in ("observations", "rewards", "terminals", "truncations", "masks"):
                assert step[field][env].tobytes() == getattr(alone, field).tobytes()


# ---- Faults --------------------------------------------------------------------------------------


@every_variant
def test_wild_actions_leave_finite_rows(name: str, settings: dict[str, Any]) -> None:
    settings = {**short_episodes(name, 40), **settings}
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=2, **settings) as vecenv:
        layout = action_layout(vecenv.action_space)
        vecenv.reset(seed=11)
        rng = np.random.default_rng(0)
        wild = {
            "i": [-1, 99, 2**31 - 1, -(2**31), 2**16],
            "f": [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45],
        }[layout.dtype.kind]
        for _ in range(100):
            shape = (vecenv.num_agents, *layout.shape)
            with no_action_check(vecenv):
                vecenv.step(rng.choice(np.array(wild, dtype=layout.dtype), shape))
            assert np.isfinite(vecenv.observations).all()
            assert np.isfinite(vecenv.rewards).all()
        low, high = vecenv.observation_space.low, vecenv.observation_space.high
        seen = vecenv.observations[vecenv.masks]
        assert ((seen >= low) & (seen <= high)).all()


@variants_where(has_choices)
def test_an_action_out_of_range_counts_as_0(name: str, settings: dict[str, Any]) -> None:
    with pufferlib.make(name, num_envs=NUM_ENVS, num_workers=1, **settings) as vecenv:
        layout = action_layout(vecenv.action_space)
        stories = []
        for action in (0, -5, 1000):
            vecenv.reset(seed=12)
            story = []
            for _ in range(30):
                actions = np.full((vecenv.num_agents, *layout.shape), action)
                if layout.num_continuous:
                    actions[:, layout.num_discrete :] = 0  # beside choices; reals have no range
                with no_action_check(vecenv):
                    vecenv.step(actions)
                story.append(rows(vecenv))
            stories.append(story)
        assert_same(stories[0], stories[1])
        assert_same(stories[0], stories[2])


# ---- What an env declares -----------------------------------------------------------------------


@every_env
def test_metrics_hold_score_and_perf(name: str) -> None:
    with pufferlib.make(name, num_envs=16, num_workers=1, **short_episodes(name, 60)) as vecenv:
        vecenv.reset(seed=13)
        play(vecenv, STEPS)
        metrics = vecenv.drain_metrics()
        assert metrics["episodes"] > 0
        assert {"score", "perf"} <= metrics.keys()
        assert 0 <= metrics["perf"] <= 1
        assert metrics["min_reward"] <= metrics["mean_reward"] <= metrics["max_reward"]
        assert metrics["episode_length"] >= 1
        assert vecenv.drain_metrics() == {"episodes": 0.0}


@every_env
def test_descriptors_are_complete(name: str) -> None:
    info: NativeInfo = infos()[name]
    assert info.doc
    assert info.group
    names = [param.name for param in info.params]
    assert len(set(names)) == len(names)
    assert not RESERVED & set(names)
    for param in info.params:
        assert param.doc, param.name
        assert param.low <= param.default <= param.high, param.name
        assert len(param.choices) in (0, param.high + 1), param.name
    assert [metric.name for metric in info.metrics][:2] == ["score", "perf"]
    assert all(metric.doc for metric in info.metrics)


@every_env
def test_params_work_at_both_ends_of_their_range(name: str) -> None:
    for param in infos()[name].params:
        for value in (param.low, param.high):
            vec = NativeVec(name, 1, settings={param.name: param.spell(value)})
            vec.reset(0)
            for _ in range(3):
                vec.step()
            assert np.isfinite(vec.buffers.observations).all(), f"{param.name}={value}"
            vec.close()


@every_variant
def test_the_picture_is_not_blank_and_changes(name: str, settings: dict[str, Any]) -> None:
    with pufferlib.make(name, num_envs=2, num_workers=1, **settings) as vecenv:
        vecenv.reset(seed=14)
        first = vecenv.render()
        assert first is not None
        assert first.dtype == np.uint8
        assert first.ndim == 3
        assert first.shape[2] == 3
        assert min(first.shape[:2]) >= 64
        colours = {tuple(pixel) for pixel in first.reshape(-1, 3)[::7]}
        assert len(colours) >= 3
        assert (vecenv.render() == first).all()  # drawing changes nothing
        play(vecenv, 5)
        assert (vecenv.render(0) != first).any()
