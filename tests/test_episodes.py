"""Statistics add up, and infos are built only when someone looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pufferlib
from pufferlib.episodes import (
    EpisodeStats,
    EpisodeTracker,
    EpisodeWindow,
    Finished,
    Infos,
    joined_metrics,
)


class Counter:
    """A builder of infos that counts its calls."""

    def __init__(self, given: dict[int, dict[str, Any]]) -> None:
        self.calls = 0
        self.given = given

    def __call__(self) -> dict[int, dict[str, Any]]:
        self.calls += 1
        return self.given


def test_infos_are_built_once_on_first_access() -> None:
    build = Counter({1: {"a": 1}})
    infos = Infos(3, build)

    assert len(infos) == 3
    assert build.calls == 0
    assert infos[1] == {"a": 1}
    assert list(infos) == [{}, {"a": 1}, {}]
    assert infos[0:2] == [{}, {"a": 1}]
    assert infos == [{}, {"a": 1}, {}]
    assert repr(infos) == "[{}, {'a': 1}, {}]"
    assert build.calls == 1


def test_every_slot_has_its_own_dict() -> None:
    infos = Infos(2, dict)
    infos[0]["mine"] = True
    assert infos[1] == {}


def test_finished_has_return_length_and_time_of_ended_episodes() -> None:
    infos = Finished(
        np.array([False, True, True]), np.array([9.0, 1.5, -2.0]), np.array([9, 3, 4]), 0.25
    )
    assert infos == {
        1: {"episode": {"r": 1.5, "l": 3, "t": 0.25}},
        2: {"episode": {"r": -2.0, "l": 4, "t": 0.25}},
    }


def test_stats_of_two_parts_add_up_to_those_of_the_whole() -> None:
    whole, left, right = EpisodeStats(), EpisodeStats(), EpisodeStats()
    for part, episode in ((left, (1.0, 10)), (left, (3.0, 20)), (right, (-4.0, 60))):
        for stats in (part, whole):
            stats.add(*episode)
    for part, value in ((left, 0.5), (right, 1.0)):
        for stats in (part, whole):
            stats.add_metric("perf", value)
    right.add_metric("draw", 1.0)
    whole.add_metric("draw", 1.0)

    left.merge(right)

    # returns 1, 3, -4: mean 0; lengths 10, 20, 60: mean 30; perf 0.5 and 1: mean 0.75
    expected = {
        "episodes": 3.0,
        "mean_reward": 0.0,
        "min_reward": -4.0,
        "max_reward": 3.0,
        "episode_length": 30.0,
        "perf": 0.75,
        "draw": 1.0,
    }
    assert left.means() == expected
    assert whole.means() == expected


def test_without_episodes_there_is_only_their_number() -> None:
    assert EpisodeStats().means() == {"episodes": 0.0}


def test_metrics_of_processes_are_weighted_by_episodes() -> None:
    parts = [
        {"episodes": 1.0, "mean_reward": 4.0, "min_reward": 4.0, "max_reward": 4.0, "perf": 0.0},
        {"episodes": 3.0, "mean_reward": 0.0, "min_reward": -9.0, "max_reward": 2.0, "perf": 1.0},
        {"episodes": 0.0},
    ]
    joined = joined_metrics(parts)
    assert joined["mean_reward"] == pytest.approx(1.0)
    assert joined["perf"] == pytest.approx(0.75)
    assert (joined["episodes"], joined["min_reward"], joined["max_reward"]) == (4, -9, 4)


def rollout_of(episodes: int, reward: float, **metrics: float) -> dict[str, float]:
    rewards = dict.fromkeys(("mean_reward", "min_reward", "max_reward"), reward)
    return {"episodes": float(episodes), **rewards, **metrics}


def test_a_window_keeps_the_last_rollouts_that_have_enough_episodes() -> None:
    window = EpisodeWindow(num_slots=1, size=100)
    assert window.means() == {}
    for reward in range(60):
        window.add(rollout_of(2, reward, perf=reward / 100))
        window.add({"episodes": 0.0})  # says nothing, and pushes nothing out
    # 50 rollouts of 2 episodes: rewards 10 to 59, whose mean is 34.5
    assert window.means() == pytest.approx(
        {"mean_reward": 34.5, "min_reward": 10, "max_reward": 59, "perf": 0.345}
    )
    window.add(rollout_of(99, 0.0, perf=0.0))
    # one episode short of 100: the newest rollout before it stays, and counts by its 2 episodes
    assert window.means()["mean_reward"] == pytest.approx(2 * 59 / 101)
    window.add(rollout_of(5000, -3.0, perf=1.0))
    assert {"episodes": 5000.0, **window.means()} == rollout_of(5000, -3.0, perf=1.0)


def test_standings_are_the_last_of_the_window() -> None:
    window = EpisodeWindow(num_slots=1)
    for elo in (1000.0, 1200.0):
        window.add(rollout_of(10, 1.0, elo=elo, restarts=elo / 1000, win_rate=elo / 2000))
    means = window.means()
    assert (means["elo"], means["restarts"], means["win_rate"]) == (1200.0, 1.2, 0.55)


def test_a_window_is_settled_when_every_slot_has_ended_and_it_is_full() -> None:
    window = EpisodeWindow(num_slots=3, size=10)
    window.add(rollout_of(50, 1.0))  # the shortest of many: slot 1 has not ended yet
    slots, present = np.array([0, 1, 2, 0, 1, 2]), np.array([True, True, False] * 2)
    assert not window.note_ends(slots, np.array([True] + [False] * 5), present)
    assert not window.is_settled
    # slot 2 is absent throughout and not waited for
    window.all_ended = window.note_ends(slots, np.array([False] * 4 + [True, False]), present)
    assert window.is_settled
    assert not window.note_ends(slots, np.zeros(6, np.bool_), np.ones(6, np.bool_))


def test_tracker_sums_rewards_and_steps_of_each_slot() -> None:
    tracker = EpisodeTracker(2)
    present, ended = np.array([True, True]), np.array([False, False])

    assert tracker.step(np.array([1.0, 5.0]), ended, present) == {}
    infos = tracker.step(np.array([2.0, 5.0]), np.array([True, False]), np.array([True, False]))
    assert infos[0]["episode"]["r"] == 3.0
    assert infos[0]["episode"]["l"] == 2
    # slot 1 was absent in the second step: 5 + 5 in one step so far, then 7 in another
    infos = tracker.step(np.array([1.0, 7.0]), np.array([False, True]), present)
    assert infos[1]["episode"]["r"] == 17.0
    assert infos[1]["episode"]["l"] == 2

    assert tracker.drain().means() == {
        "episodes": 2.0,
        "mean_reward": 10.0,
        "min_reward": 3.0,
        "max_reward": 17.0,
        "episode_length": 2.0,
    }
    assert tracker.drain().episodes == 0


def test_tracker_forgets_running_episodes_and_statistics_at_reset() -> None:
    tracker = EpisodeTracker(1)
    on, off = np.array([True]), np.array([False])
    tracker.step(np.array([1.0]), on, on)
    tracker.step(np.array([10.0]), off, on)

    tracker.reset()

    assert tracker.step(np.array([2.0]), on, on)[0]["episode"]["r"] == 2.0
    assert tracker.drain().episodes == 1


def test_infos_of_an_earlier_step_keep_their_values() -> None:
    with pufferlib.make("cartpole", num_envs=4, num_workers=1, max_steps=3) as vecenv:
        vecenv.reset(seed=0)
        held = [vecenv.step(np.zeros(4, np.int32))[3] for _ in range(9)]

        # nothing falls within 3 steps: every third step ends all four episodes, 1 reward a step
        ended = {"r": 3.0, "l": 3}
        for step, infos in enumerate(held, start=1):
            assert len(infos) == 4
            for info in infos:
                if step % 3:
                    assert info == {}
                else:
                    assert {key: info["episode"][key] for key in ended} == ended


@pytest.mark.parametrize("call", ["reset", "restore", "close"])
def test_held_infos_survive_calls_that_overwrite_their_rows(call: str) -> None:
    vecenv = pufferlib.make("cartpole", num_envs=2, num_workers=1, max_steps=1)
    vecenv.reset(seed=0)
    state = vecenv.snapshot()
    *_, infos = vecenv.step(0)
    {"reset": vecenv.reset, "restore": lambda: vecenv.restore(state), "close": vecenv.close}[call]()
    assert [info["episode"]["r"] for info in infos] == [1.0, 1.0]
    vecenv.close()


def test_unreferenced_infos_are_never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr("pufferlib.native.Finished", lambda *_: calls.append(1) or {})
    with pufferlib.make("cartpole", num_envs=4, num_workers=1, max_steps=2) as vecenv:
        vecenv.reset(seed=0)
        for _ in range(10):
            vecenv.step(0)
        assert not calls
        *_, infos = vecenv.step(0)
        assert not calls
        vecenv.step(0)
        assert len(calls) == 1  # held across a step: built just in time
        assert infos[0] == {}


def test_infos_of_c_envs_carry_the_metrics_of_the_episode_that_ended() -> None:
    with pufferlib.make("cartpole", num_envs=2, num_workers=1, max_steps=3) as vecenv:
        vecenv.reset(seed=0)
        held = [vecenv.step(0)[3] for _ in range(4)]
    assert [info.get("score") for infos in held for info in infos] == [None] * 4 + [3, 3] + [
        None
    ] * 2
    assert held[2][0]["score"] == held[2][0]["episode"]["l"]
    assert held[2][1]["perf"] == pytest.approx(1.0)


def test_detached_infos_do_not_use_their_source() -> None:
    source = {1: {"a": 1}}
    calls = []

    def build() -> dict[int, dict[str, int]]:
        calls.append(None)
        return {slot: dict(info) for slot, info in source.items()}

    infos = Infos(3, build)
    infos.detach()
    source[1]["a"] = 2
    infos.detach()
    assert infos == [{}, {"a": 1}, {}]
    assert infos[1] is infos.settle()[1]
    assert len(calls) == 1
