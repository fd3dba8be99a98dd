"""MicroRTS: masks and ends, against a vector env with gym-microrts' API."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pufferlib
from pufferlib.errors import MissingExtraError, UnknownNameError, UsageError

DIMS = [6, 4, 4, 4, 4, 7, 49]


class HeadlessException(Exception):  # noqa: N818 (named as Java's)
    """What Java raises without a display."""


class Match:
    """One match on 4 x 4 cells; it is won in step 3, and begins again by itself."""

    made: Match

    def __init__(self, max_steps: int, ai2s: Any, map_paths: Any, **others: Any) -> None:
        self.max_steps, self.map_paths = max_steps, map_paths
        self.height = self.width = 4
        self.num_planes, self.action_space_dims = [5, 5, 3, 8, 6], DIMS
        self.vec_client = SimpleNamespace(close=lambda: setattr(self, "is_closed", True))
        self.total = 0
        Match.made = self

    def _seen(self) -> Any:
        planes = np.zeros((1, 4, 4, 27), np.int32)
        planes[0, 0, 0, self.total % 27] = 1
        return planes

    def reset(self) -> Any:
        self.ticks = 0
        return self._seen()

    def render(self, mode: str) -> Any:
        raise HeadlessException("No X11 DISPLAY variable was set")

    def get_action_mask(self) -> Any:
        mask = np.zeros((1, 16, sum(DIMS)), np.int32)
        mask[0, 5, [0, 1, 6 + 2]] = 1  # a unit in cell 5: wait, or move in direction 2
        return mask

    def step(self, actions: Any) -> Any:
        assert actions.shape == (1, 16 * len(DIMS))
        self.ticks += 1
        self.total += 1
        has_won = self.ticks == 3
        done = has_won or self.ticks >= self.max_steps
        if done:
            self.ticks = 0
        rewards = np.array([[float(has_won), 0, 0, 0, 0, 0]])
        return self._seen(), 10 * rewards[:, 0], np.array([done]), [{"raw_rewards": rewards[0]}]


@pytest.fixture
def package(stand_in: Callable[..., ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("jpype")
    for name in ("gym_microrts", "gym_microrts.envs"):
        stand_in(name)
    stand_in("gym_microrts.envs.vec_env", MicroRTSGridModeVecEnv=Match)
    stand_in("gym_microrts.microrts_ai", coacAI=lambda utt: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.usefixtures("package")
def test_cells_without_a_unit_have_one_choice() -> None:
    with pufferlib.make("microrts", num_envs=1, backend="serial", map_size=4) as vecenv:
        vecenv.reset()
        assert vecenv.action_masks is not None
        mask = vecenv.action_masks[0].reshape(16, sum(DIMS))
        first = np.cumsum(DIMS) - DIMS
        assert np.flatnonzero(mask[0]).tolist() == first.tolist()
        # its type and direction as the simulator says, the first choice of all other parts
        assert np.flatnonzero(mask[5]).tolist() == [0, 1, 8, *first[2:]]
        assert Match.made.map_paths == ["maps/4x4/basesWorkers4x4.xml"]


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(("max_steps", "steps", "won"), [(9, 3, True), (2, 2, False)])
def test_a_win_is_terminal_and_the_time_limit_is_not(max_steps: int, steps: int, won: bool) -> None:
    with pufferlib.make(
        "microrts", num_envs=1, backend="serial", map_size=4, max_steps=max_steps
    ) as vecenv:
        vecenv.reset()
        for _ in range(steps):
            observations, _, _, infos = vecenv.step(np.zeros((1, 16 * 7), int))
        assert (vecenv.terminals[0], vecenv.truncations[0]) == (won, not won)
        assert infos[0]["won"] == won
        # the simulator has begun the next match; the last observation is the one before the end
        assert observations[0, 0, 0].argmax() == steps
        assert vecenv.final_observations[0, 0, 0].argmax() == steps - 1
    assert Match.made.is_closed


@pytest.mark.usefixtures("package")
def test_without_a_display_there_is_no_picture() -> None:
    with pufferlib.make("microrts", num_envs=1, backend="serial", map_size=4) as vecenv:
        vecenv.reset()
        assert vecenv.render(0) is None


@pytest.mark.usefixtures("package")
def test_params_are_checked() -> None:
    with pytest.raises(UsageError, match=r"`map_size` must be one of \(4, 8, .*, but got 5"):
        pufferlib.make("microrts", num_envs=1, backend="serial", map_size=5)
    with pytest.raises(UnknownNameError, match=r"opponent `coacA`\. Did you mean `coacAI`"):
        pufferlib.make("microrts", num_envs=1, backend="serial", map_size=4, opponent="coacA")


@pytest.mark.usefixtures("package")
def test_missing_java_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs Java, .*: apt-get install default-jre"):
        pufferlib.make("microrts")
