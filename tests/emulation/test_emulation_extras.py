"""Emulated envs of other packages equal their originals: box2d and PettingZoo, where installed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from parity import assert_gymnasium_parity, assert_parallel_parity, assert_turn_parity

import pufferlib
from pufferlib.errors import UsageError
from pufferlib.spaces import observation_layout, unflatten_observation


@pytest.fixture(autouse=True)
def _no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.mark.slow
@pytest.mark.parametrize("continuous", [False, True])
def test_lunar_lander(continuous: bool) -> None:
    pytest.importorskip("Box2D")
    episodes = assert_gymnasium_parity(
        lambda: gymnasium.make("LunarLander-v3", continuous=continuous), 10_000
    )
    assert episodes > 50


@pytest.mark.slow
def test_rock_paper_scissors() -> None:
    rps = pytest.importorskip("pettingzoo.classic.rps_v2")
    # 15 rounds to a game
    assert assert_parallel_parity(rps.parallel_env, 10_000) == 10_000 // 15


@pytest.mark.slow
def test_simple_spread() -> None:
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    # 25 steps to an episode; the seed leads through resets of all of them
    assert assert_parallel_parity(spread.parallel_env, 10_000) == 400


def test_simple_spread_with_forces() -> None:
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    creator = lambda: spread.parallel_env(continuous_actions=True)  # noqa: E731
    assert assert_parallel_parity(creator, 500) == 20


def test_parallelizable_aec_simple_spread() -> None:
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    by_turns, at_once = pufferlib.emulate(spread.env), pufferlib.emulate(spread.parallel_env)
    by_turns.reset(seed=1)
    at_once.reset(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.integers(0, 5, 3)
        by_turns.step(actions)
        at_once.step(actions)
        assert (by_turns.observations == at_once.observations).all()
        assert (by_turns.rewards == at_once.rewards).all()


def test_pistonball() -> None:
    pistonball = pytest.importorskip("pettingzoo.butterfly.pistonball_v6")
    creator = lambda: pistonball.parallel_env(max_cycles=20)  # noqa: E731
    assert assert_parallel_parity(creator, 60) == 3


@pytest.mark.slow
def test_pistonball_equals_the_original_for_ten_thousand_agent_steps() -> None:
    pistonball = pytest.importorskip("pettingzoo.butterfly.pistonball_v6")
    assert assert_parallel_parity(pistonball.parallel_env, 500) >= 4  # at most 125 to an episode


@pytest.mark.slow
def test_aec_tictactoe() -> None:
    tictactoe = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    # a game has 5 to 9 turns
    assert 10_000 / 9 < assert_turn_parity(tictactoe.env, 10_000) < 2000


def test_aec_connect_four() -> None:
    connect_four = pytest.importorskip("pettingzoo.classic.connect_four_v3")
    assert assert_turn_parity(connect_four.env, 500) > 10


def test_knights_archers_zombies() -> None:
    zombies = pytest.importorskip("pettingzoo.butterfly.knights_archers_zombies_v11")
    creator = lambda: zombies.parallel_env(max_cycles=100)  # noqa: E731
    assert assert_parallel_parity(creator, 200) >= 2


def test_agents_with_different_spaces_raise() -> None:
    adversary = pytest.importorskip("mpe2.simple_adversary_v3")
    with pytest.raises(UsageError, match="`observation_space` must be the same for all agents"):
        pufferlib.emulate(adversary.parallel_env)


def test_emulate_takes_a_pettingzoo_module() -> None:
    rps = pytest.importorskip("pettingzoo.classic.rps_v2")
    vecenv = pufferlib.emulate(rps, num_envs=3)
    assert vecenv.name == "rps_v2"
    assert {id: part.shape for id, part in vecenv.reset(seed=0).items()} == {
        "player_0": (3,),
        "player_1": (3,),
    }


def test_dict_observations_of_a_board_round_trip() -> None:
    tictactoe: Any = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    vecenv = pufferlib.emulate(tictactoe.env, num_envs=2)
    vecenv.reset(seed=0)
    layout = observation_layout(vecenv.observation_space)
    boards = unflatten_observation(layout, vecenv.observations)
    assert boards["observation"].shape == (4, 3, 3, 2)
    assert boards["action_mask"].sum(1).tolist() == [9, 0, 9, 0]
